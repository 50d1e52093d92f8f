"""One file of the journal: its name, its head, and writing to its end.

A segment is named by its `first`: all its records have offsets at or above it, and below the `first` of the next one.
When a file can no longer be trusted, its successor starts at the first record that was not yet durable, so whatever is
left at the end of the old file is hidden by that rule. A successor that would get the same name gets a generation.
"""

import struct
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import google_crc32c

from holdfast.errors import StoreError
from holdfast.journal.disk import Disk, write_all
from holdfast.journal.record import Checksum
from holdfast.journal.spare import Spare

SUFFIX = ".hfj"
MAGIC = b"holdfast"
FORMAT = 2  # 1 had no batches: such a segment is read, and never written to again
HEAD = struct.Struct("<8sIQ")  # magic, format, first; then the checksum of these
HEAD_SIZE = HEAD.size + 4
ALLOCATE = 4 << 20  # space is set aside so many bytes at a time

checksum: Checksum = google_crc32c.value


@dataclass(frozen=True, order=True)
class SegmentName:
    first: int
    generation: int = 0

    def __str__(self) -> str:
        generation = f".{self.generation}" if self.generation else ""
        return f"{self.first:020d}{generation}{SUFFIX}"

    @classmethod
    def parse(cls, name: str) -> "SegmentName | None":
        """None for a file that is not a segment."""
        if not name.endswith(SUFFIX):
            return None
        first, _, generation = name[: -len(SUFFIX)].partition(".")
        if not (first.isascii() and first.isdigit() and (not generation or generation.isdigit())):
            return None
        return cls(int(first), int(generation or 0))


def segment_names(disk: Disk, folder: Path) -> list[SegmentName]:
    """The segments of a folder, oldest first."""
    try:
        names = disk.names(folder)
    except FileNotFoundError:
        return []
    return sorted(name for name in map(SegmentName.parse, names) if name is not None)


def encode_head(first: int) -> bytes:
    head = HEAD.pack(MAGIC, FORMAT, first)
    return head + checksum(head).to_bytes(4, "little")


def head_problem(data: bytes, name: SegmentName) -> str:
    """What is wrong with the head of a segment, or nothing. Raises when a later version of Holdfast wrote it."""
    if len(data) < HEAD_SIZE:
        return f"the head has {len(data)} bytes, expected {HEAD_SIZE}"
    magic, version, first = HEAD.unpack_from(data)
    if magic != MAGIC or int.from_bytes(data[HEAD.size : HEAD_SIZE], "little") != checksum(data[: HEAD.size]):
        return "the head is damaged"
    if version > FORMAT:
        raise StoreError(f"journal segment {name} has format {version}, this version reads up to {FORMAT}")
    if first != name.first:
        return f"the head says that the segment starts at {first}"
    return ""


def format_of(disk: Disk, path: Path) -> int:
    """The format of a segment whose head is sound."""
    fd = disk.open(path)
    try:
        version: int = HEAD.unpack_from(disk.read(fd, HEAD_SIZE, 0))[1]
    finally:
        disk.close(fd)
    return version


class Segment:
    """The segment that is being written.

    Invariants: bytes up to `size` are whole frames, bytes up to `synced` are durable, and `synced <= size`. The file
    may be longer than `size`: space set aside, all zeros, cut off when the segment is sealed.
    """

    def __init__(self, disk: Disk, folder: Path, name: SegmentName, fd: int, size: int, allocate: int) -> None:
        self.disk = disk
        self.folder = folder
        self.name = name
        self.fd = fd
        self.size = size
        self.synced = size
        self.allocated = size
        self.allocate = allocate
        self.begun_at = time.monotonic()

    @classmethod
    def create(
        cls, disk: Disk, folder: Path, first: int, allocate: int = ALLOCATE, spare: Spare | None = None
    ) -> "Segment":
        """A new file with its head. Nothing is durable before `sync`, not even that the file exists."""
        taken = [name.generation for name in segment_names(disk, folder) if name.first == first]
        name = SegmentName(first, max(taken) + 1 if taken else 0)
        path = folder / str(name)
        written = spare.take(path) if spare is not None else None
        fd = disk.create(path) if written is None else written
        segment = cls(disk, folder, name, fd, 0, allocate)
        if spare is not None and written is not None:
            segment.allocated = spare.size
        try:
            segment.write(encode_head(first))
        except OSError:
            disk.close(fd)
            disk.remove(path)
            raise
        return segment

    @classmethod
    def resume(cls, disk: Disk, folder: Path, name: SegmentName, size: int, allocate: int = ALLOCATE) -> "Segment":
        """Go on behind the sound part of an existing file; what lies behind `size` is cut, the rest made durable."""
        fd = disk.open(folder / str(name), write=True)
        try:
            if disk.size(fd) != size:
                disk.truncate(fd, size)
            disk.sync(fd)
        except OSError:
            disk.close(fd)
            raise
        return cls(disk, folder, name, fd, size, allocate)

    @property
    def path(self) -> Path:
        return self.folder / str(self.name)

    def write(self, data: bytes) -> None:
        end = self.size + len(data)
        if end > self.allocated:
            # A file whose blocks are there already syncs faster, and a full disk shows before a frame is torn.
            more = max(end - self.allocated, self.allocate)
            self.disk.allocate(self.fd, self.allocated, more)
            self.allocated += more
        write_all(self.disk, self.fd, data, self.size)
        self.size = end

    def sync(self) -> None:
        new = self.synced == 0
        self.disk.sync(self.fd)
        if new:
            self.disk.sync_folder(self.folder)
        self.synced = self.size

    def seal(self) -> None:
        """Nothing more will be written: give back the space that was set aside, and close."""
        self.disk.truncate(self.fd, self.size)
        self.disk.sync(self.fd)
        self.synced = self.size
        self.disk.close(self.fd)

    def abandon(self) -> None:
        """The file failed: keep what was durable before, if it lets us, and never write to it again."""
        with suppress(OSError):  # its successor's `first` hides what is left behind
            if self.synced == 0:
                self.disk.remove(self.path)
            else:
                self.disk.truncate(self.fd, self.synced)
        with suppress(OSError):
            self.disk.close(self.fd)
