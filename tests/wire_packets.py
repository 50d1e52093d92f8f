"""MQTT packets for tests: plain functions that build what a client sends, dataclasses for what a server sends.

Nothing here comes from the product, so a mistake in its codec cannot cancel itself out. The builders allow what the
standard forbids (any flags, any bytes for a string), because half of the tests are about bad input.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from wire_properties import NAMES, Cursor, Properties, Property, binary, property_block, text, u16, varint

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = 1, 2, 3, 4, 5, 6, 7
SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT, AUTH = 8, 9, 10, 11, 12, 13, 14, 15

Text = str | bytes


def frame(first_byte: int, body: bytes) -> bytes:
    """Any control packet: first byte, remaining length, body."""
    return bytes([first_byte]) + varint(len(body)) + body


@dataclass(frozen=True)
class Will:
    topic: Text
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    properties: Sequence[Property] = ()


def connect(
    client_id: Text = "",
    *,
    version: int = 4,
    clean: bool = True,
    keep_alive: int = 60,
    will: Will | None = None,
    username: Text | None = None,
    password: bytes | None = None,
    properties: Iterable[Property] = (),
    protocol_name: Text | None = None,
    level: int | None = None,
    flags: int | None = None,
    first_byte: int = 0x10,
) -> bytes:
    """CONNECT. `flags` replaces the connect flags and leaves the payload as the other arguments say."""
    name = protocol_name if protocol_name is not None else ("MQIsdp" if version == 3 else "MQTT")
    if flags is None:
        flags = 0x02 if clean else 0
        if will is not None:
            flags |= 0x04 | will.qos << 3 | (0x20 if will.retain else 0)
        if password is not None:
            flags |= 0x40
        if username is not None:
            flags |= 0x80
    body = text(name) + bytes([version if level is None else level, flags]) + u16(keep_alive)
    if version == 5:
        body += property_block(properties)
    body += text(client_id)
    if will is not None:
        if version == 5:
            body += property_block(will.properties)
        body += text(will.topic) + binary(will.payload)
    if username is not None:
        body += text(username)
    if password is not None:
        body += binary(password)
    return frame(first_byte, body)


def publish(
    topic: Text,
    payload: bytes | str = b"",
    *,
    qos: int = 0,
    retain: bool = False,
    dup: bool = False,
    packet_id: int | None = None,
    properties: Iterable[Property] = (),
    version: int = 4,
) -> bytes:
    body = text(topic)
    if packet_id is not None:
        body += u16(packet_id)
    if version == 5:
        body += property_block(properties)
    body += payload.encode() if isinstance(payload, str) else payload
    return frame(PUBLISH << 4 | dup << 3 | qos << 1 | retain, body)


def _acknowledgement(
    first_byte: int, packet_id: int, reason: int | None, properties: Iterable[Property] | None
) -> bytes:
    body = u16(packet_id)
    if reason is not None or properties is not None:
        body += bytes([reason or 0])
    if properties is not None:
        body += property_block(properties)
    return frame(first_byte, body)


def puback(
    packet_id: int,
    reason: int | None = None,
    properties: Iterable[Property] | None = None,
    *,
    first_byte: int = PUBACK << 4,
) -> bytes:
    """PUBACK; with neither reason nor properties it is the two-byte form that both versions share."""
    return _acknowledgement(first_byte, packet_id, reason, properties)


def pubrec(
    packet_id: int,
    reason: int | None = None,
    properties: Iterable[Property] | None = None,
    *,
    first_byte: int = PUBREC << 4,
) -> bytes:
    return _acknowledgement(first_byte, packet_id, reason, properties)


def pubrel(
    packet_id: int,
    reason: int | None = None,
    properties: Iterable[Property] | None = None,
    *,
    first_byte: int = PUBREL << 4 | 2,
) -> bytes:
    return _acknowledgement(first_byte, packet_id, reason, properties)


def pubcomp(
    packet_id: int,
    reason: int | None = None,
    properties: Iterable[Property] | None = None,
    *,
    first_byte: int = PUBCOMP << 4,
) -> bytes:
    return _acknowledgement(first_byte, packet_id, reason, properties)


def options(
    qos: int = 0, *, no_local: bool = False, retain_as_published: bool = False, retain_handling: int = 0
) -> int:
    """The subscription options byte; 3.1.1 knows only the QoS part."""
    return qos | no_local << 2 | retain_as_published << 3 | retain_handling << 4


def subscribe(
    packet_id: int,
    filters: Iterable[tuple[Text, int]],
    *,
    version: int = 4,
    properties: Iterable[Property] = (),
    first_byte: int = SUBSCRIBE << 4 | 2,
) -> bytes:
    """SUBSCRIBE; `filters` are pairs of topic filter and options byte (see `options`)."""
    body = u16(packet_id)
    if version == 5:
        body += property_block(properties)
    for topic_filter, option in filters:
        body += text(topic_filter) + bytes([option])
    return frame(first_byte, body)


def unsubscribe(
    packet_id: int,
    filters: Iterable[Text],
    *,
    version: int = 4,
    properties: Iterable[Property] = (),
    first_byte: int = UNSUBSCRIBE << 4 | 2,
) -> bytes:
    body = u16(packet_id)
    if version == 5:
        body += property_block(properties)
    for topic_filter in filters:
        body += text(topic_filter)
    return frame(first_byte, body)


def pingreq(*, first_byte: int = PINGREQ << 4) -> bytes:
    return frame(first_byte, b"")


def disconnect(
    reason: int | None = None,
    properties: Iterable[Property] | None = None,
    *,
    first_byte: int = DISCONNECT << 4,
) -> bytes:
    """DISCONNECT; with neither reason nor properties it is the empty form that both versions share."""
    body = b""
    if reason is not None or properties is not None:
        body += bytes([reason or 0])
    if properties is not None:
        body += property_block(properties)
    return frame(first_byte, body)


def auth(
    reason: int | None = None, properties: Iterable[Property] | None = None, *, first_byte: int = AUTH << 4
) -> bytes:
    body = b""
    if reason is not None or properties is not None:
        body += bytes([reason or 0])
    if properties is not None:
        body += property_block(properties)
    return frame(first_byte, body)


@dataclass(kw_only=True)
class Packet:
    """What the broker sent. Two packets are equal when their fields are; `raw` is there for tests about bytes."""

    properties: Properties = field(default_factory=list)
    raw: bytes = field(default=b"", compare=False)

    def prop(self, identifier: int) -> Any:
        """The value of a property that may appear once, or None."""
        values = self.props(identifier)
        if len(values) > 1:
            raise AssertionError(f"property {NAMES[identifier]} appears {len(values)} times in {self}")
        return values[0] if values else None

    def props(self, identifier: int) -> list[Any]:
        return [value for at, value in self.properties if at == identifier]

    def __str__(self) -> str:
        shown = []
        for name, value in vars(self).items():
            if name == "raw" or (name == "properties" and not value):
                continue
            if name == "properties":
                value = "[" + ", ".join(f"{NAMES[at]}={item!r}" for at, item in value) + "]"
            elif name in ("code", "reason"):
                value = f"0x{value:02X}"
            elif name == "codes":
                value = "[" + ", ".join(f"0x{code:02X}" for code in value) + "]"
            else:
                value = repr(value)
            shown.append(f"{name}={value if len(value) < 200 else value[:200] + '...'}")
        return f"{type(self).__name__}({', '.join(shown)})"


@dataclass(kw_only=True)
class ConnAck(Packet):
    code: int = 0
    session_present: bool = False


@dataclass(kw_only=True)
class Publish(Packet):
    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int | None = None


@dataclass(kw_only=True)
class Acknowledgement(Packet):
    packet_id: int
    reason: int = 0


@dataclass(kw_only=True)
class PubAck(Acknowledgement):
    pass


@dataclass(kw_only=True)
class PubRec(Acknowledgement):
    pass


@dataclass(kw_only=True)
class PubRel(Acknowledgement):
    pass


@dataclass(kw_only=True)
class PubComp(Acknowledgement):
    pass


@dataclass(kw_only=True)
class SubAck(Packet):
    packet_id: int
    codes: list[int]


@dataclass(kw_only=True)
class UnsubAck(Packet):
    packet_id: int
    codes: list[int] = field(default_factory=list)


@dataclass(kw_only=True)
class PingResp(Packet):
    pass


@dataclass(kw_only=True)
class Disconnect(Packet):
    reason: int = 0


@dataclass(kw_only=True)
class Auth(Packet):
    reason: int = 0


_ACKS: dict[int, type[Acknowledgement]] = {PUBACK: PubAck, PUBREC: PubRec, PUBREL: PubRel, PUBCOMP: PubComp}


def decode(raw: bytes, version: int) -> Packet:
    """One whole packet from a server, checked to the last byte: reserved flags, lengths, nothing left over."""
    kind, flags = raw[0] >> 4, raw[0] & 0x0F
    head = Cursor(raw)
    head.u8()
    head.varint()
    cursor = Cursor(head.rest())
    if kind != PUBLISH and flags != (2 if kind == PUBREL else 0):
        raise AssertionError(f"broker sent reserved flags {flags:04b} in packet type {kind}: {raw.hex(' ')}")
    packet = _decode_body(kind, flags, cursor, version)
    if not cursor.done:
        raise AssertionError(f"{len(cursor.rest())} bytes too many in {packet}: {raw.hex(' ')}")
    packet.raw = raw
    return packet


def _decode_body(kind: int, flags: int, cursor: Cursor, version: int) -> Packet:
    five = version == 5
    if kind == PUBLISH:
        qos = flags >> 1 & 3
        topic = cursor.text()
        packet_id = cursor.u16() if qos else None
        properties = cursor.properties() if five else []
        return Publish(
            topic=topic,
            payload=cursor.rest(),
            qos=qos,
            retain=bool(flags & 1),
            dup=bool(flags & 8),
            packet_id=packet_id,
            properties=properties,
        )
    if kind in _ACKS:
        packet_id = cursor.u16()
        reason = cursor.u8() if five and not cursor.done else 0
        properties = cursor.properties() if five and not cursor.done else []
        return _ACKS[kind](packet_id=packet_id, reason=reason, properties=properties)
    if kind == CONNACK:
        acknowledge_flags = cursor.u8()
        if acknowledge_flags > 1:
            raise AssertionError(f"broker sent CONNACK flags {acknowledge_flags:08b}, bits 7-1 are reserved")
        code = cursor.u8()
        # A server that refuses a 5.0 CONNECT for its version may answer in the 3.1.1 form.
        properties = cursor.properties() if five and not cursor.done else []
        return ConnAck(session_present=bool(acknowledge_flags), code=code, properties=properties)
    if kind == SUBACK:
        packet_id = cursor.u16()
        properties = cursor.properties() if five else []
        return SubAck(packet_id=packet_id, codes=list(cursor.rest()), properties=properties)
    if kind == UNSUBACK:
        packet_id = cursor.u16()
        properties = cursor.properties() if five else []
        return UnsubAck(packet_id=packet_id, codes=list(cursor.rest()) if five else [], properties=properties)
    if kind == PINGRESP:
        return PingResp()
    if five and kind in (DISCONNECT, AUTH):
        reason = 0 if cursor.done else cursor.u8()
        properties = [] if cursor.done else cursor.properties()
        return (Disconnect if kind == DISCONNECT else Auth)(reason=reason, properties=properties)
    raise AssertionError(f"broker sent packet type {kind}, which a server of version {version} never sends")
