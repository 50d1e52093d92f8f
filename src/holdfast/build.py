"""Which build is running: the compiled hot set, or the same code interpreted.

`HOLDFAST_PURE=1` asks for the interpreted one at run time, next to a compiled install: a finder in front of Python's
own answers for the compiled packages with their source files, so that no compiled module is ever loaded.
"""

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType


class SourceFinder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(("holdfast.", "holdfast_bench.")) or path is None:
            return None
        for folder in path:
            source = Path(folder) / (fullname.rpartition(".")[2] + ".py")
            if source.exists():
                return importlib.util.spec_from_file_location(fullname, source)
        return None


def prefer_source() -> None:
    if not any(isinstance(finder, SourceFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, SourceFinder())


def is_compiled() -> bool:
    from holdfast import errors

    return not str(errors.__file__).endswith(".py")


def name() -> str:
    return "compiled" if is_compiled() else "interpreted"
