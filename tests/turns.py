"""Which tests have their turn, and when: those marked `long`, which search rather than check, only when `-m` asks.

With TEST_PART=systems only those that need another system have one, and with TEST_PART=broker the others. With
TEST_UNTIL, in seconds since the epoch, a test that would begin later is left out, and its file named at the end.
"""

import os
import time
from collections import Counter

import pytest

from schedule import place

# What needs another system: Spark, a browser, a cluster, another broker. All else is the broker's own.
SYSTEMS = (
    "tests/spark/",
    "tests/browser/",
    "tests/cluster/",
    "tests/jepsen/test_rounds.py",
    "tests/integration/test_bench_cluster.py",
    "tests/integration/test_bridges.py",
    "tests/integration/test_import.py",
    "tests/integration/test_migrate.py",
)
PARTS = ("", "broker", "systems")
PART = os.environ.get("TEST_PART", "")
UNTIL = float(os.environ.get("TEST_UNTIL", "inf"))
NO_TURN = "did not get its turn"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: place(item.nodeid))
    if "long" in config.option.markexpr:
        return
    left_out = [item for item in items if item.get_closest_marker("long") or not is_in_part(item.nodeid)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


def is_in_part(nodeid: str) -> bool:
    assert PART in PARTS, f"TEST_PART is {PART!r}, expected one of {', '.join(PARTS)}"
    return not PART or nodeid.startswith(SYSTEMS) == (PART == "systems")


def pytest_runtest_setup() -> None:
    if time.time() > UNTIL:
        pytest.skip(NO_TURN)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    files = Counter(report.nodeid.partition("::")[0] for report in skipped if NO_TURN in str(report.longrepr))
    if files:
        terminalreporter.section(f"{files.total()} tests did not get their turn")
        for file, count in sorted(files.items()):
            terminalreporter.line(f"{file}: {count}")
