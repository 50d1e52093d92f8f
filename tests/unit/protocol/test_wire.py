import pytest

from holdfast.errors import MalformedPacket, UsageError
from holdfast.protocol.wire import (
    MAX_VARINT,
    Reader,
    decode_text,
    encode_binary,
    encode_text,
    encode_u16,
    encode_u32,
    encode_varint,
)

VARINTS = [
    (0, "00"),
    (127, "7f"),
    (128, "8001"),
    (16_383, "ff7f"),
    (16_384, "808001"),
    (2_097_151, "ffff7f"),
    (2_097_152, "80808001"),
    (MAX_VARINT, "ffffff7f"),
]


@pytest.mark.parametrize(("value", "wire"), VARINTS)
def test_varint_at_each_border_of_its_length(value: int, wire: str) -> None:
    assert encode_varint(value).hex() == wire
    reader = Reader(bytes.fromhex(wire))
    assert reader.varint() == value
    assert reader.remaining() == 0


@pytest.mark.parametrize("value", [-1, MAX_VARINT + 1])
def test_varint_out_of_range_is_refused(value: int) -> None:
    with pytest.raises(UsageError, match=str(value)):
        encode_varint(value)


@pytest.mark.clause("5.0", "MQTT-1.5.5-1")
@pytest.mark.parametrize("wire", ["8000", "ff00", "808000", "80808000"])
def test_varint_with_needless_bytes_is_malformed(wire: str) -> None:
    with pytest.raises(MalformedPacket, match="longer than it needs"):
        Reader(bytes.fromhex(wire)).varint()


@pytest.mark.parametrize("wire", ["8080808001", "ffffffff7f", "80808080"])
def test_varint_of_five_bytes_is_malformed(wire: str) -> None:
    with pytest.raises(MalformedPacket, match="more than 4 bytes"):
        Reader(bytes.fromhex(wire)).varint()


def test_integers_are_big_endian() -> None:
    reader = Reader(bytes.fromhex("01 0203 04050607"))
    assert (reader.u8(), reader.u16(), reader.u32()) == (1, 0x0203, 0x04050607)
    assert encode_u16(0x0203) + encode_u32(0x04050607) == bytes.fromhex("020304050607")


@pytest.mark.parametrize("value", [-1, 65_536])
def test_u16_out_of_range_is_refused(value: int) -> None:
    with pytest.raises(UsageError, match="expected 0 to 65535"):
        encode_u16(value)


@pytest.mark.parametrize("value", [-1, 1 << 32])
def test_u32_out_of_range_is_refused(value: int) -> None:
    with pytest.raises(UsageError, match="expected 0 to 4294967295"):
        encode_u32(value)


@pytest.mark.parametrize("read", ["u8", "u16", "u32", "varint", "binary", "text", "utf8"])
def test_running_out_of_bytes_is_malformed(read: str) -> None:
    for cut in [b"", b"\x80"] if read == "varint" else [b"", b"\x00", b"\x00\x05\x01"]:
        if read == "u8" and cut:
            continue
        if read == "u16" and len(cut) > 1:
            continue
        with pytest.raises(MalformedPacket, match="early"):
            getattr(Reader(cut), read)()


def test_reader_stops_at_its_end_inside_a_larger_buffer() -> None:
    reader = Reader(b"\xff\x00\x01a\xff\xff", 1, 4)
    assert reader.text() == "a"
    assert reader.remaining() == 0
    with pytest.raises(MalformedPacket):
        reader.u8()


def test_rest_takes_what_is_left_and_finish_wants_nothing_left() -> None:
    reader = Reader(b"abc", 1)
    with pytest.raises(MalformedPacket, match="2 bytes after its end"):
        reader.finish("thing")
    assert reader.rest() == b"bc"
    reader.finish("thing")


@pytest.mark.clause("3.1.1", "MQTT-1.5.3-1")
@pytest.mark.clause("5.0", "MQTT-1.5.4-1")
@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"\xed\xa0\x80", id="surrogate U+D800"),
        pytest.param(b"\xed\xbf\xbf", id="surrogate U+DFFF"),
        pytest.param(b"\xc0\xaf", id="overlong"),
        pytest.param(b"\xe2\x82", id="cut short"),
        pytest.param(b"\xf4\x90\x80\x80", id="above U+10FFFF"),
        pytest.param(b"\x80", id="lone continuation"),
        pytest.param(b"\xff", id="never a byte of UTF-8"),
    ],
)
def test_ill_formed_utf8_is_malformed(value: bytes) -> None:
    with pytest.raises(MalformedPacket, match="UTF-8"):
        decode_text(value)
    with pytest.raises(MalformedPacket, match="UTF-8"):
        Reader(encode_binary(value)).utf8()


@pytest.mark.clause("3.1.1", "MQTT-1.5.3-2")
@pytest.mark.clause("5.0", "MQTT-1.5.4-2")
def test_nul_in_a_string_is_malformed() -> None:
    with pytest.raises(MalformedPacket, match=r"U\+0000"):
        Reader(b"\x00\x03a\x00b").text()
    with pytest.raises(UsageError, match=r"U\+0000"):
        encode_text("a\0b")


@pytest.mark.clause("3.1.1", "MQTT-1.5.3-3")
@pytest.mark.clause("5.0", "MQTT-1.5.4-3")
def test_byte_order_mark_is_kept() -> None:
    assert Reader(b"\x00\x04\xef\xbb\xbfa").text() == "\ufeffa"
    assert encode_text("\ufeffa") == b"\x00\x04\xef\xbb\xbfa"


def test_surrogate_is_not_written() -> None:
    with pytest.raises(UsageError, match="surrogate"):
        encode_text("\ud800")


def test_utf8_stays_bytes() -> None:
    assert Reader(b"\x00\x05\xc3\xa4/\xc3\xa9").utf8() == "ä/é".encode()


def test_binary_holds_at_most_65535_bytes() -> None:
    assert encode_binary(bytes(65_535))[:2] == b"\xff\xff"
    with pytest.raises(UsageError, match="65536 bytes, expected no more than 65535"):
        encode_binary(bytes(65_536))
