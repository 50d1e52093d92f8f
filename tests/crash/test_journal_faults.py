"""A fault at every single system call of the journal, one run each: nothing that was promised is lost, ever.

The story is always the same: start, write batches of all sorts over several segments, let consumers pass some, end. The
fault moves through it call by call: a full disk, a failing one, short writes, and the power going out with whatever was
not synced torn or gone. Then a healthy disk is put under the same folder and the promises are held against it.
"""

import itertools
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from faulty_disk import FaultyDisk, PowerCut
from holdfast.errors import StoreError
from holdfast.journal.reader import Reader
from holdfast.journal.record import offset_of
from holdfast.journal.writer import Journal, Options

OPTIONS = Options(segment_bytes=400, allocate_bytes=256, background_sync_s=3600.0, retry_s=0.0)


def record(offset: int) -> bytes:
    return b"\x01\x10" + offset.to_bytes(8, "little") + bytes([offset % 251]) * (offset % 40)


def at_once(action: Callable[[], None]) -> None:
    action()


class Story:
    """One run, and what was promised in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.promised: set[int] = set()
        self.revoked: set[int] = set()
        self.passed = 0
        self.highest = 0
        self.dead = False

    def run(self, disk: FaultyDisk) -> None:
        journal = self.open(disk)
        start = journal.next_offset
        offsets = itertools.count(start)
        for turn in range(12):
            batch = [next(offsets) for _ in range(1 + turn % 4)]
            self.append(journal, batch, wait=turn % 3 != 1, revocable=turn % 5 == 4)
            journal.step()
            if turn == 7:
                self.passed = start + 8
                journal.passed("state", self.passed)
                journal.step()
        journal.close(next(offsets))

    def open(self, disk: FaultyDisk) -> Journal:
        consumers = {"state": 0}
        return Journal(self.folder, consumers=consumers, schedule=at_once, options=OPTIONS, disk=disk, start=at_once)

    def append(self, journal: Journal, batch: list[int], wait: bool, revocable: bool) -> None:
        def done(error: StoreError | None) -> None:
            if error is None:
                self.promised.update(batch)
            elif revocable:
                self.revoked.update(batch)

        self.highest = max(self.highest, batch[-1])
        journal.append([record(o) for o in batch], done if wait or revocable else None, revocable)

    def check(self) -> None:
        """Hold the promises against the folder, with a disk that works."""
        disk = FaultyDisk()
        journal = self.open(disk)
        reader = Reader(self.folder, self.passed)
        found: list[bytes] = []
        while records := reader.read():
            found += records
        offsets = [offset_of(r) for r in found]
        assert offsets == sorted(set(offsets)), "offsets only grow"
        assert all(r == record(offset_of(r)) for r in found), "records are what was written"
        assert {o for o in self.promised if o > self.passed} <= set(offsets), "what was promised is there"
        if not self.dead:  # a disk that takes nothing any more cannot be told to forget either
            assert not self.revoked & set(offsets), "what was refused and not acted on does not come back"
        if self.promised:  # else the disk never took anything, not even which offsets are in use
            assert journal.next_offset > self.highest, "no offset is given out twice"
        following = journal.next_offset
        self.append(journal, [following], wait=True, revocable=False)
        journal.step()
        assert following in self.promised, "it goes on"
        reader.close()
        disk.let_go()


def calls_of_a_healthy_run(folder: Path) -> int:
    disk = FaultyDisk()
    story = Story(folder)
    story.run(disk)
    story.check()
    assert len(story.promised) > 15
    return len(disk.log)


@pytest.mark.parametrize("fault", ["enospc", "eio", "short"])
@pytest.mark.parametrize("times", [1, 2, 3, 0])
def test_a_failing_disk_breaks_no_promise_wherever_it_fails(tmp_path: Path, fault: str, times: int) -> None:
    for at in range(1, calls_of_a_healthy_run(tmp_path / "healthy") + 1):
        story = Story(tmp_path / f"journal-{at}")
        disk = FaultyDisk(fault, at, times)
        with suppress(OSError):  # the journal could not even be opened: nothing was promised
            story.run(disk)
        disk.let_go()
        story.dead = fault == "eio" and times == 0
        story.check()


def test_a_power_cut_breaks_no_promise_wherever_it_happens(tmp_path: Path) -> None:
    for at in range(1, calls_of_a_healthy_run(tmp_path / "healthy") + 1):
        for seed in range(3):
            story = Story(tmp_path / f"journal-{at}-{seed}")
            disk = FaultyDisk("power", at, seed=seed)
            with pytest.raises(PowerCut):
                story.run(disk)
            disk.cut_power()
            story.check()


def test_a_second_power_cut_during_recovery_breaks_no_promise(tmp_path: Path) -> None:
    for first in range(20, calls_of_a_healthy_run(tmp_path / "healthy"), 7):
        for second in range(1, 12):
            story = Story(tmp_path / f"journal-{first}-{second}")
            disk = FaultyDisk("power", first, seed=first)
            with pytest.raises(PowerCut):
                story.run(disk)
            disk.cut_power()
            again = FaultyDisk("power", second, seed=second)
            try:
                story.run(again)
            except PowerCut:
                again.cut_power()
            story.check()
