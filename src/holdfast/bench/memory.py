"""How much memory a broker's process holds, as the kernel sees it."""

import os
from pathlib import Path

from holdfast.errors import UsageError


def resident_bytes(pid: int) -> int:
    """The resident set of `pid`, swapped pages not included."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError as error:
        raise UsageError(f"cannot read the memory of process {pid}: {error.strerror}") from None
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")
