"""MQTT-SN packets as the tables of both versions lay them out, byte for byte, in both directions."""

from collections.abc import Sequence

import pytest

from holdfast.errors import MalformedPacket, ProtocolError, UsageError
from holdfast.protocol.sn import detect, v2_decode, v2_encode, v12
from holdfast.protocol.sn import packets as sn
from holdfast.protocol.sn.frame import Envelope, frame
from holdfast.protocol.sn.v2_types import ALLOWED_REASONS, is_allowed
from packet_strategies import plain
from sn_strategies import filled

VECTORS_12 = [
    ("advertise", sn.Advertise(5, 900), "05 00 05 03 84"),
    ("searchgw", sn.SearchGateway(1), "03 01 01"),
    ("gwinfo", sn.GatewayInfo(5), "03 02 05"),
    ("connect", sn.Connect("c1", 1, True, 60), "08 04 04 01 00 3C 63 31"),
    ("connack", sn.ConnAck(0), "03 05 00"),
    ("willtopicreq", sn.Bare(sn.WILL_TOPIC_REQUEST), "02 06"),
    ("willtopic", sn.WillTopic(b"w", 1, True), "04 07 30 77"),
    ("willtopic, empty", sn.WillTopic(b""), "02 07"),
    ("willmsgreq", sn.Bare(sn.WILL_MESSAGE_REQUEST), "02 08"),
    ("willmsg", sn.WillMessage(b"dead"), "06 09 64 65 61 64"),
    ("register", sn.Register(0, 1, b"a/b"), "09 0A 00 00 00 01 61 2F 62"),
    ("regack", sn.RegAck(1, 1, 0), "07 0B 00 01 00 01 00"),
    ("publish", sn.Publish(sn.NORMAL, 1, b"", b"on", 1, True, False, 2), "09 0C 30 00 01 00 02 6F 6E"),
    ("publish, short, QoS -1", sn.Publish(sn.SHORT, 0x6162, b"ab", b"on", -1, True), "09 0C 72 61 62 00 00 6F 6E"),
    ("puback", sn.Ack(sn.PUBACK, 2, 0, 1), "07 0D 00 01 00 02 00"),
    ("pubcomp", sn.Ack(sn.PUBCOMP, 2), "04 0E 00 02"),
    ("pubrec", sn.Ack(sn.PUBREC, 2), "04 0F 00 02"),
    ("pubrel", sn.Ack(sn.PUBREL, 2), "04 10 00 02"),
    ("subscribe", sn.Subscribe(3, sn.NORMAL, 0, b"a/b", 1), "08 12 20 00 03 61 2F 62"),
    ("suback", sn.SubAck(3, sn.NORMAL, 1, 0, 1), "08 13 20 00 01 00 03 00"),
    ("unsubscribe", sn.Unsubscribe(3, sn.PREDEFINED, 7, b""), "07 14 01 00 03 00 07"),
    ("unsuback", sn.Ack(sn.UNSUBACK, 3), "04 15 00 03"),
    ("pingreq", sn.PingRequest(0, "c1"), "04 16 63 31"),
    ("pingresp", sn.PingResponse(), "02 17"),
    ("disconnect", sn.Disconnect(), "02 18"),
    ("sleep", sn.Disconnect(300), "04 18 01 2C"),
    ("willtopicupd", sn.WillTopic(b"w", 2, False, True), "04 1A 40 77"),
    ("willtopicresp", sn.WillResponse(True, 0), "03 1B 00"),
    ("willmsgupd", sn.WillMessage(b"x", True), "03 1C 78"),
    ("willmsgresp", sn.WillResponse(False, 3), "03 1D 03"),
]

VECTORS_2 = [
    (
        "connect",
        filled(sn.Connect("c1", 2, True, 60), packet_id=1),
        "0C 01 01 00 01 02 00 3C 00 00 63 31",
    ),
    (
        "connect with a will",
        filled(sn.Connect("c1", 2, True, 60), packet_id=1, will=sn.Will(sn.NAME, 0, b"w/1", b"dead", 1, True)),
        "18 01 03 17 00 01 02 00 3C 00 00 00 03 77 2F 31 00 04 64 65 61 64 63 31",
    ),
    (
        "connect with expiry and packet size",
        filled(sn.Connect("c1", 2, False, 60), packet_id=1, takes_suggestions=True, max_packet_size=256, expiry_s=3600),
        "10 01 48 00 01 02 00 3C 01 00 00 00 0E 10 63 31",
    ),
    ("connack", sn.ConnAck(0, 1), "06 02 00 00 01 00"),
    ("publish by alias", sn.Publish(sn.NORMAL, 1, b"", b"on", 0, True), "07 03 10 00 01 6F 6E"),
    (
        "publish by name",
        sn.Publish(sn.NAME, 0, b"a/b", b"on", 1, True, False, 5),
        "0C 03 33 00 05 00 03 61 2F 62 6F 6E",
    ),
    ("puback", sn.Ack(sn.PUBACK, 5), "05 04 00 05 00"),
    ("subscribe", sn.Subscribe(2, sn.NAME, 0, b"a/b", 1), "08 08 23 00 02 61 2F 62"),
    ("suback", sn.SubAck(2, sn.NORMAL, 1, 1, 1), "08 09 04 00 02 00 01 01"),
    ("suback, wildcard", sn.SubAck(3, sn.PREDEFINED, sn.NONE, 1, 1), "06 09 01 00 03 01"),
    ("pingreq", sn.PingRequest(9), "04 0C 00 09"),
    ("pingresp", sn.PingResponse(9, 0), "05 0D 00 09 00"),
    ("disconnect", sn.Disconnect(), "03 0E 00"),
    ("disconnect with will", sn.Disconnect(reason=4), "04 0E 04 04"),
    ("no connection", sn.Disconnect(reason=0xF4, packet_id=0x1234), "06 0E 05 12 34 F4"),
    ("register", sn.Register(sn.NONE, 4, b"x/y"), "08 10 00 00 04 78 2F 79"),
    ("register of the server", sn.Register(2, 3, b"x/y"), "0A 10 01 00 03 00 02 78 2F 79"),
    ("regack", sn.RegAck(2, 4, 0), "08 11 04 00 04 00 02 00"),
    ("regack, predefined", sn.RegAck(7, 4, 0x1A, sn.PREDEFINED), "08 11 05 00 04 00 07 1A"),
    ("regack of a client", sn.RegAck(sn.NONE, 3, 0), "06 11 00 00 03 00"),
    ("pubwos", sn.PublishWithoutSession(sn.NAME, 0, b"a/b", b"on", True), "0A 12 13 00 03 61 2F 62 6F 6E"),
    ("pubwos, delete", sn.PublishWithoutSession(sn.PREDEFINED, 7, b"", b"", True), "05 12 11 00 07"),
    ("sleepreq", sn.SleepRequest(10, 300, True), "09 13 01 00 0A 00 00 01 2C"),
    ("sleepresp", sn.SleepResponse(10), "06 14 00 00 0A 00"),
    ("wakeup", sn.Bare(sn.WAKE_UP), "02 15"),
    ("advertise", sn.Advertise(5, 900), "05 16 05 03 84"),
    ("searchgw", sn.SearchGateway(), "02 17"),
    ("gwinfo", sn.GatewayInfo(5), "03 18 05"),
]


def table(vectors: Sequence[tuple[str, sn.Packet, str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("packet", "data"), [pytest.param(packet, bytes.fromhex(data), id=name) for name, packet, data in vectors]
    )


@table(VECTORS_12)
def test_packet_of_1_2_has_these_bytes(packet: sn.Packet, data: bytes) -> None:
    assert v12.encode(packet) == data
    assert plain(v12.decode(data)) == plain(packet)


@table(VECTORS_2)
def test_packet_of_2_0_has_these_bytes(packet: sn.Packet, data: bytes) -> None:
    assert v2_encode.encode(packet) == data
    assert plain(v2_decode.decode(data)) == plain(packet)


def test_a_large_packet_has_the_long_length() -> None:
    packet = sn.Publish(sn.NORMAL, 1, b"", b"x" * 300)
    assert v12.encode(packet)[:4] == bytes.fromhex("01 01 35 0C")
    assert v2_encode.encode(packet)[:4] == bytes.fromhex("01 01 33 03")


@pytest.mark.parametrize("size", [253, 254])
def test_the_long_length_begins_at_256_bytes(size: int) -> None:
    encoded = frame(0x0C, b"x" * size)
    assert len(encoded) == (255 if size == 253 else 258)


def test_a_packet_that_no_length_can_hold_is_not_made() -> None:
    with pytest.raises(UsageError, match="65540 bytes, expected no more than 65535"):
        frame(0x0C, b"x" * 65536)


@pytest.mark.parametrize("data", ["", "01", "02", "03 18", "04 18 00", "05 0C 00 00 00 00", "01 00 05 18"])
def test_a_datagram_that_is_not_one_packet_is_malformed(data: str) -> None:
    for decode in (v12.decode, v2_decode.decode):
        with pytest.raises(MalformedPacket):
            decode(bytes.fromhex(data))


def test_types_that_a_version_does_not_have_are_refused() -> None:
    for kind in (0x03, 0x11, 0x19, 0x1E, 0xFD):
        with pytest.raises(ProtocolError, match=f"0x{kind:02X}"):
            v12.decode(frame(kind, b""))
    for kind in (0x00, 0x19, 0xFB, 0xFD):
        with pytest.raises(ProtocolError, match=f"0x{kind:02X}"):
            v2_decode.decode(frame(kind, b""))


def test_a_version_does_not_encode_what_it_does_not_have() -> None:
    with pytest.raises(UsageError, match="SleepRequest"):
        v12.encode(sn.SleepRequest(1, 1, True))
    with pytest.raises(UsageError, match="WillTopic"):
        v2_encode.encode(sn.WillTopic(b"w"))


def test_envelopes_wrap_as_their_version_does() -> None:
    assert (
        Envelope(1, bytes.fromhex("05 FE 00 AA BB"), b"\xaa\xbb").wrap(b"\x02\x16").hex(" ") == "05 fe 00 aa bb 02 16"
    )
    assert Envelope(2, b"", b"\xaa\xbb").wrap(bytes.fromhex("04 0C 00 09")).hex(" ") == "09 fc 02 aa bb 04 0c 00 09"


@pytest.mark.parametrize(
    ("data", "found"),
    [
        ("08 04 04 01 00 3C 63 31", detect.CONNECT_12),
        ("01 00 0A 04 04 01 00 3C 63 31", detect.CONNECT_12),
        ("0C 01 01 00 01 02 00 3C 00 00 63 31", detect.CONNECT_2),
        ("01 00 0E 01 01 00 01 02 00 3C 00 00 63 31", detect.CONNECT_2),
        ("18 01 03 17 00 01 02 00 3C 00 00 00 03 77 2F 31 00 04 64 65 61 64 63 31", detect.CONNECT_2),
        ("05 04 00 05 00", detect.DROP),
        ("03 01 00", detect.DROP),
        ("02 17", detect.DROP),
    ],
)
def test_connect_is_recognised_from_a_peer_of_the_other_version(data: str, found: int) -> None:
    assert detect.is_connect(bytes.fromhex(data)) == found


def test_reasons_are_those_of_the_tables() -> None:
    assert is_allowed(0x04, 0xF0)
    assert not is_allowed(0x04, 0x97)
    assert all(is_allowed(kind, 0xE6) for kind in ALLOWED_REASONS)
