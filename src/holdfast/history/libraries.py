"""What a process that does nothing but the history loads, and how it treats memory.

Arrow loads pandas and numpy wherever they are installed, as they are beside Spark, for data frames that nobody makes
here. Without them it is loaded in a quarter of the processor time and takes 50 MB less.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

UNUSED = ("numpy", "pandas")

# For the environment of such a process: what is freed goes back to the system, whichever thread had it.
GIVES_MEMORY_BACK = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "2",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 20),
}


class UnusedFinder:
    """A finder in front of Python's own. Its base class in `importlib.abc` would cost the followers a megabyte."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in UNUSED:
            raise ModuleNotFoundError(f"{fullname} is not used by this process", name=fullname)
        return None


def load_arrow_alone() -> None:
    """Call before Arrow is loaded, in a process of our own: nothing in it can import these afterwards."""
    sys.meta_path.insert(0, UnusedFinder())
