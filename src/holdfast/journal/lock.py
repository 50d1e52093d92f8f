"""One broker for one data folder: a lock that the system gives back however its holder ends."""

import fcntl
import os
from pathlib import Path

from holdfast.errors import StoreError

NAME = "lock"


class FolderLock:
    """Held from construction to `release`. A second one on the same folder raises."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.fd = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self.fd, 32, 0).decode(errors="replace").strip()
            os.close(self.fd)
            who = f"process {holder}" if holder else "another process"
            raise StoreError(f"data folder {folder} is in use by {who}: one folder serves one broker") from None
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
