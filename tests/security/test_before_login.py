"""What a stranger can use up: memory, time and connections before any login (CVE-2017-7651, CVE-2023-0809)."""

import socket
import time
from collections.abc import Callable

import pytest

import wire
from broker_process import BrokerProcess
from guarded import Guarded
from wire import ConnAck, P, WireClient
from wire_websocket import WebSocket

Start = Callable[..., BrokerProcess]

MIB = 1024 * 1024


def test_a_huge_connect_is_refused_at_its_first_bytes(start_broker: Start) -> None:
    broker = start_broker()
    before = broker.memory()
    for _ in range(50):
        client = broker.client(5)
        client.send(b"\x10" + wire.varint(9 * MIB) + b"\x00\x04MQTT\x05")
        client.expect_closed()
    assert broker.memory() - before < 8 * MIB


def test_what_follows_a_connect_is_not_gathered_without_end(guarded: Callable[..., Guarded]) -> None:
    """While a password is being checked, and while a SCRAM client is asked, a stranger's bytes wait in memory."""
    site = guarded()
    before = site.broker.memory()
    chunk = wire.publish("t", bytes(60_000), version=5)
    ended = 0
    for _ in range(20):
        client = site.open()
        client.sock.settimeout(5)
        try:
            client.sock.sendall(wire.connect("x", version=5, username="owner", password=b"wrong"))
            for _ in range(170):
                client.sock.sendall(chunk)
        except OSError:
            ended += 1  # the broker has hung up in the middle of it
        client.cut()
    assert site.broker.memory() - before < 16 * MIB
    assert ended > 0
    site.enter("owner").ping()


@pytest.mark.parametrize(
    "data",
    [
        wire.publish("t", b"x", version=5),
        wire.subscribe(1, [("#", 0)], version=5),
        b"\x30\xff\xff\xff\x7f",
        b"\xf0\x00",
        b"\xe0\x00",
        b"\x00\x00",
        b"\x10\xff\xff\xff\xff\x7f",
        b"GET / HTTP/1.1\r\n\r\n",
        b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n",
        b"\x16\x03\x01\x02\x00\x01",
    ],
)
def test_anything_but_a_connect_ends_the_connection_at_once(broker: BrokerProcess, data: bytes) -> None:
    with WireClient(broker.port, 5) as client:
        client.send(data)
        assert client.drain_until_closed() == []


def test_silence_ends_in_time_on_every_transport(start_broker: Start) -> None:
    broker = start_broker(limits__connect_timeout="500ms", listen=["tcp://127.0.0.1:0", "ws://127.0.0.1:0"])
    opened = []
    for port in broker.ports.values():
        for start in (b"", b"\x10", b"\x10\x20\x00\x04MQTT"):
            sock = socket.create_connection(("127.0.0.1", port), 60)
            sock.sendall(start)
            opened.append(sock)
    websocket = WebSocket(broker.ports["ws"])
    for sock in [*opened, websocket.sock]:
        sock.settimeout(60)
        while sock.recv(1000):
            pass
        sock.close()


def test_drops_that_feed_a_connect_slowly_do_not_extend_its_time(start_broker: Start) -> None:
    broker = start_broker(limits__connect_timeout="600ms")
    client = broker.client(5)
    packet = wire.connect("slow" * 300, version=5)  # more than a minute's drops
    sent = 0
    try:
        for byte in packet:
            client.send(bytes([byte]))
            sent += 1
            time.sleep(0.05)
    except OSError:
        pass  # the broker has hung up
    assert sent < len(packet)


def test_one_address_gets_so_many_connections_and_no_more(start_broker: Start) -> None:
    broker = start_broker(limits__max_connections_per_address=3)
    clients = [broker.client(5) for _ in range(3)]
    for number, client in enumerate(clients):
        client.connect(f"c{number}")
    broker.client(5).expect_closed()
    clients[0].disconnect()
    deadline = time.monotonic() + 60
    while True:
        again = broker.client(5)
        try:
            again.connect("again")
            break
        except (OSError, AssertionError):
            assert time.monotonic() < deadline, "the place that became free was not given to anyone"


def test_one_address_connects_only_so_often(start_broker: Start) -> None:
    broker = start_broker(limits__connect_rate_per_address=5)
    let_in = 0
    started = time.monotonic()
    for number in range(20):
        client = broker.client(5)
        try:
            client.connect(f"c{number}")
            let_in += 1
        except (OSError, AssertionError):
            pass
    assert 5 <= let_in <= 5 + 5 * (time.monotonic() - started) + 1


def test_a_packet_has_so_many_user_properties_and_no_more(start_broker: Start) -> None:
    broker = start_broker(limits__max_user_properties=10)
    client = broker.client(5)
    client.connect("c")
    few = [(P.USER_PROPERTY, ("k", "v"))] * 10
    client.publish("t", b"1", qos=1, properties=few)
    client.send(wire.publish("t", b"1", version=5, properties=[*few, *few]))
    client.expect_disconnect(0x97)
    other = broker.client(5)
    other.send(wire.connect("d", version=5, properties=[*few, *few]))
    assert other.expect(ConnAck).code == 0x97
