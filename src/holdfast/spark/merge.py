"""A batch of history into all tables that are sorted by topic, in one pass over its rows.

The batch is shared out by runs of topics. The task that gets a run reads what the tables hold there, straight from
their files, merges, and writes the files that take their place. Held rows never pass through the JVM, and a batch is
read and moved once for all tables.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.transaction import AddAction
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from holdfast.history.schema import COLUMNS, OUTCOME_CLEARED, OUTCOME_SET
from holdfast.spark.delta import CLOSED, OPEN, Shape
from holdfast.spark.files import REPORT_SCHEMA, LeafWriter, add_action, read_file
from holdfast.spark.fold import changes, is_change
from holdfast.spark.leaves import Runs
from holdfast.spark.succession import CLEARED, LIVE, REFUSED, RETAINED, SET, intervals_after, retained_after
from holdfast.spark.topic_stats import publisher_bit, topic_stats_after

BY_TOPIC = ("retained", "retained_intervals", "topic_stats")
_TYPES = dict(COLUMNS)
_KEPT = ("topic", "offset", "timestamp")


class Leaves(NamedTuple):
    """The leaves of one table that a batch rewrites, as a task needs to know them."""

    table: str
    root: str
    shape: Shape
    files: list[tuple[str, Any, Any]]  # path, lowest and highest topic
    cuts: list[Any]


def merge(
    spark: SparkSession, batch: DataFrame, runs: Runs, leaves: list[Leaves], at_us: int, leaf_rows: int
) -> dict[str, list[AddAction]]:
    """The new files of each table, written by executors; nobody knows them before they are committed."""
    names = [part.table for part in leaves]
    laid = _laid_out(spark, batch, runs, names)
    task = _Task(runs, leaves, at_us, leaf_rows)
    found: dict[str, list[AddAction]] = {name: [] for name in names}
    for report in laid.mapInArrow(task, f"table string, {REPORT_SCHEMA}").collect():
        found[report.table].append(add_action(report))
    return found


def _laid_out(spark: SparkSession, batch: DataFrame, runs: Runs, names: list[str]) -> DataFrame:
    """The batch in the columns that these tables need, a run a partition.

    Every partition also gets a row without a topic that names its run, so that a run in which the batch has nothing
    is written too.
    """
    counted = "topic_stats" in names
    whole = [name for name in RETAINED if name not in _KEPT] if set(names) != {"topic_stats"} else []
    kind = F.when(F.col("outcome") == OUTCOME_SET, F.lit(SET)).when(F.col("outcome") == OUTCOME_CLEARED, F.lit(CLEARED))
    kind = kind.when(F.col("outcome").startswith("refused"), F.lit(REFUSED)).otherwise(F.lit(LIVE))
    columns = {
        **{name: F.col(name) for name in _KEPT},
        # a message that changed nothing is counted only
        **{name: F.when(is_change(), F.col(name)) if counted else F.col(name) for name in whole},
        "kind": kind.cast("byte"),
        **({"size": F.length("payload"), "bit": publisher_bit()} if counted else {}),
        "run": runs.column("topic").cast("int"),
    }
    types = {**_TYPES, "kind": "byte", "size": "int", "bit": "long"}
    marks = {name: F.lit(None).cast(types[name]) for name in columns if name != "run"}
    marks["run"] = F.col("id").cast("int")
    rows = (batch if counted else changes(batch)).select(*(column.alias(name) for name, column in columns.items()))
    marked = rows.union(spark.range(runs.tasks).select(*(column.alias(name) for name, column in marks.items())))
    return marked.repartitionById(runs.tasks, F.col("run"))


class _Task:
    """Runs in an executor: takes the rows of one run, leaves files, reports them."""

    def __init__(self, runs: Runs, leaves: list[Leaves], at_us: int, leaf_rows: int) -> None:
        self.runs, self.leaves, self.at_us, self.leaf_rows = runs, leaves, at_us, leaf_rows

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        received = pa.Table.from_batches(list(batches))
        marks = pc.is_null(received["topic"])
        [run] = received["run"].filter(marks).to_pylist()
        rows = received.filter(pc.invert(marks)).combine_chunks()
        del received
        kinds = rows["kind"]
        changed = rows.filter(pc.or_(pc.equal(kinds, SET), pc.equal(kinds, CLEARED)))
        for part in self.leaves:
            yield from self._follow(part, rows if part.table == "topic_stats" else changed, run)

    def _follow(self, part: Leaves, rows: pa.Table, run: int) -> Iterator[pa.RecordBatch]:
        held = self._held(part, run)
        if part.table == "retained_intervals":
            still, over = intervals_after(held, _as(rows, held)) if rows.num_rows else (held, held.slice(0, 0))
            yield from _reports(part, LeafWriter(part.root, part.shape, self.leaf_rows * 5, [], CLOSED), over)
            yield from _reports(part, LeafWriter(part.root, part.shape, self.leaf_rows, part.cuts, OPEN), still)
            return
        if rows.num_rows and part.table == "retained":
            held = retained_after(held, _as(rows, held), self.at_us)
        elif rows.num_rows:
            held = topic_stats_after(held, rows)
        yield from _reports(part, LeafWriter(part.root, part.shape, self.leaf_rows, part.cuts), held)

    def _held(self, part: Leaves, run: int) -> pa.Table:
        """What the table holds in this run. A leaf may reach across the end of one: each task takes its share."""
        low, high = self.runs.ends(run)
        found = [part.shape.arrow.empty_table()]
        for path, first, last in part.files:
            if (high is not None and first >= high) or (low is not None and last < low):
                continue
            table = read_file(part.root, path, part.shape)
            if low is not None and first < low:
                table = table.filter(pc.greater_equal(table["topic"], low))
            if high is not None and last >= high:
                table = table.filter(pc.less(table["topic"], high))
            found.append(table)
        return pa.concat_tables(found).combine_chunks()


def _as(rows: pa.Table, held: pa.Table) -> pa.Table:
    """The batch's columns in the held rows' types: Spark and Parquet name the parts of a list differently."""
    columns = [rows[name].cast(held.schema.field(name).type) for name in RETAINED]
    return pa.table([*columns, rows["kind"]], names=[*RETAINED, "kind"])


def _reports(part: Leaves, writer: LeafWriter, rows: pa.Table) -> Iterator[pa.RecordBatch]:
    for report in [*writer.add(rows), *writer.close()]:
        yield pa.RecordBatch.from_arrays(
            [pa.array([part.table] * report.num_rows), *report.columns], names=["table", *report.schema.names]
        )
