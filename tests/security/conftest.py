"""`guarded("rules")` starts a broker with users and an access file, and stops it when the test ends."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_process import MOSQUITTO, under_test
from guarded import Guarded

if under_test() == MOSQUITTO:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Callable[..., Guarded]]:
    started: list[Guarded] = []

    def start(rules: str | None = None, extra: str = "", **options: Any) -> Guarded:
        started.append(Guarded(tmp_path / f"guarded{len(started)}", rules, extra, **options))
        return started[-1]

    yield start
    for running in started:
        running.stop()
