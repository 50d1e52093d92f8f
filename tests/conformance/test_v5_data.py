"""MQTT 5.0 chapters 1 and 2: text, variable byte integers, fixed header, packet identifiers, property length."""

from collections.abc import Callable

import pytest

import wire
from broker_process import Unique
from v5_client import Connect5, expect_dropped, expect_refused
from wire import P, PubAck, PubComp, Publish, PubRec, PubRel

ILL_FORMED = {
    "a byte that begins nothing": b"\x80",
    "a surrogate": b"\xed\xa0\x80",
    "an overlong slash": b"\xc0\xaf",
    "a character cut short": b"\xe2\x82",
    "a value above U+10FFFF": b"\xf4\x90\x80\x80",
    "the byte FF": b"\xff",
}

Place = Callable[[bytes], bytes]


def place(name: str, clause: str, packet: Place) -> object:
    return pytest.param(packet, id=name, marks=pytest.mark.clause("5.0", clause))


# Every place where a connected client can put text.
PLACES = [
    place("topic name", "MQTT-3.3.2-1", lambda bad: wire.publish(b"t" + bad, version=5)),
    place("filter to subscribe", "MQTT-3.8.3-1", lambda bad: wire.subscribe(1, [(b"t" + bad, 0)], version=5)),
    place("filter to unsubscribe", "MQTT-3.10.3-1", lambda bad: wire.unsubscribe(1, [b"t" + bad], version=5)),
    place(
        "content type", "MQTT-3.3.2-19", lambda bad: wire.publish("t", version=5, properties=[(P.CONTENT_TYPE, bad)])
    ),
    place(
        "response topic",
        "MQTT-3.3.2-13",
        lambda bad: wire.publish("t", version=5, properties=[(P.RESPONSE_TOPIC, b"r" + bad)]),
    ),
    place("reason string", "MQTT-1.5.4-1", lambda bad: wire.puback(1, 0, [(P.REASON_STRING, bad)])),
]


@pytest.mark.clause("5.0", "MQTT-1.5.4-1")
@pytest.mark.parametrize("bad", ILL_FORMED.values(), ids=ILL_FORMED.keys())
def test_ill_formed_utf8_is_a_malformed_packet(connect5: Connect5, bad: bytes) -> None:
    client = connect5()
    client.send(wire.publish(b"t" + bad, version=5))
    expect_dropped(client, 0x81)


@pytest.mark.clause("5.0", "MQTT-1.5.4-1")
@pytest.mark.parametrize("packet_with", PLACES)
def test_ill_formed_utf8_is_refused_wherever_text_stands(connect5: Connect5, packet_with: Place) -> None:
    client = connect5()
    client.send(packet_with(b"\xed\xb0\x80"))
    expect_dropped(client, 0x81)


@pytest.mark.clause("5.0", "MQTT-1.5.4-2")
@pytest.mark.parametrize("packet_with", PLACES)
def test_the_null_character_is_refused_wherever_text_stands(connect5: Connect5, packet_with: Place) -> None:
    client = connect5()
    client.send(packet_with(b"\x00"))
    expect_dropped(client, 0x81)


@pytest.mark.clause("5.0", "MQTT-4.7.3-2", "MQTT-1.5.4-2")
@pytest.mark.parametrize("topic", [b"\x00", b"a\x00b", b"a/\x00"])
def test_the_null_character_is_refused_in_topic_names_and_filters(connect5: Connect5, topic: bytes) -> None:
    for packet in (wire.publish(topic, version=5), wire.subscribe(1, [(topic, 0)], version=5)):
        client = connect5()
        client.send(packet)
        expect_dropped(client, 0x81)


@pytest.mark.clause("5.0", "MQTT-1.5.4-3")
def test_a_byte_order_mark_is_a_character_like_any_other(connect5: Connect5, unique: Unique) -> None:
    client = connect5()
    plain, marked = unique.topic("t"), "\ufeff" + unique.topic("t")
    client.subscribe(plain, marked)
    given = [(P.CONTENT_TYPE, "\ufefftext"), (P.USER_PROPERTY, ("\ufeffname", "value\ufeff"))]
    client.publish(marked, b"1", properties=given)
    client.expect(Publish, topic=marked, payload=b"1", properties=given)
    client.expect_no_message()


@pytest.mark.clause("5.0", "MQTT-1.5.7-1")
@pytest.mark.parametrize("pair", [(b"\xff", b"v"), (b"n", b"\xff"), (b"n\x00", b"v"), (b"n", b"v\x00")])
def test_both_halves_of_a_user_property_must_be_text(connect5: Connect5, pair: tuple[bytes, bytes]) -> None:
    client = connect5()
    client.send(wire.publish("t", version=5, properties=[(P.USER_PROPERTY, pair)]))
    expect_dropped(client, 0x81)


# Packets whose integers take more bytes than they need.
LONG_INTEGERS = {
    "remaining length": bytes.fromhex("c0 80 00"),
    "remaining length of four bytes": bytes.fromhex("c0 80 80 80 00"),
    "remaining length of five bytes": bytes.fromhex("c0 80 80 80 80 00"),
    "property length": bytes.fromhex("30 05 00 01 74 80 00"),
    "property identifier": bytes.fromhex("30 07 00 01 74 03 81 00 01"),
    "subscription identifier": bytes.fromhex("82 0a 00 01 03 0b 81 00 00 01 74 00"),
}


@pytest.mark.clause("5.0", "MQTT-1.5.5-1")
@pytest.mark.parametrize("packet", LONG_INTEGERS.values(), ids=LONG_INTEGERS.keys())
def test_an_integer_longer_than_needed_is_a_malformed_packet(connect5: Connect5, packet: bytes) -> None:
    client = connect5()
    client.send(packet)
    expect_dropped(client, 0x81)


@pytest.mark.clause("5.0", "MQTT-1.5.5-1")
@pytest.mark.parametrize("remaining", [127, 128, 16_383, 16_384, 2_097_151, 2_097_152])
def test_the_remaining_length_sent_is_as_short_as_possible(connect5: Connect5, unique: Unique, remaining: int) -> None:
    client = connect5()
    topic = unique.topic()
    client.subscribe(topic)
    head = wire.publish(topic, b"", version=5)
    packet = wire.publish(topic, b"x" * (remaining - (len(head) - 2)), version=5)
    client.send(packet)
    client.expect(packet)


WRONG_FLAGS = {
    "PUBLISH with QoS 3": b"\x36" + wire.publish("t", packet_id=1, version=5)[1:],
    "PUBACK": wire.puback(1, first_byte=0x41),
    "PUBREC": wire.pubrec(1, first_byte=0x52),
    "PUBREL": wire.pubrel(1, first_byte=0x60),
    "PUBCOMP": wire.pubcomp(1, first_byte=0x78),
    "SUBSCRIBE": wire.subscribe(1, [("t", 0)], version=5, first_byte=0x80),
    "UNSUBSCRIBE": wire.unsubscribe(1, ["t"], version=5, first_byte=0xA0),
    "PINGREQ": wire.pingreq(first_byte=0xC1),
    "DISCONNECT": wire.disconnect(first_byte=0xE1),
    "AUTH": wire.auth(0x18, [(P.AUTH_METHOD, "m")], first_byte=0xF1),
}


@pytest.mark.clause("5.0", "MQTT-2.1.3-1")
@pytest.mark.parametrize("packet", WRONG_FLAGS.values(), ids=WRONG_FLAGS.keys())
def test_wrong_fixed_header_flags_are_a_malformed_packet(connect5: Connect5, packet: bytes) -> None:
    client = connect5()
    client.send(packet)
    expect_dropped(client, 0x81)


@pytest.mark.clause("5.0", "MQTT-2.1.3-1", "MQTT-3.1.4-1")
def test_wrong_flags_in_connect_are_refused(open5: Connect5, unique: Unique) -> None:
    client = open5()
    client.send(wire.connect(unique.client(), version=5, first_byte=0x11))
    expect_refused(client, 0x81)


@pytest.mark.clause("5.0", "MQTT-2.1.3-1")
@pytest.mark.parametrize("first_byte", [0x00, 0x0F, 0x20, 0x90, 0xB0, 0xD0])
def test_a_packet_type_that_no_client_sends_is_refused(connect5: Connect5, first_byte: int) -> None:
    client = connect5()
    client.send(wire.frame(first_byte, b"\x00\x01\x00\x00"))
    expect_dropped(client, 0x81, 0x82)


@pytest.mark.clause("5.0", "MQTT-2.2.1-2", "MQTT-2.2.2-1", "MQTT-3.3.2-1", "MQTT-4.3.1-1")
def test_a_qos_0_publish_has_no_packet_identifier(connect5: Connect5) -> None:
    client = connect5()
    client.subscribe("nopid")
    # Topic, property length 0, then the payload at once; the payload looks like an identifier and must stay.
    packet = bytes.fromhex("30 0a 00 05 6e 6f 70 69 64 00 00 01")
    client.send(packet)
    client.expect(packet)


ZERO_IDENTIFIER = {
    "PUBLISH at QoS 1": wire.publish("t", qos=1, packet_id=0, version=5),
    "PUBLISH at QoS 2": wire.publish("t", qos=2, packet_id=0, version=5),
    "SUBSCRIBE": wire.subscribe(0, [("t", 0)], version=5),
    "UNSUBSCRIBE": wire.unsubscribe(0, ["t"], version=5),
}


@pytest.mark.clause("5.0", "MQTT-2.2.1-3")
@pytest.mark.parametrize("packet", ZERO_IDENTIFIER.values(), ids=ZERO_IDENTIFIER.keys())
def test_packet_identifier_zero_is_refused(connect5: Connect5, packet: bytes) -> None:
    client = connect5()
    client.send(packet)
    expect_dropped(client, 0x81, 0x82)


@pytest.mark.clause("5.0", "MQTT-2.2.1-4", "MQTT-4.3.2-1", "MQTT-4.3.3-1")
@pytest.mark.parametrize("qos", [1, 2])
def test_every_message_in_flight_has_its_own_identifier(connect5: Connect5, unique: Unique, qos: int) -> None:
    subscriber, publisher = connect5(), connect5()
    topic = unique.topic()
    subscriber.subscribe(topic, qos=qos)
    for number in range(15):
        publisher.publish(topic, str(number), qos=qos)
    identifiers = [message.packet_id for message in subscriber.messages(15, ack=False)]
    assert 0 not in identifiers
    assert len(set(identifiers)) == 15, f"expected 15 different identifiers, got {identifiers}"


@pytest.mark.clause("5.0", "MQTT-2.2.1-4")
def test_an_identifier_still_in_flight_is_not_used_again(connect5: Connect5, unique: Unique) -> None:
    """A client with a window of 2 leaves one message open while another slot is used again and again."""
    subscriber = connect5(properties=[(P.RECEIVE_MAXIMUM, 2)])
    publisher = connect5()
    topic = unique.topic()
    subscriber.subscribe(topic, qos=1)
    publisher.publish(topic, b"held", qos=1)
    held = subscriber.expect(Publish, payload=b"held").packet_id
    for number in range(50):
        publisher.publish(topic, str(number), qos=1)
    others = [message.packet_id for message in subscriber.messages(50)]
    assert held not in others


@pytest.mark.clause("5.0", "MQTT-2.2.1-5", "MQTT-4.3.2-4", "MQTT-4.3.3-8", "MQTT-4.3.3-11")
@pytest.mark.parametrize("identifier", [1, 0x1234, 0xFFFF])
def test_acknowledgements_repeat_the_identifier_of_the_publish(
    connect5: Connect5, unique: Unique, identifier: int
) -> None:
    client = connect5()
    client.send(wire.publish(unique.topic(), b"1", qos=1, packet_id=identifier, version=5))
    client.expect(PubAck, packet_id=identifier)
    client.send(wire.publish(unique.topic(), b"2", qos=2, packet_id=identifier, version=5))
    client.expect(PubRec, packet_id=identifier)
    client.send(wire.pubrel(identifier))
    client.expect(PubComp, packet_id=identifier, reason=0)


@pytest.mark.clause("5.0", "MQTT-2.2.1-5", "MQTT-4.3.3-4")
def test_pubrel_repeats_the_identifier_the_broker_published_with(connect5: Connect5, unique: Unique) -> None:
    client = connect5()
    topic = unique.topic()
    client.subscribe(topic, qos=2)
    client.publish(topic, b"1", qos=2)
    message = client.expect(Publish, qos=2)
    assert message.packet_id is not None
    client.send(wire.pubrec(message.packet_id))
    client.expect(PubRel, packet_id=message.packet_id, reason=0)


@pytest.mark.clause("5.0", "MQTT-2.2.1-6", "MQTT-2.2.2-1", "MQTT-3.8.4-1", "MQTT-3.8.4-2")
def test_suback_repeats_the_identifier(connect5: Connect5, unique: Unique) -> None:
    client = connect5()
    client.send(wire.subscribe(0xFFFE, [(unique.topic(), 1)], version=5))
    client.expect(bytes.fromhex("90 04 ff fe 00 01"))


@pytest.mark.clause("5.0", "MQTT-2.2.1-6", "MQTT-2.2.2-1", "MQTT-3.10.4-4", "MQTT-3.10.4-5")
def test_unsuback_repeats_the_identifier(connect5: Connect5, unique: Unique) -> None:
    client = connect5()
    client.subscribe(unique.topic())
    client.send(wire.unsubscribe(0xABCD, [unique.topic()], version=5))
    client.expect(bytes.fromhex("b0 04 ab cd 00 00"))


NO_PROPERTY_LENGTH = {
    "PUBLISH": bytes.fromhex("30 03 00 01 74"),
    "SUBSCRIBE": bytes.fromhex("82 02 00 01"),
    "UNSUBSCRIBE": bytes.fromhex("a2 02 00 01"),
}


@pytest.mark.clause("5.0", "MQTT-2.2.2-1")
@pytest.mark.parametrize("packet", NO_PROPERTY_LENGTH.values(), ids=NO_PROPERTY_LENGTH.keys())
def test_a_missing_property_length_is_a_malformed_packet(connect5: Connect5, packet: bytes) -> None:
    client = connect5()
    client.send(packet)
    expect_dropped(client, 0x81)
