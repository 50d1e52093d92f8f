"""Spark's fold, the ten-line fold, and intervals give the same retained set, for every moment that was tried."""

import random
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from holdfast.history.schema import arrow_schema
from holdfast.spark import payload, replay
from holdfast.spark.fold import RETAINED_COLUMNS, fold, holding, intervals, last_changes, matching
from holdfast.spark.ranges import History
from holdfast.spark.replay import fold_history
from spark.publishes import START, Row, oracle, publishes, write_history

ROWS = publishes(20_000, topics=400, seed=7)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> History:
    return History(write_history(tmp_path_factory.mktemp("fold") / "history", ROWS, files=5))


@pytest.fixture(scope="module")
def history(spark: SparkSession, table: History) -> DataFrame:
    return spark.read.format("holdfast").load(table.location).cache()


@pytest.fixture(scope="module")
def spans(history: DataFrame) -> DataFrame:
    return intervals(history).cache()


def normal(row: Row) -> tuple[object, ...]:
    values = []
    for name in RETAINED_COLUMNS:
        value = row[name]
        if isinstance(value, datetime):
            value = value.astimezone(START.tzinfo)
        elif isinstance(value, bytearray):
            value = bytes(value)
        elif name == "user_properties":
            value = tuple((pair["key"], pair["value"]) for pair in value or ())
        values.append(value)
    return tuple(values)


def as_set(frame: DataFrame) -> dict[str, tuple[object, ...]]:
    rows = [row.asDict(recursive=True) for row in frame.collect()]
    found = {row["topic"]: normal(row) for row in rows}
    assert len(found) == len(rows), "a topic is in the retained set twice"
    return found


def expected(rows: list[Row], **when: Any) -> dict[str, tuple[object, ...]]:
    return {topic: normal(row) for topic, row in oracle(rows, **when).items()}


def moments(count: int, seed: int) -> list[int]:
    return random.Random(seed).sample(range(1, len(ROWS) + 1), count)


def test_every_outcome_occurs_in_the_rows() -> None:
    assert {row["outcome"] for row in ROWS} == {
        "live", "set", "cleared", "refused_size", "refused_count", "refused_budget", "refused_policy",
    }  # fmt: skip


@pytest.mark.parametrize("offset", [1, *moments(3, seed=3), 20_000, 30_000])
def test_fold_as_of_an_offset_equals_the_plain_fold(history: DataFrame, spans: DataFrame, offset: int) -> None:
    wanted = expected(ROWS, offset=offset)
    assert as_set(fold(history, offset)) == wanted
    clock = ROWS[min(offset, len(ROWS)) - 1]["timestamp"]
    assert as_set(holding(spans, offset, at=clock)) == wanted


@pytest.mark.parametrize("task_rows", [1, 6_000, 100_000])
def test_the_fold_of_a_table_is_that_of_its_rows_however_it_is_cut(
    spark: SparkSession, table: History, task_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "TASK_ROWS", task_rows)
    [offset, row] = moments(2, seed=5)
    moment = ROWS[row - 1]["timestamp"]
    assert as_set(fold_history(spark, table, offset)) == expected(ROWS, offset=offset)
    assert as_set(fold_history(spark, table, moment)) == expected(ROWS, moment=moment)
    of_a_site = {topic: row for topic, row in expected(ROWS, moment=moment).items() if topic.startswith("site/3/")}
    assert as_set(fold_history(spark, table, moment, "site/3/#")) == of_a_site


def test_the_fold_of_an_empty_table_is_empty(spark: SparkSession, tmp_path: Path) -> None:
    DeltaTable.create(tmp_path / "history", arrow_schema())
    assert as_set(fold_history(spark, History(str(tmp_path / "history")))) == {}


@pytest.mark.parametrize("index", moments(3, seed=4))
@pytest.mark.parametrize("shift", [-1, 0, 1])
def test_fold_at_a_moment_equals_the_plain_fold(history: DataFrame, spans: DataFrame, index: int, shift: int) -> None:
    moment = ROWS[index - 1]["timestamp"] + timedelta(microseconds=shift)
    wanted = expected(ROWS, moment=moment)
    assert as_set(fold(history, moment)) == wanted
    assert as_set(holding(spans, moment)) == wanted


def test_expiry_counts_on_after_the_last_row(history: DataFrame, spans: DataFrame) -> None:
    later = ROWS[-1]["timestamp"] + timedelta(seconds=30)
    wanted = expected(ROWS, moment=later)
    assert len(wanted) < len(expected(ROWS, offset=len(ROWS)))
    assert as_set(fold(history, at=later)) == wanted
    assert as_set(holding(spans, later)) == wanted


def test_without_a_moment_the_fold_is_for_now(history: DataFrame, spans: DataFrame) -> None:
    long_after = expected(ROWS, moment=datetime.now(START.tzinfo))
    assert as_set(fold(history)) == long_after
    assert as_set(holding(spans)) == long_after


def test_a_filter_folds_only_its_topics(history: DataFrame) -> None:
    offset = 9_000
    wanted = {topic: row for topic, row in expected(ROWS, offset=offset).items() if topic.startswith("site/3/")}
    assert as_set(fold(matching(history, "site/3/#"), offset)).keys() == wanted.keys()


def test_last_changes_keep_the_clears(history: DataFrame) -> None:
    found = {row.topic: (row.offset, row.outcome) for row in last_changes(history).collect()}
    wanted = {row["topic"]: (row["offset"], row["outcome"]) for row in ROWS if row["outcome"] in ("set", "cleared")}
    assert found == wanted
    assert "cleared" in {outcome for _, outcome in found.values()}


def test_intervals_of_a_topic_never_overlap(spans: DataFrame) -> None:
    rows = spans.select("topic", "offset", "to_offset", "valid_from", "valid_to").orderBy("topic", "offset").collect()
    for one, two in pairwise(rows):
        if one.topic == two.topic:
            assert one.to_offset is not None
            assert one.to_offset <= two.offset
            assert one.valid_to <= two.valid_from


def test_an_empty_history_folds_to_nothing(spark: SparkSession, history: DataFrame) -> None:
    nothing = history.where("false")
    assert fold(nothing, 5).count() == 0
    assert intervals(nothing).count() == 0


@pytest.mark.parametrize(
    ("raw", "text", "number"),
    [
        (b"21.5", "21.5", 21.5),
        (b"-3", "-3", -3.0),
        (b"1e3", "1e3", 1000.0),
        (b"on", "on", None),
        (b"", "", None),
        (b"NaN", "NaN", None),
        (b"Infinity", "Infinity", None),
        (b"\xff\xfe", None, None),
        (b'{"v": 4}', '{"v": 4}', None),
    ],
)
def test_payload_as_text_and_number(spark: SparkSession, raw: bytes, text: str | None, number: float | None) -> None:
    frame = spark.createDataFrame([(bytearray(raw),)], "payload binary")
    [row] = frame.select(
        payload.text(F.col("payload")).alias("t"), payload.number(F.col("payload")).alias("n")
    ).collect()
    assert (row.t, row.n) == (text, number)


def test_payload_as_json_is_a_variant(spark: SparkSession) -> None:
    frame = spark.createDataFrame(
        [(bytearray(b'{"v": [1, 2]}'),), (bytearray(b"{"),), (bytearray(b"\xff"),)], "payload binary"
    )
    found = frame.select(F.try_variant_get(payload.json(F.col("payload")), "$.v[1]", "int").alias("v")).collect()
    assert [row.v for row in found] == [2, None, None]
