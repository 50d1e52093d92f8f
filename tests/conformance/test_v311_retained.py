"""3.1.1: retained messages, clause by clause; the whole behaviour is in the tests of the retained matrix."""

from collections.abc import Callable

import pytest

from broker_process import Unique
from wire import Publish, WireClient

Connect = Callable[..., WireClient]


def retained(connect: Connect, topic_filter: str, qos: int = 2) -> list[Publish]:
    """What a new subscription brings."""
    reader = connect()
    reader.subscribe(topic_filter, qos=qos)
    found = [packet for packet in reader.barrier() if isinstance(packet, Publish)]
    reader.cut()
    return found


@pytest.mark.clause("3.1.1", "MQTT-3.3.1-5", "MQTT-3.3.1-8")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_retained_publish_is_kept_with_its_qos(qos: int, connect: Connect, unique: Unique) -> None:
    connect().publish(unique.topic(), b"kept", qos=qos, retain=True)
    (message,) = retained(connect, unique.topic())
    assert (message.payload, message.qos, message.retain, message.dup) == (b"kept", qos, True, False)


@pytest.mark.clause("3.1.1", "MQTT-3.3.1-6", "MQTT-3.3.1-8")
def test_new_subscription_brings_the_last_message_of_each_matching_topic(connect: Connect, unique: Unique) -> None:
    publisher = connect()
    for topic in ("a/1", "a/2", "b/1"):
        publisher.publish(unique.topic(topic), b"old", retain=True)
        publisher.publish(unique.topic(topic), topic.encode(), retain=True)
    found = retained(connect, unique.topic("a/+"))
    assert sorted(message.payload for message in found) == [b"a/1", b"a/2"]
    assert all(message.retain for message in found)


@pytest.mark.clause("3.1.1", "MQTT-3.3.1-7")
def test_qos_0_retained_publish_replaces_what_was_kept(connect: Connect, unique: Unique) -> None:
    publisher = connect()
    publisher.publish(unique.topic(), b"old", qos=1, retain=True)
    publisher.publish(unique.topic(), b"new", qos=0, retain=True)
    assert [(message.payload, message.qos) for message in retained(connect, unique.topic())] == [(b"new", 0)]


@pytest.mark.clause("3.1.1", "MQTT-3.3.1-9")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_existing_subscription_sees_retain_clear(qos: int, connect: Connect, unique: Unique) -> None:
    subscriber = connect()
    subscriber.subscribe(unique.topic(), qos=2)
    connect().publish(unique.topic(), b"live", qos=qos, retain=True)
    (message,) = subscriber.messages(1)
    assert not message.retain


@pytest.mark.clause("3.1.1", "MQTT-3.3.1-10", "MQTT-3.3.1-11")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_empty_retained_publish_is_forwarded_and_clears(qos: int, connect: Connect, unique: Unique) -> None:
    subscriber, publisher = connect(), connect()
    publisher.publish(unique.topic(), b"kept", retain=True)
    publisher.publish(unique.topic("other"), b"stays", retain=True)
    subscriber.subscribe(unique.topic(), qos=2)
    subscriber.expect(Publish, payload=b"kept", retain=True)
    publisher.publish(unique.topic(), b"", qos=qos, retain=True)
    (message,) = subscriber.messages(1)
    assert (message.payload, message.qos, message.retain) == (b"", qos, False)
    assert [found.payload for found in retained(connect, unique.topic("#"))] == [b"stays"]


@pytest.mark.clause("3.1.1", "MQTT-3.3.1-11")
def test_empty_message_is_never_kept(connect: Connect, unique: Unique) -> None:
    connect().publish(unique.topic(), b"", qos=1, retain=True)
    assert retained(connect, unique.topic()) == []


@pytest.mark.clause("3.1.1", "MQTT-3.3.1-12")
@pytest.mark.parametrize("payload", [b"plain", b""])
def test_publish_without_retain_leaves_the_store_alone(payload: bytes, connect: Connect, unique: Unique) -> None:
    publisher = connect()
    publisher.publish(unique.topic("none"), payload)
    assert retained(connect, unique.topic("none")) == []
    publisher.publish(unique.topic("some"), b"kept", retain=True)
    publisher.publish(unique.topic("some"), payload)
    assert [message.payload for message in retained(connect, unique.topic("some"))] == [b"kept"]
