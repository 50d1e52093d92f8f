"""MQTT 5 properties for the test client: the table of identifiers and their wire types.

Written from the standard and not from the product's own table, so that a wrong number in one of them shows.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

Property = tuple[int, Any]
Properties = list[Property]


class P:
    """Property identifiers, e.g. `properties=[(P.CONTENT_TYPE, "text/plain")]`."""

    PAYLOAD_FORMAT = 0x01
    MESSAGE_EXPIRY = 0x02
    CONTENT_TYPE = 0x03
    RESPONSE_TOPIC = 0x08
    CORRELATION_DATA = 0x09
    SUBSCRIPTION_ID = 0x0B
    SESSION_EXPIRY = 0x11
    ASSIGNED_CLIENT_ID = 0x12
    SERVER_KEEP_ALIVE = 0x13
    AUTH_METHOD = 0x15
    AUTH_DATA = 0x16
    REQUEST_PROBLEM_INFO = 0x17
    WILL_DELAY = 0x18
    REQUEST_RESPONSE_INFO = 0x19
    RESPONSE_INFO = 0x1A
    SERVER_REFERENCE = 0x1C
    REASON_STRING = 0x1F
    RECEIVE_MAXIMUM = 0x21
    TOPIC_ALIAS_MAXIMUM = 0x22
    TOPIC_ALIAS = 0x23
    MAXIMUM_QOS = 0x24
    RETAIN_AVAILABLE = 0x25
    USER_PROPERTY = 0x26
    MAXIMUM_PACKET_SIZE = 0x27
    WILDCARD_AVAILABLE = 0x28
    SUBSCRIPTION_ID_AVAILABLE = 0x29
    SHARED_AVAILABLE = 0x2A


_BYTE, _TWO, _FOUR, _VARINT, _TEXT, _BINARY, _PAIR = ["byte", "two", "four", "varint", "text", "binary", "pair"]

_KINDS = {
    P.PAYLOAD_FORMAT: _BYTE,
    P.MESSAGE_EXPIRY: _FOUR,
    P.CONTENT_TYPE: _TEXT,
    P.RESPONSE_TOPIC: _TEXT,
    P.CORRELATION_DATA: _BINARY,
    P.SUBSCRIPTION_ID: _VARINT,
    P.SESSION_EXPIRY: _FOUR,
    P.ASSIGNED_CLIENT_ID: _TEXT,
    P.SERVER_KEEP_ALIVE: _TWO,
    P.AUTH_METHOD: _TEXT,
    P.AUTH_DATA: _BINARY,
    P.REQUEST_PROBLEM_INFO: _BYTE,
    P.WILL_DELAY: _FOUR,
    P.REQUEST_RESPONSE_INFO: _BYTE,
    P.RESPONSE_INFO: _TEXT,
    P.SERVER_REFERENCE: _TEXT,
    P.REASON_STRING: _TEXT,
    P.RECEIVE_MAXIMUM: _TWO,
    P.TOPIC_ALIAS_MAXIMUM: _TWO,
    P.TOPIC_ALIAS: _TWO,
    P.MAXIMUM_QOS: _BYTE,
    P.RETAIN_AVAILABLE: _BYTE,
    P.USER_PROPERTY: _PAIR,
    P.MAXIMUM_PACKET_SIZE: _FOUR,
    P.WILDCARD_AVAILABLE: _BYTE,
    P.SUBSCRIPTION_ID_AVAILABLE: _BYTE,
    P.SHARED_AVAILABLE: _BYTE,
}

NAMES = {value: name for name, value in vars(P).items() if isinstance(value, int)}


def u16(value: int) -> bytes:
    return struct.pack(">H", value)


def u32(value: int) -> bytes:
    return struct.pack(">I", value)


def varint(value: int) -> bytes:
    """Variable Byte Integer in its shortest form."""
    out = bytearray()
    while True:
        value, digit = divmod(value, 128)
        out.append(digit | (0x80 if value else 0))
        if not value:
            return bytes(out)


def binary(value: bytes) -> bytes:
    return u16(len(value)) + value


def text(value: str | bytes) -> bytes:
    """Length-prefixed string; bytes pass through as they are, so that ill-formed text can be sent."""
    return binary(value.encode() if isinstance(value, str) else value)


def one_property(identifier: int, value: Any) -> bytes:
    """One property. An identifier outside the table takes ready-made bytes as its value."""
    kind = _KINDS.get(identifier)
    head = varint(identifier)
    if kind is None:
        return head + bytes(value)
    if kind == _BYTE:
        return head + bytes([value])
    if kind == _TWO:
        return head + u16(value)
    if kind == _FOUR:
        return head + u32(value)
    if kind == _VARINT:
        return head + varint(value)
    if kind == _TEXT:
        return head + text(value)
    if kind == _BINARY:
        return head + binary(value)
    key, item = value
    return head + text(key) + text(item)


def property_block(properties: Iterable[Property]) -> bytes:
    body = b"".join(one_property(identifier, value) for identifier, value in properties)
    return varint(len(body)) + body


class Cursor:
    """Reads fields of one whole packet; running out of bytes is a malformed packet."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        if self.at + count > len(self.data):
            raise AssertionError(
                f"malformed packet from the broker: need {count} bytes at {self.at}, have {len(self.data) - self.at} "
                f"of {self.data.hex(' ')}"
            )
        piece = self.data[self.at : self.at + count]
        self.at += count
        return piece

    def u8(self) -> int:
        return self.take(1)[0]

    def u16(self) -> int:
        return int.from_bytes(self.take(2), "big")

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def varint(self) -> int:
        start, value, shift = self.at, 0, 0
        while True:
            digit = self.u8()
            value |= (digit & 0x7F) << shift
            if not digit & 0x80:
                break
            shift += 7
            if shift > 21:
                raise AssertionError("malformed packet from the broker: variable byte integer of more than 4 bytes")
        # Longer than needed is malformed in 5.0 [5: MQTT-1.5.5-1].
        if varint(value) != self.data[start : self.at]:
            raise AssertionError(f"broker used {self.at - start} bytes for {value}, expected the shortest form")
        return value

    def binary(self) -> bytes:
        return self.take(self.u16())

    def text(self) -> str:
        return self.binary().decode()

    def rest(self) -> bytes:
        return self.take(len(self.data) - self.at)

    @property
    def done(self) -> bool:
        return self.at == len(self.data)

    def properties(self) -> Properties:
        inner = Cursor(self.take(self.varint()))
        out: Properties = []
        while not inner.done:
            identifier = inner.varint()
            kind = _KINDS.get(identifier)
            value: Any
            if kind == _BYTE:
                value = inner.u8()
            elif kind == _TWO:
                value = inner.u16()
            elif kind == _FOUR:
                value = inner.u32()
            elif kind == _VARINT:
                value = inner.varint()
            elif kind == _TEXT:
                value = inner.text()
            elif kind == _BINARY:
                value = inner.binary()
            elif kind == _PAIR:
                value = (inner.text(), inner.text())
            else:
                raise AssertionError(f"broker sent unknown property 0x{identifier:02X}")
            out.append((identifier, value))
        return out
