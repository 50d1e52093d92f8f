"""What leaves: packets are put together straight into the receiver's outbox, in pieces that are joined once per flush.

These functions are on the path of every delivered message. They build bytes by table lookup where they can and never
make a packet object.
"""

from datetime import UTC, datetime
from typing import Final

from holdfast.broker.connection import Connection
from holdfast.broker.message import NEVER, Message
from holdfast.protocol.mqtt.connection import CLOSED
from holdfast.protocol.mqtt.properties import MESSAGE_EXPIRY, SUBSCRIPTION_ID, TOPIC_ALIAS, USER_PROPERTY
from holdfast.protocol.wire import encode_varint

U16: Final[list[bytes]] = [i.to_bytes(2, "big") for i in range(65536)]
PUBREL: Final = b"\x62\x02"

HEAD_TABLE_LENGTHS: Final = 1024
# The first bytes of a PUBLISH, by its flags and remaining length.
HEADS: Final[list[list[bytes]]] = [
    [bytes((0x30 | flags,)) + encode_varint(length) for length in range(HEAD_TABLE_LENGTHS)] for flags in range(16)
]


def publish_head(flags: int, remaining: int) -> bytes:
    if remaining < HEAD_TABLE_LENGTHS:
        return HEADS[flags][remaining]
    return bytes((0x30 | flags,)) + encode_varint(remaining)


def write_publish(
    connection: Connection,
    message: Message,
    qos: int,
    retain: bool,
    dup: bool,
    packet_id: int,
    identifiers: list[int] | None,
    now_ms: int,
    meta: bool = False,
) -> bool:
    """Add a PUBLISH to the outbox; False when it is larger than the client takes [5: MQTT-3.1.2-24]."""
    flags = qos << 1
    if retain:
        flags |= 1
    if dup:
        flags |= 8
    field = message.topic_field
    payload = message.payload
    remaining = len(field) + len(payload)
    if qos > 0:
        remaining += 2
    outbox = connection.outbox
    if not connection.is_v5:
        if connection.carrier is not None:
            return connection.carrier.publish(message, qos, retain, dup, packet_id)
        head = publish_head(flags, remaining)
        if len(head) + remaining > connection.max_packet_size:
            return False
        outbox.append(head)
        outbox.append(field)
        if qos > 0:
            outbox.append(U16[packet_id])
        outbox.append(payload)
        connection.outbox_bytes += len(head) + remaining
        return True

    known_alias = False
    properties = message.properties
    if (
        identifiers is not None
        or connection.alias_maximum > 0
        or meta
        or (message.interval_given and message.expires_at_ms != NEVER)
    ):
        extra = b""
        if message.interval_given and message.expires_at_ms != NEVER:
            # The received interval less the time it waited here, in whole seconds rounded up [5: MQTT-3.3.2-6].
            left_s = max(1, (message.expires_at_ms - now_ms + 999) // 1000)
            extra = bytes((MESSAGE_EXPIRY,)) + left_s.to_bytes(4, "big")
        if identifiers is not None:
            for identifier in identifiers:
                extra += bytes((SUBSCRIPTION_ID,)) + encode_varint(identifier)
        if connection.alias_maximum > 0:
            alias = connection.aliases_out.get(field)
            if alias is not None:
                known_alias = True
            elif len(connection.aliases_out) < connection.alias_maximum:
                alias = len(connection.aliases_out) + 1
            if alias is not None:
                extra += bytes((TOPIC_ALIAS,)) + U16[alias]
        if meta:
            extra += meta_properties(message)
        properties = extra + properties
    topic = field
    if known_alias:
        topic = U16[0]
        remaining += 2 - len(field)
    size = len(properties)
    block = encode_varint(size)
    remaining += len(block) + size
    head = publish_head(flags, remaining)
    if len(head) + remaining > connection.max_packet_size:
        return False
    if connection.alias_maximum > 0 and not known_alias and len(connection.aliases_out) < connection.alias_maximum:
        connection.aliases_out[field] = len(connection.aliases_out) + 1
    outbox.append(head)
    outbox.append(topic)
    if qos > 0:
        outbox.append(U16[packet_id])
    outbox.append(block)
    if size > 0:
        outbox.append(properties)
    outbox.append(payload)
    connection.outbox_bytes += len(head) + remaining
    return True


def user_property(name: bytes, value: bytes) -> bytes:
    return bytes((USER_PROPERTY,)) + U16[len(name)] + name + U16[len(value)] + value


def meta_properties(message: Message) -> bytes:
    """Where a retained message comes from, for clients that asked with `holdfast-retained-meta: on`."""
    stored_at = datetime.fromtimestamp(message.stored_at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return (
        user_property(b"hf-offset", str(message.offset).encode())
        + user_property(b"hf-stored-at", stored_at.encode())
        + user_property(b"hf-publisher", message.publisher.client_id.encode())
    )


def write_pubrel(connection: Connection, packet_id: int) -> None:
    if connection.carrier is not None:
        connection.carrier.release(packet_id)
    else:
        write(connection, PUBREL + U16[packet_id])


def write(connection: Connection, data: bytes) -> None:
    """Add any other packet to the outbox."""
    if connection.state != CLOSED:
        connection.outbox.append(data)
        connection.outbox_bytes += len(data)
