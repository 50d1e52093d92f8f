"""Matrix rows J13, M6 and Q4: what a restart keeps, and what it does not."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_process import BrokerProcess, Unique
from stage import BOTH, Copy, P, Stage, user

PROPERTIES = [
    (P.PAYLOAD_FORMAT, 1),
    (P.CONTENT_TYPE, "text/plain"),
    (P.RESPONSE_TOPIC, "answers/here"),
    (P.CORRELATION_DATA, b"\x00\xff"),
    user("a", "1"),
    user("a", "1"),
]
KEPT = pytest.mark.parametrize("storage", ["disc", "disc_only"])


class Restarts:
    """A broker on one data folder, which can be ended and started again."""

    def __init__(self, start: Callable[..., BrokerProcess], data: Path, unique: Unique, **settings: Any) -> None:
        self.start = start
        self.data = data
        self.unique = unique
        self.settings = settings
        self.stage = self.begin()

    def begin(self) -> Stage:
        self.broker = self.start(data=self.data, history__enable=False, **self.settings)
        self.stage = Stage(self.broker, self.unique)
        return self.stage

    def kill(self) -> None:
        """End it with no chance to write anything more."""
        self.broker.kill()
        self.stage.close_clients()

    def stop(self) -> None:
        self.stage.close_clients()
        assert self.broker.stop() == 0


@pytest.fixture
def restarts(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path, unique: Unique
) -> Iterator[Callable[..., Restarts]]:
    built: list[Restarts] = []

    def build(**settings: Any) -> Restarts:
        built.append(Restarts(start_broker, tmp_path / "kept", unique, **settings))
        return built[-1]

    yield build
    for each in built:
        each.stage.close_clients()


@BOTH
@KEPT
@pytest.mark.matrix("M6", "Q4")
def test_acknowledged_message_survives_a_kill(restarts: Callable[..., Restarts], version: int, storage: str) -> None:
    qos = 2 if version == 5 else 1
    broker = restarts(retainer__storage_type=storage)
    publisher = broker.stage.client(version)
    for number in range(20):
        publisher.publish(f"t{number}", f"{number}", qos=qos, retain=True)
    publisher.publish("t0", "", qos=qos, retain=True)
    publisher.publish("t1", "newer", qos=qos, retain=True)
    broker.kill()
    stored = broker.begin().stored(version)
    assert stored == {"t1": b"newer"} | {f"t{number}": str(number).encode() for number in range(2, 20)}


@BOTH
@pytest.mark.matrix("M6")
def test_memory_alone_keeps_nothing(restarts: Callable[..., Restarts], version: int) -> None:
    broker = restarts(retainer__storage_type="ram")
    broker.stage.client(version).publish("a", "1", qos=1, retain=True)
    assert broker.stage.stored(version) == {"a": b"1"}
    broker.kill()
    assert broker.begin().stored(version) == {}


@BOTH
@KEPT
@pytest.mark.matrix("M6")
def test_qos_properties_and_origin_survive_a_restart(
    restarts: Callable[..., Restarts], version: int, storage: str
) -> None:
    broker = restarts(retainer__storage_type=storage)
    broker.stage.client(5, "origin").publish("a", "1", qos=2, retain=True, properties=PROPERTIES)
    broker.stop()
    stage = broker.begin()
    reader = stage.client(version)
    reader.subscribe("a", qos=2)
    (copy,) = reader.receives(Copy("a", "1", qos=2, retain=True))
    assert copy.packet.properties == (PROPERTIES if version == 5 else [])
    origin = stage.client(5, "origin")
    origin.subscribe("a", nl=True)
    origin.receives()


@BOTH
@KEPT
@pytest.mark.matrix("J13")
def test_restart_does_not_lengthen_a_life(restarts: Callable[..., Restarts], version: int, storage: str) -> None:
    broker = restarts(retainer__storage_type=storage, retainer__expiry_interval=2)
    publisher = broker.stage.client(5)
    publisher.publish("short", "1", qos=1, retain=True, properties=[(P.MESSAGE_EXPIRY, 2)])
    publisher.publish("default", "1", qos=1, retain=True)
    publisher.publish("long", "1", qos=1, retain=True, properties=[(P.MESSAGE_EXPIRY, 100)])
    published_at = time.monotonic()
    if storage == "disc":
        broker.kill()
    else:
        broker.stop()
    stage = broker.begin()
    time.sleep(max(0.0, published_at + 2.3 - time.monotonic()))
    reader = stage.client(version)
    reader.subscribe("#")
    (copy,) = reader.receives(Copy("long", "1", retain=True))
    if version == 5:
        assert copy.prop(P.MESSAGE_EXPIRY) <= 98
