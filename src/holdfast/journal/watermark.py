"""How far the journal is durable, for readers in other processes: one number in a shared page of memory.

After a restart it may be older than the truth, never newer: every sound record in the files counts then, but what is
damaged behind this offset may be a write that was cut short.
"""

import mmap
import os
import struct
from pathlib import Path

NAME = "durable"
NUMBER = struct.Struct("@Q")  # native and aligned: written in one piece, never seen half


class Watermark:
    """The writer holds it for writing, any number of readers for reading. It only grows while a writer runs."""

    def __init__(self, folder: Path, write: bool = False) -> None:
        flags = os.O_RDWR | os.O_CREAT if write else os.O_RDONLY
        fd = os.open(folder / NAME, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            if write:
                os.ftruncate(fd, NUMBER.size)
            self.page = mmap.mmap(fd, NUMBER.size, access=mmap.ACCESS_WRITE if write else mmap.ACCESS_READ)
        finally:
            os.close(fd)

    def get(self) -> int:
        offset: int = NUMBER.unpack_from(self.page)[0]
        return offset

    def set(self, offset: int) -> None:
        NUMBER.pack_into(self.page, 0, offset)

    def close(self) -> None:
        self.page.close()


def last_durable(folder: Path) -> int:
    """What the last writer said, 0 if nothing is known of it."""
    try:
        watermark = Watermark(folder)
    except (OSError, ValueError):  # there is none, or it is empty
        return 0
    try:
        return watermark.get()
    finally:
        watermark.close()
