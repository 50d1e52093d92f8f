"""The tables of `make bench`: medians, ratios, targets, and what is said of brokers that are not there."""

import subprocess
import sys
from pathlib import Path

import pytest

from broker_process import serve_environment

BENCH = Path(__file__).parents[3] / "bench"


@pytest.fixture
def scenario_module(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.syspath_prepend(str(BENCH))
    import scenario

    return scenario


def test_more_is_better_and_less_is_better_both_give_times_better(scenario_module: object) -> None:
    rate = scenario_module.Figure("r", "rate", times=2)  # type: ignore[attr-defined]
    delay = scenario_module.Figure("d", "delay", more_is_better=False, times=2)  # type: ignore[attr-defined]
    assert rate.ratio(30, 10) == 3
    assert delay.ratio(10, 30) == 3
    assert rate.verdict(30, 10) is True
    assert delay.verdict(10, 15) is False
    assert rate.verdict(30, None) is None


def test_bounds_are_on_our_own_value(scenario_module: object) -> None:
    low = scenario_module.Figure("m", "memory", more_is_better=False, at_most=350)  # type: ignore[attr-defined]
    high = scenario_module.Figure("s", "setting", at_least=300_000)  # type: ignore[attr-defined]
    assert (low.verdict(350, None), low.verdict(351, None)) == (True, False)
    assert (high.verdict(300_000, None), high.verdict(299_999, None)) == (True, False)
    assert (low.target(), high.target()) == ("<= 350", ">= 300,000")


def test_outcome_takes_the_median_of_rounds(scenario_module: object) -> None:
    outcome = scenario_module.Outcome()  # type: ignore[attr-defined]
    for value in (5.0, 1.0, 3.0):
        outcome.add("Holdfast", {"r": value})
    assert outcome.median("Holdfast", "r") == 3.0
    assert outcome.median("mosquitto", "r") is None


def test_unknown_scenario_is_refused_before_anything_starts() -> None:
    done = subprocess.run(
        [sys.executable, str(BENCH / "compare.py"), "--only", "qos9"],
        env=serve_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "unknown scenario 'qos9', expected one of qos0, qos1" in done.stderr


def test_one_scenario_runs_against_holdfast_and_writes_its_figures(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    command = [sys.executable, str(BENCH / "compare.py"), "--only", "latency", "--peers", "holdfast", "--rounds", "1"]
    done = subprocess.run(
        [*command, "--json", str(figures)],
        env=serve_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "latency at 5 000 messages a second" in done.stdout
    assert '"p99_ms"' in figures.read_text()
