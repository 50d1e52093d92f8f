"""3.1.1: topic names, topic filters and how they match."""

from collections.abc import Callable

import pytest

import wire
from broker_process import Unique
from wire import Publish, SubAck, WireClient

Connect = Callable[..., WireClient]


def refused(client: WireClient) -> bool:
    """The broker closed the connection, or answered SUBSCRIBE with failure for each filter."""
    try:
        return set(client.expect(SubAck).codes) == {0x80}
    except wire.Closed:
        return True


@pytest.mark.clause("3.1.1", "MQTT-4.7.1-2")
@pytest.mark.parametrize("topic_filter", ["a#", "a/b#", "#/a", "a/#/b", "##", "a/##", "#a", "/#/"])
def test_misplaced_multi_level_wildcard_is_refused(topic_filter: str, connect: Connect) -> None:
    client = connect()
    client.send(wire.subscribe(1, [(topic_filter, 0)]))
    assert refused(client)


@pytest.mark.clause("3.1.1", "MQTT-4.7.1-3")
@pytest.mark.parametrize("topic_filter", ["a+", "+a", "a/b+", "a/+b/c", "++", "a/++", "+#"])
def test_misplaced_single_level_wildcard_is_refused(topic_filter: str, connect: Connect) -> None:
    client = connect()
    client.send(wire.subscribe(1, [(topic_filter, 0)]))
    assert refused(client)


TOPICS = ["a", "a/b", "a/b/c", "a/c", "/a", "a/", "/", "a//b", "A", "b", "b/a"]
MATCHES = {
    "a": ["a"],
    "a/b": ["a/b"],
    "a/+": ["a/b", "a/c", "a/"],
    "a/#": ["a", "a/b", "a/b/c", "a/c", "a/", "a//b"],
    "+": ["a", "A", "b"],
    "+/+": ["a/b", "a/c", "/a", "a/", "/", "b/a"],
    "/+": ["/a", "/"],
    "+/": ["a/", "/"],
    "a/+/c": ["a/b/c"],
    "a/+/b": ["a//b"],
    "+/b/#": ["a/b", "a/b/c"],
    "+/#": TOPICS,
    "#": TOPICS,
    "/#": ["/a", "/"],
    "a/b/c/#": ["a/b/c"],
    "+/a": ["/a", "b/a"],
    "//": [],
}


@pytest.mark.clause("3.1.1", "MQTT-4.7.1-2", "MQTT-4.7.1-3", "MQTT-3.3.2-3")
@pytest.mark.parametrize("topic_filter", MATCHES)
def test_filter_matches_exactly_its_topics(topic_filter: str, connect: Connect, unique: Unique) -> None:
    client, publisher = connect(), connect()
    client.subscribe(unique.topic(topic_filter))
    for topic in TOPICS:
        publisher.send_publish(unique.topic(topic), topic.encode())
    publisher.ping()
    got = [packet.payload.decode() for packet in client.barrier() if isinstance(packet, Publish)]
    # Under a prefix, P/# matches P itself, which is not among the topics published.
    assert got == MATCHES[topic_filter]


@pytest.mark.clause("3.1.1", "MQTT-4.7.2-1")
@pytest.mark.parametrize("topic_filter", ["#", "+/{name}", "+/+", "+/#"])
@pytest.mark.parametrize("retain", [False, True])
def test_leading_wildcard_does_not_match_dollar_topics(
    topic_filter: str, retain: bool, connect: Connect, unique: Unique
) -> None:
    early, late, exact, publisher = connect(), connect(), connect(), connect()
    topic, topic_filter = f"$h/{unique}", topic_filter.format(name=unique)
    early.subscribe(topic_filter)
    early.barrier()
    exact.subscribe("$h/+")
    exact.barrier()
    publisher.publish(topic, b"hidden", retain=retain)
    exact.expect(Publish, topic=topic, payload=b"hidden")
    early.expect_no_message()
    late.subscribe(topic_filter)
    assert [packet.topic for packet in late.barrier() if isinstance(packet, Publish) and packet.topic[0] == "$"] == []
    publisher.publish(topic, b"", retain=True)


@pytest.mark.clause("3.1.1", "MQTT-4.7.2-1")
def test_system_topics_are_not_matched_by_a_leading_wildcard(connect: Connect) -> None:
    client = connect()
    client.subscribe("#", "+/broker/#")
    got = [packet.topic for packet in client.barrier() if isinstance(packet, Publish)]
    assert [topic for topic in got if topic.startswith("$")] == []


@pytest.mark.clause("3.1.1", "MQTT-4.7.3-1")
@pytest.mark.parametrize(
    "packet",
    [
        pytest.param(wire.publish("", b"x"), id="PUBLISH"),
        pytest.param(wire.publish("", b"x", qos=1, packet_id=1), id="PUBLISH QoS 1"),
    ],
)
def test_empty_name_closes_the_connection(packet: bytes, connect: Connect) -> None:
    client = connect()
    client.send(packet)
    client.expect_closed()


@pytest.mark.clause("3.1.1", "MQTT-4.7.3-3")
def test_topic_of_65535_bytes_passes(connect: Connect, unique: Unique) -> None:
    topic = f"{unique}/".ljust(65533, "x") + "é"
    assert len(topic.encode()) == 65535
    client = connect()
    client.subscribe(topic)
    connect().publish(topic, b"long")
    client.expect(Publish, topic=topic, payload=b"long")


@pytest.mark.clause("3.1.1", "MQTT-4.7.3-4")
@pytest.mark.parametrize(
    ("published", "subscribed"),
    [
        ("caf\u00e9", "cafe\u0301"),
        ("\u212b", "\u00c5"),
        ("a", "A"),
        ("ss", "ß"),
        ("a b", "a\u00a0b"),
        ("\uff41", "a"),
        ("a", "a "),
    ],
)
def test_text_that_looks_the_same_is_not_the_same(
    published: str, subscribed: str, connect: Connect, unique: Unique
) -> None:
    client, publisher = connect(), connect()
    client.subscribe(unique.topic(subscribed))
    publisher.publish(unique.topic(published), b"no")
    publisher.publish(unique.topic(subscribed), b"yes")
    client.expect(Publish, payload=b"yes")
    client.expect_no_message()
