"""However a stream of bytes is cut, the same packets come out."""

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.protocol.mqtt.encode import encode
from holdfast.protocol.mqtt.frame import FrameBuffer
from packet_strategies import VERSIONS, packets


def frames_of(chunks: Iterable[bytes]) -> tuple[list[tuple[int, bytes]], int]:
    buffer = FrameBuffer()
    frames = []
    for chunk in chunks:
        buffer.feed(chunk)
        while (frame := buffer.take()) is not None:
            frames.append(frame)
    return frames, buffer.buffered()


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(places), len(stream)]
    return [stream[start:stop] for start, stop in pairwise(edges)]


@st.composite
def streams(draw: st.DrawFn, version: int) -> bytes:
    return b"".join(encode(packet, version) for packet in draw(st.lists(packets(version), min_size=1, max_size=6)))


@pytest.mark.parametrize("version", VERSIONS)
@given(data=st.data())
def test_any_split_yields_the_same_packets(version: int, data: st.DataObject) -> None:
    stream = data.draw(streams(version))
    whole = frames_of([stream])
    assert whole[1] == 0
    places = data.draw(st.lists(st.integers(0, len(stream)), max_size=12))
    assert frames_of(cut(stream, places)) == whole
    assert frames_of([stream[at : at + 1] for at in range(len(stream))]) == whole


@given(data=st.data())
def test_trailing_bytes_wait_for_their_packet(data: st.DataObject) -> None:
    stream = data.draw(streams(4))
    tail = data.draw(streams(4))
    kept = data.draw(st.integers(0, 1))
    frames, waiting = frames_of([stream + tail[:kept]])
    assert frames == frames_of([stream])[0]
    assert waiting == kept


@given(stream=st.binary(max_size=300), places=st.lists(st.integers(0, 300), max_size=8))
def test_any_split_of_noise_ends_the_same_way(stream: bytes, places: list[int]) -> None:
    def outcome(chunks: Iterable[bytes]) -> tuple[object, ...]:
        buffer = FrameBuffer(maximum=200, strict=True)
        frames = []
        for chunk in chunks:
            buffer.feed(chunk)
            try:
                while (frame := buffer.take()) is not None:
                    frames.append(frame)
            except Exception as error:
                return frames, type(error), str(error)
        return frames, buffer.buffered()

    assert outcome(cut(stream, [place for place in places if place <= len(stream)])) == outcome([stream])
