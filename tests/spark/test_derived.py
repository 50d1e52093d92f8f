"""A table is a value: one entry makes a seventh, and everything that keeps tables keeps it too."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from holdfast.errors import UsageError
from holdfast.history.erase import carry_out
from holdfast.history.erased import Selector
from holdfast.history.table import load
from holdfast.spark.derived import Batch, DerivedTable, ddl_of
from holdfast.spark.jobs.run import Runner
from holdfast.spark.keeper import Keeper
from holdfast.spark.merge import passes
from holdfast.spark.tables import FOLLOWING, TABLES, pipeline_tables
from spark.publishes import START, Row, write_history

FIVE = [("a", 10), ("b", 3), ("a", 4), ("a", 12), ("b", 7)]


def five_rows() -> list[Row]:
    return [
        {
            "offset": offset,
            "timestamp": START + timedelta(seconds=offset),
            "topic": f"plant/{device}/load",
            "payload": b"%d" % value,
            "qos": 0,
            "retain": True,
            "client_id": device,
            "protocol": "5.0",
            "outcome": "set",
        }
        for offset, (device, value) in enumerate(FIVE, 1)
    ]


def peaks() -> DerivedTable:
    """The highest load of each device."""

    def step(held: pa.Table, rows: pa.Table, _batch: Batch) -> pa.Table:
        both = pa.concat_tables([held.select(["device", "load"]), rows])
        return both.group_by("device").aggregate([("load", "max")]).rename_columns(["device", "load"])

    return DerivedTable(
        "peaks",
        pa.schema([("device", pa.string()), ("load", pa.int64())]),
        ("device",),
        step,
        takes={"device": "split(topic, '/')[1]", "load": "cast(cast(payload AS string) AS long)"},
        where="topic LIKE 'plant/%/load'",
    )


def readings() -> DerivedTable:
    """Every reading: rows are only ever added."""

    def step(held: pa.Table, rows: pa.Table, batch: Batch) -> pa.Table:
        assert held.num_rows == 0
        return rows.append_column("batch", pa.repeat(pa.scalar(batch.start), rows.num_rows))

    schema = pa.schema([("offset", pa.int64()), ("topic", pa.string()), ("batch", pa.int64())])
    return DerivedTable("readings", schema, (), step, takes={"offset": "offset", "topic": "topic"})


def rows_of(root: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(root / name).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: str(next(iter(row.values()))))


def keep(spark: SparkSession, folder: Path, *more: DerivedTable, max_offsets: int = 1000) -> None:
    keeper = Keeper(spark, str(folder / "history"), str(folder / "tables"), tables=(*pipeline_tables(), *more))
    try:
        Runner(keeper, max_offsets=max_offsets).once()
    finally:
        keeper.close()


def test_a_seventh_table_is_one_entry(spark: SparkSession, tmp_path: Path) -> None:
    rows = five_rows()
    write_history(tmp_path / "history", rows[:2])
    keep(spark, tmp_path, peaks())
    write_history(tmp_path / "history", rows[2:])
    keep(spark, tmp_path, peaks())
    assert rows_of(tmp_path / "tables", "peaks") == [{"device": "a", "load": 12}, {"device": "b", "load": 7}]


def test_a_table_that_comes_later_begins_at_the_beginning_and_the_others_go_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = five_rows()
    write_history(tmp_path / "history", rows[:4])
    keep(spark, tmp_path)
    write_history(tmp_path / "history", rows[4:])
    keep(spark, tmp_path, peaks(), readings())
    assert [row["load"] for row in rows_of(tmp_path / "tables", "peaks")] == [12, 7]
    assert [row["offset"] for row in rows_of(tmp_path / "tables", "readings")] == [1, 2, 3, 4, 5]
    assert sum(row["messages"] for row in rows_of(tmp_path / "tables", "traffic")) == 5


def test_rows_that_are_only_added_are_each_added_once_and_gathered(spark: SparkSession, tmp_path: Path) -> None:
    write_history(tmp_path / "history", five_rows(), files=2)
    keep(spark, tmp_path, readings(), max_offsets=1)
    keep(spark, tmp_path, readings())
    found = rows_of(tmp_path / "tables", "readings")
    assert [row["offset"] for row in found] == [row["batch"] for row in found] == [1, 2, 3, 4, 5]
    keeper = Keeper(spark, str(tmp_path / "history"), str(tmp_path / "tables"), tables=[readings()])
    assert keeper.compact(least=2) == 1
    keeper.close()
    assert len(DeltaTable(tmp_path / "tables" / "readings").file_uris()) == 1
    assert rows_of(tmp_path / "tables", "readings") == found


def test_an_erasure_reaches_a_table_by_its_columns(spark: SparkSession, tmp_path: Path) -> None:
    write_history(tmp_path / "history", five_rows(), files=2)
    keep(spark, tmp_path, readings())
    at_ms = int((START + timedelta(hours=1)).timestamp() * 1000)
    history = tmp_path / "history"
    list(carry_out(load(history), history, "a", Selector("topic", "plant/a/load"), at_ms))
    keep(spark, tmp_path, readings())
    assert {row["topic"] for row in rows_of(tmp_path / "tables", "readings")} == {"plant/b/load"}


def test_tables_by_topic_share_a_pass_and_others_do_not() -> None:
    found = [tuple(table.name for table in group) for group in passes([*pipeline_tables()[:5], peaks(), readings()])]
    assert found == [FOLLOWING[:3], ("device_stats",), ("traffic",), ("peaks",), ("readings",)]


def test_a_column_of_two_meanings_is_not_shared() -> None:
    stats = TABLES["topic_stats"]
    other = replace(stats, name="other", takes={**stats.takes, "size": "length(topic)"})
    assert [len(group) for group in passes([stats, other])] == [1, 1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": "no name"}, "spelt like an identifier"),
        ({"key": ("other",)}, "expected a column 'other'"),
        ({"takes": {"load": "1"}}, "expected `takes` to name 'device'"),
    ],
)
def test_a_value_that_cannot_work_says_why(change: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        replace(peaks(), **change)


def test_a_type_that_spark_has_not_is_refused() -> None:
    with pytest.raises(UsageError, match="or lists, maps and structs of them, got duration"):
        ddl_of(pa.duration("s"))


@pytest.mark.parametrize("name", TABLES)
def test_every_table_says_its_columns_to_spark(spark: SparkSession, name: str) -> None:
    assert spark.createDataFrame([], TABLES[name].ddl).columns == TABLES[name].schema.names
