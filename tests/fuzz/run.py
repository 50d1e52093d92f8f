"""Run one target under atheris: `python tests/fuzz/run.py TARGET [libFuzzer options] [corpus folders]`.

Without a corpus folder the one in the tree is read, and new inputs go to a temporary folder. What makes a target fail
is written to the current folder; put it into tests/fuzz/findings/TARGET, where it stays a test.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

HERE = Path(__file__).parent
os.environ["HOLDFAST_PURE"] = "1"  # compiled code gives a fuzzer nothing to be guided by
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent / "src")]


def own_functions() -> Iterator[FunctionType]:
    """Every function and method of this package that is loaded. An import hook would meet the one for HOLDFAST_PURE."""
    for name, module in list(sys.modules.items()):
        if name.startswith("holdfast."):
            for value in list(vars(module).values()):
                members = list(vars(value).values()) if isinstance(value, type) else [value]
                for member in members:
                    function = getattr(member, "fget", getattr(member, "__func__", member))
                    if isinstance(function, FunctionType) and function.__module__ == name:
                        yield function


def main() -> None:
    import atheris

    from fuzz.targets import TARGETS

    for function in own_functions():
        atheris.instrument_func(function)
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in TARGETS:
        sys.exit(f"expected one of {', '.join(TARGETS)}, got {name!r}")
    options = sys.argv[2:]
    if not any(not option.startswith("-") for option in options):
        options = [*options, tempfile.mkdtemp(prefix="holdfast-fuzz-"), str(HERE / "corpus" / name)]
        findings = HERE / "findings" / name
        options += [str(findings)] if findings.is_dir() else []
    atheris.Setup([sys.argv[0], *options], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
