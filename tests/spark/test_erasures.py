"""What was erased from history leaves the pipeline's tables and their older versions, and does not come back."""

import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from holdfast.cli.pipeline_erasing import count_in_tables, follow_history
from holdfast.errors import UsageError
from holdfast.history.erase import carry_out
from holdfast.history.erased import Selector
from holdfast.history.table import load
from holdfast.spark.fold import fold, holding
from holdfast.spark.jobs.run import Runner
from holdfast.spark.keeper import Keeper, history_frame
from spark.publishes import START, Row, write_history
from spark.streams import start_stream

ROWS = 60
DONE_MS = int((START + timedelta(hours=1)).timestamp() * 1000)


def token(offset: int) -> bytes:
    """Bytes that no compression makes shorter."""
    return random.Random(offset).randbytes(40)


def rows_of(seed: int) -> list[Row]:
    chance = random.Random(seed)
    rows: list[Row] = []
    for offset in range(1, ROWS + 1):
        outcome = chance.choice(["set", "set", "set", "cleared"])
        user = chance.choice(["alice", "bob"])
        rows.append(
            {
                "offset": offset,
                "timestamp": START + timedelta(seconds=offset),
                "topic": chance.choice(["site/1/a", "site/2/b", "c"]),
                "payload": b"" if outcome == "cleared" else token(offset),
                "qos": 1,
                "retain": True,
                "client_id": f"client of {user}",
                "username": user,
                "protocol": "5.0",
                "outcome": outcome,
            }
        )
    return rows


def in_force(rows: list[Row]) -> set[int]:
    last = {row["topic"]: row for row in rows}
    return {row["offset"] for row in last.values() if row["outcome"] == "set"}


def erase(history: Path, kind: str, value: str) -> None:
    assert [
        step.erasure for step in carry_out(load(history), history, f"{kind}-{value}", Selector(kind, value), DONE_MS)
    ]


def left_in(folder: Path) -> set[int]:
    """Which payloads are in some file below the folder."""
    content = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    return {offset for offset in range(1, ROWS + 1) if token(offset) in content}


def told(frame: Any) -> list[tuple[str, bytes]]:
    return sorted((row.topic, bytes(row.payload)) for row in frame.select("topic", "payload").collect())


def run_once(spark: SparkSession, history: Path, tables: Path, rows: int = ROWS) -> Keeper:
    keeper = Keeper(spark, str(history), str(tables))
    Runner(keeper, max_offsets=rows).once()
    keeper.close()
    return keeper


def test_a_run_follows_and_intervals_tell_what_history_tells(spark: SparkSession, tmp_path: Path) -> None:
    rows = rows_of(1)
    history, tables = tmp_path / "history", tmp_path / "tables"
    write_history(history, rows, files=4)
    run_once(spark, history, tables, rows=25)
    mine = {row["offset"] for row in rows if row["username"] == "alice" and row["outcome"] == "set"}
    assert mine <= left_in(tables)
    erase(history, "user", "alice")
    keeper = run_once(spark, history, tables)
    assert left_in(tables) & mine == mine & in_force(rows)
    keeper.history.refresh()
    whole = history_frame(spark, keeper.history)
    spans = keeper.tables["retained_intervals"].frame(spark)
    for row in rows[::7]:
        assert told(holding(spans, row["offset"], at=row["timestamp"])) == told(fold(whole, row["offset"]))
    assert told(keeper.tables["retained"].frame(spark)) == told(fold(whole, ROWS))


def test_tables_made_after_it_are_those_that_followed_it(spark: SparkSession, tmp_path: Path) -> None:
    history = tmp_path / "history"
    write_history(history, rows_of(2), files=3)
    run_once(spark, history, tmp_path / "followed")
    erase(history, "user", "alice")
    followed, fresh = (run_once(spark, history, tmp_path / name) for name in ("followed", "fresh"))
    for name in ("retained", "retained_intervals"):
        assert told(followed.tables[name].frame(spark)) == told(fresh.tables[name].frame(spark))


def test_a_topic_leaves_the_statistics_too(spark: SparkSession, tmp_path: Path) -> None:
    history, tables = tmp_path / "history", tmp_path / "tables"
    write_history(history, rows_of(3), files=2)
    run_once(spark, history, tables)
    erase(history, "topic", "site/+/#")
    keeper = run_once(spark, history, tables)
    topics = {row.topic for row in keeper.tables["topic_stats"].frame(spark).collect()}
    assert topics == {"c"}


def test_tables_that_are_behind_lose_theirs_without_spark(spark: SparkSession, tmp_path: Path) -> None:
    rows = rows_of(4)
    history, tables = tmp_path / "history", tmp_path / "tables"
    write_history(history, rows[:30])
    run_once(spark, history, tables)
    write_history(history, rows[30:])
    selector = Selector("user", "alice")
    counted = count_in_tables(str(tables), history, selector, DONE_MS)
    erase(history, "user", "alice")
    gone = follow_history(str(tables), history, "user-alice", selector, DONE_MS)
    assert gone == counted
    assert gone["retained_intervals"] > 0
    mine = {row["offset"] for row in rows if row["username"] == "alice"}
    assert left_in(tables) & mine <= in_force(rows)
    keeper = run_once(spark, history, tables)
    assert left_in(tables) & mine == in_force(rows) & mine
    assert told(keeper.tables["retained"].frame(spark)) == told(fold(history_frame(spark, keeper.history), ROWS))


def test_a_run_at_work_is_left_to_follow_by_itself_where_it_can_know(spark: SparkSession, tmp_path: Path) -> None:
    history, tables = tmp_path / "history", tmp_path / "tables"
    write_history(history, rows_of(5))
    keeper = Keeper(spark, str(history), str(tables))
    try:
        Runner(keeper).once()
        erase(history, "user", "alice")
        assert follow_history(str(tables), history, "user-alice", Selector("user", "alice"), DONE_MS) is None
        with pytest.raises(UsageError, match="erase again"):
            follow_history(str(tables), history, "never", Selector("user", "nobody"), DONE_MS)
        Runner(keeper).once()
    finally:
        keeper.close()
    mine = {row["offset"] for row in rows_of(5) if row["username"] == "alice"}
    assert left_in(tables) & mine == in_force(rows_of(5)) & mine


def test_a_stream_that_was_begun_before_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    rows = rows_of(6)
    history = tmp_path / "history"
    write_history(history, rows[:40], files=3)
    read = spark.readStream.format("holdfast").load(str(history))

    def go_on() -> int:
        writer = read.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = start_stream(lambda: writer.trigger(availableNow=True).start(str(tmp_path / "out")))
        query.awaitTermination()
        return spark.read.parquet(str(tmp_path / "out")).count()

    assert go_on() == 40
    erase(history, "user", "alice")
    write_history(history, rows[40:])
    assert go_on() == ROWS
