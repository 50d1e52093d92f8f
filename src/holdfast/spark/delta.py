"""Delta tables that Spark's executors write and one driver commits.

Executors write Parquet files under names nobody else uses and report them; the driver commits the list, the files they
replace, and the offset up to which history is in the table, all in one Delta transaction. Whatever happens before that
commit leaves only files that no reader knows. Whatever happens after it is a new batch: the offset in the table says
where to go on, so no other checkpoint exists that could disagree.
"""

import json
import time
import uuid
import zlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction
from pyarrow.fs import FileSelector
from pyspark.sql import DataFrame, SparkSession

from holdfast.errors import StoreError, UsageError
from holdfast.spark.ranges import filesystem_of

APP_ID = "holdfast-pipeline"
MARK_APP_ID = "holdfast-pipeline-mark"
FROM_APP_ID = "holdfast-pipeline-from"
MADE_APP_ID = "holdfast-pipeline-made-by"
# What the files of a table with rows that ended are called: a batch rewrites open ones and adds closed ones.
OPEN, CLOSED = "open-", "closed-"
GROUP_ROWS = 10_000
REPORT_SCHEMA = "path string, size long, rows long, stats string"
ARROW_TYPES = {
    "long": pa.int64(),
    "int": pa.int32(),
    "byte": pa.int8(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "array<string>": pa.list_(pa.string()),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
    "array<struct<key:string,value:string>>": pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())])),
}
CONFIGURATION = {
    "delta.checkpointInterval": "50",
    "delta.logRetentionDuration": "interval 1 days",
    "delta.deletedFileRetentionDuration": "interval 1 hours",
}


class Shape(NamedTuple):
    """A table's columns as (name, type), and the column its files are sorted and cut by."""

    columns: tuple[tuple[str, str], ...]
    key: str

    @property
    def ddl(self) -> str:
        return ", ".join(f"`{name}` {kind}" for name, kind in self.columns)

    @property
    def arrow(self) -> pa.Schema:
        return pa.schema([(name, ARROW_TYPES[kind]) for name, kind in self.columns])


class DataFile(NamedTuple):
    path: str
    rows: int
    size: int
    low: Any
    high: Any


class Table:
    """One table of the pipeline: its files, how far it has come, and the only way to change it."""

    def __init__(self, root: str, shape: Shape, made_by: str = "") -> None:
        """`made_by` is the rule its rows follow, where a setting chooses it: rows of two rules must not mix."""
        self.root, self.shape = root, shape
        self._rule = zlib.crc32(made_by.encode())
        self._unreferenced: dict[str, float] = {}
        try:
            if not DeltaTable.is_deltatable(root):
                DeltaTable.create(
                    root, schema=Schema.from_arrow(shape.arrow), mode="ignore", configuration=CONFIGURATION
                )
            self._delta = DeltaTable(root)
        except (DeltaError, OSError) as error:
            raise StoreError(f"the table at {root} cannot be opened: {error}") from None
        found = pa.schema(self._delta.schema().to_arrow())
        if found.names != shape.arrow.names:
            raise UsageError(
                f"the table at {root} has columns {found.names}, expected {shape.arrow.names}: it was made by another "
                "version; remove that folder and the pipeline makes the table anew from history"
            )
        self._read_log()
        if made_by and self._delta.transaction_version(MADE_APP_ID) not in (None, self._rule):
            raise UsageError(
                f"the table at {root} was made by another rule than {made_by!r}; remove that folder and the pipeline "
                "makes the table anew from history"
            )

    def _read_log(self) -> None:
        key = self.shape.key
        self._actions: list[dict[str, Any]] = pa.table(self._delta.get_add_actions(flatten=True)).to_pylist()
        self.files = [
            DataFile(row["path"], row["num_records"], row["size_bytes"], row[f"min.{key}"], row[f"max.{key}"])
            for row in self._actions
        ]
        # the next offset to fold; offsets start at 0 or 1, and either way nothing comes before 0
        self.applied = self._delta.transaction_version(APP_ID) or 0
        # the retention mark of history when its rows were last read: what was gone by then was known to be
        self.mark = self._delta.transaction_version(MARK_APP_ID) or 0
        # the mark of its first batch: of what happened before, only what was retained then is in the table
        self.complete_from = self._delta.transaction_version(FROM_APP_ID) or 0

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def version(self) -> int:
        return int(self._delta.version())

    def frame(self, spark: SparkSession, files: Iterable[DataFile] | None = None) -> DataFrame:
        """The rows of these files, or of all, through Spark's own Parquet reader."""
        paths = [f"{self.root}/{file.path}" for file in (self.files if files is None else files)]
        if not paths:
            return spark.createDataFrame([], self.shape.ddl)
        return spark.read.schema(self.shape.ddl).parquet(*paths)

    def reaching(self, start: str, end: str, moment: Any) -> list[DataFile]:
        """Files that may have a row with `start <= moment` and `end` later than it or null."""
        found = []
        for file, row in zip(self.files, self._actions, strict=True):
            first, last, open_ended = row[f"min.{start}"], row[f"max.{end}"], row[f"null_count.{end}"] != 0
            if (first is None or first <= moment) and (open_ended or last is None or last >= moment):
                found.append(file)
        return found

    def commit(self, added: list[AddAction], removed: Iterable[DataFile], applied: int | None, mark: int = 0) -> None:
        """Make the new files the table's, in one step that either happened or did not.

        Without an offset the rows stay what they were and only lie in other files.
        """
        now = int(time.time() * 1000)
        moved = applied is not None
        for action in added:
            action.data_change = moved
        gone = [RemoveAction(file.path, moved, now, file.size) for file in removed]
        position = []
        if applied is not None:
            position = [
                Transaction(APP_ID, applied),
                Transaction(MARK_APP_ID, mark),
                Transaction(MADE_APP_ID, self._rule),
            ]
            if not self.applied:
                position.append(Transaction(FROM_APP_ID, mark))
        properties = CommitProperties(app_transactions=position, max_commit_retries=0)
        try:
            self._delta.create_write_transaction(
                [*added, *gone], "append", self._delta.schema(), commit_properties=properties
            )
        except CommitFailedError as error:
            raise UsageError(
                f"another run committed to {self.root} at the same time; this batch was not applied ({error})"
            ) from None
        except (DeltaError, OSError) as error:
            raise StoreError(f"the table at {self.root} cannot be written: {error}") from None
        self._delta.update_incremental()
        self._read_log()

    def sweep(self, keep_seconds: float) -> int:
        """Delete files that no version since `keep_seconds` ago has used, and leftovers of killed runs."""
        filesystem = filesystem_of(self.root)
        used = {file.path for file in self.files}
        now = time.monotonic()
        seen: dict[str, float] = {}
        swept = 0
        for info in filesystem.get_file_info(FileSelector(self.root)):
            if not info.is_file or not info.base_name.endswith(".parquet") or info.base_name in used:
                continue
            seen[info.base_name] = self._unreferenced.get(info.base_name, now)
            if now - seen[info.base_name] > keep_seconds:
                filesystem.delete_file(info.path)
                del seen[info.base_name]
                swept += 1
        self._unreferenced = seen
        return swept

    def tidy(self) -> None:
        """What an idle moment is for: remove files replaced over an hour ago and fold the log into a checkpoint."""
        self._delta.vacuum(retention_hours=1, dry_run=False, enforce_retention_duration=False)
        self._delta.create_checkpoint()
        self._delta.cleanup_metadata()
        self._delta.update_incremental()


def write_files(
    frame: DataFrame,
    root: str,
    shape: Shape,
    file_rows: int,
    cuts: list[Any] | None = None,
    ended: str | None = None,
) -> list[AddAction]:
    """Have executors write a frame as files of at most `file_rows` rows. Rows must be sorted by key in each partition.

    A file never reaches across a value in `cuts`, so that new files do not overlap those that stay. With `ended`, rows
    where that column is not null go to files of their own.
    """
    writer = _Writer(root, shape, file_rows, sorted(cuts or []), ended)
    names = [name for name, _ in shape.columns]
    reports = frame.select(*names).mapInArrow(writer, REPORT_SCHEMA).collect()
    now = int(time.time() * 1000)
    return [AddAction(report.path, report.size, {}, now, True, report.stats) for report in reports]


class _Writer:
    """Runs in an executor: takes sorted rows, leaves files, reports them."""

    def __init__(self, root: str, shape: Shape, file_rows: int, cuts: list[Any], ended: str | None) -> None:
        self.root, self.shape, self.file_rows, self.cuts, self.ended = root, shape, file_rows, cuts, ended

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = self.shape.arrow
        live = _Leaf(self.root, self.shape.key, OPEN if self.ended else "", self.file_rows, self.cuts)
        past = _Leaf(self.root, self.shape.key, CLOSED, self.file_rows * 5, [], self.ended)
        for batch in batches:
            table = pa.Table.from_batches([batch])
            table = pa.table([table[field.name].cast(field.type) for field in schema], schema=schema)
            if self.ended is not None:
                over = pc.is_valid(table[self.ended])
                yield from past.add(table.filter(over))
                table = table.filter(pc.invert(over))
            yield from live.add(table)
        yield from past.close()
        yield from live.close()


class _Leaf:
    """One kind of file of one task: rows gather until the file is full or a cut falls between two of them."""

    def __init__(
        self, root: str, key: str, prefix: str, file_rows: int, cuts: list[Any], ended: str | None = None
    ) -> None:
        self.root, self.key, self.prefix, self.file_rows, self.cuts = root, key, prefix, file_rows, cuts
        self.ended = ended
        self.waiting: list[pa.Table] = []
        self.count = 0
        self.place = 0  # cuts below this index are behind the last row

    def add(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        start = 0
        for stop in [*self._stops(table), table.num_rows]:
            while stop - start + self.count > self.file_rows:
                room = self.file_rows - self.count
                self._gather(table.slice(start, room))
                yield from self.close()
                start += room
            self._gather(table.slice(start, stop - start))
            start = stop
            if stop != table.num_rows:
                yield from self.close()

    def _gather(self, table: pa.Table) -> None:
        if table.num_rows:
            self.waiting.append(table)
            self.count += table.num_rows

    def _stops(self, table: pa.Table) -> list[int]:
        """Row numbers at which a cut falls between a row and the one before it; at 0 that one was in the last batch."""
        if not self.cuts:
            return []
        stops = []
        for index, key in enumerate(table[self.key].to_pylist()):
            if self.place < len(self.cuts) and key >= self.cuts[self.place]:
                stops.append(index)
                while self.place < len(self.cuts) and key >= self.cuts[self.place]:
                    self.place += 1
        return stops

    def close(self) -> Iterator[pa.RecordBatch]:
        if not self.waiting:
            return
        table = pa.concat_tables(self.waiting)
        self.waiting, self.count = [], 0
        name = f"{self.prefix}{uuid.uuid4().hex}.parquet"
        path = f"{self.root}/{name}"
        filesystem = filesystem_of(self.root)
        if self.ended is not None:
            table = by_life(table, self.ended)
        group_rows = None if self.ended is None else GROUP_ROWS
        pq.write_table(table, path, filesystem=filesystem, compression="snappy", row_group_size=group_rows)
        report = {
            "path": [name],
            "size": [filesystem.get_file_info(path).size],
            "rows": [table.num_rows],
            "stats": [statistics(table, self.key)],
        }
        yield pa.RecordBatch.from_pydict(report)


def by_life(table: pa.Table, ended: str) -> pa.Table:
    """Rows that ended, those of like duration together and by their beginning among them.

    Whoever asks for one moment then finds the few row groups that reach across it. Sorted by beginning alone, one row
    that lasted long would make its whole group reach across everything.
    """
    begin, end = table["offset"].to_numpy(), table[ended].to_numpy()
    duration = np.log2(np.maximum(end - begin, 1)).astype(np.int8)
    return table.take(pa.array(np.lexsort((begin, duration))))


def statistics(table: pa.Table, key: str) -> str:
    """What Delta readers skip files by: exact bounds for the key, for numbers and for times."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for field in table.schema:
        if not (field.name == key or pa.types.is_integer(field.type) or pa.types.is_timestamp(field.type)):
            continue
        bounds = pc.min_max(table[field.name])
        nulls[field.name] = table[field.name].null_count
        if bounds["min"].as_py() is not None:
            low[field.name] = _stat(bounds["min"].as_py(), up=False)
            high[field.name] = _stat(bounds["max"].as_py(), up=True)
    return json.dumps({"numRecords": table.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls})


def _stat(value: Any, up: bool) -> Any:
    if not isinstance(value, datetime):
        return value
    # Delta keeps milliseconds; a bound must not be rounded inwards
    value = value.astimezone(UTC)
    odd = value.microsecond % 1000
    value += timedelta(microseconds=(1000 - odd) if odd and up else -odd)
    return value.strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03d}Z"


def absolute(path: str) -> str:
    return path.rstrip("/") if "://" in path else str(Path(path).absolute())
