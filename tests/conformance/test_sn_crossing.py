"""One retained store for all: MQTT 3.1.1, MQTT 5.0, MQTT-SN 1.2 and 2.0 against one broker, over real sockets."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

import pytest

from broker_process import BrokerProcess, Unique, start_holdfast
from sn_client import SnClient
from stage import BOTH, OURS
from wire import Publish, WireClient

pytestmark = OURS

Sensor = Callable[[int], SnClient]

PREDEFINED = [{"id": 7, "topic": "pre/defined"}]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {
        "sn__predefined": json.dumps(PREDEFINED),
        "sn__open_topics": "pre/#,open/#,ab",
        "sn__open_retain": True,
        "history__enable": False,
    }
    running = start_holdfast(
        tmp_path_factory.mktemp("both"), settings, listen=("tcp://127.0.0.1:0", "udp://127.0.0.1:0")
    )
    yield running
    running.stop()


@pytest.fixture
def mqtt(both: BrokerProcess, version: int) -> Iterator[WireClient]:
    with both.client(version) as client:
        client.connect(f"mqtt{time.monotonic_ns()}")
        yield client


@pytest.fixture
def sensor(both: BrokerProcess) -> Iterator[Sensor]:
    opened: list[SnClient] = []

    def start(version: int) -> SnClient:
        opened.append(SnClient(both.ports["udp"], version, f"s{time.monotonic_ns()}"))
        opened[-1].connect()
        return opened[-1]

    yield start
    for client in opened:
        client.close()


@BOTH
@pytest.mark.matrix("P1")
def test_an_exact_filter_is_answered_with_an_alias_that_the_copy_uses(
    mqtt: WireClient, sensor: Sensor, unique: Unique
) -> None:
    mqtt.publish(unique.topic(), b"on", qos=1, retain=True)
    two = sensor(2)
    two.subscribe(unique.topic(), 1)
    two.wait_for(1)
    assert two.messages == [(unique.topic(), b"on", 1, True)]
    assert list(two.names.values()) == [unique.topic()]


@BOTH
@pytest.mark.matrix("P2")
def test_a_wildcard_brings_copies_by_name(mqtt: WireClient, sensor: Sensor, unique: Unique) -> None:
    for letter in "abc":
        mqtt.publish(unique.topic(letter), letter.encode(), qos=1, retain=True)
    two = sensor(2)
    two.subscribe(f"{unique}/#", 0)
    two.wait_for(3)
    assert sorted(two.messages) == [(unique.topic(letter), letter.encode(), 0, True) for letter in "abc"]
    assert two.names == {}


@BOTH
@pytest.mark.matrix("P3")
def test_a_wildcard_of_1_2_registers_each_topic(mqtt: WireClient, sensor: Sensor, unique: Unique) -> None:
    for letter in "abc":
        mqtt.publish(unique.topic(letter), letter.encode(), qos=1, retain=True)
    one = sensor(1)
    one.subscribe(f"{unique}/#", 1)
    one.wait_for(3)
    assert sorted(one.messages) == [(unique.topic(letter), letter.encode(), 1, True) for letter in "abc"]
    assert sorted(one.names.values()) == [unique.topic(letter) for letter in "abc"]


@BOTH
@pytest.mark.matrix("P4")
def test_predefined_and_short_topics_are_the_topics_they_stand_for(mqtt: WireClient, sensor: Sensor) -> None:
    mqtt.publish("pre/defined", b"one", qos=1, retain=True)
    mqtt.publish("xy", b"two", qos=1, retain=True)
    one = sensor(1)
    one.request((0x12, 0x08), bytes.fromhex("01 00 50 00 07"), (0x13, 0x09))
    one.request((0x12, 0x08), bytes.fromhex("02 00 51") + b"xy", (0x13, 0x09))
    one.wait_for(2)
    assert one.messages == [("#7", b"one", 0, True), ("xy", b"two", 0, True)]
    two = sensor(2)
    two.request((0x12, 0x08), bytes.fromhex("01 00 50 00 07"), (0x13, 0x09))
    two.wait_for(1)
    assert two.messages == [("#7", b"one", 0, True)]


@BOTH
@pytest.mark.matrix("P5")
@pytest.mark.parametrize(
    ("stored", "deleted", "topic"),
    [
        ("09 0C 71 00 07 00 00 6F 6E", "07 0C 71 00 07 00 00", "pre/defined"),
        ("09 0C 72 61 62 00 00 6F 6E", "07 0C 72 61 62 00 00", "ab"),
        ("0D 12 13 00 06 6F 70 65 6E 2F 31 6F 6E", "0B 12 13 00 06 6F 70 65 6E 2F 31", "open/1"),
    ],
    ids=["QoS -1 predefined", "QoS -1 short", "PUBWOS"],
)
def test_publishes_without_a_connection_store_and_delete(
    both: BrokerProcess, mqtt: WireClient, version: int, stored: str, deleted: str, topic: str
) -> None:
    stranger = SnClient(both.ports["udp"], 2, "")
    with stranger:
        mqtt.subscribe(topic, qos=1)
        stranger.sock.send(bytes.fromhex(stored))
        assert wait_for_live(mqtt, topic) == b"on"
        with both.client(version) as late:
            late.connect(f"late{time.monotonic_ns()}")
            late.subscribe(topic, qos=1)
            late.expect(Publish, topic=topic, payload=b"on", qos=0, retain=True)
        stranger.sock.send(bytes.fromhex(deleted))
        assert wait_for_live(mqtt, topic) == b""
        with both.client(version) as later:
            later.connect(f"later{time.monotonic_ns()}")
            later.subscribe(topic, qos=1)
            later.expect_no_message()


def wait_for_live(client: WireClient, topic: str) -> bytes:
    while True:
        message = client.expect(Publish, topic=topic)
        if not message.retain:
            return message.payload


@BOTH
@pytest.mark.matrix("P6")
@pytest.mark.parametrize("sn", [1, 2], ids=["1.2", "2.0"])
def test_copies_for_a_client_that_falls_asleep_wait_for_it(
    mqtt: WireClient, sensor: Sensor, unique: Unique, sn: int
) -> None:
    for letter in "abc":
        mqtt.publish(unique.topic(letter), letter.encode(), qos=1, retain=True)
    sleeper = sensor(sn)
    flags = bytes((0x20 if sn == 1 else 0x23,))
    # Both at once: the server reads SUBSCRIBE and SLEEP before the first acknowledgement.
    sleeper.send((0x12, 0x08), flags + b"\x00\x60" + f"{unique}/#".encode())
    sleeper.sleep(600)
    asleep_with = len(sleeper.messages)
    assert asleep_with <= 1
    sleeper.poll(0.1)
    assert len(sleeper.messages) == asleep_with, "it is asleep"
    sleeper.wake()
    assert {payload for _, payload, _, _ in sleeper.messages} == {b"a", b"b", b"c"}


@BOTH
@pytest.mark.matrix("P7")
@pytest.mark.parametrize("sn", [1, 2], ids=["1.2", "2.0"])
def test_a_resent_subscribe_sends_the_copies_once(mqtt: WireClient, sensor: Sensor, unique: Unique, sn: int) -> None:
    mqtt.publish(unique.topic(), b"on", qos=1, retain=True)
    client = sensor(sn)
    body = bytes((0x00 if sn == 1 else 0x03,)) + b"\x00\x60" + unique.topic().encode()
    client.send((0x12, 0x08), body)
    client.send((0x12, 0x08), body)
    client.seen.clear()
    deadline = time.monotonic() + 60
    while len(client.seen) < 2 and time.monotonic() < deadline:
        client.poll(0.1)
    assert [kind for kind, _ in client.seen] == [0x13 if sn == 1 else 0x09] * 2
    client.ping()
    assert len(client.messages) == 1


PROTOCOLS = ["3.1.1", "5.0", "SN1.2", "SN2.0"]


class Anyone:
    """A client of any of the four, with what this test needs of it."""

    def __init__(self, broker: BrokerProcess, protocol: str) -> None:
        self.client: SnClient | WireClient
        name = f"any{time.monotonic_ns()}"
        if protocol.startswith("SN"):
            self.client = SnClient(broker.ports["udp"], 2 if protocol == "SN2.0" else 1, name)
            self.client.connect()
        else:
            self.client = broker.client(5 if protocol == "5.0" else 4)
            self.client.connect(name)

    def publish(self, topic: str, payload: bytes) -> None:
        self.client.publish(topic, payload, qos=1, retain=True)

    def retained(self, topic: str) -> tuple[str, bytes, int, bool]:
        self.client.subscribe(topic, qos=1)
        if isinstance(self.client, SnClient):
            self.client.wait_for(1)
            return self.client.messages[0]
        message = self.client.expect(Publish)
        return message.topic, message.payload, message.qos, message.retain

    def close(self) -> None:
        if isinstance(self.client, SnClient):
            self.client.close()
        else:
            self.client.cut()


@BOTH
@pytest.mark.matrix("P8")
def test_every_protocol_reads_what_every_protocol_has_retained(
    both: BrokerProcess, unique: Unique, version: int
) -> None:
    """All sixteen pairs; `version` only tells the matrix that both versions of MQTT are among them."""
    assert version in (4, 5)
    for writes in PROTOCOLS:
        topic, payload = unique.topic(f"from/{writes}"), writes.encode()
        writer = Anyone(both, writes)
        writer.publish(topic, payload)
        for reads in PROTOCOLS:
            reader = Anyone(both, reads)
            assert reader.retained(topic) == (topic, payload, 1, True), f"{writes} to {reads}"
            reader.close()
        writer.close()


@BOTH
@pytest.mark.matrix("P9")
@pytest.mark.parametrize("sn", [1, 2], ids=["1.2", "2.0"])
def test_a_copy_too_large_for_a_datagram_is_skipped_for_sensors_alone(
    both: BrokerProcess, mqtt: WireClient, sensor: Sensor, unique: Unique, sn: int, version: int
) -> None:
    mqtt.publish(unique.topic("large"), b"x" * 70_000, qos=1, retain=True)
    mqtt.publish(unique.topic("small"), b"y", qos=1, retain=True)
    client = sensor(sn)
    client.subscribe(f"{unique}/#", 1)
    client.wait_for(1)
    client.ping()
    assert client.messages == [(unique.topic("small"), b"y", 1, True)]
    with both.client(version) as other:
        other.connect(f"other{time.monotonic_ns()}")
        other.subscribe(f"{unique}/#", qos=1)
        sizes = sorted(len(other.expect(Publish).payload) for _ in range(2))
        assert sizes == [1, 70_000]
