"""Reading the journal from an offset on, past whatever is damaged.

A reader never fails because of what it reads. Bytes that are not a record are set aside in the quarantine folder with
a note of what they cost, and reading goes on at the next sound record. Only the end of the last segment is different:
bytes there that are not a whole record are a write that was cut short, which nobody was promised. A power cut may also
leave a hole in such a write, with sound records behind it: whoever knows what was promised hands that in.
"""

from dataclasses import dataclass
from pathlib import Path

from holdfast.journal.disk import Disk, write_all
from holdfast.journal.record import (
    BAD,
    BATCH_HEAD,
    EMPTY,
    FRAME_SIZE,
    LIMIT,
    RECORD_MAX,
    find_frame,
    first_offset,
    scan,
)
from holdfast.journal.segment import HEAD_SIZE, SegmentName, checksum, head_problem, segment_names

EVERYTHING = (1 << 64) - 1
CHUNK = 1 << 20


@dataclass(frozen=True)
class Damage:
    """Part of the journal that could not be read: records with offsets from `first` to `last` may be lost."""

    segment: str
    position: int
    size: int
    first: int
    last: int
    reason: str
    kept_as: str = ""  # file name in the quarantine folder

    def __str__(self) -> str:
        where = f"{self.segment} at byte {self.position}: {self.reason}"
        lost = f"lost: whatever had offsets {self.first} to {self.last}"
        if self.last < self.first:
            lost = "nothing lost"
        kept = f", {self.size} bytes kept as {self.kept_as}" if self.kept_as else ""
        return f"journal segment {where}; {lost}{kept}"


class Reader:
    """A position in the journal. `last` is the offset of the last record read; ask `damage` after reading.

    May run while a writer appends, in another thread or process, as long as `limit` is no more than what is durable.
    """

    def __init__(
        self,
        folder: Path,
        after: int = 0,
        quarantine: Path | None = None,
        disk: Disk | None = None,
        promised: int = EVERYTHING,
    ) -> None:
        """In the last segment, what is damaged behind the offset `promised` is the end."""
        self.folder = folder
        self.promised = promised
        self.quarantine = quarantine
        self.disk = disk if disk is not None else Disk()
        self.last = after
        self.reserved = 0
        self.closed = 0
        self.damage: list[Damage] = []
        self.name: SegmentName | None = None  # the segment that is open as `fd`
        self.fd = -1
        self.position = 0
        self.together_at = 0  # where the last records begin that were written together, where they end
        self.together_end = 0
        self.together_after = 0  # and the offset in front of them
        self.names: list[SegmentName] = []

    def read(self, limit: int = EVERYTHING, max_bytes: int = 8 << 20) -> list[bytes]:
        """The next records, about `max_bytes` of them at most; an empty list when there are no more up to `limit`."""
        self.names = segment_names(self.disk, self.folder)
        records: list[bytes] = []
        size = 0
        while (size < max_bytes or not records) and self.last < limit:
            if self.name is None and not self.enter():
                break
            before = self.position
            records += self.read_chunk(limit)
            size += self.position - before
            if self.position == before and not self.leave(limit):
                break
        return records

    def enter(self) -> bool:
        """Open the segment that the next record must be in; False when there is none."""
        while self.names:
            name = self.names[0]
            for other in self.names:
                if other.first <= self.last + 1:
                    name = other
            try:
                self.fd = self.disk.open(self.folder / str(name))
            except FileNotFoundError:  # dropped between the listing and now
                self.names = segment_names(self.disk, self.folder)
                continue
            self.name, self.position = name, HEAD_SIZE
            self.together_end = 0
            if name.first > self.last + 1:
                self.report(0, name.first - 1, "the records before this segment are gone")
                self.last = name.first - 1
            self.check_head()
            return True
        return False

    def check_head(self) -> None:
        assert self.name is not None
        head = self.disk.read(self.fd, HEAD_SIZE, 0)
        problem = head_problem(head, self.name)
        if problem and head.strip(b"\0"):  # zeros: created, and cut short before anything was written
            self.report(0, self.last, problem)

    def upper(self, limit: int) -> int:
        """Records past this do not belong to the open segment."""
        following = self.following()
        return limit if following is None else min(limit, following.first - 1)

    def following(self) -> SegmentName | None:
        for name in self.names:
            if self.name is not None and name > self.name:
                return name
        return None

    def read_chunk(self, limit: int) -> list[bytes]:
        """The records of one stretch of the open segment. The position stays where it is when nothing can be read."""
        size = CHUNK
        while True:
            data = self.disk.read(self.fd, size, self.position)
            found = scan(data, 0, self.last, self.upper(limit), checksum)
            if found.position > 0 or len(data) < size or found.ended in (LIMIT, BAD, EMPTY) or size > RECORD_MAX:
                break
            size *= 4  # one record larger than all that was read
        if found.together_at >= 0:
            self.together_at = self.position + found.together_at
            self.together_end = self.position + found.together_end
            self.together_after = found.together_after
        self.position += found.position
        self.last = found.last
        self.reserved = max(self.reserved, found.reserved)
        if found.closed >= 0:
            self.closed = found.closed
        return found.records

    def leave(self, limit: int) -> bool:
        """Nothing can be read at the position: skip what is damaged, or go to the next segment. False at the end."""
        following = self.following()
        data = self.disk.read(self.fd, max(0, self.disk.size(self.fd) - self.position), self.position)
        found = scan(data, 0, self.last, self.upper(limit), checksum)
        if found.ended == LIMIT:
            if following is None or limit < following.first:
                return False
        else:
            if following is None and self.last >= self.promised:
                return False
            sound = find_frame(data, 1, self.last, checksum)
            if sound > 0:
                lost = first_offset(data[sound + FRAME_SIZE : sound + FRAME_SIZE + BATCH_HEAD]) - 1
                self.report(self.position, lost, "bytes that are not a record", data[:sound])
                self.position += sound
                return True
            if following is None:
                return False
            if self.last + 1 < following.first:
                bad = data.rstrip(b"\0")
                reason = "bytes that are not a record" if bad else "the segment ends early"
                self.report(self.position, following.first - 1, reason, bad)
        self.last = max(self.last, following.first - 1)
        self.close()
        return self.enter()

    def report(self, position: int, last: int, reason: str, content: bytes = b"") -> None:
        assert self.name is not None
        kept_as = self.set_aside(self.name, position, content) if content and self.quarantine is not None else ""
        self.damage.append(Damage(str(self.name), position, len(content), self.last + 1, last, reason, kept_as))

    def set_aside(self, name: SegmentName, position: int, content: bytes) -> str:
        """Keep damaged bytes; the name says where they were, so that two readers keep them once."""
        assert self.quarantine is not None
        kept_as = f"{name}.{position}"
        self.disk.make_folder(self.quarantine)
        try:
            fd = self.disk.create(self.quarantine / kept_as)
        except FileExistsError:
            return kept_as
        try:
            write_all(self.disk, fd, content, 0)
            self.disk.sync(fd)
        finally:
            self.disk.close(fd)
        return kept_as

    def close(self) -> None:
        if self.fd >= 0:
            self.disk.close(self.fd)
        self.fd = -1
        self.name = None
