"""Collects which test proves which clause, for the completeness test and for the report.

With CONFORMANCE_RESULTS set to a folder, each process of the run (one per xdist worker) writes what it knows there;
`report.py` merges the files.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from broker_process import MOSQUITTO, under_test
from conformance.clauses import BY_KEY
from conformance.mosquitto import KNOWN_DEVIATIONS

RESULTS_FOLDER = "CONFORMANCE_RESULTS"

_clauses: dict[str, list[list[str]]] = {}
_outcomes: dict[str, str] = {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        keys = [(mark.args[0], clause) for mark in item.iter_markers("clause") for clause in mark.args[1:]]
        unknown = [key for key in keys if key not in BY_KEY]
        if unknown:
            raise pytest.UsageError(f"{item.nodeid} names clauses that do not exist: {unknown}")
        if keys:
            _clauses[item.nodeid] = [list(key) for key in keys]
        if under_test() == MOSQUITTO:
            for start, instead in KNOWN_DEVIATIONS.items():
                if item.name.startswith(start):
                    item.add_marker(pytest.mark.xfail(reason=f"mosquitto {instead}", strict=False))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.nodeid in _clauses and (report.when == "call" or report.outcome != "passed"):
        # A failing teardown must not be hidden by the passing call before it.
        if _outcomes.get(report.nodeid) != "failed":
            _outcomes[report.nodeid] = report.outcome


def pytest_sessionfinish() -> None:
    folder = os.environ.get(RESULTS_FOLDER)
    if folder and _clauses:
        worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
        rows = {
            nodeid: {"clauses": keys, "outcome": _outcomes.get(nodeid, "not run")} for nodeid, keys in _clauses.items()
        }
        Path(folder, f"{worker}.json").write_text(json.dumps(rows))
