"""Where the journal ends after a restart: the torn tail, the last offset, and the first offset that is free."""

from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from holdfast.journal.disk import Disk
from holdfast.journal.reader import EVERYTHING, Damage, Reader
from holdfast.journal.record import FRAME_SIZE
from holdfast.journal.retention import SealedSegment
from holdfast.journal.segment import HEAD_SIZE, SegmentName, head_problem, segment_names
from holdfast.journal.watermark import last_durable


@dataclass
class End:
    """`name` is the segment to go on with (None: start a new one), whose sound part has `size` bytes."""

    name: SegmentName | None = None
    size: int = 0
    last: int = 0
    next_offset: int = 1
    torn: int = 0  # bytes behind the sound part that are not space set aside
    sealed: list[SealedSegment] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)


def find_end(folder: Path, quarantine: Path | None = None, disk: Disk | None = None) -> End:
    """Read the newest segment, and older ones only while no record was found. Changes nothing but the quarantine."""
    disk = disk if disk is not None else Disk()
    names = segment_names(disk, folder)
    promised = last_durable(folder) or EVERYTHING
    end = End()
    for index in range(len(names) - 1, -1, -1):
        reader = Reader(folder, names[index].first - 1, quarantine, disk, promised)
        found = 0
        while records := reader.read():
            found += len(records)
        if reader.position < reader.together_end:
            reader.position, reader.last = reader.together_at, reader.together_after
        end.last = max(end.last, reader.last)
        end.next_offset = max(end.next_offset, reader.closed or max(reader.reserved, reader.last + 1))
        end.damage = reader.damage
        if index == len(names) - 1:
            end.name = names[index]
            end.size, end.torn = sound_part(reader, found > 0)
        reader.close()
        if found or reader.reserved:
            break
    end.sealed = sealed_segments(disk, folder, names)
    return end


def sound_part(reader: Reader, has_records: bool) -> tuple[int, int]:
    """The size of what a reader could read of the segment it stopped in, and of what follows and is not empty."""
    if reader.name is None:
        return 0, 0
    size = reader.disk.size(reader.fd)
    if not has_records and head_problem(reader.disk.read(reader.fd, HEAD_SIZE, 0), reader.name):
        return 0, 0  # created and never synced: nothing in it was promised
    rest = reader.disk.read(reader.fd, max(0, size - reader.position), reader.position).rstrip(b"\0")
    if len(rest) >= FRAME_SIZE and reader.quarantine is not None:
        reader.set_aside(reader.name, reader.position, rest)
    return reader.position, len(rest)


def sealed_segments(disk: Disk, folder: Path, names: list[SegmentName]) -> list[SealedSegment]:
    """All but the newest. A segment's last offset is bounded by where the next one starts."""
    sealed: list[SealedSegment] = []
    for name, following in pairwise(names):
        fd = disk.open(folder / str(name))
        try:
            sealed.append(SealedSegment(name, disk.size(fd), following.first - 1))
        finally:
            disk.close(fd)
    return sealed
