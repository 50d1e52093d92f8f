"""MQTT-SN 2.0: bytes to packets. A `Reader` is bound to the datagram, so running out of bytes means malformed."""

from holdfast.errors import MalformedPacket, ProtocolError
from holdfast.protocol.mqtt.reasons import UNSUPPORTED_PROTOCOL_VERSION
from holdfast.protocol.sn.frame import check_frame, read_name
from holdfast.protocol.sn.packets import (
    NAME,
    NONE,
    PREDEFINED,
    SHORT,
    WAKE_UP,
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
    Will,
)
from holdfast.protocol.sn.v2_types import (
    ACK_KINDS,
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
    MIN_PACKET_SIZE,
    MOVE_FLAG,
    PINGREQ,
    PINGRESP,
    PROTOCOL_VERSION,
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
from holdfast.protocol.wire import Reader, decode_text


def decode(data: bytes) -> Packet:
    """Return the packet that a datagram is; raises ProtocolError when 2.0 has no such packet, as for encapsulations."""
    body = check_frame(data)
    kind = data[body - 1]
    reader = Reader(data, body)
    if kind == PUBLISH:
        return decode_publish(reader)
    if kind in ACK_KINDS:
        packet: Packet = Ack(ACK_KINDS[kind], read_packet_id(reader), optional_reason(reader))
    elif kind == PINGREQ:
        packet = PingRequest(read_packet_id(reader))
    elif kind == REGISTER:
        packet = decode_register(reader)
    elif kind == REGACK:
        packet = decode_regack(reader)
    elif kind == SUBSCRIBE:
        packet = decode_subscribe(reader)
    elif kind == UNSUBSCRIBE:
        flags = read_flags(reader, 0xFC, "UNSUBSCRIBE")  # [SN2: 3.9.2-2]
        packet_id = read_packet_id(reader)
        topic_id, topic = read_filter(reader, flags & 3)
        packet = Unsubscribe(packet_id, flags & 3, topic_id, topic)
    elif kind == CONNECT:
        packet = decode_connect(reader)
    elif kind == DISCONNECT:
        packet = decode_disconnect(reader)
    else:
        packet = decode_rare(kind, reader)
    reader.finish(f"packet of type 0x{kind:02X}")
    return packet


def decode_rare(kind: int, reader: Reader) -> Packet:
    if kind == PUBWOS:
        return decode_pubwos(reader)
    if kind == SLEEPREQ:
        flags = read_flags(reader, 0xFE, "SLEEPREQ")  # [SN2: 3.15.2-2]
        packet_id = read_packet_id(reader)
        duration_s = reader.u32()
        if duration_s == 0:  # [SN2: 3.15.4-1]
            raise ProtocolError("sleep duration is 0, expected more")
        return SleepRequest(packet_id, duration_s, flags & 1 != 0)
    if kind == SLEEPRESP:
        flags = read_flags(reader, 0xFE, "SLEEPRESP")
        packet_id = read_packet_id(reader)
        duration_s = reader.u32() if flags & 1 else NONE
        return SleepResponse(packet_id, optional_reason(reader), duration_s)
    if kind == AUTH:
        packet_id = read_packet_id(reader)
        reason = reader.u8()
        method = decode_text(reader.take(reader.u8()))
        return Auth(packet_id, reason, method, reader.rest())
    if kind == CONNACK:
        return decode_connack(reader)
    if kind == SUBACK:
        return decode_suback(reader)
    if kind == PINGRESP:
        packet_id = read_packet_id(reader)
        return PingResponse(packet_id, reader.u8() if reader.remaining() > 0 else NONE)
    if kind == WAKEUP:
        return Bare(WAKE_UP)
    if kind == ADVERTISE:
        gateway_id = reader.u8()
        return Advertise(gateway_id, reader.u16())
    if kind == SEARCHGW:
        return SearchGateway(0, reader.rest())
    if kind == GWINFO:
        gateway_id = reader.u8()
        return GatewayInfo(gateway_id, reader.rest())
    raise MalformedPacket(f"packet type is 0x{kind:02X}, which MQTT-SN 2.0 does not have")


def decode_connect(reader: Reader) -> Connect:
    flags = read_flags(reader, 0x80, "CONNECT")  # [SN2: 3.1.2-1]
    will_flags = read_flags(reader, 0xE0, "the will") if flags & WILL_FLAG else 0
    packet_id = read_packet_id(reader)
    version = reader.u8()
    if version != PROTOCOL_VERSION:  # [SN2: 3.1.5-2]
        raise ProtocolError(f"protocol version is {version}, expected 2", UNSUPPORTED_PROTOCOL_VERSION)
    keep_alive_s = reader.u16()
    if keep_alive_s == 0:  # [SN2: 3.1.6-4]
        raise ProtocolError("keep alive is 0, expected 1 to 65535")
    max_packet_size = reader.u16()
    if 0 < max_packet_size < MIN_PACKET_SIZE:  # [SN2: 3.1.7-1]
        raise ProtocolError(f"maximum packet size is {max_packet_size}, expected 0 or at least {MIN_PACKET_SIZE}")
    packet = Connect("", version, flags & CLEAN_FLAG != 0, keep_alive_s)
    packet.packet_id = packet_id
    packet.max_packet_size = max_packet_size
    packet.takes_suggestions = flags & SUGGESTIONS_FLAG != 0
    packet.may_move = flags & MOVE_FLAG != 0
    if flags & AWAKE_FLAG:
        packet.awake_messages = reader.u8()
    if flags & EXPIRY_FLAG:
        packet.expiry_s = reader.u32()
    if flags & WILL_FLAG:
        packet.will = decode_will(reader, will_flags)
    if flags & AUTH_FLAG:
        packet.auth_method = decode_text(reader.take(reader.u8()))
        packet.auth_data = reader.binary()
    packet.client_id = decode_text(reader.rest())  # [SN2: 3.1.18-1]
    return packet


def decode_will(reader: Reader, flags: int) -> Will:
    qos = flags >> 2 & 3
    if qos == 3:
        raise MalformedPacket("QoS of the will is 3, expected 0, 1 or 2")
    topic_type = check_topic_type(flags & 3)
    topic_id, topic = read_topic(reader, topic_type)
    return Will(topic_type, topic_id, topic, reader.binary(), qos, flags & 0x10 != 0)


def decode_connack(reader: Reader) -> ConnAck:
    flags = read_flags(reader, 0xF0, "CONNACK")
    packet_id = reader.u16()
    packet = ConnAck(reader.u8(), packet_id, flags & 1 != 0)
    if flags & 2:
        packet.expiry_s = reader.u32()
    if flags & 4:
        packet.keep_alive_s = reader.u16()
    if flags & 8:
        packet.auth_method = decode_text(reader.take(reader.u8()))
        packet.auth_data = reader.binary()
    packet.client_id = decode_text(reader.rest())
    return packet


def decode_publish(reader: Reader) -> Publish:
    flags = read_flags(reader, 0x0C, "PUBLISH")  # [SN2: 3.6.2.2-2]
    qos = flags >> 5 & 3
    if qos == 3:
        raise MalformedPacket("QoS is 3, expected 0, 1 or 2")
    dup = flags & 0x80 != 0
    if dup and qos < 2:  # [SN2: 3.6.2.2.3-1]
        raise ProtocolError(f"DUP is set at QoS {qos}, expected it at QoS 2 alone")
    topic_type = check_topic_type(flags & 3)
    packet_id = read_packet_id(reader) if qos > 0 else 0
    topic_id, topic = read_topic(reader, topic_type)
    return Publish(topic_type, topic_id, topic, reader.rest(), qos, flags & 0x10 != 0, dup, packet_id)


def decode_pubwos(reader: Reader) -> PublishWithoutSession:
    flags = read_flags(reader, 0xEC, "PUBWOS")  # [SN2: 3.6.1.2-2]
    topic_type = flags & 3
    if topic_type not in (PREDEFINED, NAME):  # [SN2: 3.6.1.2.1-1]
        raise MalformedPacket(f"topic type is {topic_type}, expected a predefined alias or a topic name")
    topic_id, topic = read_topic(reader, topic_type)
    return PublishWithoutSession(topic_type, topic_id, topic, reader.rest(), flags & 0x10 != 0)


def decode_register(reader: Reader) -> Register:
    flags = read_flags(reader, 0xFE, "REGISTER")  # [SN2: 3.4.2-2]
    packet_id = read_packet_id(reader)
    topic_id = reader.u16() if flags & 1 else NONE
    return Register(topic_id, packet_id, read_name(reader, reader.remaining()))


def decode_regack(reader: Reader) -> RegAck:
    flags = read_flags(reader, 0xF8, "REGACK")  # [SN2: 3.5.2-2]
    topic_type = flags & 3
    if topic_type > PREDEFINED:  # [SN2: 3.5.2.1-1]
        raise MalformedPacket(f"topic type of REGACK is {topic_type}, expected 0 or 1")
    packet_id = read_packet_id(reader)
    topic_id = reader.u16() if flags & 4 else NONE
    return RegAck(topic_id, packet_id, optional_reason(reader), topic_type)


def decode_subscribe(reader: Reader) -> Subscribe:
    flags = reader.u8()
    packet_id = read_packet_id(reader)
    qos = flags >> 5 & 3
    retain_handling = flags >> 2 & 3
    if qos == 3:
        raise ProtocolError("QoS is 3, expected 0, 1 or 2")
    if retain_handling == 3:
        raise ProtocolError("Retain Handling is 3, expected 0, 1 or 2")
    topic_id, topic = read_filter(reader, flags & 3)
    packet = Subscribe(packet_id, flags & 3, topic_id, topic, qos)
    packet.no_local = flags & 0x80 != 0
    packet.retain_as_published = flags & 0x10 != 0
    packet.retain_handling = retain_handling
    return packet


def decode_suback(reader: Reader) -> SubAck:
    flags = read_flags(reader, 0xF8, "SUBACK")
    topic_type = flags & 3
    if topic_type > PREDEFINED or (topic_type != PREDEFINED and not flags & 4):  # [SN2: 3.8.2.1-2]
        raise MalformedPacket(f"topic type of SUBACK is {topic_type}, expected 1, or 0 with a topic alias")
    packet_id = read_packet_id(reader)
    topic_id = reader.u16() if flags & 4 else NONE
    reason = optional_reason(reader)
    return SubAck(packet_id, topic_type, topic_id, reason, reason if reason <= 2 else 0)


def decode_disconnect(reader: Reader) -> Disconnect:
    if reader.remaining() == 0:
        raise MalformedPacket("DISCONNECT has no flags")
    flags = read_flags(reader, 0xF8, "DISCONNECT")  # [SN2: 3.13.2-2]
    packet_id = reader.u16() if flags & 1 else NONE
    expiry_s = reader.u32() if flags & 2 else NONE
    reason = reader.u8() if flags & 4 else NONE
    return Disconnect(NONE, reason, packet_id, expiry_s, decode_text(reader.rest()))


def read_flags(reader: Reader, reserved: int, what: str) -> int:
    flags = reader.u8()
    if flags & reserved:
        raise MalformedPacket(f"reserved flags of {what} are 0x{flags & reserved:02X}, expected 0")
    return flags


def read_packet_id(reader: Reader) -> int:
    packet_id = reader.u16()
    if packet_id == 0:  # [SN2: 2.2-1]
        raise ProtocolError("packet identifier is 0, expected 1 to 65535")
    return packet_id


def check_topic_type(topic_type: int) -> int:
    if topic_type == SHORT:
        raise MalformedPacket("topic type is 2, which is reserved")
    return topic_type


def read_topic(reader: Reader, topic_type: int) -> tuple[int, bytes]:
    """Return the alias and the name of a topic, of which one is 0 or empty."""
    alias_or_size = reader.u16()
    if topic_type == NAME:
        return 0, read_name(reader, alias_or_size)
    return alias_or_size, b""


def read_filter(reader: Reader, topic_type: int) -> tuple[int, bytes]:
    """Return the alias and the text of a topic filter, of which one is 0 or empty."""
    if check_topic_type(topic_type) == NAME:
        return 0, read_name(reader, reader.remaining())
    return reader.u16(), b""


def optional_reason(reader: Reader) -> int:
    """Return the reason code, which means success where it is left out."""
    return reader.u8() if reader.remaining() > 0 else 0
