"""A unit test is a few milliseconds long. A process of its own takes a second, so here none can be started."""

import subprocess
from typing import NoReturn

import pytest


def refuse(*_: object, **__: object) -> NoReturn:
    raise AssertionError("a unit test starts no process: call what it runs, or move the test to tests/integration")


@pytest.fixture(autouse=True)
def no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess.Popen, "__init__", refuse)
