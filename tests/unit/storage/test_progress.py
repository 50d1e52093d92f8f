"""A start that takes its time says how far it is."""

import io
import logging
from itertools import pairwise

import pytest

from holdfast.storage.progress import StartProgress


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(logging.getLogger("holdfast"), "propagate", True)
    caplog.set_level(logging.INFO, logger="holdfast")
    return caplog


def test_a_quick_start_says_nothing(lines: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    progress = StartProgress(io.StringIO(), clock)
    for count in range(20):
        clock.now += 0.09
        progress("replaying the journal", count * 1000)
    progress.close()
    assert lines.records == []


def test_a_slow_start_says_once_a_second_what_it_does_and_how_fast(lines: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    progress = StartProgress(io.StringIO(), clock)
    progress("checking the state", 0)
    for count in range(1, 51):
        clock.now += 0.1
        progress("replaying the journal", count * 1000, 100_000)
    progress.close()
    assert {(r.getMessage(), r.step, r.of) for r in lines.records} == {  # type: ignore[attr-defined]
        ("recovering", "replaying the journal", 100_000)
    }
    counts = [r.done for r in lines.records]  # type: ignore[attr-defined]
    assert counts[0] in (20_000, 21_000)
    assert all(before + 10_000 <= after <= before + 11_000 for before, after in pairwise(counts))
    assert len(counts) in (3, 4)
    for record in lines.records:
        assert 10_000 <= record.per_second <= 11_000  # type: ignore[attr-defined]


def test_a_terminal_gets_a_bar(lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    clock = Clock()
    terminal = Terminal()
    progress = StartProgress(terminal, clock)
    for count in range(1, 6):
        clock.now += 1.0
        progress("loading retained messages", count * 1000, 5000)
    progress.close()
    assert "loading retained messages" in terminal.getvalue()
    assert "5,000 at" in terminal.getvalue()
    assert lines.records == []
