"""The data types of the MQTT wire: a reading cursor and the functions that write.

A `Reader` is bound to one whole packet. Waiting for more bytes happens before, in the frame buffer; running out of them
here means that the packet contradicts its own length, so it is malformed.
"""

from typing import Final, final

from holdfast.errors import MalformedPacket, UsageError

MAX_VARINT: Final = 268_435_455  # four bytes of seven bits
MAX_BINARY: Final = 65_535

# One byte strings to join: compiled, a lookup and a concatenation cost less than building `bytes((a, b))`.
BYTE: Final[list[bytes]] = [bytes([value]) for value in range(256)]


@final
class Reader:
    """A cursor over `data[position:end]`; every method moves it past what it returns."""

    def __init__(self, data: bytes, position: int = 0, end: int = -1) -> None:
        self.data = data
        self.position = position
        self.end = len(data) if end < 0 else end

    def remaining(self) -> int:
        return self.end - self.position

    def u8(self) -> int:
        position = self.position
        if position >= self.end:
            raise self.short(1)
        self.position = position + 1
        return self.data[position]

    def u16(self) -> int:
        position = self.position
        if position + 2 > self.end:
            raise self.short(2)
        self.position = position + 2
        data = self.data
        return (data[position] << 8) | data[position + 1]

    def u32(self) -> int:
        position = self.position
        if position + 4 > self.end:
            raise self.short(4)
        self.position = position + 4
        data = self.data
        return (data[position] << 24) | (data[position + 1] << 16) | (data[position + 2] << 8) | data[position + 3]

    def varint(self) -> int:
        data = self.data
        position = self.position
        value = 0
        shift = 0
        while shift < 28:
            if position >= self.end:
                raise self.short(1)
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if byte == 0 and shift > 0:  # [5: MQTT-1.5.5-1]
                    raise MalformedPacket("variable byte integer is longer than it needs to be")
                self.position = position
                return value
            shift += 7
        raise MalformedPacket("variable byte integer has more than 4 bytes")

    def take(self, count: int) -> bytes:
        position = self.position
        end = position + count
        if end > self.end:
            raise self.short(count)
        self.position = end
        return self.data[position:end]

    def binary(self) -> bytes:
        return self.take(self.u16())

    def text(self) -> str:
        return decode_text(self.binary())

    def utf8(self) -> bytes:
        """A string that is checked but stays bytes: topic names and topic filters."""
        value = self.binary()
        decode_text(value)
        return value

    def rest(self) -> bytes:
        position = self.position
        self.position = self.end
        return self.data[position : self.end]

    def finish(self, what: str) -> None:
        """Call when the packet should be read out: bytes left over make it malformed."""
        if self.position != self.end:
            raise MalformedPacket(f"{what} has {self.end - self.position} bytes after its end, expected none")

    def short(self, wanted: int) -> MalformedPacket:
        return MalformedPacket(f"packet ends {wanted - (self.end - self.position)} bytes early")


def decode_text(value: bytes) -> str:
    """Strict UTF-8: no surrogates, nothing ill-formed, no U+0000; a leading U+FEFF is kept.

    [3.1.1: MQTT-1.5.3-1, 1.5.3-2, 1.5.3-3] [5: MQTT-1.5.4-1, 1.5.4-2, 1.5.4-3]
    """
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedPacket("string is not well-formed UTF-8") from None
    if "\0" in text:
        raise MalformedPacket("string contains U+0000")
    return text


def encode_u16(value: int) -> bytes:
    if value < 0 or value > 0xFFFF:
        raise UsageError(f"two byte integer is {value}, expected 0 to 65535")
    return BYTE[value >> 8] + BYTE[value & 0xFF]


def encode_u32(value: int) -> bytes:
    if value < 0 or value > 0xFFFFFFFF:
        raise UsageError(f"four byte integer is {value}, expected 0 to 4294967295")
    return bytes((value >> 24, (value >> 16) & 0xFF, (value >> 8) & 0xFF, value & 0xFF))


def encode_varint(value: int) -> bytes:
    if value < 0 or value > MAX_VARINT:
        raise UsageError(f"variable byte integer is {value}, expected 0 to {MAX_VARINT}")
    if value < 0x80:
        return BYTE[value]
    if value < 0x4000:
        return BYTE[value & 0x7F | 0x80] + BYTE[value >> 7]
    if value < 0x200000:
        return bytes((value & 0x7F | 0x80, (value >> 7) & 0x7F | 0x80, value >> 14))
    return bytes((value & 0x7F | 0x80, (value >> 7) & 0x7F | 0x80, (value >> 14) & 0x7F | 0x80, value >> 21))


def encode_binary(value: bytes) -> bytes:
    size = len(value)
    if size > MAX_BINARY:
        raise UsageError(f"string or binary data has {size} bytes, expected no more than {MAX_BINARY}")
    return b"".join([BYTE[size >> 8], BYTE[size & 0xFF], value])


def encode_text(value: str) -> bytes:
    try:
        encoded = value.encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError("string contains a surrogate, which MQTT forbids") from None
    if "\0" in value:
        raise UsageError("string contains U+0000, which MQTT forbids")
    return encode_binary(encoded)
