"""Packets as the standard's tables lay them out, byte for byte, written by hand and checked in both directions."""

import pytest

from holdfast.errors import UsageError
from holdfast.protocol.mqtt.decode import decode
from holdfast.protocol.mqtt.encode import encode, encode_auth, encode_connect
from holdfast.protocol.mqtt.frame import FrameBuffer
from holdfast.protocol.mqtt.packets import (
    PINGREQ,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    SUBACK,
    UNSUBACK,
    V5,
    V31,
    V311,
    Ack,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    Ping,
    Publish,
    SubAck,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
    Will,
)
from holdfast.protocol.mqtt.properties import Properties
from packet_strategies import plain


def with_fields(**fields: object) -> Properties:
    properties = Properties()
    for name, value in fields.items():
        setattr(properties, name, value)
    return properties


VECTORS: list[tuple[str, int, Packet, str]] = [
    # CONNECT
    ("connect 3.1", V31, Connect("c", V31, True, 60), "10 0f 0006 4d5149736470 03 02 003c 0001 63"),
    ("connect 3.1.1", V311, Connect("c", V311, True, 60), "10 0d 0004 4d515454 04 02 003c 0001 63"),
    ("connect 5", V5, Connect("c", V5, False, 10), "10 0e 0004 4d515454 05 00 000a 00 0001 63"),
    (
        "connect 3.1.1 with everything",
        V311,
        Connect("c", V311, False, 0, Will(b"w", b"x", 2, True, None), "u", b"p"),
        "10 19 0004 4d515454 04 f4 0000 0001 63 0001 77 0001 78 0001 75 0001 70",
    ),
    (
        "connect 5 with will properties",
        V5,
        Connect(
            "c",
            V5,
            True,
            60,
            Will(b"w", b"x", 1, False, with_fields(will_delay=5, payload_format=1)),
            None,
            b"p",
            with_fields(session_expiry=16, receive_maximum=20),
        ),
        "10 27 0004 4d515454 05 4e 003c 08 11 00000010 21 0014 0001 63 07 18 00000005 01 01 0001 77 0001 78 0001 70",
    ),
    # CONNACK
    ("connack 3.1.1 refused", V311, ConnAck(False, 5), "20 02 00 05"),
    ("connack 5 resumed", V5, ConnAck(True, 0), "20 03 01 00 00"),
    (
        "connack 5 with properties",
        V5,
        ConnAck(False, 0, with_fields(assigned_client_id="z", server_keep_alive=9, maximum_qos=1)),
        "20 0c 00 00 09 12 0001 7a 13 0009 24 01",
    ),
    # PUBLISH
    ("publish QoS 0", V311, Publish(b"a/b", b"hi"), "30 07 0003 612f62 6869"),
    ("publish empty retained", V311, Publish(b"a", b"", retain=True), "31 03 0001 61"),
    ("publish QoS 1", V311, Publish(b"a", b"x", 1, packet_id=10), "32 06 0001 61 000a 78"),
    ("publish QoS 2 again", V311, Publish(b"a", b"x", 2, True, True, 0x1234), "3d 06 0001 61 1234 78"),
    ("publish 5 without properties", V5, Publish(b"a", b"x"), "30 05 0001 61 00 78"),
    (
        "publish 5 by alias",
        V5,
        Publish(b"", b"x", 1, packet_id=1, properties=with_fields(topic_alias=2)),
        "32 09 0000 0001 03 23 0002 78",
    ),
    (
        "publish 5 with properties",
        V5,
        Publish(
            b"a",
            b"x",
            properties=with_fields(
                message_expiry=60,
                payload_format=1,
                content_type="t",
                response_topic=b"r",
                correlation_data=b"\x00\x01",
                user_properties=[("k", "v"), ("k", "w")],
            ),
        ),
        "30 27 0001 61 22 02 0000003c 01 01 03 0001 74 08 0001 72 09 0002 0001"
        " 26 0001 6b 0001 76 26 0001 6b 0001 77 78",
    ),
    # acknowledgements of PUBLISH
    ("puback 3.1.1", V311, Ack(PUBACK, 0x0102), "40 02 0102"),
    ("pubrec 3.1.1", V311, Ack(PUBREC, 1), "50 02 0001"),
    ("pubrel 3.1.1", V311, Ack(PUBREL, 1), "62 02 0001"),
    ("pubcomp 3.1.1", V311, Ack(PUBCOMP, 1), "70 02 0001"),
    ("puback 5 success", V5, Ack(PUBACK, 1), "40 02 0001"),
    ("puback 5 no matching subscribers", V5, Ack(PUBACK, 1, 0x10), "40 03 0001 10"),
    ("pubrel 5 not found", V5, Ack(PUBREL, 1, 0x92), "62 03 0001 92"),
    (
        "pubrec 5 with reason string",
        V5,
        Ack(PUBREC, 1, 0x97, with_fields(reason_string="no")),
        "50 09 0001 97 05 1f 0002 6e6f",
    ),
    # SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK
    (
        "subscribe 3.1.1",
        V311,
        Subscribe(10, [SubscriptionRequest(b"a/b", 1), SubscriptionRequest(b"c/d", 2)]),
        "82 0e 000a 0003 612f62 01 0003 632f64 02",
    ),
    (
        "subscribe 5 with every option",
        V5,
        Subscribe(1, [SubscriptionRequest(b"#", 2, True, True, 2)], with_fields(subscription_ids=[200])),
        "82 0a 0001 03 0b c801 0001 23 2e",
    ),
    ("suback 3.1.1", V311, SubAck(SUBACK, 10, [0, 1, 2, 0x80]), "90 06 000a 00 01 02 80"),
    ("suback 5", V5, SubAck(SUBACK, 10, [1, 0x8F]), "90 05 000a 00 01 8f"),
    ("unsubscribe 3.1.1", V311, Unsubscribe(2, [b"a", b"b"]), "a2 08 0002 0001 61 0001 62"),
    ("unsubscribe 5", V5, Unsubscribe(2, [b"a"]), "a2 06 0002 00 0001 61"),
    ("unsuback 3.1.1", V311, SubAck(UNSUBACK, 2, []), "b0 02 0002"),
    ("unsuback 5", V5, SubAck(UNSUBACK, 2, [0, 0x11]), "b0 05 0002 00 00 11"),
    # the rest
    ("pingreq", V311, Ping(PINGREQ), "c0 00"),
    ("pingresp", V5, Ping(PINGRESP), "d0 00"),
    ("disconnect 3.1.1", V311, Disconnect(), "e0 00"),
    ("disconnect 5 normal", V5, Disconnect(), "e0 00"),
    ("disconnect 5 with will", V5, Disconnect(4), "e0 01 04"),
    ("disconnect 5 with expiry", V5, Disconnect(0, with_fields(session_expiry=1)), "e0 07 00 05 11 00000001"),
    ("auth success", V5, Auth(), "f0 00"),
    (
        "auth continue",
        V5,
        Auth(0x18, with_fields(auth_method="M", auth_data=b"\xff")),
        "f0 0a 18 08 15 0001 4d 16 0001 ff",
    ),
]


def from_server(packet: Packet) -> bool:
    return packet.kind in (2, 9, 11)


@pytest.mark.parametrize(("version", "packet", "wire"), [row[1:] for row in VECTORS], ids=[row[0] for row in VECTORS])
def test_packet_is_exactly_these_bytes(version: int, packet: Packet, wire: str) -> None:
    expected = bytes.fromhex(wire)
    assert encode(packet, version).hex(" ") == expected.hex(" ")
    buffer = FrameBuffer()
    buffer.feed(expected)
    frame = buffer.take()
    assert frame is not None
    first_byte, body = frame
    assert buffer.buffered() == 0
    assert plain(decode(first_byte, body, version, from_server(packet))) == plain(packet)


@pytest.mark.parametrize(
    ("wire", "packet"),
    [
        pytest.param("40 04 0001 00 00", Ack(PUBACK, 1), id="puback with empty properties"),
        pytest.param("40 03 0001 00", Ack(PUBACK, 1), id="puback with reason 0"),
        pytest.param("e0 02 00 00", Disconnect(), id="disconnect with empty properties"),
        pytest.param("e0 01 00", Disconnect(), id="disconnect with reason 0"),
    ],
)
def test_long_form_of_success_means_the_short_one(wire: str, packet: Packet) -> None:
    raw = bytes.fromhex(wire)
    assert plain(decode(raw[0], raw[2:], V5)) == plain(packet)


def test_mqtt_31_connect_may_lack_the_fields_its_flags_announce() -> None:
    """In 3.1 the packet's length outranks the user name and password flags."""
    raw = bytes.fromhex("0006 4d5149736470 03 c2 003c 0001 63")
    packet = decode(0x10, raw, V31)
    assert isinstance(packet, Connect)
    assert (packet.client_id, packet.username, packet.password) == ("c", None, None)


def test_mqtt_31_repeats_carry_dup() -> None:
    pubrel = decode(0x6A, b"\x00\x01", V31)
    assert isinstance(pubrel, Ack)
    assert pubrel.packet_id == 1
    subscribe = decode(0x8A, bytes.fromhex("0001 0001 61 00"), V31)
    assert isinstance(subscribe, Subscribe)
    assert subscribe.requests[0].topic_filter == b"a"


def test_older_versions_leave_out_what_they_cannot_say() -> None:
    properties = with_fields(reason_string="no", session_expiry=1)
    assert encode(Ack(PUBACK, 1, 0x87, properties), V311) == bytes.fromhex("40 02 0001")
    assert encode(Disconnect(0x8B, properties), V311) == bytes.fromhex("e0 00")
    options = SubscriptionRequest(b"a", 1, True, True, 2)
    assert encode(Subscribe(1, [options]), V311) == bytes.fromhex("82 06 0001 0001 61 01")


def test_what_a_version_lacks_cannot_be_encoded() -> None:
    with pytest.raises(UsageError, match=r"MQTT 5\.0"):
        encode_auth(Auth(0x18), V311)
    with pytest.raises(UsageError, match="password without a user name"):
        encode_connect(Connect("c", V311, True, 60, password=b"p"))
    with pytest.raises(UsageError, match="packet type 0"):
        encode(Packet(0), V5)
