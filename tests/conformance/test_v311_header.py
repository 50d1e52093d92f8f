"""3.1.1: the fixed header and packet identifiers."""

from collections.abc import Callable

import pytest

import wire
from broker_process import Unique
from wire import Publish, WireClient

Connect = Callable[..., WireClient]

WITH_FLAGS_0000 = {
    "PUBACK": lambda first: wire.puback(1, first_byte=first),
    "PUBREC": lambda first: wire.pubrec(1, first_byte=first),
    "PUBCOMP": lambda first: wire.pubcomp(1, first_byte=first),
    "PINGREQ": lambda first: wire.pingreq(first_byte=first),
}
KINDS = {"PUBACK": 4, "PUBREC": 5, "PUBCOMP": 7, "PINGREQ": 12}
WRONG_ZERO = [0b0001, 0b0010, 0b0100, 0b1000, 0b1111]
WRONG_TWO = [0b0000, 0b0001, 0b0011, 0b0110, 0b1010, 0b1111]


@pytest.mark.clause("3.1.1", "MQTT-2.2.2-1", "MQTT-2.2.2-2", "MQTT-4.8.0-1")
@pytest.mark.parametrize("flags", WRONG_ZERO)
@pytest.mark.parametrize("kind", WITH_FLAGS_0000)
def test_wrong_reserved_flags_close_the_connection(kind: str, flags: int, connect: Connect) -> None:
    client = connect()
    client.send(WITH_FLAGS_0000[kind](KINDS[kind] << 4 | flags))
    client.expect_closed()


@pytest.mark.clause("3.1.1", "MQTT-2.2.2-2", "MQTT-3.1.4-1")
@pytest.mark.parametrize("flags", WRONG_ZERO)
def test_wrong_reserved_flags_of_connect_close_without_connack(flags: int, open_client: Connect) -> None:
    client = open_client()
    client.send(wire.connect("flags", first_byte=0x10 | flags))
    client.expect_closed()


@pytest.mark.clause("3.1.1", "MQTT-2.2.2-2", "MQTT-3.8.1-1")
@pytest.mark.parametrize("flags", WRONG_TWO)
def test_wrong_flags_of_subscribe_close_the_connection(flags: int, connect: Connect) -> None:
    client = connect()
    client.send(wire.subscribe(1, [("a", 0)], first_byte=0x80 | flags))
    client.expect_closed()


@pytest.mark.clause("3.1.1", "MQTT-2.2.2-2", "MQTT-3.10.1-1")
@pytest.mark.parametrize("flags", WRONG_TWO)
def test_wrong_flags_of_unsubscribe_close_the_connection(flags: int, connect: Connect) -> None:
    client = connect()
    client.send(wire.unsubscribe(1, ["a"], first_byte=0xA0 | flags))
    client.expect_closed()


@pytest.mark.clause("3.1.1", "MQTT-2.2.2-2", "MQTT-3.6.1-1")
@pytest.mark.parametrize("flags", WRONG_TWO)
def test_wrong_flags_of_pubrel_close_the_connection(flags: int, connect: Connect, unique: Unique) -> None:
    client = connect()
    client.send_publish(unique.topic(), b"1", qos=2, packet_id=9)
    client.expect(wire.PubRec, packet_id=9)
    client.send(wire.pubrel(9, first_byte=0x60 | flags))
    client.expect_closed()


@pytest.mark.clause("3.1.1", "MQTT-3.14.1-1", "MQTT-2.2.2-2")
@pytest.mark.parametrize("flags", WRONG_ZERO)
def test_disconnect_with_reserved_bits_is_an_error_and_keeps_the_will(
    flags: int, connect: Connect, unique: Unique
) -> None:
    watcher = connect()
    watcher.subscribe(unique.topic("will"))
    client = connect(will=wire.Will(unique.topic("will"), b"gone"))
    client.send(wire.disconnect(first_byte=0xE0 | flags))
    client.expect_closed()
    watcher.expect(Publish, topic=unique.topic("will"), payload=b"gone")


@pytest.mark.clause("3.1.1", "MQTT-4.8.0-1")
@pytest.mark.parametrize(
    "packet",
    [
        pytest.param(b"\x00\x00", id="type 0"),
        pytest.param(b"\xf0\x00", id="type 15"),
        pytest.param(b"\x20\x02\x00\x00", id="CONNACK"),
        pytest.param(b"\x90\x03\x00\x01\x00", id="SUBACK"),
        pytest.param(b"\xb0\x02\x00\x01", id="UNSUBACK"),
        pytest.param(b"\xd0\x00", id="PINGRESP"),
        pytest.param(b"\x30\xff\xff\xff\xff\x01", id="remaining length of five bytes"),
        pytest.param(b"\xc0\x01\x00", id="PINGREQ with a body"),
        pytest.param(b"\x40\x01\x00", id="PUBACK with half an identifier"),
        pytest.param(b"\x40\x00", id="PUBACK without identifier"),
        pytest.param(b"\x30\x00", id="PUBLISH without topic"),
        pytest.param(b"\x30\x03\x00\x05a", id="PUBLISH topic longer than the packet"),
        pytest.param(b"\x32\x04\x00\x01a\x00", id="PUBLISH with half an identifier"),
        pytest.param(b"\x82\x01\x00", id="SUBSCRIBE with half an identifier"),
        pytest.param(b"\x82\x05\x00\x01\x00\x01a", id="SUBSCRIBE without QoS"),
        pytest.param(b"\xe0\x01\x00", id="DISCONNECT with a body"),
    ],
)
def test_malformed_packet_closes_the_connection_it_came_on(packet: bytes, connect: Connect, unique: Unique) -> None:
    other, client = connect(), connect()
    other.subscribe(unique.topic())
    client.send(packet)
    client.expect_closed()
    other.publish(unique.topic(), b"still here")
    other.expect(Publish, payload=b"still here")


@pytest.mark.clause("3.1.1", "MQTT-2.3.1-1")
@pytest.mark.parametrize(
    "packet",
    [
        pytest.param(wire.subscribe(0, [("a", 0)]), id="SUBSCRIBE"),
        pytest.param(wire.unsubscribe(0, ["a"]), id="UNSUBSCRIBE"),
        pytest.param(wire.publish("a", b"1", qos=1, packet_id=0), id="PUBLISH QoS 1"),
        pytest.param(wire.publish("a", b"1", qos=2, packet_id=0), id="PUBLISH QoS 2"),
    ],
)
def test_packet_identifier_zero_closes_the_connection(packet: bytes, connect: Connect) -> None:
    client = connect()
    client.send(packet)
    client.expect_closed()


@pytest.mark.clause("3.1.1", "MQTT-2.3.1-5", "MQTT-4.3.1-1", "MQTT-3.3.1-2")
def test_qos_0_delivery_has_no_identifier_and_no_dup(connect: Connect) -> None:
    subscriber = connect()
    subscriber.subscribe("x0")
    connect().publish("x0", b"ab")
    subscriber.expect(b"\x30\x06\x00\x02x0ab")


@pytest.mark.clause("3.1.1", "MQTT-2.3.1-6", "MQTT-2.3.1-7", "MQTT-3.8.4-2", "MQTT-3.10.4-4")
@pytest.mark.parametrize("packet_id", [1, 0x00FF, 0x0100, 0xFFFF])
def test_answers_repeat_the_identifier(packet_id: int, connect: Connect, unique: Unique) -> None:
    client = connect()
    named = packet_id.to_bytes(2, "big")
    topic = unique.topic()
    client.send(wire.publish(topic, qos=1, packet_id=packet_id))
    client.expect(b"\x40\x02" + named)
    client.send(wire.publish(topic, qos=2, packet_id=packet_id))
    client.expect(b"\x50\x02" + named)
    client.send(wire.pubrel(packet_id))
    client.expect(b"\x70\x02" + named)
    client.send(wire.subscribe(packet_id, [(topic, 0)]))
    client.expect(b"\x90\x03" + named + b"\x00")
    client.send(wire.unsubscribe(packet_id, [topic]))
    client.expect(b"\xb0\x02" + named)


@pytest.mark.clause("3.1.1", "MQTT-2.3.1-6")
def test_pubrel_repeats_the_identifier_of_the_delivery(connect: Connect, unique: Unique) -> None:
    subscriber = connect()
    subscriber.subscribe(unique.topic(), qos=2)
    connect().publish(unique.topic(), b"1", qos=2)
    message = subscriber.expect(Publish, qos=2)
    assert message.packet_id
    subscriber.send(wire.pubrec(message.packet_id))
    subscriber.expect(b"\x62\x02" + message.packet_id.to_bytes(2, "big"))


@pytest.mark.clause("3.1.1", "MQTT-2.3.1-4", "MQTT-2.3.1-1", "MQTT-4.3.2-1")
def test_unacknowledged_deliveries_have_identifiers_of_their_own(connect: Connect, unique: Unique) -> None:
    subscriber, publisher = connect(), connect()
    subscriber.subscribe((unique.topic("1"), 1), (unique.topic("2"), 2))
    for number in range(10):
        publisher.publish(unique.topic(str(1 + number % 2)), b"%d" % number, qos=2)
    waiting = subscriber.messages(10, ack=False)
    ids = [message.packet_id for message in waiting]
    assert 0 not in ids
    assert None not in ids
    assert len(set(ids)) == 10
    # Free again after the handshake: nothing stays in use.
    for message in waiting:
        subscriber.ack(message)
    publisher.publish(unique.topic("1"), b"last", qos=1)
    subscriber.expect(Publish, payload=b"last", dup=False)


@pytest.mark.clause("3.1.1", "MQTT-2.3.1-2", "MQTT-2.3.1-3")
@pytest.mark.parametrize("qos", [1, 2])
def test_identifier_is_free_again_after_the_handshake(qos: int, connect: Connect, unique: Unique) -> None:
    subscriber, publisher = connect(), connect()
    subscriber.subscribe(unique.topic(), qos=2)
    for payload in (b"first", b"second"):
        publisher.publish(unique.topic(), payload, qos=qos, packet_id=7)
        assert [message.payload for message in subscriber.messages(1)] == [payload]
    subscriber.expect_no_message()


@pytest.mark.clause("3.1.1", "MQTT-2.3.1-3", "MQTT-4.3.3-2")
def test_repeated_qos_2_publish_keeps_its_identifier_and_is_delivered_once(connect: Connect, unique: Unique) -> None:
    subscriber, publisher = connect(), connect()
    subscriber.subscribe(unique.topic())
    publisher.send(wire.publish(unique.topic(), b"once", qos=2, packet_id=3))
    publisher.expect(b"\x50\x02\x00\x03")
    publisher.send(wire.publish(unique.topic(), b"once", qos=2, packet_id=3, dup=True))
    publisher.expect(b"\x50\x02\x00\x03")
    publisher.send(wire.pubrel(3))
    publisher.expect(b"\x70\x02\x00\x03")
    subscriber.expect(Publish, payload=b"once")
    subscriber.expect_no_message()
