"""A process that follows the journal: the state's, which keeps LMDB, or the history's, which keeps the Delta table.

Run as `python -m holdfast.storage.follower_main state FOLDER`, or `history FOLDER OPTIONS`, the options being those of
`HistoryOptions` as a JSON object.

A follower reads what is durable, keeps it in its own way and reports how far it has come, one JSON object a line on its
standard output. Its standard input is its life line: when the broker closes it, or ends in any way, the follower
applies what is left and ends too. Working in a process of its own, it never holds up the broker's event loop.

The libraries of the history are large, and what they take is not given back while the process runs. So they are loaded
once there is something to write, and when nothing has come for a while the process begins anew without them: the same
process to the broker, with a fifth of the memory.
"""

import gc
import json
import math
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.broker.record_shape import sound_only
from holdfast.broker.records import Columns
from holdfast.errors import StoreError
from holdfast.history.lenient_view import LenientView
from holdfast.history.libraries import load_arrow_alone
from holdfast.journal.reader import Reader
from holdfast.journal.watermark import Watermark
from holdfast.storage import erasures
from holdfast.storage.folder import DataFolder
from holdfast.storage.history_options import FOLLOWER, HistoryOptions, Resting, number_of
from holdfast.storage.reserve import ROOM_TO_GO_ON, Space, shown, space_at

if TYPE_CHECKING:
    from holdfast.history.erase import Step
    from holdfast.history.erased import Erasure
    from holdfast.history.layout import Gain
    from holdfast.history.writer import HistoryWriter
    from holdfast.state.store import StateStore

RETRY_S = 2.0
PURGE_EVERY_S = 10.0
SYNC_EVERY_S = 10.0
COMPACT_EVERY_S = 10.0
RETRY_COMPACT_S = 300.0
RETAIN_EVERY_S = 300.0
VACUUM_EVERY_S = 60.0
ERASE_AT_ONCE_S = 1.0  # then rows that have come meanwhile are written
LEASE_S = 15.0  # how long a table that several nodes write may stand still before another one steps in
LATE_LEASE_S = 60.0  # the same for a node without the records behind the table's end: those who have them go first
UPKEEP_LATE_S = 3600.0  # by how much upkeep may be late while nothing is written: it loads the libraries
COLLECT_AT = 100_000  # objects since the last time that garbage was looked for


class Follower:
    """Subclasses say what to do with records. `interval_s` is the time between two looks at the journal."""

    interval_s = 1.0
    batch_bytes = 8 << 20

    def __init__(self, folder: DataFolder) -> None:
        self.folder = folder

    def open(self) -> int:
        """Opens what is kept and returns the offset after which to go on.

        `close` is called after this, and only then.
        """
        raise NotImplementedError

    def apply(self, records: list[bytes], upto: int) -> None:
        """Keeps what is of interest in the records, all of it or nothing; they bring the follower to offset `upto`."""
        raise NotImplementedError

    def has_room(self) -> bool:
        """Returns whether more can be kept now; what is not waits in the journal."""
        return True

    def idle(self) -> None:
        """Called after each look at the journal: time for upkeep."""

    def passed(self) -> int:
        """Returns the offset up to which the journal is no longer needed."""
        raise NotImplementedError

    def close(self) -> None:
        pass


class StateFollower(Follower):
    """Folds the records into LMDB."""

    interval_s = 0.25
    store: "StateStore"
    purged_at = 0.0
    mapped_most = 0

    def open(self) -> int:
        from holdfast.state.environment import MAPPED_MOST
        from holdfast.state.store import StateStore

        self.mapped_most = MAPPED_MOST
        self.store = StateStore(self.folder.state)
        return self.store.applied

    def apply(self, records: list[bytes], upto: int) -> None:
        self.store.apply(records, upto)
        self.store.environment.trim(self.mapped_most)

    def passed(self) -> int:
        return self.store.applied

    def idle(self) -> None:
        if time.monotonic() - self.purged_at > PURGE_EVERY_S:
            self.purged_at = time.monotonic()
            self.store.retained.purge(int(time.time() * 1000))

    def close(self) -> None:
        self.store.close()


class HistoryFollower(Follower):
    """Appends rows to the history and keeps the table fit.

    Rows up to offset `reached` are committed, those up to `safe` survive a power cut. While `paused`, there is less
    free space than is reserved for others: nothing is appended and nothing joined, but what is too old goes. The last
    rows came at `busy_at`. A watcher has found no rows between the offsets `watched`, of which the first is the
    table's. While rows are `erased`, for the request `erasing`, the table is written to and nothing else is done to it.
    Files are being `joined`; those that are replaced lie there for a while, the last ones since `replaced_at`.
    """

    batch_bytes = 32 << 20  # a commit each
    writer: "HistoryWriter"
    reached = 0
    safe = 0
    paused = False
    busy_at = 0.0
    erasing: erasures.Request | None = None
    erased: "Iterator[Step]"
    joined: "Iterator[Gain | None] | None" = None
    replaced_at: float | None = None
    holder = 0
    compact_problem = ""

    def __init__(
        self,
        folder: DataFolder,
        options: HistoryOptions,
        space: Callable[[Path], Space] = space_at,
        watched: tuple[int, int] = (0, 0),
    ) -> None:
        super().__init__(folder)
        self.place = folder.table
        self.iceberg = LenientView(self.place, folder.root, lambda sentence: report(note=sentence))
        self.options = options
        self.interval_s = options.flush_interval_s
        self.space = space
        self.watched = watched
        now = time.monotonic()
        fresh = {"sync": now, "compact": now + COMPACT_EVERY_S, "retain": now + 45, "vacuum": now + VACUUM_EVERY_S}
        self.due = {**fresh, "iceberg": now} if options.resting is None else dict(options.resting.due)
        self.replaced_at = now if options.resting is None else options.resting.replaced_at

    def open(self) -> int:
        from holdfast.history.upkeep import keep_replaced
        from holdfast.history.writer import HistoryWriter

        self.joined = None
        self.writer = HistoryWriter(self.place, self.folder.quarantine, self.folder.journal_keeps_from(), self.holder)
        try:
            self.writer.mark_live(self.options.live_from)
            keep_replaced(self.writer.table, self.options.keep_replaced_s)
            if self.writer.repaired:
                report(note=self.writer.repaired)
            since, upto = self.watched
            # What a watcher has passed over may be gone from the journal, which is no loss.
            self.reached = max(self.writer.last, upto) if self.writer.last >= since else self.writer.last
            # Before that there was no journal here, and what is not in the table was in none of this one's.
            self.reached = max(self.reached, self.options.begins_after)
            self.sync()
            self.erasing = None
            erasures.ask_again(self.folder, self.writer.last)
            erasures.forget(self.folder)
        except BaseException:
            self.writer.close()  # or the next try would find the table in use
            raise
        self.busy_at = time.monotonic()
        return self.reached

    def apply(self, records: list[bytes], upto: int) -> None:
        rows = self.writer.append(records, upto)
        report(rows=rows)
        self.reached = upto
        if rows:
            self.busy_at = time.monotonic()

    def passed(self) -> int:
        return self.safe

    def has_room(self) -> bool:
        folder = self.place.folder
        if folder is None:
            return True  # a store that is full says so when it is written to
        space = self.space(folder)
        reserve = self.options.reserve.of(space.total)
        paused = space.free < reserve * (ROOM_TO_GO_ON if self.paused else 1)
        if paused and not self.paused:
            report(paused=why_paused(space, reserve))
        elif self.paused and not paused:
            report(paused="")
        self.paused = paused
        return not paused

    def idle(self) -> None:
        self.every("sync", SYNC_EVERY_S, self.sync)
        if self.erase():
            return
        self.every("iceberg", SYNC_EVERY_S, self.follow_in_iceberg)
        quiet = time.monotonic() - self.busy_at > self.options.rest_after_s
        compacting = not self.paused and self.compact(quiet)
        self.every("retain", RETAIN_EVERY_S, self.retain)
        self.every("vacuum", VACUUM_EVERY_S, self.vacuum)
        if quiet and not self.paused and not compacting:
            self.rest()

    def every(self, name: str, seconds: float, work: Callable[[], object]) -> None:
        if time.monotonic() >= self.due[name]:
            work()
            self.due[name] = time.monotonic() + seconds

    def compact(self, quiet: bool) -> bool:
        """Goes on joining files, a block of rows at a time, so that new rows wait no longer than for one of them;
        returns whether there is more to do. Its budget is a part of the time while rows come. Where it fails, as on a
        file that is damaged, rows are written as ever, and it is tried again later.
        """
        budget = self.options.compact_budget
        begun = time.monotonic()
        if budget <= 0 or (begun < self.due["compact"] and (self.compact_problem or not quiet)):
            return self.joined is not None
        try:
            more = self.join_on(quiet)
            self.compact_problem = ""
        except StoreError as error:
            if str(error) != self.compact_problem:
                self.compact_problem = str(error)
                report(note=self.compact_problem)
            self.joined = None
            self.due["compact"] = time.monotonic() + RETRY_COMPACT_S
            return False
        now = time.monotonic()
        self.due["compact"] = now + ((now - begun) * (1 / budget - 1) if more else COMPACT_EVERY_S)
        return more

    def join_on(self, quiet: bool) -> bool:
        """Joins one block of rows; returns whether there was one."""
        from holdfast.history.compaction import join, worth_joining
        from holdfast.history.table import data_files

        if self.joined is None:
            files = worth_joining(data_files(self.writer.table), self.options.file_bytes, quiet)
            if not files:
                return False
            self.joined = join(self.writer.table, self.place, files)
        for gain in self.joined:
            if gain is not None:
                self.replaced_at = time.monotonic()
            return True
        self.joined = None
        return True

    def follow_in_iceberg(self, erased: bool = False, cleans: bool = False) -> None:
        """Brings the Iceberg view to where the table is. The history goes on without it where that fails."""
        if not self.options.iceberg:
            return
        self.iceberg.follow(self.writer.table, erased=erased)
        if cleans:
            self.iceberg.clean(self.options.keep_replaced_s)

    def sync(self) -> None:
        self.writer.sync(time.time())
        if self.safe != self.reached:
            self.safe = self.reached
            report(passed=self.safe)

    def retain(self) -> None:
        from holdfast.history.upkeep import Limits, retain

        limits = Limits(self.options.retention_s, self.options.retention_bytes)
        dropped = retain(self.writer.table, limits, int(time.time() * 1000))
        if dropped:
            self.replaced_at = time.monotonic()
            report(note=f"history dropped {dropped} rows that were past its retention")

    def vacuum(self) -> None:
        from holdfast.history.upkeep import vacuum

        if self.replaced_at is not None:
            vacuum(self.writer.table)
            if time.monotonic() > self.replaced_at + self.options.keep_replaced_s:
                self.replaced_at = None
            self.follow_in_iceberg(cleans=True)
        erasures.forget(self.folder)

    def erase(self) -> bool:
        """Goes on with what operators have asked to be erased, for a moment; returns whether there is more to do.

        What was in the journal when it was asked for has to be in the table first.
        """
        if self.erasing is None and not self.begin_erasing():
            return False
        assert self.erasing is not None
        until = time.monotonic() + ERASE_AT_ONCE_S
        for done in self.erased:
            self.busy_at = time.monotonic()
            if done.erasure is not None:
                self.end_erasing(done.erasure)
                return erasures.first_due(self.folder) is not None
            erasures.save(self.folder, replace(self.erasing, state=erasures.RUNNING, files=done.files, of=done.of))
            if time.monotonic() > until:
                break
        return True

    def begin_erasing(self) -> bool:
        asked = erasures.first_due(self.folder)
        if asked is None or self.reached < asked.upto:
            return False
        from holdfast.history.erase import carry_out
        from holdfast.history.erased import Selector

        self.erasing = asked
        self.joined = None  # it may have rows that go
        selector = Selector(asked.kind, asked.value)
        erasures.save(self.folder, replace(asked, state=erasures.RUNNING))
        self.erased = carry_out(self.writer.table, self.place, asked.name, selector, asked.at_ms)
        return True

    def end_erasing(self, done: "Erasure") -> None:
        assert self.erasing is not None
        self.writer.reload()
        self.follow_in_iceberg(erased=True)
        erasures.save(self.folder, replace(self.erasing, state=erasures.DONE, upto=done.upto, rows=done.rows))
        self.sync()
        report(note=f"history erased {done.rows} rows up to offset {done.upto}, asked for as {done.name}", seal=True)
        self.erasing = None

    def rest(self) -> None:
        """Begins anew as a process that only watches the journal; the open files close with that."""
        self.sync()
        self.follow_in_iceberg()
        if self.replaced_at is not None:
            self.due["vacuum"] = self.replaced_at + self.options.keep_replaced_s + 1
        options = replace(self.options, resting=Resting(self.writer.last, self.safe, self.due, self.replaced_at))
        arguments = ["history", str(self.folder.root), options.to_json()]
        os.execv(sys.executable, [sys.executable, "-m", FOLLOWER, *arguments])

    def close(self) -> None:
        self.writer.close()
        self.iceberg.close()


class SharedHistoryFollower(HistoryFollower):
    """One of several nodes that all have the same rows to write, to one table. Whoever wrote last goes on; the others
    hold what the table does not have yet (`waiting`), and one of them steps in when the table has not moved for a while
    although there was something to write. When two write at once the table decides: it takes one commit of a number,
    and the other writer looks what is in it now.
    """

    waiting: tuple[list[bytes], int] | None = None
    leads = False
    moved = (0, 0.0)  # the table's last offset, and since when

    def __init__(
        self,
        folder: DataFolder,
        options: HistoryOptions,
        space: Callable[[Path], Space] = space_at,
        watched: tuple[int, int] = (0, 0),
    ) -> None:
        super().__init__(folder, options, space, watched)
        self.holder = number_of(options.shared_by)

    def open(self) -> int:
        reached = super().open()
        self.waiting = None
        self.look()
        # Another node may be ahead of this one's journal.
        self.reached = max(min(reached, Watermark(self.folder.journal).get()), self.options.begins_after)
        return self.reached

    def look(self) -> None:
        """See how far the table is and who writes it."""
        if self.writer.last != self.moved[0]:
            self.moved = (self.writer.last, self.now())
        self.leads = self.writer.written_by() in (0, self.holder)

    def now(self) -> float:
        return time.monotonic()

    def apply(self, records: list[bytes], upto: int) -> None:
        self.waiting = (records, upto)
        self.settle()

    def has_room(self) -> bool:
        return (self.waiting is None or self.settle()) and super().has_room()

    def settle(self) -> bool:
        """Returns whether what waits is in the table, by this node or another."""
        from holdfast.history.writer import Overtaken

        assert self.waiting is not None
        records, upto = self.waiting
        if not self.leads:
            self.writer.reload()
            self.look()
        missing = Columns()
        missing.add_all(records, self.writer.last)
        patience_s = LEASE_S if self.writer.last >= self.options.begins_after else LATE_LEASE_S
        if len(missing) and not self.leads and self.now() - self.moved[1] < patience_s:
            return False
        try:
            super().apply(records, upto)
        except Overtaken:
            self.writer.reload()
            self.moved = (self.writer.last, self.now())
            self.leads = False
            return False
        if len(missing):
            self.leads = True
        self.waiting = None
        return True

    def idle(self) -> None:
        if self.leads or erasures.first_due(self.folder) is not None:
            super().idle()
            return
        self.every("sync", SYNC_EVERY_S, self.sync)
        if self.waiting is None and self.now() - self.busy_at > self.options.rest_after_s:
            self.rest()


def why_paused(space: Space, reserve: int) -> str:
    return (
        f"{shown(space.free)} of {shown(space.total)} are free, expected at least {shown(reserve)} (history.reserve): "
        "nothing is written to the history until there is room again. Make room, or keep less of it: see "
        "history.retention_bytes and history.retention"
    )


class Needed(Exception):
    """The table is to be opened: there are rows to write, or its upkeep is due."""


class HistoryWatcher(Follower):
    """Passes over what is no row of the history, without its libraries. Raises Needed when that does not do.

    The table is closed; its last row has the offset `table`.
    """

    def __init__(self, folder: DataFolder, options: HistoryOptions) -> None:
        super().__init__(folder)
        self.interval_s = options.flush_interval_s
        resting = options.resting if options.resting is not None else Resting(after=options.begins_after)
        self.table = resting.table
        self.reached = resting.after
        self.upkeep_due = min(resting.due.values(), default=math.inf) + UPKEEP_LATE_S
        if resting.replaced_at is not None:
            self.upkeep_due = min(self.upkeep_due, resting.due["vacuum"])

    def open(self) -> int:
        return self.reached

    def apply(self, records: list[bytes], upto: int) -> None:
        columns = Columns()
        columns.add_all(records, self.reached)
        if len(columns):
            raise Needed
        self.reached = upto

    def passed(self) -> int:
        return self.reached

    def idle(self) -> None:
        if time.monotonic() > self.upkeep_due or erasures.first_due(self.folder) is not None:
            raise Needed


def prepare_process() -> None:
    """Makes this process a quiet one, which ends when the broker says so."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the broker says when to stop
    os.umask(0o077)
    gc.freeze()
    gc.disable()  # records make no cycles, and looking for some in a hundred thousand of them takes long


def give_way() -> None:
    """The clients that wait for the broker come first."""
    with suppress(OSError):
        os.nice(5)


def run(follower: Follower) -> int:
    """Follows until the life line ends and returns the exit code.

    Problems are reported, and tried again while they last.
    """
    known = ""
    while True:
        try:
            follow(follower)
            return 0
        except (StoreError, OSError) as error:
            if str(error) != known:
                known = str(error)
                report(problem=known)
        if not wait(RETRY_S):
            return 1


def follow(follower: Follower) -> None:
    """Applies what comes until the life line ends."""
    reader = Reader(follower.folder.journal, follower.open(), follower.folder.quarantine)
    try:
        watermark = Watermark(follower.folder.journal)
        report(at=reader.last, passed=follower.passed())
        while wait(follower.interval_s):
            catch_up(follower, reader, watermark)
            follower.idle()
            if gc.get_count()[0] > COLLECT_AT:
                gc.collect()
        catch_up(follower, reader, watermark)
    finally:
        reader.close()
        follower.close()


def catch_up(follower: Follower, reader: Reader, watermark: Watermark) -> None:
    limit = watermark.get()
    while follower.has_room() and (records := reader.read(limit, follower.batch_bytes)):
        for damage in reader.damage:
            report(loss=str(damage))
        reader.damage.clear()
        sound = sound_only(records)
        if len(sound) < len(records):
            report(loss=f"{len(records) - len(sound)} records up to offset {reader.last} lack part of their fields")
        follower.apply(sound, reader.last)
        report(at=reader.last, passed=follower.passed(), count=len(records))


def wait(seconds: float) -> bool:
    """Pauses, and returns whether the life line is still there."""
    deadline = time.monotonic() + seconds
    while True:
        ready, _, _ = select.select([sys.stdin], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return True
        if not os.read(sys.stdin.fileno(), 4096):
            return False


def report(**values: object) -> None:
    try:
        sys.stdout.write(json.dumps(values) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:  # the broker is gone; the life line ends as well
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115


def follow_history(folder: DataFolder, options: HistoryOptions) -> int:
    """Watches until the table is needed, then keeps it. A table that is there at the start may need mending."""
    load_arrow_alone()
    watched = (0, 0)
    if options.resting is not None or not folder.has_history():
        watcher = HistoryWatcher(folder, options)
        try:
            return run(watcher)
        except Needed:
            watched = (watcher.table, watcher.reached)
    kind = SharedHistoryFollower if options.shared_by else HistoryFollower
    return run(kind(folder, options, watched=watched))


def main() -> int:
    prepare_process()
    name, folder = sys.argv[1], DataFolder(Path(sys.argv[2]))
    if name == "state":
        give_way()
        return run(StateFollower(folder))
    options = HistoryOptions.of_json(sys.argv[3]) if len(sys.argv) > 3 else HistoryOptions()
    if options.resting is None:
        give_way()
    return follow_history(folder, options)


if __name__ == "__main__":
    sys.exit(main())
