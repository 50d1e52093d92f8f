"""What nodes tell each other through a log that they share: facts that are about to be true, admitted by one of them.

An entry says what a client asked for, not what became of it: that is worked out by every node when the log has given
the entry its place. So an entry knows no offset, no packet identifier of a delivery and no verdict. It names a
connection by the offset of the ATTACH that made it; what comes from a connection that has been replaced meanwhile
counts for nothing, on every node alike.

An entry begins with its kind. All integers are little-endian, texts are UTF-8.
"""

import struct
from typing import Final, final

from holdfast.broker.message import NEVER, Message
from holdfast.broker.records import Publishers
from holdfast.errors import StoreError
from holdfast.protocol.mqtt.packets import SubscriptionRequest, Will
from holdfast.protocol.mqtt.properties import Properties

# The format that this version writes and the newest that it reads. A node writes no newer one than all nodes read.
FORMAT: Final = 1

PUBLISH: Final = 1
ATTACH: Final = 2
DETACH: Final = 3
SUBSCRIBE: Final = 4
UNSUBSCRIBE: Final = 5
ACK: Final = 6
RELEASE: Final = 7
COPY: Final = 8
SNAPSHOT_END: Final = 9
MISSED: Final = 10
BARRIER: Final = 11
NODE_UP: Final = 12
NODE_DOWN: Final = 13
NODE_REMOVED: Final = 14
SETTINGS: Final = 15
END_SESSION: Final = 16
KICK: Final = 17
GROUP_DONE: Final = 18
DROP_WILLS: Final = 19
VERIFY: Final = 20
SET_WILL: Final = 21

# Flags of a publish, above the two bits of its QoS.
RETAIN: Final = 0x04
TOLD: Final = 0x08  # its publisher is told the reason

# Flags of an attach.
CLEAN_START: Final = 0x01
HAS_WILL: Final = 0x02
CERTIFIED: Final = 0x04
KEEPS_OLD_WILL: Final = 0x08  # the will of the connection that it replaces is not due: MQTT-SN 1.2

# What becomes of the will when a connection ends.
WILL_BY_RULE: Final = 0
WILL_DROPPED: Final = 1
UNCHANGED: Final = -1  # the session expiry stays as it was agreed

# What a client acknowledges, and what its node has to take back for it.
ACK_PUBACK: Final = 1
ACK_PUBREC: Final = 2
ACK_PUBCOMP: Final = 3
ACK_DISCARD: Final = 4  # it cannot be sent: too large for the client, or no longer allowed

NO_EXPIRY: Final = -1

# kind, connection, packet id, flags, expiry in ms, lengths of topic, origin, properties
PUBLISH_HEAD: Final = struct.Struct("<BQHBqHII")
PUBLISH_SIZE: Final = 30
# kind, flags, version, session expiry, window, lengths of client id, owner, protocol
ATTACH_HEAD: Final = struct.Struct("<BBBIHHHB")
ATTACH_SIZE: Final = 14
# QoS and RETAIN, delay, message expiry, lengths of topic, properties
WILL_HEAD: Final = struct.Struct("<BIqHI")
WILL_SIZE: Final = 19
DETACH_FORM: Final = struct.Struct("<BQBq")
ACK_FORM: Final = struct.Struct("<BQBHB")
RELEASE_FORM: Final = struct.Struct("<BQH")
# kind, connection, subscription identifier
SUBSCRIBE_HEAD: Final = struct.Struct("<BQI")
SUBSCRIBE_SIZE: Final = 13
FILTER_HEAD: Final = struct.Struct("<BH")
FILTER_SIZE: Final = 3
# kind, connection, snapshot
SNAPSHOT_HEAD: Final = struct.Struct("<BQQ")
SNAPSHOT_SIZE: Final = 17
COPY_ITEM: Final = struct.Struct("<QH")
COPY_ITEM_SIZE: Final = 10
CONNECTION_HEAD: Final = struct.Struct("<BQ")
CONNECTION_SIZE: Final = 9
NUMBER: Final = struct.Struct("<Q")
SHORT: Final = struct.Struct("<H")

BARRIER_ENTRY: Final = bytes((BARRIER,))


# Publishes.


def encode_publish(connection_id: int, packet_id: int, message: Message, expiry_ms: int, told: bool) -> bytes:
    """Return a publish that has no offset and no time yet; `expiry_ms` is the interval that its publisher named."""
    flags = message.qos
    if message.retain:
        flags |= RETAIN
    if told:
        flags |= TOLD
    topic = message.topic_field
    origin = message.publisher.origin
    properties = message.properties
    head: bytes = PUBLISH_HEAD.pack(
        PUBLISH, connection_id, packet_id, flags, expiry_ms, len(topic) - 2, len(origin), len(properties)
    )
    return b"".join((head, topic, origin, properties, message.payload))


@final
class PublishEntry:
    def __init__(self, connection_id: int, packet_id: int, told: bool, message: Message) -> None:
        self.connection_id: Final = connection_id  # 0: not a client's
        self.packet_id: Final = packet_id  # of a QoS 2 message, else 0
        self.told: Final = told
        self.message: Final = message


def decode_publish(entry: bytes, publishers: Publishers, log_time_ms: int) -> PublishEntry:
    """Return a publish with the time that the log has given it; its life begins then."""
    fields = PUBLISH_HEAD.unpack_from(entry)
    flags: int = fields[3]
    expiry_ms: int = fields[4]
    topic_size: int = fields[5]
    origin_size: int = fields[6]
    properties_size: int = fields[7]
    topic_end = PUBLISH_SIZE + 2 + topic_size  # its length stands in front of it
    origin_end = topic_end + origin_size
    end = origin_end + properties_size
    if topic_size < 1 or end > len(entry):
        raise StoreError(f"publish entry has {len(entry)} bytes, expected at least {end}")
    message = Message(
        entry[PUBLISH_SIZE:topic_end],
        entry[end:],
        flags & 3,
        flags & RETAIN != 0,
        entry[origin_end:end],
        publishers.of(entry[topic_end:origin_end]),
        0,
        log_time_ms,
        log_time_ms + expiry_ms if expiry_ms != NO_EXPIRY else NEVER,
        expiry_ms != NO_EXPIRY,
    )
    return PublishEntry(fields[1], fields[2], flags & TOLD != 0, message)


# Connections.


@final
class AttachEntry:
    """A client that is let in: the session that it asks for, and what both sides agree on as far as others need it."""

    def __init__(
        self,
        client_id: str,
        owner: str,
        protocol: str,
        version: int,
        clean_start: bool,
        expiry_s: int,
        window: int,
        will: Will | None,
        certified: bool,
        keeps_old_will: bool = False,
    ) -> None:
        self.client_id: Final = client_id
        self.owner: Final = owner
        self.protocol: Final = protocol
        self.version: Final = version
        self.clean_start: Final = clean_start
        self.expiry_s: Final = expiry_s
        self.window: Final = window
        self.will: Final = will
        self.certified: Final = certified
        self.keeps_old_will: Final = keeps_old_will


def encode_attach(attach: AttachEntry) -> bytes:
    flags = 0
    if attach.clean_start:
        flags |= CLEAN_START
    if attach.will is not None:
        flags |= HAS_WILL
    if attach.certified:
        flags |= CERTIFIED
    if attach.keeps_old_will:
        flags |= KEEPS_OLD_WILL
    client_id = attach.client_id.encode()
    owner = attach.owner.encode()
    protocol = attach.protocol.encode()
    head: bytes = ATTACH_HEAD.pack(
        ATTACH, flags, attach.version, attach.expiry_s, attach.window, len(client_id), len(owner), len(protocol)
    )
    will = attach.will
    return b"".join((head, client_id, owner, protocol, b"" if will is None else encode_will(will)))


def decode_attach(entry: bytes) -> AttachEntry:
    fields = ATTACH_HEAD.unpack_from(entry)
    flags: int = fields[1]
    client_size: int = fields[5]
    owner_size: int = fields[6]
    protocol_size: int = fields[7]
    client_end = ATTACH_SIZE + client_size
    owner_end = client_end + owner_size
    end = owner_end + protocol_size
    return AttachEntry(
        entry[ATTACH_SIZE:client_end].decode(),
        entry[client_end:owner_end].decode(),
        entry[owner_end:end].decode(),
        fields[2],
        flags & CLEAN_START != 0,
        fields[3],
        fields[4],
        decode_will(entry, end) if flags & HAS_WILL else None,
        flags & CERTIFIED != 0,
        flags & KEEPS_OLD_WILL != 0,
    )


def encode_will(will: Will) -> bytes:
    properties = will.properties
    delay_s = 0
    expiry_s = NO_EXPIRY
    forward = b""
    if properties is not None:
        forward = properties.forward
        if properties.will_delay is not None:
            delay_s = properties.will_delay
        if properties.message_expiry is not None:
            expiry_s = properties.message_expiry
    flags = will.qos | (RETAIN if will.retain else 0)
    head: bytes = WILL_HEAD.pack(flags, delay_s, expiry_s, len(will.topic), len(forward))
    return b"".join((head, will.topic, forward, will.payload))


def decode_will(entry: bytes, start: int) -> Will:
    fields = WILL_HEAD.unpack_from(entry, start)
    flags: int = fields[0]
    expiry_s: int = fields[2]
    topic_size: int = fields[3]
    properties_size: int = fields[4]
    topic_end = start + WILL_SIZE + topic_size
    end = topic_end + properties_size
    properties = Properties()
    properties.forward = entry[topic_end:end]
    properties.will_delay = fields[1]
    if expiry_s != NO_EXPIRY:
        properties.message_expiry = expiry_s
    return Will(entry[start + WILL_SIZE : topic_end], entry[end:], flags & 3, flags & RETAIN != 0, properties)


def encode_detach(connection_id: int, will: int, expiry_s: int) -> bytes:
    entry: bytes = DETACH_FORM.pack(DETACH, connection_id, will, expiry_s)
    return entry


def decode_detach(entry: bytes) -> tuple[int, int, int]:
    """Return (connection_id, what becomes of the will, session expiry or UNCHANGED)."""
    fields = DETACH_FORM.unpack_from(entry)
    return fields[1], fields[2], fields[3]


def encode_set_will(connection_id: int, will: Will | None) -> bytes:
    head: bytes = CONNECTION_HEAD.pack(SET_WILL, connection_id)
    return head + (encode_will(will) if will is not None else b"")


def decode_set_will(entry: bytes) -> Will | None:
    return decode_will(entry, CONNECTION_SIZE) if len(entry) > CONNECTION_SIZE else None


def entry_connection(entry: bytes) -> int:
    """Return the connection that an entry of a client comes from."""
    connection_id: int = CONNECTION_HEAD.unpack_from(entry)[1]
    return connection_id


# Subscriptions.


def encode_subscribe(connection_id: int, identifier: int, requests: list[SubscriptionRequest]) -> bytes:
    head: bytes = SUBSCRIBE_HEAD.pack(SUBSCRIBE, connection_id, identifier)
    parts = [head]
    for request in requests:
        options = request.qos | request.retain_handling << 4
        if request.no_local:
            options |= 4
        if request.retain_as_published:
            options |= 8
        fixed: bytes = FILTER_HEAD.pack(options, len(request.topic_filter))
        parts.append(fixed)
        parts.append(request.topic_filter)
    return b"".join(parts)


def decode_subscribe(entry: bytes) -> tuple[int, list[SubscriptionRequest]]:
    """Return the subscription identifier, and what is subscribed to."""
    identifier: int = SUBSCRIBE_HEAD.unpack_from(entry)[2]
    requests: list[SubscriptionRequest] = []
    position = SUBSCRIBE_SIZE
    while position < len(entry):
        fields = FILTER_HEAD.unpack_from(entry, position)
        options: int = fields[0]
        size: int = fields[1]
        position += FILTER_SIZE
        topic_filter = entry[position : position + size]
        position += size
        requests.append(
            SubscriptionRequest(topic_filter, options & 3, options & 4 != 0, options & 8 != 0, options >> 4)
        )
    return identifier, requests


def encode_unsubscribe(connection_id: int, topic_filters: list[bytes]) -> bytes:
    head: bytes = CONNECTION_HEAD.pack(UNSUBSCRIBE, connection_id)
    parts = [head]
    for topic_filter in topic_filters:
        size: bytes = SHORT.pack(len(topic_filter))
        parts.append(size)
        parts.append(topic_filter)
    return b"".join(parts)


def decode_texts(entry: bytes, position: int) -> list[bytes]:
    """Return the texts from `position` on, each with its length in front."""
    texts: list[bytes] = []
    while position < len(entry):
        size: int = SHORT.unpack_from(entry, position)[0]
        position += 2
        texts.append(entry[position : position + size])
        position += size
    return texts


def encode_texts(kind: int, texts: list[bytes]) -> bytes:
    parts = [bytes((kind,))]
    for text in texts:
        size: bytes = SHORT.pack(len(text))
        parts.append(size)
        parts.append(text)
    return b"".join(parts)


# Deliveries.


def encode_ack(connection_id: int, kind: int, packet_id: int, reason: int) -> bytes:
    entry: bytes = ACK_FORM.pack(ACK, connection_id, kind, packet_id, reason)
    return entry


def decode_ack(entry: bytes) -> tuple[int, int, int]:
    """Return (kind, packet_id, reason)."""
    fields = ACK_FORM.unpack_from(entry)
    return fields[2], fields[3], fields[4]


def encode_release(connection_id: int, packet_id: int) -> bytes:
    entry: bytes = RELEASE_FORM.pack(RELEASE, connection_id, packet_id)
    return entry


def decode_release(entry: bytes) -> int:
    packet_id: int = RELEASE_FORM.unpack_from(entry)[2]
    return packet_id


def encode_group_done(connection_id: int, offsets: list[int]) -> bytes:
    head: bytes = CONNECTION_HEAD.pack(GROUP_DONE, connection_id)
    parts = [head]
    for offset in offsets:
        number: bytes = NUMBER.pack(offset)
        parts.append(number)
    return b"".join(parts)


def decode_group_done(entry: bytes) -> list[int]:
    offsets: list[int] = []
    for position in range(CONNECTION_SIZE, len(entry), 8):
        offset: int = NUMBER.unpack_from(entry, position)[0]
        offsets.append(offset)
    return offsets


# Snapshots.


@final
class CopyItem:
    """A retained message, by its topic and offset: if it has been replaced meanwhile, nothing is copied."""

    def __init__(self, topic: bytes, offset: int) -> None:
        self.topic: Final = topic
        self.offset: Final = offset


def encode_copy(connection_id: int, snapshot_id: int, items: list[CopyItem]) -> bytes:
    head: bytes = SNAPSHOT_HEAD.pack(COPY, connection_id, snapshot_id)
    parts = [head]
    for item in items:
        fixed: bytes = COPY_ITEM.pack(item.offset, len(item.topic))
        parts.append(fixed)
        parts.append(item.topic)
    return b"".join(parts)


def decode_copy(entry: bytes) -> list[CopyItem]:
    items: list[CopyItem] = []
    position = SNAPSHOT_SIZE
    while position < len(entry):
        fields = COPY_ITEM.unpack_from(entry, position)
        size: int = fields[1]
        position += COPY_ITEM_SIZE
        items.append(CopyItem(entry[position : position + size], fields[0]))
        position += size
    return items


def encode_snapshot_end(connection_id: int, snapshot_id: int) -> bytes:
    entry: bytes = SNAPSHOT_HEAD.pack(SNAPSHOT_END, connection_id, snapshot_id)
    return entry


def encode_missed(connection_id: int, snapshot_id: int, topic: bytes) -> bytes:
    head: bytes = SNAPSHOT_HEAD.pack(MISSED, connection_id, snapshot_id)
    return head + topic


def entry_snapshot(entry: bytes) -> int:
    snapshot_id: int = SNAPSHOT_HEAD.unpack_from(entry)[2]
    return snapshot_id


# Nodes.


@final
class NodeUpEntry:
    """A node that begins, with a new instance: what its earlier ones still send counts for nothing from here on."""

    def __init__(self, instance: int, reads: int, address: str, version: str) -> None:
        self.instance: Final = instance
        self.reads: Final = reads  # the newest format of entries that it reads
        self.address: Final = address
        self.version: Final = version


def encode_node_up(up: NodeUpEntry) -> bytes:
    head: bytes = NODE_UP_HEAD.pack(NODE_UP, up.instance, up.reads)
    return head + up.address.encode() + b"\0" + up.version.encode()


NODE_UP_HEAD: Final = struct.Struct("<BQH")
NODE_UP_SIZE: Final = 11


def decode_node_up(entry: bytes) -> NodeUpEntry:
    fields = NODE_UP_HEAD.unpack_from(entry)
    texts = entry[NODE_UP_SIZE:].split(b"\0")
    return NodeUpEntry(fields[1], fields[2], texts[0].decode(), texts[1].decode())


def encode_node_down(node: str, instance: int) -> bytes:
    head: bytes = CONNECTION_HEAD.pack(NODE_DOWN, instance)
    return head + node.encode()


def encode_node_removed(node: str) -> bytes:
    head: bytes = CONNECTION_HEAD.pack(NODE_REMOVED, 0)
    return head + node.encode()


def decode_node(entry: bytes) -> tuple[str, int]:
    """Return (node, instance) of NODE_DOWN and NODE_REMOVED."""
    instance: int = CONNECTION_HEAD.unpack_from(entry)[1]
    return entry[CONNECTION_SIZE:].decode(), instance


def encode_kick(client_id: str, reason: int, text: str) -> bytes:
    return b"".join((bytes((KICK, reason)), client_id.encode(), b"\0", text.encode()))


def decode_kick(entry: bytes) -> tuple[str, int, str]:
    """Return (client_id, reason, text)."""
    texts = entry[2:].split(b"\0", 1)
    return texts[0].decode(), entry[1], texts[1].decode()


def encode_end_session(client_id: str) -> bytes:
    return bytes((END_SESSION,)) + client_id.encode()


def encode_settings(settings: bytes) -> bytes:
    return bytes((SETTINGS,)) + settings


def encode_verify(question: int) -> bytes:
    entry: bytes = CONNECTION_HEAD.pack(VERIFY, question)
    return entry
