"""Which tests have their turn, and when: those marked `long`, which search rather than check, only when `-m` asks.

With TEST_PART=systems only those of whole systems do, and with TEST_PART=broker the others. With TEST_UNTIL, in seconds
since the epoch, a test that would begin later is left out, and its file named at the end.
"""

import os
import time
from collections import Counter

import pytest

from schedule import place

# What starts whole systems and waits for them, each file for half a minute or longer. All else is the broker's own.
SYSTEMS = (
    "tests/spark/",
    "tests/browser/",
    "tests/cluster/",
    "tests/service/",
    "tests/api/test_memory.py",
    "tests/crash/test_cut_snapshots.py",
    "tests/crash/test_killed_rooms.py",
    "tests/integration/test_backup.py",
    "tests/integration/test_bench_cluster.py",
    "tests/integration/test_bridges.py",
    "tests/integration/test_followers.py",
    "tests/integration/test_iceberg.py",
    "tests/integration/test_import.py",
    "tests/integration/test_migrate.py",
    "tests/integration/test_object_store.py",
    "tests/integration/test_pub_sub_cli.py",
    "tests/integration/test_retained_cli.py",
    "tests/integration/test_signals.py",
    "tests/integration/test_sn_lossy_network.py",
    "tests/integration/test_wall_clock.py",
    "tests/jepsen/test_rounds.py",
    "tests/security/test_erasure.py",
    "tests/security/test_http_limits.py",
    "tests/security/test_http_rights.py",
    "tests/security/test_left_behind.py",
    "tests/security/test_logins.py",
    "tests/security/test_memory_of_a_connection.py",
    "tests/security/test_revocation.py",
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
