"""`spark.read.format("holdfast")` and `spark.readStream.format("holdfast")`: history as a batch and as a stream.

A stream's position is one number, the next offset to read, so re-reading a range gives the same rows and asking for the
latest offset twice changes nothing. Filters are options: Spark keeps a pushed filter on the DataFrame it came from and
then gives wrong counts, so `pushFilters` is left alone. Readers are pickled; they hold plain values only.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from holdfast.errors import StoreError, UsageError
from holdfast.history.schema import COLUMNS, arrow_schema
from holdfast.spark.options import Options, parse_moment
from holdfast.spark.ranges import History, Piece, read_piece
from holdfast.spark.topics import TopicFilter

OPTIONS = (
    "path",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "maxOffsetsPerTrigger",
    "filter",
    "subscribe",
    "record",
    "failOnDataLoss",
    "rowsPerPartition",
)
RECORDS = ("retained", "all")
# The parser of type names is the session's, and readers are made where there is none.
SIMPLE = {"long": "bigint", "byte": "tinyint"}
# Large enough that a task's start does not count, small enough that a few million rows keep every core busy.
ROWS_PER_PARTITION = 500_000


class Rows(InputPartition):
    """A piece of history as Spark ships it: numbers and strings."""

    def __init__(self, location: str, piece: Piece) -> None:
        super().__init__(None)
        self.location = location
        self.start, self.end, self.files = piece.start, piece.end, piece.files


class Plan:
    """The options, checked, and what the readers share."""

    def __init__(self, options: Options, columns: list[str]) -> None:
        self.address = options.required("path")
        self.columns = columns
        self.starting = options.text("startingOffsets") or options.moment("startingTimestamp")
        self.ending = options.text("endingOffsets") or options.moment("endingTimestamp")
        self.limit = options.number("maxOffsetsPerTrigger", least=1)
        text = options.text("filter", "subscribe")
        self.filter = TopicFilter(text) if text is not None else None
        self.record = options.text("record") or "retained"
        if self.record not in RECORDS:
            raise UsageError(f"option 'record': expected retained or all, got {self.record!r}")
        self.fail_on_loss = options.flag("failOnDataLoss", default=True)
        self.rows_per_piece = options.number("rowsPerPartition", default=ROWS_PER_PARTITION, least=1) or 1

    def resolve(self, text: str, history: History) -> int:
        """Where a word, an offset or a time stands in the table."""
        if text == "latest":
            return history.end
        moment = parse_moment(text)
        return moment if isinstance(moment, int) else history.offset_at(moment)

    def first(self, history: History) -> tuple[int, int]:
        """Where to begin, and the retention mark that was known there."""
        if self.record == "all" and history.live_from and (self.starting == "latest" or not history.files):
            return max(history.end, history.live_from), history.mark
        if self.starting in (None, "earliest"):
            self.check_live(history.start, history)
            return history.start, history.mark
        return self.checked(self.resolve(self.starting or "", history), 0, history), 0

    def bounds(self, history: History) -> tuple[int, int]:
        """The first offset of a batch, and the one behind its last."""
        start, _ = self.first(history)
        return start, min(self.resolve(self.ending or "latest", history), history.end)

    def check_live(self, start: int, history: History) -> None:
        """Raise when messages without RETAIN are asked for and are not there."""
        lacking = history.lacks_live(start) if self.record == "all" else ""
        if lacking and (self.fail_on_loss or not history.live_from):
            raise UsageError(lacking)

    def checked(self, start: int, known: int, history: History) -> int:
        self.check_live(start, history)
        gone = history.dropped(start, known)
        if gone is None:
            return start
        if self.fail_on_loss:
            raise StoreError(gone.explain(history.location))
        return gone.end

    def pieces(self, history: History, start: int, end: int) -> list[InputPartition]:
        return [Rows(history.location, piece) for piece in history.plan(start, end, self.rows_per_piece)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Rows):  # Spark asks once with nothing when there are no partitions
            return
        schema = pa.schema([arrow_schema().field(name) for name in self.columns])
        piece = Piece(partition.start, partition.end, partition.files)
        yield from read_piece(piece, partition.location, schema, self.filter, self.fail_on_loss)


class HistoryReader(DataSourceReader):
    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def partitions(self) -> Sequence[InputPartition]:
        history = History(self._plan.address)
        return self._plan.pieces(history, *self._plan.bounds(history))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._plan.read(partition)


class HistoryStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are `{"o": N}`: everything below N has been read. `m` is the retention mark that N lies below, if any."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._history: History | None = None
        self._target: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_plan": self._plan, "_history": None, "_target": None}

    def _opened(self) -> History:
        if self._history is None:
            self._history = History(self._plan.address)
        else:
            self._history.refresh()
        return self._history

    def initialOffset(self) -> dict[str, int]:
        return _position(*self._plan.first(self._opened()))

    def _end(self, history: History) -> int:
        end = history.end
        if self._plan.ending is not None:
            end = min(end, self._plan.resolve(self._plan.ending, history))
        return end if self._target is None else min(end, self._target)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        history = self._opened()
        begin = self._plan.checked(start["o"], start.get("m", 0), history)
        end = self._end(history)
        if isinstance(limit, ReadMaxRows):
            # offsets without a row, after a crash or left out by history.filter, are stepped over for nothing
            end = min(end, history.next_row(begin) + limit.max_rows)
        elif not isinstance(limit, ReadAllAvailable):
            raise UsageError(f"expected a limit in rows, got {limit!r}")
        return _position(max(start["o"], end), start.get("m", 0))

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self._plan.limit is None else ReadMaxRows(self._plan.limit)

    def reportLatestOffset(self) -> dict[str, int] | None:
        return {"o": self._opened().end}

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._end(self._opened())

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        if start["o"] >= end["o"]:
            return []
        history = self._opened()
        begin = self._plan.checked(start["o"], start.get("m", 0), history)
        return self._plan.pieces(history, begin, end["o"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._plan.read(partition)


def _position(offset: int, mark: int) -> dict[str, int]:
    return {"o": offset, "m": mark} if offset < mark else {"o": offset}


class HoldfastSource(DataSource):
    """The data source `holdfast`."""

    @classmethod
    def name(cls) -> str:
        return "holdfast"

    def schema(self) -> str:
        return ", ".join(f"{name} {kind}" for name, kind in COLUMNS)

    def _plan(self, schema: StructType) -> Plan:
        known = {name: SIMPLE.get(kind, kind) for name, kind in COLUMNS}
        for field in schema.fields:
            if field.name not in known:
                raise UsageError(f"history has no column {field.name!r}; it has {', '.join(known)}")
            if field.dataType.simpleString() != known[field.name]:
                raise UsageError(
                    f"column {field.name!r} of history is {known[field.name]}, got {field.dataType.simpleString()}"
                )
        return Plan(Options(self.options, OPTIONS, self.name()), [field.name for field in schema.fields])

    def reader(self, schema: StructType) -> DataSourceReader:
        return HistoryReader(self._plan(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return HistoryStreamReader(self._plan(schema))
