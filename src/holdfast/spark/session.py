"""Starting Spark: local by default, any master or a Spark Connect server by name, and quiet.

Spark and the JVM talk a lot while they start. Their output goes to a file of ours, shown only when starting fails or
when the user asks for it, so that what a command prints is what it has to say.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
# What every session of ours needs, a Connect server's included: all of it can be set while Spark runs.
SQL_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "8192",
    # With a limit in bytes Spark measures the batch at each row, and measuring a list column walks all of it: a
    # quadratic cost that made writing eight times slower. The number of rows is what bounds a batch.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.sql.autoBroadcastJoinThreshold": "64MB",
    "spark.sql.adaptive.autoBroadcastJoinThreshold": "64MB",
}
# Rows come from Python as Arrow. Checking each access to what Arrow has checked already, and a TCP connection where
# both ends are on one machine, cost a fifth of the processor time each.
JAVA_OPTIONS = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
# On one machine most of the work is Python's, and a heap that grows only when it must leaves it the memory.
COLLECTOR = "-XX:+UseParallelGC"
JAVA_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
WORKER_SETTINGS = {"spark.python.unix.domain.socket.enabled": "true", "spark.buffer.size": "1048576"}
LEAST_JAVA = 17
NO_JAVA = (
    "Spark needs Java 17 or newer, and none was found: install one "
    "(Debian: `apt-get install -y openjdk-17-jre-headless`) or point JAVA_HOME at one"
)


def check_java() -> None:
    """Say what to install before Spark fails with a page of Java."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or shutil.which(java) is None:
        raise UsageError(NO_JAVA if not home else f"JAVA_HOME is {home}, but there is no {java}; {NO_JAVA}")
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if found is None or int(found[1]) < LEAST_JAVA:
        got = (answer.stderr or answer.stdout).strip().splitlines()
        raise UsageError(f"{NO_JAVA} ({java} says: {got[0] if got else 'nothing'})")


def collector(master: str, options: str) -> str:
    """The garbage collector to ask for. Java does not start when it is asked for two."""
    told = [options, *(os.environ.get(name, "") for name in JAVA_VARIABLES)]
    return COLLECTOR if master.startswith("local") and not any("GC" in text for text in told) else ""


@contextmanager
def _quiet(path: str | None) -> Iterator[None]:
    """Send this process's stderr, and that of the JVM started within, to a file."""
    if path is None:
        yield
        return
    sys.stderr.flush()
    saved = os.dup(2)
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(target, 2)
    os.close(target)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)


def start_session(
    master: str | None = None,
    *,
    name: str = "holdfast",
    memory: str = "1g",
    shuffle_partitions: int | None = None,
    verbose: bool = False,
    settings: dict[str, str] | None = None,
) -> "SparkSession":
    """A session on this machine, on a cluster, or on a Connect server (`sc://host:port`)."""
    from pyspark.sql import SparkSession

    master = master or LOCAL
    if master.startswith("sc://"):
        return _connect(SparkSession.builder, master, name, settings or {})
    check_java()
    # workers must run this interpreter: the system's one has no Arrow
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    cores = os.cpu_count() or 2
    local = {
        # rows are not spread evenly over files: some more tasks than cores even that out
        "spark.sql.files.minPartitionNum": str(2 * cores),
        # to look at some hundred files takes less time than the job that Spark would start for it
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
    }
    given = settings or {}
    conf = {
        **SQL_SETTINGS,
        **WORKER_SETTINGS,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": memory,
        "spark.log.level": "INFO" if verbose else "ERROR",
        "spark.sql.adaptive.enabled": "true",
        # on one machine 200 shuffle partitions only cost; adaptive execution merges small ones, it does not split work
        "spark.sql.shuffle.partitions": str(
            shuffle_partitions or (max(cores, 4) if master.startswith("local") else 64)
        ),
        "spark.sql.execution.pyspark.udf.faulthandler.enabled": "false",
        # several queries at once: one that somebody waits for need not stand behind the others
        "spark.scheduler.mode": "FAIR",
        **(local if master.startswith("local") else {}),
        **given,
    }
    for side in ("driver", "executor"):
        key = f"spark.{side}.extraJavaOptions"
        own = given.get(key, "")
        conf[key] = f"{JAVA_OPTIONS} {collector(master, own)} {own}".strip()
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in conf.items():
        builder = builder.config(key, value)
    log = None if verbose else tempfile.mkstemp(prefix="holdfast-spark-", suffix=".log")[1]
    try:
        with _quiet(log):
            session = builder.getOrCreate()
    except Exception as error:
        tail = Path(log).read_text(errors="replace").strip().splitlines()[-1:] if log else []
        raise UsageError(f"Spark did not start on {master}: {'; '.join([first_line(error), *tail])}") from error
    finally:
        if log is not None:
            Path(log).unlink()  # the JVM goes on writing to it; what nobody will read goes with the process
    return session


def _connect(builder: "SparkSession.Builder", url: str, name: str, settings: dict[str, str]) -> "SparkSession":
    try:
        session = builder.remote(url).appName(name).create()
        for key, value in (SQL_SETTINGS | settings).items():
            session.conf.set(key, value)
    except ImportError as error:
        raise UsageError(f"Spark Connect needs more: `pip install 'holdfast-mqtt[connect]'` ({error})") from None
    except Exception as error:
        raise UsageError(f"could not reach the Spark Connect server at {url}: {first_line(error)}") from error
    return session


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
