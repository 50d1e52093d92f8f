"""The report tells the truth about a run."""

import json
from pathlib import Path

from conformance.clauses import CLAUSES, UNTESTABLE
from conformance.report import page, proofs, read_results, verdict

FIRST = CLAUSES[0]


def write(folder: Path, worker: str, rows: dict[str, str]) -> None:
    results = {name: {"clauses": [list(FIRST.key)], "outcome": outcome} for name, outcome in rows.items()}
    (folder / f"{worker}.json").write_text(json.dumps(results))


def test_results_of_workers_are_merged(tmp_path: Path) -> None:
    write(tmp_path, "gw0", {"tests/a.py::test_x[1]": "passed", "tests/a.py::test_x[2]": "not run"})
    write(tmp_path, "gw1", {"tests/a.py::test_x[1]": "not run", "tests/a.py::test_x[2]": "failed"})
    assert proofs(read_results(tmp_path))[FIRST.key] == {"a.py::test_x": ["passed", "failed"]}


def test_one_failing_case_fails_the_clause() -> None:
    assert verdict(["passed", "failed", "passed"]) == "failed"
    assert verdict(["passed", "not run"]) == "not run"
    assert verdict(["passed", "skipped"]) == "passed"
    assert verdict(["skipped"]) == "skipped"


def test_page_lists_every_clause_with_its_result(tmp_path: Path) -> None:
    write(tmp_path, "main", {"tests/a.py::test_x": "passed"})
    text = page(read_results(tmp_path))
    rows = {
        line.split(" | ")[0].removeprefix("| "): line
        for line in text.splitlines()
        if line.startswith(("| MQTT-", "| SN12-"))
    }
    assert {clause.id for clause in CLAUSES} == set(rows)
    assert f"| {FIRST.id} | {FIRST.rule} | `a.py::test_x` | passed |" in text
    for (_, clause), reason in UNTESTABLE.items():
        assert f"| {clause} |" in text
        assert f"not testable: {reason}" in text
    assert text.count("| missing |") == len(CLAUSES) - len(UNTESTABLE) - 1
