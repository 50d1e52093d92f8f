"""Messages as JSON shows them: retained ones, and rows of the history, which are messages with an outcome."""

import base64
from datetime import UTC, datetime
from typing import Any

from holdfast.broker.message import Message
from holdfast.errors import ProtocolError
from holdfast.history.messages import message_of
from holdfast.protocol.mqtt.packets import PUBLISH
from holdfast.protocol.mqtt.properties import Properties, decode_properties, encode_properties
from holdfast.protocol.wire import Reader, encode_varint
from holdfast.service.caller import OPERATOR, Caller

PREVIEW = 160


def iso(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def summary_of(message: Message, caller: Caller = OPERATOR) -> dict[str, object]:
    """A message without its payload, as the caller may see it."""
    publisher = caller.publisher_of(message)
    expires_at_ms = message.expires_at_ms or None
    return {
        "topic": message.topic.decode(),
        "version": message.offset,
        "size": len(message.payload),
        "qos": message.qos,
        "stored_at": iso(message.stored_at_ms),
        "stored_at_ms": message.stored_at_ms,
        "expires_at": None if expires_at_ms is None else iso(expires_at_ms),
        "expires_at_ms": expires_at_ms,
        "publisher": {
            "client_id": publisher.client_id,
            "username": publisher.username,
            "protocol": publisher.protocol,
        },
        "preview": preview_of(message.payload),
    }


def whole_of(message: Message, caller: Caller = OPERATOR) -> dict[str, object]:
    """A message with everything it carries."""
    properties = decode_forwarded(message.properties)
    topic, data = properties.response_topic, properties.correlation_data
    return {
        **summary_of(message, caller),
        "payload": base64.b64encode(message.payload).decode(),
        "text": text_of(message.payload),
        "content_type": properties.content_type,
        "response_topic": None if topic is None else topic.decode(),
        "correlation_data": None if data is None else base64.b64encode(data).decode(),
        "payload_format": properties.payload_format,
        "user_properties": [list(pair) for pair in properties.user_properties or []],
    }


def leaf_of(message: Message) -> dict[str, object]:
    """A message as a level of the topic tree shows it."""
    return {
        "version": message.offset,
        "size": len(message.payload),
        "qos": message.qos,
        "stored_at_ms": message.stored_at_ms,
        "expires_at_ms": message.expires_at_ms or None,
        "preview": preview_of(message.payload),
    }


def row_of(row: dict[str, Any], caller: Caller = OPERATOR) -> dict[str, object]:
    """A row of the history."""
    return {**whole_of(message_of(row), caller), "outcome": row["outcome"], "retain": row["retain"]}


def same_content(one: Message, other: Message) -> bool:
    """Whether two messages differ in nothing that a subscriber is sent, time to live excepted."""
    if one.payload != other.payload or one.qos != other.qos:
        return False
    return one.properties == other.properties or carried(one.properties) == carried(other.properties)


def carried(forwarded: bytes) -> tuple[object, ...]:
    """The properties as values: publishers may write the same ones in any order."""
    properties = decode_forwarded(forwarded)
    return (
        properties.content_type,
        properties.response_topic,
        properties.correlation_data,
        properties.payload_format,
        properties.user_properties or [],
    )


def text_of(payload: bytes) -> str | None:
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return None


def preview_of(payload: bytes) -> str | None:
    """The beginning of a payload, cut between characters; None for what is not text."""
    start = payload[: PREVIEW * 4]
    for cut in range(4):
        text = text_of(start[: len(start) - cut])
        if text is not None:
            return text[:PREVIEW]
        if len(payload) <= PREVIEW * 4:
            return None
    return None


def decode_forwarded(forwarded: bytes) -> Properties:
    """The properties that a message carries; none where they cannot be read."""
    try:
        properties = decode_properties(Reader(encode_varint(len(forwarded)) + forwarded), PUBLISH)
    except ProtocolError:
        properties = None
    return properties if properties is not None else Properties()


def encode_forwarded(properties: Properties) -> bytes:
    """The properties as a message carries them."""
    reader = Reader(encode_properties(properties))
    reader.varint()
    return reader.rest()
