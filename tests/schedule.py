"""Which tests must share a worker, because they share what takes long to start; and who begins first.

xdist's own groups rest on an id that newer versions of pytest do not let it change, so the groups are told by path.
"""

import pytest
from xdist.scheduler import LoadScopeScheduling

from failures import tell_failures_at_once

# One browser, one list of parts, cases that follow one another; and two Spark sessions, since one alone would be the
# last to end.
SECOND_SPARK = tuple(
    f"tests/spark/test_{name}.py"
    for name in ("exactly_once", "pipeline_cli", "tables", "jobs", "damage", "moving", "failure")
)
SHARED = ("tests/spark/", "tests/browser/", "tests/service/", "tests/security/test_dependencies.py")
# Brokers with settings of their own, started once for all tests of a file that ask for them.
SHARED_BY_FILE = ("tests/conformance/", "tests/api/", "tests/unit/")
# What takes longest begins first, so that no worker is left alone with it at the end.
FIRST = (
    "tests/spark/",
    "tests/browser/",
    "tests/service/",
    "tests/crash/",
    "tests/jepsen/test_rounds.py",
    "tests/conformance/test_retained_disk.py",
    "tests/conformance/test_retained_snapshot.py",
    "tests/api/test_openapi.py",
    "tests/model/",
    "tests/integration/",
    "tests/security/",
    "tests/property/",
)


def group_of(nodeid: str) -> str:
    if nodeid.startswith(SECOND_SPARK):
        return "tests/spark/ of the second session"
    for start in SHARED:
        if nodeid.startswith(start):
            return start
    return nodeid.partition("::")[0] if nodeid.startswith(SHARED_BY_FILE) else nodeid


def place(nodeid: str) -> int:
    return next((at for at, start in enumerate(FIRST) if nodeid.startswith(start)), len(FIRST))


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def pytest_configure(config: pytest.Config) -> None:
    config.option.loadscopereorder = False  # it would begin with the groups of many tests, however short they are
    tell_failures_at_once(config)


@pytest.hookimpl(optionalhook=True)  # a run without xdist has no such hook
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> GroupScheduling:
    return GroupScheduling(config, log)
