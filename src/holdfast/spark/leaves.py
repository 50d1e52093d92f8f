"""Changing some rows of a sorted table: rewrite the files that may hold them, leave the rest alone.

A table's files are leaves, each a sorted run of keys with exact bounds in the Delta log. A batch of changed keys
touches the leaves whose bounds hold one of them; those are read, merged with the batch, and written anew. Correctness
asks only that every old row of a changed key is in a touched leaf. That leaves rarely overlap is a matter of cost, and
when they have become many and small the next batch touches all of them.
"""

from bisect import bisect_left
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from deltalake.transaction import AddAction
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from holdfast.spark.delta import DataFile, Table, write_files
from holdfast.spark.options import micros

LEAF_ROWS = 50_000
TASK_ROWS = 250_000
# Above this many rows a batch touches nearly every leaf, and asking which costs more than it saves.
ROWS_ASKED = 50_000


class Touched(NamedTuple):
    """The leaves a batch rewrites, those it leaves, and how to share the work: task n takes keys below `bounds[n]`."""

    files: list[DataFile]
    others: list[DataFile]
    bounds: list[Any]

    def run(self, key: str) -> Column:
        """Which task a key belongs to."""
        place = F.lit(len(self.bounds))
        for index in range(len(self.bounds) - 1, -1, -1):
            place = F.when(F.col(key) < _literal(self.bounds[index]), F.lit(index)).otherwise(place)
        return place

    def spread(self, frame: DataFrame, key: str) -> DataFrame:
        """One run of keys a task. Spark's own range partitioning would compute the frame twice to find bounds."""
        if not self.bounds:
            return frame.repartition(1)
        return frame.repartitionById(len(self.bounds) + 1, self.run(key))


def _literal(value: Any) -> Column:
    return F.timestamp_micros(F.lit(micros(value))) if isinstance(value, datetime) else F.lit(value)


def touch(
    files: list[DataFile], keys: DataFrame, incoming: int, sample: Callable[[], list[Any]] | None = None
) -> Touched:
    """Which leaves may hold one of these keys, for a batch of so many rows. `sample` gives keys when there are none."""
    rows = sum(file.rows for file in files)
    crowded = len(files) > 16 + 3 * rows // LEAF_ROWS
    inside, outside = list(files), list[DataFile]()
    if incoming <= ROWS_ASKED and not crowded and files:
        name = keys.columns[0]
        values = sorted(_aware(row[name]) for row in keys.distinct().collect())
        inside = []
        for file in files:
            place = bisect_left(values, file.low)
            hit = place < len(values) and values[place] <= file.high
            (inside if hit else outside).append(file)
    return Touched(inside, outside, _bounds(inside, incoming, sample))


def _aware(value: Any) -> Any:
    """Spark gives local times without a zone; the session's zone is the driver's business, the moment is not."""
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def _bounds(files: list[DataFile], incoming: int, sample: Callable[[], list[Any]] | None) -> list[Any]:
    rows = sum(file.rows for file in files)
    tasks = 1 + (rows + incoming) // TASK_ROWS
    if tasks == 1:
        return []
    if not files:
        keys = sorted(set(sample())) if sample else []
        return sorted({keys[len(keys) * task // tasks] for task in range(1, tasks)}) if keys else []
    bounds: list[Any] = []
    gathered = 0
    for file in sorted(files, key=lambda file: file.low):
        if gathered >= rows / tasks and file.low not in bounds:
            bounds.append(file.low)
            gathered = 0
        gathered += file.rows
    return bounds


def rewrite(table: Table, frame: DataFrame, touched: Touched, ended: str | None = None) -> list[AddAction]:
    """Write rows that are already spread as the files that take the place of the touched leaves.

    Rows in which the column `ended` is not null are written apart: no later batch will touch them. Such a frame must
    come sorted.
    """
    cuts = [file.low for file in touched.others]
    if ended is None:
        frame = frame.sortWithinPartitions(table.shape.key)
    return write_files(frame, table.root, table.shape, LEAF_ROWS, cuts, ended)
