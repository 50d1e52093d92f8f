"""Builds the hot set with mypyc; everything else about the package stands in pyproject.toml.

The hot set is the per-packet code. It is compiled as one group, because calls between groups are slow. The load
generator's codec calls nothing of it, so it is a group of its own. Each module of a group is one C file, so that all
cores compile and none needs the memory for all of it. Symbols are hidden, so that calls between the files are direct.
Without a C compiler or Python's headers, or with HOLDFAST_PURE=1, nothing is compiled and the same code runs
interpreted.
"""

import hashlib
import os
import shutil
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

GROUPS = {
    "holdfast": [
        "src/holdfast/errors.py",
        "src/holdfast/rules",
        "src/holdfast/protocol",
        "src/holdfast/broker",
        "src/holdfast/journal/record.py",
        "src/holdfast/journal/log.py",
    ],
    "holdfast_bench": ["src/holdfast_bench/codec.py"],
}


def hot_files(*groups: str) -> list[str]:
    """Returns the sources that are compiled, of the named groups or of all."""
    files: list[str] = []
    for path in [Path(name) for group in groups or GROUPS for name in GROUPS[group]]:
        if path.is_dir():
            files += [str(p) for p in sorted(path.rglob("*.py")) if p.name != "__init__.py"]
        elif path.exists():
            files.append(str(path))
    return files


def digest() -> str:
    """Names what a compiled build is made from, so that one made from something else can be told to be stale."""
    total = hashlib.sha256(f"{sys.version} {sysconfig.get_platform()} {os.environ.get('CFLAGS', '')}".encode())
    for name in ["setup.py", "pyproject.toml", *hot_files()]:
        total.update(name.encode() + b"\0" + hashlib.sha256(Path(name).read_bytes()).digest())
    return total.hexdigest()[:16]


def why_interpreted() -> str:
    """What keeps this machine from compiling; empty when nothing does."""
    if os.environ.get("HOLDFAST_PURE") == "1":
        return "HOLDFAST_PURE=1 is set"
    compiler = os.environ.get("CC", "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"no C compiler ({compiler}) found"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "Python's C headers are not installed (Debian: python3-dev)"
    return ""


def extensions() -> list[Any]:
    reason = why_interpreted()
    if reason:
        print(f"holdfast: {reason}: installing the interpreted build")
        return []
    from mypyc.build import mypycify

    found = []
    for group in GROUPS:
        options = ["--config-file=pyproject.toml", *hot_files(group)]
        found += mypycify(options, opt_level="3", debug_level="0", multi_file=True, group_name=group)
    for extension in found:
        extension.extra_compile_args = [*extension.extra_compile_args, "-fvisibility=hidden"]  # they share a list
    return found


def commands() -> dict[str, Any]:
    from setuptools.command.build_ext import build_ext

    class BuildOnAllCores(build_ext):  # type: ignore[misc]  # it has no types
        """Compiles extensions, and the sources of each, side by side; the largest source first, to end together."""

        def build_extensions(self) -> None:
            cores = len(os.sched_getaffinity(0))
            compile_in_order = self.compiler.compile

            def compile_together(sources: list[str], **options: Any) -> list[str]:
                largest_first = sorted(sources, key=lambda source: Path(source).stat().st_size, reverse=True)
                with ThreadPoolExecutor(cores) as workers:
                    made = workers.map(lambda source: compile_in_order([source], **options), largest_first)
                    return [file for files in made for file in files]

            self.compiler.compile = compile_together
            self.parallel = cores
            super().build_extensions()

    return {"build_ext": BuildOnAllCores}


if __name__ == "__main__":
    from setuptools import setup

    setup(ext_modules=extensions(), cmdclass=commands())
