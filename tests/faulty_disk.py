"""Disks for tests of the journal: one that knows what was left open, and one that fails on purpose.

`FaultyDisk` has the system calls of the journal, with a fault at a chosen one. It also remembers what is durable, file
by file, so that a test can cut the power: whatever was not synced is then partly or wholly gone, in the way a real disk
may leave it.
"""

import errno
import os
import random
from pathlib import Path

from holdfast.journal.disk import Disk


class PowerCut(BaseException):
    """The machine stops here. Not an Exception: nothing in the code under test may catch it."""


FAULTS = ("enospc", "eio", "short", "power")


class OpenDisk(Disk):
    """Knows what is open. A journal in a test often ends like one in a crash, without closing anything."""

    def __init__(self) -> None:
        self.opened: set[int] = set()

    def create(self, path: Path) -> int:
        fd = super().create(path)
        self.opened.add(fd)
        return fd

    def open(self, path: Path, write: bool = False) -> int:
        fd = super().open(path, write)
        self.opened.add(fd)
        return fd

    def close(self, fd: int) -> None:
        self.opened.discard(fd)
        super().close(fd)

    def let_go(self) -> None:
        """Close what whoever used the disk has left open, as the end of a process does."""
        while self.opened:
            os.close(self.opened.pop())


class FaultyDisk(OpenDisk):
    """The `at`-th call from now on has the fault, `times` calls in a row (0: for ever). Only calls in `only` count."""

    def __init__(self, fault: str = "", at: int = 0, times: int = 1, only: tuple[str, ...] = (), seed: int = 0) -> None:
        super().__init__()
        self.fault = fault
        self.at = at
        self.times = times
        self.only = only
        self.random = random.Random(seed)
        self.calls = 0
        self.log: list[str] = []
        self.paths: dict[int, Path] = {}
        self.durable: dict[Path, bytes] = {}
        self.unsynced: dict[Path, list[tuple[int, bytes]]] = {}
        self.named: set[Path] = set()  # files whose names are durable

    def heal(self) -> None:
        self.fault = ""

    def hit(self, name: str) -> bool:
        """Whether this call is one that has the fault."""
        self.log.append(name)
        if not self.fault or (self.only and name not in self.only):
            return False
        self.calls += 1
        return self.calls >= self.at and (self.times == 0 or self.calls < self.at + self.times)

    def call(self, name: str) -> None:
        if not self.hit(name):
            return
        if self.fault == "power":
            raise PowerCut
        if self.fault == "enospc" and name in ("create", "write", "allocate"):
            raise OSError(errno.ENOSPC, "No space left on device")
        if self.fault == "eio" and name not in ("close", "names", "size"):
            raise OSError(errno.EIO, "Input/output error")

    def create(self, path: Path) -> int:
        self.call("create")
        fd = super().create(path)
        self.paths[fd] = path
        self.durable[path] = b""
        self.unsynced[path] = []
        return fd

    def open(self, path: Path, write: bool = False) -> int:
        self.call("open")
        fd = super().open(path, write)
        if write:
            self.paths[fd] = path
            self.durable.setdefault(path, path.read_bytes())
            self.unsynced.setdefault(path, [])
            self.named.add(path)
        return fd

    def write(self, fd: int, data: bytes | memoryview, position: int) -> int:
        self.call("write")
        if self.fault == "short" and len(data) > 1:
            data = data[: max(1, len(data) // 2)]
        count = super().write(fd, data, position)
        self.unsynced[self.paths[fd]].append((position, bytes(data[:count])))
        return count

    def allocate(self, fd: int, position: int, count: int) -> None:
        self.call("allocate")
        super().allocate(fd, position, count)

    def truncate(self, fd: int, size: int) -> None:
        self.call("truncate")
        super().truncate(fd, size)
        path = self.paths[fd]
        self.unsynced[path] = [(at, data) for at, data in self.unsynced[path] if at < size]

    def sync(self, fd: int) -> None:
        self.call("sync")  # and no real one: what counts as durable is decided here
        path = self.paths[fd]
        if path.exists():
            self.durable[path] = path.read_bytes()
        self.unsynced[path] = []

    def sync_folder(self, path: Path) -> None:
        self.call("sync_folder")
        self.named |= {file for file in self.durable if file.parent == path and file.exists()}

    def rename(self, path: Path, to: Path) -> None:
        self.call("rename")
        super().rename(path, to)
        self.durable[to], self.unsynced[to] = self.durable.pop(path), self.unsynced.pop(path)
        self.paths |= {fd: to for fd, known in self.paths.items() if known == path}

    def remove(self, path: Path) -> None:
        self.call("remove")
        super().remove(path)
        self.durable.pop(path, None)

    def cut_power(self) -> None:
        """Leave the files as a power cut might: what was synced, and of the rest any beginning, or none."""
        self.let_go()
        for path, content in self.durable.items():
            image = bytearray(content)
            writes = self.unsynced.get(path, [])
            for at, data in writes[: self.random.randint(0, len(writes))]:
                part = data[: self.random.randint(0, len(data))]
                image.extend(bytes(max(0, at + len(part) - len(image))))
                image[at : at + len(part)] = part
            if path.exists():
                if path in self.named or self.random.random() < 0.5:
                    path.write_bytes(image)
                else:
                    path.unlink()
