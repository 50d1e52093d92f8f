"""MQTT-SN 1.2 on the wire: bytes to packets and back."""

from typing import Final

from holdfast.errors import MalformedPacket, ProtocolError, UsageError
from holdfast.protocol.sn.frame import check_frame, frame, read_name
from holdfast.protocol.sn.packets import (
    NAME,
    NONE,
    NORMAL,
    PREDEFINED,
    SHORT,
    UNSUBACK,
    WILL_MESSAGE_REQUEST,
    WILL_TOPIC_REQUEST,
    Ack,
    Advertise,
    Bare,
    ConnAck,
    Connect,
    Disconnect,
    GatewayInfo,
    Packet,
    PingRequest,
    PingResponse,
    Publish,
    RegAck,
    Register,
    SearchGateway,
    SubAck,
    Subscribe,
    Unsubscribe,
    WillMessage,
    WillResponse,
    WillTopic,
)
from holdfast.protocol.sn.packets import PUBACK as PUBACK_ACK
from holdfast.protocol.sn.packets import PUBCOMP as PUBCOMP_ACK
from holdfast.protocol.sn.packets import PUBREC as PUBREC_ACK
from holdfast.protocol.sn.packets import PUBREL as PUBREL_ACK
from holdfast.protocol.wire import BYTE, Reader, decode_text, encode_u16

ADVERTISE: Final = 0x00
SEARCHGW: Final = 0x01
GWINFO: Final = 0x02
CONNECT: Final = 0x04
CONNACK: Final = 0x05
WILLTOPICREQ: Final = 0x06
WILLTOPIC: Final = 0x07
WILLMSGREQ: Final = 0x08
WILLMSG: Final = 0x09
REGISTER: Final = 0x0A
REGACK: Final = 0x0B
PUBLISH: Final = 0x0C
PUBACK: Final = 0x0D
PUBCOMP: Final = 0x0E
PUBREC: Final = 0x0F
PUBREL: Final = 0x10
SUBSCRIBE: Final = 0x12
SUBACK: Final = 0x13
UNSUBSCRIBE: Final = 0x14
UNSUBACK_TYPE: Final = 0x15
PINGREQ: Final = 0x16
PINGRESP: Final = 0x17
DISCONNECT: Final = 0x18
WILLTOPICUPD: Final = 0x1A
WILLTOPICRESP: Final = 0x1B
WILLMSGUPD: Final = 0x1C
WILLMSGRESP: Final = 0x1D

ACCEPTED: Final = 0x00
CONGESTION: Final = 0x01
INVALID_TOPIC_ID: Final = 0x02
NOT_SUPPORTED: Final = 0x03

PROTOCOL_ID: Final = 1

DUP_FLAG: Final = 0x80
RETAIN_FLAG: Final = 0x10
WILL_FLAG: Final = 0x08
CLEAN_FLAG: Final = 0x04

_ACK_TYPES: Final = {PUBREC_ACK: PUBREC, PUBREL_ACK: PUBREL, PUBCOMP_ACK: PUBCOMP, UNSUBACK: UNSUBACK_TYPE}
_ACK_KINDS: Final = {PUBREC: PUBREC_ACK, PUBREL: PUBREL_ACK, PUBCOMP: PUBCOMP_ACK, UNSUBACK_TYPE: UNSUBACK}


def decode(data: bytes) -> Packet:
    """Return the packet that a datagram is; raises ProtocolError when 1.2 has no such packet."""
    body = check_frame(data)
    kind = data[body - 1]
    reader = Reader(data, body)
    if kind == PUBLISH:
        return decode_publish(reader)
    if kind == PUBACK:
        topic_id = reader.u16()
        packet_id = reader.u16()
        packet: Packet = Ack(PUBACK_ACK, packet_id, reader.u8(), topic_id)
    elif kind in _ACK_KINDS:
        packet = Ack(_ACK_KINDS[kind], reader.u16())
    elif kind == PINGREQ:
        packet = PingRequest(0, decode_text(reader.rest()))
    elif kind == PINGRESP:
        packet = PingResponse()
    elif kind == REGISTER:
        topic_id = reader.u16()
        packet_id = reader.u16()
        packet = Register(topic_id, packet_id, read_name(reader, reader.remaining()))
    elif kind == REGACK:
        topic_id = reader.u16()
        packet_id = reader.u16()
        packet = RegAck(topic_id, packet_id, reader.u8())
    elif kind == SUBSCRIBE:
        packet = decode_subscribe(reader)
    elif kind == UNSUBSCRIBE:
        packet = decode_unsubscribe(reader)
    else:
        packet = decode_rare(kind, reader)
    reader.finish(f"message of type 0x{kind:02X}")
    return packet


def decode_rare(kind: int, reader: Reader) -> Packet:
    if kind == CONNECT:
        return decode_connect(reader)
    if kind == DISCONNECT:
        return Disconnect(reader.u16() if reader.remaining() > 0 else NONE)
    if kind in (WILLTOPIC, WILLTOPICUPD):
        if reader.remaining() == 0:
            return WillTopic(b"", update=kind == WILLTOPICUPD)
        flags = reader.u8()
        return WillTopic(
            read_name(reader, reader.remaining()), connected_qos(flags), flags & RETAIN_FLAG != 0, kind == WILLTOPICUPD
        )
    if kind in (WILLMSG, WILLMSGUPD):
        return WillMessage(reader.rest(), kind == WILLMSGUPD)
    if kind in (WILLTOPICRESP, WILLMSGRESP):
        return WillResponse(kind == WILLTOPICRESP, reader.u8())
    if kind == WILLTOPICREQ:
        return Bare(WILL_TOPIC_REQUEST)
    if kind == WILLMSGREQ:
        return Bare(WILL_MESSAGE_REQUEST)
    if kind == CONNACK:
        return ConnAck(reader.u8())
    if kind == SUBACK:
        flags = reader.u8()
        topic_id = reader.u16()
        packet_id = reader.u16()
        return SubAck(packet_id, NORMAL, topic_id, reader.u8(), flags >> 5 & 3)
    if kind == ADVERTISE:
        gateway_id = reader.u8()
        return Advertise(gateway_id, reader.u16())
    if kind == SEARCHGW:
        return SearchGateway(reader.u8())
    if kind == GWINFO:
        gateway_id = reader.u8()
        return GatewayInfo(gateway_id, reader.rest())
    raise MalformedPacket(f"message type is 0x{kind:02X}, which MQTT-SN 1.2 does not have")


def decode_connect(reader: Reader) -> Connect:
    flags = reader.u8()
    version = reader.u8()
    keep_alive_s = reader.u16()
    client_id = decode_text(reader.rest())
    packet = Connect(client_id, version, flags & CLEAN_FLAG != 0, keep_alive_s)
    packet.asks_for_will = flags & WILL_FLAG != 0
    return packet


def decode_publish(reader: Reader) -> Publish:
    flags = reader.u8()
    topic_type = flags & 3
    if topic_type == NAME:
        raise MalformedPacket("topic id type is 3, expected 0, 1 or 2")
    topic_id = reader.u16()
    packet_id = reader.u16()
    qos = flags >> 5 & 3
    topic = encode_u16(topic_id) if topic_type == SHORT else b""
    return Publish(
        topic_type,
        topic_id,
        topic,
        reader.rest(),
        qos if qos < 3 else -1,
        flags & RETAIN_FLAG != 0,
        flags & DUP_FLAG != 0,
        packet_id,
    )


def decode_subscribe(reader: Reader) -> Subscribe:
    flags = reader.u8()
    packet_id = reader.u16()
    topic_type = flags & 3
    topic_id, topic = read_filter(reader, topic_type)
    packet = Subscribe(packet_id, topic_type, topic_id, topic, connected_qos(flags))
    packet.dup = flags & DUP_FLAG != 0
    return packet


def decode_unsubscribe(reader: Reader) -> Unsubscribe:
    flags = reader.u8()
    packet_id = reader.u16()
    topic_id, topic = read_filter(reader, flags & 3)
    return Unsubscribe(packet_id, flags & 3, topic_id, topic)


def read_filter(reader: Reader, topic_type: int) -> tuple[int, bytes]:
    """Return the id and the text of what is subscribed to: a name for type 0, an id for 1, two letters for 2."""
    if topic_type == NORMAL:
        return 0, read_name(reader, reader.remaining())
    if topic_type == PREDEFINED:
        return reader.u16(), b""
    if topic_type == SHORT:
        topic = read_name(reader, 2)
        return topic[0] << 8 | topic[1], topic
    raise MalformedPacket("topic id type is 3, expected 0, 1 or 2")


def connected_qos(flags: int) -> int:
    """Return the QoS, which may not be -1: that is for publishing without a connection and nothing else."""
    qos = flags >> 5 & 3
    if qos == 3:
        raise ProtocolError("QoS is -1, expected 0, 1 or 2")
    return qos


def encode(packet: Packet) -> bytes:
    if isinstance(packet, Publish):
        return encode_publish(packet)
    if isinstance(packet, Ack):
        if packet.kind == PUBACK_ACK:
            return encode_puback(packet.topic_id, packet.packet_id, packet.reason)
        return frame(_ACK_TYPES[packet.kind], encode_u16(packet.packet_id))
    if isinstance(packet, RegAck):
        return frame(REGACK, encode_u16(packet.topic_id) + encode_u16(packet.packet_id) + BYTE[packet.reason])
    if isinstance(packet, Register):
        return frame(REGISTER, encode_u16(packet.topic_id) + encode_u16(packet.packet_id) + packet.topic)
    if isinstance(packet, Subscribe):
        flags = packet.qos << 5 | packet.topic_type | (DUP_FLAG if packet.dup else 0)
        what = filter_field(packet.topic_type, packet.topic_id, packet.topic)
        return frame(SUBSCRIBE, BYTE[flags] + encode_u16(packet.packet_id) + what)
    if isinstance(packet, Unsubscribe):
        what = filter_field(packet.topic_type, packet.topic_id, packet.topic)
        return frame(UNSUBSCRIBE, BYTE[packet.topic_type] + encode_u16(packet.packet_id) + what)
    if isinstance(packet, SubAck):
        ids = encode_u16(packet.topic_id) + encode_u16(packet.packet_id)
        return frame(SUBACK, BYTE[packet.qos << 5] + ids + BYTE[packet.reason])
    if isinstance(packet, PingRequest):
        return frame(PINGREQ, packet.client_id.encode())
    if isinstance(packet, PingResponse):
        return frame(PINGRESP, b"")
    if isinstance(packet, Disconnect):
        return frame(DISCONNECT, b"" if packet.duration_s == NONE else encode_u16(packet.duration_s))
    return encode_rare(packet)


def encode_rare(packet: Packet) -> bytes:
    if isinstance(packet, Connect):
        flags = (WILL_FLAG if packet.asks_for_will else 0) | (CLEAN_FLAG if packet.clean_start else 0)
        head = BYTE[flags] + BYTE[packet.version] + encode_u16(packet.keep_alive_s)
        return frame(CONNECT, head + packet.client_id.encode())
    if isinstance(packet, ConnAck):
        return frame(CONNACK, BYTE[packet.reason])
    if isinstance(packet, WillTopic):
        kind = WILLTOPICUPD if packet.update else WILLTOPIC
        if not packet.topic:
            return frame(kind, b"")
        flags = packet.qos << 5 | (RETAIN_FLAG if packet.retain else 0)
        return frame(kind, BYTE[flags] + packet.topic)
    if isinstance(packet, WillMessage):
        return frame(WILLMSGUPD if packet.update else WILLMSG, packet.payload)
    if isinstance(packet, WillResponse):
        return frame(WILLTOPICRESP if packet.of_topic else WILLMSGRESP, BYTE[packet.reason])
    if isinstance(packet, Bare):
        return frame(WILLTOPICREQ if packet.kind == WILL_TOPIC_REQUEST else WILLMSGREQ, b"")
    if isinstance(packet, Advertise):
        return frame(ADVERTISE, BYTE[packet.gateway_id] + encode_u16(packet.duration_s))
    if isinstance(packet, SearchGateway):
        return frame(SEARCHGW, BYTE[packet.radius])
    if isinstance(packet, GatewayInfo):
        return frame(GWINFO, BYTE[packet.gateway_id] + packet.address)
    raise UsageError(f"MQTT-SN 1.2 has no packet {type(packet).__name__}")


def encode_publish(packet: Publish) -> bytes:
    flags = (packet.qos & 3) << 5 | packet.topic_type
    if packet.retain:
        flags |= RETAIN_FLAG
    if packet.dup:
        flags |= DUP_FLAG
    return frame(PUBLISH, BYTE[flags] + encode_u16(packet.topic_id) + encode_u16(packet.packet_id) + packet.payload)


def encode_puback(topic_id: int, packet_id: int, reason: int) -> bytes:
    return frame(PUBACK, encode_u16(topic_id) + encode_u16(packet_id) + BYTE[reason])


def filter_field(topic_type: int, topic_id: int, topic: bytes) -> bytes:
    return topic if topic_type == NORMAL else encode_u16(topic_id)
