"""The same commands on a standalone cluster of two workers and through Spark Connect, from the pip package alone."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from deltalake import DeltaTable

from ports import free_port
from spark.brokers import LIMIT_S, Holdfast, link_options, publisher, retained_rows, wait_for
from spark.commands import QUICK_JAVA, Commands
from spark.publishes import oracle, publishes, write_history

ROWS = publishes(5_000, topics=100, seed=41)
SPARK_HOME = Path(pyspark.__file__).parent


class Daemon:
    """A Spark process that runs until it is told to stop, with its output in a file."""

    def __init__(self, folder: Path, name: str, *command: str) -> None:
        self.log = folder / f"{name}.log"
        environment = {
            **os.environ,
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "512m",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_WORKER_DIR": str(folder / name),
            "SPARK_LOG_DIR": str(folder),
            "JAVA_TOOL_OPTIONS": QUICK_JAVA,
        }
        with self.log.open("w") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )

    def wait_for(self, pattern: str) -> str:
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline and self.process.poll() is None:
            found = re.search(pattern, self.log.read_text())
            if found:
                return found[1]
            time.sleep(0.2)
        raise AssertionError(f"expected {pattern!r} within {LIMIT_S} s, got:\n{self.log.read_text()[-3000:]}")

    def stop(self) -> None:
        os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(10)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("cluster")
    launcher = str(SPARK_HOME / "bin" / "spark-class")
    deploy = "org.apache.spark.deploy"
    master = Daemon(
        folder, "master", launcher, f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"
    )
    workers: list[Daemon] = []
    try:
        url = master.wait_for(r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
        for name in ("one", "two"):
            options = ("--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0", url)
            workers.append(Daemon(folder, name, launcher, f"{deploy}.worker.Worker", *options))
        for worker in workers:
            worker.wait_for(r"(Successfully registered) with master")
        yield url
    finally:
        for daemon in (*workers, master):
            daemon.stop()


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("connect")
    port = free_port()
    server = Daemon(
        folder,
        "connect",
        str(SPARK_HOME / "bin" / "spark-submit"),
        "--class",
        "org.apache.spark.sql.connect.service.SparkConnectServer",
        "--master",
        "local[2]",
        "--conf",
        f"spark.connect.grpc.binding.port={port}",
        "--conf",
        "spark.ui.enabled=false",
        "spark-internal",
    )
    try:
        server.wait_for(r"(Spark Connect server started at)")
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.stop()


@pytest.fixture(scope="module", params=["cluster", "connect"])
def pipeline(request: pytest.FixtureRequest) -> Iterator[Commands]:
    commands = Commands(str(request.getfixturevalue(request.param)))
    yield commands
    commands.close()


def test_the_pipeline_runs_end_to_end(pipeline: Commands, tmp_path: Path) -> None:
    history = ("--history", str(tmp_path / "history"))
    places = (*history, "--tables", str(tmp_path / "tables"))
    write_history(tmp_path / "history", ROWS[:3000], files=3)
    for rows in (ROWS[3000:], []):
        ran = pipeline("run", "--once", "--max-offsets", "2000", *places)
        assert ran.returncode == 0, ran.stderr
        if rows:
            write_history(tmp_path / "history", rows)
    traffic = DeltaTable(tmp_path / "tables" / "traffic").to_pyarrow_table().to_pylist()
    assert sum(row["messages"] for row in traffic) == len(ROWS)
    asked = pipeline("retained", "--at", "4000", "--json", "--limit", "1000", *places)
    assert asked.returncode == 0, asked.stderr
    assert {json.loads(line)["topic"] for line in asked.stdout.splitlines()} == oracle(ROWS, offset=4000).keys()
    audited = pipeline("audit", *places)
    assert audited.returncode == 0, audited.stdout + audited.stderr
    assert "all the same" in audited.stdout
    counted = pipeline("stats", "--max-retained-messages", "10", "--json", *history)
    assert counted.returncode == 0, counted.stderr
    assert json.loads(counted.stdout)["what_if"]["peak"] == 10
    reported = pipeline("report", "--no-update", "--out", str(tmp_path / "report.html"), *places)
    assert reported.returncode == 0, reported.stderr
    assert (tmp_path / "report.html").stat().st_size > 1_000_000


def test_a_running_broker_is_restored_and_audited(pipeline: Commands, tmp_path: Path) -> None:
    """The sink runs in executors here, and the live set travels from the client to them."""
    broker = Holdfast(tmp_path)
    url = f"tcp://127.0.0.1:{broker.port}"
    try:
        with publisher(broker.port) as publish:
            for number in range(60):
                publish(f"site/{number}", str(number), retain=True)
        wait_for(lambda: offsets(tmp_path)[0] == 60, "history")
        _, before = offsets(tmp_path)
        with publisher(broker.port) as publish:
            for number in range(0, 60, 2):
                publish(f"site/{number}", b"" if number % 4 else b"wrong", retain=True)
        wait_for(lambda: offsets(tmp_path)[0] == 90, "history")
        restored = pipeline("restore", "--at", str(before), "--to", url, "--data", str(tmp_path))
        assert restored.stdout == "published 30 messages and 0 clears, 30 topics are as they were\n", restored.stderr
        rows = retained_rows(link_options(broker.port), "site/#", 60)
        assert {row["topic"]: row["payload"] for row in rows} == {f"site/{n}": str(n).encode() for n in range(60)}
        audited = pipeline("audit", "--live", url, "--json", "--data", str(tmp_path))
        assert audited.returncode == 0, audited.stdout + audited.stderr
        assert json.loads(audited.stdout)["topics"] == 60
    finally:
        broker.stop()


def offsets(folder: Path) -> tuple[int, int]:
    """How many rows history has, and the last offset."""
    if not (folder / "history" / "_delta_log").exists():
        return 0, 0
    found = DeltaTable(folder / "history").to_pyarrow_table(columns=["offset"])["offset"].to_pylist()
    return len(found), max(found, default=0)
