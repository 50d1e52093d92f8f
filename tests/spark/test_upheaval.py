"""Reading while the ground moves: the broker is killed, history is compacted and vacuumed, and each row comes once."""

import signal
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from holdfast.errors import StoreError
from holdfast.spark.jobs.run import Runner
from holdfast.spark.keeper import Keeper
from holdfast.spark.tables import FOLLOWING
from spark.brokers import Holdfast, publisher, wait_for
from spark.publishes import publishes, write_history
from spark.streams import start_stream

ROWS = publishes(2_000, topics=50, seed=41)


class Follower:
    """A stream over history that goes on for ever, and how often it has seen each offset."""

    def __init__(self, spark: SparkSession, history: str, checkpoint: Path) -> None:
        self.seen: Counter[int] = Counter()
        stream = spark.readStream.format("holdfast").options(maxOffsetsPerTrigger=400, rowsPerPartition=100)
        writer = stream.load(history).writeStream.foreachBatch(self._keep).option("checkpointLocation", str(checkpoint))
        self.query = start_stream(writer.trigger(processingTime="100 milliseconds").start)

    def _keep(self, frame: DataFrame, _batch: int) -> None:
        self.seen.update(row.offset for row in frame.select("offset").collect())

    def has(self, count: int) -> bool:
        assert self.query.exception() is None, str(self.query.exception())
        return len(self.seen) >= count

    def stop(self) -> None:
        self.query.processAllAvailable()
        self.query.stop()
        assert self.query.exception() is None


def offsets_of(history: Path) -> list[int]:
    return sorted(DeltaTable(history).to_pyarrow_table(columns=["offset"])["offset"].to_pylist())


def test_a_stream_goes_on_while_the_broker_is_killed_and_started_again(spark: SparkSession, tmp_path: Path) -> None:
    broker = Holdfast(tmp_path / "data")
    history = tmp_path / "data" / "history"
    sent = 0
    try:
        with publisher(broker.port) as publish:
            publish("site/0", str(sent), retain=True)
            sent += 1
        wait_for(lambda: DeltaTable.is_deltatable(str(history)), "the history table")
        follower = Follower(spark, str(history), tmp_path / "checkpoint")
        for life in range(3):
            with publisher(broker.port) as publish:
                for _ in range(300):
                    publish(f"site/{sent % 20}", str(sent), retain=True)
                    sent += 1
            if life < 2:
                broker.stop(signal.SIGKILL)  # what was acknowledged may not be in history yet
                broker.start()
        wait_for(lambda: len(offsets_of(history)) >= sent, "everything acknowledged in history")
        wait_for(lambda: follower.has(sent), "everything in the stream")
        follower.stop()
    finally:
        broker.stop()
    table = DeltaTable(history).to_pyarrow_table(columns=["payload"])
    assert {int(payload) for payload in table["payload"].to_pylist()} == set(range(sent))
    assert follower.seen == Counter(offsets_of(history))


def test_a_stream_goes_on_while_history_is_compacted_and_vacuumed(spark: SparkSession, tmp_path: Path) -> None:
    history = tmp_path / "history"
    write_history(history, ROWS[:200], files=10)
    follower = Follower(spark, str(history), tmp_path / "checkpoint")
    vacuumed = 0
    for at in range(200, 2000, 200):
        write_history(history, ROWS[at : at + 200], files=10)
        table = DeltaTable(history)
        table.optimize.compact()
        vacuumed += len(table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False))
        wait_for(partial(follower.has, at - 400), "the stream to be not far behind")
    assert vacuumed > 80
    wait_for(lambda: follower.has(2000), "all rows")
    follower.stop()
    assert follower.seen == Counter(range(1, 2001))


def test_tables_advance_although_planned_files_are_gone(spark: SparkSession, tmp_path: Path) -> None:
    """The plan names files; compaction and vacuum remove them before Spark opens one."""
    history = tmp_path / "history"
    write_history(history, ROWS[:600], files=12)
    keeper = Keeper(spark, str(history), str(tmp_path / "tables"))
    table = DeltaTable(history)
    table.optimize.compact()
    assert table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    steps: list[str] = []
    Runner(keeper, report=lambda step: steps.extend(step.tables)).catch_up()
    keeper.close()
    assert steps == list(FOLLOWING)
    counted = DeltaTable(tmp_path / "tables" / "traffic").to_pyarrow_table()["messages"].to_pylist()
    assert sum(counted) == 600


def test_a_file_that_was_cut_to_nothing_while_tables_are_kept_is_not_taken_for_no_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark itself skips such a file without a word."""
    history = tmp_path / "history"
    write_history(history, ROWS[:300])
    keeper = Keeper(spark, str(history), str(tmp_path / "tables"))
    Runner(keeper).catch_up()
    write_history(history, ROWS[300:600])
    keeper.refresh()
    Path(keeper.history.files[-1].path).write_bytes(b"")
    with pytest.raises(StoreError, match=r"is damaged \(it has 0 bytes"):
        Runner(keeper).catch_up()
    assert {keeper.tables[name].applied for name in FOLLOWING} == {301}
    keeper.close()


def test_tables_that_a_kill_left_apart_meet_and_go_on_together(spark: SparkSession, tmp_path: Path) -> None:
    history = tmp_path / "history"
    write_history(history, ROWS[:900], files=3)
    keeper = Keeper(spark, str(history), str(tmp_path / "tables"))
    keeper.advance("retained", 400)
    keeper.advance("topic_stats", 200)
    steps: list[tuple[tuple[str, ...], int]] = []
    Runner(keeper, report=lambda step: steps.append((step.tables, step.applied)), max_offsets=300).catch_up()
    keeper.close()
    assert steps[:5] == [
        (("retained_intervals",), 201),
        (("retained_intervals", "topic_stats"), 401),
        (FOLLOWING[:3], 701),
        (FOLLOWING[:3], 901),
        (("device_stats",), 301),
    ]


def test_a_damaged_file_of_history_stops_the_run_and_leaves_no_table_half_made(
    spark: SparkSession, tmp_path: Path
) -> None:
    history = tmp_path / "history"
    write_history(history, ROWS[:300])
    keeper = Keeper(spark, str(history), str(tmp_path / "tables"))
    Runner(keeper).once()
    before = {name: table.version for name, table in keeper.tables.items()}
    write_history(history, ROWS[300:600])
    [newest] = [path for path in DeltaTable(history).file_uris() if "part" in path][:1]
    content = Path(newest).read_bytes()
    Path(newest).write_bytes(content[: len(content) // 2])
    with pytest.raises(Exception, match=r"(?i)parquet|read"):
        Runner(keeper).once()
    after = {name: DeltaTable(keeper.tables[name].root).version() for name in FOLLOWING}
    assert after == {name: before[name] for name in FOLLOWING}
    Path(newest).write_bytes(content)
    keeper.refresh()
    Runner(keeper).once()
    assert {keeper.tables[name].applied for name in FOLLOWING} == {601}
    keeper.close()
