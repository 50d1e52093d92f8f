"""Matrix section J: how long a retained message lives."""

from collections.abc import Callable

import pytest

from stage import ONLY_5, ONLY_311, OURS, Copy, P, Stage
from wire import PubRel, pubcomp, pubrec
from wire_properties import Property

pytestmark = pytest.mark.told_clock


def lives(seconds: int) -> list[Property]:
    return [(P.MESSAGE_EXPIRY, seconds)]


@ONLY_5
@pytest.mark.matrix("J1", "J10")
@pytest.mark.clause("5.0", "MQTT-3.3.2-5")
def test_message_past_its_interval_is_gone_without_a_word(stage: Stage, version: int) -> None:
    publisher, live = stage.client(version), stage.client(version)
    publisher.publish("short", "1", qos=1, retain=True, properties=lives(1))
    publisher.publish("long", "2", qos=1, retain=True, properties=lives(60))
    live.subscribe("#")
    live.receives(Copy("short", "1", retain=True), Copy("long", "2", retain=True))
    stage.pass_time(1.2)
    assert stage.stored(version) == {"long": b"2"}
    live.receives()


@ONLY_5
@pytest.mark.matrix("J2")
@pytest.mark.clause("5.0", "MQTT-3.3.2-6")
def test_copy_carries_what_is_left_of_the_interval(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version)
    publisher.publish("a", "1", retain=True, properties=lives(100))
    publisher.publish("soon", "1", retain=True, properties=lives(2))
    stage.pass_time(1.1)
    subscriber.subscribe("#")
    copies = {copy.topic: copy.prop(P.MESSAGE_EXPIRY) for copy in subscriber.take(2)}
    assert copies["a"] in (98, 99)
    assert copies["soon"] == 1, "what is left is never rounded down to 0 nor up to more than was given"


@ONLY_5
@pytest.mark.matrix("J2")
@pytest.mark.clause("5.0", "MQTT-3.3.2-6")
def test_copy_sent_at_once_does_not_exceed_the_interval(stage: Stage, version: int) -> None:
    publisher, live = stage.client(version), stage.client(version)
    live.subscribe("a")
    publisher.publish("a", "1", retain=True, properties=lives(100))
    (copy,) = live.receives(Copy("a", "1"))
    assert copy.prop(P.MESSAGE_EXPIRY) in (99, 100)
    live.subscribe("a")
    (copy,) = live.receives(Copy("a", "1", retain=True))
    assert copy.prop(P.MESSAGE_EXPIRY) in (99, 100)


@ONLY_5
@pytest.mark.matrix("J3")
def test_message_without_interval_stays_and_shows_none(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version)
    publisher.publish("a", "1", retain=True)
    stage.pass_time(1.1)
    subscriber.subscribe("a")
    (copy,) = subscriber.receives(Copy("a", "1", retain=True))
    assert copy.prop(P.MESSAGE_EXPIRY) is None


@ONLY_311
@pytest.mark.matrix("J4")
def test_311_subscriber_gets_no_expired_message(stage: Stage, version: int) -> None:
    publisher = stage.client(5)
    publisher.publish("a", "1", retain=True, properties=lives(1))
    assert stage.stored(version) == {"a": b"1"}
    stage.pass_time(1.2)
    assert stage.stored(version) == {}


@ONLY_311
@pytest.mark.matrix("J5")
def test_311_message_expires_only_by_the_default(stage: Stage, staged: Callable[..., Stage], version: int) -> None:
    limited = staged(retainer__expiry_interval=1)
    for each in (stage, limited):
        each.client(version).publish("a", "1", retain=True)
    assert limited.stored(version) == {"a": b"1"}
    for each in (stage, limited):
        each.pass_time(1.2)
    assert limited.stored(version) == {}
    assert stage.stored(version) == {"a": b"1"}


@ONLY_5
@pytest.mark.matrix("J6", "M5")
def test_publishers_interval_wins_over_the_default(staged: Callable[..., Stage], version: int) -> None:
    stage = staged(retainer__expiry_interval="2s")
    publisher = stage.client(version)
    publisher.publish("longer", "1", retain=True, properties=lives(60))
    publisher.publish("shorter", "1", retain=True, properties=lives(1))
    publisher.publish("default", "1", retain=True)
    assert set(stage.stored(version)) == {"longer", "shorter", "default"}
    stage.pass_time(1.2)
    assert set(stage.stored(version)) == {"longer", "default"}
    stage.pass_time(1.0)
    assert set(stage.stored(version)) == {"longer"}


@ONLY_311
@pytest.mark.matrix("M5")
def test_default_life_applies_to_311_and_restarts_with_each_publish(staged: Callable[..., Stage], version: int) -> None:
    stage = staged(retainer__expiry_interval=1)
    publisher = stage.client(version)
    publisher.publish("renewed", "1", retain=True)
    publisher.publish("left", "1", retain=True)
    stage.pass_time(0.7)
    publisher.publish("renewed", "2", retain=True)
    stage.pass_time(0.6)
    assert stage.stored(version) == {"renewed": b"2"}


@ONLY_5
@pytest.mark.matrix("J7")
@pytest.mark.clause("5.0", "MQTT-3.3.2-6")
def test_message_that_expires_by_the_default_shows_no_interval(staged: Callable[..., Stage], version: int) -> None:
    stage = staged(retainer__expiry_interval="1h")
    publisher, subscriber = stage.client(version), stage.client(version)
    publisher.publish("a", "1", retain=True)
    subscriber.subscribe("a")
    (copy,) = subscriber.receives(Copy("a", "1", retain=True))
    assert copy.prop(P.MESSAGE_EXPIRY) is None


@ONLY_5
@OURS
@pytest.mark.matrix("J8")
@pytest.mark.clause("5.0", "MQTT-3.3.2-5")
def test_interval_0_replaces_the_old_message_and_is_gone(stage: Stage, version: int) -> None:
    publisher, live = stage.client(version), stage.client(version)
    publisher.publish("a", "old", retain=True)
    live.subscribe("a", rh=2)
    publisher.publish("a", "x", retain=True, properties=lives(0))
    assert stage.stored(version) == {}
    assert live.rest() in ([], [Copy("a", "x")]), "a live subscriber may or may not get it"


@ONLY_5
@pytest.mark.matrix("J9")
def test_replacement_starts_the_clock_again_and_a_plain_publish_does_not(stage: Stage, version: int) -> None:
    publisher = stage.client(version)
    for topic in ("replaced", "plain"):
        publisher.publish(topic, "1", retain=True, properties=lives(4))
    stage.pass_time(3)
    publisher.publish("replaced", "2", retain=True, properties=lives(4))
    publisher.publish("plain", "2", properties=lives(60))
    stage.pass_time(2)
    assert stage.stored(version) == {"replaced": b"2"}


@ONLY_5
@pytest.mark.matrix("J11")
@pytest.mark.clause("5.0", "MQTT-4.3.3-7", "MQTT-4.3.3-13")
def test_copy_that_was_started_is_finished_after_its_expiry(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version)
    publisher.publish("a", "1", qos=2, retain=True, properties=lives(1))
    subscriber.subscribe("a", qos=2)
    (copy,) = subscriber.take(1, ack=False)
    packet_id = copy.packet.packet_id
    assert packet_id is not None
    stage.pass_time(1.2)
    subscriber.wire.send(pubrec(packet_id))
    subscriber.wire.expect(PubRel, packet_id=packet_id, reason=0)
    subscriber.wire.send(pubcomp(packet_id))
    subscriber.receives()


@ONLY_5
@OURS
@pytest.mark.matrix("J12")
@pytest.mark.clause("5.0", "MQTT-3.3.2-5")
def test_queued_copy_expires_by_the_same_absolute_time(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version, "s", keep=True)
    subscriber.subscribe("#", qos=1)
    subscriber.disconnect()
    publisher.publish("short", "1", qos=1, retain=True, properties=lives(1))
    publisher.publish("long", "1", qos=1, retain=True, properties=lives(60))
    stage.pass_time(1.2)
    subscriber = stage.client(version, "s", keep=True)
    (copy,) = subscriber.receives(Copy("long", "1", qos=1))
    assert copy.prop(P.MESSAGE_EXPIRY) in (58, 59)


@ONLY_5
@pytest.mark.matrix("J14")
def test_expired_messages_do_not_count_against_the_limit(staged: Callable[..., Stage], version: int) -> None:
    stage = staged(retainer__max_retained_messages=2)
    publisher = stage.client(version)
    for topic in ("a", "b"):
        publisher.publish(topic, "1", qos=1, retain=True, properties=lives(1))
    publisher.publish("c", "1", qos=1, retain=True)
    assert set(stage.stored(version)) == {"a", "b"}
    stage.pass_time(1.2)
    for topic in ("c", "d", "e"):
        publisher.publish(topic, "1", qos=1, retain=True)
    assert set(stage.stored(version)) == {"c", "d"}
