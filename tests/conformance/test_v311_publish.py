"""3.1.1: PUBLISH: its flags, its topic, its answers, overlapping subscriptions."""

from collections.abc import Callable

import pytest

import wire
from broker_process import Unique
from wire import Publish, WireClient

Connect = Callable[..., WireClient]


@pytest.mark.clause("3.1.1", "MQTT-3.3.4-1", "MQTT-4.3.2-2", "MQTT-4.3.3-2")
def test_publish_is_answered_by_qos(connect: Connect, unique: Unique) -> None:
    client = connect()
    client.send(wire.publish(unique.topic(), b"0"))
    client.expect_no_message()
    client.send(wire.publish(unique.topic(), b"1", qos=1, packet_id=0x1234))
    client.expect(b"\x40\x02\x12\x34")
    client.send(wire.publish(unique.topic(), b"2", qos=2, packet_id=0x1235))
    client.expect(b"\x50\x02\x12\x35")
    client.send(wire.pubrel(0x1235))
    client.expect(b"\x70\x02\x12\x35")
    client.expect_no_message()


@pytest.mark.clause("3.1.1", "MQTT-3.3.1-4")
@pytest.mark.parametrize("first_byte", [0x36, 0x37, 0x3E])
def test_qos_3_closes_the_connection(first_byte: int, connect: Connect, unique: Unique) -> None:
    watcher, client = connect(), connect()
    watcher.subscribe(unique.topic())
    client.send(wire.frame(first_byte, wire.text(unique.topic()) + b"\x00\x01x"))
    client.expect_closed()
    watcher.expect_no_message()


@pytest.mark.clause("3.1.1", "MQTT-3.3.1-3")
@pytest.mark.parametrize("qos", [1, 2])
def test_dup_is_not_copied_from_the_publisher(qos: int, connect: Connect, unique: Unique) -> None:
    subscriber, publisher = connect(), connect()
    subscriber.subscribe(unique.topic(), qos=2)
    publisher.publish(unique.topic(), b"1", qos=qos, dup=True)
    assert [(message.qos, message.dup) for message in subscriber.messages(1)] == [(qos, False)]


@pytest.mark.clause("3.1.1", "MQTT-3.3.1-2", "MQTT-3.3.1-3")
def test_qos_0_copy_never_has_dup(connect: Connect, unique: Unique) -> None:
    subscriber, publisher = connect(), connect()
    subscriber.subscribe(unique.topic(), qos=0)
    publisher.publish(unique.topic(), b"1", qos=1, dup=True)
    subscriber.expect(Publish, qos=0, dup=False, packet_id=None)


@pytest.mark.clause("3.1.1", "MQTT-3.3.1-2")
def test_qos_0_publish_with_dup_never_shows_dup_to_others(connect: Connect, unique: Unique) -> None:
    """A breach by the client: whether the broker closes or goes on, no subscriber may see QoS 0 with DUP."""
    subscriber, publisher = connect(), connect()
    subscriber.subscribe(unique.topic())
    publisher.send(wire.publish(unique.topic(), b"1", dup=True) + wire.disconnect())
    publisher.expect_closed()
    assert [packet for packet in subscriber.barrier() if isinstance(packet, Publish) and packet.dup] == []


@pytest.mark.clause("3.1.1", "MQTT-3.3.1-1", "MQTT-4.4.0-1", "MQTT-3.3.1-3")
@pytest.mark.parametrize("qos", [1, 2])
def test_redelivery_has_dup_and_the_same_identifier(qos: int, connect: Connect, unique: Unique) -> None:
    name = unique.client("again")
    first = connect(name, clean=False)
    first.subscribe(unique.topic(), qos=2)
    connect().publish(unique.topic(), b"1", qos=qos)
    sent = first.expect(Publish, qos=qos, dup=False)
    first.cut()
    second = connect(name, clean=False)
    second.expect(bytes([sent.raw[0] | 0x08]) + sent.raw[1:])


@pytest.mark.clause("3.1.1", "MQTT-3.3.2-1", "MQTT-3.3.2-3")
def test_delivery_starts_with_the_topic_it_was_published_to(connect: Connect) -> None:
    subscriber = connect()
    subscriber.subscribe("p1/+/c")
    connect().publish("p1/b/c", b"hi")
    subscriber.expect(b"\x30\x0a\x00\x06p1/b/chi")


@pytest.mark.clause("3.1.1", "MQTT-3.3.2-2", "MQTT-4.7.1-1")
@pytest.mark.parametrize("topic", ["+", "#", "a/+", "a/#", "a/+/b", "a+b", "a#", "+a"])
@pytest.mark.parametrize("qos", [0, 1])
def test_wildcard_in_a_topic_name_closes_the_connection(topic: str, qos: int, connect: Connect, unique: Unique) -> None:
    watcher, client = connect(), connect()
    watcher.subscribe(f"{unique}/#")
    client.send(wire.publish(unique.topic(topic), b"1", qos=qos, packet_id=1 if qos else None))
    client.expect_closed()
    watcher.expect_no_message()


@pytest.mark.clause("3.1.1", "MQTT-3.3.2-3")
def test_only_matching_topics_are_delivered(connect: Connect, unique: Unique) -> None:
    subscriber, publisher = connect(), connect()
    subscriber.subscribe(unique.topic("a/b"))
    for other in ("a", "a/b/c", "a/c", "A/b", "a/b/", "/a/b"):
        publisher.publish(unique.topic(other), b"no")
    publisher.publish(unique.topic("a/b"), b"yes")
    subscriber.expect(Publish, topic=unique.topic("a/b"), payload=b"yes")
    subscriber.expect_no_message()


@pytest.mark.clause("3.1.1", "MQTT-3.3.5-1")
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_overlapping_subscriptions_deliver_at_the_highest_granted_qos(
    order: tuple[int, int, int], connect: Connect, unique: Unique
) -> None:
    subscriber = connect()
    filters = [unique.topic("a/b"), unique.topic("a/+"), unique.topic("#")]
    for topic_filter, qos in zip(filters, order, strict=True):
        subscriber.subscribe(topic_filter, qos=qos)
    connect().publish(unique.topic("a/b"), b"1", qos=2)
    copies = subscriber.messages(1)
    copies += [packet for packet in subscriber.barrier() if isinstance(packet, Publish)]
    assert max(copy.qos for copy in copies) == 2


@pytest.mark.clause("3.1.1", "MQTT-3.3.5-1")
def test_overlapping_subscriptions_bring_one_copy(connect: Connect, unique: Unique) -> None:
    """The standard allows a copy for each subscription; one is what clients expect."""
    subscriber = connect()
    subscriber.subscribe((unique.topic("a/b"), 1), (unique.topic("a/+"), 1), (unique.topic("#"), 1))
    connect().publish(unique.topic("a/b"), b"1", qos=1)
    assert [message.qos for message in subscriber.messages(1)] == [1]
    subscriber.expect_no_message()


@pytest.mark.clause("3.1.1", "MQTT-4.5.0-1")
def test_accepted_message_reaches_every_matching_client(connect: Connect, unique: Unique) -> None:
    name = unique.client("absent")
    absent = connect(name, clean=False)
    absent.subscribe(unique.topic("#"), qos=1)
    absent.disconnect()
    present = [connect() for _ in range(4)]
    for client, topic_filter in zip(present, ["a/b", "a/+", "#", "+/b"], strict=True):
        client.subscribe(unique.topic(topic_filter), qos=2)
    stranger = connect()
    stranger.subscribe(unique.topic("a/c"))
    connect().publish(unique.topic("a/b"), b"all", qos=2)
    for client in present:
        assert [message.payload for message in client.messages(1)] == [b"all"]
    connect(name, clean=False).expect(Publish, payload=b"all", qos=1)
    stranger.expect_no_message()


@pytest.mark.clause("3.1.1", "MQTT-4.5.0-1")
def test_publisher_gets_its_own_message_when_subscribed(connect: Connect, unique: Unique) -> None:
    client = connect()
    client.subscribe(unique.topic())
    client.publish(unique.topic(), b"mine")
    client.expect(Publish, payload=b"mine")


@pytest.mark.clause("3.1.1", "MQTT-3.3.4-1")
@pytest.mark.parametrize("size", [0, 1, 127, 128, 16383, 16384, 300_000])
def test_payload_of_any_size_passes_unchanged(size: int, connect: Connect, unique: Unique) -> None:
    subscriber = connect()
    subscriber.subscribe(unique.topic(), qos=1)
    payload = bytes(number * 7 % 256 for number in range(size))
    connect().publish(unique.topic(), payload, qos=1)
    (message,) = subscriber.messages(1)
    assert message.payload == payload
