"""Matrix sections E, F and G: Retain Handling, shared subscriptions, Subscription Identifiers."""

import pytest

from stage import BOTH, ONLY_5, OURS, Copy, P, Stage
from wire import options, publish, subscribe

pytestmark = pytest.mark.told_clock

ONE = Copy("a", "1", retain=True)


@ONLY_5
@pytest.mark.matrix("E1")
@pytest.mark.clause("5.0", "MQTT-3.3.1-9", "MQTT-3.8.4-4")
def test_retain_handling_0_sends_at_every_subscribe(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version)
    publisher.publish("a", "1", retain=True)
    for _ in range(2):
        subscriber.subscribe("a", rh=0)
        subscriber.receives(ONE)


@ONLY_5
@pytest.mark.matrix("E2")
@pytest.mark.clause("5.0", "MQTT-3.3.1-10")
def test_retain_handling_1_sends_only_for_a_new_subscription(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version)
    publisher.publish("a", "1", retain=True)
    subscriber.subscribe("a", rh=1)
    subscriber.receives(ONE)
    subscriber.subscribe("a", rh=1)
    subscriber.receives()


@ONLY_5
@pytest.mark.matrix("E3")
@pytest.mark.clause("5.0", "MQTT-3.3.1-11")
def test_retain_handling_2_never_sends(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version)
    publisher.publish("a", "1", retain=True)
    for _ in range(2):
        subscriber.subscribe("a", rh=2)
        subscriber.receives()
    publisher.publish("a", "2", retain=True)
    subscriber.receives(Copy("a", "2", retain=False))


@ONLY_5
@OURS
@pytest.mark.matrix("E4")
def test_retain_handling_3_is_a_protocol_error_and_makes_no_subscription(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version, "s", keep=True)
    publisher.publish("a", "1", qos=1, retain=True)
    wrong = options(1, retain_handling=3)
    subscriber.wire.send(subscribe(1, [(subscriber.full("a"), wrong)], version=version))
    subscriber.wire.expect_disconnect(0x82)
    subscriber = stage.client(version, "s", keep=True)
    publisher.publish("a", "2", qos=1, retain=True)
    subscriber.receives()


@ONLY_5
@OURS
@pytest.mark.matrix("E5")
@pytest.mark.clause("5.0", "MQTT-3.8.4-3")
def test_subscription_exists_whatever_its_options(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version)
    publisher.publish("a", "1", qos=2, retain=True)
    subscriber.subscribe("a", qos=0, rh=1)
    subscriber.receives(ONE)
    assert subscriber.subscribe("a", qos=2, rap=True, rh=1) == [2]
    subscriber.receives()
    publisher.publish("a", "2", qos=2, retain=True)
    subscriber.receives(Copy("a", "2", qos=2, retain=True))


@ONLY_5
@pytest.mark.matrix("E6")
@pytest.mark.clause("5.0", "MQTT-3.3.1-10")
def test_resumed_subscription_exists_and_a_clean_start_forgets_it(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version, "s", keep=True)
    publisher.publish("a", "1", retain=True)
    subscriber.subscribe("a", rh=1)
    subscriber.receives(ONE)
    subscriber.disconnect()
    subscriber = stage.client(version, "s", keep=True)
    subscriber.subscribe("a", rh=1)
    subscriber.receives()
    subscriber.disconnect()
    subscriber = stage.client(version, "s", keep=True, clean=True)
    subscriber.subscribe("a", rh=1)
    subscriber.receives(ONE)


@ONLY_5
@pytest.mark.matrix("E7")
@pytest.mark.clause("5.0", "MQTT-3.3.1-10")
def test_filters_of_different_text_are_different_subscriptions(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version)
    publisher.publish("a", "1", retain=True)
    for topic_filter in ("a", "a/#"):
        subscriber.subscribe(topic_filter, rh=1)
        subscriber.receives(ONE)


@BOTH
@pytest.mark.matrix("E8")
@pytest.mark.clause("3.1.1", "MQTT-3.8.4-3")
@pytest.mark.clause("5.0", "MQTT-3.8.4-4")
def test_replacing_a_subscription_loses_no_live_message(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version)
    subscriber.subscribe("a")
    for number in range(1000):
        publisher.wire.send(publish(publisher.full("a"), str(number), version=version))
        if number % 20 == 7:
            option = options(number // 20 % 3)
            subscriber.wire.send(subscribe(number + 1, [(subscriber.full("a"), option)], version=version))
    publisher.wire.ping()
    seen = [int(copy.payload) for copy in subscriber.take(1000)]
    assert seen == list(range(1000))
    subscriber.receives()


@BOTH
@OURS
@pytest.mark.matrix("F1")
@pytest.mark.parametrize("handling", [0, 1])
def test_shared_subscription_is_sent_no_retained_messages(stage: Stage, version: int, handling: int) -> None:
    publisher, first, second = stage.client(version), stage.client(version), stage.client(version)
    publisher.publish("a", "1", retain=True)
    for member in (first, second):
        member.subscribe("$share/g/a", rh=handling if version == 5 else 0)
        member.receives()
    first.subscribe("$share/g/a")
    first.receives()


@BOTH
@pytest.mark.matrix("F2")
@pytest.mark.clause("5.0", "MQTT-3.3.1-12", "MQTT-3.3.1-13")
@pytest.mark.parametrize("as_published", [False, True])
def test_shared_subscription_gets_live_messages(stage: Stage, version: int, as_published: bool) -> None:
    publisher, first, second = stage.client(version), stage.client(version), stage.client(version)
    rap = as_published and version == 5
    for member in (first, second):
        member.subscribe("$share/g/a", rap=rap)
    publisher.publish("a", "2", retain=True)
    assert first.rest() + second.rest() == [Copy("a", "2", retain=rap)]


@BOTH
@OURS
@pytest.mark.matrix("F3")
@pytest.mark.clause("5.0", "MQTT-4.8.2-1", "MQTT-3.8.4-3")
def test_shared_and_plain_subscriptions_are_separate(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version)
    publisher.publish("a", "1", retain=True)
    subscriber.subscribe("$share/g/a")
    subscriber.subscribe("a", rh=1 if version == 5 else 0)
    subscriber.receives(ONE)


@ONLY_5
@OURS
@pytest.mark.matrix("F4")
@pytest.mark.clause("5.0", "MQTT-3.8.3-4")
def test_no_local_on_a_shared_subscription_is_a_protocol_error(stage: Stage, version: int) -> None:
    subscriber = stage.client(version)
    option = options(no_local=True)
    subscriber.wire.send(subscribe(1, [(subscriber.full("$share/g/a"), option)], version=version))
    subscriber.wire.expect_disconnect(0x82)


@BOTH
@OURS
@pytest.mark.matrix("F5")
@pytest.mark.clause("5.0", "MQTT-4.8.2-1", "MQTT-4.8.2-2")
@pytest.mark.parametrize("name", ["$share//a", "$share/g", "$share/g/", "$share/+/a", "$share/g#/a"])
def test_malformed_share_name_is_refused(stage: Stage, version: int, name: str) -> None:
    stage.client(version).publish("a", "1", retain=True)
    subscriber = stage.client(version)
    subscriber.prefix = ""
    assert subscriber.is_refused(name)


@ONLY_5
@pytest.mark.matrix("G1")
@pytest.mark.clause("5.0", "MQTT-3.3.4-3", "MQTT-3.3.4-5")
@pytest.mark.parametrize("identifier", [1, 7, 127, 128, 268_435_455])
def test_copy_carries_the_identifier_of_its_subscription(stage: Stage, version: int, identifier: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version)
    publisher.publish("a", "1", retain=True)
    subscriber.subscribe("a", sid=identifier)
    (copy,) = subscriber.receives(ONE)
    assert copy.prop(P.SUBSCRIPTION_ID) == identifier


@ONLY_5
@pytest.mark.matrix("G2")
@pytest.mark.clause("5.0", "MQTT-3.3.4-5")
def test_copy_carries_no_identifier_of_older_subscriptions(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version)
    publisher.publish("a/b", "1", retain=True)
    for topic_filter, identifier in (("a/#", 1), ("a/b", 2)):
        subscriber.subscribe(topic_filter, sid=identifier)
        (copy,) = subscriber.receives(Copy("a/b", "1", retain=True))
        assert copy.packet.props(P.SUBSCRIPTION_ID) == [identifier]


@ONLY_5
@pytest.mark.matrix("G3")
@pytest.mark.clause("5.0", "MQTT-3.8.4-3", "MQTT-3.8.4-4")
def test_subscribing_again_uses_the_new_identifier(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version)
    publisher.publish("a", "1", retain=True)
    for identifier in (1, 2):
        subscriber.subscribe("a", sid=identifier)
        (copy,) = subscriber.receives(ONE)
        assert copy.packet.props(P.SUBSCRIPTION_ID) == [identifier]


@ONLY_5
@pytest.mark.matrix("G4")
@pytest.mark.clause("5.0", "MQTT-3.3.4-3")
def test_no_identifier_given_none_sent(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version)
    publisher.publish("a", "1", retain=True)
    subscriber.subscribe("a", sid=4)
    subscriber.receives(ONE)
    subscriber.subscribe("a")
    (copy,) = subscriber.receives(ONE)
    assert copy.packet.props(P.SUBSCRIPTION_ID) == []


@ONLY_5
@OURS
@pytest.mark.matrix("G5")
@pytest.mark.clause("5.0", "MQTT-3.3.4-6")
def test_publish_with_an_identifier_is_a_protocol_error_and_stores_nothing(stage: Stage, version: int) -> None:
    publisher = stage.client(version)
    topic = publisher.full("a")
    publisher.wire.send(publish(topic, "1", retain=True, properties=[(P.SUBSCRIPTION_ID, 1)], version=version))
    publisher.wire.expect_disconnect(0x82)
    assert stage.stored(version) == {}
