"""Gives compiled wheels the name that package indexes ask for: `manylinux_2_N`, with N from what is inside.

Run by `scripts/wheels`. A wheel may be called so when its modules link to libraries that every Linux has and ask them
for no symbol newer than glibc 2.N (PEP 600). Ours link to the C library alone, so looking is enough and nothing has
to be packed in; one that links to anything else is refused.
"""

import platform
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

# Of the libraries that PEP 600 allows, those that a compiled Python module has a reason to name.
ALLOWED = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1"}
ALLOWED |= {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
OLDEST = 17  # what today's package indexes and installers still know under that name


class Refused(Exception):
    pass


def needed(headers: str) -> tuple[set[str], int]:
    """The libraries that a module links to, and the glibc 2.N that it needs, from the output of `objdump -p`."""
    libraries = set(re.findall(r"^\s*NEEDED\s+(\S+)$", headers, re.MULTILINE))
    versions = [int(minor) for minor in re.findall(r"\bGLIBC_2\.(\d+)", headers)]
    return libraries, max(versions, default=0)


def glibc_of(wheel: Path) -> int:
    """The glibc 2.N from which on a wheel runs. Raises Refused."""
    newest = OLDEST
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        modules = [name for name in archive.namelist() if name.endswith(".so")]
        if not modules:
            raise Refused(f"{wheel.name} has no compiled module, expected some")
        for name in modules:
            path = archive.extract(name, folder)
            headers = subprocess.run(["objdump", "-p", path], capture_output=True, text=True, check=True).stdout
            libraries, glibc = needed(headers)
            if not libraries <= ALLOWED:
                raise Refused(f"{name} links to {', '.join(sorted(libraries - ALLOWED))}, expected the C library alone")
            newest = max(newest, glibc)
    return newest


def main(wheels: list[str]) -> int:
    for wheel in wheels:
        try:
            tag = f"manylinux_2_{glibc_of(Path(wheel))}_{platform.machine()}"
        except Refused as refused:
            print(f"wheels: {refused}", file=sys.stderr)
            return 1
        done = [sys.executable, "-m", "wheel", "tags", "--remove", "--platform-tag", tag, wheel]
        subprocess.run(done, check=True, capture_output=True)
        print(f"wheels: {Path(wheel).name} runs with glibc 2.{tag.split('_')[2]} and newer")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
