"""Builds the hot set with mypyc; everything else about the package stands in pyproject.toml.

The hot set is the per-packet code: `protocol/`, `broker/` and `journal/record.py`. It is compiled as one group,
because calls between compilation units are slow. Without a C compiler, or with HOLDFAST_PURE=1, nothing is compiled
and the same code runs interpreted.
"""

import os
import shutil
from pathlib import Path

from setuptools import setup

HOT = ["src/holdfast/errors.py", "src/holdfast/protocol", "src/holdfast/broker", "src/holdfast/journal/record.py", "src/holdfast/bench/codec.py"]


def hot_files() -> list[str]:
    files: list[str] = []
    for name in HOT:
        path = Path(name)
        if path.is_dir():
            files += [str(p) for p in sorted(path.rglob("*.py")) if p.name != "__init__.py"]
        elif path.exists():
            files.append(str(path))
    return files


def extensions() -> list[object]:
    if os.environ.get("HOLDFAST_PURE") == "1":
        return []
    compiler = os.environ.get("CC", "cc").split()[0]
    if shutil.which(compiler) is None:
        print(f"holdfast: no C compiler ({compiler}) found, installing the interpreted build")
        return []
    from mypyc.build import mypycify

    return mypycify(["--config-file=pyproject.toml", *hot_files()], opt_level="3", group_name="holdfast")


setup(ext_modules=extensions())
