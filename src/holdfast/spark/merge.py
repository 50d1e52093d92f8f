"""A batch of history into tables that are sorted by the same key, in one pass over its rows.

The batch is shared out by runs of keys. The task that gets a run reads what the tables hold there, straight from their
files, calls each table's step, and writes the files that take their place. Held rows never pass through the JVM, and a
batch is moved once for all tables of a pass.
"""

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import or_
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.transaction import AddAction
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from holdfast.spark.delta import CLOSED, OPEN, DataFile
from holdfast.spark.derived import Batch, DerivedTable
from holdfast.spark.files import REPORT_SCHEMA, LeafWriter, add_action, read_file
from holdfast.spark.leaves import KEYS_ASKED, Runs, touch

RUN, MARK = "run of keys", "names its run"
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
    for report in laid.mapInArrow(_Task(runs, parts, batch), f"table string, {REPORT_SCHEMA}").collect():
        if report.rows:
            found[report.table].added.append(add_action(report))
        else:
            found[report.table].removed.add(report.path)
    return found


def lay_out(spark: SparkSession, frame: DataFrame, runs: Runs, tables: list[DerivedTable]) -> DataFrame:
    """The batch in the columns that these tables take, a run a partition.

    Every partition also gets a row that names its run, so that a run in which the batch has nothing is written too.
    """
    rows = _taken(frame, tables)
    key = tables[0].key
    if not key:
        return rows.coalesce(runs.tasks)
    rows = rows.where(F.col(key[0]).isNotNull())
    rows = rows.withColumns({RUN: runs.column(key[0]).cast("int"), MARK: F.lit(False)})
    nothing = [F.lit(None).cast(kind.dataType).alias(kind.name) for kind in rows.schema.fields[:-2]]
    marks = spark.range(0, runs.tasks, 1, 1).select(*nothing, F.col("id").cast("int").alias(RUN), F.lit(True))
    return rows.union(marks).repartitionById(runs.tasks, F.col(RUN))


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


class _Task:
    """Runs in an executor: takes the rows of one run, leaves files, reports them and those that they replace."""

    def __init__(self, runs: Runs, parts: list[Part], batch: Batch) -> None:
        self.runs, self.parts, self.batch = runs, parts, batch

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = list(batches)
        if not found:
            return
        rows = pa.Table.from_batches(found)
        del found
        run = 0
        if RUN in rows.column_names:
            marks = rows[MARK]
            [run] = rows[RUN].filter(marks).to_pylist()
            rows = rows.filter(pc.invert(marks)).drop_columns([RUN, MARK])
        rows = rows.combine_chunks()
        for part in self.parts:
            for report in self._follow(part, _of(rows, part.value), run):
                yield pa.RecordBatch.from_arrays(
                    [pa.array([part.value.name] * report.num_rows), *report.columns],
                    names=["table", *report.schema.names],
                )

    def _follow(self, part: Part, rows: pa.Table, run: int) -> Iterator[pa.RecordBatch]:
        value, ends = part.value, self.runs.ends(run)
        keys = None
        if value.key and not part.crowded:
            keys = pc.unique(rows[value.sorted_by])
            keys = keys.to_pylist() if len(keys) <= KEYS_ASKED else None
        touched = touch(part.leaves, ends, keys)
        held = read_share(part, touched.files, ends)
        after = value.follow(held, rows, self.batch) if rows.num_rows else held
        yield from write_leaves(part, after, touched.cuts)
        for file in touched.files:
            yield pa.RecordBatch.from_pydict({"path": [file.path], "size": [0], "rows": [0], "stats": [""]})


def _of(rows: pa.Table, value: DerivedTable) -> pa.Table:
    """What a table takes of the rows, in its own types: Spark and Parquet name the parts of a list differently."""
    if _wanted(value.name) in rows.column_names:
        rows = rows.filter(rows[_wanted(value.name)])
    known = {field.name: field.type for field in value.schema}
    names = [*value.takes, *value.groups]
    columns = [rows[name].cast(known[name]) if name in known else rows[name] for name in names]
    return pa.table(columns, names=names)


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


def write_leaves(part: Part, rows: pa.Table, cuts: list[object]) -> Iterator[pa.RecordBatch]:
    value = part.value
    rows = rows.select(value.schema.names).cast(value.schema)
    if not value.key:
        yield from _written(LeafWriter(part.root, value, part.leaf_rows * CLOSED_LEAVES, [], CLOSED), rows)
        return
    if value.ended:
        over = pc.is_valid(rows[value.ended])
        closed, rows = rows.filter(over), rows.filter(pc.invert(over))
        yield from _written(LeafWriter(part.root, value, part.leaf_rows * CLOSED_LEAVES, [], CLOSED), closed)
    keys = rows[value.sorted_by].combine_chunks()
    if not pc.all(pc.less_equal(keys.slice(0, max(0, len(keys) - 1)), keys.slice(1))).as_py():
        rows = rows.take(pc.sort_indices(keys))
    yield from _written(LeafWriter(part.root, value, part.leaf_rows, cuts, OPEN if value.ended else ""), rows)


def _written(writer: LeafWriter, rows: pa.Table) -> Iterator[pa.RecordBatch]:
    yield from writer.add(rows)
    yield from writer.close()
