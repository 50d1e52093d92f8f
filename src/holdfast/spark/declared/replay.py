"""What was quarantined goes into its table after the declaration has been mended.

The table is changed first and the quarantine afterwards, and doing the first twice changes nothing: a history leaves
out offsets that it has, a latest is the newest whoever comes first, and windows are made anew from history, whole. So a
replay that was killed is simply run again.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.transaction import AddAction
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from holdfast.errors import UsageError
from holdfast.history.schema import OUTCOME_CLEARED
from holdfast.spark.declared.declaration import QUARANTINE, Declaration
from holdfast.spark.declared.decoders import REASONS
from holdfast.spark.declared.tables import quarantine_of, table_of, undecoded
from holdfast.spark.delta import CLOSED, DataFile, Table
from holdfast.spark.derived import ArrowStep, Batch
from holdfast.spark.files import add_action, read_file, write_file
from holdfast.spark.keeper import Keeper, history_frame

Entry = dict[str, Any]


class Replayed(NamedTuple):
    """Of one table: rows that it has now, rows that still do not decode, and rows that history no longer has."""

    table: str
    taken: int
    still: int
    gone: int


def quarantine_anew(keeper: Keeper, declarations: Iterable[Declaration]) -> None:
    """Lets the quarantine follow tables that begin anew, or begin at all, after it has come past those rows.

    What it has of such a table from there on is replaced, so doing this twice changes nothing.
    """
    for declaration in declarations:
        name, quarantine = declaration.name, keeper.tables[QUARANTINE]
        begin, end = keeper.next_row(name), quarantine.applied
        if begin >= end:
            continue
        _rewrite(quarantine, partial(_before, name, begin))
        alone = Table(quarantine.root, quarantine_of([declaration]))
        count = max(1, keeper.history.count(begin, end))
        rows = history_frame(keeper.spark, keeper.history, begin, end)
        keeper.apply([alone], Batch(begin, end, count, keeper.history.time_at(end - 1) or 0), rows)
        keeper.tables[QUARANTINE] = Table(quarantine.root, quarantine.value)


def _before(name: str, begin: int, row: Entry) -> Entry | None:
    return row if row["table"] != name or row["offset"] < begin else None


def replay(keeper: Keeper, declarations: Iterable[Declaration], *, dry_run: bool = False) -> list[Replayed]:
    """Replays what the quarantine has of these tables, which have come to where the quarantine has."""
    waiting = _waiting(keeper.tables[QUARANTINE])
    found = []
    for declaration in declarations:
        mine = waiting.filter(pc.equal(waiting["table"], declaration.name))
        if mine.num_rows:
            found.append(_Replay(keeper, declaration, mine).run(dry_run))
    return found


def _waiting(quarantine: Table) -> pa.Table:
    parts = [read_file(quarantine.root, file.path, quarantine.value) for file in quarantine.files]
    return pa.concat_tables([quarantine.value.schema.empty_table(), *parts])


class _Replay:
    def __init__(self, keeper: Keeper, declaration: Declaration, waiting: pa.Table) -> None:
        self.keeper, self.declaration, self.waiting = keeper, declaration, waiting
        self.table = keeper.tables[declaration.name]

    def run(self, dry_run: bool) -> Replayed:
        name = self.declaration.name
        quarantine = self.keeper.tables[QUARANTINE]
        if self.table.applied < quarantine.applied:
            raise UsageError(f"the table {name} is behind its quarantine: bring it up to date first")
        rows = self._history(self.waiting["offset"])
        there = set(rows.select("offset").toArrow()["offset"].to_pylist())
        takes = [F.expr(text).alias(name) for name, text in table_of(self.declaration).takes.items()]
        wrong = rows.select(*takes).mapInArrow(_Judge(self.declaration), _REASONS_DDL)
        reasons = {row["offset"]: row["reason"] for row in wrong.toArrow().to_pylist()}
        taken = there - reasons.keys()
        if not dry_run:
            if taken:
                self._take(taken)
            self._leave(quarantine, taken, reasons)
        return Replayed(name, len(taken), len(reasons), self.waiting.num_rows - len(there))

    def _history(self, offsets: Iterable[int]) -> DataFrame:
        """The rows of history with these offsets, as the pipeline would have read them."""
        keeper, table = self.keeper, pa.table({"offset": pa.array([*offsets], pa.int64())})
        low, high = pc.min(table["offset"]).as_py(), pc.max(table["offset"]).as_py()
        rows = history_frame(keeper.spark, keeper.history, low, high + 1)
        return rows.join(F.broadcast(keeper.spark.createDataFrame(table)), "offset", "left_semi")

    def _take(self, offsets: set[int]) -> None:
        if self.declaration.decoder == "sparkplug":
            raise UsageError(
                f"the table {self.table.root} follows births and deaths in their order: nothing can be put between; "
                "remove that folder and the pipeline makes the table anew from history"
            )
        match self.declaration.kind:
            case "latest":
                self._apply(self.table, self._with_clears(offsets), len(offsets))
            case "aggregate":
                self._windows(offsets)
            case _:
                new = offsets - self._has(offsets)
                if new:
                    self._apply(self.table, self._history(new), len(new))

    def _apply(self, table: Table, rows: DataFrame, count: int) -> None:
        """A batch like any other, of rows that the table should have had before; it has come no further by it."""
        end = table.applied
        with self.table.lock:
            self.keeper.apply([table], Batch(0, end, count, self.keeper.history.time_at(end - 1) or 0), rows)

    def _has(self, offsets: set[int]) -> set[int]:
        """Those of these offsets that a history has already."""
        low, high = min(offsets), max(offsets)
        found: set[int] = set()
        for file in self.table.files:
            if file.low <= high and file.high >= low:
                rows = read_file(self.table.root, file.path, self.table.value)["offset"]
                found |= offsets & set(
                    rows.filter(pc.and_(pc.greater_equal(rows, low), pc.less_equal(rows, high))).to_pylist()
                )
        return found

    def _with_clears(self, offsets: set[int]) -> DataFrame:
        """With what has been cleared since: a message that is gone must not come back."""
        rows, keeper = self._history(offsets), self.keeper
        later = history_frame(keeper.spark, keeper.history, min(offsets), self.table.applied)
        cleared = later.where(F.col("outcome") == OUTCOME_CLEARED).join(rows.select("topic"), "topic", "left_semi")
        return rows.unionByName(cleared)

    def _windows(self, offsets: set[int]) -> None:
        """Makes the windows of these rows anew, of all that history has of them."""
        width, history = self.declaration.window_us, self.keeper.history
        times = pc.cast(
            self.waiting.filter(pc.is_in(self.waiting["offset"], pa.array([*offsets])))["timestamp"], pa.int64()
        )
        starts = sorted({micros - micros % width for micros in times.to_pylist()})
        begin = history.time_at(history.mark - 1) if history.mark else None
        if begin is not None and starts[0] <= begin:
            raise UsageError(
                f"the table {self.declaration.name} has windows from {_iso(starts[0])} on to make anew, but history is "
                f"complete only after {_iso(begin)}; let them be, or remove {self.table.root} to start anew"
            )
        moments = [datetime.fromtimestamp(micros / 1_000_000, UTC) for micros in starts]
        value = replace(self.table.value, step=_Anew(self.table.value.follow, moments))
        rows = history_frame(self.keeper.spark, history, 0, self.table.applied)
        micros = F.unix_micros("timestamp")
        inside = rows.where((micros >= starts[0]) & (micros < starts[-1] + width))
        inside = inside.where((micros - F.pmod(micros, F.lit(width))).isin(starts))
        self._apply(Table(self.table.root, value), inside, len(offsets))
        self.keeper.tables[self.declaration.name] = Table(self.table.root, self.table.value)

    def _leave(self, quarantine: Table, taken: set[int], reasons: dict[int, str]) -> None:
        """Takes what has found its place out of the quarantine, and says of the rest why it is still there."""
        name = self.declaration.name

        def after(row: Entry) -> Entry | None:
            if row["table"] != name:
                return row
            return None if row["offset"] in taken else {**row, "reason": reasons.get(row["offset"], row["reason"])}

        _rewrite(quarantine, after)


def _rewrite(quarantine: Table, after: Callable[[Entry], Entry | None]) -> None:
    """Changes or takes out rows of the quarantine, in one commit."""
    added: list[AddAction] = []
    removed: list[DataFile] = []
    value = quarantine.value
    for file in quarantine.files:
        rows = read_file(quarantine.root, file.path, value).to_pylist()
        kept = [row for row in map(after, rows) if row is not None]
        if kept == rows:
            continue
        removed.append(file)
        if kept:
            written = write_file(pa.Table.from_pylist(kept, value.schema), quarantine.root, value, CLOSED)
            added += [add_action(Row(**report)) for report in written.to_pylist()]
    if removed:
        with quarantine.lock:
            quarantine.commit(added, removed, quarantine.applied, quarantine.mark)


_REASONS_DDL = "offset long, timestamp timestamp, topic string, reason string"


class _Judge:
    """Runs in an executor: which rows still do not decode, and why."""

    def __init__(self, declaration: Declaration) -> None:
        self.declaration = declaration

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = undecoded(self.declaration, pa.Table.from_batches([batch])).cast(REASONS)
            yield from found.combine_chunks().to_batches()


class _Anew:
    """A step that lets go of what a table has of some windows, because all rows of them are given to it again."""

    def __init__(self, step: ArrowStep, windows: list[datetime]) -> None:
        self.step, self.windows = step, windows

    def __call__(self, held: pa.Table, rows: pa.Table, batch: Batch) -> pa.Table:
        starts = held["window_start"]
        others = held.filter(pc.invert(pc.is_in(starts, pa.array(self.windows, starts.type))))
        return self.step(others, rows, batch)


def _iso(micros: int) -> str:
    return datetime.fromtimestamp(micros / 1_000_000, UTC).isoformat()
