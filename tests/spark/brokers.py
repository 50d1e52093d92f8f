"""Brokers that a test can stop, kill and start again on the same port, with what they had kept."""

import contextlib
import getpass
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.properties import Properties

from broker_process import BrokerProcess, start_holdfast
from holdfast.spark.mqtt.connection import BROKER_OPTIONS, BrokerOptions
from holdfast.spark.mqtt.retained import read_snapshot
from holdfast.spark.options import Options
from ports import free_port

LIMIT_S = 180  # for what takes a moment, on a machine that is busy with something else
QUIET_S = (0.7, 5.0, 30.0)


def link_options(port: int, **more: str) -> BrokerOptions:
    return BrokerOptions(Options({"host": "127.0.0.1", "port": str(port), **more}, BROKER_OPTIONS, "mqtt"))


class Mosquitto:
    """Debian's mosquitto with persistence, so that a restart keeps sessions and retained messages."""

    def __init__(self, folder: Path, extra: str = "allow_anonymous true\n") -> None:
        self.port = free_port()
        self.folder = folder
        self.config = folder / "mosquitto.conf"
        self.config.write_text(
            f"user {getpass.getuser()}\nlistener {self.port} 127.0.0.1\n"
            f"persistence true\npersistence_location {folder}/\n"
            f"autosave_on_changes true\nautosave_interval 1\nmax_queued_messages 0\n{extra}"
        )
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        program = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
        if not Path(program).exists():
            pytest.skip("mosquitto is not installed")
        self.process = subprocess.Popen(
            [program, "-c", str(self.config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_for(lambda: _answers(self.port), "mosquitto to listen")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(LIMIT_S)
            self.process = None


class Holdfast:
    """The broker of this project on a port that stays the same across restarts."""

    def __init__(self, folder: Path, config: str = "") -> None:
        self.folder = folder
        self.port = free_port()
        self.running: BrokerProcess | None = None
        self.args: tuple[str, ...] = ()
        if config:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "holdfast.toml").write_text(config)
            self.args = ("--config", str(folder / "holdfast.toml"))
        self.start()

    def start(self) -> None:
        self.running = start_holdfast(self.folder, listen=(f"tcp://127.0.0.1:{self.port}",), args=self.args)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self.running is not None:
            self.running.signal(number)
            self.running.wait_exit()
            self.running = None


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"expected {what} within {LIMIT_S} s"
        time.sleep(0.05)


def read_whole(read: Callable[[float], list[Any]], count: int) -> list[Any]:
    """What is read with a quiet period that suffices for so many rows.

    Mosquitto does not say when it has sent all. On a busy machine a pause may be taken for the end; then it is asked
    again, with more patience.
    """
    for quiet_s in QUIET_S:
        rows = read(quiet_s)
        if len(rows) >= count:
            break
    return rows


def retained_rows(options: BrokerOptions, topic_filter: str, count: int, qos: int = 0) -> list[dict[str, Any]]:
    """The retained set, read without Spark: so many rows, or fewer if there are no more."""

    def read(quiet_s: float) -> list[dict[str, Any]]:
        parts = read_snapshot(options, topic_filter, qos, quiet_s, LIMIT_S)
        return [row for rows, _ in parts for row in rows]

    return read_whole(read, count)


def _answers(port: int) -> bool:
    import socket

    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    return False


@contextlib.contextmanager
def publisher(port: int, version: int = paho.MQTTv5, **options: str) -> Iterator[Callable[..., None]]:
    """Publishes and waits for the acknowledgement, so that what it returned from is the broker's."""
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion(version))
    if options:
        client.username_pw_set(options["username"], options["password"])
    client.max_inflight_messages_set(1000)
    client.connect("127.0.0.1", port)
    client.loop_start()
    waiting: list[paho.MQTTMessageInfo] = []

    def publish(
        topic: str, payload: bytes | str, qos: int = 1, retain: bool = False, properties: Properties | None = None
    ) -> None:
        waiting.append(client.publish(topic, payload, qos, retain, properties))

    yield publish
    for info in waiting:
        info.wait_for_publish(LIMIT_S)
    client.disconnect()
    client.loop_stop()
