"""What the pipeline's commands print of topics and payloads: the same characters, and nothing a terminal would obey."""

from typing import Any

import pytest

from holdfast.cli.pipeline_display import print_differences, print_plan, print_retained, print_stats

TOPIC = "site/[bold]/[1]\\[2]/\x1b[31m"
SHOWN = "site/[bold]/[1]\\[2]/·[31m"
STATS = dict.fromkeys(("messages", "bytes", "topics", "publishers", "retained", "retained_bytes"), 1)
TABLE = {"files": 3, "bytes": 3 << 20, "smallest": 900, "largest": 2 << 20, "replaced_files": 0, "replaced_bytes": 0}
NEVER = {**TABLE, "last_compaction": None}


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def test_topics_of_a_dry_run_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    print_plan([{"action": "set", "topic": TOPIC}])
    assert capsys.readouterr().out == f"set   {SHOWN}\n"


def test_topics_that_limits_would_refuse_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = {"limits": {"size": 1}, "retained": 0, "bytes": 0, "peak": 0, "refused": {}, "topics": [(TOPIC, 7)]}
    found = {**STATS, "first": None, "last": None, "outcomes": {}, "table": NEVER, "tables": {}}
    print_stats({**found, "what_if": outcome})
    assert capsys.readouterr().out.endswith(f"       7 refused on {SHOWN}\n")


def test_topics_in_tables_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"topic": TOPIC, "payload": b"[red]", "qos": 1, "timestamp": None, "expires_at": None, "client_id": None}
    print_retained([row], 1, False)
    print_differences([{"topic": TOPIC, "problem": "payload", "expected": "[a]", "got": None}], 1)
    out = capsys.readouterr().out
    assert out.count(SHOWN) == 2
    assert "[red]" in out
    assert "[a]" in out


def test_files_sizes_and_the_gain_of_the_last_compaction_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    gain = {"files": 40, "bytes": 5 << 20, "files_after": 1, "bytes_after": 2 << 20, "at_ms": 1_700_000_000_000}
    found: dict[str, Any] = {**STATS, "first": None, "last": None, "outcomes": {}, "tables": {}}
    print_stats({**found, "table": {**TABLE, "replaced_files": 40, "replaced_bytes": 5 << 20, "last_compaction": gain}})
    out = capsys.readouterr().out
    assert "3, 3.0 MiB, 900 bytes to 2.0 MiB each" in out
    assert "40, 5.0 MiB, deleted when history.keep_replaced has passed" in out
    assert "2023-11-14T22:13:20+00:00: 40 files, 5.0 MiB became 1 files, 2.0 MiB" in out
    print_stats({**found, "table": NEVER})
    assert "last compaction  none yet" in capsys.readouterr().out
    kept = {"retained": {**NEVER, "rows": 1234}, "readings": {**TABLE, "rows": None, "last_compaction": gain}}
    print_stats({**found, "table": NEVER, "tables": kept})
    *_, heading, retained, readings = capsys.readouterr().out.splitlines()
    assert heading.split() == ["table", "rows", "files", "size", "replaced", "files", "last", "compaction"]
    assert retained.split() == ["retained", "1,234", "3", "3.0", "MiB", "-", "none", "yet"]
    assert readings.startswith("readings      ?      3  3.0 MiB")
    assert readings.endswith(": 40 files, 5.0 MiB became 1 files, 2.0 MiB")
