"""The pipeline dies before and after every commit that it makes, and once by SIGKILL, driver and JVM, within a batch.

Each time another run goes on with what is on disk, every other time without Spark's checkpoint; in the end each row of
history is in each table once.
"""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from holdfast.errors import StoreError
from holdfast.spark.follow import CHECKPOINTS, fits, span
from holdfast.spark.jobs.run import Runner
from holdfast.spark.keeper import Keeper
from spark.brokers import LIMIT_S, wait_for
from spark.commands import QUICK_JAVA, Pipeline
from spark.publishes import Row, publishes, write_history
from spark.test_fold import expected, normal

ROWS = publishes(3_000, topics=150, seed=77)
FIRST = 600  # of which the killed process had some
SHARE = 60  # new in each later run
TABLES = ("retained", "retained_intervals", "topic_stats", "device_stats", "traffic")


class Death(BaseException):
    """As of a process: nobody has a plan for it."""


@contextmanager
def dying(number: int, committed: bool) -> Iterator[None]:
    """Death at this commit of whatever table, when the files are written and the log does not have them or just has."""
    commits = itertools.count(1)
    commit = DeltaTable.create_write_transaction

    def commit_or_die(*words: Any, **flags: Any) -> None:
        last = next(commits) == number
        if committed or not last:
            commit(*words, **flags)
        if last:
            raise Death

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DeltaTable, "create_write_transaction", commit_or_die)
        yield


def run_until_death(spark: SparkSession, folder: Path, number: int, committed: bool) -> bool:
    """Whether it died; a run with fewer commits does not."""
    keeper = Keeper(spark, str(folder / "history"), str(folder / "tables"))
    try:
        with dying(number, committed):
            Runner(keeper).once()
    except Death:
        return True
    finally:
        keeper.close()  # the system drops the lock of a process that is gone
    return False


def kill_in_a_batch(folder: Path) -> None:
    """`pipeline run` and its JVM, killed when files of its second batch are there."""
    command = [sys.executable, "-m", "holdfast", "pipeline", "run", "--once", "--max-offsets", "120"]
    command += ["--master", "local[2]", "--memory", "512m"]
    process = subprocess.Popen(
        [*command, "--history", str(folder / "history"), "--tables", str(folder / "tables")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        env={**os.environ, "JAVA_TOOL_OPTIONS": QUICK_JAVA},
    )
    assert process.stdout is not None
    with process.stdout as output:
        try:
            assert any(" rows in " in line for line in output), "it ended before its first batch"
            before = len(files_in(folder))
            wait_for(lambda: len(files_in(folder)) > before, "files of the second batch")
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            assert process.wait(LIMIT_S) == -signal.SIGKILL


def files_in(folder: Path) -> list[Path]:
    return list((folder / "tables").glob("*/*.parquet"))


@pytest.fixture(scope="module")
def survived(spark: SparkSession, pipeline: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kill")
    write_history(folder / "history", ROWS[:FIRST])
    kill_in_a_batch(folder)
    checkpoints = folder / "tables" / CHECKPOINTS
    given = FIRST
    for number, committed in ((number, committed) for number in itertools.count(1) for committed in (False, True)):
        assert given < len(ROWS), f"expected a run to have fewer than {number} commits"
        write_history(folder / "history", ROWS[given : given + SHARE])
        given += SHARE
        assert checkpoints.is_dir()
        if (number + committed) % 2:
            shutil.rmtree(checkpoints)
        if not run_until_death(spark, folder, number, committed):
            break
    write_history(folder / "history", ROWS[given:])
    ran = pipeline("run", "--once", "--history", str(folder / "history"), "--tables", str(folder / "tables"))
    assert ran.returncode == 0, ran.stderr
    assert "have come to offset 3,000" in ran.stdout
    return folder


def rows_of(folder: Path, name: str) -> list[Row]:
    rows: list[Row] = DeltaTable(folder / "tables" / name).to_pyarrow_table().to_pylist()
    return rows


def test_intervals_have_each_set_once(survived: Path) -> None:
    assert sorted(row["offset"] for row in rows_of(survived, "retained_intervals")) == [
        row["offset"] for row in ROWS if row["outcome"] == "set"
    ]


def test_statistics_count_each_row_once(survived: Path) -> None:
    assert sum(row["messages"] for row in rows_of(survived, "traffic")) == len(ROWS)
    counted = {row["topic"]: row["messages"] for row in rows_of(survived, "topic_stats")}
    assert counted == Counter(row["topic"] for row in ROWS)
    in_devices = sum(row["messages"] for row in rows_of(survived, "device_stats"))
    assert in_devices == sum(row["topic"].startswith("site/") for row in ROWS)


def test_retained_is_the_fold(survived: Path) -> None:
    end = ROWS[-1]["timestamp"]
    held = {row["topic"]: row for row in rows_of(survived, "retained")}
    alive = {t: normal(row) for t, row in held.items() if row["expires_at"] is None or row["expires_at"] > end}
    assert alive == expected(ROWS, offset=len(ROWS))


def test_what_the_dead_left_behind_is_no_part_of_any_table(survived: Path) -> None:
    left: set[str] = set()
    for name in TABLES:
        root = survived / "tables" / name
        used = {Path(path).name for path in DeltaTable(root).file_uris()}
        there = {path.name for path in root.glob("*.parquet")}
        actions = [json.loads(line) for log in root.glob("_delta_log/*.json") for line in log.read_text().splitlines()]
        committed = {action["add"]["path"] for action in actions if "add" in action}
        assert used <= committed
        left |= there - committed
    assert left, "no run died with files that it had not committed"


def planned(checkpoint: Path, *ends: int, commits: int) -> None:
    """What Spark writes down: the end of each batch before it begins, and which of them are done."""
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(parents=True, exist_ok=True)
    for number, end in enumerate(ends):
        (checkpoint / "offsets" / str(number)).write_text('v1\n{"batchWatermarkMs":0}\n' + json.dumps({"o": end}))
    for number in range(commits):
        (checkpoint / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')


@pytest.mark.parametrize(
    ("commits", "applied", "fit"),
    [
        (2, 90, True),
        (2, 89, False),  # rows between the tables and the next batch would be lost
        (2, 91, False),  # batches would be read that no table needs
        (1, 50, True),
        (1, 70, True),  # some tables have the batch that is tried again
        (1, 49, False),
    ],
)
def test_a_checkpoint_is_used_only_where_it_fits_the_tables(
    tmp_path: Path, commits: int, applied: int, fit: bool
) -> None:
    planned(tmp_path / "checkpoint", 50, 90, commits=commits)
    assert fits(tmp_path / "checkpoint", applied) is fit
    assert span(tmp_path / "checkpoint", 1) == (50, 90)


def test_a_checkpoint_that_cannot_be_read_is_made_anew(tmp_path: Path) -> None:
    assert fits(tmp_path / "none", 5)
    planned(tmp_path / "checkpoint", 50, commits=1)
    (tmp_path / "checkpoint" / "offsets" / "0").write_text("v9")
    assert not fits(tmp_path / "checkpoint", 50)
    with pytest.raises(StoreError, match="the run goes on from the tables"):
        span(tmp_path / "checkpoint", 0)
