"""Every packet survives encoding and decoding in every version that has it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.protocol.mqtt.decode import decode
from holdfast.protocol.mqtt.encode import encode
from holdfast.protocol.mqtt.frame import FrameBuffer
from holdfast.protocol.mqtt.packets import V5, Publish
from packet_strategies import VERSIONS, packets, plain, publishes

SIDES = [pytest.param(False, id="client"), pytest.param(True, id="server")]


@pytest.mark.parametrize("from_server", SIDES)
@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
def test_packet_round_trips(version: int, from_server: bool, data: st.DataObject) -> None:
    packet = data.draw(packets(version, from_server))
    buffer = FrameBuffer(strict=True)
    buffer.feed(encode(packet, version))
    frame = buffer.take()
    assert frame is not None
    assert buffer.take() is None
    assert buffer.buffered() == 0
    assert plain(decode(frame[0], frame[1], version, from_server)) == plain(packet)


@given(packet=publishes(V5, from_server=True))
def test_decoded_publish_encodes_to_the_bytes_it_came_from(packet: Publish) -> None:
    """`forward` stands in for the fields it holds, so nothing is written twice and nothing is lost."""
    wire = encode(packet, V5)
    buffer = FrameBuffer()
    buffer.feed(wire)
    frame = buffer.take()
    assert frame is not None
    decoded = decode(frame[0], frame[1], V5, from_server=True)
    again = encode(decoded, V5)
    buffer.feed(again)
    frame = buffer.take()
    assert frame is not None
    assert len(again) == len(wire)
    assert plain(decode(frame[0], frame[1], V5, from_server=True)) == plain(packet)
