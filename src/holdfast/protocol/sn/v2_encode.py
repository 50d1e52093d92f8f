"""MQTT-SN 2.0: packets to bytes."""

from holdfast.errors import UsageError
from holdfast.protocol.sn.frame import frame
from holdfast.protocol.sn.packets import (
    NAME,
    NONE,
    NORMAL,
    PREDEFINED,
    Ack,
    Advertise,
    Auth,
    Bare,
    ConnAck,
    Connect,
    Disconnect,
    GatewayInfo,
    Packet,
    PingRequest,
    PingResponse,
    Publish,
    PublishWithoutSession,
    RegAck,
    Register,
    SearchGateway,
    SleepRequest,
    SleepResponse,
    SubAck,
    Subscribe,
    Unsubscribe,
)
from holdfast.protocol.sn.v2_types import (
    ACK_TYPES,
    ADVERTISE,
    AUTH,
    AUTH_FLAG,
    AWAKE_FLAG,
    CLEAN_FLAG,
    CONNACK,
    CONNECT,
    DISCONNECT,
    EXPIRY_FLAG,
    GWINFO,
    MOVE_FLAG,
    PINGREQ,
    PINGRESP,
    PUBLISH,
    PUBWOS,
    REGACK,
    REGISTER,
    SEARCHGW,
    SLEEPREQ,
    SLEEPRESP,
    SUBACK,
    SUBSCRIBE,
    SUGGESTIONS_FLAG,
    UNSUBSCRIBE,
    WAKEUP,
    WILL_FLAG,
)
from holdfast.protocol.wire import BYTE, encode_binary, encode_u16, encode_u32


def encode(packet: Packet) -> bytes:
    if isinstance(packet, Publish):
        return encode_publish(packet)
    if isinstance(packet, Ack):
        return frame(ACK_TYPES[packet.kind], encode_u16(packet.packet_id) + BYTE[packet.reason])
    if isinstance(packet, Register):
        alias = b"" if packet.topic_id == NONE else encode_u16(packet.topic_id)
        return frame(REGISTER, BYTE[1 if alias else 0] + encode_u16(packet.packet_id) + alias + packet.topic)
    if isinstance(packet, RegAck):
        flags, alias = alias_field(packet.topic_type, packet.topic_id)
        return frame(REGACK, flags + encode_u16(packet.packet_id) + alias + BYTE[packet.reason])
    if isinstance(packet, SubAck):
        # Without an alias the type says predefined [SN2: 3.8.2.1-2].
        topic_type = packet.topic_type if packet.topic_id != NONE else PREDEFINED
        flags, alias = alias_field(topic_type, packet.topic_id)
        return frame(SUBACK, flags + encode_u16(packet.packet_id) + alias + BYTE[packet.reason])
    if isinstance(packet, Subscribe):
        bits = packet.qos << 5 | packet.retain_handling << 2 | packet.topic_type
        bits |= (0x80 if packet.no_local else 0) | (0x10 if packet.retain_as_published else 0)
        what = filter_field(packet.topic_type, packet.topic_id, packet.topic)
        return frame(SUBSCRIBE, BYTE[bits] + encode_u16(packet.packet_id) + what)
    if isinstance(packet, Unsubscribe):
        what = filter_field(packet.topic_type, packet.topic_id, packet.topic)
        return frame(UNSUBSCRIBE, BYTE[packet.topic_type] + encode_u16(packet.packet_id) + what)
    if isinstance(packet, PingRequest):
        return frame(PINGREQ, encode_u16(packet.packet_id))
    if isinstance(packet, PingResponse):
        remaining = b"" if packet.remaining == NONE else BYTE[packet.remaining]
        return frame(PINGRESP, encode_u16(packet.packet_id) + remaining)
    if isinstance(packet, Disconnect):
        return encode_disconnect(packet)
    return encode_rare(packet)


def encode_rare(packet: Packet) -> bytes:
    if isinstance(packet, Connect):
        return encode_connect(packet)
    if isinstance(packet, ConnAck):
        return encode_connack(packet)
    if isinstance(packet, PublishWithoutSession):
        flags = packet.topic_type | (0x10 if packet.retain else 0)
        topic = topic_field(packet.topic_type, packet.topic_id, packet.topic)
        return frame(PUBWOS, BYTE[flags] + topic + packet.payload)
    if isinstance(packet, SleepRequest):
        flags = 1 if packet.keeps_aliases else 0
        return frame(SLEEPREQ, BYTE[flags] + encode_u16(packet.packet_id) + encode_u32(packet.duration_s))
    if isinstance(packet, SleepResponse):
        duration = b"" if packet.duration_s == NONE else encode_u32(packet.duration_s)
        head = BYTE[1 if duration else 0] + encode_u16(packet.packet_id)
        return frame(SLEEPRESP, head + duration + BYTE[packet.reason])
    if isinstance(packet, Auth):
        head = encode_u16(packet.packet_id) + BYTE[packet.reason]
        return frame(AUTH, head + short_text(packet.method) + packet.data)
    if isinstance(packet, Bare):
        return frame(WAKEUP, b"")
    if isinstance(packet, Advertise):
        return frame(ADVERTISE, BYTE[packet.gateway_id] + encode_u16(packet.duration_s))
    if isinstance(packet, SearchGateway):
        return frame(SEARCHGW, packet.extra)
    if isinstance(packet, GatewayInfo):
        return frame(GWINFO, BYTE[packet.gateway_id] + packet.address)
    raise UsageError(f"MQTT-SN 2.0 has no packet {type(packet).__name__}")


def encode_connect(packet: Connect) -> bytes:
    flags = CLEAN_FLAG if packet.clean_start else 0
    will = packet.will
    method = packet.auth_method
    if will is not None:
        flags |= WILL_FLAG
    if method is not None:
        flags |= AUTH_FLAG
    if packet.expiry_s != NONE:
        flags |= EXPIRY_FLAG
    if packet.awake_messages != NONE:
        flags |= AWAKE_FLAG
    if packet.may_move:
        flags |= MOVE_FLAG
    if packet.takes_suggestions:
        flags |= SUGGESTIONS_FLAG
    pieces = [BYTE[flags]]
    if will is not None:
        pieces.append(BYTE[will.topic_type | will.qos << 2 | (0x10 if will.retain else 0)])
    pieces.append(encode_u16(packet.packet_id))
    pieces.append(BYTE[packet.version])
    pieces.append(encode_u16(packet.keep_alive_s))
    pieces.append(encode_u16(packet.max_packet_size))
    if packet.awake_messages != NONE:
        pieces.append(BYTE[packet.awake_messages])
    if packet.expiry_s != NONE:
        pieces.append(encode_u32(packet.expiry_s))
    if will is not None:
        pieces.append(topic_field(will.topic_type, will.topic_id, will.topic))
        pieces.append(encode_binary(will.payload))
    if method is not None:
        pieces.append(short_text(method))
        pieces.append(encode_binary(packet.auth_data))
    pieces.append(packet.client_id.encode())
    return frame(CONNECT, b"".join(pieces))


def encode_connack(packet: ConnAck) -> bytes:
    flags = 1 if packet.session_present else 0
    rest = b""
    if packet.expiry_s != NONE:
        flags |= 2
        rest += encode_u32(packet.expiry_s)
    if packet.keep_alive_s != NONE:
        flags |= 4
        rest += encode_u16(packet.keep_alive_s)
    method = packet.auth_method
    if method is not None:
        flags |= 8
        rest += short_text(method) + encode_binary(packet.auth_data)
    head = BYTE[flags] + encode_u16(packet.packet_id) + BYTE[packet.reason]
    return frame(CONNACK, head + rest + packet.client_id.encode())


def encode_publish(packet: Publish) -> bytes:
    flags = packet.qos << 5 | packet.topic_type
    if packet.retain:
        flags |= 0x10
    if packet.dup:
        flags |= 0x80
    packet_id = encode_u16(packet.packet_id) if packet.qos > 0 else b""
    topic = topic_field(packet.topic_type, packet.topic_id, packet.topic)
    return frame(PUBLISH, BYTE[flags] + packet_id + topic + packet.payload)


def encode_disconnect(packet: Disconnect) -> bytes:
    flags = 0
    rest = b""
    if packet.packet_id != NONE:
        flags |= 1
        rest += encode_u16(packet.packet_id)
    if packet.expiry_s != NONE:
        flags |= 2
        rest += encode_u32(packet.expiry_s)
    if packet.reason != NONE:
        flags |= 4
        rest += BYTE[packet.reason]
    return frame(DISCONNECT, BYTE[flags] + rest + packet.text.encode())


def alias_field(topic_type: int, topic_id: int) -> tuple[bytes, bytes]:
    """The flags of SUBACK and REGACK, and the alias if there is one."""
    if topic_id == NONE:
        return BYTE[topic_type], b""
    return BYTE[topic_type | 4], encode_u16(topic_id)


def topic_field(topic_type: int, topic_id: int, topic: bytes) -> bytes:
    return encode_binary(topic) if topic_type == NAME else encode_u16(topic_id)


def filter_field(topic_type: int, topic_id: int, topic: bytes) -> bytes:
    return encode_u16(topic_id) if topic_type in (NORMAL, PREDEFINED) else topic


def short_text(text: str) -> bytes:
    """A string behind one byte of length: the name of an authentication method."""
    encoded = text.encode()
    if len(encoded) > 255:
        raise UsageError(f"authentication method has {len(encoded)} bytes, expected no more than 255")
    return BYTE[len(encoded)] + encoded
