"""Packets to bytes, for MQTT 3.1, 3.1.1 and 5.0; every function here undoes its namesake in decode.py.

What an older version cannot say is left out: properties always, reason codes of acknowledgements and DISCONNECT. Reason
codes of CONNACK and SUBACK are written as they stand, so the caller gives the ones of the connection's version.
"""

from holdfast.errors import UsageError
from holdfast.protocol.mqtt.frame import encode_frame
from holdfast.protocol.mqtt.packets import (
    AUTH,
    CONNACK,
    CONNECT,
    DISCONNECT,
    PUBLISH,
    PUBREL,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    V5,
    V31,
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
    Unsubscribe,
)
from holdfast.protocol.mqtt.properties import encode_properties
from holdfast.protocol.wire import BYTE, encode_binary, encode_text, encode_u16, encode_varint


def encode(packet: Packet, version: int) -> bytes:
    """Any packet as it goes on the wire."""
    if isinstance(packet, Publish):
        return encode_publish(packet, version)
    if isinstance(packet, Ack):
        return encode_ack(packet, version)
    if isinstance(packet, Ping):
        return encode_ping(packet, version)
    if isinstance(packet, Subscribe):
        return encode_subscribe(packet, version)
    if isinstance(packet, SubAck):
        return encode_suback(packet, version)
    if isinstance(packet, Unsubscribe):
        return encode_unsubscribe(packet, version)
    if isinstance(packet, Connect):
        return encode_connect(packet)
    if isinstance(packet, ConnAck):
        return encode_connack(packet, version)
    if isinstance(packet, Disconnect):
        return encode_disconnect(packet, version)
    if isinstance(packet, Auth):
        return encode_auth(packet, version)
    raise UsageError(f"packet type {packet.kind} cannot be encoded")


def encode_connect(packet: Connect) -> bytes:
    """A CONNECT of the version it carries itself."""
    version = packet.version
    will = packet.will
    flags = 0x02 if packet.clean_start else 0
    if will is not None:
        flags |= 0x04 | will.qos << 3
        if will.retain:
            flags |= 0x20
    if packet.username is not None:
        flags |= 0x80
    if packet.password is not None:
        flags |= 0x40
        if packet.username is None and version != V5:  # [3.1.1: MQTT-3.1.2-22]
            raise UsageError("a password without a user name needs MQTT 5.0")
    name = b"\x00\x06MQIsdp" if version == V31 else b"\x00\x04MQTT"
    parts = [name, bytes((version, flags)), encode_u16(packet.keep_alive)]
    if version == V5:
        parts.append(encode_properties(packet.properties))
    parts.append(encode_text(packet.client_id))
    if will is not None:
        if version == V5:
            parts.append(encode_properties(will.properties))
        parts.append(encode_binary(will.topic))
        parts.append(encode_binary(will.payload))
    if packet.username is not None:
        parts.append(encode_text(packet.username))
    if packet.password is not None:
        parts.append(encode_binary(packet.password))
    return encode_frame(CONNECT << 4, b"".join(parts))


def encode_connack(packet: ConnAck, version: int) -> bytes:
    body = bytes((1 if packet.session_present else 0, packet.reason))
    if version == V5:
        body += encode_properties(packet.properties)
    return encode_frame(CONNACK << 4, body)


def encode_publish(packet: Publish, version: int) -> bytes:
    qos = packet.qos
    first_byte = PUBLISH << 4 | qos << 1
    if packet.dup:
        first_byte |= 0x08
    if packet.retain:
        first_byte |= 0x01
    header = encode_binary(packet.topic)
    if qos != 0:
        header += encode_u16(packet.packet_id)
    if version == V5:
        header += encode_properties(packet.properties)
    size = encode_varint(len(header) + len(packet.payload))
    return b"".join([BYTE[first_byte], size, header, packet.payload])


def encode_ack(packet: Ack, version: int) -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP; success without properties takes the short form in 5.0."""
    first_byte = packet.kind << 4
    if packet.kind == PUBREL:
        first_byte |= 0x02
    packet_id = packet.packet_id
    if version != V5 or (packet.reason == 0 and packet.properties is None):
        return b"".join([BYTE[first_byte], b"\x02", BYTE[packet_id >> 8], BYTE[packet_id & 0xFF]])
    body = encode_u16(packet_id) + BYTE[packet.reason]
    if packet.properties is not None:
        body += encode_properties(packet.properties)
    return encode_frame(first_byte, body)


def encode_subscribe(packet: Subscribe, version: int) -> bytes:
    parts = [encode_u16(packet.packet_id)]
    if version == V5:
        parts.append(encode_properties(packet.properties))
    for request in packet.requests:
        options = request.qos
        if version == V5:
            options |= request.retain_handling << 4
            if request.no_local:
                options |= 0x04
            if request.retain_as_published:
                options |= 0x08
        parts.append(encode_binary(request.topic_filter))
        parts.append(bytes((options,)))
    return encode_frame(SUBSCRIBE << 4 | 0x02, b"".join(parts))


def encode_suback(packet: SubAck, version: int) -> bytes:
    """SUBACK or UNSUBACK, which has no reason codes before 5.0."""
    body = encode_u16(packet.packet_id)
    if version == V5:
        body += encode_properties(packet.properties)
    if version == V5 or packet.kind != UNSUBACK:
        body += bytes(packet.reasons)
    return encode_frame(packet.kind << 4, body)


def encode_unsubscribe(packet: Unsubscribe, version: int) -> bytes:
    parts = [encode_u16(packet.packet_id)]
    if version == V5:
        parts.append(encode_properties(packet.properties))
    for topic_filter in packet.topic_filters:
        parts.append(encode_binary(topic_filter))
    return encode_frame(UNSUBSCRIBE << 4 | 0x02, b"".join(parts))


def encode_ping(packet: Ping, version: int) -> bytes:
    """PINGREQ or PINGRESP, the same in every version."""
    return bytes((packet.kind << 4, 0))


def encode_disconnect(packet: Disconnect, version: int) -> bytes:
    if version != V5 or (packet.reason == 0 and packet.properties is None):
        return b"\xe0\x00"
    if packet.properties is None:
        return bytes((DISCONNECT << 4, 1, packet.reason))
    return encode_frame(DISCONNECT << 4, bytes((packet.reason,)) + encode_properties(packet.properties))


def encode_auth(packet: Auth, version: int) -> bytes:
    if version != V5:
        raise UsageError("AUTH needs MQTT 5.0")
    if packet.reason == 0 and packet.properties is None:
        return b"\xf0\x00"
    return encode_frame(AUTH << 4, bytes((packet.reason,)) + encode_properties(packet.properties))
