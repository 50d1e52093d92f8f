"""Bad clients: each gets what it deserves, is noted in one line, and costs the others nothing."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable

import pytest

import wire
from broker_process import BrokerProcess, Unique
from wire import P, Publish, WireClient

Start = Callable[..., BrokerProcess]
Connect = Callable[..., WireClient]
OpenClient = Callable[..., WireClient]

MIB = 1024 * 1024
PACKET_TOO_LARGE = 0x95
MALFORMED = 0x81
PROTOCOL_ERROR = 0x82


@pytest.mark.usefixtures("holdfast_only")
@pytest.mark.parametrize(
    "header",
    [
        pytest.param(b"\x30\xff\xff\xff\x7f", id="PUBLISH of 256 MB"),
        pytest.param(b"\x82\xff\xff\xff\x7f", id="SUBSCRIBE of 256 MB"),
        pytest.param(b"\x30" + wire.varint(10 * MIB), id="PUBLISH just above 10 MiB"),
    ],
)
def test_packet_above_the_limit_is_refused_when_announced(header: bytes, connect: Connect) -> None:
    four, five = connect(version=4), connect(version=5)
    four.send(header)
    four.expect_closed()
    five.send(header)
    five.expect_disconnect(PACKET_TOO_LARGE)


@pytest.mark.usefixtures("holdfast_only")
def test_connect_above_the_limit_is_refused_when_announced(open_client: OpenClient) -> None:
    client = open_client()
    client.send(b"\x10\xff\xff\xff\x7f")
    client.expect_closed()


def test_largest_packet_is_a_setting(start_broker: Start) -> None:
    broker = start_broker(limits__max_packet_size=1000)
    client = broker.client(5)
    connack = client.connect("c")
    assert connack.prop(P.MAXIMUM_PACKET_SIZE) == 1000
    client.subscribe("t")
    fits = wire.publish("t", bytes(1000 - 7), version=5)
    assert len(fits) == 1000
    client.send(fits)
    client.expect(Publish, topic="t")
    client.send(wire.publish("t", bytes(1000 - 6), version=5))
    client.expect_disconnect(PACKET_TOO_LARGE)


def test_announced_bytes_cost_nothing_until_they_arrive(start_broker: Start) -> None:
    broker = start_broker()
    clients = [broker.client() for _ in range(50)]
    for number, client in enumerate(clients):
        client.connect(f"c{number}")
    before = broker.memory()
    for client in clients:
        client.send(b"\x30" + wire.varint(9 * MIB) + b"\x00\x01t")
    with broker.client() as other:
        other.connect("other")
        other.ping()
    grown = broker.memory() - before
    assert grown < 20 * MIB, f"50 announcements of 9 MiB cost {grown / MIB:.1f} MiB"


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        pytest.param(b"\xf1\x00", MALFORMED, id="AUTH with wrong flags"),
        pytest.param(b"\x36\x05\x00\x01t\x00\x01", MALFORMED, id="QoS 3"),
        pytest.param(b"\x30\xff\xff\xff\xff\x01", MALFORMED, id="length of five bytes"),
        pytest.param(wire.publish(b"\xff", b"", version=5), MALFORMED, id="topic not UTF-8"),
        pytest.param(wire.connect("again", version=5), PROTOCOL_ERROR, id="second CONNECT"),
    ],
)
def test_bad_input_is_answered_with_its_reason_and_one_warning(
    packet: bytes, reason: int, start_broker: Start, unique: Unique
) -> None:
    broker = start_broker()
    steady = broker.client()
    steady.connect("steady")
    before = broker.output
    five, four = broker.client(5), broker.client(4)
    five.connect("culprit")
    five.send(packet)
    five.expect_disconnect(reason)
    steady.ping()
    broker.wait_output("protocol error")
    lines = [line for line in broker.output.removeprefix(before).splitlines() if " warning " in line]
    assert len(lines) == 1, lines
    assert "client_id=culprit" in lines[0]
    if reason == MALFORMED:
        four.connect("bad4")
        four.send(packet)
        four.expect_closed()
    assert "Traceback" not in broker.output


def test_noise_on_many_connections_disturbs_nobody(
    broker: BrokerProcess, open_client: OpenClient, connect: Connect, unique: Unique
) -> None:
    noise = random.Random(2024)
    steady = connect()
    steady.subscribe(unique.topic(), qos=1)
    for number in range(60):
        client = open_client()
        start = wire.connect(unique.client(f"noise{number}"), version=4 + number % 2) if number % 3 else b""
        with contextlib.suppress(OSError):
            client.send(start + noise.randbytes(noise.randrange(1, 200)))
        client.cut()
        steady.publish(unique.topic(), b"%d" % number, qos=1)
        assert [message.payload for message in steady.messages(1)] == [b"%d" % number]
    assert "Traceback" not in broker.output


def test_cut_off_in_the_middle_of_a_packet_leaves_nothing(connect: Connect, unique: Unique) -> None:
    watcher = connect()
    watcher.subscribe(unique.topic())
    packet = wire.publish(unique.topic(), b"never complete")
    for length in range(1, len(packet), 5):
        client = connect(unique.client("cut"))
        client.send(packet[:length])
        client.cut()
    connect(unique.client("cut")).ping()
    watcher.expect_no_message()


def test_many_connections_that_come_and_go_leave_nothing_behind(start_broker: Start) -> None:
    broker = start_broker(limits__connect_timeout=1, sys__interval=0)

    def churn(count: int) -> None:
        for number in range(count):
            with WireClient(broker.port) as client:
                client.connect(f"churn{number % 7}", keep_alive=1)
                client.subscribe("churn/a", "churn/b")
        time.sleep(2)  # timers of connections that are gone run out

    churn(1500)
    before = broker.memory()
    churn(1500)
    grown = broker.memory() - before
    assert grown < 2 * MIB, f"1500 connections left {grown / MIB:.1f} MiB"
