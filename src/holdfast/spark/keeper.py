"""Keeping the pipeline's tables current from history, a batch at a time, each row once.

Every table says itself how far it has come. A batch is a range of offsets; tables that stand at the same offset may
take it together, and each commits it in a transaction of its own. A run that dies in between leaves tables at different
offsets, and the next run takes each from where it is.
"""

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import IO, NamedTuple

import pyarrow as pa
from deltalake.transaction import AddAction
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from holdfast.errors import StoreError, UsageError
from holdfast.history.schema import COLUMNS, arrow_schema
from holdfast.spark import erase, leaves
from holdfast.spark.delta import CLOSED, DataFile, Shape, Table, absolute
from holdfast.spark.failure import check_whole
from holdfast.spark.files import REPORT_SCHEMA, add_action, read_file, write_file, write_files
from holdfast.spark.fold import CHANGES
from holdfast.spark.hygiene import hygiene_parts
from holdfast.spark.merge import BY_TOPIC, Leaves, merge
from holdfast.spark.options import micros
from holdfast.spark.ranges import History
from holdfast.spark.shapes import SHAPES
from holdfast.spark.store import parquet_frame
from holdfast.spark.tables import devices, devices_after, traffic, traffic_after
from holdfast.spark.topics import TopicTemplate


def gather(spark: SparkSession, table: Table, files: Sequence[DataFile], size: int) -> list[AddAction]:
    """Files of ended rows, in order, as files of about so many bytes."""
    groups: list[list[str]] = [[]]
    gathered = 0
    for file in files:
        if gathered and gathered + file.size > size:
            groups.append([])
            gathered = 0
        groups[-1].append(file.path)
        gathered += file.size
    task = _Task(table.root, table.shape, groups)
    numbers = spark.range(len(groups)).select(F.col("id").cast("int").alias("group"))
    reports = numbers.repartitionById(len(groups), "group").mapInArrow(task, REPORT_SCHEMA).collect()
    return [add_action(report) for report in reports]


class _Task:
    """Runs in an executor: takes numbers of groups, leaves a file for each, reports them."""

    def __init__(self, root: str, shape: Shape, groups: list[list[str]]) -> None:
        self.root, self.shape, self.groups = root, shape, groups

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("group").to_pylist():
                found = [read_file(self.root, name, self.shape) for name in self.groups[number]]
                yield write_file(pa.concat_tables(found), self.root, self.shape, CLOSED)


DEFAULT_TEMPLATE = "site/{site}/line/{line}/{device}/#"
# What follows history row by row; `hygiene` follows `retained`.
BY_TIME = ("device_stats", "traffic")
FOLLOWING = (*BY_TOPIC, *BY_TIME)
ARROW_BATCH_BYTES = 64 << 20
# About how much of history one batch may be, in memory.
BATCH_BYTES = 1 << 30
# How large a file of ended rows is to become; in memory it is some times that.
WHOLE_BYTES = 64 << 20
HISTORY_DDL = ", ".join(f"{name} {kind}" for name, kind in COLUMNS)


def history_frame(spark: SparkSession, history: History, start: int = 0, end: int | None = None) -> DataFrame:
    """History through Spark's own Parquet reader: it leaves out columns that nobody asks for."""
    end = history.end if end is None else end
    files = history.holding(start, end)
    if not files:
        return spark.createDataFrame([], HISTORY_DDL)
    check_whole(history, start, end)
    bound_arrow_batches(spark, history, start, end)
    rows = parquet_frame(spark, history.location, files, HISTORY_DDL, arrow_schema())
    return rows.where((F.col("offset") >= start) & (F.col("offset") < end))


def bound_arrow_batches(spark: SparkSession, history: History, start: int, end: int) -> None:
    """Fewer rows in a batch where rows are large: a batch is bounded by its number of rows, see `session`."""
    rows = max(64, min(8192, ARROW_BATCH_BYTES // history.width(start, end)))
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(rows))


class Batch(NamedTuple):
    """Offsets from `start` on and below `end`, with about so many rows."""

    start: int
    end: int
    rows: int


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

    def close(self) -> None:
        if self.lock is not None:
            self.lock.release()

    def refresh(self) -> int:
        """Look at history again; the offset it ends at."""
        self.history.refresh()
        return self.history.end

    def advance(self, name: str, max_offsets: int) -> int:
        """Apply the next batch to one table. About how many rows it had; 0 when the table is current."""
        return self.advance_together((name,), max_offsets)

    def advance_together(self, names: Sequence[str], max_offsets: int, until: int | None = None) -> int:
        """Apply the next batch to tables that stand at the same offset: those by topic, or a single one.

        Offsets without a row do not count, and no offset from `until` on is taken.
        """
        places = {self._next_row(name) for name in names}
        if len(places) > 1:
            raise ValueError(f"expected tables at one offset, got {', '.join(names)} at {sorted(places)}")
        [start] = places
        tables = [self.tables[name] for name in names]
        # a topic's rows of one batch are in a task's memory at once: fewer of them where they are large
        rows = min(max_offsets, max(1000, BATCH_BYTES // self.history.width(start, start + max_offsets)))
        end = min(self.history.after(start, rows), self.history.end if until is None else until)
        if end <= start:
            return 0
        batch = Batch(start, end, max(1, self.history.count(start, end)))
        if set(names) <= set(BY_TOPIC):
            self._by_topic(tables, names, batch)
            return batch.rows
        [table] = tables
        if table is self.tables["device_stats"]:
            self._device_stats(table, batch)
        else:
            self._traffic(table, batch)
        return batch.rows

    def furthest_behind(self, names: Sequence[str]) -> tuple[tuple[str, ...], int | None]:
        """The tables that have come the least far, and the offset at which they meet the next ones, if any."""
        places = {name: self._next_row(name) for name in names}
        first, *later = sorted(set(places.values()))
        return tuple(name for name in names if places[name] == first), later[0] if later else None

    def behind(self, name: str) -> int:
        """About how many rows of history a table does not have yet."""
        return self.history.count(self.tables[name].applied, self.history.end)

    def _next_row(self, name: str) -> int:
        """The first offset that a table has not had, of those that have a row."""
        table = self.tables[name]
        gone = self.history.dropped(table.applied, table.mark) if table.applied else None
        if gone is not None and not self.accept_loss:
            raise StoreError(
                f"{table.root} has come to offset {gone.start - 1}, but history begins at {gone.end}: retention has "
                "passed the rows between; go on without them with --accept-loss, or remove that folder to start anew"
            )
        return self.history.next_row(max(table.applied, self.history.start))

    def clock(self, end: int) -> datetime:
        """The broker's time at the end of a batch: what had expired then is gone from `retained` for good."""
        found = self.history.time_at(end - 1)
        return datetime.fromtimestamp((found or 0) / 1_000_000, UTC)

    def _frame(self, batch: Batch) -> DataFrame:
        return history_frame(self.spark, self.history, batch.start, batch.end)

    def _by_topic(self, tables: list[Table], names: Sequence[str], batch: Batch) -> None:
        frame = self._frame(batch)  # first, because it looks whether the files are whole
        width = self.history.width(batch.start, batch.end)
        topics = None
        if batch.rows <= leaves.ROWS_ASKED:
            topics = self.history.topics(batch.start, batch.end, None if "topic_stats" in names else CHANGES)
        touched = []
        for table in tables:
            files = [file for file in table.files if not file.closed]
            touched.append(leaves.Touched(files, []) if topics is None else leaves.touch(files, topics))
        largest = max((part.files for part in touched), key=lambda files: sum(file.rows for file in files))
        sample = partial(self.history.some_topics, batch.start, batch.end)
        runs = leaves.share_out(largest, batch.rows, width, sample)
        parts = [
            Leaves(name, table.root, table.shape, [(file.path, file.low, file.high) for file in part.files], part.cuts)
            for name, table, part in zip(names, tables, touched, strict=True)
        ]
        added = merge(self.spark, frame, runs, parts, micros(self.clock(batch.end)), leaves.LEAF_ROWS)
        for name, table, part in zip(names, tables, touched, strict=True):
            table.commit(added[name], part.files, batch.end, self.history.mark)

    def _device_stats(self, table: Table, batch: Batch) -> None:
        found = devices(self._frame(batch), self.template)
        self._by_time(table, batch, lambda old: devices_after(old, found, self.template))

    def _traffic(self, table: Table, batch: Batch) -> None:
        found = traffic(self._frame(batch))
        self._by_time(table, batch, lambda old: traffic_after(old, found))

    def _by_time(self, table: Table, batch: Batch, after: Callable[[DataFrame], DataFrame]) -> None:
        """Tables sorted by hour or minute: the batch touches what reaches into its own time."""
        first, last = self.history.times(batch.start, batch.end)
        touched = leaves.touch_between(table.files, first - timedelta(hours=1), last)
        runs = leaves.share_out(touched.files)
        merged = after(table.frame(self.spark, touched.files))
        table.commit(leaves.rewrite(table, merged, runs, touched), touched.files, batch.end, self.history.mark)

    def follow_erasures(self) -> int:
        """Erase what has been erased from history, once the tables have come past it; returns how many rows went."""
        tables = {name: self.tables[name] for name in erase.FOLLOWED}
        done = min(table.erased for table in tables.values())
        reached = min(self.tables[name].applied for name in BY_TOPIC)
        # in order: who has followed one has followed all before it
        ready = list(takewhile(lambda one: reached >= min(one.upto + 1, self.history.end), self.history.erasures(done)))
        return erase.follow(tables, ready) if ready else 0

    def refresh_hygiene(self, now: datetime, between: Callable[[], object] = bool) -> None:
        """Make `hygiene` anew from `retained`; it is small, and time changes it even when nobody publishes.

        Looking for it takes a while. `between` is called after each kind, for what cannot wait; what it does to
        `retained` is the next one's business.
        """
        table, retained = self.tables["hygiene"], self.tables["retained"]
        applied, parts = retained.applied, hygiene_parts(retained.frame(self.spark), now)
        found = []
        for part in parts:
            found.append(part.toArrow().cast(table.shape.arrow))
            between()
        # in one chunk: Spark takes an empty one for the end
        rows = self.spark.createDataFrame(pa.concat_tables(found).combine_chunks())
        laid = rows.repartition(1).sortWithinPartitions("kind")
        added = write_files(laid, table.root, table.shape, leaves.LEAF_ROWS)
        table.commit(added, table.files, applied, self.history.mark)

    def compact(self, name: str, least: int = 16) -> bool:
        """Merge the small files of ended rows, which otherwise only grow in number."""
        table = self.tables[name]
        small = [file for file in table.ended() if file.size < WHOLE_BYTES // 2]
        if len(small) < least:
            return False
        table.commit(gather(self.spark, table, small, WHOLE_BYTES), small, None)
        return True
