"""Which tests have their turn, and when: those marked `long`, which search rather than check, only when `-m` asks.

With TEST_UNTIL, in seconds since the epoch, a test that would begin later is left out, and named at the end.
"""

import os
import time

import pytest

from schedule import place

UNTIL = float(os.environ.get("TEST_UNTIL", "inf"))
NO_TURN = "did not get its turn"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: place(item.nodeid))
    if "long" in config.option.markexpr:
        return
    left_out = [item for item in items if item.get_closest_marker("long")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("long")]


def pytest_runtest_setup() -> None:
    if time.time() > UNTIL:
        pytest.skip(NO_TURN)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    names = [report.nodeid for report in skipped if NO_TURN in str(report.longrepr)]
    if names:
        terminalreporter.section(f"{len(names)} tests did not get their turn")
        for name in names:
            terminalreporter.line(name)
