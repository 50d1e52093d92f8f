"""What figures were measured on, to be written down beside them."""

import os
import platform
from pathlib import Path


def describe() -> dict[str, object]:
    return {
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def file_system(folder: Path) -> str:
    """The kind of file system that `folder` is on, such as ext4 or tmpfs."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    above = {str(parent) for parent in (folder.resolve(), *folder.resolve().parents)}
    return max((len(point), kind) for point, kind in mounts if point in above)[1]
