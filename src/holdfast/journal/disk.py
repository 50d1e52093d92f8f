"""The system calls that the journal makes, one method each: the seam below which tests make a disk fail."""

import os
from pathlib import Path

FILE_MODE = 0o600
FOLDER_MODE = 0o700


class Disk:
    """The real one. A subclass in the tests refuses, shortens, flips or forgets."""

    def make_folder(self, path: Path) -> None:
        path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)

    def names(self, folder: Path) -> list[str]:
        return sorted(os.listdir(folder))

    def create(self, path: Path) -> int:
        """A new file; one of that name must not exist."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)

    def open(self, path: Path, write: bool = False) -> int:
        return os.open(path, (os.O_RDWR if write else os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC)

    def close(self, fd: int) -> None:
        os.close(fd)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def write(self, fd: int, data: bytes | memoryview, position: int) -> int:
        """How many bytes were written, which may be fewer than given."""
        return os.pwrite(fd, data, position)

    def read(self, fd: int, count: int, position: int) -> bytes:
        return os.pread(fd, count, position)

    def allocate(self, fd: int, position: int, count: int) -> None:
        os.posix_fallocate(fd, position, count)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        os.fdatasync(fd)

    def sync_folder(self, path: Path) -> None:
        """Make the names in a folder durable: a new file is not there after a power cut until this returns."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, path: Path, to: Path) -> None:
        os.rename(path, to)

    def remove(self, path: Path) -> None:
        os.unlink(path)


def write_all(disk: Disk, fd: int, data: bytes, position: int) -> None:
    """Write everything, however many calls that takes."""
    view = memoryview(data)
    while view:
        count = disk.write(fd, view, position)
        if count <= 0:
            raise OSError(0, f"wrote {count} bytes, expected up to {len(view)}")
        view = view[count:]
        position += count
