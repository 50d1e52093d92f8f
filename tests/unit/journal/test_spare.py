"""The spare: a busy journal goes on in blocks that were written before, and does without where the disk has none."""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faulty_disk import FaultyDisk, OpenDisk
from holdfast.errors import StoreError
from holdfast.journal.segment import segment_names
from holdfast.journal.spare import NAME, STEP, Spare
from holdfast.journal.writer import Journal, Options
from log_records import read_from

SIZE = 3 * STEP // 2


class Started:
    """What was to be done in a thread, done when the test says so."""

    def __init__(self) -> None:
        self.works: list[Callable[[], None]] = []

    def __call__(self, work: Callable[[], None]) -> None:
        self.works.append(work)

    def run(self) -> None:
        while self.works:
            self.works.pop(0)()


class World:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.disk = FaultyDisk()
        self.started = Started()
        self.spare = Spare(self.disk, folder, SIZE, self.started)

    def names(self) -> list[str]:
        return self.disk.names(self.folder)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.disk.let_go()


def test_a_spare_is_zeros_that_are_on_disk_and_becomes_the_file_that_takes_it(world: World) -> None:
    world.spare.want()
    world.started.run()
    fd = world.spare.take(world.folder / "segment")
    assert fd is not None
    assert world.names() == ["segment"]
    assert world.disk.durable[world.folder / "segment"] == bytes(SIZE)


def test_there_is_none_before_it_is_complete(world: World) -> None:
    world.spare.want()
    assert world.spare.take(world.folder / "segment") is None


def test_one_is_made_for_each_that_is_taken(world: World) -> None:
    world.spare.want()
    world.spare.want()
    assert len(world.started.works) == 1
    world.started.run()
    world.spare.take(world.folder / "segment")
    world.spare.want()
    assert len(world.started.works) == 1


@pytest.mark.parametrize("call", ["create", "allocate", "write", "sync"])
def test_a_spare_that_cannot_be_made_leaves_nothing_and_is_not_tried_again_at_once(world: World, call: str) -> None:
    world.disk.fault, world.disk.at, world.disk.only = "eio", 1, (call,)
    world.spare.want()
    world.started.run()
    assert world.names() == []
    assert world.spare.take(world.folder / "segment") is None
    world.spare.want()
    world.started.run()
    assert world.spare.take(world.folder / "segment") is not None


def test_one_that_cannot_be_renamed_is_gone(world: World) -> None:
    world.spare.want()
    world.started.run()
    world.disk.fault, world.disk.at, world.disk.only = "eio", 1, ("rename",)
    with pytest.raises(OSError, match="error"):
        world.spare.take(world.folder / "segment")
    assert world.names() == []
    assert world.disk.opened == set()


def test_dropping_it_gives_its_space_back_once(world: World) -> None:
    world.spare.want()
    world.started.run()
    assert world.spare.drop()
    assert world.names() == []
    assert not world.spare.drop()


def test_what_an_earlier_run_has_left_is_removed(world: World) -> None:
    (world.folder / NAME).write_bytes(b"half a one")
    Spare(world.disk, world.folder, SIZE)
    assert world.names() == []


def test_none_is_made_once_the_journal_has_stopped(world: World) -> None:
    world.spare.want()
    world.spare.stop()
    world.started.run()
    world.spare.want()
    assert world.names() == []
    assert world.started.works == []


# In the journal.


class FullDisk(OpenDisk):
    """Once it is `full`, it has room for one more segment only when the spare is gone."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.full = False

    def allocate(self, fd: int, position: int, count: int) -> None:
        if self.full and NAME in self.names(self.folder):
            raise OSError(errno.ENOSPC, "No space left on device")
        super().allocate(fd, position, count)


def at_once(action: Callable[[], None]) -> None:
    action()


def record(offset: int, size: int = 100) -> bytes:
    return b"\x01\x10" + offset.to_bytes(8, "little") + bytes(size)


class Written:
    """A journal of small segments, with records in it, and what was said of them."""

    def __init__(self, folder: Path, disk: OpenDisk, **options: float) -> None:
        self.errors: list[StoreError | None] = []
        self.disk = disk
        self.journal = Journal(
            folder,
            consumers={"state": 0},
            schedule=at_once,
            options=Options(segment_bytes=1000, allocate_bytes=256, **options),  # type: ignore[arg-type]
            disk=disk,
            start=at_once,
        )

    def put(self, count: int) -> None:
        first = self.journal.last + 1
        for offset in range(first, first + count):
            self.journal.append([record(offset)], self.errors.append)
            self.journal.step()


def test_a_journal_that_fills_a_segment_fast_has_the_next_one_prepared(tmp_path: Path) -> None:
    written = Written(tmp_path, OpenDisk())
    written.put(3)
    assert NAME not in written.disk.names(tmp_path)
    written.put(3)
    assert NAME in written.disk.names(tmp_path)
    inode = (tmp_path / NAME).stat().st_ino
    written.put(4)
    assert (tmp_path / str(segment_names(written.disk, tmp_path)[-1])).stat().st_ino == inode
    written.journal.close()
    assert NAME not in written.disk.names(tmp_path)
    assert len(list(read_from(tmp_path))) == 10


def test_a_quiet_journal_has_no_spare(tmp_path: Path) -> None:
    written = Written(tmp_path, OpenDisk(), spare_within_s=0.0)
    written.put(20)
    assert len(segment_names(written.disk, tmp_path)) > 1
    assert NAME not in written.disk.names(tmp_path)
    written.journal.close()


def test_on_a_full_disk_the_spare_goes_before_anything_else(tmp_path: Path) -> None:
    disk = FullDisk(tmp_path)
    written = Written(tmp_path, disk)
    written.put(5)
    assert NAME in disk.names(tmp_path)
    disk.full = True
    written.put(2)
    assert NAME not in disk.names(tmp_path)
    assert written.errors == [None] * 7
    written.journal.close()


def test_a_segment_that_was_a_spare_and_has_no_head_was_never_promised(tmp_path: Path) -> None:
    written = Written(tmp_path, OpenDisk())
    written.put(3)
    written.journal.close()
    (tmp_path / "00000000000000000004.hfj").write_bytes(bytes(1000))
    again = Written(tmp_path, OpenDisk())
    again.put(1)
    assert again.errors == [None]
    again.journal.close()
    assert again.journal.damage == []
    assert len(list(read_from(tmp_path))) == 4
