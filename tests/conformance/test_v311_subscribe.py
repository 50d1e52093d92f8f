"""3.1.1: SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK."""

from collections.abc import Callable

import pytest

import wire
from broker_process import Unique
from wire import Publish, SubAck, UnsubAck, WireClient

Connect = Callable[..., WireClient]


@pytest.mark.clause("3.1.1", "MQTT-3.8.4-1", "MQTT-3.8.4-2", "MQTT-3.8.4-5")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_subscribe_is_answered_with_the_granted_qos(qos: int, connect: Connect, unique: Unique) -> None:
    client = connect()
    client.send(wire.subscribe(0x0A0B, [(unique.topic(), qos)]))
    client.expect(b"\x90\x03\x0a\x0b" + bytes([qos]))


@pytest.mark.clause("3.1.1", "MQTT-3.8.4-4", "MQTT-3.8.4-5", "MQTT-3.9.3-1", "MQTT-3.9.3-2")
def test_several_filters_get_one_suback_with_codes_in_order(connect: Connect, unique: Unique) -> None:
    client, publisher = connect(), connect()
    levels = [2, 0, 1, 1, 0, 2]
    client.send(wire.subscribe(5, [(unique.topic(str(index)), qos) for index, qos in enumerate(levels)]))
    client.expect(b"\x90\x08\x00\x05" + bytes(levels))
    client.expect_no_message()
    for index, qos in enumerate(levels):
        publisher.publish(unique.topic(str(index)), b"x", qos=2)
        (message,) = client.messages(1)
        assert (message.topic, message.qos) == (unique.topic(str(index)), qos)


@pytest.mark.clause("3.1.1", "MQTT-3.8.4-4", "MQTT-3.3.1-6")
def test_each_filter_of_a_subscribe_brings_its_retained_messages(connect: Connect, unique: Unique) -> None:
    connect().publish(unique.topic("a"), b"kept", retain=True)
    client = connect()
    client.subscribe(unique.topic("a"), unique.topic("+"), unique.topic("other"))
    got = client.barrier()
    assert [(packet.payload, packet.retain) for packet in got if isinstance(packet, Publish)] == [(b"kept", True)] * 2


@pytest.mark.clause("3.1.1", "MQTT-3.9.3-2", "MQTT-3.8.4-5")
def test_suback_codes_are_of_the_four_allowed(connect: Connect, unique: Unique) -> None:
    """Filters that a server may refuse are mixed in; whichever way it decides, the codes stay in the list."""
    client = connect()
    filters = [(unique.topic(), 2), ("$share//x", 1), (f"$share/g/{unique}", 1), (f"$SYS/{unique}", 0)]
    client.send(wire.subscribe(9, filters))
    try:
        answer = client.expect(SubAck, packet_id=9)
    except wire.Closed:
        return
    assert len(answer.codes) == len(filters)
    assert set(answer.codes) <= {0, 1, 2, 0x80}
    assert answer.codes[0] == 2


@pytest.mark.clause("3.1.1", "MQTT-3.8.3-3")
def test_subscribe_without_filters_closes_the_connection(connect: Connect) -> None:
    client = connect()
    client.send(wire.subscribe(1, []))
    client.expect_closed()


@pytest.mark.clause("3.1.1", "MQTT-3.8.3-4")
@pytest.mark.parametrize("option", [0x03, 0x04, 0x08, 0x10, 0x21, 0x42, 0x80])
def test_qos_3_or_reserved_bits_in_subscribe_close_the_connection(
    option: int, connect: Connect, unique: Unique
) -> None:
    client = connect()
    client.send(wire.subscribe(1, [(unique.topic(), option)]))
    client.expect_closed()


@pytest.mark.clause("3.1.1", "MQTT-3.8.3-4")
def test_nothing_of_a_malformed_subscribe_takes_effect(connect: Connect, unique: Unique) -> None:
    name = unique.client("half")
    client = connect(name, clean=False)
    client.send(wire.subscribe(1, [(unique.topic("good"), 1), (unique.topic("bad"), 3)]))
    client.expect_closed()
    connect().publish(unique.topic("good"), b"x", qos=1)
    connect(name, clean=False).expect_no_message()


@pytest.mark.clause("3.1.1", "MQTT-3.8.4-3")
def test_same_filter_again_replaces_the_subscription(connect: Connect, unique: Unique) -> None:
    client, publisher = connect(), connect()
    client.subscribe(unique.topic(), qos=2)
    client.subscribe(unique.topic(), qos=0)
    publisher.publish(unique.topic(), b"1", qos=2)
    client.expect(Publish, qos=0)
    client.expect_no_message()
    client.subscribe(unique.topic(), qos=1)
    publisher.publish(unique.topic(), b"2", qos=2)
    client.expect(Publish, qos=1)


@pytest.mark.clause("3.1.1", "MQTT-3.8.4-3", "MQTT-3.3.1-6")
def test_same_filter_again_brings_the_retained_messages_again(connect: Connect, unique: Unique) -> None:
    client = connect()
    connect().publish(unique.topic(), b"kept", retain=True)
    for _ in range(3):
        client.subscribe(unique.topic())
        client.expect(Publish, payload=b"kept", retain=True)
    client.expect_no_message()


@pytest.mark.clause("3.1.1", "MQTT-3.8.4-3")
def test_same_filter_again_loses_no_live_message(connect: Connect, unique: Unique) -> None:
    client, publisher = connect(), connect()
    client.subscribe(unique.topic(), qos=0)
    for number in range(100):
        publisher.send_publish(unique.topic(), b"%d" % number)
        if number % 5 == 0:
            client.send(wire.subscribe(1000 + number, [(unique.topic(), number % 3)]))
    publisher.ping()
    got = [int(packet.payload) for packet in client.barrier() if isinstance(packet, Publish)]
    assert got == list(range(100))


@pytest.mark.clause("3.1.1", "MQTT-3.8.4-6")
@pytest.mark.parametrize("granted", [0, 1, 2])
@pytest.mark.parametrize("published", [0, 1, 2])
def test_delivery_has_the_lower_of_published_and_granted_qos(
    published: int, granted: int, connect: Connect, unique: Unique
) -> None:
    client = connect()
    client.subscribe(unique.topic(), qos=granted)
    connect().publish(unique.topic(), b"x", qos=published)
    (message,) = client.messages(1)
    assert message.qos == min(published, granted)
    client.expect_no_message()


@pytest.mark.clause("3.1.1", "MQTT-3.10.4-4", "MQTT-3.10.4-2", "MQTT-3.10.4-1")
def test_unsubscribe_ends_the_subscription(connect: Connect, unique: Unique) -> None:
    client, publisher = connect(), connect()
    client.subscribe(unique.topic(), qos=1)
    client.send(wire.unsubscribe(0x0C0D, [unique.topic()]))
    client.expect(b"\xb0\x02\x0c\x0d")
    publisher.publish(unique.topic(), b"x", qos=1)
    client.expect_no_message()


@pytest.mark.clause("3.1.1", "MQTT-3.10.4-1")
@pytest.mark.parametrize("other", ["a/+", "a/#", "A/b", "a/b/", "+/b", "a", "#"])
def test_unsubscribe_compares_character_by_character(other: str, connect: Connect, unique: Unique) -> None:
    client = connect()
    client.subscribe(unique.topic("a/b"))
    client.unsubscribe(unique.topic(other))
    connect().publish(unique.topic("a/b"), b"still")
    client.expect(Publish, payload=b"still")


@pytest.mark.clause("3.1.1", "MQTT-3.10.4-1")
def test_unsubscribe_of_a_wildcard_filter_leaves_exact_ones(connect: Connect, unique: Unique) -> None:
    client = connect()
    client.subscribe((unique.topic("a/+"), 0), (unique.topic("a/b"), 0))
    client.unsubscribe(unique.topic("a/+"))
    publisher = connect()
    publisher.publish(unique.topic("a/c"), b"no")
    publisher.publish(unique.topic("a/b"), b"yes")
    client.expect(Publish, payload=b"yes")
    client.expect_no_message()


@pytest.mark.clause("3.1.1", "MQTT-3.10.4-5", "MQTT-3.10.4-4")
def test_unsubscribe_of_nothing_is_answered_too(connect: Connect, unique: Unique) -> None:
    client = connect()
    client.send(wire.unsubscribe(3, [unique.topic("never")]))
    client.expect(b"\xb0\x02\x00\x03")


@pytest.mark.clause("3.1.1", "MQTT-3.10.4-6")
def test_several_filters_get_one_unsuback(connect: Connect, unique: Unique) -> None:
    client, publisher = connect(), connect()
    names = [unique.topic(str(number)) for number in range(4)]
    client.subscribe(*names)
    client.send(wire.unsubscribe(8, [names[0], unique.topic("never"), names[2], names[0]]))
    client.expect(b"\xb0\x02\x00\x08")
    for name in names:
        publisher.publish(name, b"x")
    got = [packet.topic for packet in client.barrier() if isinstance(packet, Publish)]
    assert got == [names[1], names[3]]


@pytest.mark.clause("3.1.1", "MQTT-3.10.3-2")
def test_unsubscribe_without_filters_closes_the_connection(connect: Connect) -> None:
    client = connect()
    client.send(wire.unsubscribe(1, []))
    client.expect_closed()


@pytest.mark.clause("3.1.1", "MQTT-3.10.4-3")
def test_started_delivery_is_completed_after_unsubscribe(connect: Connect, unique: Unique) -> None:
    name = unique.client("leaving")
    client = connect(name, clean=False)
    client.subscribe((unique.topic("1"), 1), (unique.topic("2"), 2))
    publisher = connect()
    publisher.publish(unique.topic("1"), b"one", qos=1)
    publisher.publish(unique.topic("2"), b"two", qos=2)
    one, two = client.messages(2, ack=False)
    client.send(wire.unsubscribe(4, [unique.topic("1"), unique.topic("2")]))
    client.expect(UnsubAck, packet_id=4)
    assert one.packet_id
    assert two.packet_id
    client.send(wire.pubrec(two.packet_id))
    client.expect(wire.PubRel, packet_id=two.packet_id)
    client.send(wire.pubcomp(two.packet_id))
    client.cut()
    # The QoS 1 message was not acknowledged yet: it comes again although the subscription is gone.
    back = connect(name, clean=False)
    back.expect(Publish, payload=b"one", packet_id=one.packet_id, dup=True)
    back.send(wire.puback(one.packet_id))
    back.expect_no_message()
