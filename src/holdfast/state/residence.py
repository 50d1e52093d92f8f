"""Giving memory back: pages of the LMDB file that were read count as the process's until somebody says otherwise.

The pages stay in the system's cache, which it manages by itself; only this process's claim to them is dropped. A later
read gets them back. Linux only: elsewhere nothing happens, which costs nothing but a larger number in `top`.
"""

import ctypes
import os
from pathlib import Path

MAPS = Path("/proc/self/maps")
MADV_DONTNEED = 4


def release_pages(path: Path) -> int:
    """Let go of what is mapped of a file; how many bytes of address space that was. Takes a while: not on the loop."""
    try:
        lines = MAPS.read_text().splitlines()
    except OSError:
        return 0
    wanted = os.path.realpath(path)
    size = 0
    for line in lines:
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5] == wanted and "s" in fields[1]:
            start, end = (int(part, 16) for part in fields[0].split("-"))
            if ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), MADV_DONTNEED) == 0:
                size += end - start
    return size
