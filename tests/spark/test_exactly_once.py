"""The pipeline killed with SIGKILL, driver and JVM, at random moments: each row of history is in each table once."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable

from spark.publishes import Row, publishes, write_history
from spark.test_fold import expected, normal

ROUNDS = 10
ROWS = publishes(3_000, topics=150, seed=77)
# Short runs spend most of their time in the compiler that makes long ones fast.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Run:
    """`holdfast pipeline run` as a process of its own, with everything it starts in one group."""

    def __init__(self, folder: Path, *flags: str) -> None:
        command = [sys.executable, "-m", "holdfast", "pipeline", "run", "--master", "local[2]", "--memory", "512m"]
        command += ["--history", str(folder / "history"), "--tables", str(folder / "tables")]
        self.process = subprocess.Popen(
            [*command, *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            env={**os.environ, "JAVA_TOOL_OPTIONS": QUICK_JAVA},
        )

    def wait_for_step(self) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if " rows in " in line:
                return line
        raise AssertionError(f"the run ended with {self.process.wait()} before its first batch")

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture(scope="module")
def survived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kill")
    rng = random.Random(5)
    share = len(ROWS) // ROUNDS
    for number in range(ROUNDS):
        write_history(folder / "history", ROWS[number * share : (number + 1) * share])
        run = Run(folder, "--statistics", "1", "--max-offsets", "120")
        run.wait_for_step()
        time.sleep(rng.random() * 1.5)
        run.kill()
    last = Run(folder, "--once")
    assert last.process.stdout is not None
    output = last.process.stdout.read()
    last.process.stdout.close()
    assert last.process.wait(120) == 0
    assert "have come to offset 3,000" in output
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


def test_what_killed_runs_left_behind_is_no_part_of_any_table(survived: Path) -> None:
    for name in ("retained", "retained_intervals", "topic_stats", "device_stats", "traffic"):
        table = DeltaTable(survived / "tables" / name)
        used = {Path(path).name for path in table.file_uris()}
        there = {path.name for path in (survived / "tables" / name).glob("*.parquet")}
        assert used <= there
