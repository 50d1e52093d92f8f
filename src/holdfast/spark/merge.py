"""A batch of history into tables that are sorted by the same key, in one pass over its rows.

The batch is shared out by runs of keys. The task that gets a run reads what the tables hold there, straight from their
files, calls each table's step, and writes the files that take their place. Held rows never pass through the JVM, and a
batch is moved once for all tables of a pass.
"""

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import or_
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake.transaction import AddAction
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from holdfast.spark.delta import CLOSED, OPEN, DataFile
from holdfast.spark.derived import Batch, DerivedTable
from holdfast.spark.files import REPORT_SCHEMA, add_action, read_file, write_leaves
from holdfast.spark.leaves import KEYS_ASKED, Runs, touch

RUN, PACKED = "run of keys", "rows of it"
# How many rows are gathered before they are parted by run: enough that each run gets some hundred at once.
PACK_ROWS = 65_536
PACK_BYTES = 32 << 20  # fewer where they are large
# Files of rows that ended are read by moment, and may be larger.
CLOSED_LEAVES = 5


class Part(NamedTuple):
    """One table in a pass, as a task needs to know it: the leaves that may be touched, or must be where `crowded`."""

    value: DerivedTable
    root: str
    leaves: list[DataFile]
    crowded: bool
    leaf_rows: int


class Change(NamedTuple):
    added: list[AddAction]
    removed: set[str]


def passes(tables: Sequence[DerivedTable]) -> list[tuple[DerivedTable, ...]]:
    """Tables that can share a pass: the same key, and nothing of the same name with another meaning."""
    found: list[list[DerivedTable]] = []
    for table in tables:
        for group in found:
            if all(_agree(table, other) for other in group):
                group.append(table)
                break
        else:
            found.append([table])
    return [tuple(group) for group in found]


def _agree(one: DerivedTable, other: DerivedTable) -> bool:
    if one.groups or other.groups or not one.key or one.key[:1] != other.key[:1]:
        return False
    return all(one.takes[name] == other.takes[name] for name in one.takes.keys() & other.takes.keys())


def merge(spark: SparkSession, frame: DataFrame, runs: Runs, parts: list[Part], batch: Batch) -> dict[str, Change]:
    """What becomes of each table. Executors write the files; nobody knows them before they are committed."""
    laid = lay_out(spark, frame, runs, [part.value for part in parts])
    found = {part.value.name: Change([], set()) for part in parts}
    for report in laid.mapInArrow(Task(runs, parts, batch), f"table string, {REPORT_SCHEMA}").collect():
        if report.rows:
            found[report.table].added.append(add_action(report))
        else:
            found[report.table].removed.add(report.path)
    return found


def lay_out(spark: SparkSession, frame: DataFrame, runs: Runs, tables: list[DerivedTable]) -> DataFrame:
    """The batch in the columns that these tables take, a run a partition.

    Rows travel packed, many of a run as one: Spark then moves a few large values instead of every row. Each partition
    also gets one without rows that names its run, so that a run in which the batch has nothing is written too.
    """
    rows = _taken(frame, tables)
    key = tables[0].key
    if key:
        rows = rows.where(F.col(key[0]).isNotNull())
    if not key or runs.tasks == 1:
        # what is added up is added up by all cores, and little is left to move
        return rows.repartition(runs.tasks) if tables[0].groups else rows.coalesce(runs.tasks)
    packed = rows.withColumn(RUN, runs.column(key[0]).cast("int")).mapInArrow(pack, f"`{RUN}` int, `{PACKED}` binary")
    marks = spark.range(0, runs.tasks, 1, 1).select(F.col("id").cast("int"), F.lit(None).cast("binary"))
    return packed.union(marks).repartitionById(runs.tasks, F.col(RUN))


def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs in an executor: rows with the number of their run in, one row for each run and some thousand of them out."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(one.num_rows for one in waiting) >= PACK_ROWS or sum(one.nbytes for one in waiting) >= PACK_BYTES:
            yield _parted(pa.Table.from_batches(waiting))
            waiting = []
    if waiting:
        yield _parted(pa.Table.from_batches(waiting))


def _parted(rows: pa.Table) -> pa.RecordBatch:
    numbers = rows[RUN].to_numpy()
    order = np.argsort(numbers, kind="stable")
    numbers, rows = numbers[order], rows.drop_columns([RUN]).take(order).combine_chunks()
    starts = np.flatnonzero(np.r_[True, numbers[1:] != numbers[:-1]])[: rows.num_rows]
    parts = []
    for start, end in zip(starts, [*starts[1:], rows.num_rows], strict=True):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_table(rows.slice(start, end - start))
        parts.append(sink.getvalue().to_pybytes())
    return pa.record_batch([pa.array(numbers[starts], pa.int32()), pa.array(parts, pa.binary())], names=[RUN, PACKED])


def unpack(batches: list[pa.RecordBatch]) -> tuple[int, pa.Table | None]:
    """The number of a run, and its rows; None when there are none."""
    run = batches[0].column(RUN)[0].as_py()
    parts = [part for batch in batches for part in batch.column(PACKED) if part.is_valid]
    if not parts:
        return run, None
    return run, pa.concat_tables(pa.ipc.open_stream(part.as_buffer()).read_all() for part in parts)


def _taken(frame: DataFrame, tables: list[DerivedTable]) -> DataFrame:
    """The columns that the tables take, and for each of them which rows, where it takes not all."""
    wanted = {table.name: F.coalesce(F.expr(table.where), F.lit(False)) for table in tables if table.where}
    if len(wanted) == len(tables):
        frame = frame.where(reduce(or_, wanted.values()))
    if tables[0].groups:
        [table] = tables
        by = [F.expr(text).alias(name) for name, text in table.takes.items()]
        return frame.groupBy(*by).agg(*(F.expr(text).alias(name) for name, text in table.groups.items()))
    columns: dict[str, Column] = {}
    for name, text in {name: text for table in tables for name, text in table.takes.items()}.items():
        users = [table for table in tables if name in table.takes]
        some = len(users) < len(tables) and all(user.where for user in users)
        # a row that only others take is moved without it
        columns[name] = (
            F.when(reduce(or_, (wanted[user.name] for user in users)), F.expr(text)) if some else F.expr(text)
        )
    columns |= {_wanted(name): column for name, column in wanted.items() if len({t.where for t in tables}) > 1}
    return frame.select(*(column.alias(name) for name, column in columns.items()))


def _wanted(name: str) -> str:
    return f"taken by {name}"


class Task:
    """Runs in an executor: takes the rows of one run, leaves files, reports them and those that they replace."""

    def __init__(self, runs: Runs, parts: list[Part], batch: Batch) -> None:
        self.runs, self.parts, self.batch = runs, parts, batch

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = list(batches)
        if not found:
            return
        run, rows = unpack(found) if PACKED in found[0].schema.names else (0, pa.Table.from_batches(found))
        del found
        rows = None if rows is None else rows.combine_chunks()
        shared: dict[object, pa.Table | None] = {}
        for part in self.parts:
            alike = (part.value.where, *((name, _type(part.value, name)) for name in part.value.takes))
            if alike not in shared:
                shared[alike] = None if rows is None else _of(rows, part.value)
            for report in self._follow(part, shared[alike], run):
                yield pa.RecordBatch.from_arrays(
                    [pa.array([part.value.name] * report.num_rows), *report.columns],
                    names=["table", *report.schema.names],
                )
        del rows, shared
        pa.default_memory_pool().release_unused()  # a worker lives on, and others want the memory

    def _follow(self, part: Part, rows: pa.Table | None, run: int) -> Iterator[pa.RecordBatch]:
        value, ends = part.value, self.runs.ends(run)
        keys: list[object] | None = []
        if rows is not None and value.key:
            some = pc.unique(rows[value.sorted_by])
            keys = some.to_pylist() if len(some) <= KEYS_ASKED and not part.crowded else None
        touched = touch(part.leaves, ends, keys)
        held = read_share(part, touched.files, ends)
        after = value.follow(held, rows, self.batch) if rows is not None and rows.num_rows else held
        yield from write(part, after, touched.cuts)
        for file in touched.files:
            yield pa.RecordBatch.from_pydict({"path": [file.path], "size": [0], "rows": [0], "stats": [""]})


def _of(rows: pa.Table, value: DerivedTable) -> pa.Table:
    """What a table takes of the rows, in its own types: Spark and Parquet name the parts of a list differently."""
    names = [*value.takes, *value.groups]
    found = rows.select(names)
    if _wanted(value.name) in rows.column_names:
        found = found.filter(rows[_wanted(value.name)])
    types = {name: _type(value, name) for name in names}
    return pa.table([found[name].cast(kind) if kind else found[name] for name, kind in types.items()], names=names)


def _type(value: DerivedTable, name: str) -> pa.DataType | None:
    place = value.schema.get_field_index(name)
    return value.schema.field(place).type if place >= 0 else None


def read_share(part: Part, files: Sequence[DataFile], ends: tuple[object, object]) -> pa.Table:
    """What these leaves hold of a run. A leaf may reach across the end of one: each task takes its share."""
    low, high = ends
    found = [part.value.schema.empty_table()]
    for file in files:
        table = read_file(part.root, file.path, part.value)
        if low is not None and file.low < low:
            table = table.filter(pc.field(part.value.sorted_by) >= pa.scalar(low))
        if high is not None and file.high >= high:
            table = table.filter(pc.field(part.value.sorted_by) < pa.scalar(high))
        found.append(table)
    return pa.concat_tables(found).combine_chunks()


def write(part: Part, rows: pa.Table, cuts: list[object]) -> Iterator[pa.RecordBatch]:
    """What a step returned, as files: by key what stays open, for itself what has ended or is only ever added."""
    value = part.value
    rows = rows.select(value.schema.names).cast(value.schema)
    if value.ended or not value.key:
        over = pc.is_valid(rows[value.ended]) if value.ended else pa.repeat(pa.scalar(True), rows.num_rows)
        yield from write_leaves(rows.filter(over), part.root, value, part.leaf_rows * CLOSED_LEAVES, prefix=CLOSED)
        rows = rows.filter(pc.invert(over))
    keys = rows[value.sorted_by].combine_chunks()
    if not pc.all(pc.less_equal(keys.slice(0, max(0, len(keys) - 1)), keys.slice(1))).as_py():
        rows = rows.take(pc.sort_indices(keys))
    yield from write_leaves(rows, part.root, value, part.leaf_rows, cuts, OPEN if value.ended else "")
