"""How long a connection may be silent: before CONNECT, and after it."""

from collections.abc import Callable

import pytest

import wire
from core_broker import CoreBroker
from wire import P, Will

Start = Callable[..., CoreBroker]
BOTH = pytest.mark.parametrize("version", [4, 5], ids=["v311", "v5"])


@BOTH
@pytest.mark.parametrize(
    ("keep_alive", "silent", "closed"),
    [
        (10, 14.999, False),
        (10, 15, True),
        (1, 1.5, True),
        (1, 1.499, False),
        (65535, 98302, False),
        (65535, 98303, True),
    ],
)
def test_a_client_may_be_silent_for_one_and_a_half_keep_alives(
    broker: CoreBroker, version: int, keep_alive: int, silent: float, closed: bool
) -> None:
    client = broker.join("client", version, keep_alive=keep_alive)
    broker.pass_ms(round(silent * 1000))
    assert client.closed is closed


def test_a_v5_client_is_told_why(broker: CoreBroker) -> None:
    client = broker.join("client", keep_alive=10)
    broker.pass_time(15)
    client.expect_disconnect(0x8D)


@pytest.mark.parametrize(
    "sign",
    [wire.pingreq(), wire.publish("a", "1", version=5), wire.pubrel(9), b"\x30"],
    ids=["PINGREQ", "PUBLISH", "PUBREL", "the first byte of a packet"],
)
def test_any_byte_is_a_sign_of_life(broker: CoreBroker, sign: bytes) -> None:
    client = broker.join("client", keep_alive=10)
    broker.pass_time(14)
    client.send(sign)
    broker.pass_time(14.9)
    assert not client.closed
    broker.pass_time(0.1)
    assert client.closed


def test_being_sent_messages_is_no_sign_of_life(broker: CoreBroker) -> None:
    client, writer = broker.join("client", keep_alive=10), broker.join("writer")
    client.subscribe("a")
    for _ in range(15):
        broker.pass_time(1)
        writer.publish("a", b"1")
    assert client.closed


@BOTH
def test_without_a_keep_alive_silence_may_last(broker: CoreBroker, version: int) -> None:
    client = broker.join("client", version, keep_alive=0)
    broker.pass_ms(365 * 24 * 3600 * 1000)
    client.ping()


def test_a_silent_client_ends_as_if_it_were_lost(broker: CoreBroker) -> None:
    watcher = broker.join("watcher")
    watcher.subscribe("w")
    broker.join("client", keep=True, keep_alive=10, will=Will("w", b"silent"))
    broker.pass_time(15)
    assert watcher.payloads() == ["silent"]
    back = broker.join("client", keep=True)
    assert back.connack is not None
    assert back.connack.session_present


@pytest.mark.parametrize("asked", [0, 60, 20])
def test_a_v5_client_is_held_to_the_keep_alive_it_was_told(start: Start, asked: int) -> None:
    broker = start(limits__keep_alive_max=20)
    client = broker.join("client", keep_alive=asked)
    broker.pass_time(29.9)
    assert not client.closed
    broker.pass_time(0.1)
    assert client.closed


def test_a_311_client_cannot_be_told_and_is_held_to_its_own(start: Start) -> None:
    client = (broker := start(limits__keep_alive_max=20)).join("client", 4, keep_alive=60)
    broker.pass_time(89.9)
    assert not client.closed


# Before CONNECT


@pytest.mark.parametrize(("waited", "closed"), [(9.999, False), (10, True)])
def test_a_connection_has_a_time_to_connect_in(start: Start, waited: float, closed: bool) -> None:
    broker = start(limits__connect_timeout=10)
    client = broker.client()
    broker.pass_time(waited)
    assert client.closed is closed
    assert client.arrived() == []


def test_half_a_connect_is_none(start: Start) -> None:
    broker = start(limits__connect_timeout=10)
    client = broker.client()
    for byte in wire.connect("slow")[:8]:
        client.send(bytes([byte]))
        broker.pass_time(1.25)
    assert client.closed


def test_who_has_connected_is_not_touched_by_it(start: Start) -> None:
    broker = start(limits__connect_timeout=10)
    client = broker.join("client")
    broker.pass_time(100)
    client.ping()


def test_each_connection_has_its_own_time(start: Start) -> None:
    broker = start(limits__connect_timeout=10)
    early = broker.client()
    broker.pass_time(6)
    late = broker.client()
    broker.pass_time(6)
    assert (early.closed, late.closed) == (True, False)
    broker.pass_time(4)
    assert late.closed


def test_many_connections_that_come_and_go_leave_no_timer_that_bites(broker: CoreBroker) -> None:
    for number in range(300):
        broker.join(f"c{number}", keep_alive=1, properties=[(P.SESSION_EXPIRY, 1)]).disconnect()
    stays = broker.join("c0", keep_alive=100)
    broker.pass_time(20)
    stays.ping()
