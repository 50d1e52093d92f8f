"""From a publish to the table `retained`: a real broker, a real `holdfast pipeline run`, both with their defaults."""

import contextlib
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as paho
from deltalake import DeltaTable
from paho.mqtt.enums import CallbackAPIVersion

Figures = dict[str, float]
TOPICS = 20_000
PROBES = 100
TRAFFIC_PER_S = 500
PATIENCE_S = 120.0


@contextlib.contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def wait_for_line(process: "subprocess.Popen[str]", text: str) -> str:
    assert process.stdout is not None
    line = ""
    for line in process.stdout:
        if text in line:
            return line
    raise RuntimeError(f"expected a line with {text!r}, but the process ended with {process.wait()}: {line}")


def measure(folder: Path) -> Figures:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with started("serve", "--data", str(folder / "data"), "--listen", "tcp://127.0.0.1:0") as broker:
        port = int(wait_for_line(broker, "listening tcp://").strip().rpartition(":")[2])
        client = paho.Client(CallbackAPIVersion.VERSION2)
        client.max_inflight_messages_set(1000)
        client.connect("127.0.0.1", port)
        client.loop_start()
        for number in range(TOPICS):
            info = client.publish(f"site/{number % 20}/line/1/dev{number}/temp", b"%d" % number, 1, retain=True)
        info.wait_for_publish(PATIENCE_S)
        with started("pipeline", "run", "--data", str(folder / "data")) as run:
            wait_for_line(run, "topic_stats")
            lags = [probe(client, folder / "data" / "pipeline" / "retained", number) for number in range(PROBES)]
        client.disconnect()
        client.loop_stop()
    return {"median_s": statistics.median(lags), "slowest_s": max(lags)}


def probe(client: paho.Client, table: Path, number: int) -> float:
    """Publish a value among others and look at the table until it has it."""
    payload = b"probe %d" % number
    for other in range(TRAFFIC_PER_S):
        client.publish(
            f"site/1/line/1/dev{(number * TRAFFIC_PER_S + other) % TOPICS}/temp", b"%d" % other, 1, retain=True
        )
    client.publish("probe/lag", payload, 1, retain=True).wait_for_publish(PATIENCE_S)
    begun = time.perf_counter()
    while time.perf_counter() - begun < PATIENCE_S:
        rows = DeltaTable(table).to_pyarrow_table(columns=["payload"], filters=[("topic", "=", "probe/lag")])
        if payload in rows["payload"].to_pylist():
            return time.perf_counter() - begun
        time.sleep(0.05)
    raise RuntimeError(f"the table had no {payload!r} after {PATIENCE_S:g} s")
