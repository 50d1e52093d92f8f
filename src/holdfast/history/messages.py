"""A row of the table as the message it is about. Without Arrow: a row is a dictionary here."""

from typing import Any

from holdfast.broker.message import Message, Publisher, topic_field
from holdfast.protocol.mqtt.properties import Properties, encode_properties
from holdfast.protocol.wire import Reader


def message_of(row: dict[str, Any]) -> Message:
    """The message that a row is about. The table does not tell who chose its expiry: it counts as the publisher's."""
    expires_at = row["expires_at"]
    return Message(
        topic_field(row["topic"].encode()),
        row["payload"],
        row["qos"],
        row["retain"],
        forwarded(row),
        Publisher(row["client_id"] or "", row["username"] or "", row["protocol"]),
        row["offset"],
        round(row["timestamp"].timestamp() * 1000),
        0 if expires_at is None else round(expires_at.timestamp() * 1000),
        expires_at is not None,
    )


def forwarded(row: dict[str, object]) -> bytes:
    """The properties of a row as they stand in a packet, without their length."""
    properties = Properties()
    for name in ("payload_format", "content_type", "correlation_data"):
        setattr(properties, name, row[name])
    topic = row["response_topic"]
    properties.response_topic = topic.encode() if isinstance(topic, str) else None
    pairs = row["user_properties"]
    if isinstance(pairs, list):
        properties.user_properties = [(pair["key"], pair["value"]) for pair in pairs]
    reader = Reader(encode_properties(properties))
    reader.varint()
    return reader.rest()
