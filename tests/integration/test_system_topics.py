"""$SYS/broker: the names that mosquitto's users know."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from broker_process import BrokerProcess
from wire import Publish

Start = Callable[..., BrokerProcess]

LOADS = ("bytes/received", "bytes/sent", "connections", "messages/received", "messages/sent")
PUBLISH_LOADS = ("publish/dropped", "publish/received", "publish/sent", "sockets")
NAMES = {
    "bytes/received",
    "bytes/sent",
    "clients/active",
    "clients/connected",
    "clients/disconnected",
    "clients/expired",
    "clients/inactive",
    "clients/maximum",
    "clients/total",
    "messages/received",
    "messages/sent",
    "messages/stored",
    "publish/bytes/received",
    "publish/bytes/sent",
    "publish/messages/dropped",
    "publish/messages/received",
    "publish/messages/sent",
    "retained messages/count",
    "shared_subscriptions/count",
    "store/messages/bytes",
    "store/messages/count",
    "subscriptions/count",
    "uptime",
    "version",
} | {f"load/{name}/{minutes}min" for name in LOADS + PUBLISH_LOADS for minutes in (1, 5, 15)}


@pytest.fixture
def values(start_broker: Start) -> Callable[[], dict[str, str]]:
    broker = start_broker(sys__interval=0.2)
    steady = broker.client()
    steady.connect("steady", clean=False)
    steady.subscribe("a/#", "b", qos=1)
    steady.publish("a/1", b"x", qos=1, retain=True)
    steady.publish("a/2", b"x", qos=1, retain=True)
    steady.messages(2)

    def read() -> dict[str, str]:
        with broker.client() as client:
            client.connect("reader")
            client.subscribe("$SYS/#")
            got = [packet for packet in client.barrier() if isinstance(packet, Publish)]
        return {message.topic.removeprefix("$SYS/broker/"): message.payload.decode() for message in got}

    return read


def test_every_name_of_mosquitto_is_there(values: Callable[[], dict[str, str]]) -> None:
    deadline = time.monotonic() + 60
    while missing := NAMES - set(values()):
        assert time.monotonic() < deadline, f"not under $SYS/broker after 60 s: {sorted(missing)}"
        time.sleep(0.05)


def test_values_tell_what_happened(values: Callable[[], dict[str, str]]) -> None:
    deadline = time.monotonic() + 60
    while (got := values()).get("publish/messages/received") != "2":
        assert time.monotonic() < deadline, f"expected 2 publishes received, got {got}"
        time.sleep(0.05)
    assert got["version"].startswith("holdfast version ")
    assert got["uptime"].endswith(" seconds")
    assert int(got["bytes/received"]) > 0
    assert int(got["clients/connected"]) >= 1
    assert int(got["subscriptions/count"]) >= 2
    assert int(got["retained messages/count"]) >= 2


def test_values_come_again_while_a_client_listens(start_broker: Start) -> None:
    broker = start_broker(sys__interval=0.2)
    client = broker.client()
    client.connect("listener")
    client.subscribe("$SYS/broker/bytes/received")
    (first,) = client.messages(1)
    assert first.retain
    last = int(first.payload)
    for _ in range(3):
        client.ping()  # a value is published again only when it has changed
        message = client.expect(Publish)
        assert not message.retain
        assert int(message.payload) > last
        last = int(message.payload)


def test_interval_0_publishes_nothing(start_broker: Start) -> None:
    broker = start_broker(sys__interval=0)
    client = broker.client()
    client.connect("listener")
    client.subscribe("$SYS/#")
    client.expect_nothing(0.5)
