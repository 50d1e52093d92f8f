"""The examples of the guide run as they stand, against a table that the writer made."""

import re
from pathlib import Path

import pytest

from holdfast.broker.message import CLEARED
from holdfast.history.writer import HistoryWriter
from log_records import retained

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "query-history.md"
NOON_MS = 1_769_860_800_000  # 31 January 2026, noon, UTC


def examples() -> dict[str, str]:
    """The Python block of each section, by the section's title."""
    sections = [section.split("\n", 1) for section in GUIDE.read_text().split("\n## ")[1:]]
    blocks = {title: re.search(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL) for title, text in sections}
    return {title: found[1] for title, found in blocks.items() if found is not None}


@pytest.fixture(autouse=True)
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    writer = HistoryWriter(tmp_path / "data" / "history", tmp_path / "data" / "quarantine")
    writer.append(
        [
            retained("a/kept", b"yes", 1, at_ms=NOON_MS - 5000),
            retained("a/cleared", b"no", 2, at_ms=NOON_MS - 4000),
            retained("a/cleared", b"", 3, outcome=CLEARED, at_ms=NOON_MS - 3000),
            retained("a/expired", b"no", 4, at_ms=NOON_MS - 2000, expires_at_ms=NOON_MS),
            retained("a/later", b"no", 5, at_ms=NOON_MS + 1000),
        ],
        5,
    )
    writer.close()


def run(title: str, capsys: pytest.CaptureFixture[str]) -> str:
    exec(compile(examples()[title], str(GUIDE), "exec"), {})
    return capsys.readouterr().out


def test_the_guide_has_an_example_for_each_engine() -> None:
    """All but Iceberg's are run below. Its second way, by the hint, is what tests/integration/test_iceberg.py does."""
    assert list(examples()) == ["Python: deltalake", "DuckDB", "Polars", "Spark", "Iceberg"]


def test_the_deltalake_example_prints_the_rows(capsys: pytest.CaptureFixture[str]) -> None:
    assert "a/later" in run("Python: deltalake", capsys)


def test_the_duckdb_example_prints_the_retained_set_of_that_moment(capsys: pytest.CaptureFixture[str]) -> None:
    out = run("DuckDB", capsys)
    assert "a/kept" in out
    assert not {"a/cleared", "a/expired", "a/later"} & set(re.findall(r"a/\w+", out))


def test_the_polars_example_counts_publishes(capsys: pytest.CaptureFixture[str]) -> None:
    out = run("Polars", capsys)
    assert re.search(r"a/cleared\s*┆\s*2\s*┆\s*1", out)
