"""`-d`: one line on stderr for each packet that a client sends or receives."""

import sys

from holdfast.protocol.mqtt.packets import (
    Ack,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    Publish,
    SubAck,
    Subscribe,
    Unsubscribe,
)

NAMES = (
    "reserved",
    "CONNECT",
    "CONNACK",
    "PUBLISH",
    "PUBACK",
    "PUBREC",
    "PUBREL",
    "PUBCOMP",
    "SUBSCRIBE",
    "SUBACK",
    "UNSUBSCRIBE",
    "UNSUBACK",
    "PINGREQ",
    "PINGRESP",
    "DISCONNECT",
    "AUTH",
)


def trace(direction: str, packet: Packet) -> None:
    print(f"{direction} {describe(packet)}", file=sys.stderr)


def describe(packet: Packet) -> str:
    detail = _detail(packet)
    return f"{NAMES[packet.kind]} ({detail})" if detail else NAMES[packet.kind]


def _detail(packet: Packet) -> str:
    if isinstance(packet, Publish):
        topic = packet.topic.decode("utf-8", "replace")
        flags = f"d{packet.dup:d}, q{packet.qos}, r{packet.retain:d}, m{packet.packet_id}"
        return f"{flags}, '{topic}', {len(packet.payload)} bytes"
    if isinstance(packet, Ack):
        return f"m{packet.packet_id}, reason 0x{packet.reason:02X}"
    if isinstance(packet, Connect):
        return f"'{packet.client_id}', clean {packet.clean_start:d}, keep alive {packet.keep_alive} s"
    if isinstance(packet, ConnAck):
        return f"session present {packet.session_present:d}, reason 0x{packet.reason:02X}"
    if isinstance(packet, Subscribe):
        filters = ", ".join(f"'{item.topic_filter.decode('utf-8', 'replace')}' q{item.qos}" for item in packet.requests)
        return f"m{packet.packet_id}, {filters}"
    if isinstance(packet, Unsubscribe):
        filters = ", ".join(f"'{item.decode('utf-8', 'replace')}'" for item in packet.topic_filters)
        return f"m{packet.packet_id}, {filters}"
    if isinstance(packet, SubAck):
        return ", ".join([f"m{packet.packet_id}", *(f"0x{reason:02X}" for reason in packet.reasons)])
    if isinstance(packet, Disconnect | Auth):
        return f"reason 0x{packet.reason:02X}"
    return ""
