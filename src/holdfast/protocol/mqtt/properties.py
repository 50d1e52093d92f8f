"""MQTT 5 properties: one class with a field for each, `None` where absent.

`forward` holds the properties of a PUBLISH (or will) that a server passes on unaltered and in order: payload format,
content type, response topic, correlation data and user properties, as the bytes that came in. What a server changes or
consumes (message expiry, topic alias, subscription identifier, will delay) is left out of it.

Two kinds of refusal, by section 2.2.2.2 and the clauses of each property: an identifier that is unknown or does not
belong in that packet is malformed (0x81); one given twice, or with a value the property may not have, is a protocol
error (0x82, or the more exact code where there is one).
"""

from typing import Final, final

from holdfast.errors import MalformedPacket, ProtocolError
from holdfast.protocol.wire import Reader, encode_binary, encode_text, encode_u16, encode_u32, encode_varint

PAYLOAD_FORMAT: Final = 0x01
MESSAGE_EXPIRY: Final = 0x02
CONTENT_TYPE: Final = 0x03
RESPONSE_TOPIC: Final = 0x08
CORRELATION_DATA: Final = 0x09
SUBSCRIPTION_ID: Final = 0x0B
SESSION_EXPIRY: Final = 0x11
ASSIGNED_CLIENT_ID: Final = 0x12
SERVER_KEEP_ALIVE: Final = 0x13
AUTH_METHOD: Final = 0x15
AUTH_DATA: Final = 0x16
REQUEST_PROBLEM_INFO: Final = 0x17
WILL_DELAY: Final = 0x18
REQUEST_RESPONSE_INFO: Final = 0x19
RESPONSE_INFO: Final = 0x1A
SERVER_REFERENCE: Final = 0x1C
REASON_STRING: Final = 0x1F
RECEIVE_MAXIMUM: Final = 0x21
TOPIC_ALIAS_MAXIMUM: Final = 0x22
TOPIC_ALIAS: Final = 0x23
MAXIMUM_QOS: Final = 0x24
RETAIN_AVAILABLE: Final = 0x25
USER_PROPERTY: Final = 0x26
MAXIMUM_PACKET_SIZE: Final = 0x27
WILDCARD_AVAILABLE: Final = 0x28
SUBSCRIPTION_ID_AVAILABLE: Final = 0x29
SHARED_AVAILABLE: Final = 0x2A

WILL: Final = 16  # where `kind` says which packet's properties these are: those of a will inside CONNECT

# Bit n stands for packet type n. The numbers are those of packets.py, which imports this file.
_CONNECT: Final = 1 << 1
_CONNACK: Final = 1 << 2
_PUBLISH: Final = 1 << 3
_ACKS: Final = 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 9 | 1 << 11
_SUBSCRIBE: Final = 1 << 8
_UNSUBSCRIBE: Final = 1 << 10
_DISCONNECT: Final = 1 << 14
_AUTH: Final = 1 << 15
_WILL: Final = 1 << WILL
_PUBLISH_KIND: Final = 3

_ALLOWED: Final[dict[int, int]] = {
    PAYLOAD_FORMAT: _PUBLISH | _WILL,
    MESSAGE_EXPIRY: _PUBLISH | _WILL,
    CONTENT_TYPE: _PUBLISH | _WILL,
    RESPONSE_TOPIC: _PUBLISH | _WILL,
    CORRELATION_DATA: _PUBLISH | _WILL,
    SUBSCRIPTION_ID: _PUBLISH | _SUBSCRIBE,
    SESSION_EXPIRY: _CONNECT | _CONNACK | _DISCONNECT,
    ASSIGNED_CLIENT_ID: _CONNACK,
    SERVER_KEEP_ALIVE: _CONNACK,
    AUTH_METHOD: _CONNECT | _CONNACK | _AUTH,
    AUTH_DATA: _CONNECT | _CONNACK | _AUTH,
    REQUEST_PROBLEM_INFO: _CONNECT,
    WILL_DELAY: _WILL,
    REQUEST_RESPONSE_INFO: _CONNECT,
    RESPONSE_INFO: _CONNACK,
    SERVER_REFERENCE: _CONNACK | _DISCONNECT,
    REASON_STRING: _CONNACK | _ACKS | _DISCONNECT | _AUTH,
    RECEIVE_MAXIMUM: _CONNECT | _CONNACK,
    TOPIC_ALIAS_MAXIMUM: _CONNECT | _CONNACK,
    TOPIC_ALIAS: _PUBLISH,
    MAXIMUM_QOS: _CONNACK,
    RETAIN_AVAILABLE: _CONNACK,
    USER_PROPERTY: _CONNECT | _CONNACK | _PUBLISH | _WILL | _ACKS | _SUBSCRIBE | _UNSUBSCRIBE | _DISCONNECT | _AUTH,
    MAXIMUM_PACKET_SIZE: _CONNECT | _CONNACK,
    WILDCARD_AVAILABLE: _CONNACK,
    SUBSCRIPTION_ID_AVAILABLE: _CONNACK,
    SHARED_AVAILABLE: _CONNACK,
}


@final
class Properties:
    def __init__(self) -> None:
        self.payload_format: int | None = None
        self.message_expiry: int | None = None
        self.content_type: str | None = None
        self.response_topic: bytes | None = None
        self.correlation_data: bytes | None = None
        self.subscription_ids: list[int] | None = None
        self.session_expiry: int | None = None
        self.assigned_client_id: str | None = None
        self.server_keep_alive: int | None = None
        self.auth_method: str | None = None
        self.auth_data: bytes | None = None
        self.request_problem_info: int | None = None
        self.will_delay: int | None = None
        self.request_response_info: int | None = None
        self.response_info: str | None = None
        self.server_reference: str | None = None
        self.reason_string: str | None = None
        self.receive_maximum: int | None = None
        self.topic_alias_maximum: int | None = None
        self.topic_alias: int | None = None
        self.maximum_qos: int | None = None
        self.retain_available: int | None = None
        self.user_properties: list[tuple[str, str]] | None = None
        self.maximum_packet_size: int | None = None
        self.wildcard_available: int | None = None
        self.subscription_id_available: int | None = None
        self.shared_available: int | None = None
        self.forward: bytes = b""

    def user_property(self, name: str) -> str | None:
        """The first user property of that name."""
        if self.user_properties is not None:
            for key, value in self.user_properties:
                if key == name:
                    return value
        return None


def decode_properties(reader: Reader, kind: int) -> Properties | None:
    """Read a property block of that packet type (or `WILL`); `None` when it is empty."""
    size = reader.varint()
    if size == 0:
        return None
    block_end = reader.position + size
    packet_end = reader.end
    if block_end > packet_end:
        raise MalformedPacket(f"property length is {size}, but only {packet_end - reader.position} bytes follow")
    reader.end = block_end
    properties = Properties()
    forwards = kind in (_PUBLISH_KIND, WILL)
    pieces: list[bytes] = []
    run_start = -1  # where the current run of forwardable properties began
    kind_bit = 1 << kind
    seen = 0
    while reader.position < block_end:
        start = reader.position
        identifier = reader.varint()
        if _ALLOWED.get(identifier, 0) & kind_bit == 0:
            raise MalformedPacket(f"property 0x{identifier:02X} does not belong in this packet")
        bit = 1 << identifier
        if seen & bit and identifier != USER_PROPERTY:
            if identifier != SUBSCRIPTION_ID or kind != _PUBLISH_KIND:
                raise ProtocolError(f"property 0x{identifier:02X} stands twice, expected once")
        seen |= bit
        if forwards:
            if _decode_publish_property(reader, identifier, properties):
                if run_start < 0:
                    run_start = start
            elif run_start >= 0:
                pieces.append(reader.data[run_start:start])
                run_start = -1
        else:
            _decode_property(reader, identifier, properties)
    if run_start >= 0:
        pieces.append(reader.data[run_start:block_end])
    if len(pieces) == 1:
        properties.forward = pieces[0]
    elif pieces:
        properties.forward = b"".join(pieces)
    if properties.auth_data is not None and properties.auth_method is None:
        raise ProtocolError("authentication data without an authentication method")
    reader.end = packet_end
    return properties


def _decode_publish_property(reader: Reader, identifier: int, properties: Properties) -> bool:
    """Read one property of a PUBLISH or a will; whether it is one that is passed on."""
    if identifier == USER_PROPERTY:
        _add_user_property(reader, properties)
        return True
    if identifier == MESSAGE_EXPIRY:
        properties.message_expiry = reader.u32()
        return False
    if identifier == TOPIC_ALIAS:
        properties.topic_alias = reader.u16()
        if properties.topic_alias == 0:  # [5: MQTT-3.3.2-8]
            raise ProtocolError("topic alias is 0, expected 1 to 65535", 0x94)
        return False
    if identifier == SUBSCRIPTION_ID:
        _add_subscription_id(reader, properties)
        return False
    if identifier == WILL_DELAY:
        properties.will_delay = reader.u32()
        return False
    if identifier == PAYLOAD_FORMAT:
        properties.payload_format = _flag(reader, "payload format indicator")
    elif identifier == CONTENT_TYPE:
        properties.content_type = reader.text()
    elif identifier == CORRELATION_DATA:
        properties.correlation_data = reader.binary()
    else:
        assert identifier == RESPONSE_TOPIC
        topic = reader.utf8()
        if b"#" in topic or b"+" in topic:  # [5: MQTT-3.3.2-14]
            raise ProtocolError("response topic contains a wildcard")
        properties.response_topic = topic
    return True


def _decode_property(reader: Reader, identifier: int, properties: Properties) -> None:
    """Read one property of any packet but PUBLISH."""
    if identifier == USER_PROPERTY:
        _add_user_property(reader, properties)
    elif identifier == SUBSCRIPTION_ID:
        _add_subscription_id(reader, properties)
    elif identifier == REASON_STRING:
        properties.reason_string = reader.text()
    elif identifier == SESSION_EXPIRY:
        properties.session_expiry = reader.u32()
    elif identifier == RECEIVE_MAXIMUM:
        properties.receive_maximum = _non_zero(reader.u16(), "receive maximum")
    elif identifier == MAXIMUM_PACKET_SIZE:
        properties.maximum_packet_size = _non_zero(reader.u32(), "maximum packet size")
    elif identifier == TOPIC_ALIAS_MAXIMUM:
        properties.topic_alias_maximum = reader.u16()
    elif identifier == REQUEST_PROBLEM_INFO:
        properties.request_problem_info = _flag(reader, "request problem information")
    elif identifier == REQUEST_RESPONSE_INFO:
        properties.request_response_info = _flag(reader, "request response information")
    elif identifier == AUTH_METHOD:
        properties.auth_method = reader.text()
    elif identifier == AUTH_DATA:
        properties.auth_data = reader.binary()
    else:
        _decode_server_property(reader, identifier, properties)


def _decode_server_property(reader: Reader, identifier: int, properties: Properties) -> None:
    """Read one of those that only a server sends."""
    if identifier == ASSIGNED_CLIENT_ID:
        properties.assigned_client_id = reader.text()
    elif identifier == SERVER_KEEP_ALIVE:
        properties.server_keep_alive = reader.u16()
    elif identifier == RESPONSE_INFO:
        properties.response_info = reader.text()
    elif identifier == SERVER_REFERENCE:
        properties.server_reference = reader.text()
    elif identifier == MAXIMUM_QOS:
        properties.maximum_qos = _flag(reader, "maximum QoS")
    elif identifier == RETAIN_AVAILABLE:
        properties.retain_available = _flag(reader, "retain available")
    elif identifier == WILDCARD_AVAILABLE:
        properties.wildcard_available = _flag(reader, "wildcard subscription available")
    elif identifier == SUBSCRIPTION_ID_AVAILABLE:
        properties.subscription_id_available = _flag(reader, "subscription identifiers available")
    else:
        assert identifier == SHARED_AVAILABLE
        properties.shared_available = _flag(reader, "shared subscription available")


def _add_user_property(reader: Reader, properties: Properties) -> None:
    key = reader.text()  # [5: MQTT-1.5.7-1]
    value = reader.text()
    pairs = properties.user_properties
    if pairs is None:
        properties.user_properties = [(key, value)]
    else:
        pairs.append((key, value))


def _add_subscription_id(reader: Reader, properties: Properties) -> None:
    subscription_id = _non_zero(reader.varint(), "subscription identifier")
    ids = properties.subscription_ids
    if ids is None:
        properties.subscription_ids = [subscription_id]
    else:
        ids.append(subscription_id)


def _flag(reader: Reader, name: str) -> int:
    value = reader.u8()
    if value > 1:
        raise ProtocolError(f"{name} is {value}, expected 0 or 1")
    return value


def _non_zero(value: int, name: str) -> int:
    if value == 0:
        raise ProtocolError(f"{name} is 0, expected at least 1")
    return value


def encode_properties(properties: Properties | None) -> bytes:
    """The block with its length in front; an absent one is a single zero [5: MQTT-2.2.2-1].

    Where `forward` is set it is written as it stands, in place of the fields it holds: what came in goes out unaltered
    and in order. To change such a field of decoded properties, empty `forward` first.
    """
    if properties is None:
        return b"\x00"
    parts: list[bytes] = []
    _encode_message_properties(properties, parts)
    _encode_session_properties(properties, parts)
    if properties.forward:
        parts.append(properties.forward)
    elif properties.user_properties is not None:
        for key, value in properties.user_properties:
            parts.append(b"\x26" + encode_text(key) + encode_text(value))
    block = b"".join(parts)
    return encode_varint(len(block)) + block


def _encode_message_properties(p: Properties, parts: list[bytes]) -> None:
    if p.topic_alias is not None:
        parts.append(b"\x23" + encode_u16(p.topic_alias))
    if p.message_expiry is not None:
        parts.append(b"\x02" + encode_u32(p.message_expiry))
    if p.will_delay is not None:
        parts.append(b"\x18" + encode_u32(p.will_delay))
    if p.subscription_ids is not None:
        for subscription_id in p.subscription_ids:
            parts.append(b"\x0b" + encode_varint(subscription_id))
    if p.forward:
        return
    if p.payload_format is not None:
        parts.append(bytes((PAYLOAD_FORMAT, p.payload_format)))
    if p.content_type is not None:
        parts.append(b"\x03" + encode_text(p.content_type))
    if p.response_topic is not None:
        parts.append(b"\x08" + encode_binary(p.response_topic))
    if p.correlation_data is not None:
        parts.append(b"\x09" + encode_binary(p.correlation_data))


def _encode_session_properties(p: Properties, parts: list[bytes]) -> None:
    if p.session_expiry is not None:
        parts.append(b"\x11" + encode_u32(p.session_expiry))
    if p.assigned_client_id is not None:
        parts.append(b"\x12" + encode_text(p.assigned_client_id))
    if p.server_keep_alive is not None:
        parts.append(b"\x13" + encode_u16(p.server_keep_alive))
    if p.auth_method is not None:
        parts.append(b"\x15" + encode_text(p.auth_method))
    if p.auth_data is not None:
        parts.append(b"\x16" + encode_binary(p.auth_data))
    if p.request_problem_info is not None:
        parts.append(bytes((REQUEST_PROBLEM_INFO, p.request_problem_info)))
    if p.request_response_info is not None:
        parts.append(bytes((REQUEST_RESPONSE_INFO, p.request_response_info)))
    if p.response_info is not None:
        parts.append(b"\x1a" + encode_text(p.response_info))
    if p.server_reference is not None:
        parts.append(b"\x1c" + encode_text(p.server_reference))
    if p.reason_string is not None:
        parts.append(b"\x1f" + encode_text(p.reason_string))
    if p.receive_maximum is not None:
        parts.append(b"\x21" + encode_u16(p.receive_maximum))
    if p.topic_alias_maximum is not None:
        parts.append(b"\x22" + encode_u16(p.topic_alias_maximum))
    if p.maximum_qos is not None:
        parts.append(bytes((MAXIMUM_QOS, p.maximum_qos)))
    if p.retain_available is not None:
        parts.append(bytes((RETAIN_AVAILABLE, p.retain_available)))
    if p.maximum_packet_size is not None:
        parts.append(b"\x27" + encode_u32(p.maximum_packet_size))
    if p.wildcard_available is not None:
        parts.append(bytes((WILDCARD_AVAILABLE, p.wildcard_available)))
    if p.subscription_id_available is not None:
        parts.append(bytes((SUBSCRIPTION_ID_AVAILABLE, p.subscription_id_available)))
    if p.shared_available is not None:
        parts.append(bytes((SHARED_AVAILABLE, p.shared_available)))
