import pytest

from holdfast.errors import MalformedPacket, ProtocolError
from holdfast.protocol.mqtt.frame import FrameBuffer, encode_frame, frame_bounds


def test_frame_is_taken_when_its_last_byte_arrives() -> None:
    buffer = FrameBuffer()
    buffer.feed(b"\x40\x02\x00")
    assert buffer.take() is None
    assert buffer.buffered() == 3
    buffer.feed(b"\x07\xc0\x00\xd0")
    assert buffer.take() == (0x40, b"\x00\x07")
    assert buffer.take() == (0xC0, b"")
    assert buffer.take() is None
    assert buffer.buffered() == 1


def test_bounds_do_not_need_the_body() -> None:
    assert frame_bounds(b"\x30\x80\x01", 0, 3) == (3, 131)
    assert frame_bounds(b"\xff\x30\x05", 1, 3) == (3, 8)
    assert frame_bounds(b"\x30", 0, 1) == (-1, -1)
    assert frame_bounds(b"\x30\x80\x80", 0, 3) == (-1, -1)


def test_fifth_length_byte_is_malformed() -> None:
    buffer = FrameBuffer()
    buffer.feed(b"\x30\xff\xff\xff\xff")
    with pytest.raises(MalformedPacket, match="more than 4 bytes"):
        buffer.take()


def test_padded_length_is_refused_only_when_strict() -> None:
    """5.0 wants the fewest bytes; 3.1.1 is silent, and small devices pad."""
    lenient = FrameBuffer()
    lenient.feed(b"\xc0\x80\x00")
    assert lenient.take() == (0xC0, b"")
    strict = FrameBuffer(strict=True)
    strict.feed(b"\xc0\x80\x00")
    with pytest.raises(MalformedPacket, match="longer than it needs"):
        strict.take()


def test_packet_over_the_maximum_is_refused_from_its_header() -> None:
    buffer = FrameBuffer(maximum=100)
    buffer.feed(b"\x30\xff\xff\xff\x7f")
    with pytest.raises(ProtocolError, match="268435460 bytes, expected no more than 100") as caught:
        buffer.take()
    assert caught.value.reason == 0x95


def test_maximum_counts_the_header() -> None:
    exact = FrameBuffer(maximum=10)
    exact.feed(b"\x30\x08" + bytes(8))
    assert exact.take() == (0x30, bytes(8))
    over = FrameBuffer(maximum=10)
    over.feed(b"\x30\x09")
    with pytest.raises(ProtocolError, match="11 bytes"):
        over.take()


def test_long_body_is_not_copied_again_with_every_piece() -> None:
    """Copying all that came so far with each of these 16,000 pieces would move 128 GB: the time limit sees that."""
    body = bytes(range(250)) * 64_000
    wire = encode_frame(0x30, body)
    buffer = FrameBuffer()
    for start in range(0, len(wire), 1_000):
        assert buffer.take() is None
        buffer.feed(wire[start : start + 1_000])
    assert buffer.take() == (0x30, body)
    assert buffer.buffered() == 0


def test_bytes_behind_a_long_body_are_the_next_frame() -> None:
    buffer = FrameBuffer()
    buffer.feed(b"\x30\x04ab")
    assert buffer.take() is None
    buffer.feed(b"cd\xc0\x00\x40")
    assert buffer.take() == (0x30, b"abcd")
    assert buffer.take() == (0xC0, b"")
    assert buffer.take() is None
    assert buffer.buffered() == 1
