"""A reader that does not keep up: it never stalls others, never makes the broker grow without bound, and what it loses
is counted."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from broker_process import BrokerProcess
from wire import Publish, WireClient

Start = Callable[..., BrokerProcess]

MIB = 1024 * 1024
PAYLOAD = bytes(10_000)


def connected(broker: BrokerProcess, name: str, **options: int) -> WireClient:
    client = broker.client(**options)
    client.connect(name)
    return client


def test_slow_reader_neither_stalls_others_nor_grows_the_broker(start_broker: Start) -> None:
    broker = start_broker(limits__max_outbox_bytes=1 * MIB, sys__interval=0)
    slow = connected(broker, "slow", receive_buffer=4096)
    slow.subscribe("flood")
    fast, writer, other = connected(broker, "fast"), connected(broker, "writer"), connected(broker, "other")
    fast.subscribe("flood")
    before = broker.memory()
    rounds, burst = 80, 50  # 40 MB in all, half of the limit at a time
    for number in range(rounds):
        for _ in range(burst):
            writer.send_publish("flood", b"%d" % number + PAYLOAD)
        for message in fast.messages(burst):
            assert message.payload == b"%d" % number + PAYLOAD
        other.ping()
    grown = broker.memory() - before
    assert grown < 25 * MIB, f"40 MB for a slow reader made the broker {grown / MIB:.1f} MiB larger"
    # It is still a client, and gets what there was room for.
    got = [packet for packet in slow.barrier() if isinstance(packet, Publish)]
    assert 0 < len(got) < rounds * burst
    writer.publish("flood", b"after")
    slow.expect(Publish, payload=b"after")


def test_messages_dropped_for_a_slow_reader_are_counted(start_broker: Start) -> None:
    broker = start_broker(limits__max_outbox_bytes="64KiB", sys__interval=0.2)
    slow = connected(broker, "slow", receive_buffer=4096)
    slow.subscribe("flood")
    writer = connected(broker, "writer")
    sent = 2000
    for _ in range(sent):
        writer.send_publish("flood", PAYLOAD)
    writer.ping()
    got = len([packet for packet in slow.barrier() if isinstance(packet, Publish)])
    assert got < sent
    with broker.client() as client:
        client.connect("system-reader")
        client.subscribe("$SYS/broker/publish/messages/dropped")
        deadline = time.monotonic() + 60
        dropped = -1
        while dropped != sent - got and time.monotonic() < deadline:
            dropped = int(client.expect(Publish).payload)
        assert dropped == sent - got


@pytest.mark.parametrize("qos", [1, 2])
def test_messages_above_qos_0_wait_up_to_a_limit(qos: int, start_broker: Start) -> None:
    broker = start_broker(limits__max_inflight=10, limits__max_queued_messages=100)
    slow, steady = connected(broker, "slow"), connected(broker, "steady")
    slow.subscribe("t", qos=2)
    steady.subscribe("t", qos=2)
    writer = connected(broker, "writer")
    for number in range(300):
        writer.publish("t", b"%d" % number, qos=qos)
        assert [int(message.payload) for message in steady.messages(1)] == [number]
    # The slow one has acknowledged nothing: ten are with it, a hundred wait, the rest was dropped.
    first = slow.messages(10, ack=False)
    slow.expect_no_message()
    for message in first:
        slow.ack(message)
    numbers = [int(message.payload) for message in first + slow.messages(100)]
    slow.expect_no_message()
    assert numbers == sorted(numbers)
    assert numbers[:10] == list(range(10))
    writer.publish("t", b"300", qos=qos)
    assert [int(message.payload) for message in slow.messages(1)] == [300]


def test_queue_of_an_absent_client_is_bounded_in_bytes(start_broker: Start) -> None:
    broker = start_broker(limits__max_queued_bytes="1MiB")
    away = broker.client()
    away.connect("away", clean=False)
    away.subscribe("t", qos=1)
    away.disconnect()
    writer = connected(broker, "writer")
    for number in range(300):
        writer.publish("t", b"%3d" % number + PAYLOAD, qos=1)
    back = broker.client()
    back.connect("away", clean=False)
    got = [packet for packet in back.everything() if isinstance(packet, Publish)]
    size = sum(len(message.payload) for message in got)
    assert 0.8 * MIB < size < 1.2 * MIB, f"expected about 1 MiB, got {size / MIB:.2f} MiB in {len(got)} messages"


def test_slow_publisher_of_a_large_packet_holds_up_nobody(start_broker: Start) -> None:
    broker = start_broker()
    dribbling, steady = connected(broker, "dribbling"), connected(broker, "steady")
    steady.subscribe("#", qos=1)
    dribbling.send(b"\x30" + b"\x80\x80\x40" + b"\x00\x05large")
    for number in range(50):
        dribbling.send(bytes(1000))
        steady.publish("small", b"%d" % number, qos=1)
        assert [message.payload for message in steady.messages(1)] == [b"%d" % number]
