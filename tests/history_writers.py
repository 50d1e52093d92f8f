"""Writers of history tables for tests. One that a test has left open is closed when the test ends."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.history.writer import HistoryWriter

opened: list[HistoryWriter] = []


def open_writer(folder: Path, kept_from: int = 0) -> HistoryWriter:
    opened.append(HistoryWriter(folder, folder.parent / "quarantine", kept_from))
    return opened[-1]


@pytest.fixture(autouse=True)
def no_writer_stays_open() -> Iterator[None]:
    yield
    while opened:
        opened.pop().close()
