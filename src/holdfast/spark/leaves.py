"""Changing some rows of a sorted table: rewrite the files that may hold them, leave the rest alone.

A table's files are leaves, each a sorted run of keys with exact bounds in the Delta log. A batch is shared out by runs
of keys. Whoever gets a run touches the leaves in it whose bounds hold one of the batch's keys: those are read, given
to the table's step with the batch, and written anew. Correctness asks only that every old row of a changed key is in a
touched leaf. That leaves rarely overlap is a matter of cost, and when they have become many and small the next batch
touches all of them.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F

from holdfast.spark.delta import DataFile
from holdfast.spark.options import micros

LEAF_ROWS = 50_000
TASK_ROWS = 200_000
TASK_BYTES = 64 << 20
# With more keys than this a task touches nearly every leaf, and asking which costs more than it saves.
KEYS_ASKED = 50_000


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


def _literal(value: Any) -> Column:
    return F.timestamp_micros(F.lit(micros(value))) if isinstance(value, datetime) else F.lit(value)


class Touched(NamedTuple):
    """The leaves of a run that a batch rewrites, and where no new file may reach across: the lows of the others."""

    files: list[DataFile]
    cuts: list[Any]


def touch(files: Sequence[DataFile], ends: tuple[Any, Any], keys: Iterable[Any] | None) -> Touched:
    """The leaves of a run that may hold one of these keys; all of them when nobody asked which keys there are.

    A leaf that reaches across the end of a run goes whenever any of them is rewritten: each run takes its share.
    """
    low, high = ends
    values = None if keys is None else sorted(keys)
    touched, cuts = [], []
    for file in files:
        if (high is not None and file.low >= high) or (low is not None and file.high < low):
            continue
        shared = (low is not None and file.low < low) or (high is not None and file.high >= high)
        if shared or values is None or bisect_left(values, file.low) < bisect_right(values, file.high):
            touched.append(file)
        else:
            cuts.append(file.low)
    return Touched(touched, sorted(cuts))


def crowded(files: Sequence[DataFile]) -> bool:
    return len(files) > 16 + 3 * sum(file.rows for file in files) // LEAF_ROWS


def share_out(files: Sequence[DataFile], incoming: int, width: int, sample: Callable[[], Iterable[Any]]) -> Runs:
    """Runs of about equal work, for leaves to rewrite and so many incoming rows of so many bytes each.

    `sample` gives some of the incoming keys: they show which leaves are touched, and where the work lies. A leaf counts
    where it begins.
    """
    if _tasks(incoming + sum(file.rows for file in files), width) == 1:
        return Runs([])
    drawn = sorted(sample())
    touched = [file for file in files if bisect_left(drawn, file.low) < bisect_right(drawn, file.high)]
    rows = incoming + sum(file.rows for file in touched)
    points = [(file.low, float(file.rows)) for file in touched]
    points += [(key, incoming / len(drawn)) for key in drawn]
    bounds: list[Any] = []
    gathered = 0.0
    for key, weight in sorted(points):
        if gathered >= rows / _tasks(rows, width) and key not in bounds[-1:]:
            bounds.append(key)
            gathered = 0.0
        gathered += weight
    return Runs(bounds)


def _tasks(rows: int, width: int) -> int:
    return 1 + max(rows // TASK_ROWS, rows * width // TASK_BYTES)
