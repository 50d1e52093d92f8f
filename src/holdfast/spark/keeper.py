"""Keeping the pipeline's tables current from history, a batch at a time, each row once.

Every table says itself how far it has come. A batch is a range of offsets; it is read, merged and committed for one
table in one transaction. A run that dies in between leaves tables at different offsets, and the next run takes each
from where it is.
"""

import fcntl
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from holdfast.errors import StoreError, UsageError
from holdfast.history.schema import COLUMNS
from holdfast.spark import leaves
from holdfast.spark.delta import CLOSED, OPEN, DataFile, Shape, Table, absolute, write_files
from holdfast.spark.fold import changes, intervals
from holdfast.spark.hygiene import HYGIENE_SHAPE, hygiene
from holdfast.spark.ranges import History
from holdfast.spark.tables import (
    DEVICES_SHAPE,
    INTERVALS_SHAPE,
    RETAINED_SHAPE,
    TRAFFIC_SHAPE,
    carried,
    devices,
    devices_after,
    retained_after,
    traffic,
    traffic_after,
)
from holdfast.spark.topic_stats import TOPIC_STATS_SHAPE, topic_stats, topic_stats_after
from holdfast.spark.topics import TopicTemplate

DEFAULT_TEMPLATE = "site/{site}/line/{line}/{device}/#"
SHAPES: dict[str, Shape] = {
    "retained": RETAINED_SHAPE,
    "retained_intervals": INTERVALS_SHAPE,
    "topic_stats": TOPIC_STATS_SHAPE,
    "device_stats": DEVICES_SHAPE,
    "traffic": TRAFFIC_SHAPE,
    "hygiene": HYGIENE_SHAPE,
}
# What follows history row by row; `hygiene` follows `retained`.
FOLLOWING = ("retained", "retained_intervals", "topic_stats", "device_stats", "traffic")
ARROW_BATCH_BYTES = 64 << 20
HISTORY_DDL = ", ".join(f"{name} {kind}" for name, kind in COLUMNS)


def history_frame(spark: SparkSession, history: History, start: int = 0, end: int | None = None) -> DataFrame:
    """History through Spark's own Parquet reader: it leaves out columns that nobody asks for."""
    end = history.end if end is None else end
    files = history.holding(start, end)
    if not files:
        return spark.createDataFrame([], HISTORY_DDL)
    bound_arrow_batches(spark, history, start, end)
    rows = spark.read.schema(HISTORY_DDL).parquet(*files)
    return rows.where((F.col("offset") >= start) & (F.col("offset") < end))


def bound_arrow_batches(spark: SparkSession, history: History, start: int, end: int) -> None:
    """Fewer rows in a batch where rows are large: a batch is bounded by its number of rows, see `session`."""
    read = [file for file in history.files if file.first < end and file.last >= start]
    width = 4 * sum(file.size for file in read) // max(1, sum(file.rows for file in read))  # files are compressed
    rows = max(64, min(8192, ARROW_BATCH_BYTES // max(1, width)))
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(rows))


class Lock:
    """One run at a time on a folder of tables. The system drops it with the process, however that ends."""

    def __init__(self, root: str) -> None:
        Path(root).mkdir(parents=True, exist_ok=True)
        self._file: IO[str] = open(Path(root) / ".lock", "a+")  # noqa: SIM115 - held for the life of the run
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.seek(0)
            holder = self._file.read().strip() or "unknown"
            self._file.close()
            raise UsageError(f"another pipeline run (process {holder}) is at work on {root}; stop it first") from None
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def release(self) -> None:
        self._file.close()


class Keeper:
    def __init__(
        self,
        spark: SparkSession,
        history: str,
        root: str,
        *,
        template: str = DEFAULT_TEMPLATE,
        accept_loss: bool = False,
    ) -> None:
        self.spark = spark
        self.template = TopicTemplate(template)
        self.accept_loss = accept_loss
        self.history = History(history)
        self.root = absolute(root)
        self.lock = Lock(self.root) if "://" not in self.root else None
        try:
            self.tables = {
                name: Table(f"{self.root}/{name}", shape, template if name == "device_stats" else "")
                for name, shape in SHAPES.items()
            }
        except BaseException:
            self.close()
            raise
        self._steps: dict[str, Callable[[Table, DataFrame, int, int], None]] = {
            "retained": self._retained,
            "retained_intervals": self._intervals,
            "topic_stats": self._topic_stats,
            "device_stats": self._device_stats,
            "traffic": self._traffic,
        }

    def close(self) -> None:
        if self.lock is not None:
            self.lock.release()

    def refresh(self) -> int:
        """Look at history again; the offset it ends at."""
        self.history.refresh()
        return self.history.end

    def advance(self, name: str, max_offsets: int) -> int:
        """Apply the next batch to one table. About how many rows it had; 0 when the table is current."""
        table = self.tables[name]
        start = self.history.next_row(max(table.applied, self._first(table)))
        end = min(self.history.end, start + max_offsets)
        if end <= start:
            return 0
        rows = max(1, self.history.count(start, end))
        self._steps[name](table, history_frame(self.spark, self.history, start, end), rows, end)
        return rows

    def behind(self, name: str) -> int:
        """About how many rows of history a table does not have yet."""
        return self.history.count(self.tables[name].applied, self.history.end)

    def _first(self, table: Table) -> int:
        gone = self.history.dropped(table.applied, table.mark) if table.applied else None
        if gone is not None and not self.accept_loss:
            raise StoreError(
                f"{table.root} has come to offset {gone.start - 1}, but history begins at {gone.end}: retention has "
                "passed the rows between; go on without them with --accept-loss, or remove that folder to start anew"
            )
        return self.history.start

    def clock(self, end: int) -> datetime:
        """The broker's time at the end of a batch: what had expired then is gone from `retained` for good."""
        found = self.history.time_at(end - 1)
        return datetime.fromtimestamp((found or 0) / 1_000_000, UTC)

    def _touch(self, files: list[DataFile], keys: DataFrame, incoming: int) -> leaves.Touched:
        return leaves.touch(files, keys, incoming, self.history.some_topics)

    def _retained(self, table: Table, batch: DataFrame, rows: int, end: int) -> None:
        touched = self._touch(table.files, changes(batch).select("topic"), rows)
        held = table.frame(self.spark, touched.files)
        found = touched.spread(retained_after(held, batch, self.clock(end)), "topic")
        table.commit(leaves.rewrite(table, found, touched), touched.files, end, self.history.mark)

    def _intervals(self, table: Table, batch: DataFrame, rows: int, end: int) -> None:
        held = [file for file in table.files if file.path.startswith(OPEN)]
        touched = self._touch(held, changes(batch).select("topic"), rows)
        laid = touched.spread(carried(table.frame(self.spark, touched.files), batch), "topic")
        spans = intervals(laid, touched.run("topic"))
        added = leaves.rewrite(table, spans, touched, ended="to_offset")
        table.commit(added, touched.files, end, self.history.mark)

    def _topic_stats(self, table: Table, batch: DataFrame, rows: int, end: int) -> None:
        touched = self._touch(table.files, batch.select("topic"), rows)
        merged = topic_stats_after(table.frame(self.spark, touched.files), topic_stats(batch))
        table.commit(
            leaves.rewrite(table, touched.spread(merged, "topic"), touched), touched.files, end, self.history.mark
        )

    def _device_stats(self, table: Table, batch: DataFrame, rows: int, end: int) -> None:
        hours = batch.select(F.date_trunc("hour", "timestamp").alias("hour")).distinct()
        touched = leaves.touch(table.files, hours, 0)
        merged = devices_after(table.frame(self.spark, touched.files), devices(batch, self.template), self.template)
        table.commit(
            leaves.rewrite(table, touched.spread(merged, "hour"), touched), touched.files, end, self.history.mark
        )

    def _traffic(self, table: Table, batch: DataFrame, rows: int, end: int) -> None:
        minutes = batch.select(F.date_trunc("minute", "timestamp").alias("minute")).distinct()
        touched = leaves.touch(table.files, minutes, 0)
        merged = traffic_after(table.frame(self.spark, touched.files), traffic(batch))
        table.commit(
            leaves.rewrite(table, touched.spread(merged, "minute"), touched), touched.files, end, self.history.mark
        )

    def refresh_hygiene(self, now: datetime) -> bool:
        """Make `hygiene` anew from `retained`; it is small, and time changes it even when nobody publishes."""
        table, retained = self.tables["hygiene"], self.tables["retained"]
        found = hygiene(retained.frame(self.spark), now).repartition(1).sortWithinPartitions("kind")
        added = write_files(found, table.root, table.shape, leaves.LEAF_ROWS)
        table.commit(added, table.files, retained.applied, self.history.mark)
        return True

    def compact(self, name: str, least: int = 24) -> bool:
        """Merge small files that only ever grow in number: the ended intervals of each batch."""
        table = self.tables[name]
        small = [file for file in table.files if file.path.startswith(CLOSED) and file.rows < leaves.TASK_ROWS // 2]
        if len(small) < least:
            return False
        rows = table.frame(self.spark, small)
        tasks = 1 + sum(file.rows for file in small) // leaves.TASK_ROWS
        rows = rows.repartitionByRange(tasks, "to_offset") if tasks > 1 else rows.repartition(1)
        added = write_files(
            rows.sortWithinPartitions("topic"), table.root, table.shape, leaves.TASK_ROWS, ended="to_offset"
        )
        table.commit(added, small, None)
        return True
