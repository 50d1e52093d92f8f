"""The pace at which one client is sent datagrams, and the interval of advertisements, by a loop with a told clock."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from holdfast.broker.core import Broker
from holdfast.broker.message import Publisher
from holdfast.broker.settings import Settings
from holdfast.broker.sn.ports import SnSettings
from holdfast.net.admission import ListenerPolicy
from holdfast.net.driver import Driver
from holdfast.net.udp import BURST, PAUSE_S, SnPeer, UdpEndpoint
from holdfast.protocol.sn.frame import Envelope
from holdfast.protocol.sn.packets import Publish
from holdfast.protocol.sn.v2_decode import decode
from told_loop import ToldDriver, ToldLoop

HERE = ("192.0.2.1", 1884)
SUBSCRIBE_ALL = bytes.fromhex("06 08 03 00 02 23")  # 2.0: # at QoS 0


class Endpoint(UdpEndpoint):
    """One that notes when each datagram left, and for where, and sends none."""

    def __init__(self, driver: Driver, sock: socket.socket) -> None:
        super().__init__(driver, ListenerPolicy(), SnSettings(), sock)
        self.sent: list[tuple[float, bytes, object]] = []

    def transmit(self, packet: bytes, address: object) -> None:
        self.sent.append((self.driver.loop.time(), packet, address))

    def taken(self) -> list[bytes]:
        sent, self.sent = self.sent, []
        return [packet for _, packet, _ in sent]

    def arrive(self, data: bytes, address: tuple[str, int] = HERE) -> None:
        self.driver.carry_out(self.gateway.receive([(data, address, address[0])], self.driver.now_ms()))


@pytest.fixture
def loop() -> ToldLoop:
    return ToldLoop()  # type: ignore[abstract]  # of a loop nothing else is asked here


@pytest.fixture
def endpoint(loop: ToldLoop) -> Iterator[Endpoint]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        yield Endpoint(ToldDriver(Broker(Settings(), "auto-"), loop), sock)


@pytest.fixture
def peer(endpoint: Endpoint) -> SnPeer:
    found = SnPeer(endpoint, HERE, None)
    found.attach(endpoint.driver.open(found))
    return found


def packets(first: int, count: int) -> list[bytes]:
    """Packets of five bytes that tell their number."""
    return [b"\x05\x03\x00" + number.to_bytes(2, "big") for number in range(first, first + count)]


def just_less(seconds: float) -> float:
    return seconds * 0.99


def test_a_burst_leaves_at_once_and_the_rest_after_a_pause_each_in_order(
    loop: ToldLoop, endpoint: Endpoint, peer: SnPeer
) -> None:
    wanted = packets(0, 3 * BURST + 5)
    peer.write(b"".join(wanted))
    for start in range(0, len(wanted), BURST):
        assert endpoint.taken() == wanted[start : start + BURST]
        assert peer.connection.outbox.blocked == (start + BURST < len(wanted))
        loop.pass_time(just_less(PAUSE_S))
        assert endpoint.taken() == []
        loop.pass_time(PAUSE_S - just_less(PAUSE_S))
    assert loop.timers == []


def test_what_is_written_during_a_pause_waits_behind_the_rest(loop: ToldLoop, endpoint: Endpoint, peer: SnPeer) -> None:
    wanted = packets(0, BURST + 3)
    peer.write(b"".join(wanted[: BURST + 1]))
    peer.write(wanted[BURST + 1])
    peer.write(wanted[BURST + 2])
    assert endpoint.taken() == wanted[:BURST]
    loop.pass_time(PAUSE_S)
    assert endpoint.taken() == wanted[BURST:]
    assert not peer.connection.outbox.blocked


def test_many_short_writes_are_a_burst_like_one_long_one(loop: ToldLoop, endpoint: Endpoint, peer: SnPeer) -> None:
    wanted = packets(0, 2 * BURST + 10)
    for packet in wanted:
        peer.write(packet)
    assert endpoint.taken() == wanted[:BURST]
    loop.pass_time(just_less(PAUSE_S))
    assert endpoint.taken() == []
    loop.pass_time(PAUSE_S)
    assert endpoint.taken() == wanted[BURST : 2 * BURST]
    loop.pass_time(PAUSE_S)
    assert endpoint.taken() == wanted[2 * BURST :]


def test_after_a_pause_of_its_own_a_client_gets_a_whole_burst_again(
    loop: ToldLoop, endpoint: Endpoint, peer: SnPeer
) -> None:
    for start in (0, BURST, 2 * BURST):
        wanted = packets(start, BURST)
        peer.write(b"".join(wanted))
        assert endpoint.taken() == wanted
        assert not peer.connection.outbox.blocked
        loop.pass_time(2 * PAUSE_S)


def test_a_client_behind_a_forwarder_has_the_same_pace(loop: ToldLoop, endpoint: Endpoint, peer: SnPeer) -> None:
    peer.move(HERE, Envelope(2, b"", b"\xaa"))
    peer.write(b"".join(packets(0, BURST + 1)))
    assert len(endpoint.taken()) == BURST
    loop.pass_time(PAUSE_S)
    assert endpoint.taken() == [Envelope(2, b"", b"\xaa").wrap(packets(BURST, 1)[0])]


@pytest.mark.parametrize(("clients", "topics"), [(1, 2000), (3, 500), (200, 150)])
def test_a_large_snapshot_leaves_whole_and_at_the_pace(
    loop: ToldLoop, endpoint: Endpoint, clients: int, topics: int
) -> None:
    """Also where many clients subscribe at once, and each is sent a little at a time."""
    driver = endpoint.driver
    for number in range(topics):
        driver.publish(Publisher("someone", "", "5.0"), b"set/%d" % number, b"%d" % number, 0, True)
    addresses = [("192.0.2.1", 10_000 + number) for number in range(clients)]
    for number, address in enumerate(addresses):
        endpoint.arrive(bytes.fromhex("0D 01 01 00 01 02 02 58 00 00") + b"%03d" % number, address)
    for address in addresses:
        endpoint.gateway.connections[address].proof.proven = True
        endpoint.arrive(SUBSCRIBE_ALL, address)
    loop.pass_time(60)
    for address in addresses:
        mine = [(when, decode(packet)) for when, packet, to in endpoint.sent if to == address]
        payloads = [packet.payload for _, packet in mine if isinstance(packet, Publish)]
        assert sorted(payloads) == sorted(b"%d" % number for number in range(topics))
        for (first, _), (last, _) in zip(mine, mine[BURST:], strict=False):
            assert last - first >= just_less(PAUSE_S), f"{BURST + 1} datagrams left without a pause"


def test_advertisements_go_out_at_their_interval(loop: ToldLoop, endpoint: Endpoint) -> None:
    both = [bytes.fromhex("05 00 01 00 3C"), bytes.fromhex("05 16 01 00 3C")]
    endpoint.advertise(HERE, 60)
    assert endpoint.taken() == both
    for _ in range(3):
        loop.pass_time(just_less(60))
        assert endpoint.taken() == []
        loop.pass_time(60 - just_less(60))
        assert endpoint.taken() == both
    endpoint.stop_reading()
    loop.pass_time(600)
    assert endpoint.taken() == []
