"""paho-mqtt, the client most people use: every transport and both versions."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from broker_process import Unique
from integration.conftest import TRANSPORTS, VERSIONS, Everywhere

TIMEOUT = 60

Start = Callable[..., "Paho"]


class Paho:
    """A running client whose messages wait in a queue."""

    def __init__(self, everywhere: Everywhere, transport: str, version: str, client_id: str, **connect: Any) -> None:
        self.messages: queue.Queue[mqtt.MQTTMessage] = queue.Queue()
        self.connected = threading.Event()
        self.disconnected = threading.Event()
        self.subscribed = threading.Event()
        self.session_present = False
        self.reason: Any = None
        self.properties: Properties | None = None
        self.five = version == "5.0"
        will = connect.pop("will", None)
        clean = connect.pop("clean", True)
        in_flight = connect.pop("in_flight", 20)
        self.client = mqtt.Client(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            protocol=mqtt.MQTTv5 if self.five else mqtt.MQTTv311,
            transport="websockets" if transport in ("ws", "wss") else "tcp",
            **({} if self.five else {"clean_session": clean}),
        )
        self.client.max_inflight_messages_set(in_flight)
        self.client.on_connect = self._on_connect
        self.client.on_disconnect = lambda *_: self.disconnected.set()
        self.client.on_message = lambda _client, _userdata, message: self.messages.put(message)
        self.client.on_subscribe = lambda *_: self.subscribed.set()
        if transport in ("ws", "wss"):
            self.client.ws_set_options(path="/mqtt")
        if transport in ("tls", "wss"):
            self.client.tls_set(everywhere.ca)
        if will is not None:
            self.client.will_set(**will)
        if self.five:
            connect["clean_start"] = clean
        self.client.connect("localhost", everywhere.port(transport), keepalive=30, **connect)
        self.client.loop_start()
        assert self.connected.wait(TIMEOUT), f"no CONNACK over {transport} with {version}"

    def _on_connect(self, _client: Any, _userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        self.session_present = flags.session_present
        self.reason = reason
        self.properties = properties
        self.connected.set()

    def subscribe(self, *args: Any, **kwargs: Any) -> None:
        self.subscribed.clear()
        self.client.subscribe(*args, **kwargs)
        assert self.subscribed.wait(TIMEOUT), f"no SUBACK for {args}"

    def publish(self, topic: str, payload: bytes, **kwargs: Any) -> None:
        """Publish and wait for the end of the handshake."""
        self.client.publish(topic, payload, **kwargs).wait_for_publish(TIMEOUT)

    def receive(self) -> mqtt.MQTTMessage:
        return self.messages.get(timeout=TIMEOUT)

    def vanish(self) -> None:
        """Lose the connection without DISCONNECT."""
        self.client.loop_stop()
        sock = self.client.socket()
        assert sock is not None
        sock.close()

    def stop(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.fixture
def start(everywhere: Everywhere, unique: Unique) -> Iterator[Start]:
    running: list[Paho] = []

    def make(transport: str, version: str, name: str | None = None, **connect: Any) -> Paho:
        client_id = unique.client(name or f"p{len(running)}")
        running.append(Paho(everywhere, transport, version, client_id, **connect))
        return running[-1]

    yield make
    for client in running:
        client.stop()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_paho_publishes_and_receives_at_every_qos(transport: str, version: str, start: Start, unique: Unique) -> None:
    client = start(transport, version)
    client.subscribe(unique.topic("#"), qos=2)
    for qos in (0, 1, 2):
        payload = bytes([qos]) * (1 + qos * 70_000)
        client.publish(unique.topic(f"q{qos}"), payload, qos=qos)
        message = client.receive()
        assert (message.topic, message.payload, message.qos) == (unique.topic(f"q{qos}"), payload, qos)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_paho_gets_the_retained_message_and_clears_it(
    transport: str, version: str, start: Start, unique: Unique
) -> None:
    writer = start("tcp", version)
    writer.publish(unique.topic(), b"kept", qos=1, retain=True)
    reader = start(transport, version)
    reader.subscribe(unique.topic(), qos=1)
    message = reader.receive()
    assert (message.payload, message.retain) == (b"kept", True)
    writer.publish(unique.topic(), b"", qos=1, retain=True)
    assert reader.receive().payload == b""
    late = start(transport, version)
    late.subscribe(unique.topic(), qos=1)
    writer.publish(unique.topic(), b"live", qos=1)
    message = late.receive()
    assert (message.payload, message.retain) == (b"live", False)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_paho_will_is_published_when_it_vanishes(transport: str, version: str, start: Start, unique: Unique) -> None:
    watcher = start("tcp", version)
    watcher.subscribe(unique.topic("will"), qos=1)
    doomed = start(transport, version, will={"topic": unique.topic("will"), "payload": b"gone", "qos": 1})
    doomed.vanish()
    message = watcher.receive()
    assert (message.payload, message.qos) == (b"gone", 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_paho_session_holds_messages_while_it_is_away(version: str, start: Start, unique: Unique) -> None:
    options: dict[str, Any] = {"clean": False}
    if version == "5.0":
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = 60
        options["properties"] = properties
    away = start("tcp", version, "away", **options)
    assert not away.session_present
    away.subscribe(unique.topic(), qos=1)
    away.client.disconnect()
    assert away.disconnected.wait(TIMEOUT)
    away.client.loop_stop()
    writer = start("tcp", version)
    for number in range(20):
        writer.publish(unique.topic(), b"%d" % number, qos=1)
    back = start("tcp", version, "away", **options)
    assert back.session_present
    assert [int(back.receive().payload) for _ in range(20)] == list(range(20))


def test_paho_sees_its_properties_unchanged(start: Start, unique: Unique) -> None:
    client = start("tcp", "5.0")
    client.subscribe(unique.topic(), options=SubscribeOptions(qos=1, retainAsPublished=True))
    properties = Properties(PacketTypes.PUBLISH)
    properties.ContentType = "text/plain"
    properties.ResponseTopic = "answers/here"
    properties.CorrelationData = b"\x00\xff\x00"
    properties.PayloadFormatIndicator = 1
    properties.MessageExpiryInterval = 60
    properties.UserProperty = [("a", "1"), ("b", "2"), ("a", "1")]
    client.publish(unique.topic(), b"x", qos=1, retain=True, properties=properties)
    message = client.receive()
    got = message.properties
    assert message.retain
    assert got is not None
    assert got.ContentType == "text/plain"
    assert got.ResponseTopic == "answers/here"
    assert got.CorrelationData == b"\x00\xff\x00"
    assert got.PayloadFormatIndicator == 1
    assert 58 <= got.MessageExpiryInterval <= 60
    assert got.UserProperty == [("a", "1"), ("b", "2"), ("a", "1")]


def test_paho_of_both_versions_understand_each_other(start: Start, unique: Unique) -> None:
    old, new = start("tcp", "3.1.1"), start("ws", "5.0")
    for client in (old, new):
        client.subscribe(unique.topic(), qos=2)
    old.publish(unique.topic(), b"from 3.1.1", qos=2)
    new.publish(unique.topic(), b"from 5.0", qos=2)
    for client in (old, new):
        assert {client.receive().payload for _ in range(2)} == {b"from 3.1.1", b"from 5.0"}


def test_a_thousand_messages_of_paho_arrive_in_order(start: Start, unique: Unique) -> None:
    sender, receiver = start("tcp", "3.1.1", in_flight=200), start("tcp", "5.0")
    receiver.subscribe(unique.topic(), qos=1)
    for number in range(1000):
        last = sender.client.publish(unique.topic(), b"%d" % number, qos=1)
    last.wait_for_publish(TIMEOUT)
    assert [int(receiver.receive().payload) for _ in range(1000)] == list(range(1000))
