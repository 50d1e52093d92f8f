"""Matrix section I: which stored topics a filter finds."""

import time

import pytest

from broker_process import Server, Unique
from stage import BOTH, Copy, Stage, StageBuilder
from wire import Closed, publish

pytestmark = pytest.mark.told_clock

TREE = ("a", "a/b", "a/b/c", "/a", "a/")


@BOTH
@pytest.mark.matrix("I1")
@pytest.mark.clause("3.1.1", "MQTT-4.7.1-2", "MQTT-4.7.1-3")
@pytest.mark.clause("5.0", "MQTT-4.7.1-1", "MQTT-4.7.1-2")
@pytest.mark.parametrize(
    ("topic_filter", "found"),
    [
        ("a/#", {"a", "a/b", "a/b/c", "a/"}),
        ("a/+", {"a/b", "a/"}),
        ("+", {"a"}),
        ("+/+", {"a/b", "/a", "a/"}),
        ("#", set(TREE)),
        ("a/b/#", {"a/b", "a/b/c"}),
        ("+/b/#", {"a/b", "a/b/c"}),
        ("a/+/c", {"a/b/c"}),
        ("a/+/#", {"a/b", "a/b/c", "a/"}),
        ("/+", {"/a"}),
        ("/#", {"/a"}),
        ("a", {"a"}),
        ("b/#", set()),
        ("a/b/c/d", set()),
        ("a/b/c/#", {"a/b/c"}),
        ("a/b/+/+", set()),
    ],
)
def test_filter_finds_exactly_its_topics(stage: Stage, version: int, topic_filter: str, found: set[str]) -> None:
    publisher, subscriber = stage.client(version), stage.client(version)
    for topic in TREE:
        publisher.publish(topic, topic, retain=True)
    subscriber.subscribe(topic_filter)
    subscriber.receives(*(Copy(topic, topic, retain=True) for topic in found))


@BOTH
@pytest.mark.matrix("I2")
@pytest.mark.clause("3.1.1", "MQTT-4.7.2-1")
@pytest.mark.clause("5.0", "MQTT-4.7.2-1")
def test_filters_that_begin_with_a_wildcard_skip_dollar_topics(server: Server, unique: Unique, version: int) -> None:
    hidden, plain = f"${unique}/1", f"{unique}/1"
    expected = {
        "#": {plain},
        "+/1": {plain},
        "+/#": {plain},
        f"${unique}/#": {hidden},
        f"${unique}/+": {hidden},
        hidden: {hidden},
    }
    found = {}
    with Stage(server, unique, prefix="") as stage:
        publisher = stage.client(version)
        for topic in (hidden, plain):
            publisher.publish(topic, "1", retain=True)
        for topic_filter in expected:
            subscriber = stage.client(version)
            subscriber.subscribe(topic_filter)
            found[topic_filter] = {copy.topic for copy in subscriber.rest() if str(unique) in copy.topic}
    assert found == expected


@BOTH
@pytest.mark.matrix("I3")
@pytest.mark.clause("3.1.1", "MQTT-4.7.3-4")
@pytest.mark.clause("5.0", "MQTT-4.7.3-4")
def test_topics_are_compared_byte_by_byte(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version)
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    publisher.publish(composed, "1", retain=True)
    publisher.publish("a", "1", retain=True)
    for other in (decomposed, "A", "CAF\u00c9", "a ", " a"):
        subscriber.subscribe(other)
    subscriber.receives()
    subscriber.subscribe(composed)
    subscriber.receives(Copy(composed, "1", retain=True))


@BOTH
@pytest.mark.matrix("I4")
@pytest.mark.clause("3.1.1", "MQTT-3.3.2-2")
@pytest.mark.clause("5.0", "MQTT-3.3.2-2")
@pytest.mark.parametrize("topic", ["a/+", "a/#", "+", "a+b", "#"])
def test_publish_to_a_topic_with_a_wildcard_is_refused_and_stores_nothing(
    stage: Stage, version: int, topic: str
) -> None:
    publisher = stage.client(version)
    publisher.wire.send(publish(publisher.full(topic), "1", retain=True, version=version))
    if version == 5:
        packet = publisher.wire.drain_until_closed()
        assert [p.reason for p in packet if hasattr(p, "reason")] in ([0x90], [0x82], [0x81], [])
    else:
        publisher.wire.expect_closed()
    assert stage.stored(version) == {}


@BOTH
@pytest.mark.matrix("I5")
@pytest.mark.clause("3.1.1", "MQTT-4.7.3-3")
@pytest.mark.clause("5.0", "MQTT-4.7.3-3")
def test_longest_topic_is_kept_and_found(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version)
    longest = "x" * (65535 - len(publisher.full("")))
    assert len(publisher.full(longest)) == 65535
    publisher.publish(longest, "1", qos=1, retain=True)
    subscriber.subscribe("+")
    subscriber.receives(Copy(longest, "1", retain=True))
    subscriber.subscribe(longest)
    subscriber.receives(Copy(longest, "1", retain=True))


@BOTH
@pytest.mark.matrix("I5")
@pytest.mark.clause("3.1.1", "MQTT-4.7.3-1", "MQTT-4.7.3-2")
@pytest.mark.clause("5.0", "MQTT-4.7.3-1", "MQTT-4.7.3-2")
@pytest.mark.parametrize("topic", ["", "a\x00b"], ids=["empty", "with U+0000"])
def test_empty_topic_and_null_character_are_refused(stage: Stage, version: int, topic: str) -> None:
    publisher = stage.client(version)
    publisher.wire.send(publish(topic, "1", retain=True, version=version))
    with pytest.raises(Closed):
        publisher.wire.ping()


@BOTH
@pytest.mark.matrix("I6")
def test_system_values_are_retained_and_seen_only_by_name(
    stage_builder: StageBuilder, unique: Unique, version: int
) -> None:
    # System topics are written by what is around the core.
    with Stage(stage_builder.broker({"sys__interval": 1}), unique, prefix="") as stage:
        deadline = time.monotonic() + 60
        copies: list[Copy] = []
        while not copies and time.monotonic() < deadline:
            named = stage.client(version)
            named.subscribe("$SYS/broker/#")
            copies = named.rest()
        assert copies
        assert {copy.topic.split("/")[0] for copy in copies} == {"$SYS"}
        assert any(copy.retain for copy in copies)
        wild = stage.client(version, "wild")
        wild.subscribe("#", "+/broker/#")
        assert wild.take(1, 1.2) == []
