"""What the pipeline's commands print of topics and payloads: the same characters, and nothing a terminal would obey."""

import pytest

from holdfast.cli.pipeline_display import print_differences, print_plan, print_retained, print_stats

TOPIC = "site/[bold]/[1]\\[2]/\x1b[31m"
SHOWN = "site/[bold]/[1]\\[2]/·[31m"
STATS = dict.fromkeys(("messages", "bytes", "topics", "publishers", "retained", "retained_bytes"), 1)


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def test_topics_of_a_dry_run_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    print_plan([{"action": "set", "topic": TOPIC}])
    assert capsys.readouterr().out == f"set   {SHOWN}\n"


def test_topics_that_limits_would_refuse_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = {"limits": {"size": 1}, "retained": 0, "bytes": 0, "peak": 0, "refused": {}, "topics": [(TOPIC, 7)]}
    print_stats({**STATS, "first": None, "last": None, "outcomes": {}, "what_if": outcome})
    assert capsys.readouterr().out.endswith(f"       7 refused on {SHOWN}\n")


def test_topics_in_tables_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"topic": TOPIC, "payload": b"[red]", "qos": 1, "timestamp": None, "expires_at": None, "client_id": None}
    print_retained([row], 1, False)
    print_differences([{"topic": TOPIC, "problem": "payload", "expected": "[a]", "got": None}], 1)
    out = capsys.readouterr().out
    assert out.count(SHOWN) == 2
    assert "[red]" in out
    assert "[a]" in out
