"""MQTT 5.0 section 3.3: PUBLISH, its flags, topic name, properties forwarded, and how it is answered."""

import pytest

import wire
from broker_process import Server, Unique
from v5_client import KEEP, Connect5, expect_dropped
from wire import P, PubAck, PubComp, Publish, PubRec

# Flags


@pytest.mark.clause("5.0", "MQTT-3.3.1-2", "MQTT-4.3.1-1")
def test_dup_at_qos_0_is_refused(connect5: Connect5) -> None:
    client = connect5()
    client.send(wire.publish("t", b"1", dup=True, version=5))
    expect_dropped(client, 0x81, 0x82)


@pytest.mark.clause("5.0", "MQTT-3.3.1-2", "MQTT-3.3.1-3")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_resent_publish_is_forwarded_as_a_first_send(connect5: Connect5, unique: Unique, qos: int) -> None:
    """DUP says how this packet came here and nothing about how it leaves, at any QoS."""
    publisher = connect5()
    subscribers = [connect5() for _ in range(3)]
    for granted, subscriber in enumerate(subscribers):
        subscriber.subscribe(unique.topic(), qos=granted)
    publisher.publish(unique.topic(), b"1", qos=qos, dup=True)
    for subscriber in subscribers:
        subscriber.expect(Publish, payload=b"1", dup=False)


@pytest.mark.clause("5.0", "MQTT-3.3.1-4")
@pytest.mark.parametrize("first_byte", [0x36, 0x37, 0x3E, 0x3F])
def test_qos_3_is_a_malformed_packet(connect5: Connect5, first_byte: int) -> None:
    client = connect5()
    client.send(bytes([first_byte]) + wire.publish("t", b"1", packet_id=1, version=5)[1:])
    expect_dropped(client, 0x81)


# Topic name


@pytest.mark.clause("5.0", "MQTT-3.3.2-1", "MQTT-2.2.1-5", "MQTT-4.3.2-2", "MQTT-4.3.3-2")
@pytest.mark.parametrize(("qos", "first_byte"), [(1, "32"), (2, "34")])
def test_a_publish_begins_with_its_topic_name(connect5: Connect5, qos: int, first_byte: str) -> None:
    client = connect5()
    client.subscribe("first/é", qos=qos)
    client.publish("first/é", b"\x01", qos=qos)
    message = client.expect(Publish)
    identifier = wire.u16(message.packet_id or 0).hex()
    assert message.raw == bytes.fromhex(f"{first_byte} 0e 0008 66697273742fc3a9 {identifier} 00 01")


@pytest.mark.clause("5.0", "MQTT-3.3.2-2", "MQTT-4.7.0-1")
@pytest.mark.parametrize("topic", ["#", "+", "a/#", "a/+/b", "a+", "a#b", "$share/g/+"])
@pytest.mark.parametrize("qos", [0, 1])
def test_a_topic_name_with_a_wildcard_is_refused(connect5: Connect5, topic: str, qos: int) -> None:
    client = connect5()
    client.send(wire.publish(topic, b"1", qos=qos, packet_id=1 if qos else None, version=5))
    expect_dropped(client, 0x81, 0x82, 0x90)


@pytest.mark.clause("5.0", "MQTT-3.3.2-3")
@pytest.mark.parametrize("topic_filter", ["a/b", "a/+", "+/b", "#"])
def test_the_topic_name_delivered_is_the_one_published(connect5: Connect5, unique: Unique, topic_filter: str) -> None:
    client = connect5()
    client.subscribe(unique.topic(topic_filter))
    client.publish(unique.topic("a/b"), b"1")
    client.expect(Publish, topic=unique.topic("a/b"), payload=b"1")


# Properties that pass through

PASSED_ON = [
    pytest.param([(P.PAYLOAD_FORMAT, 0)], marks=pytest.mark.clause("5.0", "MQTT-3.3.2-4"), id="payload format 0"),
    pytest.param([(P.PAYLOAD_FORMAT, 1)], marks=pytest.mark.clause("5.0", "MQTT-3.3.2-4"), id="payload format 1"),
    pytest.param([(P.RESPONSE_TOPIC, "r/é")], marks=pytest.mark.clause("5.0", "MQTT-3.3.2-15"), id="response topic"),
    pytest.param(
        [(P.CORRELATION_DATA, bytes(range(256)))], marks=pytest.mark.clause("5.0", "MQTT-3.3.2-16"), id="correlation"
    ),
    pytest.param([(P.CORRELATION_DATA, b"")], marks=pytest.mark.clause("5.0", "MQTT-3.3.2-16"), id="empty correlation"),
    pytest.param(
        [(P.USER_PROPERTY, ("only", "one"))], marks=pytest.mark.clause("5.0", "MQTT-3.3.2-17"), id="user property"
    ),
    pytest.param(
        [(P.USER_PROPERTY, pair) for pair in [("b", "2"), ("a", "1"), ("b", "2"), ("b", "1"), ("", "")]],
        marks=pytest.mark.clause("5.0", "MQTT-3.3.2-17", "MQTT-3.3.2-18"),
        id="user properties in order",
    ),
    pytest.param(
        [(P.CONTENT_TYPE, "application/json; é")], marks=pytest.mark.clause("5.0", "MQTT-3.3.2-20"), id="content type"
    ),
    pytest.param(
        [
            (P.USER_PROPERTY, ("x", "1")),
            (P.CONTENT_TYPE, "t"),
            (P.USER_PROPERTY, ("y", "2")),
            (P.RESPONSE_TOPIC, "r"),
            (P.CORRELATION_DATA, b"c"),
            (P.PAYLOAD_FORMAT, 1),
            (P.USER_PROPERTY, ("x", "3")),
        ],
        marks=pytest.mark.clause("5.0", "MQTT-3.3.2-17", "MQTT-3.3.2-18"),
        id="all of them",
    ),
]


@pytest.mark.parametrize("properties", PASSED_ON)
@pytest.mark.parametrize("qos", [0, 1])
def test_what_the_publisher_says_about_a_message_is_passed_on_unaltered(
    connect5: Connect5, unique: Unique, properties: list[wire.Property], qos: int
) -> None:
    publisher, subscriber = connect5(), connect5()
    subscriber.subscribe(unique.topic(), qos=1)
    publisher.publish(unique.topic(), b"text", qos=qos, properties=properties)
    got = subscriber.expect(Publish, payload=b"text", qos=qos)
    pairs = [value for identifier, value in properties if identifier == P.USER_PROPERTY]
    assert got.props(P.USER_PROPERTY) == pairs
    assert sorted(got.properties, key=str) == sorted(properties, key=str)


@pytest.mark.clause("5.0", "MQTT-3.3.2-17", "MQTT-3.3.2-18", "MQTT-3.3.2-16", "MQTT-3.3.2-20")
def test_properties_are_kept_for_retained_and_queued_copies(connect5: Connect5, unique: Unique) -> None:
    properties = [
        (P.CONTENT_TYPE, "t"),
        (P.RESPONSE_TOPIC, "r"),
        (P.CORRELATION_DATA, b"\x00c"),
        (P.USER_PROPERTY, ("b", "1")),
        (P.USER_PROPERTY, ("a", "2")),
    ]
    absent = connect5(unique.client(), properties=KEEP)
    absent.subscribe(unique.topic(), qos=1)
    absent.disconnect()
    publisher, late = connect5(), connect5()
    publisher.publish(unique.topic(), b"1", qos=1, retain=True, properties=properties)
    late.subscribe(unique.topic(), qos=1)
    absent = connect5(unique.client(), clean=False)
    for client in (late, absent):
        got = client.expect(Publish, payload=b"1")
        assert sorted(got.properties, key=str) == sorted(properties, key=str)
        assert got.props(P.USER_PROPERTY) == [("b", "1"), ("a", "2")]


def refused(properties: list[wire.Property], reason: int, clause: str, name: str) -> object:
    return pytest.param(properties, reason, id=name, marks=pytest.mark.clause("5.0", clause))


BAD_PROPERTIES = [
    refused([(P.RESPONSE_TOPIC, "a/+")], 0x82, "MQTT-3.3.2-14", "response topic with a plus"),
    refused([(P.RESPONSE_TOPIC, "#")], 0x82, "MQTT-3.3.2-14", "response topic with a hash"),
    refused([(P.RESPONSE_TOPIC, b"\xff")], 0x81, "MQTT-3.3.2-13", "response topic ill-formed"),
    refused([(P.CONTENT_TYPE, b"\xff")], 0x81, "MQTT-3.3.2-19", "content type ill-formed"),
    refused([(P.SUBSCRIPTION_ID, 1)], 0x82, "MQTT-3.3.4-6", "subscription identifier"),
    refused([(P.PAYLOAD_FORMAT, 2)], 0x82, "MQTT-4.13.1-1", "payload format 2"),
    refused([(P.MESSAGE_EXPIRY, 1)] * 2, 0x82, "MQTT-4.13.1-1", "message expiry twice"),
    refused([(P.CONTENT_TYPE, "t")] * 2, 0x82, "MQTT-4.13.1-1", "content type twice"),
    refused([(P.SESSION_EXPIRY, 1)], 0x81, "MQTT-4.13.1-1", "a property of CONNECT"),
    refused([(P.REASON_STRING, "r")], 0x81, "MQTT-4.13.1-1", "a property of PUBACK"),
    refused([(0x7E, b"")], 0x81, "MQTT-4.13.1-1", "an unknown property"),
]


@pytest.mark.parametrize(("properties", "reason"), BAD_PROPERTIES)
def test_a_publish_with_forbidden_properties_is_refused_and_not_delivered(
    connect5: Connect5, unique: Unique, properties: list[wire.Property], reason: int
) -> None:
    watcher, client = connect5(), connect5()
    watcher.subscribe(unique.topic())
    client.send(wire.publish(unique.topic(), b"1", version=5, properties=properties))
    expect_dropped(client, reason)
    watcher.expect_no_message()


# Message expiry


@pytest.mark.told_clock
@pytest.mark.clause("5.0", "MQTT-3.3.2-5", "MQTT-3.3.2-6")
def test_queued_messages_expire_or_arrive_with_the_time_that_is_left(
    connect5: Connect5, unique: Unique, server: Server
) -> None:
    absent = connect5(unique.client(), properties=KEEP)
    absent.subscribe(unique.topic(), qos=1)
    absent.disconnect()
    publisher = connect5()
    publisher.publish(unique.topic(), b"short", qos=1, properties=[(P.MESSAGE_EXPIRY, 1)])
    publisher.publish(unique.topic(), b"long", qos=1, properties=[(P.MESSAGE_EXPIRY, 100)])
    publisher.publish(unique.topic(), b"for ever", qos=1)
    server.pass_time(1.2)
    absent = connect5(unique.client(), clean=False)
    long, forever = absent.messages(2)
    assert (long.payload, forever.payload) == (b"long", b"for ever")
    assert 95 <= long.prop(P.MESSAGE_EXPIRY) <= 99
    assert forever.prop(P.MESSAGE_EXPIRY) is None
    absent.expect_no_message()


@pytest.mark.told_clock
@pytest.mark.clause("5.0", "MQTT-3.3.2-6")
def test_a_message_forwarded_at_once_keeps_its_whole_expiry_interval(connect5: Connect5, unique: Unique) -> None:
    client = connect5()
    client.subscribe(unique.topic())
    client.publish(unique.topic(), b"1", properties=[(P.MESSAGE_EXPIRY, 1000)])
    got = client.expect(Publish, payload=b"1").prop(P.MESSAGE_EXPIRY)
    assert got in (999, 1000)


@pytest.mark.told_clock
@pytest.mark.clause("5.0", "MQTT-3.3.2-5")
def test_a_message_waiting_for_the_window_expires_too(connect5: Connect5, unique: Unique, server: Server) -> None:
    """One message fills the window, so the second waits here and its delivery never begins."""
    client, publisher = connect5(properties=[(P.RECEIVE_MAXIMUM, 1)]), connect5()
    client.subscribe(unique.topic(), qos=1)
    publisher.publish(unique.topic(), b"first", qos=1)
    publisher.publish(unique.topic(), b"expires", qos=1, properties=[(P.MESSAGE_EXPIRY, 1)])
    publisher.publish(unique.topic(), b"stays", qos=1)
    first = client.expect(Publish, payload=b"first")
    server.pass_time(1.2)
    client.ack(first)
    client.expect(Publish, payload=b"stays")


@pytest.mark.told_clock
@pytest.mark.clause("5.0", "MQTT-3.3.2-5", "MQTT-3.3.2-6")
def test_a_retained_message_expires_or_arrives_with_the_time_that_is_left(
    connect5: Connect5, unique: Unique, server: Server
) -> None:
    publisher = connect5()
    publisher.publish(unique.topic("short"), b"1", retain=True, properties=[(P.MESSAGE_EXPIRY, 1)])
    publisher.publish(unique.topic("long"), b"2", retain=True, properties=[(P.MESSAGE_EXPIRY, 50)])
    server.pass_time(1.2)
    client = connect5()
    client.subscribe(unique.topic("#"))
    got = client.expect(Publish, topic=unique.topic("long"))
    assert 45 <= got.prop(P.MESSAGE_EXPIRY) <= 49
    client.expect_no_message()


# Answers


@pytest.mark.clause("5.0", "MQTT-3.3.4-1")
def test_a_publish_is_answered_by_its_qos(connect5: Connect5, unique: Unique) -> None:
    client = connect5()
    client.send(wire.publish(unique.topic(), b"0", version=5))
    client.expect_no_message()
    client.send(wire.publish(unique.topic(), b"1", qos=1, packet_id=11, version=5))
    client.expect(PubAck, packet_id=11)
    client.send(wire.publish(unique.topic(), b"2", qos=2, packet_id=12, version=5))
    client.expect(PubRec, packet_id=12)
    client.send(wire.pubrel(12))
    client.expect(PubComp, packet_id=12, reason=0)
    client.expect_no_message()


# Overlapping subscriptions and their identifiers


@pytest.mark.clause("5.0", "MQTT-3.3.4-2")
@pytest.mark.parametrize("order", [(0, 2, 1), (2, 1, 0), (1, 0, 2)], ids=str)
def test_overlapping_subscriptions_get_the_message_at_their_highest_qos(
    connect5: Connect5, unique: Unique, order: tuple[int, ...]
) -> None:
    client = connect5()
    for qos, topic_filter in zip(order, ["a/b", "a/#", "+/b"], strict=True):
        client.subscribe(unique.topic(topic_filter), qos=qos)
    client.publish(unique.topic("a/b"), b"1", qos=2)
    client.ping()
    copies = client.messages(1)
    copies += [packet for packet in client.barrier() if isinstance(packet, Publish)]
    assert max(copy.qos for copy in copies) == 2
    assert len(copies) in (1, 3)


@pytest.mark.clause("5.0", "MQTT-3.3.4-2", "MQTT-3.3.4-4")
@pytest.mark.parametrize("published", [0, 1, 2])
def test_overlapping_subscriptions_get_one_copy_with_every_identifier(
    connect5: Connect5, unique: Unique, published: int
) -> None:
    client = connect5()
    client.subscribe(unique.topic("a/b"), qos=0, properties=[(P.SUBSCRIPTION_ID, 1)])
    client.subscribe(unique.topic("a/+"), qos=1, properties=[(P.SUBSCRIPTION_ID, 128)])
    client.subscribe(unique.topic("#"), qos=2, properties=[(P.SUBSCRIPTION_ID, 268_435_455)])
    client.subscribe(unique.topic("+/b"), qos=2)
    client.publish(unique.topic("a/b"), b"1", qos=published)
    got = client.expect(Publish, qos=published)
    assert sorted(got.props(P.SUBSCRIPTION_ID)) == [1, 128, 268_435_455]
    client.expect_no_message()


@pytest.mark.clause("5.0", "MQTT-3.3.4-3")
def test_a_message_carries_the_identifier_of_the_subscription_it_matches(connect5: Connect5, unique: Unique) -> None:
    client = connect5()
    client.subscribe(unique.topic("a"), properties=[(P.SUBSCRIPTION_ID, 5)])
    client.subscribe(unique.topic("b"), properties=[(P.SUBSCRIPTION_ID, 6)])
    client.subscribe(unique.topic("c"))
    for name, identifiers in [("a", [5]), ("b", [6]), ("c", [])]:
        client.publish(unique.topic(name), b"1")
        assert client.expect(Publish, topic=unique.topic(name)).props(P.SUBSCRIPTION_ID) == identifiers


@pytest.mark.clause("5.0", "MQTT-3.3.4-5", "MQTT-3.3.4-3")
def test_copies_sent_at_subscribe_carry_the_identifier_that_caused_them(connect5: Connect5, unique: Unique) -> None:
    """Each subscription sends its own copy of a retained message, with its own identifier and no other."""
    client = connect5()
    client.publish(unique.topic("a"), b"1", retain=True)
    for identifier, topic_filter in [(1, "a"), (2, "+"), (3, "#")]:
        client.subscribe(unique.topic(topic_filter), properties=[(P.SUBSCRIPTION_ID, identifier)])
        assert client.expect(Publish, retain=True).props(P.SUBSCRIPTION_ID) == [identifier]


@pytest.mark.clause("5.0", "MQTT-3.3.4-5")
def test_a_shared_and_a_plain_subscription_send_copies_with_their_own_identifiers(
    connect5: Connect5, unique: Unique
) -> None:
    client = connect5()
    client.subscribe(unique.topic("a"), properties=[(P.SUBSCRIPTION_ID, 1)])
    client.subscribe(f"$share/g/{unique.topic('a')}", properties=[(P.SUBSCRIPTION_ID, 2)])
    client.publish(unique.topic("a"), b"1")
    copies = client.messages(2)
    assert sorted(copy.props(P.SUBSCRIPTION_ID) for copy in copies) == [[1], [2]]


@pytest.mark.clause("5.0", "MQTT-3.3.4-3", "MQTT-3.8.4-3")
def test_subscribing_again_replaces_the_identifier(connect5: Connect5, unique: Unique) -> None:
    client = connect5()
    client.subscribe(unique.topic(), properties=[(P.SUBSCRIPTION_ID, 1)])
    client.subscribe(unique.topic(), properties=[(P.SUBSCRIPTION_ID, 2)])
    client.publish(unique.topic(), b"1")
    assert client.expect(Publish).props(P.SUBSCRIPTION_ID) == [2]
    client.subscribe(unique.topic())
    client.publish(unique.topic(), b"2")
    assert client.expect(Publish).props(P.SUBSCRIPTION_ID) == []
