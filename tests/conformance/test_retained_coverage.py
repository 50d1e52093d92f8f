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
from conformance.test_retained_coverage import claims_of

class Collector:
    def pytest_collection_finish(self, session):
        print("\\nROWS " + json.dumps(claims_of(session)))

options = ["--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
sys.exit(pytest.main([*options, *sys.argv[1:]], [Collector()]))
"""


Claim = tuple[str, list[str], int | None]


def claims_of(session: pytest.Session) -> list[Claim]:
    """The tests that claim rows, the rows, and the version that each is for."""
    found: list[Claim] = []
    for item in session.items:
        rows = [row for mark in item.iter_markers("matrix") for row in mark.args]
        if rows:
            params = item.callspec.params if hasattr(item, "callspec") else {}
            found.append((item.nodeid, rows, params.get("version")))
    return found


@pytest.fixture(scope="module")
def claims(request: pytest.FixtureRequest) -> dict[str, set[str]]:
    """Row to the versions it is tested in, as the markers say: of this run if it holds all tests, else of another."""
    session = request.session
    files = {path for path in TESTS.rglob("test_*.py") if "pytest.mark.matrix(" in path.read_text()}
    chosen = session.config.option.keyword or session.config.option.markexpr
    whole = not chosen and files <= {item.path for item in session.items}
    found: dict[str, set[str]] = defaultdict(set)
    for name, rows, version in claims_of(session) if whole else collect(files):
        assert version in VERSIONS, f"{name} claims {rows} and needs a `version` of {list(VERSIONS)}, got {version}"
        for row in rows:
            found[row].add(VERSIONS[version])
    return found


def collect(files: set[Path]) -> list[Claim]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-c", COLLECTOR, *map(str, sorted(files))],
        cwd=TESTS.parent,
        env={**environment, "PYTHONPATH": os.pathsep.join([str(TESTS), environment.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("ROWS ")]
    assert lines, f"expected the collected rows, got exit code {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return [(name, rows, version) for name, rows, version in json.loads(lines[0].removeprefix("ROWS "))]


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
