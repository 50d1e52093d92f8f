"""Which tests must share a worker: those that share what takes long to start.

xdist's own groups rest on an id that newer versions of pytest do not let it change, so the groups are told by path.
"""

import pytest
from xdist.scheduler import LoadScopeScheduling

# One Spark session, one browser, one list of parts, one collection of all tests, cases that follow one another. Tests
# that start Spark as a process of its own can go elsewhere.
OWN_PROCESSES = ("tests/spark/test_exactly_once.py", "tests/spark/test_pipeline_cli.py")
SHARED = (
    "tests/spark/",
    "tests/browser/",
    "tests/service/",
    "tests/security/test_dependencies.py",
    "tests/conformance/test_clauses.py",
    "tests/conformance/test_retained_coverage.py",
)


def group_of(nodeid: str) -> str:
    for start in (*OWN_PROCESSES, *SHARED):
        if nodeid.startswith(start):
            return start
    return nodeid


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


@pytest.hookimpl(optionalhook=True)  # a run without xdist has no such hook
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> GroupScheduling:
    return GroupScheduling(config, log)
