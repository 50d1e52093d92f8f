"""The matrix and the tests keep each other honest: every row has a test in each of its versions, or a reason."""

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from conformance.matrix import ROWS

TESTS = Path(__file__).parent.parent
VERSIONS = {4: "3.1.1", 5: "5.0"}

# Run inside a pytest of its own, because this run may have been asked for a part of the tests only.
COLLECTOR = """
import json, sys, pytest

class Collector:
    def pytest_collection_finish(self, session):
        found = []
        for item in session.items:
            rows = [row for mark in item.iter_markers("matrix") for row in mark.args]
            if rows:
                params = item.callspec.params if hasattr(item, "callspec") else {}
                found.append([item.nodeid, rows, params.get("version")])
        print("\\nROWS " + json.dumps(found))

options = ["--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
sys.exit(pytest.main([*options, *sys.argv[1:]], [Collector()]))
"""


@pytest.fixture(scope="module")
def claims() -> dict[str, set[str]]:
    """Row to the versions it is tested in, as the markers say."""
    files = [str(path) for path in sorted(TESTS.rglob("test_*.py")) if "pytest.mark.matrix" in path.read_text()]
    files.remove(__file__)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-c", COLLECTOR, *files],
        cwd=TESTS.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("ROWS ")]
    assert lines, f"expected the collected rows, got exit code {done.returncode}:\n{done.stdout}\n{done.stderr}"
    found: dict[str, set[str]] = defaultdict(set)
    for name, rows, version in json.loads(lines[0].removeprefix("ROWS ")):
        assert version in VERSIONS, f"{name} claims {rows} and needs a `version` of {list(VERSIONS)}, got {version}"
        for row in rows:
            found[row].add(VERSIONS[version])
    return found


def test_every_row_has_a_test_in_each_of_its_versions_or_a_reason(claims: dict[str, set[str]]) -> None:
    missing = {
        row.id: sorted(set(row.versions) - claims.get(row.id, set()))
        for row in ROWS
        if not row.later and not set(row.versions) <= claims.get(row.id, set())
    }
    assert missing == {}


def test_a_row_with_a_reason_has_no_test_that_makes_the_reason_wrong(claims: dict[str, set[str]]) -> None:
    assert [row.id for row in ROWS if row.later and row.id in claims] == []


def test_tests_name_only_rows_that_exist(claims: dict[str, set[str]]) -> None:
    assert sorted(set(claims) - {row.id for row in ROWS}) == []


def test_row_ids_are_unique() -> None:
    ids = [row.id for row in ROWS]
    assert len(ids) == len(set(ids))
