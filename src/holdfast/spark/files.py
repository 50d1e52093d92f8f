"""The data files of the pipeline's tables: how executors write them, how rows lie in them, and what is said of them."""

import json
import time
import uuid
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.transaction import AddAction
from pyspark.sql import Row

from holdfast.history.schema import log_bound
from holdfast.spark.delta import CLOSED, OPEN
from holdfast.spark.derived import DerivedTable
from holdfast.spark.store import filesystem_of

REPORT_SCHEMA = "path string, size long, rows long, stats string"
# Where a reader asks for one moment, a row group is what it reads or leaves.
GROUP_ROWS = 20_000
# How many rows of the files that are joined are in memory, about.
JOINED_ROWS = 100_000
# Columns whose values come again and again. A dictionary of the others only costs: twice the time to read them.
REPEATED = ("client_id", "username", "protocol", "content_type", "response_topic", "qos", "payload_format", "outcome")


def add_action(report: Row) -> AddAction:
    """What an executor reported of a file that it wrote, as the log will say it."""
    return AddAction(report.path, report.size, {}, int(time.time() * 1000), True, report.stats)


def write_leaves(
    rows: pa.Table, root: str, value: DerivedTable, file_rows: int, cuts: Sequence[Any] = (), prefix: str = ""
) -> Iterator[pa.RecordBatch]:
    """Write rows, sorted by key, as files of at most so many that never reach across a value in `cuts`."""
    keys = rows[value.sorted_by]
    places = {bisect_left(range(len(keys)), cut, key=lambda row: keys[row].as_py()) for cut in cuts}
    start = 0
    for stop in sorted(places | {rows.num_rows}):
        while start < stop:
            end = min(stop, start + file_rows)
            yield write_file(rows.slice(start, end - start), root, value, prefix)
            start = end


def write_file(table: pa.Table, root: str, value: DerivedTable, prefix: str = "") -> pa.RecordBatch:
    """Write one file of a table, under a name that nobody else uses, and report it.

    Rows that end lie by time in their files, others by key.
    """
    if prefix == CLOSED and value.ended:
        table = table.take(order_of(table, value.ended))
    elif prefix == OPEN:
        table = table.take(np.argsort(table["offset"].to_numpy()))
    rows = GROUP_ROWS if prefix else max(table.num_rows, 1)
    return write_groups((table.slice(start, rows) for start in range(0, table.num_rows, rows)), root, value, prefix)


def write_groups(groups: Iterable[pa.Table], root: str, value: DerivedTable, prefix: str) -> pa.RecordBatch:
    """Write one file with these rows as they come, each part of them a row group, and report it."""
    name = f"{prefix}{uuid.uuid4().hex}.parquet"
    path, filesystem = f"{root}/{name}", filesystem_of(root)
    repeated = [column for column in value.schema.names if column in REPEATED]
    statistics = Statistics(value.sorted_by)
    with pq.ParquetWriter(
        path, value.schema, filesystem=filesystem, compression="zstd", use_dictionary=repeated
    ) as writer:
        for rows in groups:
            statistics.add(rows)
            writer.write_table(rows)
    report = {
        "path": [name],
        "size": [filesystem.get_file_info(path).size],
        "rows": [statistics.rows],
        "stats": [statistics.to_json()],
    }
    return pa.RecordBatch.from_pydict(report)


def join_files(root: str, names: Sequence[str], value: DerivedTable) -> pa.RecordBatch:
    """Write the rows of several files that no batch touches again as one file, in the order of such files.

    They are read side by side, each from its start to its end, and what was written is forgotten: all of them at once
    would be a gigabyte for a file of 64 MiB.
    """
    with ExitStack() as stack:
        paths, filesystem = (f"{root}/{name}" for name in names), filesystem_of(root)
        opened = [stack.enter_context(pq.ParquetFile(path, filesystem=filesystem)) for path in paths]
        if value.ended:
            files = [_Sorted(file, value, JOINED_ROWS // len(opened)) for file in opened]
            return write_groups(_in_groups(_merged(files)), root, value, CLOSED)
        return write_groups(_in_groups(part for file in opened for part in _parts(file, value)), root, value, CLOSED)


def _parts(file: pq.ParquetFile, value: DerivedTable, rows: int = GROUP_ROWS) -> Iterator[pa.Table]:
    for batch in file.iter_batches(rows, use_threads=False):
        yield pa.Table.from_batches([batch]).select(value.schema.names).cast(value.schema)


class _Sorted:
    """A file of rows that ended, as far as it was read and not taken: `rows`, how long they lasted, when they began."""

    def __init__(self, file: pq.ParquetFile, value: DerivedTable, rows: int) -> None:
        self.ended, self._parts = value.ended, _parts(file, value, max(rows, 1000))
        self._have(value.schema.empty_table())

    def _have(self, rows: pa.Table) -> None:
        self.rows = rows
        self.lives, self.begins = life_of(rows, self.ended), rows["offset"].to_numpy()

    def read_on(self) -> bool:
        """Read more where all was taken; False at the end."""
        if not self.rows.num_rows:
            self._have(next(self._parts, self.rows))
        return bool(self.rows.num_rows)

    def last(self) -> tuple[int, int]:
        """The place of the row that comes last of those that were read."""
        life = self.lives.max()
        return int(life), int(self.begins[self.lives == life].max())

    def take(self, until: tuple[int, int]) -> pa.Table:
        """The rows up to that place."""
        life, begin = until
        later = np.flatnonzero((self.lives > life) | ((self.lives == life) & (self.begins > begin)))
        count = int(later[0]) if len(later) else self.rows.num_rows
        taken = self.rows.slice(0, count)
        self._have(self.rows.slice(count))
        return taken


def _merged(files: list[_Sorted]) -> Iterator[pa.Table]:
    while left := [file for file in files if file.read_on()]:
        until = min(file.last() for file in left)  # nothing that was not read yet comes before
        rows = pa.concat_tables(file.take(until) for file in left).combine_chunks()
        yield rows.take(order_of(rows, left[0].ended))


def _in_groups(parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows, so many at a time."""
    waiting: list[pa.Table] = []
    for part in parts:
        waiting.append(part)
        if sum(one.num_rows for one in waiting) >= GROUP_ROWS:
            rows = pa.concat_tables(waiting)
            whole = rows.num_rows // GROUP_ROWS * GROUP_ROWS
            yield from (rows.slice(start, GROUP_ROWS) for start in range(0, whole, GROUP_ROWS))
            waiting = [rows.slice(whole)]
    if any(part.num_rows for part in waiting):
        yield pa.concat_tables(waiting)


def read_file(root: str, name: str, value: DerivedTable) -> pa.Table:
    """The rows of one file, in the columns and types of its table."""
    table = pq.read_table(f"{root}/{name}", filesystem=filesystem_of(root), use_threads=False)
    return table.select(value.schema.names).cast(value.schema)


def order_of(table: pa.Table, ended: str) -> np.ndarray:
    """How rows that ended lie in a file."""
    return np.lexsort((table["offset"].to_numpy(), life_of(table, ended)))


def life_of(table: pa.Table, ended: str) -> np.ndarray:
    """How long rows that ended have lasted, in powers of two: those that are alike lie together in a file, and by their
    beginning among them.

    Whoever asks for one moment then finds the few row groups that reach across it. Sorted by beginning alone, one row
    that lasted long would make its whole group reach across everything.
    """
    begin, end = table["offset"].to_numpy(), table[ended].to_numpy()
    lives: np.ndarray = np.log2(np.maximum(end - begin, 1)).astype(np.int8)
    return lives


class Statistics:
    """What Delta readers skip files by: exact bounds for the key, for numbers and for times."""

    def __init__(self, key: str) -> None:
        self.key, self.rows = key, 0
        self._bounds: dict[str, tuple[Any, Any]] = {}
        self._nulls: dict[str, int] = {}

    def add(self, table: pa.Table) -> None:
        self.rows += table.num_rows
        for field in table.schema:
            name = field.name
            if not (name == self.key or pa.types.is_integer(field.type) or pa.types.is_timestamp(field.type)):
                continue
            self._nulls[name] = self._nulls.get(name, 0) + table[name].null_count
            found = pc.min_max(table[name])
            low, high = found["min"].as_py(), found["max"].as_py()
            if low is not None:
                known = self._bounds.get(name, (low, high))
                self._bounds[name] = min(low, known[0]), max(high, known[1])

    def to_json(self) -> str:
        low = {name: log_bound(bounds[0], up=False) for name, bounds in self._bounds.items()}
        high = {name: log_bound(bounds[1], up=True) for name, bounds in self._bounds.items()}
        return json.dumps({"numRecords": self.rows, "minValues": low, "maxValues": high, "nullCount": self._nulls})
