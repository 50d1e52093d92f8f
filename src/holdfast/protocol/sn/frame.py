"""What both versions of MQTT-SN have in common on the wire.

Every packet begins with its length in one byte or three, then its type. Packets in an outbox are joined, because each
knows its length; `datagrams` splits them again.
"""

from typing import Final, final

from holdfast.errors import MalformedPacket, ProtocolError, UsageError
from holdfast.protocol.wire import BYTE, Reader, decode_text, encode_u16

MAX_SIZE: Final = 65_535
SHORT_SIZE: Final = 255

FORWARDER_12: Final = 0xFE
FORWARDER_2: Final = 0xFC
CONNECTION_2: Final = 0xFE
PROTECTION_2: Final = 0xFF


def frame(kind: int, body: bytes) -> bytes:
    """Return a whole packet, with the short form of the length where it fits."""
    size = len(body) + 2
    if size <= SHORT_SIZE:
        return BYTE[size] + BYTE[kind] + body
    if size + 2 > MAX_SIZE:
        raise UsageError(f"packet has {size + 2} bytes, expected no more than {MAX_SIZE}")
    return b"\x01" + encode_u16(size + 2) + BYTE[kind] + body


def framed_size(body: int) -> int:
    """Return the size of a packet whose body has this many bytes."""
    return body + 2 if body + 2 <= SHORT_SIZE else body + 4


def head_size(data: bytes) -> int:
    """Return where the type stands, after one byte of length or three, or 0 when there is no room for a type at all."""
    if len(data) < 2:
        return 0
    if data[0] != 1:
        return 1
    return 3 if len(data) >= 4 else 0


def stated_size(data: bytes) -> int:
    """Return the length that the packet states of itself; call only when `head_size` is not 0."""
    return data[0] if data[0] != 1 else data[1] << 8 | data[2]


def check_frame(data: bytes) -> int:
    """Return where the body begins; raises unless the datagram is exactly one packet."""
    head = head_size(data)
    if head == 0:
        raise MalformedPacket(f"datagram has {len(data)} bytes, expected a length and a type")
    size = stated_size(data)
    if size != len(data):
        raise MalformedPacket(f"packet states {size} bytes, got {len(data)}")
    return head + 1


def read_name(reader: Reader, size: int) -> bytes:
    """Read the name of a topic, or a topic filter, of `size` bytes; raises when it is empty or no text."""
    if size == 0:  # [SN2: 4.7.1.3-1]
        raise ProtocolError("topic is empty, expected at least one character")
    topic = reader.take(size)
    decode_text(topic)
    return topic


@final
class Envelope:
    """What a forwarder puts around the packets of a node behind it, and wants around the answers.

    1.2 puts `head` in front; 2.0 counts the inner packet in, so that only `info` is the same every time.
    """

    def __init__(self, version: int, head: bytes, info: bytes) -> None:
        self.version: Final = version
        self.head: Final = head
        self.info: Final = info

    def wrap(self, packet: bytes) -> bytes:
        if self.version == 1:
            return self.head + packet
        return frame(FORWARDER_2, BYTE[len(self.info)] + self.info + packet)


def datagrams(data: bytes, envelope: Envelope | None) -> list[bytes]:
    """Split joined packets; returns each as a datagram."""
    found: list[bytes] = []
    position = 0
    size = len(data)
    while position < size:
        length = data[position]
        if length == 1:
            length = data[position + 1] << 8 | data[position + 2]
        packet = data if length == size else data[position : position + length]
        found.append(packet if envelope is None else envelope.wrap(packet))
        position += length
    return found
