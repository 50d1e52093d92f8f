"""Keeping the pipeline's tables current from history, a batch at a time, each row once.

Every table says itself how far it has come. A batch is a range of offsets; tables that stand at the same offset and
share a key take it together, and each commits it in a transaction of its own. A run that dies in between leaves tables
at different offsets, and the next run takes each from where it is.
"""

import fcntl
import os
import tempfile
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
from deltalake.transaction import AddAction
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from holdfast.errors import StoreError, UsageError
from holdfast.history.layout import Gain
from holdfast.history.schema import COLUMNS, arrow_schema
from holdfast.history.storage_options import is_remote
from holdfast.spark import erase, leaves
from holdfast.spark.delta import DataFile, Table, absolute
from holdfast.spark.derived import Batch, DerivedTable
from holdfast.spark.failure import check_whole
from holdfast.spark.files import REPORT_SCHEMA, add_action, join_files, write_file
from holdfast.spark.merge import Part, merge, passes
from holdfast.spark.ranges import History
from holdfast.spark.store import parquet_frame
from holdfast.spark.tables import DEFAULT_TEMPLATE, pipeline_tables
from holdfast.spark.views import Views


def gather(spark: SparkSession, table: Table, files: Sequence[DataFile], size: int) -> list[AddAction]:
    """Files of ended rows, in order, as files of about so many bytes."""
    groups: list[list[str]] = [[]]
    gathered = 0
    for file in files:
        if gathered and (gathered + file.size > size or len(groups[-1]) == MOST_JOINED):
            groups.append([])
            gathered = 0
        groups[-1].append(file.path)
        gathered += file.size
    task = _Gather(table.root, table.value, groups)
    numbers = spark.range(len(groups)).select(F.col("id").cast("int").alias("group"))
    reports = numbers.repartitionById(len(groups), "group").mapInArrow(task, REPORT_SCHEMA).collect()
    return [add_action(report) for report in reports]


class _Gather:
    """Runs in an executor: takes numbers of groups, leaves a file for each, reports them."""

    def __init__(self, root: str, value: DerivedTable, groups: list[list[str]]) -> None:
        self.root, self.value, self.groups = root, value, groups

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("group").to_pylist():
                yield join_files(self.root, self.groups[number], self.value)


ARROW_BATCH_BYTES = 64 << 20
# About how much of history one batch may be, in memory.
BATCH_BYTES = 1 << 30
# How large a file of ended rows is to become.
WHOLE_BYTES = 64 << 20
MOST_JOINED = 256  # files that are open at a time
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


class Lock:
    """One run at a time on a folder of tables. The system drops it with the process, however that ends."""

    def __init__(self, root: str) -> None:
        path = Path(root) / ".lock"
        if is_remote(root):  # of this machine only; others are told by the store, which takes one commit of a number
            name = f"holdfast-pipeline-{os.getuid()}-{zlib.crc32(root.encode()):08x}.lock"
            path = Path(tempfile.gettempdir()) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[str] = open(path, "a+")  # noqa: SIM115 - held for the life of the run
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
    """The tables in a folder, and how a batch of history gets into them.

    One thread may follow history with some tables while others do so with others: whoever changes a table holds it.
    """

    def __init__(
        self,
        spark: SparkSession,
        history: str,
        root: str,
        *,
        template: str = DEFAULT_TEMPLATE,
        tables: Sequence[DerivedTable] | None = None,
        accept_loss: bool = False,
        views: Views | None = None,
    ) -> None:
        self.spark, self.accept_loss, self.views = spark, accept_loss, views or Views()
        self.history = History(history)
        self.root = absolute(root)
        self.lock = Lock(self.root)
        try:
            kept = pipeline_tables(template) if tables is None else tables
            self.tables = {value.name: Table(f"{self.root}/{value.name}", value) for value in kept}
            self.views.open(self.tables)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.views.close()
        self.lock.release()

    @property
    def following(self) -> tuple[str, ...]:
        """The tables that follow history; the others are summaries of them."""
        return tuple(name for name, table in self.tables.items() if not table.value.of)

    def together(self, names: Sequence[str]) -> list[tuple[str, ...]]:
        """Of these tables, those that can take a batch in one pass."""
        return [tuple(value.name for value in group) for group in passes([self.tables[name].value for name in names])]

    def refresh(self) -> int:
        """Look at history again; the offset it ends at."""
        self.history.refresh()
        return self.history.end

    def advance(self, name: str, max_offsets: int) -> int:
        """Apply the next batch to one table. About how many rows it had; 0 when the table is current."""
        return self.advance_together((name,), max_offsets)

    def advance_together(
        self, names: Sequence[str], max_offsets: int, until: int | None = None, rows: DataFrame | None = None
    ) -> int:
        """Apply the next batch to tables that stand at the same offset and can share a pass.

        Offsets without a row do not count, and no offset from `until` on is taken. `rows` has the rows, if somebody has
        read them already.
        """
        with self._held(names):
            places = {self.next_row(name) for name in names}
            if len(places) > 1:
                raise ValueError(f"expected tables at one offset, got {', '.join(names)} at {sorted(places)}")
            [start] = places
            # a key's rows of one batch are in a task's memory at once: fewer of them where they are large
            most = min(max_offsets, max(1000, BATCH_BYTES // self.history.width(start, start + max_offsets)))
            end = min(self.history.after(start, most), self.history.end if until is None else until)
            if end <= start:
                return 0
            check_whole(self.history, start, end)
            at_us = self.history.time_at(end - 1) or 0
            batch = Batch(start, end, max(1, self.history.count(start, end)), at_us)
            if rows is None:
                rows = history_frame(self.spark, self.history, start, end)
            else:
                rows = rows.where((F.col("offset") >= start) & (F.col("offset") < end))
            self.apply([self.tables[name] for name in names], batch, rows)
            return batch.rows

    @contextmanager
    def _held(self, names: Iterable[str]) -> Iterator[None]:
        with ExitStack() as stack:
            for name in sorted(names):
                stack.enter_context(self.tables[name].lock)
            yield

    def apply(self, tables: list[Table], batch: Batch, rows: DataFrame) -> None:
        """Bring these rows into tables that can share a pass, which have come to the end of the batch by it."""
        value, width = tables[0].value, self.history.width(batch.start, batch.end)
        open_files = [[file for file in table.files if not file.closed] for table in tables]
        largest = max(open_files, key=lambda files: sum(file.rows for file in files))
        # what Spark has added up is few rows, and nobody knows yet how many
        incoming = 0 if value.groups else batch.rows
        runs = leaves.share_out(largest, incoming, width, partial(self._keys, value, batch))
        parts = [
            Part(table.value, table.root, files, leaves.crowded(files), leaves.LEAF_ROWS)
            for table, files in zip(tables, open_files, strict=True)
        ]
        changes = merge(rows.sparkSession, rows, runs, parts, batch)
        for table in tables:
            change = changes[table.value.name]
            replaced = [file for file in table.files if file.path in change.removed]
            table.commit(change.added, replaced, batch.end, self.history.mark)

    def _keys(self, value: DerivedTable, batch: Batch) -> list[Any]:
        """The keys of some rows of a batch, of all where they are few."""
        if not value.key:  # only how many there are matters
            return list(range(1 + batch.rows // leaves.TASK_ROWS))
        if value.takes[value.sorted_by] == f"`{value.sorted_by}`":
            found = self.history.sample(batch.start, batch.end, leaves.KEYS_ASKED, [value.sorted_by])
            return [key for key in found[value.sorted_by].unique().to_pylist() if key is not None]
        rows = self.history.sample(batch.start, batch.end, 4096, None)
        keys = self.spark.createDataFrame(rows).select(F.expr(value.takes[value.sorted_by])).toArrow().column(0)
        return [key for key in keys.unique().to_pylist() if key is not None]

    def furthest_behind(self, names: Sequence[str]) -> tuple[tuple[str, ...], int | None]:
        """The tables that have come the least far, and the offset at which they meet the next ones, if any."""
        places = {name: self.next_row(name) for name in names}
        first, *later = sorted(set(places.values()))
        return tuple(name for name in names if places[name] == first), later[0] if later else None

    def behind(self, name: str) -> int:
        """About how many rows of history a table does not have yet."""
        return self.history.count(self.tables[name].applied, self.history.end)

    def next_row(self, name: str) -> int:
        """The first offset that a table has not had, of those that have a row."""
        table = self.tables[name]
        gone = self.history.dropped(table.applied, table.mark) if table.applied else None
        if gone is not None and not self.accept_loss:
            raise StoreError(
                f"{table.root} has come to offset {gone.start - 1}, but history begins at {gone.end}: retention has "
                "passed the rows between; go on without them with --accept-loss, or remove that folder to start anew"
            )
        return self.history.next_row(max(table.applied, self.history.start))

    def follow_erasures(self) -> int:
        """Erase what has been erased from history, once the tables have come past it; returns how many rows went."""
        done = min(table.erased for table in self.tables.values())
        reached = min(self.tables[name].applied for name in self.following)
        # in order: who has followed one has followed all before it
        ready = list(takewhile(lambda one: reached >= min(one.upto + 1, self.history.end), self.history.erasures(done)))
        if not ready:
            return 0
        with self._held(self.tables):
            gone = erase.follow(self.tables, ready)
            self.views.begin_anew()
            return gone

    def summarise(self, now: datetime) -> None:
        """Make the tables that are summaries of others anew."""
        for table in self.tables.values():
            if not table.value.of:
                continue
            source = self.tables[table.value.of]
            with source.lock:
                applied, frame = source.applied, source.frame(self.spark)
            rows = table.value.summarise(frame, now).toArrow()
            rows = rows.select(table.value.schema.names).cast(table.value.schema).sort_by(table.value.sorted_by)
            with table.lock:
                added = []
                if rows.num_rows:
                    [report] = write_file(rows, table.root, table.value).to_pylist()
                    added.append(add_action(Row(**report)))
                table.commit(added, table.files, applied, self.history.mark)

    def compact(self, least: int = 16) -> int:
        """Merge the small files that no batch touches again, and so only grow in number; how many tables had some."""
        gathered = 0
        for table in self.tables.values():
            with table.lock:
                small = [file for file in table.closed() if file.size < WHOLE_BYTES // 2]
                if len(small) >= least:
                    whole = gather(self.spark, table, small, WHOLE_BYTES)
                    sizes = sum(file.size for file in small), sum(file.size for file in whole)
                    gain = Gain(len(small), sizes[0], len(whole), sizes[1], int(time.time() * 1000))
                    table.commit(whole, small, None, said=gain.transactions())
                    gathered += 1
        return gathered

    def tidy(self, keep_s: float, *, whole: bool = False) -> None:
        """Delete files that no version has used for so long; `whole` folds the tables' logs too."""
        self.views.follow(keep_s)
        for table in self.tables.values():
            with table.lock:
                table.sweep(keep_s)
                if whole:
                    table.tidy()
