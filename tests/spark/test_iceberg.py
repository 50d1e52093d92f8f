"""The pipeline's tables as Iceberg tables: who knows only those sees the same rows."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable
from pyspark.sql import Row, SparkSession

from holdfast.cli.pipeline_setup import find_locations, open_tables
from holdfast.errors import UsageError
from holdfast.history.erase import carry_out
from holdfast.history.erased import Selector
from holdfast.history.iceberg import HINT
from holdfast.history.table import load
from holdfast.spark.delta import Table, absolute, is_table
from holdfast.spark.files import add_action, write_file
from holdfast.spark.jobs.run import Runner
from holdfast.spark.keeper import Keeper
from holdfast.spark.tables import TABLES
from spark.brokers import wait_for
from spark.publishes import publishes, write_history

NO_SPARK: Any = None  # views are made of files
ROWS = publishes(60, topics=10, seed=91)
TOPICS = sorted({row["topic"] for row in ROWS})[:3]
KEEP_S = 300.0


def opened(folder: Path, *names: str, spark: SparkSession = NO_SPARK) -> Keeper:
    config = folder / "holdfast.toml"
    config.write_text(f"[pipeline]\niceberg = {list(names)}\n".replace("'", '"'))
    return open_tables(spark, find_locations(None, None, str(folder), config), [])


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


def newest(folder: Path, name: str) -> StaticTable:
    """As one finds it who knows nothing of the catalog."""
    hint = folder / "pipeline" / name / HINT
    return StaticTable.from_metadata(str(hint.with_name(f"{hint.read_text()}.metadata.json")))


def in_iceberg(folder: Path, name: str) -> pa.Table:
    return newest(folder, name).scan().to_arrow()


def rows_of(table: pa.Table) -> list[str]:
    """PyIceberg shows a list that is null as one that is empty."""
    return sorted(str({name: value or None for name, value in row.items()}) for row in table.to_pylist())


def stored(folder: Path, name: str) -> list[str]:
    return rows_of(DeltaTable(folder / "pipeline" / name).to_pyarrow_table())


def check(folder: Path, *names: str) -> None:
    for name in names or TABLES:
        assert rows_of(in_iceberg(folder, name)) == stored(folder, name), name


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


def test_a_view_that_cannot_be_opened_is_told_once_and_catches_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_history(tmp_path / "history", ROWS)
    (tmp_path / "pipeline" / "iceberg.db").mkdir(parents=True)
    keeper = opened(tmp_path, "traffic")
    for applied in (1, keeper.history.end):
        add_rows(keeper.tables["traffic"], applied)
        keeper.tidy(KEEP_S)
    [told] = capsys.readouterr().err.splitlines()
    assert told.startswith("note: the Iceberg view of traffic cannot be opened: ")
    assert told.endswith("; the table itself is kept, and the view is tried again until it has caught up")
    (tmp_path / "pipeline" / "iceberg.db").rmdir()
    keeper.tidy(KEEP_S)
    check(tmp_path, "traffic")
    keeper.close()
    assert capsys.readouterr().err == ""


def test_what_is_erased_while_a_view_fails_is_in_no_version_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The catalog is locked by somebody else, as a backup would do it."""
    write_history(tmp_path / "history", ROWS)
    keeper = opened(tmp_path, "topic_stats")
    for table in keeper.tables.values():
        add_rows(table, keeper.history.end)
    keeper.tidy(KEEP_S)
    for _ in carry_out(load(tmp_path / "history"), tmp_path / "history", "gone", Selector("topic", TOPICS[0]), 0):
        pass
    keeper.refresh()
    with closing(sqlite3.connect(tmp_path / "pipeline" / "iceberg.db")) as backup:
        backup.execute("begin exclusive")
        assert keeper.follow_erasures() > 0
        keeper.tidy(KEEP_S)
    [told] = capsys.readouterr().err.splitlines()
    assert "database is locked" in told
    keeper.tidy(KEEP_S)
    check(tmp_path, "topic_stats")
    assert in_iceberg(tmp_path, "topic_stats")["topic"].to_pylist() == TOPICS[1:]
    assert len(newest(tmp_path, "topic_stats").metadata.snapshots) == 1
    keeper.close()


def test_a_hint_that_could_not_be_written_is_written_when_it_can(tmp_path: Path) -> None:
    write_history(tmp_path / "history", ROWS)
    keeper = opened(tmp_path, "traffic")
    hint = tmp_path / "pipeline" / "traffic" / HINT
    hint.unlink()
    hint.mkdir()
    add_rows(keeper.tables["traffic"], keeper.history.end)
    keeper.tidy(KEEP_S)
    hint.rmdir()
    keeper.tidy(KEEP_S)
    check(tmp_path, "traffic")
    keeper.close()


def test_a_stream_goes_on_while_a_view_fails_and_the_view_catches_up(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def is_current(name: str) -> bool:
        return keeper.tables[name].applied == end and viewed(tmp_path, name) == stored(tmp_path, name)

    end = write(tmp_path, ROWS[:20])
    keeper = opened(tmp_path, "retained", "traffic", spark=spark)
    runner = Runner(keeper, trigger_s=0.1, statistics_s=1.0)
    metadata = tmp_path / "pipeline" / "retained" / "_iceberg"
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(runner.forever)
        try:
            wait_for(lambda: run.done() or (is_current("retained") and is_current("traffic")), "views of a stream")
            assert not run.done()
            metadata.rename(tmp_path / "aside")
            metadata.touch()
            for upto in (40, 50):
                end = write(tmp_path, ROWS[end - 1 : upto])
                wait_for(lambda: run.done() or is_current("traffic"), "the view that works")
            wait_for(lambda: run.done() or keeper.tables["retained"].applied == end, "the table whose view fails")
            assert not run.done()
            metadata.unlink()
            (tmp_path / "aside").rename(metadata)
            end = write(tmp_path, ROWS[50:])
            wait_for(lambda: run.done() or (is_current("retained") and is_current("traffic")), "the view to catch up")
        finally:
            runner.stop()
        run.result()
    keeper.close()
    [told] = capsys.readouterr().err.splitlines()
    assert told.startswith("note: the Iceberg view of retained cannot be ")


def write(folder: Path, rows: list[dict[str, Any]]) -> int:
    """Appends to the history, and returns the offset after the last."""
    write_history(folder / "history", rows)
    return int(rows[-1]["offset"]) + 1


def viewed(folder: Path, name: str) -> list[str]:
    try:
        return rows_of(in_iceberg(folder, name))
    except OSError:  # of a version that another one has replaced meanwhile
        return ["none yet"]


def test_a_name_that_no_table_has_is_refused(tmp_path: Path) -> None:
    write_history(tmp_path / "history", ROWS)
    with pytest.raises(UsageError, match=r"pipeline\.iceberg: expected names out of retained, .*, got retain$"):
        opened(tmp_path, "retain")
    opened(tmp_path).close()
