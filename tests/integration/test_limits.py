"""Settings that limit what clients may use."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import pytest

import wire
from broker_process import BrokerProcess
from wire import ConnAck, PubAck, Publish

Start = Callable[..., BrokerProcess]

SERVER_BUSY = 0x89
TOPIC_NAME_INVALID = 0x90
QUOTA_EXCEEDED = 0x97


def test_connections_above_the_limit_are_refused_until_one_leaves(start_broker: Start) -> None:
    broker = start_broker(limits__max_connections=2)
    first, second = broker.client(), broker.client()
    first.connect("first")
    second.connect("second")
    with broker.client(4) as third:
        third.send(wire.connect("third"))
        third.expect(b"\x20\x02\x00\x03")
        third.expect_closed()
    with broker.client(5) as third:
        third.send(wire.connect("third", version=5))
        third.expect(ConnAck, code=SERVER_BUSY)
        third.expect_closed()
    first.disconnect()
    deadline = time.monotonic() + 60
    while True:
        with broker.client() as third:
            try:
                third.connect("third")
                break
            except AssertionError:
                assert time.monotonic() < deadline, "a place was free and nobody was let in"
    second.ping()


def test_connections_to_one_listener_can_be_limited(start_broker: Start) -> None:
    broker = start_broker(listen=["tcp://127.0.0.1:0?max_connections=1"])
    first = broker.client()
    first.connect("first")
    with broker.client() as second:
        second.send(wire.connect("second"))
        assert not any(isinstance(packet, ConnAck) and packet.code == 0 for packet in second.drain_until_closed())
    first.ping()


def test_new_connections_above_the_rate_are_refused(start_broker: Start) -> None:
    broker = start_broker(limits__connect_rate=5)
    accepted = 0
    started = time.monotonic()
    for number in range(40):
        with broker.client() as client:
            client.send(wire.connect(f"c{number}"))
            with contextlib.suppress(wire.Closed):
                accepted += client.expect(ConnAck).code == 0
    passed = time.monotonic() - started
    assert 1 <= accepted <= 5 * (passed + 2), f"{accepted} of 40 let in within {passed:.1f} s at 5 a second"


def test_publishes_above_the_rate_are_slowed_down_and_not_lost(start_broker: Start) -> None:
    broker = start_broker(limits__message_rate=50)
    fast, other = broker.client(), broker.client()
    fast.connect("fast")
    other.connect("other")
    started = time.monotonic()
    fast.send(b"".join(wire.publish("t", b"x", qos=1, packet_id=number) for number in range(1, 151)))
    other.ping()
    for number in range(1, 151):
        fast.expect(PubAck, packet_id=number)
    fast.ping()
    passed = time.monotonic() - started
    assert passed >= 1.5, f"150 messages at 50 a second took {passed:.1f} s"


def test_levels_of_a_topic_are_limited(start_broker: Start) -> None:
    broker = start_broker(limits__max_topic_levels=4)
    for version, refused in ((4, 0x80), (5, 0x8F)):
        client = broker.client(version)
        client.connect("c")
        assert client.subscribe("a/b/c/d", "a/b/c/d/e", check=False).codes == [0, refused]
        client.publish("a/b/c/d", b"x", qos=1)
        client.expect(Publish, topic="a/b/c/d")
        client.send_publish("a/b/c/d/e", b"x", qos=1)
        if version == 5:
            client.expect_disconnect(TOPIC_NAME_INVALID)
        else:
            client.expect_closed()


def test_topic_of_a_hundred_thousand_slashes_is_refused_and_harms_nothing(start_broker: Start) -> None:
    broker = start_broker()
    steady = broker.client()
    steady.connect("steady")
    for packet in (
        wire.publish("/" * 65535, b"x"),
        wire.publish("a/" * 32767, b"x", retain=True),
        wire.subscribe(1, [("+/" * 32767 + "#", 0)]),
        wire.unsubscribe(1, ["/" * 65535]),
    ):
        client = broker.client()
        client.connect("deep")
        client.send(packet + wire.disconnect())
        client.drain_until_closed()
    steady.ping()
    assert "Traceback" not in broker.output


def test_subscriptions_of_a_session_are_limited(start_broker: Start) -> None:
    broker = start_broker(limits__max_subscriptions=2)
    client = broker.client(5)
    client.connect("c")
    assert client.subscribe("a", "b", "c", "a", check=False).codes == [0, 0, QUOTA_EXCEEDED, 0]
    client.unsubscribe("a")
    assert client.subscribe("c").codes == [0]


@pytest.mark.parametrize(("asked", "told"), [(60, None), (600, 120), (0, 120)])
def test_longest_keep_alive_is_told_to_clients(asked: int, told: int | None, start_broker: Start) -> None:
    broker = start_broker(limits__keep_alive_max=120)
    client = broker.client(5)
    connack = client.connect("c", keep_alive=asked)
    assert connack.prop(wire.P.SERVER_KEEP_ALIVE) == told
