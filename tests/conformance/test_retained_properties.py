"""Matrix section K: MQTT 5 properties and topic aliases of stored messages."""

import pytest

from stage import BOTH, ONLY_5, Copy, P, Stage, user
from wire import publish
from wire_properties import Property

pytestmark = pytest.mark.told_clock

EVERY_PROPERTY: list[Property] = [
    (P.PAYLOAD_FORMAT, 1),
    (P.CONTENT_TYPE, "text/plain"),
    (P.RESPONSE_TOPIC, "answers/here"),
    (P.CORRELATION_DATA, b"\x00\xff\x00"),
    user("a", "1"),
    user("b", "2"),
    user("a", "1"),
]


@ONLY_5
@pytest.mark.matrix("K1", "K2", "K3", "K4", "K5")
@pytest.mark.clause("5.0", "MQTT-3.3.2-4", "MQTT-3.3.2-20", "MQTT-3.3.2-15", "MQTT-3.3.2-16")
@pytest.mark.clause("5.0", "MQTT-3.3.2-17", "MQTT-3.3.2-18")
def test_properties_come_back_unchanged(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version)
    publisher.publish("a", "1", qos=1, retain=True, properties=EVERY_PROPERTY)
    subscriber.subscribe("a", qos=1)
    (copy,) = subscriber.receives(Copy("a", "1", qos=1, retain=True))
    packet = copy.packet
    assert packet.prop(P.PAYLOAD_FORMAT) == 1
    assert packet.prop(P.CONTENT_TYPE) == "text/plain"
    assert packet.prop(P.RESPONSE_TOPIC) == "answers/here"
    assert packet.prop(P.CORRELATION_DATA) == b"\x00\xff\x00"
    assert packet.props(P.USER_PROPERTY) == [("a", "1"), ("b", "2"), ("a", "1")]
    assert len(packet.properties) == len(EVERY_PROPERTY)


@ONLY_5
@pytest.mark.matrix("K6")
@pytest.mark.clause("5.0", "MQTT-3.3.2-12")
def test_alias_is_resolved_before_storing(stage: Stage, version: int) -> None:
    publisher = stage.client(version)
    publisher.note("a", True)
    alias = [(P.TOPIC_ALIAS, 3)]
    publisher.wire.send(publish(publisher.full("a"), "0", properties=alias, version=version))
    publisher.wire.send(publish("", "1", retain=True, properties=alias, version=version))
    publisher.wire.ping()
    subscriber = stage.client(version)
    subscriber.subscribe("#")
    (copy,) = subscriber.receives(Copy("a", "1", retain=True))
    assert copy.prop(P.TOPIC_ALIAS) is None


@ONLY_5
@pytest.mark.matrix("K7")
@pytest.mark.clause("5.0", "MQTT-3.3.2-7")
def test_message_outlives_the_aliases_of_its_connection(stage: Stage, version: int) -> None:
    publisher = stage.client(version, "p", keep=True)
    publisher.note("a", True)
    alias = [(P.TOPIC_ALIAS, 3)]
    publisher.wire.publish(publisher.full("a"), b"1", qos=1, retain=True, properties=alias)
    publisher.cut()
    publisher = stage.client(version, "p", keep=True)
    publisher.wire.publish(publisher.full("b"), b"2", properties=alias)
    assert stage.stored(version) == {"a": b"1"}
    publisher.disconnect()
    publisher = stage.client(version, "p", keep=True)
    publisher.wire.send(publish("", "3", retain=True, properties=alias, version=version))
    publisher.wire.expect_disconnect(0x82)
    assert stage.stored(version) == {"a": b"1"}


@ONLY_5
@pytest.mark.matrix("K8")
@pytest.mark.clause("5.0", "MQTT-3.1.2-26", "MQTT-3.1.2-27")
@pytest.mark.parametrize("maximum", [None, 0])
def test_no_alias_for_a_receiver_that_allows_none(stage: Stage, version: int, maximum: int | None) -> None:
    publisher = stage.client(version)
    publisher.note("a", True)
    publisher.wire.publish(publisher.full("a"), b"1", retain=True, properties=[(P.TOPIC_ALIAS, 3)])
    allowed = [] if maximum is None else [(P.TOPIC_ALIAS_MAXIMUM, maximum)]
    subscriber = stage.client(version, properties=allowed)
    for _ in range(3):
        subscriber.subscribe("a")
        (copy,) = subscriber.receives(Copy("a", "1", retain=True))
        assert copy.prop(P.TOPIC_ALIAS) is None


@ONLY_5
@pytest.mark.matrix("K8")
@pytest.mark.clause("5.0", "MQTT-3.1.2-26", "MQTT-3.3.2-11")
def test_aliases_stay_within_the_receivers_maximum(stage: Stage, version: int) -> None:
    publisher = stage.client(version)
    topics = [f"a/{number}" for number in range(10)]
    for topic in topics:
        publisher.publish(topic, topic, retain=True)
    subscriber = stage.client(version, properties=[(P.TOPIC_ALIAS_MAXIMUM, 4)])
    for _ in range(3):
        subscriber.subscribe("a/#")
        copies = subscriber.receives(*(Copy(topic, topic, retain=True) for topic in topics))
        assert all(copy.prop(P.TOPIC_ALIAS) in (None, 1, 2, 3, 4) for copy in copies)


@BOTH
@pytest.mark.matrix("K9")
def test_311_reader_sees_no_properties_and_takes_none_away(stage: Stage, version: int) -> None:
    publisher = stage.client(5)
    publisher.publish("a", "1", retain=True, properties=EVERY_PROPERTY)
    first = stage.client(4)
    first.subscribe("a")
    (copy,) = first.receives(Copy("a", "1", retain=True))
    # fixed header, topic, payload and nothing in between
    assert len(copy.packet.raw) == 2 + 2 + len(first.full("a")) + 1
    second = stage.client(version)
    second.subscribe("a")
    (copy,) = second.receives(Copy("a", "1", retain=True))
    assert copy.packet.properties == (EVERY_PROPERTY if version == 5 else [])


@ONLY_5
@pytest.mark.matrix("K10")
@pytest.mark.clause("5.0", "MQTT-3.3.1-5")
@pytest.mark.parametrize("replacing", [4, 5])
def test_replacement_without_properties_has_none(stage: Stage, version: int, replacing: int) -> None:
    stage.client(version).publish("a", "1", retain=True, properties=[*EVERY_PROPERTY, (P.MESSAGE_EXPIRY, 60)])
    stage.client(replacing).publish("a", "2", retain=True)
    subscriber = stage.client(version)
    subscriber.subscribe("a")
    (copy,) = subscriber.receives(Copy("a", "2", retain=True))
    assert copy.packet.properties == []
