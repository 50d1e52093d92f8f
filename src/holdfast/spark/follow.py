"""The tables as queries of Structured Streaming: `readStream.format("holdfast")`, `foreachBatch`, one commit a table.

Spark's checkpoint says which offsets a query has planned, and each table says in its own transactions which it has. A
batch that Spark tries again after a crash finds the tables that have it already and leaves them alone, so the tables
decide, and the checkpoint is a convenience: one that is gone, or that does not fit the tables, is made anew from them.
"""

import json
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any, NamedTuple

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.errors import StoreError
from holdfast.history.storage_options import is_remote
from holdfast.spark.failure import SLOW_START, retry_on_vacuumed_files
from holdfast.spark.keeper import Keeper, bound_arrow_batches

CHECKPOINTS = "_checkpoints"
MOST_SLOW_STARTS = 10


class Step(NamedTuple):
    """Tables moved by one batch, to offset `applied`; `behind` rows are left."""

    tables: tuple[str, ...]
    rows: int
    seconds: float
    applied: int
    behind: int


class Stopped(Exception):
    """Raised where a batch would begin after somebody asked to stop: nothing of it has been done."""


class Follower:
    """One query, and the tables that it keeps."""

    def __init__(self, keeper: Keeper, name: str, tables: Sequence[str], max_offsets: int) -> None:
        self.keeper, self.name, self.tables, self.max_offsets = keeper, name, tuple(tables), max_offsets
        # Spark writes to a disk, or to what it has been taught; where tables are elsewhere they are enough
        self._temporary = TemporaryDirectory(prefix="holdfast-") if is_remote(keeper.root) else None
        root = keeper.root if self._temporary is None else self._temporary.name
        self.checkpoint = Path(root) / CHECKPOINTS / name
        self.ended = Event()
        self._trigger: dict[str, Any] = {}
        self._runs = self._runs_ended = self._slow_starts = 0
        self._stopping = False
        self._error: BaseException | None = None
        self._query: StreamingQuery | None = None

    def start(self, **trigger: Any) -> None:
        self._trigger = trigger
        self._runs += 1
        self.ended.clear()
        keeper, history = self.keeper, self.keeper.history
        applied = min(keeper.tables[name].applied for name in self.tables)
        if not fits(self.checkpoint, applied):
            shutil.rmtree(self.checkpoint, ignore_errors=True)
        bound_arrow_batches(keeper.spark, history, applied, history.end)
        # below the mark of retention rows in force have stayed: the source passes them to who begins at the earliest
        begin = str(applied) if applied and applied >= history.mark else "earliest"
        source = keeper.spark.readStream.format("holdfast").option("startingOffsets", begin)
        # what retention took before it was read is found where the tables are
        source = source.option("failOnDataLoss", "false").option("maxOffsetsPerTrigger", self.max_offsets)
        writer = source.load(history.location).writeStream.queryName(self.name).foreachBatch(self._take)
        self._query = writer.option("checkpointLocation", self.checkpoint.as_uri()).trigger(**trigger).start()

    def _take(self, rows: DataFrame, number: int) -> None:
        try:
            if self._stopping:
                raise Stopped
            start, end = span(self.checkpoint, number)
            context = self.keeper.spark.sparkContext
            context.setLocalProperty("spark.scheduler.pool", self.name)
            context.setJobDescription(f"{', '.join(self.tables)}: offsets {start:,} to {end - 1:,}")
            self.keeper.history.refresh()
            for names in self.keeper.together(self.tables):
                while self._advance(names, rows, start, end):
                    pass
        except BaseException as error:
            self._error = error
            if isinstance(error, Exception):
                raise
            raise RuntimeError(f"ended by {type(error).__name__}") from error  # Spark hears of exceptions only

    def _advance(self, names: Sequence[str], rows: DataFrame, start: int, end: int) -> int:
        """Brings those of the tables that are furthest behind on, and returns by how many rows."""
        group, meeting = self.keeper.furthest_behind(names)
        until = end if meeting is None else min(end, meeting)
        # a table that stands before this batch needs rows that the batch does not have
        given = rows if self.keeper.next_row(group[0]) >= start else None
        work = partial(self.keeper.advance_together, group, self.max_offsets, until, given)
        return retry_on_vacuumed_files(self.keeper.history, work)

    def wait(self, seconds: float) -> bool:
        """Returns whether the query has ended by itself, and raises what it ended with."""
        assert self._query is not None
        try:
            return bool(self._query.awaitTermination(seconds))  # type: ignore[arg-type] # it takes fractions too
        except StreamingQueryException as error:
            if self._error is None:
                if SLOW_START not in str(error) or self._slow_starts == MOST_SLOW_STARTS:
                    raise
                self._slow_starts += 1
                self.start(**self._trigger)
                return False
        if isinstance(self._error, Stopped):
            return True
        raise self._error

    def on_terminated(self) -> None:
        self._runs_ended += 1
        if self._runs_ended == self._runs:
            self.ended.set()

    def stop(self) -> None:
        """Lets a batch that has begun come to its end. It cannot be started again."""
        self._stopping = True
        try:
            self._stop_query()
        finally:
            if self._temporary is not None:
                self._temporary.cleanup()

    def _stop_query(self) -> None:
        if self._query is None:  # nobody will tell of its end
            self.ended.set()
            return
        while self._query.isActive and self._query.status["isTriggerActive"]:
            time.sleep(0.05)
        with suppress(StreamingQueryException):
            self._query.stop()


class Progress(StreamingQueryListener):
    """Hears from Spark how the queries come on, and tells it as steps."""

    def __init__(self, followers: Sequence[Follower], report: Callable[[Step], None]) -> None:
        self.followers, self.report = {follower.name: follower for follower in followers}, report
        self._names: dict[str, str] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        if event.name in self.followers:
            self._names[str(event.runId)] = event.name

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        follower = self.followers.get(progress.name or "")
        if follower is None or not progress.sources:
            return
        source, history = progress.sources[0], follower.keeper.history
        start, end = _offset(source.startOffset), _offset(source.endOffset)
        rows = history.count(start, end)
        if rows:
            behind = history.count(end, history.end)
            self.report(Step(follower.tables, rows, progress.batchDuration / 1000, end, behind))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        name = self._names.pop(str(event.runId), None)
        if name is not None:
            self.followers[name].on_terminated()


def span(checkpoint: Path, number: int) -> tuple[int, int]:
    """The offsets that Spark has planned for a batch: it writes them down before the batch begins."""
    end = _planned(checkpoint, number)
    if end is None:
        raise StoreError(
            f"expected Spark to have written the offsets of batch {number} to {checkpoint}; remove that folder, "
            "and the run goes on from the tables"
        )
    return (_planned(checkpoint, number - 1) or 0) if number else 0, end


def fits(checkpoint: Path, applied: int) -> bool:
    """Whether a query that goes on from here gives tables at this offset the rows they need, and few others."""
    numbers = sorted(int(path.name) for path in checkpoint.glob("offsets/*") if path.name.isdigit())
    if not numbers:
        return not checkpoint.exists()
    start, end = _planned(checkpoint, numbers[-1] - 1) or 0, _planned(checkpoint, numbers[-1])
    if end is None:
        return False
    committed = (checkpoint / "commits" / str(numbers[-1])).exists()
    return (end if committed else start) <= applied <= end


def _planned(checkpoint: Path, number: int) -> int | None:
    try:
        return int(json.loads((checkpoint / "offsets" / str(number)).read_text().splitlines()[-1])["o"])
    except (OSError, ValueError, IndexError, KeyError, TypeError):
        return None


def _offset(text: str | None) -> int:
    """A position as the source says it; Spark has other words for none."""
    return int(json.loads(text)["o"]) if text and text.startswith("{") else 0
