"""MQTT 5.0 sections 3.1.2.11.3, 3.1.2.11.4 and 4.9: Receive Maximum and Maximum Packet Size."""

import pytest

import wire
from broker_process import Unique
from v5_client import KEEP, Connect5, expect_dropped
from wire import P, PubAck, PubComp, Publish, PubRec, PubRel, SubAck, UnsubAck, WireClient


def window(size: int) -> list[wire.Property]:
    return [(P.RECEIVE_MAXIMUM, size)]


def announced(client: WireClient) -> int:
    """The Receive Maximum of the broker."""
    assert client.connack is not None
    return client.connack.prop(P.RECEIVE_MAXIMUM) or 65535


# The broker's window


@pytest.mark.clause("5.0", "MQTT-3.3.4-7", "MQTT-4.9.0-1")
def test_a_client_may_fill_the_brokers_receive_maximum_and_no_more(connect5: Connect5, unique: Unique) -> None:
    client = connect5()
    count = announced(client)
    assert 0 < count < 65535
    client.send(b"".join(wire.publish(unique.topic(), b"", qos=2, packet_id=n, version=5) for n in range(1, count + 1)))
    for number in range(1, count + 1):
        client.expect(PubRec, packet_id=number)
    client.send(wire.publish(unique.topic(), b"", qos=2, packet_id=count + 1, version=5))
    expect_dropped(client, 0x93)


@pytest.mark.clause("5.0", "MQTT-3.3.4-7")
def test_finished_messages_free_the_brokers_window(connect5: Connect5, unique: Unique) -> None:
    client = connect5()
    count = announced(client)
    for _ in range(2):
        client.send(
            b"".join(wire.publish(unique.topic(), b"", qos=2, packet_id=n, version=5) for n in range(1, count + 1))
        )
        for number in range(1, count + 1):
            client.expect(PubRec, packet_id=number)
        client.send(b"".join(wire.pubrel(number) for number in range(1, count + 1)))
        for number in range(1, count + 1):
            client.expect(PubComp, packet_id=number)


# The client's window


@pytest.mark.clause("5.0", "MQTT-3.3.4-9", "MQTT-4.9.0-1", "MQTT-4.9.0-2")
@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("qos", [1, 2])
def test_the_broker_sends_no_more_than_the_clients_receive_maximum(
    connect5: Connect5, unique: Unique, size: int, qos: int
) -> None:
    subscriber, publisher = connect5(properties=window(size)), connect5()
    subscriber.subscribe(unique.topic(), qos=qos)
    for number in range(size + 3):
        publisher.publish(unique.topic(), str(number), qos=qos)
    open_messages = subscriber.messages(size, ack=False)
    subscriber.expect_no_message()
    for done, message in enumerate(open_messages[:3]):
        subscriber.ack(message)
        subscriber.expect(Publish, payload=str(size + done).encode())
        subscriber.expect_no_message()


@pytest.mark.clause("5.0", "MQTT-4.9.0-2", "MQTT-3.3.4-9")
def test_at_qos_2_a_place_is_free_after_pubcomp_and_not_after_pubrec(connect5: Connect5, unique: Unique) -> None:
    subscriber, publisher = connect5(properties=window(1)), connect5()
    subscriber.subscribe(unique.topic(), qos=2)
    for number in range(2):
        publisher.publish(unique.topic(), str(number), qos=2)
    identifier = subscriber.expect(Publish, payload=b"0").packet_id
    assert identifier is not None
    subscriber.send(wire.pubrec(identifier))
    subscriber.expect(PubRel, packet_id=identifier)
    subscriber.expect_no_message()
    subscriber.send(wire.pubcomp(identifier))
    subscriber.expect(Publish, payload=b"1")


@pytest.mark.clause("5.0", "MQTT-4.9.0-1", "MQTT-3.3.4-9")
def test_a_resumed_session_begins_with_the_window_of_the_new_connection(connect5: Connect5, unique: Unique) -> None:
    subscriber, publisher = connect5(unique.client(), properties=[*KEEP, *window(10)]), connect5()
    subscriber.subscribe(unique.topic(), qos=1)
    for number in range(8):
        publisher.publish(unique.topic(), str(number), qos=1)
    subscriber.messages(8, ack=False)
    subscriber.cut()
    again = connect5(unique.client(), clean=False, properties=[*KEEP, *window(3)])
    first = again.messages(3, ack=False)
    again.expect_no_message()
    for message in first:
        again.ack(message)
    assert [message.payload for message in first + again.messages(5)] == [str(n).encode() for n in range(8)]


@pytest.mark.clause("5.0", "MQTT-3.3.4-10", "MQTT-4.9.0-3")
def test_a_full_window_holds_back_nothing_but_qos_1_and_2_messages(connect5: Connect5, unique: Unique) -> None:
    subscriber, publisher = connect5(properties=window(1)), connect5()
    subscriber.subscribe(unique.topic(), qos=1)
    for _ in range(3):
        publisher.publish(unique.topic(), b"1", qos=1)
    first = subscriber.expect(Publish)
    subscriber.send(wire.subscribe(100, [(unique.topic("other"), 0)], version=5))
    subscriber.expect(SubAck, packet_id=100)
    subscriber.send(wire.publish(unique.topic("mine"), b"1", qos=1, packet_id=101, version=5))
    subscriber.expect(PubAck, packet_id=101)
    subscriber.send(wire.publish(unique.topic("mine"), b"2", qos=2, packet_id=102, version=5))
    subscriber.expect(PubRec, packet_id=102)
    subscriber.send(wire.pubrel(102))
    subscriber.expect(PubComp, packet_id=102)
    publisher.publish(unique.topic("other"), b"QoS 0")
    subscriber.expect(Publish, payload=b"QoS 0", qos=0)
    subscriber.send(wire.unsubscribe(103, [unique.topic("other")], version=5))
    subscriber.expect(UnsubAck, packet_id=103)
    subscriber.expect_no_message()
    subscriber.ack(first)
    subscriber.expect(Publish, payload=b"1", qos=1)


# Maximum Packet Size


def at_most(size: int) -> list[wire.Property]:
    return [(P.MAXIMUM_PACKET_SIZE, size)]


@pytest.mark.clause("5.0", "MQTT-3.1.2-24", "MQTT-3.1.2-25")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_packet_of_the_maximum_size_is_sent_and_a_larger_one_is_not(
    connect5: Connect5, unique: Unique, qos: int
) -> None:
    """The larger one counts as sent: the next message follows, even through a window of one."""
    limit = 200
    small = connect5(properties=[*at_most(limit), *window(1)])
    large, publisher = connect5(), connect5()
    for subscriber in (small, large):
        subscriber.subscribe(unique.topic(), qos=qos)
    overhead = len(wire.publish(unique.topic(), b"x" * limit, packet_id=1 if qos else None, version=5)) - limit
    fits = b"x" * (limit - overhead)
    for payload in (fits + b"x", fits, fits + b"xy", b"end"):
        publisher.publish(unique.topic(), payload, qos=qos)
    one, two = small.messages(2)
    assert (one.payload, two.payload) == (fits, b"end")
    assert len(one.raw) == limit
    small.expect_no_message()
    assert [len(message.payload) for message in large.messages(4)] == [len(fits) + 1, len(fits), len(fits) + 2, 3]


@pytest.mark.clause("5.0", "MQTT-3.1.2-24", "MQTT-3.1.2-25")
def test_properties_count_towards_the_packet_size(connect5: Connect5, unique: Unique) -> None:
    client, publisher = connect5(properties=at_most(150)), connect5()
    client.subscribe(unique.topic())
    publisher.publish(unique.topic(), b"1", properties=[(P.USER_PROPERTY, ("a", "x" * 150))])
    publisher.publish(unique.topic(), b"2", properties=[(P.USER_PROPERTY, ("a", "x"))])
    client.expect(Publish, payload=b"2")


@pytest.mark.clause("5.0", "MQTT-3.1.2-25")
def test_a_queued_message_too_large_for_the_new_connection_is_dropped(connect5: Connect5, unique: Unique) -> None:
    client, publisher = connect5(unique.client(), properties=KEEP), connect5()
    client.subscribe(unique.topic(), qos=1)
    client.disconnect()
    publisher.publish(unique.topic(), b"x" * 500, qos=1)
    publisher.publish(unique.topic(), b"small", qos=1)
    again = connect5(unique.client(), clean=False, properties=[*KEEP, *at_most(200), *window(1)])
    again.ack(again.expect(Publish, payload=b"small"))
    again.expect_no_message()
    again.disconnect()
    connect5(unique.client(), clean=False, properties=KEEP).expect_no_message()


@pytest.mark.clause("5.0", "MQTT-3.1.2-25", "MQTT-3.1.2-24")
def test_a_retained_message_too_large_for_one_client_stays_for_others(connect5: Connect5, unique: Unique) -> None:
    publisher, small, large = connect5(), connect5(properties=at_most(200)), connect5()
    publisher.publish(unique.topic("big"), b"x" * 500, retain=True)
    publisher.publish(unique.topic("small"), b"1", retain=True)
    small.subscribe(unique.topic("#"))
    small.expect(Publish, topic=unique.topic("small"))
    small.expect_no_message()
    large.subscribe(unique.topic("#"))
    assert {message.topic for message in large.messages(2)} == {unique.topic("big"), unique.topic("small")}
