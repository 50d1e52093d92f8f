"""Commands whose files are compacted and vacuumed after they were planned: the answer is the same."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from holdfast.cli import pipeline
from holdfast.cli.main import build_app
from holdfast.cli.pipeline_setup import spark_in_one_sentence
from holdfast.errors import StoreError, UsageError
from holdfast.spark.failure import ATTEMPTS, retry_on_vacuumed_files
from holdfast.spark.keeper import Keeper, history_frame
from holdfast.spark.ranges import History
from spark.publishes import oracle, publishes, write_history

ROWS = publishes(600, topics=30, seed=81)
MORE = publishes(100, topics=30, seed=82, first=len(ROWS) + 1, start=ROWS[-1]["timestamp"])
RETAINED = oracle(ROWS, moment=ROWS[-1]["timestamp"]).keys()

Invoke = Callable[..., Result]


def move(history: Path) -> None:
    table = DeltaTable(history)
    table.optimize.compact()
    assert table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


@pytest.fixture
def history(tmp_path: Path) -> Path:
    write_history(tmp_path / "history", ROWS, files=8)
    return tmp_path / "history"


@pytest.fixture
def invoke(spark: SparkSession, tmp_path: Path, history: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Run a command in the session that is there; history moves while Spark starts."""

    @contextmanager
    def starting(*_flags: object) -> Iterator[SparkSession]:
        move(history)
        with spark_in_one_sentence(False):
            yield spark

    monkeypatch.setattr(pipeline, "session", starting)

    def run(*words: str) -> Result:
        done = CliRunner().invoke(build_app("pipeline"), ["pipeline", *words, "--data", str(tmp_path)])
        assert done.exception is None, done.exception
        return done

    return run


def test_statistics_count_each_row(invoke: Invoke) -> None:
    assert json.loads(invoke("stats", "--json").stdout)["messages"] == len(ROWS)


@pytest.mark.parametrize("at", [str(len(ROWS)), ROWS[-1]["timestamp"].isoformat()])
def test_a_replay_gives_the_set(invoke: Invoke, at: str) -> None:
    shown = invoke("retained", "--replay", "--at", at, "--json", "--limit", "1000").stdout
    assert {json.loads(line)["topic"] for line in shown.splitlines()} == RETAINED


def test_a_replay_is_written_whole(invoke: Invoke, spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out" / "set.parquet"
    invoke("retained", "--replay", "--at", str(len(ROWS)), "--out", str(out))
    assert {row.topic for row in spark.read.parquet(str(out)).collect()} == RETAINED
    assert list(out.parent.iterdir()) == [out]


def test_an_audit_finds_no_difference(invoke: Invoke, spark: SparkSession, tmp_path: Path, history: Path) -> None:
    keeper = Keeper(spark, str(history), str(tmp_path / "pipeline"))
    keeper.advance("retained", 10_000)
    keeper.close()
    assert "all the same" in invoke("audit").stdout


def test_a_report_counts_each_row(
    invoke: Invoke, history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks at history only when Spark is there, so that grows before the look and moves after it."""

    class Overtaken(Keeper):
        def refresh(self) -> int:
            write_history(history, MORE, files=2)
            end = super().refresh()
            move(history)
            return end

    monkeypatch.setattr("holdfast.spark.keeper.Keeper", Overtaken)
    shown = invoke("report", "--json", "--out", str(tmp_path / "report.html")).stdout
    assert json.loads(shown)["messages"] == len(ROWS) + len(MORE)


def test_a_restore_plans_with_the_whole_set(invoke: Invoke) -> None:
    then = len(ROWS) // 2
    shown = invoke("restore", "--at", str(then), "--to", "tcp://127.0.0.1:1", "--dry-run").stdout
    found = re.search(r"would publish (\d+) messages and 0 clears, (\d+) topics are as they were", shown)
    assert found, shown
    assert int(found[1]) + int(found[2]) == len(oracle(ROWS[:then], moment=datetime.now(UTC)))


def test_files_that_go_while_spark_reads_them_are_looked_for_again(spark: SparkSession, history: Path) -> None:
    """Later than in the commands above: Spark has planned with the files when they go."""
    table = History(str(history))
    moved: list[Path] = []

    def work() -> int:
        rows = history_frame(spark, table)
        if not moved:
            move(history)
            moved.append(history)
        return rows.count()

    assert retry_on_vacuumed_files(table, work) == len(ROWS)


@pytest.mark.parametrize("how", ["arrow", "planning", "reading"])
def test_a_file_that_is_gone_for_good_is_named(spark: SparkSession, history: Path, how: str) -> None:
    table = History(str(history))
    path = Path(table.files[3].path)
    content = path.read_bytes()
    tried = []

    def work() -> None:
        tried.append(how)
        if how == "arrow":
            path.unlink(missing_ok=True)
            table.time_at(table.files[3].last)
        elif how == "planning":
            path.unlink(missing_ok=True)
            history_frame(spark, table).count()
        else:
            path.write_bytes(content)
            rows = history_frame(spark, table)
            path.unlink()
            rows.count()

    with pytest.raises((StoreError, UsageError)) as caught, spark_in_one_sentence(False):
        retry_on_vacuumed_files(table, work)
    assert f"history file {path} is missing, although its table names it" in str(caught.value)
    assert len(tried) == ATTEMPTS
