"""The file that becomes the next segment of a busy journal: as long as a segment, and written with zeros beforehand.

Where blocks were written before, a sync has to write only what is in them. Where space was merely set aside, it also
has to write down that they are in use now, and that is a second wait for the disk.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from holdfast.journal.disk import Disk, write_all

NAME = "spare"
STEP = 1 << 20  # written and synced at a time, so that the syncs of the journal do not wait for all of it

Start = Callable[[Callable[[], None]], None]


def start_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="holdfast-spare", daemon=True).start()


class Spare:
    """There is at most one. `want`, `take` and `drop` are called by whoever writes the journal, one at a time.

    A spare that cannot be made is no problem: a segment can begin without.
    """

    def __init__(self, disk: Disk, folder: Path, size: int, start: Start = start_thread) -> None:
        self.disk = disk
        self.path = folder / NAME
        self.size = size
        self.start = start
        self.fd = -1  # once it is complete
        self.tried = False  # since the last one was taken: a disk that is full is not asked again and again
        self.stopped = False
        self.at_work = threading.Lock()
        self.remove()  # that of an earlier run may be half a one

    def want(self) -> None:
        """Begin to make one, if there is none."""
        if not self.tried and not self.stopped:
            self.tried = True
            self.start(self.make)

    def make(self) -> None:
        with self.at_work, suppress(OSError):  # a disk that is full or fails is told by the journal itself
            if not self.stopped:
                self.write()

    def write(self) -> None:
        fd = self.disk.create(self.path)
        is_whole = False
        try:
            self.disk.allocate(fd, 0, self.size)
            zeros = bytes(STEP)
            for position in range(0, self.size, STEP):
                if self.stopped:
                    break
                write_all(self.disk, fd, zeros[: self.size - position], position)
                self.disk.sync(fd)
            else:
                is_whole = True
        finally:
            if not is_whole:
                self.disk.close(fd)
                self.remove()
        if is_whole:
            self.fd = fd

    def take(self, path: Path) -> int | None:
        """Give it this name, and return its descriptor; None when there is none."""
        fd, self.fd, self.tried = self.fd, -1, False
        if fd < 0:
            return None
        try:
            self.disk.rename(self.path, path)
        except OSError:
            self.disk.close(fd)
            self.remove()
            raise
        return fd

    def drop(self) -> bool:
        """Give its space back; False when there is none."""
        fd, self.fd = self.fd, -1
        if fd < 0:
            return False
        self.disk.close(fd)
        self.remove()
        return True

    def stop(self) -> None:
        """No more of them. One that is being made is waited for, until its next step."""
        self.stopped = True
        with self.at_work:
            self.drop()

    def remove(self) -> None:
        with suppress(OSError):
            self.disk.remove(self.path)
