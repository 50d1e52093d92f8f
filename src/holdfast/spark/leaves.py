"""Changing some rows of a sorted table: rewrite the files that may hold them, leave the rest alone.

A table's files are leaves, each a sorted run of keys with exact bounds in the Delta log. A batch of changed keys
touches the leaves whose bounds hold one of them; those are read, merged with the batch, and written anew. Correctness
asks only that every old row of a changed key is in a touched leaf. That leaves rarely overlap is a matter of cost, and
when they have become many and small the next batch touches all of them.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from deltalake.transaction import AddAction
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from holdfast.spark.delta import DataFile, Table
from holdfast.spark.files import write_files
from holdfast.spark.options import micros

LEAF_ROWS = 50_000
TASK_ROWS = 250_000
TASK_BYTES = 64 << 20
# Above this many rows a batch touches nearly every leaf, and asking which costs more than it saves.
ROWS_ASKED = 50_000


class Touched(NamedTuple):
    """The leaves a batch rewrites, and those it leaves."""

    files: list[DataFile]
    others: list[DataFile]

    @property
    def cuts(self) -> list[Any]:
        """Where no new file may reach across."""
        return sorted(file.low for file in self.others)


class Runs(NamedTuple):
    """Keys shared out over tasks: run n is the keys from `bounds[n - 1]` on and below `bounds[n]`."""

    bounds: list[Any]

    @property
    def tasks(self) -> int:
        return len(self.bounds) + 1

    def ends(self, run: int) -> tuple[Any, Any]:
        """Where a run begins and ends; None is no limit."""
        return (self.bounds[run - 1] if run else None, self.bounds[run] if run < len(self.bounds) else None)

    def column(self, key: str) -> Column:
        """Which run a key belongs to, by halving."""

        def within(first: int, last: int) -> Column:
            if first == last:
                return F.lit(first)
            middle = (first + last) // 2
            return F.when(F.col(key) < _literal(self.bounds[middle]), within(first, middle)).otherwise(
                within(middle + 1, last)
            )

        return within(0, len(self.bounds))

    def spread(self, frame: DataFrame, key: str) -> DataFrame:
        """One run a task. Spark's own range partitioning would compute the frame twice to find bounds."""
        return frame.repartitionById(self.tasks, self.column(key)) if self.bounds else frame.repartition(1)


def _literal(value: Any) -> Column:
    return F.timestamp_micros(F.lit(micros(value))) if isinstance(value, datetime) else F.lit(value)


def touch(files: Sequence[DataFile], keys: Iterable[Any]) -> Touched:
    """The leaves that may hold one of these keys; all of them when they have become many and small."""
    if crowded(files):
        return Touched(list(files), [])
    values = sorted(keys)
    return _parted(files, lambda file: bisect_left(values, file.low) < bisect_right(values, file.high))


def touch_between(files: Sequence[DataFile], low: Any, high: Any) -> Touched:
    """The leaves that may hold a key from `low` to `high`, both included."""
    if crowded(files):
        return Touched(list(files), [])
    return _parted(files, lambda file: file.low <= high and file.high >= low)


def _parted(files: Sequence[DataFile], inside: Callable[[DataFile], bool]) -> Touched:
    return Touched([file for file in files if inside(file)], [file for file in files if not inside(file)])


def crowded(files: Sequence[DataFile]) -> bool:
    return len(files) > 16 + 3 * sum(file.rows for file in files) // LEAF_ROWS


def share_out(
    files: Sequence[DataFile], incoming: int = 0, width: int = 0, sample: Callable[[], Iterable[Any]] = tuple
) -> Runs:
    """Runs of about equal work, for leaves to rewrite and so many incoming rows of so many bytes each.

    `sample` gives some of the incoming keys, to see how they are spread. A leaf counts where it begins.
    """
    rows = incoming + sum(file.rows for file in files)
    tasks = 1 + max(rows // TASK_ROWS, rows * width // TASK_BYTES)
    if tasks == 1:
        return Runs([])
    drawn = list(sample())
    points = [(file.low, float(file.rows)) for file in files]
    points += [(key, incoming / len(drawn)) for key in drawn]
    bounds: list[Any] = []
    gathered = 0.0
    for key, weight in sorted(points):
        if gathered >= rows / tasks and key not in bounds[-1:]:
            bounds.append(key)
            gathered = 0.0
        gathered += weight
    return Runs(bounds)


def rewrite(table: Table, frame: DataFrame, runs: Runs, touched: Touched) -> list[AddAction]:
    """Write rows as the files that take the place of the touched leaves."""
    key = table.shape.key
    laid = runs.spread(frame, key).sortWithinPartitions(key)
    return write_files(laid, table.root, table.shape, LEAF_ROWS, touched.cuts)
