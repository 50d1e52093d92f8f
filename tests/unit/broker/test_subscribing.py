"""SUBSCRIBE and UNSUBSCRIBE: what is granted, what is refused, and when a subscription begins with what is retained."""

from collections.abc import Callable
from typing import Any

import pytest

import wire
from core_broker import CoreBroker, CoreClient
from wire import P, Publish, SubAck, UnsubAck

Start = Callable[..., CoreBroker]
BOTH = pytest.mark.parametrize("version", [4, 5], ids=["v311", "v5"])


def answer(client: CoreClient, *filters: tuple[str, int], **fields: Any) -> SubAck:
    """The SUBACK, which must be the first packet that comes."""
    client.send(wire.subscribe(9, filters, version=client.version, **fields))
    return client.expect(SubAck, packet_id=9)


@BOTH
@pytest.mark.parametrize("most", [0, 1, 2])
def test_the_qos_that_is_asked_for_is_granted_up_to_the_limit(start: Start, version: int, most: int) -> None:
    client = start(limits__max_qos=most).join("client", version)
    codes = answer(client, ("a", 0), ("b", 1), ("c", 2)).codes
    assert codes == [min(qos, most) for qos in (0, 1, 2)]


@pytest.mark.parametrize(
    "topic_filter",
    ["a/#/b", "a#", "#/a", "a+", "+a/b", "a/b+/c", "$share//a", "$share/g+/a", "$share/g/a+", "a/b/c/d/e"],
)
@pytest.mark.parametrize(("version", "code"), [(4, 0x80), (5, 0x8F)])
def test_an_invalid_filter_is_refused_and_the_others_are_not(
    start: Start, topic_filter: str, version: int, code: int
) -> None:
    client = start(limits__max_topic_levels=4).join("client", version)
    assert answer(client, ("good", 1), (topic_filter, 1), ("fine", 0)).codes == [1, code, 0]
    assert not client.closed


@pytest.mark.parametrize(
    "topic_filter", ["a/#", "#", "+", "+/+", "a//b", "/", "$share/g/#", "$share/g/a/+", "a b", "é"]
)
@BOTH
def test_a_valid_filter_is_granted(broker: CoreBroker, version: int, topic_filter: str) -> None:
    assert answer(broker.join("client", version), (topic_filter, 1)).codes == [1]


@BOTH
def test_an_empty_subscribe_ends_the_connection(broker: CoreBroker, version: int) -> None:
    client = broker.join("client", version)
    client.send(wire.subscribe(9, [], version=version))
    assert client.closed


@BOTH
def test_a_filter_with_more_levels_than_are_allowed_can_still_be_unsubscribed(start: Start, version: int) -> None:
    """It is a filter all the same, and the limit may have been another when it was subscribed."""
    client = start(limits__max_topic_levels=4).join("client", version)
    client.send(wire.unsubscribe(9, ["a/b/c/d/e"], version=version))
    client.expect(UnsubAck, packet_id=9, codes=[0x11] if version == 5 else [])


def test_a_session_may_have_only_so_many_subscriptions(start: Start) -> None:
    client = start(limits__max_subscriptions=2).join("client")
    assert answer(client, ("a", 0), ("b", 0), ("c", 0)).codes == [0, 0, 0x97]
    assert answer(client, ("a", 1)).codes == [1], "one that is there may be replaced"
    client.unsubscribe("b")
    assert answer(client, ("c", 1)).codes == [1]


@pytest.mark.parametrize(
    ("filters", "matched"),
    [
        (["a"], {"a"}),
        (["+"], {"a"}),
        (["a/+"], {"a/b"}),
        (["a/#"], {"a", "a/b", "a/b/c"}),
        (["#"], {"a", "a/b", "a/b/c"}),
        (["+/b/#"], {"a/b", "a/b/c"}),
        (["$x/#"], {"$x/a"}),
        (["+/a"], set()),
    ],
)
def test_live_and_retained_follow_the_same_matching(broker: CoreBroker, filters: list[str], matched: set[str]) -> None:
    live, late, writer = broker.join("live"), broker.join("late"), broker.join("writer")
    live.subscribe(*filters)
    for topic in ("a", "a/b", "a/b/c", "$x/a"):
        writer.publish(topic, b"1", retain=True)
    late.subscribe(*filters)
    assert {topic for topic, *_ in live.copies()} == matched
    assert {topic for topic, *_ in late.copies()} == matched


# What a subscription begins with


@pytest.mark.parametrize(
    ("handling", "existed", "begins"),
    [(0, False, True), (0, True, True), (1, False, True), (1, True, False), (2, False, False), (2, True, False)],
)
def test_retain_handling_decides_whether_a_subscription_begins_with_what_is_retained(
    broker: CoreBroker, handling: int, existed: bool, begins: bool
) -> None:
    client, writer = broker.join("client"), broker.join("writer")
    if existed:
        client.subscribe("a")
    writer.publish("a", b"1", retain=True)
    client.arrived()
    client.subscribe("a", retain_handling=handling)
    assert client.copies() == ([("a", "1", 0, True)] if begins else [])


@BOTH
def test_suback_goes_before_the_retained_copies_of_all_its_filters(broker: CoreBroker, version: int) -> None:
    writer, client = broker.join("writer"), broker.join("client", version)
    for topic in ("a", "b"):
        writer.publish(topic, b"1", retain=True)
    client.send(wire.subscribe(9, [("a", 0), ("b", 0)], version=version))
    packets = client.arrived()
    assert [type(packet) for packet in packets] == [SubAck, Publish, Publish]


def test_each_of_several_filters_brings_its_own_copies(broker: CoreBroker) -> None:
    broker.join("writer").publish("a", b"1", retain=True)
    client = broker.join("client")
    client.subscribe("a", "#", "b")
    assert client.copies() == [("a", "1", 0, True)] * 2


def test_a_shared_subscription_begins_with_nothing(broker: CoreBroker) -> None:
    broker.join("writer").publish("a", b"1", retain=True)
    client = broker.join("client")
    client.subscribe("$share/g/a")
    assert client.copies() == []


@pytest.mark.parametrize("granted", [0, 1, 2])
@pytest.mark.parametrize("stored", [0, 1, 2])
def test_a_retained_copy_has_the_lower_of_stored_and_granted_qos(broker: CoreBroker, stored: int, granted: int) -> None:
    broker.join("writer").publish("a", b"1", qos=stored, retain=True)
    client = broker.join("client")
    client.subscribe("a", qos=granted)
    assert client.copies() == [("a", "1", min(stored, granted), True)]


@pytest.mark.parametrize("as_published", [False, True])
def test_a_retained_copy_carries_retain_whatever_was_asked_for(broker: CoreBroker, as_published: bool) -> None:
    broker.join("writer").publish("a", b"1", retain=True)
    client = broker.join("client")
    client.subscribe("a", retain_as_published=as_published)
    assert client.copies() == [("a", "1", 0, True)]


def test_a_retained_copy_carries_the_identifier_of_its_subscription(broker: CoreBroker) -> None:
    broker.join("writer").publish("a", b"1", retain=True)
    client = broker.join("client")
    client.subscribe("a", properties=[(P.SUBSCRIPTION_ID, 268_435_455)])
    (message,) = client.arrived()
    assert message.props(P.SUBSCRIPTION_ID) == [268_435_455]


@pytest.mark.parametrize("since", ["soon", "-1", "1.5", "", "9" * 20, "\N{ARABIC-INDIC DIGIT ONE}"])
def test_an_offset_to_begin_from_must_be_one(broker: CoreBroker, since: str) -> None:
    client = broker.join("client")
    client.send(wire.subscribe(9, [("a", 0)], version=5, properties=[(P.USER_PROPERTY, ("holdfast-since", since))]))
    client.expect_disconnect(0x82)


# Replacing and ending


def test_subscribing_again_replaces_the_options(broker: CoreBroker) -> None:
    client, writer = broker.join("client"), broker.join("writer")
    client.subscribe("a", qos=2, retain_as_published=True, properties=[(P.SUBSCRIPTION_ID, 1)])
    client.subscribe("a", qos=1)
    writer.publish("a", b"1", qos=2, retain=True)
    (message,) = client.arrived()
    assert isinstance(message, Publish)
    assert (message.qos, message.retain, message.properties) == (1, False, [])


@pytest.mark.parametrize(("version", "codes"), [(4, []), (5, [0x00, 0x11])])
def test_unsubscribe_says_what_there_was_where_the_version_can(
    broker: CoreBroker, version: int, codes: list[int]
) -> None:
    client = broker.join("client", version)
    client.subscribe("a")
    assert client.unsubscribe("a", "b", packet_id=9) == UnsubAck(packet_id=9, codes=codes)


@pytest.mark.parametrize("topic_filter", ["a", "a/#", "+", "$share/g/a"])
def test_after_unsubscribe_nothing_more_comes(broker: CoreBroker, topic_filter: str) -> None:
    client, writer = broker.join("client"), broker.join("writer")
    client.subscribe(topic_filter)
    writer.publish("a", b"1")
    client.unsubscribe(topic_filter)
    writer.publish("a", b"2")
    assert client.payloads() == ["1"]


def test_unsubscribe_compares_filters_to_the_letter(broker: CoreBroker) -> None:
    client, writer = broker.join("client"), broker.join("writer")
    client.subscribe("a/+")
    assert client.unsubscribe("a/#", "a/b", "A/+").codes == [0x11] * 3
    writer.publish("a/b", b"1")
    assert client.payloads() == ["1"]


@pytest.mark.parametrize("packet_id", [1, 65535])
def test_an_acknowledgement_carries_the_packet_id_of_its_request(broker: CoreBroker, packet_id: int) -> None:
    client = broker.join("client")
    assert client.subscribe("a", packet_id=packet_id).packet_id == packet_id
    assert client.unsubscribe("a", packet_id=packet_id).packet_id == packet_id


@BOTH
@pytest.mark.parametrize("build", [wire.subscribe, wire.unsubscribe], ids=["SUBSCRIBE", "UNSUBSCRIBE"])
def test_packet_id_0_ends_the_connection(broker: CoreBroker, version: int, build: Callable[..., bytes]) -> None:
    client = broker.join("client", version)
    client.send(build(0, [("a", 0)] if build is wire.subscribe else ["a"], version=version))
    assert client.closed
