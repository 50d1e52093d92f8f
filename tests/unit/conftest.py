"""A unit test is a few milliseconds long. A process of its own takes a second, so here none can be started; and what it
leaves open is missing to those that follow in the same worker.
"""

import gc
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

PATIENCE_S = 30.0


def refuse(*_: object, **__: object) -> NoReturn:
    raise AssertionError("a unit test starts no process: call what it runs, or move the test to tests/integration")


@pytest.fixture(autouse=True)
def no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess.Popen, "__init__", refuse)


@pytest.fixture(autouse=True)
def no_open_files(request: pytest.FixtureRequest) -> Iterator[None]:
    folder: Path | None = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    yield
    deadline = time.monotonic() + PATIENCE_S
    while folder is not None and (left := open_below(folder)):
        assert time.monotonic() < deadline, f"a test closes what it has opened, here {left}"
        gc.collect()
        time.sleep(0.05)  # libraries close some of theirs in threads of their own


def open_below(folder: Path) -> list[str]:
    """The files below a folder that this process has open."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink(f"/proc/self/fd/{descriptor}")
        except FileNotFoundError:  # that of the listing itself
            continue
        if Path(name).is_relative_to(folder):
            found.append(name)
    return sorted(found)
