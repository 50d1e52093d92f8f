"""MQTT 5.0 section 4.7: topic names, topic filters, and which matches which."""

import pytest

import wire
from broker_process import Unique
from v5_client import Connect5, expect_dropped
from wire import Publish, SubAck, WireClient


def expect_filter_refused(client: WireClient, topic_filter: str) -> None:
    """SUBACK 0x8F for this filter, or the end of the connection."""
    client.send(wire.subscribe(1, [(topic_filter, 0)], version=5))
    got = client.recv()
    if isinstance(got, SubAck):
        assert got.codes == [0x8F]
        client.expect_no_message()
    else:
        assert isinstance(got, wire.Disconnect), got
        assert got.reason in (0x81, 0x82, 0x8F)
        client.expect_closed()


@pytest.mark.clause("5.0", "MQTT-4.7.1-1")
@pytest.mark.parametrize("topic_filter", ["a#", "a/b#", "#a", "a/#/b", "#/", "##", "+#", "/a#", "#/#"])
def test_a_hash_anywhere_but_alone_at_the_end_is_refused(connect5: Connect5, topic_filter: str) -> None:
    expect_filter_refused(connect5(), topic_filter)


@pytest.mark.clause("5.0", "MQTT-4.7.1-2")
@pytest.mark.parametrize("topic_filter", ["a+", "+a", "a/b+", "a/+b/c", "++", "a/++", "+a/#"])
def test_a_plus_that_does_not_fill_its_level_is_refused(connect5: Connect5, topic_filter: str) -> None:
    expect_filter_refused(connect5(), topic_filter)


TOPICS = ["a", "b", "a/b", "a/c", "a/b/c", "a/", "/a", "/", "a//c", "A/b", "aa/b", "a/b c"]

# Filter, and which of TOPICS it matches.
MATCHES = [
    ("a", ["a"]),
    ("#", TOPICS),
    ("+", ["a", "b"]),
    ("a/#", ["a", "a/b", "a/c", "a/b/c", "a/", "a//c", "a/b c"]),
    ("a/+", ["a/b", "a/c", "a/", "a/b c"]),
    ("+/b", ["a/b", "A/b", "aa/b"]),
    ("+/+", ["a/b", "a/c", "a/", "/a", "/", "A/b", "aa/b", "a/b c"]),
    ("/+", ["/a", "/"]),
    ("+/", ["a/", "/"]),
    ("a/+/c", ["a/b/c", "a//c"]),
    ("a/b/#", ["a/b", "a/b/c"]),
    ("+/b/#", ["a/b", "a/b/c", "A/b", "aa/b"]),
    ("/#", ["/a", "/"]),
    ("a/b/c/#", ["a/b/c"]),
    ("+/+/+", ["a/b/c", "a//c"]),
]


@pytest.mark.clause("5.0", "MQTT-4.7.1-1", "MQTT-4.7.1-2", "MQTT-3.3.2-3", "MQTT-4.7.3-4")
@pytest.mark.parametrize(("topic_filter", "expected"), MATCHES, ids=[topic_filter for topic_filter, _ in MATCHES])
def test_a_filter_matches_exactly_these_topics(
    connect5: Connect5, unique: Unique, topic_filter: str, expected: list[str]
) -> None:
    """Live, and once more as retained messages, which are found another way."""
    live, publisher, late = connect5(), connect5(), connect5()
    live.subscribe(unique.topic(topic_filter))
    for topic in TOPICS:
        publisher.send_publish(unique.topic(topic), topic, retain=True)
    publisher.ping()
    late.subscribe(unique.topic(topic_filter))
    for client in (live, late):
        got = [packet.topic for packet in client.barrier() if isinstance(packet, Publish)]
        # Under the prefix of this test `#` and its like also match the prefix itself, where nothing is published.
        assert sorted(got) == sorted(unique.topic(topic) for topic in expected)


@pytest.mark.clause("5.0", "MQTT-4.7.2-1")
@pytest.mark.parametrize("topic_filter", ["#", "+/t", "+/#", "+/+"])
def test_a_filter_that_begins_with_a_wildcard_skips_dollar_topics(
    connect5: Connect5, unique: Unique, topic_filter: str
) -> None:
    client, publisher = connect5(), connect5()
    client.subscribe(topic_filter, retain_handling=2)
    publisher.publish(f"${unique}/t", b"hidden")
    publisher.publish(f"{unique}/t", b"seen")
    topics = [packet.topic for packet in client.barrier() if isinstance(packet, Publish)]
    assert [topic for topic in topics if str(unique) in topic] == [f"{unique}/t"]


@pytest.mark.clause("5.0", "MQTT-4.7.2-1")
@pytest.mark.parametrize("rest", ["t", "+", "#"])
def test_a_filter_that_names_a_dollar_topic_matches_it(connect5: Connect5, unique: Unique, rest: str) -> None:
    client = connect5()
    client.subscribe(f"${unique}/{rest}")
    client.publish(f"${unique}/t", b"1")
    client.expect(Publish, topic=f"${unique}/t")


@pytest.mark.clause("5.0", "MQTT-4.7.3-1")
def test_an_empty_topic_name_is_refused(connect5: Connect5) -> None:
    client = connect5()
    client.send(wire.publish("", b"1", version=5))
    expect_dropped(client, 0x82)


@pytest.mark.clause("5.0", "MQTT-4.7.3-1")
def test_topics_of_one_character_are_enough(connect5: Connect5) -> None:
    client = connect5()
    for topic in ("/", "x", "é"):
        client.subscribe(topic)
        client.publish(topic, b"1")
        client.expect(Publish, topic=topic)


@pytest.mark.clause("5.0", "MQTT-4.7.3-3")
def test_topics_and_filters_may_have_65535_bytes(connect5: Connect5, unique: Unique) -> None:
    longest = unique.topic("é" * 32000)
    longest += "x" * (65535 - len(longest.encode()))
    client = connect5()
    client.subscribe(longest)
    client.publish(longest, b"1", qos=1)
    client.expect(Publish, topic=longest, payload=b"1")
    assert client.unsubscribe(longest).codes == [0x00]


@pytest.mark.clause("5.0", "MQTT-4.7.3-4")
@pytest.mark.parametrize(
    ("topic_filter", "other"),
    [("caf\u00e9", "cafe\u0301"), ("a", "A"), ("a/b", "a//b"), ("a", "a "), ("a", "/a"), ("\u212b", "\u00c5")],
    ids=["composed", "case", "empty level", "space", "leading slash", "angstrom"],
)
def test_topics_are_compared_without_normalising(
    connect5: Connect5, unique: Unique, topic_filter: str, other: str
) -> None:
    client = connect5()
    client.subscribe(unique.topic(topic_filter))
    client.publish(unique.topic(other), b"other")
    client.publish(unique.topic(topic_filter), b"same")
    client.expect(Publish, topic=unique.topic(topic_filter), payload=b"same")
    client.expect_no_message()
