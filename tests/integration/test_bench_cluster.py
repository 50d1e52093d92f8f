"""The scenarios of a cluster, with little of everything: that they run on real clusters and measure all they name."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NODES, SERVERS = "Holdfast, three nodes", "nats-server, three servers"
BOTH = (NODES, SERVERS)

pytestmark = pytest.mark.timeout(550)


def measured(name: str, brokers: tuple[str, ...], folder: Path) -> dict[str, dict[str, float]]:
    """The figures of one round of a scenario, by broker."""
    peers = " ".join(sorted({broker.partition(",")[0] for broker in brokers}))
    figures = folder / "bench.json"
    command = [sys.executable, "bench/compare.py", "--quick", "--rounds", "1", "--only", name]
    command += ["--json", str(figures), "--markdown", str(folder / "bench.md")]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PEERS": peers}, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(figures.read_text())["scenarios"][name]
    assert found["problems"] == {}, done.stdout
    return {broker: rounds[0] for broker, rounds in found["rounds"].items()}


@pytest.mark.parametrize(
    ("name", "brokers", "positive"),
    [
        ("cluster-publish", BOTH, ("acknowledged_per_s", "cpu_us")),
        ("cluster-roundtrip", BOTH, ("p50_ms", "p95_ms", "bare_p50_ms", "bare_p95_ms", "to_bare")),
        ("cluster-live", BOTH, ("received_per_s", "cpu_us")),
        ("cluster-snapshot", ("Holdfast", NODES), ("snapshot_per_s",)),
        # how long nats-server takes to recover is not for a test to judge
        ("cluster-node", (NODES,), ("usual_gap_ms", "gap_ms", "resumed_s")),
        ("cluster-leader", (NODES,), ("standstill_s", "written")),
        ("cluster-join", (NODES,), ("join_s", "before_per_s", "meanwhile_per_s")),
    ],
)
def test_scenario_of_a_cluster_measures_all_its_figures(
    name: str, brokers: tuple[str, ...], positive: tuple[str, ...], tmp_path: Path
) -> None:
    found = measured(name, brokers, tmp_path)
    assert sorted(found) == sorted(brokers)
    for broker, figures in found.items():
        assert [key for key in positive if figures[key] <= 0] == [], (broker, figures)
    if name == "cluster-leader":
        assert found[NODES]["lost"] == 0
