"""Bytes from anywhere: decoding answers with a packet or a ProtocolError, never with anything else."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.errors import ProtocolError
from holdfast.protocol.mqtt.decode import decode
from holdfast.protocol.mqtt.encode import encode
from holdfast.protocol.mqtt.frame import FrameBuffer
from holdfast.protocol.mqtt.packets import Packet
from packet_strategies import VERSIONS, packets, plain

versions = st.sampled_from(VERSIONS)


def decode_or_refuse(first_byte: int, body: bytes, version: int, from_server: bool) -> Packet | None:
    """The packet, or `None` when it was refused as the protocol wants it."""
    try:
        return decode(first_byte, body, version, from_server)
    except ProtocolError as error:
        refusal = error
    assert 0x80 <= refusal.reason <= 0xFF
    assert str(refusal)
    return None


@given(first_byte=st.integers(0, 255), body=st.binary(max_size=120), version=versions, from_server=st.booleans())
@example(first_byte=0x10, body=b"", version=4, from_server=False)
def test_noise_is_a_packet_or_a_protocol_error(first_byte: int, body: bytes, version: int, from_server: bool) -> None:
    packet = decode_or_refuse(first_byte, body, version, from_server)
    assert packet is None or packet.kind == first_byte >> 4


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
def test_mutated_packet_is_a_packet_or_a_protocol_error(version: int, data: st.DataObject) -> None:
    """What still decodes after a change means something: it encodes again and reads back the same."""
    from_server = data.draw(st.booleans())
    buffer = FrameBuffer()
    buffer.feed(encode(data.draw(packets(version, from_server)), version))
    frame = buffer.take()
    assert frame is not None
    first_byte, body = frame
    mutated = bytearray(body)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(mutated)))
        change = data.draw(st.sampled_from(("flip", "cut", "insert")))
        if change == "insert":
            mutated[place:place] = data.draw(st.binary(min_size=1, max_size=3))
        elif change == "cut":
            del mutated[place : place + data.draw(st.integers(1, 4))]
        elif place < len(mutated):
            mutated[place] ^= data.draw(st.integers(1, 255))
    packet = decode_or_refuse(first_byte, bytes(mutated), version, from_server)
    if packet is not None:
        spoken = getattr(packet, "version", version)  # a flipped bit may have made it a CONNECT of another version
        buffer.feed(encode(packet, spoken))
        again = buffer.take()
        assert again is not None
        assert plain(decode(again[0], again[1], spoken, from_server)) == plain(packet)


@given(stream=st.binary(max_size=400), version=versions)
def test_noise_through_frames_is_packets_or_a_protocol_error(stream: bytes, version: int) -> None:
    buffer = FrameBuffer(maximum=300)
    buffer.feed(stream)
    reason = None
    try:
        while (frame := buffer.take()) is not None:
            decode_or_refuse(frame[0], frame[1], version, False)
    except ProtocolError as error:
        reason = error.reason
    assert reason in (None, 0x81, 0x95)
