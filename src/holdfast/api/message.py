"""A message as JSON shows it."""

import base64
from datetime import UTC, datetime

from pydantic import BaseModel, Field

from holdfast.broker.message import Message
from holdfast.errors import ProtocolError
from holdfast.protocol.mqtt.packets import PUBLISH
from holdfast.protocol.mqtt.properties import Properties, decode_properties, encode_properties
from holdfast.protocol.wire import Reader, encode_varint

PREVIEW = 160


class Publisher(BaseModel):
    client_id: str
    username: str
    protocol: str


class Summary(BaseModel):
    """A retained message without its payload. `version` is the offset of the publish that set it."""

    topic: str
    version: int
    size: int = Field(description="Bytes of the payload.")
    qos: int
    stored_at: str
    stored_at_ms: int
    expires_at: str | None
    expires_at_ms: int | None
    publisher: Publisher
    preview: str | None = Field(description="The beginning of the payload, where it is text.")


class Whole(Summary):
    """A retained message with everything it carries. `payload` is base64, `text` is there when it is UTF-8."""

    payload: str
    text: str | None
    content_type: str | None
    response_topic: str | None
    correlation_data: str | None
    payload_format: int | None
    user_properties: list[list[str]]


def iso(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def summary_of(message: Message) -> dict[str, object]:
    publisher = message.publisher
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


def whole_of(message: Message) -> dict[str, object]:
    properties = properties_of(message.properties)
    return {
        **summary_of(message),
        "payload": base64.b64encode(message.payload).decode(),
        "text": text_of(message.payload),
        **described(properties),
    }


def described(properties: Properties) -> dict[str, object]:
    data = properties.correlation_data
    return {
        "content_type": properties.content_type,
        "response_topic": None if properties.response_topic is None else properties.response_topic.decode(),
        "correlation_data": None if data is None else base64.b64encode(data).decode(),
        "payload_format": properties.payload_format,
        "user_properties": [list(pair) for pair in properties.user_properties or []],
    }


def text_of(payload: bytes) -> str | None:
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return None


def preview_of(payload: bytes) -> str | None:
    """Cut between characters; None for what is not text."""
    start = payload[: PREVIEW * 4]
    for cut in range(4):
        text = text_of(start[: len(start) - cut])
        if text is not None:
            return text[:PREVIEW]
        if len(payload) <= PREVIEW * 4:
            return None
    return None


def properties_of(forwarded: bytes) -> Properties:
    try:
        properties = decode_properties(Reader(encode_varint(len(forwarded)) + forwarded), PUBLISH)
    except ProtocolError:
        properties = None  # shown without them
    return properties if properties is not None else Properties()


def forwarded_of(properties: Properties) -> bytes:
    """The properties as a message carries them."""
    reader = Reader(encode_properties(properties))
    reader.varint()
    return reader.rest()
