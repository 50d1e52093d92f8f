"""The pipeline's tables as Iceberg tables: who knows only those sees the same rows."""

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable
from pyspark.sql import Row

from holdfast.cli.pipeline_setup import find_locations, open_tables
from holdfast.errors import UsageError
from holdfast.history.erase import carry_out
from holdfast.history.erased import Selector
from holdfast.history.iceberg import HINT
from holdfast.history.table import load
from holdfast.spark.delta import Table, absolute, is_table
from holdfast.spark.files import add_action, write_file
from holdfast.spark.keeper import Keeper
from holdfast.spark.tables import TABLES
from spark.publishes import publishes, write_history

NO_SPARK: Any = None  # views are made of files
ROWS = publishes(60, topics=10, seed=91)
TOPICS = sorted({row["topic"] for row in ROWS})[:3]
KEEP_S = 300.0


def opened(folder: Path, *names: str) -> Keeper:
    config = folder / "holdfast.toml"
    config.write_text(f"[pipeline]\niceberg = {list(names)}\n".replace("'", '"'))
    return open_tables(NO_SPARK, find_locations(None, None, str(folder), config), [])


def values(kind: pa.DataType) -> list[Any]:
    if pa.types.is_map(kind):
        return [[("level", text)] for text in TOPICS]
    if pa.types.is_list(kind):
        return [[{"key": "unit", "value": "C"}], [], None]
    if pa.types.is_binary(kind):
        return [b"1", b"", None]
    return TOPICS if pa.types.is_string(kind) else [1, 2, 3]


def add_rows(table: Table, applied: int) -> None:
    """A row for each of the topics, whatever else is in it, in the place of those that are there."""
    schema = table.value.schema
    rows = pa.table([pa.array(values(field.type), field.type) for field in schema], schema=schema)
    [report] = write_file(rows, table.root, table.value).to_pylist()
    table.commit([add_action(Row(**report))], table.files, applied)


def in_iceberg(folder: Path, name: str) -> pa.Table:
    """As one who knows nothing of the catalog."""
    hint = folder / "pipeline" / name / HINT
    return StaticTable.from_metadata(str(hint.with_name(f"{hint.read_text()}.metadata.json"))).scan().to_arrow()


def rows_of(table: pa.Table) -> list[str]:
    """PyIceberg shows a list that is null as one that is empty."""
    return sorted(str({name: value or None for name, value in row.items()}) for row in table.to_pylist())


def check(folder: Path) -> None:
    for name in TABLES:
        delta = DeltaTable(folder / "pipeline" / name).to_pyarrow_table()
        assert rows_of(in_iceberg(folder, name)) == rows_of(delta), name


def test_every_table_can_be_read_as_iceberg_and_what_is_erased_is_in_none(tmp_path: Path) -> None:
    write_history(tmp_path / "history", ROWS)
    keeper = opened(tmp_path, *TABLES)
    for _ in range(2):  # in two runs, of two batches each
        for _ in range(2):
            for table in keeper.tables.values():
                add_rows(table, keeper.history.end)
            keeper.tidy(KEEP_S)
            check(tmp_path)
        keeper.close()
        keeper = opened(tmp_path, *TABLES)
    catalog = SqlCatalog("holdfast", uri=f"sqlite:///{tmp_path / 'pipeline' / 'iceberg.db'}")
    with duckdb.connect() as connection:
        connection.register("topic_stats", catalog.load_table("holdfast.topic_stats").scan().to_arrow())
        found = connection.sql("select topic, messages from topic_stats order by topic").fetchall()
    catalog.close()
    assert found == [(topic, number) for number, topic in enumerate(TOPICS, 1)]

    for _ in carry_out(load(tmp_path / "history"), tmp_path / "history", "gone", Selector("topic", TOPICS[0]), 0):
        pass
    keeper.refresh()
    assert keeper.follow_erasures() > 0
    check(tmp_path)
    assert in_iceberg(tmp_path, "topic_stats")["topic"].to_pylist() == TOPICS[1:]
    keeper.close()


def test_a_table_that_is_not_named_has_no_view(tmp_path: Path) -> None:
    write_history(tmp_path / "history", ROWS)
    keeper = opened(tmp_path, "traffic")
    keeper.tidy(KEEP_S)
    keeper.close()
    assert [path.parent.name for path in (tmp_path / "pipeline").glob("*/_iceberg")] == ["traffic"]


def test_tables_whose_folder_is_given_as_a_url_lie_in_that_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_history(tmp_path / "history", ROWS)
    config = tmp_path / "holdfast.toml"
    config.write_text('[pipeline]\niceberg = ["traffic"]\n')
    tables = tmp_path / "elsewhere"
    url = f"file://{tables}"
    open_tables(NO_SPARK, find_locations(None, url, str(tmp_path), config), []).close()
    assert {".lock", "iceberg.db", "traffic"} <= {path.name for path in tables.iterdir()}
    assert is_table(f"{absolute(url)}/traffic")
    assert {path.name for path in tmp_path.iterdir()} == {"history", "holdfast.toml", "elsewhere"}


def test_a_name_that_no_table_has_is_refused(tmp_path: Path) -> None:
    write_history(tmp_path / "history", ROWS)
    with pytest.raises(UsageError, match=r"pipeline\.iceberg: expected names out of retained, .*, got retain$"):
        opened(tmp_path, "retain")
    opened(tmp_path).close()
