"""What is remembered for speed has a bound in bytes, however long the topics are and however many a client makes up."""

from __future__ import annotations

import pytest

import wire
from core_driver import carry_out
from holdfast.broker.access import Access
from holdfast.broker.core import ROUTES_BYTES, ROUTES_KEPT, Broker
from holdfast.broker.ports import Peer
from holdfast.broker.session import MOST_ALIASES, Connection
from holdfast.broker.settings import Settings
from wire import P

NOW_MS = 1_700_000_000_000


class Ear(Peer):
    def __init__(self) -> None:
        self.heard = 0

    def write(self, data: bytes) -> None:
        self.heard += len(data)

    def close(self, reason: str) -> None:
        raise AssertionError(reason)


def join(broker: Broker, name: str, **fields: object) -> Connection:
    connection = broker.open(Ear(), NOW_MS)
    carry_out(broker.receive(connection, wire.connect(name, version=5, **fields), NOW_MS))  # type: ignore[arg-type]
    return connection


def send(broker: Broker, connection: Connection, data: bytes) -> None:
    carry_out(broker.receive(connection, data, NOW_MS))


def size_of_routes(broker: Broker) -> int:
    return sum(2 * len(field) + sum(len(level) for level in route.levels) for field, route in broker.routes.items())


@pytest.mark.parametrize("length", [20, 900, 60_000])
def test_the_routes_of_made_up_topics_take_no_more_than_their_bound(length: int) -> None:
    broker = Broker(Settings(), "x")
    subscriber = join(broker, "subscriber")
    send(broker, subscriber, wire.subscribe(1, [("#", 0)], version=5))
    publisher = join(broker, "publisher")
    for number in range(min(2 * ROUTES_KEPT, 60_000_000 // length)):
        topic = f"{number}/".ljust(length, "x")
        send(broker, publisher, wire.publish(topic, b"", version=5))
        if number % 5000 == 0:
            assert size_of_routes(broker) <= ROUTES_BYTES + 200_000
            assert len(broker.routes) <= ROUTES_KEPT
    assert size_of_routes(broker) <= ROUTES_BYTES + 200_000


@pytest.mark.parametrize(("length", "most"), [(20, 100), (60_000, 0)])
def test_what_a_client_may_do_with_a_long_topic_is_not_remembered(length: int, most: int) -> None:
    broker = Broker(Settings(), "x")
    broker.set_access(Access([], True))
    publisher = join(broker, "publisher")
    for number in range(100):
        send(broker, publisher, wire.publish(f"{number}/".ljust(length, "x"), b"", version=5))
    assert len(publisher.rights) == most


@pytest.mark.parametrize(("length", "most"), [(20, MOST_ALIASES), (60_000, 0)])
def test_a_client_that_allows_many_aliases_is_given_a_bounded_number(length: int, most: int) -> None:
    broker = Broker(Settings(), "x")
    subscriber = join(broker, "subscriber", properties=[(P.TOPIC_ALIAS_MAXIMUM, 65_535)])
    send(broker, subscriber, wire.subscribe(1, [("#", 0)], version=5))
    publisher = join(broker, "publisher")
    for number in range(MOST_ALIASES + 100 if most else 100):
        send(broker, publisher, wire.publish(f"{number}/".ljust(length, "x"), b"", version=5))
    assert len(subscriber.outbox.aliases) == most
