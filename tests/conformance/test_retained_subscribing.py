"""Matrix section C: what a subscription is sent when it is made."""

from collections.abc import Callable

import pytest

from stage import BOTH, ONLY_5, ONLY_311, OURS, Actor, Copy, P, Stage
from wire import Publish, PubRel, SubAck, UnsubAck, pubcomp, pubrec, subscribe, unsubscribe

pytestmark = pytest.mark.told_clock

DENY_READING = [
    {"permission": "deny", "action": "subscribe", "filter": "+/secret"},
    {"permission": "allow", "action": "all", "filter": "#"},
]


@BOTH
@pytest.mark.matrix("C1", "C2")
@pytest.mark.clause("3.1.1", "MQTT-3.3.1-6", "MQTT-3.3.1-8")
@pytest.mark.clause("5.0", "MQTT-3.3.1-9")
def test_new_subscription_gets_every_matching_message_with_retain_1(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version)
    for topic in ("a/1", "a/2", "b/1"):
        publisher.publish(topic, topic, retain=True)
    subscriber.subscribe("a/+")
    subscriber.receives(Copy("a/1", "a/1", retain=True), Copy("a/2", "a/2", retain=True))


@BOTH
@pytest.mark.matrix("C3")
@pytest.mark.clause("3.1.1", "MQTT-3.3.1-3")
@pytest.mark.clause("5.0", "MQTT-3.3.1-3")
def test_copy_of_a_resent_publish_has_dup_0(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version)
    publisher.note("a", True)
    publisher.wire.publish(publisher.full("a"), b"1", qos=1, retain=True, dup=True)
    subscriber.subscribe("a", qos=1)
    (copy,) = subscriber.receives(Copy("a", "1", qos=1, retain=True))
    assert copy.packet.dup is False


@BOTH
@OURS
@pytest.mark.matrix("C4")
def test_suback_comes_before_the_retained_messages(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version)
    for number in range(20):
        publisher.publish(f"a/{number}", "1", retain=True)
    subscriber.wire.send(subscribe(9, [(subscriber.full("a/#"), 0)], version=version))
    subscriber.wire.expect(SubAck, packet_id=9)
    assert len(subscriber.take(20)) == 20


@BOTH
@pytest.mark.matrix("C5")
@pytest.mark.clause("3.1.1", "MQTT-3.8.4-4")
@pytest.mark.clause("5.0", "MQTT-3.8.4-5")
def test_each_filter_of_one_subscribe_sends_its_own_copies(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version)
    publisher.publish("a/b", "1", retain=True)
    subscriber.subscribe("a/b", "a/#")
    subscriber.receives(Copy("a/b", "1", retain=True), Copy("a/b", "1", retain=True))


@ONLY_311
@pytest.mark.matrix("C6")
@pytest.mark.clause("3.1.1", "MQTT-3.8.4-3")
def test_subscribing_again_in_311_sends_again(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version)
    publisher.publish("a", "1", retain=True)
    for _ in range(2):
        subscriber.subscribe("a")
        subscriber.receives(Copy("a", "1", retain=True))


@BOTH
@pytest.mark.matrix("C7")
def test_denied_filter_sends_nothing(staged: Callable[..., Stage], version: int) -> None:
    stage = staged(access=DENY_READING)
    publisher, subscriber = stage.client(version), stage.client(version)
    publisher.publish("secret", "1", retain=True)
    publisher.publish("open", "2", retain=True)
    refused = 0x87 if version == 5 else 0x80
    assert subscriber.subscribe("secret", "open", check=False) == [refused, 0]
    subscriber.receives(Copy("open", "2", retain=True))


@BOTH
@pytest.mark.matrix("C7")
def test_malformed_filter_sends_nothing(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version)
    publisher.publish("a/b", "1", retain=True)
    assert subscriber.is_refused("a/#/b")


@BOTH
@pytest.mark.matrix("C8")
@pytest.mark.clause("3.1.1", "MQTT-3.3.2-3")
@pytest.mark.clause("5.0", "MQTT-3.3.2-3")
def test_copy_carries_the_stored_topic(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version)
    publisher.publish("a/b", "1", retain=True)
    subscriber.subscribe("+/b")
    subscriber.receives(Copy("a/b", "1", retain=True))


@BOTH
@pytest.mark.matrix("C9")
def test_subscription_works_with_nothing_retained(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version)
    subscriber.subscribe("a")
    subscriber.receives()
    publisher.publish("a", "1")
    subscriber.receives(Copy("a", "1", retain=False))


@BOTH
@pytest.mark.matrix("C10")
@pytest.mark.clause("3.1.1", "MQTT-3.3.1-6")
@pytest.mark.clause("5.0", "MQTT-3.3.1-10")
def test_unsubscribing_makes_the_next_subscription_new(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version)
    publisher.publish("a", "1", retain=True)
    handling = 1 if version == 5 else 0
    subscriber.subscribe("a", rh=handling)
    subscriber.receives(Copy("a", "1", retain=True))
    subscriber.unsubscribe("a")
    subscriber.subscribe("a", rh=handling)
    subscriber.receives(Copy("a", "1", retain=True))


@ONLY_5
@OURS
@pytest.mark.matrix("C11")
@pytest.mark.clause("5.0", "MQTT-3.10.4-2", "MQTT-3.10.4-3")
@pytest.mark.parametrize("qos", [1, 2])
def test_unsubscribe_stops_unsent_copies_and_finishes_the_started_one(stage: Stage, version: int, qos: int) -> None:
    subscriber = stage.client(version, properties=[(P.RECEIVE_MAXIMUM, 1)])
    unsubscribe_in_mid_flight(stage.client(version), subscriber, qos)


@ONLY_311
@pytest.mark.matrix("C11")
@pytest.mark.clause("3.1.1", "MQTT-3.10.4-2", "MQTT-3.10.4-3")
@pytest.mark.parametrize("qos", [1, 2])
def test_unsubscribe_stops_unsent_copies_within_the_brokers_window(
    staged: Callable[..., Stage], version: int, qos: int
) -> None:
    stage = staged(limits__max_inflight=1)
    unsubscribe_in_mid_flight(stage.client(version), stage.client(version), qos)


def unsubscribe_in_mid_flight(publisher: Actor, subscriber: Actor, qos: int) -> None:
    """50 retained messages, a window of one: leave after the first, then finish its handshake."""
    for number in range(50):
        publisher.publish(f"a/{number}", "1", qos=qos, retain=True)
    subscriber.subscribe("a/#", qos=qos)
    wire = subscriber.wire
    first = wire.expect(Publish, qos=qos, retain=True)
    wire.expect_nothing(0.1)
    wire.send(unsubscribe(900, [subscriber.full("a/#")], version=wire.version))
    wire.expect(UnsubAck, packet_id=900)
    assert first.packet_id is not None
    if qos == 1:
        wire.ack(first)
    else:
        wire.send(pubrec(first.packet_id))
        wire.expect(PubRel, packet_id=first.packet_id)
        wire.send(pubcomp(first.packet_id))
    subscriber.receives()
