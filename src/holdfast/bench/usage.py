"""What a broker's process uses of the machine, as the kernel counts it."""

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


def cpu_seconds(pid: int) -> float:
    """Processor time of `pid` and its threads so far, in user and kernel mode."""
    try:
        # the second field is the program's name in parentheses, which may hold spaces
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError as error:
        raise UsageError(f"cannot read the processor time of process {pid}: {error.strerror}") from None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
