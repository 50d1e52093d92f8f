"""The table of clauses is complete: each has a test or a reason, and nearly all have a test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.clauses import CLAUSES, UNTESTABLE, VERSIONS, Key
from conformance.report import FOLDERS, ROOT, proofs, read_results

TESTED_SHARE = {"SN2.0": 0.85}  # a tenth of it is about the Protection Encapsulation
USUAL_SHARE = 0.95


@pytest.fixture(scope="module")
def tested(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> set[Key]:
    """The clauses that some test names: from this run if it holds all tests, else from a collection of its own."""
    session = request.session
    files = {
        file for folder in FOLDERS for file in (ROOT / folder).rglob("test_*.py") if "mark.clause(" in file.read_text()
    }
    chosen = session.config.option.keyword or session.config.option.markexpr
    if not chosen and files <= {item.path for item in session.items}:
        marks = [mark for item in session.items for mark in item.iter_markers("clause")]
        return {(mark.args[0], clause) for mark in marks for clause in mark.args[1:]}
    return collect(tmp_path_factory.mktemp("collected"))


def collect(folder: Path) -> set[Key]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", *FOLDERS],
        cwd=ROOT,
        env={**environment, "CONFORMANCE_RESULTS": str(folder)},
        capture_output=True,
        text=True,
    )
    last = "\n".join(done.stdout.splitlines()[-20:])
    assert done.returncode == 0, f"collecting {FOLDERS} ended with {done.returncode}:\n{last}\n{done.stderr}"
    return set(proofs(read_results(folder)))


@pytest.mark.parametrize("version", VERSIONS)
def test_every_clause_has_a_test_or_a_reason(version: str, tested: set[Key]) -> None:
    missing = [c.id for c in CLAUSES if c.version == version and c.key not in tested and c.key not in UNTESTABLE]
    assert missing == []


@pytest.mark.parametrize("version", VERSIONS)
def test_nearly_all_clauses_are_tested(version: str, tested: set[Key]) -> None:
    own = [clause for clause in CLAUSES if clause.version == version]
    share = sum(clause.key in tested for clause in own) / len(own)
    least = TESTED_SHARE.get(version, USUAL_SHARE)
    assert share >= least, f"expected at least {least:.0%} of {version} tested, got {share:.1%}"


def test_a_clause_with_a_test_is_not_called_untestable(tested: set[Key]) -> None:
    assert tested & set(UNTESTABLE) == set()


def test_reasons_belong_to_known_clauses() -> None:
    assert set(UNTESTABLE) - {clause.key for clause in CLAUSES} == set()


def test_clause_ids_are_unique() -> None:
    assert len({clause.key for clause in CLAUSES}) == len(CLAUSES)
