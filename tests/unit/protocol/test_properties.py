from typing import Any

import pytest

from holdfast.errors import MalformedPacket, ProtocolError
from holdfast.protocol.mqtt.packets import (
    AUTH,
    CONNACK,
    CONNECT,
    DISCONNECT,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
)
from holdfast.protocol.mqtt.properties import WILL, Properties, decode_properties, encode_properties
from holdfast.protocol.wire import Reader, encode_varint
from packet_strategies import plain

ACKS = {PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK}
MESSAGES = {PUBLISH, WILL}
EVERY_PACKET = {CONNECT, CONNACK, SUBSCRIBE, UNSUBSCRIBE, DISCONNECT, AUTH} | ACKS | MESSAGES

# Table 2-4 of the standard: identifier, a valid value on the wire, the field and its value, where it may stand.
TABLE = [
    ("01 01", "payload_format", 1, MESSAGES),
    ("02 00000001", "message_expiry", 1, MESSAGES),
    ("03 0001 74", "content_type", "t", MESSAGES),
    ("08 0001 72", "response_topic", b"r", MESSAGES),
    ("09 0001 ff", "correlation_data", b"\xff", MESSAGES),
    ("0b 01", "subscription_ids", [1], {PUBLISH, SUBSCRIBE}),
    ("11 00000001", "session_expiry", 1, {CONNECT, CONNACK, DISCONNECT}),
    ("12 0001 63", "assigned_client_id", "c", {CONNACK}),
    ("13 0001", "server_keep_alive", 1, {CONNACK}),
    ("15 0001 6d", "auth_method", "m", {CONNECT, CONNACK, AUTH}),
    ("17 01", "request_problem_info", 1, {CONNECT}),
    ("18 00000001", "will_delay", 1, {WILL}),
    ("19 01", "request_response_info", 1, {CONNECT}),
    ("1a 0001 69", "response_info", "i", {CONNACK}),
    ("1c 0001 73", "server_reference", "s", {CONNACK, DISCONNECT}),
    ("1f 0001 72", "reason_string", "r", {CONNACK, DISCONNECT, AUTH} | ACKS),
    ("21 0001", "receive_maximum", 1, {CONNECT, CONNACK}),
    ("22 0001", "topic_alias_maximum", 1, {CONNECT, CONNACK}),
    ("23 0001", "topic_alias", 1, {PUBLISH}),
    ("24 01", "maximum_qos", 1, {CONNACK}),
    ("25 00", "retain_available", 0, {CONNACK}),
    ("26 0001 6b 0001 76", "user_properties", [("k", "v")], EVERY_PACKET),
    ("27 00000001", "maximum_packet_size", 1, {CONNECT, CONNACK}),
    ("28 00", "wildcard_available", 0, {CONNACK}),
    ("29 00", "subscription_id_available", 0, {CONNACK}),
    ("2a 00", "shared_available", 0, {CONNACK}),
]
ROWS = pytest.mark.parametrize(("wire", "field", "value", "where"), TABLE, ids=[row[1] for row in TABLE])
MANY = {"user_properties"}


def read(block: bytes, kind: int) -> Properties:
    reader = Reader(encode_varint(len(block)) + block)
    properties = decode_properties(reader, kind)
    assert reader.remaining() == 0
    assert properties is not None
    return properties


@ROWS
def test_property_stands_where_the_standard_puts_it(wire: str, field: str, value: Any, where: set[int]) -> None:
    for kind in EVERY_PACKET:
        if kind in where:
            assert getattr(read(bytes.fromhex(wire), kind), field) == value
        else:
            with pytest.raises(MalformedPacket, match="does not belong"):
                read(bytes.fromhex(wire), kind)


@ROWS
def test_property_is_written_as_it_is_read(wire: str, field: str, value: Any, where: set[int]) -> None:
    properties = Properties()
    setattr(properties, field, value)
    block = bytes.fromhex(wire)
    assert encode_properties(properties) == encode_varint(len(block)) + block


@ROWS
def test_property_stands_once(wire: str, field: str, value: Any, where: set[int]) -> None:
    for kind in where:
        twice = bytes.fromhex(wire) * 2
        if field in MANY or (field == "subscription_ids" and kind == PUBLISH):
            assert getattr(read(twice, kind), field) == value * 2
        else:
            with pytest.raises(ProtocolError, match="twice") as caught:
                read(twice, kind)
            assert caught.value.reason == 0x82


@pytest.mark.parametrize(
    ("wire", "kind", "reason"),
    [
        pytest.param("01 02", PUBLISH, 0x82, id="payload format 2"),
        pytest.param("17 02", CONNECT, 0x82, id="request problem information 2"),
        pytest.param("19 02", CONNECT, 0x82, id="request response information 2"),
        pytest.param("24 02", CONNACK, 0x82, id="maximum QoS 2"),
        pytest.param("25 02", CONNACK, 0x82, id="retain available 2"),
        pytest.param("21 0000", CONNECT, 0x82, id="receive maximum 0"),
        pytest.param("27 00000000", CONNECT, 0x82, id="maximum packet size 0"),
        pytest.param("0b 00", SUBSCRIBE, 0x82, id="subscription identifier 0"),
        pytest.param("23 0000", PUBLISH, 0x94, id="topic alias 0"),
        pytest.param("08 0002 612b", PUBLISH, 0x82, id="response topic with +"),
        pytest.param("08 0001 23", WILL, 0x82, id="response topic #"),
        pytest.param("16 0000", CONNECT, 0x82, id="authentication data without method"),
        pytest.param("03 0001 ff", PUBLISH, 0x81, id="content type not UTF-8"),
        pytest.param("26 0001 6b 0001 ff", PUBLISH, 0x81, id="user property value not UTF-8"),
        pytest.param("26 0001 ff 0001 6b", CONNECT, 0x81, id="user property name not UTF-8"),
        pytest.param("26 0001 6b", PUBLISH, 0x81, id="user property without value"),
        pytest.param("02 0000", PUBLISH, 0x81, id="value cut short"),
        pytest.param("00", PUBLISH, 0x81, id="identifier 0"),
        pytest.param("7f 00", PUBLISH, 0x81, id="unknown identifier"),
        pytest.param("8101 00", PUBLISH, 0x81, id="unknown identifier of two bytes"),
        pytest.param("8100 00", PUBLISH, 0x81, id="identifier with needless byte"),
    ],
)
def test_value_is_refused_with_its_reason(wire: str, kind: int, reason: int) -> None:
    with pytest.raises(ProtocolError) as caught:
        read(bytes.fromhex(wire), kind)
    assert caught.value.reason == reason


def test_value_may_not_run_past_the_block_into_the_packet() -> None:
    with pytest.raises(MalformedPacket):
        decode_properties(Reader(bytes.fromhex("03 02 0000 0001")), PUBLISH)


def test_block_may_not_run_past_the_packet() -> None:
    with pytest.raises(MalformedPacket, match="property length is 5, but only 2"):
        decode_properties(Reader(b"\x05\x01\x01"), PUBLISH)


def test_reader_stands_behind_the_block_and_sees_the_whole_packet_again() -> None:
    reader = Reader(b"\x02\x01\x01payload")
    decode_properties(reader, PUBLISH)
    assert reader.rest() == b"payload"


@pytest.mark.clause("5.0", "MQTT-2.2.2-1")
def test_no_properties_are_one_zero_byte() -> None:
    assert encode_properties(None) == b"\x00"
    assert encode_properties(Properties()) == b"\x00"
    assert decode_properties(Reader(b"\x00"), PUBLISH) is None


@pytest.mark.parametrize("kind", [PUBLISH, WILL])
@pytest.mark.clause("5.0", "MQTT-3.3.2-18", "MQTT-3.1.3-10")
def test_forward_keeps_what_is_passed_on_as_it_came(kind: int) -> None:
    """In between stand properties that a server consumes; order and bytes of the others stay."""
    consumed = "18 00000009" if kind == WILL else "23 0007"
    block = bytes.fromhex(
        f"26 0001 62 0001 31  02 0000003c  03 0001 74  26 0001 61 0001 32  {consumed}  09 0001 00  01 01  08 0001 72"
    )
    properties = read(block, kind)
    assert properties.forward == bytes.fromhex(
        "26 0001 62 0001 31  03 0001 74  26 0001 61 0001 32  09 0001 00  01 01  08 0001 72"
    )
    assert properties.user_properties == [("b", "1"), ("a", "2")]
    assert (properties.message_expiry, properties.content_type) == (60, "t")


def test_forward_is_written_in_place_of_its_fields() -> None:
    block = bytes.fromhex("26 0001 62 0001 31 03 0001 74 26 0001 61 0001 32")
    properties = read(block, PUBLISH)
    properties.message_expiry = 1
    assert encode_properties(properties) == bytes([5 + len(block)]) + bytes.fromhex("02 00000001") + block
    properties.forward = b""
    properties.content_type = "new"
    changed = read(encode_properties(properties)[1:], PUBLISH)
    assert plain(changed) == plain(properties)


def test_only_messages_have_something_to_forward() -> None:
    assert read(bytes.fromhex("26 0001 6b 0001 76"), CONNECT).forward == b""
    assert read(bytes.fromhex("02 00000001"), PUBLISH).forward == b""


def test_user_property_by_name() -> None:
    properties = Properties()
    assert properties.user_property("k") is None
    properties.user_properties = [("k", "first"), ("k", "second")]
    assert properties.user_property("k") == "first"
    assert properties.user_property("other") is None
