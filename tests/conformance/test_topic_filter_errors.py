"""Topic filters that are none, in SUBSCRIBE and UNSUBSCRIBE: what ends the connection, and what is refused.

Where nothing of a filter is there, the packet is a protocol error. A filter that is there and malformed is refused
where the answer has a code to say so; UNSUBACK of 3.1.1 has none, so that there it ends the connection too.
"""

from collections.abc import Callable

import pytest

import wire
from broker_process import Unique
from v5_client import KEEP, expect_dropped
from wire import Publish, SubAck, UnsubAck, WireClient

Connect = Callable[..., WireClient]

END = "the connection ends"
# Clauses of 3.1.1 and of 5.0.
EMPTY = (["MQTT-4.7.3-1", "MQTT-4.8.0-1"], ["MQTT-4.7.3-1", "MQTT-4.13.1-1"])
SHARE = (["MQTT-4.8.0-1"], ["MQTT-4.8.2-1", "MQTT-4.8.2-2"])
HASH = (["MQTT-4.7.1-2", "MQTT-4.8.0-1"], ["MQTT-4.7.1-1"])
PLUS = (["MQTT-4.7.1-3", "MQTT-4.8.0-1"], ["MQTT-4.7.1-2"])
NUL = (["MQTT-1.5.3-2", "MQTT-4.7.3-2"], ["MQTT-1.5.4-2", "MQTT-4.7.3-2"])

Outcome = str | int
# Filter, clauses, SUBSCRIBE in 3.1.1 and 5.0, UNSUBSCRIBE in 3.1.1 and 5.0: the code in the answer (0 in 3.1.1, where
# UNSUBACK has none), or the end.
TABLE: list[tuple[str, tuple[list[str], list[str]], Outcome, Outcome, Outcome, Outcome]] = [
    ("", EMPTY, END, END, END, END),
    ("$share/", SHARE, END, END, END, END),
    ("$share/g", SHARE, END, END, END, END),
    ("$share/g/", SHARE, END, END, END, END),
    ("$share//", SHARE, END, END, END, END),
    ("$share/+", SHARE, END, END, END, END),
    ("a\0b", NUL, END, END, END, END),
    ("$share/g/\0", NUL, END, END, END, END),
    ("$share//a", SHARE, 0x80, 0x8F, END, 0x8F),
    ("$share/a+b/x", SHARE, 0x80, 0x8F, END, 0x8F),
    ("$share/#/x", SHARE, 0x80, 0x8F, END, 0x8F),
    ("$share/g/a#", HASH, 0x80, 0x8F, END, 0x8F),
    ("$share/g/a+", PLUS, 0x80, 0x8F, END, 0x8F),
    ("a#", HASH, 0x80, 0x8F, END, 0x8F),
    ("a/#/b", HASH, 0x80, 0x8F, END, 0x8F),
    ("#/", HASH, 0x80, 0x8F, END, 0x8F),
    ("a+", PLUS, 0x80, 0x8F, END, 0x8F),
    ("a/+b/c", PLUS, 0x80, 0x8F, END, 0x8F),
    # Neighbours that are filters.
    ("$share", SHARE, 0, 0, 0, 0x11),
    ("$share/g//", SHARE, 0, 0, 0, 0x11),
    ("$share/g/+/#", SHARE, 0, 0, 0, 0x11),
]


def table_rows(of_311: int, of_5: int) -> list[object]:
    """Version, filter and outcome, each row with the clauses of its version."""
    rows: list[object] = []
    for row in TABLE:
        for version, name, clauses, outcome in ((4, "3.1.1", row[1][0], row[of_311]), (5, "5.0", row[1][1], row[of_5])):
            mark = pytest.mark.clause(name, *clauses)
            rows.append(pytest.param(version, row[0], outcome, id=f"{name} {row[0]!r}", marks=mark))
    return rows


def expect_end(client: WireClient) -> None:
    if client.version == 5:
        expect_dropped(client, 0x81, 0x82)
    else:
        client.expect_closed()


@pytest.mark.parametrize(("version", "topic_filter", "outcome"), table_rows(2, 3))
def test_subscribe_to_what_is_no_filter(connect: Connect, version: int, topic_filter: str, outcome: Outcome) -> None:
    client = connect(version=version)
    client.send(wire.subscribe(9, [(topic_filter, 0)], version=version))
    if outcome == END:
        expect_end(client)
    else:
        client.expect(SubAck, packet_id=9, codes=[outcome])
        client.ping()


@pytest.mark.parametrize(("version", "topic_filter", "outcome"), table_rows(4, 5))
def test_unsubscribe_from_what_is_no_filter(
    connect: Connect, version: int, topic_filter: str, outcome: Outcome
) -> None:
    client = connect(version=version)
    client.send(wire.unsubscribe(9, [topic_filter], version=version))
    if outcome == END:
        expect_end(client)
    else:
        client.expect(UnsubAck, packet_id=9, codes=[outcome] if version == 5 else [])
        client.ping()


@pytest.mark.clause("5.0", "MQTT-3.8.3-4", "MQTT-4.8.2-2")
@pytest.mark.parametrize("topic_filter", ["$share/g", "$share/g/"])
def test_no_local_makes_a_share_without_a_filter_no_better(connect: Connect, topic_filter: str) -> None:
    client = connect(version=5)
    client.send(wire.subscribe(9, [(topic_filter, wire.options(no_local=True))], version=5))
    expect_dropped(client, 0x81, 0x82)


BOTH = pytest.mark.parametrize(
    "version",
    [
        pytest.param(4, id="3.1.1", marks=pytest.mark.clause("3.1.1", "MQTT-4.7.3-1", "MQTT-4.8.0-1")),
        pytest.param(5, id="5.0", marks=pytest.mark.clause("5.0", "MQTT-4.7.3-1", "MQTT-4.13.1-1")),
    ],
)


def kept_session(connect: Connect, unique: Unique, version: int) -> WireClient:
    return connect(unique.client(), version=version, clean=False, properties=KEEP if version == 5 else None)


@BOTH
@pytest.mark.parametrize("bad", ["", "$share/g"])
def test_nothing_of_a_subscribe_that_ends_the_connection_takes_effect(
    connect: Connect, unique: Unique, version: int, bad: str
) -> None:
    client = kept_session(connect, unique, version)
    client.send(wire.subscribe(9, [(unique.topic("good"), 0), (bad, 0)], version=version))
    expect_end(client)
    again = kept_session(connect, unique, version)
    again.publish(unique.topic("good"), b"1")
    again.expect_no_message()


@BOTH
@pytest.mark.parametrize("bad", ["", "$share/g"])
def test_nothing_of_an_unsubscribe_that_ends_the_connection_takes_effect(
    connect: Connect, unique: Unique, version: int, bad: str
) -> None:
    expect_still_subscribed_after_unsubscribe(connect, unique, version, bad)


@pytest.mark.clause("3.1.1", "MQTT-4.7.1-2", "MQTT-4.8.0-1")
def test_nothing_of_an_unsubscribe_with_a_malformed_wildcard_takes_effect_in_311(
    connect: Connect, unique: Unique
) -> None:
    expect_still_subscribed_after_unsubscribe(connect, unique, 4, "a#")


def expect_still_subscribed_after_unsubscribe(connect: Connect, unique: Unique, version: int, bad: str) -> None:
    client = kept_session(connect, unique, version)
    client.subscribe(unique.topic("kept"))
    client.send(wire.unsubscribe(9, [unique.topic("kept"), bad], version=version))
    expect_end(client)
    again = kept_session(connect, unique, version)
    again.publish(unique.topic("kept"), b"1")
    again.expect(Publish, topic=unique.topic("kept"))


@pytest.mark.clause("5.0", "MQTT-3.10.4-6", "MQTT-3.11.3-1", "MQTT-3.11.3-2", "MQTT-4.7.1-1")
def test_unsuback_of_5_refuses_a_malformed_filter_and_ends_the_other_subscriptions(
    connect: Connect, unique: Unique
) -> None:
    client = connect(version=5)
    client.subscribe(unique.topic("a"), unique.topic("b"))
    client.send(wire.unsubscribe(9, [unique.topic("a"), "a#", unique.topic("b"), "x"], version=5))
    client.expect(UnsubAck, packet_id=9, codes=[0x00, 0x8F, 0x00, 0x11])
    for name in ("a", "b"):
        client.publish(unique.topic(name), b"1")
    client.expect_no_message()
