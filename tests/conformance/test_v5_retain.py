"""MQTT 5.0 section 3.3.1.3: RETAIN, Retain Handling and Retain As Published.

One test for each clause; the matrix of retained messages goes into every corner of them.
"""

import pytest

import wire
from broker_process import Unique
from v5_client import Connect5, expect_dropped
from wire import Publish, SubAck


@pytest.mark.clause("5.0", "MQTT-3.3.1-5")
def test_a_retained_publish_replaces_the_one_before(connect5: Connect5, unique: Unique) -> None:
    publisher, later = connect5(), connect5()
    publisher.publish(unique.topic(), b"old", qos=2, retain=True)
    publisher.publish(unique.topic(), b"new", qos=1, retain=True)
    later.subscribe(unique.topic(), qos=2)
    later.expect(Publish, topic=unique.topic(), payload=b"new", qos=1, retain=True, dup=False)
    later.expect_no_message()


@pytest.mark.clause("5.0", "MQTT-3.3.1-6")
def test_an_empty_retained_publish_is_delivered_and_removes_the_stored_one(connect5: Connect5, unique: Unique) -> None:
    publisher, present, later = connect5(), connect5(), connect5()
    publisher.publish(unique.topic(), b"old", retain=True)
    present.subscribe(unique.topic(), retain_handling=2)
    publisher.publish(unique.topic(), b"", retain=True)
    present.expect(Publish, topic=unique.topic(), payload=b"", retain=False)
    later.subscribe(unique.topic())
    later.expect_no_message()


@pytest.mark.clause("5.0", "MQTT-3.3.1-7")
def test_an_empty_retained_publish_is_not_stored(connect5: Connect5, unique: Unique) -> None:
    publisher, later = connect5(), connect5()
    publisher.publish(unique.topic(), b"", qos=1, retain=True)
    later.subscribe(unique.topic())
    later.expect_no_message()


@pytest.mark.clause("5.0", "MQTT-3.3.1-8")
@pytest.mark.parametrize("payload", [b"plain", b""], ids=["plain", "empty"])
def test_a_publish_without_retain_leaves_the_stored_one_alone(
    connect5: Connect5, unique: Unique, payload: bytes
) -> None:
    publisher, later = connect5(), connect5()
    publisher.publish(unique.topic("kept"), b"kept", retain=True)
    publisher.publish(unique.topic("kept"), payload)
    publisher.publish(unique.topic("never"), payload)
    later.subscribe(unique.topic("#"))
    later.expect(Publish, topic=unique.topic("kept"), payload=b"kept", retain=True)
    later.expect_no_message()


@pytest.mark.clause("5.0", "MQTT-3.3.1-9", "MQTT-3.8.4-4")
def test_retain_handling_0_sends_at_every_subscribe(connect5: Connect5, unique: Unique) -> None:
    client = connect5()
    for name in ("a", "b"):
        client.publish(unique.topic(name), name, retain=True)
    for _ in range(2):
        client.subscribe(unique.topic("+"), retain_handling=0)
        got = {message.topic: (message.payload, message.retain) for message in client.messages(2)}
        assert got == {unique.topic("a"): (b"a", True), unique.topic("b"): (b"b", True)}
    client.expect_no_message()


@pytest.mark.clause("5.0", "MQTT-3.3.1-10")
def test_retain_handling_1_sends_only_for_a_new_subscription(connect5: Connect5, unique: Unique) -> None:
    client = connect5()
    client.publish(unique.topic(), b"1", retain=True)
    client.subscribe(unique.topic(), retain_handling=1)
    client.expect(Publish, payload=b"1", retain=True)
    client.subscribe(unique.topic(), qos=1, retain_handling=1)
    client.expect_no_message()
    client.unsubscribe(unique.topic())
    client.subscribe(unique.topic(), retain_handling=1)
    client.expect(Publish, payload=b"1", retain=True)


@pytest.mark.clause("5.0", "MQTT-3.3.1-11")
def test_retain_handling_2_sends_none(connect5: Connect5, unique: Unique) -> None:
    client = connect5()
    client.publish(unique.topic(), b"stored", retain=True)
    client.subscribe(unique.topic(), retain_handling=2)
    client.expect_no_message()
    client.publish(unique.topic(), b"live")
    client.expect(Publish, payload=b"live")


@pytest.mark.clause("5.0", "MQTT-3.8.3-5", "MQTT-4.13.1-1")
def test_retain_handling_3_is_a_protocol_error(connect5: Connect5, unique: Unique) -> None:
    client = connect5()
    client.send(wire.subscribe(1, [(unique.topic(), 0x30)], version=5))
    expect_dropped(client, 0x82)


@pytest.mark.clause("5.0", "MQTT-3.3.1-12", "MQTT-3.3.1-13")
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retain", [False, True], ids=["published plain", "published retained"])
def test_retain_as_published_decides_the_flag_of_live_messages(
    connect5: Connect5, unique: Unique, qos: int, retain: bool
) -> None:
    publisher, cleared, kept = connect5(), connect5(), connect5()
    cleared.subscribe(unique.topic(), qos=2)
    kept.subscribe(unique.topic(), qos=2, retain_as_published=True)
    publisher.publish(unique.topic(), b"1", qos=qos, retain=retain)
    cleared.expect(Publish, payload=b"1", qos=qos, retain=False)
    kept.expect(Publish, payload=b"1", qos=qos, retain=retain)


@pytest.mark.clause("5.0", "MQTT-3.8.4-1", "MQTT-3.3.1-9")
def test_suback_comes_before_the_retained_messages(connect5: Connect5, unique: Unique) -> None:
    """The standard allows either order; ours lets a client know its granted QoS first."""
    client = connect5()
    client.publish(unique.topic(), b"1", retain=True)
    client.send(wire.subscribe(1, [(unique.topic(), 0)], version=5))
    client.expect(SubAck, packet_id=1, codes=[0])
    client.expect(Publish, payload=b"1", retain=True)
