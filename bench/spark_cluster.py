"""A standalone Spark cluster on this machine, from the pip package: a master and workers of one core each."""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

HOME = Path(pyspark.__file__).parent
DEPLOY = "org.apache.spark.deploy"
PATIENCE_S = 120.0


@contextmanager
def daemon(folder: Path, name: str, expected: str, *words: str) -> Iterator[str]:
    """Start one, wait for the line that says it is up, and give what the pattern found in it."""
    log = folder / f"{name}.log"
    environment = {
        **os.environ,
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_MEMORY": "512m",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_WORKER_DIR": str(folder / name),
        "SPARK_LOG_DIR": str(folder),
    }
    with log.open("w") as output:
        process = subprocess.Popen(
            [str(HOME / "bin" / "spark-class"), *words], stdout=output, stderr=subprocess.STDOUT, env=environment
        )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while (found := re.search(expected, log.read_text())) is None:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{name} did not say {expected!r}:\n{log.read_text()[-2000:]}")
            time.sleep(0.1)
        yield found[1]
    finally:
        process.terminate()
        process.wait(60)


@contextmanager
def cluster(workers: int, memory: str = "1536m") -> Iterator[str]:
    """The address of a master with this many workers."""
    with tempfile.TemporaryDirectory(prefix="holdfast-cluster-") as place, ExitStack() as stack:
        folder = Path(place)
        here = ("--host", "127.0.0.1", "--webui-port", "0")
        url = stack.enter_context(
            daemon(folder, "master", r"Starting Spark master at (spark://\S+)", f"{DEPLOY}.master.Master", *here)
        )
        for number in range(workers):
            words = (f"{DEPLOY}.worker.Worker", *here, "--cores", "1", "--memory", memory, url)
            stack.enter_context(daemon(folder, f"worker-{number}", r"(Successfully registered) with master", *words))
        yield url
