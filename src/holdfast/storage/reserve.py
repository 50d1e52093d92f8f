"""Free space that the history leaves alone, so that the journal, and with it every acknowledgement, has room."""

import os
from dataclasses import dataclass
from pathlib import Path

# It goes on when there is this much more than the reserve, so that it does not stop and start at every commit.
ROOM_TO_GO_ON = 1.1


@dataclass(frozen=True)
class Reserve:
    """`size` bytes or `percent` of the file system, whichever is less; None is not given."""

    size: int | None = 1 << 30
    percent: float | None = 5.0

    def of(self, total: int) -> int:
        """The reserve of a file system with so many bytes; 0 is none."""
        bounds = [] if self.size is None else [self.size]
        if self.percent is not None:
            bounds.append(int(total * self.percent / 100))
        return min(bounds, default=0)


NO_RESERVE = Reserve(0, None)


@dataclass(frozen=True)
class Space:
    """Bytes of a file system, in all and free."""

    total: int
    free: int


def space_at(folder: Path) -> Space:
    found = os.statvfs(folder)
    return Space(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


def shown(size: int) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} bytes"
