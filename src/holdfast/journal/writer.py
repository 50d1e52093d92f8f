"""The journal's writer: makes records durable and says so.

Callers hand over records and go on. Whatever gathers while one `fdatasync` runs is written and synced together by the
next, so the cost of a sync is shared by as many records as there is pressure. What was written together and is not all
there after a crash is not there at all: a publish must not outlast the record that its packet id is in use.

The work is a thread's. Only a caller that has nothing else to do than to wait for the disk may do it in its own
(`commit_here`): on a fast disk, waking the thread and being woken by it takes as long as the sync itself.

When the disk refuses, the file that refused is never written again: what had been durable in it stays, and everything
since then goes to a new file as soon as the disk lets us. Until then the journal is not `healthy`; whoever waits for
records is told at once that they are not durable, and records that are facts already (the caller has acted on them) are
held in memory and written first when there is room again, so the log never contradicts what the caller did.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from errno import ENOSPC
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic

from holdfast.errors import StoreError, UsageError
from holdfast.journal.disk import Disk
from holdfast.journal.reader import Damage
from holdfast.journal.record import (
    CLOSED,
    FRAME_SIZE,
    OWN_SIZE,
    RESERVED,
    Chunk,
    chunk_of,
    frame_all,
    frame_together,
    own_record,
)
from holdfast.journal.recovery import find_end
from holdfast.journal.retention import Retention, SealedSegment
from holdfast.journal.segment import ALLOCATE, FORMAT, HEAD_SIZE, Segment, checksum, format_of
from holdfast.journal.spare import Spare, Start, start_thread
from holdfast.journal.timings import Timings
from holdfast.journal.watermark import Watermark

Done = Callable[[StoreError | None], None]
Schedule = Callable[[Callable[[], None]], object]

BATCH_BYTES = 16 << 20
OVERHEAD = 3 * (FRAME_SIZE + OWN_SIZE)  # of a write: what the journal says for itself, and the head of a batch
QUICK_S = 0.001  # a sync that takes no longer may be waited for
FORGET = 0.95  # how much a slow sync of before still counts with each one since
RESERVE = 1 << 24  # offsets that may be given out before the next reservation is durable


@dataclass(frozen=True)
class Options:
    segment_bytes: int = 16 << 20
    spare_within_s: float = 60.0  # a segment that is half full by then is to have its successor prepared
    allocate_bytes: int = ALLOCATE
    max_bytes: int = 8 << 30
    held_bytes: int = 64 << 20  # facts held in memory while the disk refuses
    background_sync_s: float = 0.2  # the longest that records nobody waits for stay unsynced
    retry_s: float = 0.5
    expendable: frozenset[str] = frozenset({"history"})


@dataclass(frozen=True)
class Event:
    """Something to tell the operator. Kinds: stalled, recovered, abandoned, dropped, lost."""

    kind: str
    message: str


@dataclass(frozen=True)
class Append:
    chunk: Chunk
    done: Done | None
    revocable: bool


@dataclass(frozen=True)
class Passed:
    consumer: str
    offset: int


@dataclass(frozen=True)
class Reserve:
    next_offset: int


@dataclass(frozen=True)
class Seal:
    """The segment that is being written to is to end, so that it goes when everyone has passed it."""


Item = Append | Passed | Reserve | Seal


class Journal:
    """Open it, `start` it, `append` from the thread that `schedule` reports to, `close` it.

    Invariants: records are written in the order of their offsets; every offset at or below `durable` is durable if it
    was ever appended; a `done` is called exactly once, on the caller's thread, in the order of the appends.
    """

    def __init__(
        self,
        folder: Path,
        *,
        consumers: dict[str, int],
        schedule: Schedule,
        on_event: Callable[[Event], None] = lambda event: None,
        at_least: int = 1,
        quarantine: Path | None = None,
        options: Options | None = None,
        disk: Disk | None = None,
        start: Start = start_thread,
    ) -> None:
        """Find the end and cut a torn tail. `consumers` says how far each has come; `at_least` is a lower bound for
        the next offset that they know of.
        """
        self.folder = folder
        self.options = options if options is not None else Options()
        self.disk = disk if disk is not None else Disk()
        self.schedule = schedule
        self.on_event = on_event
        self.disk.make_folder(folder)
        end = find_end(folder, quarantine, self.disk)
        self.damage: list[Damage] = end.damage
        self.torn = end.torn
        self.next_offset = max(end.next_offset, at_least)
        self.last = max(end.last, at_least - 1)  # offset of the last record handed to the disk
        self.durable = self.last
        self.reserved = end.next_offset
        self.healthy = True
        self.retention = Retention(self.options.max_bytes, consumers, self.options.expendable)
        self.retention.sealed = end.sealed
        self.segment: Segment | None = None
        if end.name is not None and end.size >= HEAD_SIZE:
            segment = Segment.resume(self.disk, folder, end.name, end.size, self.options.allocate_bytes)
            if format_of(self.disk, segment.path) < FORMAT:
                segment.seal()
                self.retention.sealed.append(SealedSegment(segment.name, segment.size, self.last))
            else:
                self.segment = segment
        elif end.name is not None:  # created and never synced: nothing in it was promised
            self.disk.remove(folder / str(end.name))
        self.spare = Spare(self.disk, folder, self.options.segment_bytes, start)
        self.watermark = Watermark(folder, write=True)
        self.watermark.set(self.durable)
        self.queue: SimpleQueue[Item | None] = SimpleQueue()
        self.aside: list[Append] = []  # handed over, and to be committed by the caller itself
        self.queued = 0  # items that the thread was given, and
        self.done = 0  # those that it is done with
        self.working = threading.Lock()  # whoever commits holds it
        self.unsynced: list[Chunk] = []  # what is in the segment and not durable yet
        self.held: list[Chunk] = []  # what the disk refused
        self.synced_at = monotonic()
        self.sync_times = Timings()
        self.slowest_s = 0.0  # of the syncs, the older the less it counts
        self.retry_at = 0.0
        self.problem: StoreError | None = None
        self.lost = 0
        self.closed = False
        self.appended = 0
        self.handled = 0
        self.thread = threading.Thread(target=self.run, name="holdfast-journal", daemon=True)
        # Before the first offset is given out, the disk knows that it will be.
        self.commit([], [], True, self.next_offset)

    def start(self) -> None:
        self.thread.start()

    def append(self, records: list[bytes], done: Done | None = None, revocable: bool = False) -> None:
        """Hand over records, offsets ascending. Never blocks.

        `done` is called once they are durable (None) or cannot be made so now (the error). Without `done` they are
        synced in the background. `revocable` says that nothing has been done about these records yet: when the disk
        refuses they are forgotten instead of held.
        """
        self.append_chunk(chunk_of(records), done, revocable)

    def append_chunk(self, chunk: Chunk, done: Done | None, revocable: bool = False) -> None:
        """Hand over records that are packed already."""
        if self.closed:
            raise UsageError("journal is closed, expected no more records")
        if self.aside:
            self.commit_there()
        self.appended += len(chunk.data)
        self.put(Append(chunk, done, revocable))

    def put_aside(self, chunk: Chunk, done: Done) -> None:
        """Hand over records that the caller is about to commit itself, with `commit_here`, or not, with
        `commit_there`.
        """
        if self.closed:
            raise UsageError("journal is closed, expected no more records")
        self.appended += len(chunk.data)
        self.aside.append(Append(chunk, done, False))

    def put(self, item: "Item | None") -> None:
        self.queued += 1
        self.queue.put(item)

    @property
    def quick(self) -> bool:
        """Whether a caller with nothing else to do may wait for a sync: none took long lately."""
        return self.healthy and self.slowest_s <= QUICK_S

    def commit_here(self) -> None:
        """Commit what was put aside in the caller's own thread and call each `done`; the thread gets it when it is not
        at rest. Blocks for the time of a sync.
        """
        if not self.aside:
            return
        if self.done != self.queued or not self.working.acquire(blocking=False):
            self.commit_there()
            return
        appends, self.aside = self.aside, []
        try:
            self.try_handle(appends, [])
            problem = self.problem
        finally:
            self.working.release()
        if self.held or not self.healthy:
            self.put(Reserve(0))  # the thread is to try again in time
        for append in appends:
            if append.done is not None:
                append.done(problem)

    def commit_there(self) -> None:
        """Let the thread commit what was put aside."""
        if self.aside:
            for append in self.aside:
                self.put(append)
            self.aside = []

    @property
    def backlog(self) -> int:
        """Bytes handed over that were not committed yet."""
        return self.appended - self.handled

    def passed(self, consumer: str, offset: int) -> None:
        """A consumer keeps everything up to `offset` by itself now."""
        self.put(Passed(consumer, offset))

    def seal(self) -> None:
        """Begin another segment. What has been written goes from the disk as soon as all consumers have passed it."""
        self.commit_there()
        self.put(Seal())

    def reserve(self, next_offset: int) -> None:
        """Offsets below this have been given out, maybe to records that are not journalled. Call now and then."""
        if next_offset + RESERVE // 2 > self.reserved:
            self.commit_there()
            self.put(Reserve(next_offset))

    def close(self, next_offset: int = 0) -> None:
        """Write and sync what was appended, and stop. Blocks. `next_offset` is the first that was never given out."""
        if self.closed:
            return
        self.closed = True
        self.next_offset = max(next_offset, self.next_offset)
        self.commit_there()
        self.put(None)
        if self.thread.ident is None:  # never started: what was appended is written all the same
            self.run()
        else:
            self.thread.join()
        self.watermark.close()

    # What follows runs in the writer's thread, or in the caller's while that is at rest.

    def run(self) -> None:
        while self.step():
            pass
        self.finish()

    def step(self) -> bool:
        """One batch, after waiting for it. False when there will be no more."""
        batch, stop = self.gather()
        appends = [item for item in batch if isinstance(item, Append)]
        with self.working:
            self.try_handle(appends, batch)
        self.done += len(batch)
        self.tell(appends)
        return not stop

    def try_handle(self, appends: list[Append], batch: list[Item]) -> None:
        try:
            self.handle(appends, batch)
        except Exception as error:  # a defect must not leave acknowledgements waiting for ever
            self.stall(error)

    def gather(self) -> tuple[list[Item], bool]:
        """Everything that waits, at least one item unless there is something to do without."""
        timeout: float | None = None
        if self.held or not self.healthy:
            timeout = self.options.retry_s
        elif self.unsynced:
            timeout = max(0.0, self.synced_at + self.options.background_sync_s - monotonic())
        batch: list[Item] = []
        size = 0
        with suppress(Empty):
            item = self.queue.get(timeout=timeout)
            while item is not None:
                batch.append(item)
                if isinstance(item, Append):
                    size += len(item.chunk.data)
                if size > BATCH_BYTES:
                    return batch, False
                item = self.queue.get_nowait()
            return batch, True
        return batch, False

    def handle(self, appends: list[Append], batch: list[Item]) -> None:
        given_out = 0
        for item in batch:
            if isinstance(item, Passed):
                self.retention.note(item.consumer, item.offset)
            elif isinstance(item, Reserve):
                given_out = max(given_out, item.next_offset)
        self.drop(self.retention.take_passed(keep=1 if self.segment is None else 0))
        chunks = [append.chunk for append in appends if append.chunk.count > 0]
        last = self.held[-1].last if self.held else self.last
        for chunk in chunks:
            if chunk.first <= last:
                # Nobody would ever read them: a reader takes an offset that does not grow for a copy of one it knows.
                raise UsageError("records were appended out of order, expected ascending offsets")
            last = chunk.last
        if chunks or given_out or self.unsynced or not self.healthy:
            firm = [append.chunk for append in appends if not append.revocable]
            must_sync = given_out > 0 or any(append.done is not None for append in appends)
            if self.healthy or monotonic() >= self.retry_at:
                self.commit(chunks, firm, must_sync, given_out)
            else:
                self.hold(firm)
        self.handled += sum(len(chunk.data) for chunk in chunks)
        if any(isinstance(item, Seal) for item in batch):
            self.end_segment()

    def end_segment(self) -> None:
        """End the segment where there is a record in it, and make sure that the next one says what is reserved."""
        if self.segment is None or self.segment.name.first > self.last or self.held or not self.healthy:
            return
        self.seal_segment(self.segment)
        self.commit([], [], True, 0)
        self.drop(self.retention.take_passed(keep=1 if self.segment is None else 0))

    def seal_segment(self, segment: Segment) -> None:
        segment.seal()
        self.on_synced()
        self.retention.sealed.append(SealedSegment(segment.name, segment.size, self.last))
        self.segment = None

    def commit(self, chunks: list[Chunk], firm: list[Chunk], must_sync: bool, given_out: int) -> None:
        """Write `chunks` behind what is held, and sync if somebody waits or it is time.

        When the file refuses, everything since it was last synced goes into a new one. When that refuses too, all of it
        is held, except those of `chunks` that are not `firm`. On a full disk what only expendable consumers lack goes
        first.
        """
        must_sync = must_sync or not self.healthy or monotonic() >= self.synced_at + self.options.background_sync_s
        refused = 0
        while True:
            written = 0
            try:
                everything = self.held + chunks
                self.make_room(packed_size(everything) + OVERHEAD)
                self.write(everything, given_out)
                written = len(everything)
                if must_sync:
                    self.sync()
            except OSError as error:
                self.held = self.unsynced[: len(self.unsynced) - written] + self.held
                self.abandon(error)
                if error.errno == ENOSPC and (self.spare.drop() or self.give_up_oldest()):
                    continue
                refused += 1
                if refused == 1:
                    continue
                self.hold(firm)
                self.stall(error)
            except StoreError as error:
                self.hold(firm)
                self.stall(error)
            else:
                self.held = []
                self.recover()
            return

    def make_room(self, size: int) -> None:
        """See to it that there is a segment for `size` more bytes."""
        segment = self.segment
        if segment is not None and segment.size > HEAD_SIZE and segment.size + size > self.options.segment_bytes:
            self.seal_segment(segment)
        open_size = size + (self.segment.size if self.segment is not None else 0)
        excess = self.retention.take_excess(open_size)
        if excess:
            self.give_up(excess, f"journal is over its limit of {self.options.max_bytes} bytes")
        if self.retention.is_full(open_size):
            raise StoreError(f"it has its {self.options.max_bytes} bytes, and {self.retention.slowest()} is behind")
        if self.segment is None:
            first = self.durable + 1
            self.segment = Segment.create(self.disk, self.folder, first, self.options.allocate_bytes, self.spare)
        elif self.segment.size > self.options.segment_bytes // 2:
            if monotonic() < self.segment.begun_at + self.options.spare_within_s:
                self.spare.want()

    def give_up_oldest(self) -> bool:
        """Make room on a full disk; returns False when there is nothing that only expendable consumers lack."""
        oldest = self.retention.take_oldest()
        if oldest:
            self.give_up(oldest, "the disk is full")
        return bool(oldest)

    def give_up(self, segments: list[SealedSegment], why: str) -> None:
        losers = self.retention.losers(segments)
        first, last = segments[0].name.first, segments[-1].last
        self.drop(segments)
        if losers:
            self.event(
                "dropped", f"{why}: dropped offsets {first} to {last}, which {' and '.join(losers)} had not read"
            )

    def write(self, chunks: list[Chunk], given_out: int) -> None:
        assert self.segment is not None
        last = chunks[-1].last if chunks else self.last
        top = max(given_out, last + 1)
        own: list[bytes] = []
        if top + RESERVE // 2 > self.reserved:
            self.reserved = top + RESERVE
        elif self.segment.size > HEAD_SIZE:
            top = 0
        if top:  # the newest segment always says what is reserved, so that a restart need not read the others
            own = [own_record(RESERVED, self.last, self.reserved)]
        self.segment.write(frame_together(own, chunks, self.last, checksum))
        self.unsynced += chunks
        self.last = last

    def sync(self) -> None:
        assert self.segment is not None
        started_at = monotonic()
        self.segment.sync()
        took_s = monotonic() - started_at
        self.sync_times.add(took_s)
        self.slowest_s = max(took_s, self.slowest_s * FORGET)
        self.on_synced()

    def on_synced(self) -> None:
        self.unsynced = []
        self.durable = self.last
        self.watermark.set(self.durable)
        self.synced_at = monotonic()

    def abandon(self, error: OSError) -> None:
        """Never write to the file again. What was durable in it stays."""
        segment, self.segment = self.segment, None
        self.unsynced = []
        self.last = self.durable
        if segment is None:
            return
        segment.abandon()
        if segment.synced:
            self.retention.sealed.append(SealedSegment(segment.name, segment.synced, self.durable))
        self.event("abandoned", f"journal segment {segment.name} failed and is not written again: {describe(error)}")

    def hold(self, chunks: list[Chunk]) -> None:
        """Keeps records in memory for later, up to the bytes that are meant for it; the rest is counted as lost."""
        room = self.options.held_bytes - packed_size(self.held)
        for index, chunk in enumerate(chunks):
            room -= len(chunk.data)
            if room < 0:
                self.lost += sum(lost.count for lost in chunks[index:])
                return
            self.held.append(chunk)

    def stall(self, error: Exception) -> None:
        self.retry_at = monotonic() + self.options.retry_s
        self.problem = StoreError(f"journal cannot be written: {describe(error)}")
        if self.healthy:
            self.healthy = False
            self.event("stalled", f"{self.problem}; trying again every {self.options.retry_s} s")

    def recover(self) -> None:
        if self.healthy:
            return
        self.healthy = True
        self.problem = None
        self.event("recovered", "journal can be written again")
        if self.lost:
            self.event("lost", f"{self.lost} records that nobody was promised did not fit in memory meanwhile")
            self.lost = 0

    def tell(self, appends: list[Append]) -> None:
        dones = [append.done for append in appends if append.done is not None]
        if not dones:
            return
        problem = self.problem

        def call_all() -> None:
            for done in dones:
                done(problem)

        self.schedule(call_all)

    def drop(self, segments: list[SealedSegment]) -> None:
        for segment in segments:
            with suppress(OSError):  # it is tried again after the next start
                self.disk.remove(self.folder / str(segment.name))

    def event(self, kind: str, message: str) -> None:
        event = Event(kind, message)
        self.schedule(lambda: self.on_event(event))

    def finish(self) -> None:
        """Leave a mark that says which offset comes next, so that a restart after this one skips none."""
        self.spare.stop()
        try:
            if self.unsynced or self.held:
                self.commit([], [], True, 0)
            if self.segment is not None and self.healthy:
                end = own_record(CLOSED, self.last, max(self.next_offset, self.last + 1))
                self.segment.write(frame_all([end], checksum))
                self.segment.seal()
        except OSError as error:
            self.stall(error)
        if self.held:
            self.event(
                "lost",
                f"{sum(chunk.count for chunk in self.held) + self.lost} records could not be written before the end",
            )


def packed_size(chunks: list[Chunk]) -> int:
    return sum(len(chunk.data) for chunk in chunks)


def describe(error: Exception) -> str:
    return error.strerror or repr(error) if isinstance(error, OSError) else str(error)
