"""Bytes of one whole packet to a packet, for MQTT 3.1, 3.1.1 and 5.0.

Everything that can be judged from the packet alone is judged here: flags, lengths, strings, properties, reason codes.
Left to the broker: what depends on the session or on settings, and the syntax of topic names and topic filters, but
for a filter of which nothing is there: that is no request at all, so that the whole packet is none.
The version is that of the connection; a CONNECT says its own.
"""

from typing import Final

from holdfast.errors import MalformedPacket, ProtocolError, UnsupportedProtocol
from holdfast.protocol.mqtt.packets import (
    AUTH,
    CONNACK,
    CONNECT,
    DISCONNECT,
    PINGREQ,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    V5,
    V31,
    V311,
    Ack,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    Ping,
    Publish,
    SubAck,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
    Will,
)
from holdfast.protocol.mqtt.properties import WILL, Properties, decode_properties
from holdfast.protocol.mqtt.reasons import CONNACK_311_CODES, QUOTA_EXCEEDED, SUBACK_311_CODES, is_allowed
from holdfast.protocol.wire import Reader

SHARE_PREFIX: Final = b"$share/"
UNLIMITED: Final = 1 << 30


def decode(
    first_byte: int, body: bytes, version: int, from_server: bool = False, most_filters: int = UNLIMITED
) -> Packet:
    """The packet that `first_byte` and `body` are. Raises ProtocolError with the reason to answer, nothing else.

    A SUBSCRIBE or UNSUBSCRIBE with more than `most_filters` is refused.
    """
    kind = first_byte >> 4
    if kind == PUBLISH:
        return decode_publish(first_byte, body, version, from_server)
    _check_flags(kind, first_byte & 0x0F, version)
    if PUBACK <= kind <= PUBCOMP:
        return decode_ack(kind, body, version)
    if kind == SUBSCRIBE:
        return decode_subscribe(body, version, most_filters)
    if kind == UNSUBSCRIBE:
        return decode_unsubscribe(body, version, most_filters)
    if kind in (PINGREQ, PINGRESP):
        return decode_ping(kind, body)
    if kind == CONNECT:
        return decode_connect(body)
    if kind == DISCONNECT:
        return decode_disconnect(body, version, from_server)
    if kind == CONNACK:
        return decode_connack(body, version)
    if kind in (SUBACK, UNSUBACK):
        return decode_suback(kind, body, version)
    if kind == AUTH and version >= V5:
        return decode_auth(body)
    raise MalformedPacket(f"packet type {kind} does not exist in this version")


def _check_flags(kind: int, flags: int, version: int) -> None:
    """[3.1.1: MQTT-2.2.2-1, 2.2.2-2, 3.6.1-1, 3.8.1-1, 3.10.1-1, 3.14.1-1] [5: MQTT-2.1.3-1, 3.15.1-1 and the same]"""
    if kind in (PUBREL, SUBSCRIBE, UNSUBSCRIBE):
        # These three are sent at QoS 1 in MQTT 3.1, so there a repeat has DUP set.
        if flags == 0x02 or (version == V31 and flags == 0x0A):
            return
        raise MalformedPacket(f"fixed header flags are {flags}, expected 2")
    if flags != 0:
        raise MalformedPacket(f"fixed header flags are {flags}, expected 0")


def _packet_id(reader: Reader) -> int:
    """[3.1.1: MQTT-2.3.1-1] [5: MQTT-2.2.1-3, 2.2.1-4]"""
    packet_id = reader.u16()
    if packet_id == 0:
        raise ProtocolError("packet identifier is 0, expected 1 to 65535")
    return packet_id


def _check_reason(kind: int, reason: int) -> None:
    if reason != 0 and not is_allowed(kind, reason):
        raise ProtocolError(f"reason code 0x{reason:02X} does not exist for packet type {kind}")


def decode_connect(body: bytes) -> Connect:
    reader = Reader(body)
    version = _protocol_version(reader)
    flags = reader.u8()
    if flags & 0x01 and version != V31:  # [3.1.1: MQTT-3.1.2-3] [5: MQTT-3.1.2-3]
        raise MalformedPacket("reserved connect flag is 1, expected 0")
    _check_connect_flags(flags, version)
    keep_alive = reader.u16()
    properties: Properties | None = None
    if version == V5:
        properties = decode_properties(reader, CONNECT)
    client_id = reader.text()
    will: Will | None = None
    if flags & 0x04:
        will_properties: Properties | None = None
        if version == V5:
            will_properties = decode_properties(reader, WILL)
        topic = reader.utf8()
        payload = reader.binary()
        will = Will(topic, payload, (flags >> 3) & 0x03, flags & 0x20 != 0, will_properties)
    username: str | None = None
    password: bytes | None = None
    # In MQTT 3.1 the length of the packet outranks these two flags: a field it leaves no room for is absent.
    if flags & 0x80 and not (version == V31 and reader.remaining() == 0):
        username = reader.text()
    if flags & 0x40 and not (version == V31 and reader.remaining() == 0):
        password = reader.binary()
    reader.finish("CONNECT")
    return Connect(client_id, version, flags & 0x02 != 0, keep_alive, will, username, password, properties)


def _protocol_version(reader: Reader) -> int:
    name = reader.binary()
    level = reader.u8()
    if name == b"MQTT" and level in (V311, V5):
        return level
    if name == b"MQIsdp" and level == V31:
        return V31
    known = name == b"MQTT" or name == b"MQIsdp"
    raise UnsupportedProtocol(f"protocol is {name[:16]!r} level {level}, expected MQTT 3.1, 3.1.1 or 5.0", level, known)


def _check_connect_flags(flags: int, version: int) -> None:
    if flags & 0x04:
        if flags & 0x18 == 0x18:  # [3.1.1: MQTT-3.1.2-14] [5: MQTT-3.1.2-12]
            raise MalformedPacket("will QoS is 3, expected 0, 1 or 2")
    elif flags & 0x38:  # [3.1.1: MQTT-3.1.2-11, 3.1.2-13, 3.1.2-15] [5: MQTT-3.1.2-11, 3.1.2-13]
        raise MalformedPacket("will QoS or will retain is set without the will flag")
    if flags & 0xC0 == 0x40 and version != V5:  # [3.1.1: MQTT-3.1.2-22]
        raise MalformedPacket("password flag is set without the user name flag")


def decode_connack(body: bytes, version: int) -> ConnAck:
    reader = Reader(body)
    flags = reader.u8()
    if flags > 1 and version != V31:  # [5: MQTT-3.2.2-1]
        raise MalformedPacket(f"connect acknowledge flags are {flags}, expected 0 or 1")
    reason = reader.u8()
    properties: Properties | None = None
    if version == V5:
        _check_reason(CONNACK, reason)
        properties = decode_properties(reader, CONNACK)
    elif reason not in CONNACK_311_CODES:
        raise ProtocolError(f"return code is {reason}, expected 0 to 5")
    reader.finish("CONNACK")
    return ConnAck(flags & 0x01 != 0, reason, properties)


def decode_publish(first_byte: int, body: bytes, version: int, from_server: bool = False) -> Publish:
    return decode_publish_from(Reader(body), first_byte, version, from_server)


def decode_publish_from(reader: Reader, first_byte: int, version: int, from_server: bool) -> Publish:
    """The same from a reader bound to the packet's body inside a larger buffer, which spares a copy."""
    qos = (first_byte >> 1) & 0x03
    dup = first_byte & 0x08 != 0
    if qos == 3:  # [3.1.1: MQTT-3.3.1-4] [5: MQTT-3.3.1-4]
        raise MalformedPacket("QoS is 3, expected 0, 1 or 2")
    if dup and qos == 0:  # [3.1.1: MQTT-3.3.1-2] [5: MQTT-3.3.1-2]
        raise MalformedPacket("DUP is set on a QoS 0 message")
    topic = reader.utf8()
    packet_id = 0
    if qos != 0:
        packet_id = _packet_id(reader)
    properties: Properties | None = None
    if version == V5:
        properties = decode_properties(reader, PUBLISH)
        if properties is not None and properties.subscription_ids is not None and not from_server:
            raise ProtocolError("a client's PUBLISH carries a subscription identifier")  # [5: MQTT-3.3.4-6]
        if not topic and (properties is None or properties.topic_alias is None):
            raise ProtocolError("topic name is empty and there is no topic alias")
    return Publish(topic, reader.rest(), qos, first_byte & 0x01 != 0, dup, packet_id, properties)


def decode_ack(kind: int, body: bytes, version: int) -> Ack:
    reader = Reader(body)
    packet_id = _packet_id(reader)
    reason = 0
    properties: Properties | None = None
    if version == V5 and reader.remaining() > 0:
        reason = reader.u8()
        _check_reason(kind, reason)
        if reader.remaining() > 0:
            properties = decode_properties(reader, kind)
    reader.finish("acknowledgement")
    return Ack(kind, packet_id, reason, properties)


def decode_subscribe(body: bytes, version: int, most_filters: int = UNLIMITED) -> Subscribe:
    reader = Reader(body)
    packet_id = _packet_id(reader)
    properties: Properties | None = None
    if version == V5:
        properties = decode_properties(reader, SUBSCRIBE)
    requests: list[SubscriptionRequest] = []
    while reader.remaining() > 0:
        if len(requests) >= most_filters:
            raise too_many_filters("SUBSCRIBE", most_filters)
        topic_filter = _topic_filter(reader)
        requests.append(_decode_options(topic_filter, reader.u8(), version))
    if not requests:  # [3.1.1: MQTT-3.8.3-3] [5: MQTT-3.8.3-2]
        raise ProtocolError("SUBSCRIBE has no topic filter, expected at least one")
    return Subscribe(packet_id, requests, properties)


def too_many_filters(packet: str, most: int) -> ProtocolError:
    return ProtocolError(f"{packet} has more topic filters than the {most} that one packet may have", QUOTA_EXCEEDED)


def _topic_filter(reader: Reader) -> bytes:
    topic_filter = reader.utf8()
    if not topic_filter:  # [3.1.1: MQTT-4.7.3-1] [5: MQTT-4.7.3-1]
        raise ProtocolError("topic filter is empty, expected at least one character")
    if topic_filter.startswith(SHARE_PREFIX):
        name_end = topic_filter.find(b"/", len(SHARE_PREFIX))
        if name_end == -1 or name_end == len(topic_filter) - 1:  # [5: MQTT-4.8.2-2]
            raise ProtocolError("shared subscription ends with its name, expected $share/NAME/FILTER")
    return topic_filter


def _decode_options(topic_filter: bytes, options: int, version: int) -> SubscriptionRequest:
    qos = options & 0x03
    if version != V5:
        if options > 2:  # [3.1.1: MQTT-3.8.3-4]
            raise MalformedPacket(f"requested QoS byte is {options}, expected 0, 1 or 2")
        return SubscriptionRequest(topic_filter, qos)
    if options & 0xC0:  # [5: MQTT-3.8.3-5]
        raise MalformedPacket("reserved bits of the subscription options are set")
    retain_handling = options >> 4
    if qos == 3:
        raise ProtocolError("requested QoS is 3, expected 0, 1 or 2")
    if retain_handling == 3:
        raise ProtocolError("retain handling is 3, expected 0, 1 or 2")
    no_local = options & 0x04 != 0
    if no_local and topic_filter.startswith(SHARE_PREFIX):  # [5: MQTT-3.8.3-4]
        raise ProtocolError("no local is set on a shared subscription")
    return SubscriptionRequest(topic_filter, qos, no_local, options & 0x08 != 0, retain_handling)


def decode_suback(kind: int, body: bytes, version: int) -> SubAck:
    """SUBACK or UNSUBACK."""
    reader = Reader(body)
    packet_id = _packet_id(reader)
    properties: Properties | None = None
    if version == V5:
        properties = decode_properties(reader, kind)
    elif kind == UNSUBACK:
        reader.finish("UNSUBACK")
        return SubAck(kind, packet_id, [])
    reasons: list[int] = []
    for reason in reader.rest():
        if version == V5:
            _check_reason(kind, reason)
        elif reason not in SUBACK_311_CODES:
            raise ProtocolError(f"SUBACK return code is 0x{reason:02X}, expected 0, 1, 2 or 0x80")
        reasons.append(reason)
    if not reasons:
        raise ProtocolError("acknowledgement has no reason code, expected one for each topic filter")
    return SubAck(kind, packet_id, reasons, properties)


def decode_unsubscribe(body: bytes, version: int, most_filters: int = UNLIMITED) -> Unsubscribe:
    reader = Reader(body)
    packet_id = _packet_id(reader)
    properties: Properties | None = None
    if version == V5:
        properties = decode_properties(reader, UNSUBSCRIBE)
    topic_filters: list[bytes] = []
    while reader.remaining() > 0:
        if len(topic_filters) >= most_filters:
            raise too_many_filters("UNSUBSCRIBE", most_filters)
        topic_filters.append(_topic_filter(reader))
    if not topic_filters:  # [3.1.1: MQTT-3.10.3-2] [5: MQTT-3.10.3-2]
        raise ProtocolError("UNSUBSCRIBE has no topic filter, expected at least one")
    return Unsubscribe(packet_id, topic_filters, properties)


def decode_ping(kind: int, body: bytes) -> Ping:
    """PINGREQ or PINGRESP."""
    if body:
        raise MalformedPacket(f"ping has a body of {len(body)} bytes, expected none")
    return Ping(kind)


def decode_disconnect(body: bytes, version: int, from_server: bool = False) -> Disconnect:
    reader = Reader(body)
    reason = 0
    properties: Properties | None = None
    if version == V5 and reader.remaining() > 0:
        reason = reader.u8()
        _check_reason(DISCONNECT, reason)
        if reader.remaining() > 0:
            properties = decode_properties(reader, DISCONNECT)
            if from_server and properties is not None and properties.session_expiry is not None:
                raise ProtocolError("a server's DISCONNECT carries a session expiry")  # [5: MQTT-3.14.2-2]
    reader.finish("DISCONNECT")
    return Disconnect(reason, properties)


def decode_auth(body: bytes) -> Auth:
    if not body:  # the short form of success without properties
        return Auth()
    reader = Reader(body)
    reason = reader.u8()
    _check_reason(AUTH, reason)
    properties: Properties | None = None
    if reader.remaining() > 0:
        properties = decode_properties(reader, AUTH)
    reader.finish("AUTH")
    if properties is None or properties.auth_method is None:
        raise ProtocolError("AUTH has no authentication method")
    return Auth(reason, properties)
