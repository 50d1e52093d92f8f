"""What a publish is answered with, and what of it goes on: one rule a test."""

from collections.abc import Callable
from typing import Any

import pytest

import wire
from core_broker import CoreBroker, CoreClient
from wire import Disconnect, P, PubAck, PubComp, Publish, PubRec

Start = Callable[..., CoreBroker]
BOTH = pytest.mark.parametrize("version", [4, 5], ids=["v311", "v5"])

NO_MATCHING_SUBSCRIBERS = 0x10
NOT_AUTHORIZED = 0x87
DENY = {"permission": "deny", "action": "publish", "filter": "closed/#"}


def reason_of_end(client: CoreClient) -> int:
    """The reason code of the DISCONNECT that must be the last packet before the close."""
    assert client.closed
    said = client.arrived()[-1]
    assert isinstance(said, Disconnect), said
    return said.reason


# Acknowledgements


@pytest.mark.parametrize(
    ("version", "qos", "heard", "answer"),
    [
        (4, 0, True, []),
        (5, 0, True, []),
        (4, 1, True, [PubAck(packet_id=7)]),
        (4, 1, False, [PubAck(packet_id=7)]),
        (4, 2, False, [PubRec(packet_id=7)]),
        (5, 1, True, [PubAck(packet_id=7)]),
        (5, 1, False, [PubAck(packet_id=7, reason=NO_MATCHING_SUBSCRIBERS)]),
        (5, 2, True, [PubRec(packet_id=7)]),
        (5, 2, False, [PubRec(packet_id=7, reason=NO_MATCHING_SUBSCRIBERS)]),
    ],
)
def test_the_acknowledgement_says_whether_anyone_listens_where_the_version_can(
    broker: CoreBroker, version: int, qos: int, heard: bool, answer: list[wire.Packet]
) -> None:
    writer = broker.join("writer", version)
    if heard:
        broker.join("reader").subscribe("a")
    writer.send(wire.publish("a", "1", qos=qos, packet_id=7 if qos else None, version=version))
    assert writer.arrived() == answer


@pytest.mark.parametrize(
    ("version", "qos", "codes"),
    [(4, 1, [0]), (4, 2, [0]), (5, 1, [NOT_AUTHORIZED]), (5, 2, [NOT_AUTHORIZED]), (5, 0, [])],
)
def test_a_refused_publish_is_acknowledged_with_the_reason_where_there_is_one(
    start: Start, version: int, qos: int, codes: list[int]
) -> None:
    broker = start(access=[DENY, {"permission": "allow", "action": "all", "filter": "#"}])
    reader, writer = broker.join("reader"), broker.join("writer", version)
    reader.subscribe("#")
    writer.send(wire.publish("closed/a", "1", qos=qos, packet_id=7 if qos else None, version=version))
    assert [packet.reason for packet in writer.arrived() if isinstance(packet, PubAck | PubRec)] == codes
    assert reader.copies() == []
    assert not writer.closed


def test_a_refused_qos_2_publish_leaves_no_packet_id_behind(start: Start) -> None:
    broker = start(access=[DENY, {"permission": "allow", "action": "all", "filter": "#"}])
    writer = broker.join("writer")
    writer.send(wire.publish("closed/a", "1", qos=2, packet_id=7, version=5))
    writer.arrived()
    writer.send(wire.pubrel(7))
    assert writer.arrived() == [PubComp(packet_id=7, reason=0x92)]


@pytest.mark.parametrize("topic", ["$SYS/broker/uptime", "$holdfast/snapshot/end", "$SYS", "$holdfast"])
def test_topics_of_the_broker_are_nobody_elses(broker: CoreBroker, topic: str) -> None:
    reader, writer = broker.join("reader"), broker.join("writer")
    reader.subscribe(topic, "$SYS/#")
    assert writer.publish(topic, b"fake", qos=1, retain=True, check=False) == PubAck(
        packet_id=1, reason=NOT_AUTHORIZED, properties=[(P.REASON_STRING, "not authorized")]
    )
    assert reader.copies() == []
    assert broker.world.stored([topic]) == {}


@pytest.mark.parametrize(
    ("properties", "worded"),
    [
        ([], True),
        ([(P.REQUEST_PROBLEM_INFO, 0)], False),
        ([(P.MAXIMUM_PACKET_SIZE, 40)], True),
        ([(P.MAXIMUM_PACKET_SIZE, 21)], False),
    ],
    ids=["plain", "without problem information", "just enough room", "too small for words"],
)
def test_a_refusal_comes_in_words_where_the_client_takes_them(
    broker: CoreBroker, properties: list[wire.Property], worded: bool
) -> None:
    writer = broker.join("writer", properties=properties)
    answer = writer.publish("$SYS/a", b"1", qos=1, check=False)
    assert answer is not None
    assert (answer.prop(P.REASON_STRING) is not None) is worded


# QoS 2


@BOTH
def test_a_repeated_qos_2_publish_is_answered_again_and_delivered_once(broker: CoreBroker, version: int) -> None:
    reader, writer = broker.join("reader"), broker.join("writer", version)
    reader.subscribe("a", qos=0)
    for dup in (False, True):
        writer.send(wire.publish("a", "1", qos=2, packet_id=7, dup=dup, version=version))
    assert writer.arrived() == [PubRec(packet_id=7)] * 2
    assert reader.payloads() == ["1"]


@BOTH
def test_a_released_packet_id_may_carry_the_next_message(broker: CoreBroker, version: int) -> None:
    reader, writer = broker.join("reader"), broker.join("writer", version)
    reader.subscribe("a", qos=0)
    for payload in ("1", "2"):
        writer.send(wire.publish("a", payload, qos=2, packet_id=7, version=version))
        writer.send(wire.pubrel(7))
    assert writer.arrived() == [PubRec(packet_id=7), PubComp(packet_id=7)] * 2
    assert reader.payloads() == ["1", "2"]


@pytest.mark.parametrize(("version", "reason"), [(4, 0), (5, 0x92)])
def test_a_pubrel_for_nothing_is_answered_all_the_same(broker: CoreBroker, version: int, reason: int) -> None:
    writer = broker.join("writer", version)
    writer.send(wire.pubrel(9))
    assert writer.arrived() == [PubComp(packet_id=9, reason=reason)]


def test_open_packet_ids_outlive_the_connection_with_the_session(broker: CoreBroker) -> None:
    reader, writer = broker.join("reader"), broker.join("writer", keep=True)
    reader.subscribe("a", qos=0)
    writer.send(wire.publish("a", "1", qos=2, packet_id=7, version=5))
    writer.cut()
    back = broker.join("writer", keep=True)
    back.send(wire.publish("a", "1", qos=2, packet_id=7, dup=True, version=5))
    assert back.arrived() == [PubRec(packet_id=7)]
    assert reader.payloads() == ["1"]


def test_more_open_qos_2_messages_than_announced_end_the_connection(start: Start) -> None:
    writer = start(limits__receive_maximum=2).join("writer")
    for packet_id in (1, 2):
        writer.send(wire.publish("a", "1", qos=2, packet_id=packet_id, version=5))
    assert [type(packet) for packet in writer.arrived()] == [PubRec, PubRec]
    writer.send(wire.publish("a", "1", qos=2, packet_id=3, version=5))
    assert reason_of_end(writer) == 0x93


def test_a_311_client_was_told_no_maximum_and_is_held_to_none(start: Start) -> None:
    writer = start(limits__receive_maximum=2).join("writer", 4)
    for packet_id in (1, 2, 3):
        writer.send(wire.publish("a", "1", qos=2, packet_id=packet_id))
    assert writer.arrived() == [PubRec(packet_id=packet_id) for packet_id in (1, 2, 3)]


# Topic aliases


def test_an_alias_stands_for_the_topic_it_was_last_given(broker: CoreBroker) -> None:
    reader, writer = broker.join("reader"), broker.join("writer")
    reader.subscribe("#")
    for topic in ("a", "", "b", ""):
        writer.send_publish(topic, "1", properties=[(P.TOPIC_ALIAS, 3)])
    assert [topic for topic, *_ in reader.copies()] == ["a", "a", "b", "b"]


def test_an_alias_ends_with_the_connection(broker: CoreBroker) -> None:
    writer = broker.join("writer", keep=True)
    writer.send_publish("a", "1", properties=[(P.TOPIC_ALIAS, 3)])
    writer.cut()
    back = broker.join("writer", keep=True)
    back.send_publish("", "1", properties=[(P.TOPIC_ALIAS, 3)])
    assert reason_of_end(back) == 0x82


@pytest.mark.parametrize(
    ("topic", "properties", "reason"),
    [
        ("", [], 0x82),
        ("", [(P.TOPIC_ALIAS, 1)], 0x82),
        ("a", [(P.TOPIC_ALIAS, 5)], 0x94),
        ("a", [(P.TOPIC_ALIAS, 0)], 0x94),
        ("a", [(P.SUBSCRIPTION_ID, 1)], 0x82),
        ("a", [(P.USER_PROPERTY, ("n", "1"))] * 3, 0x97),
        ("a", [(P.RESPONSE_TOPIC, "a/+")], 0x82),
        ("a/+", [], 0x90),
        ("a/#", [], 0x90),
        ("a\x00b", [], 0x81),
        ("a/b/c/d", [], 0x90),
    ],
    ids=[
        "neither topic nor alias",
        "alias never given a topic",
        "alias above the maximum",
        "alias 0",
        "subscription identifier",
        "too many user properties",
        "wildcard in the response topic",
        "single-level wildcard",
        "multi-level wildcard",
        "null character",
        "too many levels",
    ],
)
def test_a_publish_that_may_not_be_ends_the_connection(
    start: Start, topic: str, properties: list[wire.Property], reason: int
) -> None:
    broker = start(limits__topic_alias_maximum=4, limits__max_user_properties=2, limits__max_topic_levels=3)
    writer = broker.join("writer")
    writer.send_publish(topic, "1", properties=properties)
    assert reason_of_end(writer) == reason


@pytest.mark.parametrize(
    ("topic", "properties"),
    [
        ("a", [(P.TOPIC_ALIAS, 4)]),
        ("a", [(P.USER_PROPERTY, ("n", "1"))] * 2),
        ("a/b/c", []),
        ("a", [(P.RESPONSE_TOPIC, "a/b")]),
    ],
    ids=["last alias", "as many user properties as may be", "as many levels as may be", "response topic"],
)
def test_a_publish_within_the_limits_is_taken(start: Start, topic: str, properties: list[wire.Property]) -> None:
    broker = start(limits__topic_alias_maximum=4, limits__max_user_properties=2, limits__max_topic_levels=3)
    reader, writer = broker.join("reader"), broker.join("writer")
    reader.subscribe("#")
    writer.publish(topic, b"1", properties=properties)
    assert reader.copies() == [(topic, "1", 0, False)]


# Header and capabilities


@BOTH
@pytest.mark.parametrize(
    "packet",
    [
        {"first": 0x36, "body": b"\x00\x01a\x00\x07"},
        {"first": 0x38, "body": b"\x00\x01a"},
        {"first": 0x32, "body": b"\x00\x01a\x00\x00"},
        {"first": 0x32, "body": b"\x00\x01a\x00"},
        {"first": 0x30, "body": b"\x00\x05a"},
        {"first": 0x31, "body": b"\x00"},
    ],
    ids=["QoS 3", "DUP at QoS 0", "packet id 0", "half a packet id", "topic too long", "half a length"],
)
def test_a_malformed_publish_ends_the_connection(broker: CoreBroker, version: int, packet: dict[str, Any]) -> None:
    writer = broker.join("writer", version)
    writer.send(wire.frame(packet["first"], packet["body"] + (b"\x00" if version == 5 else b"")))
    assert writer.closed
    if version == 5:
        assert reason_of_end(writer) in (0x81, 0x82)


@pytest.mark.parametrize(
    ("setting", "fields", "reason"),
    [
        ({"limits__max_qos": 1}, {"qos": 2, "packet_id": 1}, 0x9B),
        ({"limits__max_qos": 0}, {"qos": 1, "packet_id": 1}, 0x9B),
        ({"retainer__enable": False}, {"retain": True}, 0x9A),
    ],
    ids=["QoS 2", "QoS 1", "RETAIN"],
)
def test_what_was_announced_as_missing_may_not_be_used(
    start: Start, setting: dict[str, Any], fields: dict[str, Any], reason: int
) -> None:
    writer = start(**setting).join("writer")
    writer.send(wire.publish("a", "1", version=5, **fields))
    assert reason_of_end(writer) == reason


def test_without_retaining_a_311_publish_with_retain_is_delivered_live(start: Start) -> None:
    broker = start(retainer__enable=False)
    reader = broker.join("reader")
    reader.subscribe("a", retain_as_published=True)
    broker.join("writer", 4).publish("a", b"1", retain=True)
    assert reader.copies() == [("a", "1", 0, False)]
    assert broker.world.stored(["a"]) == {}


# Many packets in one read


@pytest.mark.parametrize("version", [4, 5], ids=["from v311", "from v5"])
@pytest.mark.parametrize("to", [4, 5], ids=["to v311", "to v5"])
@pytest.mark.parametrize("size", [1, 120, 20_000])
def test_a_run_of_plain_publishes_arrives_whole_in_either_version(
    broker: CoreBroker, version: int, to: int, size: int
) -> None:
    reader, writer = broker.join("reader", to), broker.join("writer", version)
    reader.subscribe("a")
    payloads = [letter * size for letter in "xyz"]
    writer.send(b"".join(wire.publish("a", payload, version=version) for payload in payloads))
    assert reader.payloads() == payloads


@BOTH
def test_a_packet_may_come_byte_by_byte(broker: CoreBroker, version: int) -> None:
    reader, writer = broker.join("reader"), broker.join("writer", version)
    reader.subscribe("#")
    for byte in wire.publish("a", "x" * 200, version=version) + wire.publish("b", "2", version=version):
        writer.send(bytes([byte]))
    assert reader.payloads() == ["x" * 200, "2"]


@BOTH
def test_what_precedes_a_malformed_packet_in_the_same_read_is_delivered(broker: CoreBroker, version: int) -> None:
    reader, writer = broker.join("reader"), broker.join("writer", version)
    reader.subscribe("a")
    writer.send(wire.publish("a", "1", version=version) * 2 + b"\x00\x00" + wire.publish("a", "2", version=version))
    assert writer.closed
    assert reader.payloads() == ["1", "1"]


def test_properties_are_forwarded_in_order_and_an_alias_is_not(broker: CoreBroker) -> None:
    reader, writer = broker.join("reader"), broker.join("writer")
    reader.subscribe("a")
    kept = [
        (P.CONTENT_TYPE, "text/plain"),
        (P.CORRELATION_DATA, b"\x00\x01"),
        (P.USER_PROPERTY, ("b", "1")),
        (P.USER_PROPERTY, ("a", "2")),
        (P.USER_PROPERTY, ("b", "1")),
    ]
    writer.send_publish("a", "1", properties=[(P.TOPIC_ALIAS, 1), *kept])
    (message,) = reader.arrived()
    assert isinstance(message, Publish)
    assert message.properties == kept
