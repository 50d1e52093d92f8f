"""Frames: the fixed header, and cutting a stream of bytes into whole packets.

A frame that announces more than the maximum is refused when its header is read, before any of its body is kept.
"""

from typing import Final, final

from holdfast.errors import MalformedPacket, ProtocolError
from holdfast.protocol.wire import BYTE, encode_varint

NO_LIMIT: Final = 268_435_460  # the largest packet there can be: a five byte header and 256 MiB - 1


def frame_bounds(data: bytes, position: int, end: int, strict: bool = False) -> tuple[int, int]:
    """Where the body of the frame at `position` begins and ends; (-1, -1) while its header is incomplete.

    The body itself need not be there yet. `strict` refuses a length written with more bytes than needed: a rule of 5.0
    [5: MQTT-1.5.5-1] that 3.1.1 does not have, and small devices do send padded lengths.
    """
    size = 0
    shift = 0
    at = position + 1
    while shift < 28:
        if at >= end:
            return (-1, -1)
        byte = data[at]
        at += 1
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0 and shift > 0 and strict:
                raise MalformedPacket("remaining length is longer than it needs to be")
            return (at, at + size)
        shift += 7
    raise MalformedPacket("remaining length has more than 4 bytes")


def encode_frame(first_byte: int, body: bytes) -> bytes:
    return b"".join([BYTE[first_byte], encode_varint(len(body)), body])


@final
class FrameBuffer:
    """Feed bytes in, take whole packets out as (first byte, body).

    Invariants: `_buffer[_position:]` is what was fed and not yet taken. While a long body is arriving, its pieces wait
    in `_pending` and are joined once, when `_pending_size` reaches `_wanted`: each byte is copied a constant number of
    times however finely the stream is cut.
    """

    def __init__(self, maximum: int = NO_LIMIT, strict: bool = False) -> None:
        self.maximum = maximum  # of a whole packet, header included
        self.strict = strict  # set once the version is known to be 5.0
        self._buffer = b""
        self._position = 0
        self._pending: list[bytes] = []
        self._pending_size = 0
        self._wanted = 0

    def feed(self, data: bytes) -> None:
        if self._wanted == 0:
            if self._position == len(self._buffer):
                self._buffer = data
            else:
                self._buffer = self._buffer[self._position :] + data
            self._position = 0
            return
        self._pending.append(data)
        self._pending_size += len(data)
        if self._pending_size >= self._wanted:
            self._buffer = b"".join(self._pending)
            self._position = 0
            self._pending = []
            self._pending_size = 0
            self._wanted = 0

    def take(self) -> tuple[int, bytes] | None:
        """The next whole packet, or `None` until more is fed. Raises ProtocolError (0x95) for one over the maximum."""
        if self._wanted:
            return None
        data = self._buffer
        position = self._position
        end = len(data)
        if position == end:
            return None
        start, stop = frame_bounds(data, position, end, self.strict)
        if start < 0:
            return None
        if stop - position > self.maximum:
            raise ProtocolError(f"packet has {stop - position} bytes, expected no more than {self.maximum}", 0x95)
        if stop > end:
            self._pending = [data[position:]]
            self._pending_size = end - position
            self._wanted = stop - position
            self._buffer = b""
            self._position = 0
            return None
        self._position = stop
        return (data[position], data[start:stop])

    def buffered(self) -> int:
        """How many bytes wait for the rest of their packet."""
        return self._pending_size + len(self._buffer) - self._position
