"""The writer: group commit, and what it promises when the disk does not cooperate.

Most tests drive the writer a step at a time without its thread, so that every fault happens at a known place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from errno import ENOSPC
from pathlib import Path
from typing import ClassVar

import pytest

from faulty_disk import FaultyDisk, OpenDisk
from holdfast.errors import StoreError, UsageError
from holdfast.journal.disk import Disk
from holdfast.journal.reader import Reader
from holdfast.journal.record import FRAME_BYTES, MARKER, chunk_of, frame_all, frames_of, offset_of
from holdfast.journal.segment import HEAD, MAGIC, SegmentName, checksum, segment_names
from holdfast.journal.watermark import Watermark
from holdfast.journal.writer import FORGET, RESERVE, Event, Journal, Options
from log_records import read_from


def record(offset: int, size: int = 20) -> bytes:
    return b"\x01\x10" + offset.to_bytes(8, "little") + bytes([offset % 251]) * size


def at_once(action: Callable[[], None]) -> None:
    action()


class Bench:
    """A journal without its thread, and everything it said."""

    opened: ClassVar[list[Bench]] = []

    def __init__(self, folder: Path, disk: OpenDisk | None = None, at_least: int = 1, **options: object) -> None:
        self.disk = disk if disk is not None else OpenDisk()
        self.events: list[Event] = []
        self.told: list[tuple[int, StoreError | None]] = []
        settings = {"background_sync_s": 0.0, "retry_s": 0.0, "allocate_bytes": 4096, **options}
        self.journal = Journal(
            folder,
            consumers={"state": 0, "history": 0},
            schedule=at_once,
            on_event=self.events.append,
            at_least=at_least,
            quarantine=folder.parent / "quarantine",
            options=Options(**settings),  # type: ignore[arg-type]
            disk=self.disk,
            start=at_once,
        )
        self.opened.append(self)

    def let_go(self) -> None:
        """End as a process does that was killed."""
        self.disk.let_go()
        self.journal.watermark.close()

    def append(self, *offsets: int, revocable: bool = False, size: int = 20) -> None:
        last = offsets[-1]
        self.journal.append([record(o, size) for o in offsets], lambda e: self.told.append((last, e)), revocable)

    def put(self, *offsets: int, revocable: bool = False, size: int = 20) -> None:
        self.append(*offsets, revocable=revocable, size=size)
        self.journal.step()

    def healthy(self) -> bool:
        return self.journal.healthy

    def last_error(self) -> StoreError | None:
        """What was told about the newest records."""
        return self.told[-1][1]

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


def offsets_in(folder: Path) -> list[int]:
    return [offset_of(r) for r in read_from(folder)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture(autouse=True)
def no_journal_stays_open() -> Iterator[None]:
    yield
    while Bench.opened:
        Bench.opened.pop().let_go()


def test_what_was_appended_is_durable_when_it_is_told(folder: Path) -> None:
    disk = FaultyDisk()
    bench = Bench(folder, disk)
    bench.put(1, 2)
    assert bench.told == [(2, None)]
    frame = frame_all(frames_of([chunk_of([record(1), record(2)])]), checksum)
    assert frame in disk.durable[folder / str(segment_names(disk, folder)[0])]
    assert bench.journal.durable == 2


def test_everything_that_gathers_is_synced_once(folder: Path) -> None:
    disk = FaultyDisk()
    bench = Bench(folder, disk)
    bench.put(1)
    before = disk.log.count("sync")
    for offset in range(2, 102):
        bench.append(offset)
    bench.journal.step()
    assert disk.log.count("sync") == before + 1
    assert [last for last, error in bench.told if error is None] == list(range(1, 102))


def test_records_nobody_waits_for_are_synced_in_the_background(folder: Path) -> None:
    disk = FaultyDisk()
    bench = Bench(folder, disk, background_sync_s=3600.0)
    bench.put(1)
    bench.journal.append([record(2)])
    bench.journal.step()
    assert bench.journal.durable == 1
    bench.put(3)
    assert bench.journal.durable == 3


def test_the_thread_calls_back_in_order_and_close_waits_for_all(folder: Path) -> None:
    told: list[int] = []
    journal = Journal(folder, consumers={}, schedule=at_once)
    journal.start()
    for offset in range(1, 501):
        journal.append([record(offset)], lambda error, offset=offset: told.append(offset))  # type: ignore[misc]
    journal.close()
    assert told == list(range(1, 501))
    assert offsets_in(folder) == list(range(1, 501))
    assert not journal.thread.is_alive()
    with pytest.raises(UsageError):
        journal.append([record(501)])


def test_files_are_for_their_owner_alone(folder: Path) -> None:
    bench = Bench(folder)
    bench.put(1)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_segments_are_bounded_and_named_by_their_first_offset(folder: Path) -> None:
    bench = Bench(folder, segment_bytes=500)
    for offset in range(1, 61):
        bench.put(offset)
    names = segment_names(Disk(), folder)
    assert len(names) > 3
    assert offsets_in(folder) == list(range(1, 61))
    for name in names[:-1]:
        assert (folder / str(name)).stat().st_size <= 500
    assert [next(iter(read_from(folder, name.first - 1)))[2] for name in names] == [name.first for name in names]


def test_offsets_go_on_after_a_clean_end(folder: Path) -> None:
    journal = Journal(folder, consumers={}, schedule=at_once)
    journal.start()
    journal.append([record(1), record(7)])
    journal.close(next_offset=10)
    assert Bench(folder).journal.next_offset == 10


def test_offsets_that_may_have_been_given_out_are_not_given_out_again(folder: Path) -> None:
    bench = Bench(folder)
    bench.put(1)
    again = Bench(folder)
    assert again.journal.next_offset > RESERVE
    again.journal.reserve(again.journal.next_offset + 5 * RESERVE)
    again.journal.step()
    assert Bench(folder).journal.next_offset > again.journal.next_offset + 5 * RESERVE


def test_offsets_start_behind_what_others_know(folder: Path) -> None:
    assert Bench(folder, at_least=1000).journal.next_offset == 1000


def test_a_torn_tail_is_cut_and_writing_goes_on_behind_it(folder: Path) -> None:
    bench = Bench(folder)
    bench.put(1)
    bench.put(2)
    path = folder / str(segment_names(Disk(), folder)[0])
    size = bench.journal.segment.size  # type: ignore[union-attr]
    path.write_bytes(path.read_bytes()[: size - 5])
    again = Bench(folder)
    assert again.journal.torn == framed([2]) - 5
    again.put(3)
    assert offsets_in(folder) == [1, 3]


@pytest.mark.parametrize("hole", [False, True])
def test_what_was_written_together_is_there_as_a_whole_or_not_at_all(folder: Path, hole: bool) -> None:
    bench = Bench(folder)
    bench.put(1, 2)
    path = folder / str(segment_names(Disk(), folder)[0])
    start = bench.journal.segment.size  # type: ignore[union-attr]
    bench.put(3, 4, 5)
    end = bench.journal.segment.size  # type: ignore[union-attr]
    bench.journal.watermark.set(2)
    content = path.read_bytes()
    for at in range(start, end):
        damaged = content[:at] + (b"\0" + content[at + 1 :] if hole and content[at] else bytes(len(content) - at))
        path.write_bytes(damaged)
        again = Bench(folder)
        assert again.journal.durable == 2, f"cut at byte {at - start} of {end - start}"
        assert again.journal.damage == []
        again.put(again.journal.next_offset)
        assert offsets_in(folder)[:-1] == [1, 2]
        again.journal.watermark.set(2)


def test_damage_in_what_was_durable_costs_no_more_than_itself(folder: Path) -> None:
    """What was appended together shares a checksum, so it is the least that can be lost."""
    bench = Bench(folder)
    for offsets in ((1,), (2, 3), (4,), (5, 6)):
        bench.append(*offsets, size=FRAME_BYTES // 2)
    bench.journal.step()
    path = folder / str(segment_names(Disk(), folder)[0])
    content = path.read_bytes()
    at = content.index(record(2, FRAME_BYTES // 2))
    path.write_bytes(content[:at] + b"\xff" + content[at + 1 :])
    again = Bench(folder)
    assert offsets_in(folder) == [1, 4, 5, 6]
    assert [(damage.first, damage.last) for damage in again.journal.damage] == [(2, 3)]


def test_what_is_appended_singly_shares_frames_up_to_a_bound(folder: Path) -> None:
    bench = Bench(folder)
    offsets = range(1, 2001)
    for offset in offsets:
        bench.append(offset, size=100)
    bench.journal.step()
    content = (folder / str(segment_names(Disk(), folder)[0])).read_bytes()
    assert len(offsets) * 100 // FRAME_BYTES < content.count(MARKER) < 10
    assert offsets_in(folder) == list(offsets)


def framed(offsets: list[int]) -> int:
    return len(frame_all([record(o) for o in offsets], checksum))


def test_a_full_disk_is_told_at_once_and_facts_are_written_when_there_is_room(folder: Path) -> None:
    disk = FaultyDisk("enospc", at=1, times=0, only=("write", "allocate"))
    disk.heal()
    bench = Bench(folder, disk)
    bench.put(1)
    disk.fault = "enospc"
    bench.put(2)
    bench.put(3, revocable=True)
    assert [(last, error is None) for last, error in bench.told] == [(1, True), (2, False), (3, False)]
    assert not bench.healthy()
    assert "No space left" in str(bench.told[-1][1])
    disk.heal()
    bench.put(4)
    assert bench.told[-1] == (4, None)
    assert bench.healthy()
    assert offsets_in(folder) == [1, 2, 4]
    assert bench.kinds().count("stalled") == 1
    assert bench.kinds()[-1] == "recovered"


def test_it_recovers_without_being_asked(folder: Path) -> None:
    disk = FaultyDisk()
    bench = Bench(folder, disk)
    bench.put(1)
    disk.fault, disk.at, disk.times, disk.only = "enospc", 1, 0, ("write", "allocate")
    bench.put(2)
    disk.heal()
    bench.journal.step()  # woken by its own timer
    assert bench.journal.healthy
    assert offsets_in(folder) == [1, 2]


def test_memory_for_facts_is_bounded_and_what_did_not_fit_is_said(folder: Path) -> None:
    disk = FaultyDisk()
    bench = Bench(folder, disk, held_bytes=3000, retry_s=0.0)
    bench.put(1)
    disk.fault, disk.at, disk.times, disk.only = "enospc", 1, 0, ("write", "allocate")
    for offset in range(2, 12):
        bench.put(offset, size=1000)
    assert len(bench.journal.held) < 4
    disk.heal()
    bench.put(12)
    assert offsets_in(folder)[0:2] == [1, 2]
    assert "lost" in bench.kinds()


def test_a_file_whose_sync_failed_is_never_written_again(folder: Path) -> None:
    disk = FaultyDisk()
    bench = Bench(folder, disk, background_sync_s=3600.0)
    bench.put(1)
    first = segment_names(disk, folder)[0]
    bench.journal.append([record(2)])  # written, and nobody waits for it
    bench.journal.step()
    disk.fault, disk.at, disk.times, disk.only, disk.calls = "eio", 1, 1, ("sync",), 0
    bench.put(3)
    assert bench.told[-1] == (3, None), "the new file took it"
    names = segment_names(disk, folder)
    assert len(names) == 2
    assert names[1].first == 2, "everything since the last good sync went to the new file"
    size = (folder / str(first)).stat().st_size
    bench.put(4)
    assert (folder / str(first)).stat().st_size == size
    assert offsets_in(folder) == [1, 2, 3, 4]
    assert bench.kinds() == ["abandoned"]


def test_what_is_left_in_a_failed_file_is_hidden_by_its_successor(folder: Path) -> None:
    disk = FaultyDisk()
    bench = Bench(folder, disk)
    bench.put(1)
    disk.fault, disk.at, disk.times, disk.only, disk.calls = "eio", 1, 2, ("sync", "truncate"), 0
    bench.put(2, revocable=True)  # sync fails, and so does cutting the file
    assert bench.last_error() is None
    disk.fault, disk.at, disk.times, disk.only, disk.calls = "eio", 1, 0, ("sync", "truncate", "remove"), 0
    bench.put(3, revocable=True)
    assert bench.last_error() is not None
    disk.heal()
    bench.put(4)
    assert offsets_in(folder) == [1, 2, 4], "3 was refused and nothing was done about it, so it must not come back"


def test_segments_go_when_all_consumers_passed_them(folder: Path) -> None:
    bench = Bench(folder, segment_bytes=300)
    for offset in range(1, 41):
        bench.put(offset)
    many = len(segment_names(Disk(), folder))
    bench.journal.passed("state", 40)
    bench.journal.step()
    assert len(segment_names(Disk(), folder)) == many
    bench.journal.passed("history", 20)
    bench.journal.step()
    left = segment_names(Disk(), folder)
    assert len(left) < many
    assert left[0].first <= 21
    assert list(range(21, 41)) == [o for o in offsets_in(folder) if o > 20]


def test_a_segment_that_is_sealed_on_request_goes_when_all_have_passed_it_and_offsets_go_on(folder: Path) -> None:
    bench = Bench(folder)
    bench.put(1, 2, 3)
    bench.journal.seal()
    bench.journal.step()
    assert offsets_in(folder) == [1, 2, 3]
    for consumer in ("state", "history"):
        bench.journal.passed(consumer, 3)
    bench.journal.step()
    assert offsets_in(folder) == []
    bench.journal.seal()  # there is nothing in this one
    bench.journal.step()
    assert len(segment_names(Disk(), folder)) == 1
    bench.put(4)
    bench.journal.close(5)
    again = Bench(folder)
    assert again.journal.next_offset == 5
    assert offsets_in(folder) == [4]


class SmallDisk(OpenDisk):
    """A disk on which a folder may have so many bytes."""

    def __init__(self, folder: Path, room: int) -> None:
        super().__init__()
        self.folder = folder
        self.room = room

    def allocate(self, fd: int, position: int, count: int) -> None:
        if count + sum(path.stat().st_size for path in self.folder.glob("*.hfj")) > self.room:
            raise OSError(ENOSPC, "No space left on device")
        super().allocate(fd, position, count)


def test_on_a_full_disk_what_only_history_lacks_goes_before_a_publish_is_refused(folder: Path) -> None:
    bench = Bench(folder, SmallDisk(folder, 8000), segment_bytes=300, allocate_bytes=300)
    for offset in range(1, 201):
        bench.put(offset)
        bench.journal.passed("state", offset)
        assert bench.last_error() is None, offset
    kept = offsets_in(folder)
    assert kept == list(range(kept[0], 201))
    assert kept[0] > 1
    dropped = [event.message for event in bench.events if event.kind == "dropped"]
    assert dropped[0].startswith("the disk is full: dropped offsets 1 to ")
    assert dropped[0].endswith("which history had not read")
    assert "stalled" not in bench.kinds()


def test_on_a_full_disk_what_the_state_lacks_stays_and_publishes_are_refused(folder: Path) -> None:
    bench = Bench(folder, SmallDisk(folder, 8000), segment_bytes=300, allocate_bytes=300)
    for offset in range(1, 201):
        bench.put(offset, revocable=True)
    assert bench.last_error() is not None
    assert offsets_in(folder)[0] == 1
    assert "dropped" not in bench.kinds()


def test_over_its_limit_the_journal_drops_what_only_history_lacks_and_says_so(folder: Path) -> None:
    bench = Bench(folder, segment_bytes=300, max_bytes=2000)
    for offset in range(1, 101):
        bench.put(offset)
        bench.journal.passed("state", offset)
    assert bench.told[-1] == (100, None)
    assert sum(path.stat().st_size for path in folder.glob("*.hfj")) <= 2000 + 4096
    dropped = [event.message for event in bench.events if event.kind == "dropped"]
    assert dropped
    assert "which history had not read" in dropped[0]
    assert "offsets 1 to" in dropped[0]


def test_over_its_limit_the_journal_refuses_what_the_state_still_needs(folder: Path) -> None:
    bench = Bench(folder, segment_bytes=300, max_bytes=2000)
    for offset in range(1, 101):
        bench.put(offset)
    assert not bench.healthy()
    assert "state is behind" in str(bench.told[-1][1])
    assert offsets_in(folder)[0] == 1
    kept = offsets_in(folder)[-1]
    bench.journal.passed("state", kept)
    bench.journal.step()
    assert bench.healthy()
    assert offsets_in(folder)[-1] == 100, "facts that waited are written"


def test_a_reader_elsewhere_sees_how_far_the_journal_is_durable(folder: Path) -> None:
    bench = Bench(folder, background_sync_s=3600.0)
    bench.put(1)
    bench.journal.append([record(2)])
    bench.journal.step()
    watermark = Watermark(folder)
    assert watermark.get() == 1
    reader = Reader(folder, disk=bench.disk)
    assert [offset_of(r) for r in reader.read(watermark.get())] == [1]
    bench.put(3)
    assert watermark.get() == 3
    assert [offset_of(r) for r in reader.read(watermark.get())] == [2, 3]


def test_a_defect_is_told_to_whoever_waits(folder: Path) -> None:
    class Defect(OpenDisk):
        broken = False

        def write(self, fd: int, data: bytes | memoryview, position: int) -> int:
            if self.broken:
                raise ZeroDivisionError
            return super().write(fd, data, position)

    disk = Defect()
    bench = Bench(folder, disk)
    disk.broken = True
    bench.put(1)
    assert bench.last_error() is not None


def test_records_out_of_order_are_refused_loudly(folder: Path) -> None:
    bench = Bench(folder)
    bench.put(1, 5)
    with pytest.raises(UsageError, match="offset 6, expected more than 7"):
        bench.put(7, 6)
    bench.put(4)
    assert [error is None for _, error in bench.told] == [True, False]
    assert "out of order" in str(bench.last_error())
    bench.put(8)
    assert offsets_in(folder) == [1, 5, 8]


# Committed by the caller itself.


def aside(bench: Bench, *offsets: int) -> None:
    chunk = chunk_of([record(offset) for offset in offsets])
    bench.journal.put_aside(chunk, lambda error: bench.told.append((chunk.last, error)))


def test_what_the_caller_commits_itself_is_durable_when_it_is_told(folder: Path) -> None:
    bench = Bench(folder, FaultyDisk())
    aside(bench, 1, 2)
    aside(bench, 3)
    assert bench.told == []
    bench.journal.commit_here()
    assert bench.told == [(2, None), (3, None)]
    assert (bench.journal.durable, bench.journal.backlog) == (3, 0)
    assert offsets_in(folder) == [1, 2, 3]


def test_what_the_thread_has_not_done_yet_comes_before_what_the_caller_commits(folder: Path) -> None:
    bench = Bench(folder)
    bench.append(1)
    aside(bench, 2)
    bench.journal.commit_here()
    assert bench.told == []
    bench.journal.step()
    assert bench.told == [(1, None), (2, None)]
    aside(bench, 3)
    bench.append(4)
    bench.journal.step()
    assert [last for last, _ in bench.told] == [1, 2, 3, 4]
    assert offsets_in(folder) == [1, 2, 3, 4]


def test_the_thread_tries_again_what_a_full_disk_refused_the_caller(folder: Path) -> None:
    disk = FaultyDisk()
    bench = Bench(folder, disk, retry_s=0.0)
    disk.fault, disk.at, disk.times = "enospc", 1, 0
    aside(bench, 1)
    bench.journal.commit_here()
    assert bench.last_error() is not None
    assert not bench.journal.quick
    disk.heal()
    bench.journal.step()
    assert bench.healthy()
    assert offsets_in(folder) == [1]


def test_nobody_waits_for_a_disk_that_was_slow_until_it_was_quick_for_a_while(folder: Path) -> None:
    journal = Bench(folder).journal
    journal.slowest_s = 0.02  # seconds that one sync took
    quick = []
    for _ in range(100):
        quick.append(journal.quick)
        journal.slowest_s *= FORGET  # what each quick sync does
    assert quick == sorted(quick)
    assert 20 < quick.count(False) < 100


def test_a_segment_of_before_batches_is_read_and_not_written_to_again(folder: Path) -> None:
    folder.mkdir()
    old = folder / str(SegmentName(1))
    head = HEAD.pack(MAGIC, 1, 1)
    old.write_bytes(head + checksum(head).to_bytes(4, "little") + frame_all([record(1), record(2)], checksum))
    bench = Bench(folder)
    size = old.stat().st_size
    bench.put(bench.journal.next_offset, bench.journal.next_offset + 1)
    assert old.stat().st_size == size
    assert len(segment_names(Disk(), folder)) == 2
    assert offsets_in(folder)[:2] == [1, 2]
    assert len(offsets_in(folder)) == 4
