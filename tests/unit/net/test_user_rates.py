"""Connections of one user share its rates: who is over them is not read from for a while, and nobody else."""

import asyncio
from typing import Any

import wire_packets as wire
from holdfast.broker.core import Broker
from holdfast.broker.settings import Settings
from holdfast.net.admission import ListenerPolicy
from holdfast.net.peer import StreamPeer
from told_loop import ToldDriver, ToldLoop


class Line(asyncio.Transport):
    """Notes whether it is read from."""

    def __init__(self) -> None:
        super().__init__()
        self.reading = True

    def is_read(self) -> bool:
        return self.reading

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: Any) -> None:
        pass


class Room:
    def __init__(self, messages: float = 0, size: float = 0) -> None:
        settings = Settings()
        settings.user_message_rate = messages
        settings.user_byte_rate = size
        self.loop = ToldLoop()  # type: ignore[abstract]  # of a loop nothing else is asked here
        self.driver = ToldDriver(Broker(settings, "auto-"), self.loop)
        self.policy = ListenerPolicy()

    def client(self, client_id: str, username: str) -> tuple[StreamPeer, Line]:
        peer, line = StreamPeer(self.driver, self.policy), Line()
        peer.connection_made(line)
        peer.data_received(wire.connect(client_id, username=username))
        return peer, line


def publishes(count: int, size: int = 1) -> bytes:
    return b"".join(wire.publish("t", b"x" * size) for _ in range(count))


def test_connections_of_one_user_share_its_messages() -> None:
    room = Room(messages=10)
    (one, line_one), (two, line_two) = room.client("one", "ann"), room.client("two", "ann")
    bob, line_bob = room.client("three", "bob")
    one.data_received(publishes(10))
    assert line_one.is_read(), "a second's worth may come at once"
    two.data_received(publishes(10))
    assert not line_two.is_read(), "the other connection has used it up"
    bob.data_received(publishes(10))
    assert line_bob.is_read()
    room.loop.pass_time(0.99)
    assert not line_two.is_read()
    room.loop.pass_time(0.02)
    assert line_two.is_read()
    assert sum(room.driver.broker.counters.messages_received) == 30, "nothing is lost"


def test_bytes_count_whatever_they_are() -> None:
    room = Room(size=1000)
    one, line = room.client("one", "ann")
    one.data_received(b"\xc0\x00" * 500)
    assert not line.is_read(), "PINGREQ is bytes too, and so was CONNECT"
    room.loop.pass_time(2)
    assert line.is_read()
    one.data_received(publishes(1, size=11_000))
    room.loop.pass_time(9.9)
    assert not line.is_read(), "a large message is paid for afterwards"
    room.loop.pass_time(0.3)
    assert line.is_read()


def test_clients_without_a_name_are_one_user() -> None:
    room = Room(messages=1)
    (one, _), (two, line_two) = room.client("one", ""), room.client("two", "")
    one.data_received(publishes(1))
    two.data_received(publishes(1))
    assert not line_two.is_read()


def test_what_else_pauses_a_client_does_not_end_its_hold() -> None:
    room = Room(messages=1)
    one, line = room.client("one", "ann")
    one.data_received(publishes(11))
    assert not line.is_read()
    one.read_on_later(100)  # the end of a pause because a receiver was slow
    one.read_on_when_read()
    assert not line.is_read()
    room.loop.pass_time(10.1)
    assert line.is_read()


def test_the_longest_hold_counts() -> None:
    room = Room(messages=1)
    one, line = room.client("one", "ann")
    one.data_received(publishes(6))
    one.data_received(publishes(5))  # which was on its way when reading was paused
    room.loop.pass_time(5.5)
    assert not line.is_read()
    room.loop.pass_time(5)
    assert line.is_read()


def test_without_rates_nobody_is_held() -> None:
    room = Room()
    one, line = room.client("one", "ann")
    one.data_received(publishes(10_000))
    assert line.is_read()
    assert room.driver.broker.user_rates.buckets == {}
