"""Moving from Debian's mosquitto to Holdfast while devices publish: nothing is lost, and nothing is stale at the end.

It follows docs/guides/migrating.md step by step.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_process import BrokerProcess
from command_line import holdfast_process
from http_api import LISTEN, Api, until
from mosquitto_files import PersistentMosquitto
from wire import Publish, WireClient

TOPICS = 10_000
DEVICES = 6
PATIENCE_S = 240.0


class Device:
    """Publishes a counter to topics of its own, retained and acknowledged, to whichever broker it is told."""

    def __init__(self, number: int, port: int) -> None:
        self.topics = [f"fleet/{number}/{sensor}" for sensor in range(5)]
        self.number = number
        self.port = port
        self.said = 0
        self.last: dict[str, str] = {}
        self.stopping = False
        self.thread = threading.Thread(target=self.run, name=f"device-{number}", daemon=True)
        self.thread.start()

    def run(self) -> None:
        while not self.stopping:
            port = self.port
            with WireClient(port, 4) as client:
                client.connect(f"device-{self.number}")
                while port == self.port and not self.stopping:
                    self.said += 1
                    topic = self.topics[self.said % len(self.topics)]
                    client.publish(topic, str(self.said).encode(), qos=1, retain=True)
                    self.last[topic] = str(self.said)
                    time.sleep(0.02)

    def stop(self) -> None:
        self.stopping = True
        self.thread.join(PATIENCE_S)


class Watcher:
    """Hears everything on one broker, all the time."""

    def __init__(self, port: int) -> None:
        self.client = WireClient(port, 4)
        self.client.connect("watcher", clean=False)
        self.client.subscribe(("fleet/#", 1))
        self.heard: dict[str, list[int]] = {}
        self.stopping = False
        self.thread = threading.Thread(target=self.run, name="watcher", daemon=True)
        self.thread.start()

    def run(self) -> None:
        while not self.stopping:
            try:
                packet = self.client.recv(0.2)
            except TimeoutError:
                continue
            if isinstance(packet, Publish):
                self.client.ack(packet)
                self.heard.setdefault(packet.topic, []).append(int(packet.payload))

    def stop(self) -> None:
        self.stopping = True
        self.thread.join(PATIENCE_S)
        self.client.cut()


def fill(port: int, count: int) -> None:
    with WireClient(port, 5) as client:
        client.connect("filler")
        for number in range(count):
            client.send_publish(f"site/{number // 100}/{number}", b"at rest", qos=0, retain=True)
        client.publish("site/last", b"at rest", qos=1, retain=True)


def migrate(old: PersistentMosquitto, new: BrokerProcess, *words: str) -> tuple[object, dict[str, Any]]:
    to = f"http://127.0.0.1:{new.ports['http']}"
    done = holdfast_process(
        "migrate", "--from", f"mqtt://127.0.0.1:{old.port}", "--to", to, "--json", "--wait", "300", *words
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.fixture
def old(tmp_path: Path) -> PersistentMosquitto:
    return PersistentMosquitto(tmp_path / "old", "allow_anonymous true", "max_queued_messages 0")


def test_ten_thousand_topics_move_while_devices_publish(
    old: PersistentMosquitto, start_broker: Callable[..., BrokerProcess]
) -> None:
    fill(old.port, TOPICS)
    new = start_broker(listen=LISTEN, history__enable=False)
    devices = [Device(number, old.port) for number in range(DEVICES)]
    watchers = [Watcher(old.port), Watcher(new.port)]
    try:
        # Bridge both ways, import, compare.
        code, told = migrate(old, new)
        assert (code, told["missing"], told["extra"], told["different"]) == (0, [], [], [])
        assert told["same"] == TOPICS + 1 + 5 * DEVICES
        # Devices move one by one, one of them goes back and moves again.
        for device in devices:
            device.port = new.port
            time.sleep(0.1)
        devices[0].port = old.port
        with WireClient(new.port, 4) as client:
            client.connect("operator")
            client.publish("site/0/7", b"", qos=1, retain=True)
        with WireClient(old.port, 4) as client:
            client.connect("operator")
            client.publish("site/0/8", b"", qos=1, retain=True)
        time.sleep(0.5)
        devices[0].port = new.port
        until(lambda: devices[0].said, lambda said: said > 20, PATIENCE_S)
        code, told = migrate(old, new)
        assert (code, told["missing"], told["extra"], told["different"]) == (0, [], [], [])
        assert told["same"] == TOPICS - 1 + 5 * DEVICES
        for device in devices:
            device.stop()
        # The switch.
        code, told = migrate(old, new, "--yes")
        assert (code, told["equal"]) == (0, True)
        with Api(new) as api:
            assert api.ok("GET", "/api/v1/bridges")["bridges"] == []
            stored = api.topics(filter="#", limit=1000)
            assert len(stored) == TOPICS - 1 + 5 * DEVICES
            for device in devices:
                for topic, value in device.last.items():
                    answer = api.ok("GET", "/api/v1/retained/message", params={"topic": topic})
                    assert answer["text"] == value
        expected = {topic: int(value) for device in devices for topic, value in device.last.items()}
        for watcher in watchers:
            until(
                lambda watcher=watcher: {topic: max(heard) for topic, heard in watcher.heard.items()},  # type: ignore[misc]
                lambda found: found == expected,
                PATIENCE_S,
            )
    finally:
        for device in devices:
            device.stop()
        for watcher in watchers:
            watcher.stop()
        old.stop()
    # Nobody who listened, on either broker, has missed a message: each topic has every fifth number since it was heard.
    for watcher in watchers:
        for topic, heard in watcher.heard.items():
            missed = set(range(heard[0], expected[topic] + 1, 5)) - set(heard)
            assert not missed, f"{topic}: {sorted(missed)[:10]}"


def test_differences_are_named_and_keep_from_switching(
    old: PersistentMosquitto, start_broker: Callable[..., BrokerProcess]
) -> None:
    """A topic that the new broker does not keep, by a policy of its own, is one that the old one has alone."""
    new = start_broker(
        listen=LISTEN, history__enable=False, retainer__policy='[{filter = "site/0/3", action = "drop-flag"}]'
    )
    fill(old.port, 10)
    code, told = migrate(old, new, "--yes")
    assert (code, told["missing"], told["equal"]) == (1, ["site/0/3"], False)
    with Api(new) as api:
        assert [one["name"] for one in api.ok("GET", "/api/v1/bridges")["bridges"]] == ["migration"]
    to = f"http://127.0.0.1:{new.ports['http']}"
    done = holdfast_process("migrate", "--from", f"mqtt://127.0.0.1:{old.port}", "--to", to, "--abandon")
    assert done.returncode == 0, done.stderr
    with Api(new) as api:
        assert api.ok("GET", "/api/v1/bridges")["bridges"] == []
    old.stop()


def test_a_broker_that_does_not_answer_is_one_line(start_broker: Callable[..., BrokerProcess]) -> None:
    new = start_broker(listen=LISTEN, history__enable=False)
    to = f"http://127.0.0.1:{new.ports['http']}"
    done = holdfast_process("migrate", "--from", "mqtt://127.0.0.1:1", "--to", to)
    assert done.returncode == 1
    assert done.stderr == "holdfast: could not connect to 127.0.0.1:1: refused - is the broker running?\n"
