"""One test for each timer that really waits, from the clock of the machine to the socket.

What each timer decides is proven in conformance and unit tests on a clock that is told the time. Here it is only that a
running broker keeps time at all.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker_process import BrokerProcess, Unique, start_holdfast
from sn_client import CONNECT, DISCONNECT, PINGREQ, SnClient
from wire import P, Property, Publish, Will, WireClient

KEEP: list[Property] = [(P.SESSION_EXPIRY, 60)]
SHORT_S = 3  # what must be there before it is over is there by then, also on a busy machine
SHORT_LIFE: list[Property] = [(P.MESSAGE_EXPIRY, SHORT_S)]
LATEST_S = 60.0

pytestmark = pytest.mark.usefixtures("holdfast_only")


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    running = start_holdfast(
        tmp_path_factory.mktemp("timed"),
        {"limits__connect_timeout": 1, "history__enable": False, "durability": "none"},  # no waiting for a busy disk
        listen=("tcp://127.0.0.1:0", "udp://127.0.0.1:0"),
    )
    yield running
    running.stop()


def connected(broker: BrokerProcess, client_id: str, *, properties: list[Property] = KEEP, **fields: Any) -> WireClient:
    client = broker.client(5)
    client.connect(client_id, properties=properties, **fields)
    return client


def seconds_of(wait: Callable[[], object]) -> float:
    started = time.monotonic()
    wait()
    return time.monotonic() - started


def test_a_retained_message_expires_by_the_wall_clock(timed: BrokerProcess, unique: Unique) -> None:
    client = connected(timed, unique.client())
    client.publish(unique.topic(), b"1", qos=1, retain=True, properties=SHORT_LIFE)
    client.subscribe(unique.topic())
    client.expect(Publish, payload=b"1", retain=True)
    time.sleep(SHORT_S + 0.1)
    client.subscribe(unique.topic())
    client.expect_no_message()


def test_a_queued_message_expires_by_the_wall_clock(timed: BrokerProcess, unique: Unique) -> None:
    absent = connected(timed, unique.client("absent"))
    absent.subscribe(unique.topic(), qos=1)
    absent.disconnect()
    publisher = connected(timed, unique.client())
    publisher.publish(unique.topic(), b"short", qos=1, properties=SHORT_LIFE)
    publisher.publish(unique.topic(), b"long", qos=1)
    time.sleep(SHORT_S + 0.1)
    back = connected(timed, unique.client("absent"), clean=False)
    back.expect(Publish, payload=b"long")


def test_a_delayed_will_is_published_by_the_wall_clock(timed: BrokerProcess, unique: Unique) -> None:
    watcher = connected(timed, unique.client())
    watcher.subscribe(unique.topic())
    will = Will(unique.topic(), b"dead", properties=[(P.WILL_DELAY, 1)])
    connected(timed, unique.client("mortal"), will=will).cut()
    waited = seconds_of(lambda: watcher.expect(Publish, payload=b"dead"))
    assert 0.9 <= waited <= LATEST_S, f"expected the will after 1 s, got it after {waited:.2f} s"


def test_a_session_expires_by_the_wall_clock(timed: BrokerProcess, unique: Unique) -> None:
    connected(timed, unique.client(), properties=[(P.SESSION_EXPIRY, SHORT_S)]).disconnect()
    back = connected(timed, unique.client(), clean=False, properties=[(P.SESSION_EXPIRY, SHORT_S)])
    assert back.connack is not None
    assert back.connack.session_present
    back.disconnect()
    time.sleep(SHORT_S + 0.3)
    late = connected(timed, unique.client(), clean=False)
    assert late.connack is not None
    assert not late.connack.session_present


def test_a_silent_client_is_closed_by_the_wall_clock(timed: BrokerProcess, unique: Unique) -> None:
    client = connected(timed, unique.client(), keep_alive=1)
    waited = seconds_of(lambda: client.expect_disconnect(0x8D))
    assert 1.4 <= waited <= LATEST_S, f"expected the close after 1.5 s, got it after {waited:.2f} s"


def test_a_connection_without_connect_is_closed_by_the_wall_clock(timed: BrokerProcess) -> None:
    waited = seconds_of(timed.client().expect_closed)
    assert 0.9 <= waited <= LATEST_S, f"expected the close after 1 s, got it after {waited:.2f} s"


@pytest.mark.parametrize("version", [1, 2], ids=["SN1.2", "SN2.0"])
def test_a_silent_sensor_is_told_to_go_by_the_wall_clock(timed: BrokerProcess, unique: Unique, version: int) -> None:
    with SnClient(timed.ports["udp"], version, unique.client()) as sensor:
        sensor.connect(keep_alive=1)
        sensor.seen.clear()
        started = time.monotonic()
        while not sensor.seen and time.monotonic() < started + LATEST_S:
            sensor.poll(0.2)
        assert [kind for kind, _ in sensor.seen] == [sensor.code(DISCONNECT)]
        assert time.monotonic() - started >= 1.4


def test_a_sensor_that_oversleeps_is_forgotten_by_the_wall_clock(timed: BrokerProcess, unique: Unique) -> None:
    with SnClient(timed.ports["udp"], 1, unique.client()) as sensor:
        sensor.connect()
        sensor.sleep(SHORT_S)
        sensor.wake()
        sensor.sleep(SHORT_S)
        time.sleep(1.5 * SHORT_S + 0.2)
        answer = sensor.request(PINGREQ, sensor.client_id.encode(), DISCONNECT)
        assert answer == b"", "who is unknown is asked to connect again"
        assert sensor.request(CONNECT, b"\x04\x01\x00\x3c" + sensor.client_id.encode(), (0x05, 0x02)) == b"\x00"
