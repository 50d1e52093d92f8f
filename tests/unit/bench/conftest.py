"""The modules of `bench/`, for the tests here. The folder leaves the path again: its `spark` would hide the tests'."""

import importlib
import sys
from pathlib import Path

BENCH = str(Path(__file__).parents[3] / "bench")

sys.path.append(BENCH)
try:
    importlib.import_module("compare")  # and all that it imports
finally:
    sys.path.remove(BENCH)
