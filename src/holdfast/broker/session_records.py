"""What happened to persistent sessions and their snapshots, as records of the log. `records.py` has what all share.

A session is named by the offset of the record that created it, so a name is never given twice. A message that waits
in a session is named by a number (`seq`) that the session counts up itself; it points at the message by the message's
offset, so a message is stored once however many sessions wait for it.

A snapshot that is cut off by a crash goes on where it was: the log knows when it began and of which messages a copy has
been given to the session. A copy that has to be acknowledged is in the log as a whole, since the retained message it
was made of may be replaced before the client has answered.
"""

import struct
from typing import Final, final

from holdfast.broker.message import Message
from holdfast.broker.records import (
    ATTACHED,
    COPIED,
    COPY,
    DONE,
    HEAD,
    HEAD_SIZE,
    MISSED,
    NUMBER,
    QUEUED,
    RECEIVED,
    RELEASED,
    RETAIN,
    SENT,
    SESSION,
    SESSION_ENDED,
    SNAPSHOT,
    SNAPSHOT_ENDED,
    SUBSCRIBED,
    UNSUBSCRIBED,
    VERSION,
    WILL,
    WILL_CLEARED,
    encode_publish,
)

# What a queued message waits for.
WAITING: Final = 0  # to be sent
UNACKNOWLEDGED: Final = 1  # PUBACK or PUBREC
RELEASING: Final = 2  # PUBCOMP

SESSION_HEAD: Final = struct.Struct("<BBQQBIQQHH")
SESSION_SIZE: Final = 43
SUBSCRIBED_HEAD: Final = struct.Struct("<BBQQBI")
SUBSCRIBED_SIZE: Final = 23
ONE_SESSION: Final = struct.Struct("<BBQQ")
ONE_SESSION_SIZE: Final = 18
QUEUED_HEAD: Final = struct.Struct("<BBQQI")
QUEUED_SIZE: Final = 22
QUEUED_ENTRY: Final = struct.Struct("<QQBB")
QUEUED_ENTRY_SIZE: Final = 18
SENT_HEAD: Final = struct.Struct("<BBQQQHB")
PACKET_ID_HEAD: Final = struct.Struct("<BBQQH")
WILL_HEAD: Final = struct.Struct("<BBQQBIqHI")
WILL_SIZE: Final = 37
SUBSCRIPTION_ID: Final = struct.Struct("<I")
ONE_SNAPSHOT: Final = struct.Struct("<BBQQQ")
ONE_SNAPSHOT_SIZE: Final = 26
COPY_HEAD: Final = struct.Struct("<BBQQQQBB")
COPY_SIZE: Final = 36
ATTACHED_HEAD: Final = struct.Struct("<BBQQHB")
ATTACHED_SIZE: Final = 21

# A flag of a will, beside its QoS and RETAIN, and one of a message that waits.
CERTIFIED: Final = 0x08
SHARED: Final = 0x10


@final
class SessionRecord:
    """A session as it is after a change. `session_id` is the offset of the record that created it."""

    def __init__(
        self,
        session_id: int,
        client_id: str,
        owner: str,
        version: int,
        expiry_interval_s: int,
        connected_at_ms: int,
        disconnected_at_ms: int,
    ) -> None:
        self.session_id: Final = session_id
        self.client_id: Final = client_id
        self.owner: Final = owner  # the user name it was created with
        self.version: Final = version
        self.expiry_interval_s: Final = expiry_interval_s  # 0xFFFFFFFF: no end
        self.connected_at_ms: Final = connected_at_ms
        self.disconnected_at_ms: Final = disconnected_at_ms  # 0 while connected


def encode_session(offset: int, session: SessionRecord) -> bytes:
    client_id = session.client_id.encode()
    owner = session.owner.encode()
    head: bytes = SESSION_HEAD.pack(
        VERSION,
        SESSION,
        offset,
        session.session_id,
        session.version,
        session.expiry_interval_s,
        session.connected_at_ms,
        session.disconnected_at_ms,
        len(client_id),
        len(owner),
    )
    return head + client_id + owner


def decode_session(record: bytes) -> SessionRecord:
    fields = SESSION_HEAD.unpack_from(record)
    client_size: int = fields[8]
    owner_size: int = fields[9]
    middle = SESSION_SIZE + client_size
    client_id = record[SESSION_SIZE:middle].decode()
    owner = record[middle : middle + owner_size].decode()
    return SessionRecord(fields[3], client_id, owner, fields[4], fields[5], fields[6], fields[7])


def encode_session_ended(offset: int, session_id: int) -> bytes:
    record: bytes = ONE_SESSION.pack(VERSION, SESSION_ENDED, offset, session_id)
    return record


def record_session(record: bytes) -> int:
    """Return the session that a record is about; all kinds but publish, message and queued have it in one position."""
    session_id: int = NUMBER.unpack_from(record, HEAD_SIZE)[0]
    return session_id


@final
class AttachedRecord:
    """A client that is connected to a node. The connection is named by the offset of this record."""

    def __init__(self, connection_id: int, session_id: int, window: int, kept: bool, node: str) -> None:
        self.connection_id: Final = connection_id
        self.session_id: Final = session_id
        self.window: Final = window
        self.kept: Final = kept
        self.node: Final = node


def encode_attached(attached: AttachedRecord) -> bytes:
    head: bytes = ATTACHED_HEAD.pack(
        VERSION, ATTACHED, attached.connection_id, attached.session_id, attached.window, 1 if attached.kept else 0
    )
    return head + attached.node.encode()


def decode_attached(record: bytes) -> AttachedRecord:
    fields = ATTACHED_HEAD.unpack_from(record)
    kept: int = fields[5]
    return AttachedRecord(fields[2], fields[3], fields[4], kept != 0, record[ATTACHED_SIZE:].decode())


@final
class SubscriptionRecord:
    """`options` is the options byte of SUBSCRIBE: QoS, No Local, Retain As Published, Retain Handling."""

    def __init__(self, session_id: int, topic_filter: bytes, options: int, subscription_id: int) -> None:
        self.session_id: Final = session_id
        self.topic_filter: Final = topic_filter
        self.options: Final = options
        self.subscription_id: Final = subscription_id  # 0 = none


def encode_subscribed(offset: int, subscription: SubscriptionRecord) -> bytes:
    head: bytes = SUBSCRIBED_HEAD.pack(
        VERSION, SUBSCRIBED, offset, subscription.session_id, subscription.options, subscription.subscription_id
    )
    return head + subscription.topic_filter


def decode_subscribed(record: bytes) -> SubscriptionRecord:
    fields = SUBSCRIBED_HEAD.unpack_from(record)
    return SubscriptionRecord(fields[3], record[SUBSCRIBED_SIZE:], fields[4], fields[5])


def encode_unsubscribed(offset: int, session_id: int, topic_filter: bytes) -> bytes:
    head: bytes = ONE_SESSION.pack(VERSION, UNSUBSCRIBED, offset, session_id)
    return head + topic_filter


def decode_unsubscribed(record: bytes) -> tuple[int, bytes]:
    return record_session(record), record[ONE_SESSION_SIZE:]


@final
class QueuedRecord:
    """One message waiting in one session, in the order of `seq`."""

    def __init__(
        self,
        session_id: int,
        seq: int,
        message_offset: int,
        qos: int,
        retain: bool,
        subscription_ids: list[int],
        shared: bool = False,
    ) -> None:
        self.session_id: Final = session_id
        self.seq: Final = seq
        self.message_offset: Final = message_offset
        self.qos: Final = qos  # as it is to be delivered
        self.retain: Final = retain
        self.subscription_ids: Final = subscription_ids
        self.shared: Final = shared  # by a shared subscription


def encode_queued(offset: int, message_offset: int, entries: list[QueuedRecord]) -> bytes:
    """Return the record of all sessions that one message waits for, which was a publish with `kept`, or a MESSAGE."""
    head: bytes = QUEUED_HEAD.pack(VERSION, QUEUED, offset, message_offset, len(entries))
    parts = [head]
    for entry in entries:
        ids = entry.subscription_ids[:255]
        flags = entry.qos | (RETAIN if entry.retain else 0) | (SHARED if entry.shared else 0)
        fixed: bytes = QUEUED_ENTRY.pack(entry.session_id, entry.seq, flags, len(ids))
        parts.append(fixed)
        for subscription_id in ids:
            number: bytes = SUBSCRIPTION_ID.pack(subscription_id)
            parts.append(number)
    return b"".join(parts)


def decode_queued(record: bytes) -> list[QueuedRecord]:
    fields = QUEUED_HEAD.unpack_from(record)
    message_offset: int = fields[3]
    count: int = fields[4]
    position = QUEUED_SIZE
    entries: list[QueuedRecord] = []
    for _ in range(count):
        fixed = QUEUED_ENTRY.unpack_from(record, position)
        position += QUEUED_ENTRY_SIZE
        flags: int = fixed[2]
        ids: list[int] = []
        size: int = fixed[3]
        for _ in range(size):
            subscription_id: int = SUBSCRIPTION_ID.unpack_from(record, position)[0]
            position += 4
            ids.append(subscription_id)
        shared = flags & SHARED != 0
        entries.append(QueuedRecord(fixed[0], fixed[1], message_offset, flags & 3, flags & RETAIN != 0, ids, shared))
    return entries


def encode_sent(offset: int, session_id: int, seq: int, packet_id: int, stage: int) -> bytes:
    """Return the record that a queued message got a packet id (UNACKNOWLEDGED), or its PUBREC came (RELEASING)."""
    record: bytes = SENT_HEAD.pack(VERSION, SENT, offset, session_id, seq, packet_id, stage)
    return record


def decode_sent(record: bytes) -> tuple[int, int, int, int]:
    """Return (session_id, seq, packet_id, stage)."""
    fields = SENT_HEAD.unpack_from(record)
    return fields[3], fields[4], fields[5], fields[6]


def encode_done(offset: int, session_id: int, seqs: list[int]) -> bytes:
    """Return the record of queued messages that need nothing more: acknowledged, expired or dropped."""
    head: bytes = ONE_SESSION.pack(VERSION, DONE, offset, session_id)
    parts = [head]
    for seq in seqs:
        number: bytes = NUMBER.pack(seq)
        parts.append(number)
    return b"".join(parts)


def decode_done(record: bytes) -> tuple[int, list[int]]:
    seqs: list[int] = []
    for position in range(ONE_SESSION_SIZE, len(record), 8):
        seq: int = NUMBER.unpack_from(record, position)[0]
        seqs.append(seq)
    return record_session(record), seqs


def encode_received(offset: int, session_id: int, packet_id: int) -> bytes:
    """Return the record that a QoS 2 publish with this packet id was accepted: until PUBREL, another is a duplicate."""
    record: bytes = PACKET_ID_HEAD.pack(VERSION, RECEIVED, offset, session_id, packet_id)
    return record


def encode_released(offset: int, session_id: int, packet_id: int) -> bytes:
    record: bytes = PACKET_ID_HEAD.pack(VERSION, RELEASED, offset, session_id, packet_id)
    return record


def decode_packet_id(record: bytes) -> tuple[int, int]:
    """Return (session_id, packet_id) of RECEIVED or RELEASED."""
    fields = PACKET_ID_HEAD.unpack_from(record)
    return fields[3], fields[4]


@final
class WillRecord:
    def __init__(
        self,
        session_id: int,
        topic: bytes,
        payload: bytes,
        qos: int,
        retain: bool,
        delay_interval_s: int,
        message_expiry_s: int,
        properties: bytes,
        certified: bool = False,
    ) -> None:
        self.session_id: Final = session_id
        self.topic: Final = topic
        self.payload: Final = payload
        self.qos: Final = qos
        self.retain: Final = retain
        self.delay_interval_s: Final = delay_interval_s
        self.message_expiry_s: Final = message_expiry_s  # -1 = none given
        self.properties: Final = properties
        self.certified: Final = certified  # the client that set it had shown a certificate


def encode_will(offset: int, will: WillRecord) -> bytes:
    flags = will.qos | (RETAIN if will.retain else 0) | (CERTIFIED if will.certified else 0)
    head: bytes = WILL_HEAD.pack(
        VERSION,
        WILL,
        offset,
        will.session_id,
        flags,
        will.delay_interval_s,
        will.message_expiry_s,
        len(will.topic),
        len(will.properties),
    )
    return b"".join((head, will.topic, will.properties, will.payload))


def decode_will(record: bytes) -> WillRecord:
    fields = WILL_HEAD.unpack_from(record)
    flags: int = fields[4]
    topic_size: int = fields[7]
    properties_size: int = fields[8]
    middle = WILL_SIZE + topic_size
    end = middle + properties_size
    return WillRecord(
        fields[3],
        record[WILL_SIZE:middle],
        record[end:],
        flags & 3,
        flags & RETAIN != 0,
        fields[5],
        fields[6],
        record[middle:end],
        flags & CERTIFIED != 0,
    )


def encode_will_cleared(offset: int, session_id: int) -> bytes:
    record: bytes = ONE_SESSION.pack(VERSION, WILL_CLEARED, offset, session_id)
    return record


# Snapshots.


def encode_snapshot(offset: int, session_id: int, version: int, topic_filter: bytes) -> bytes:
    """Return the record that a snapshot has begun. It is named by the offset of this record."""
    head: bytes = ONE_SNAPSHOT.pack(VERSION, SNAPSHOT, offset, session_id, version)
    return head + topic_filter


def decode_snapshot(record: bytes) -> tuple[int, int, int, bytes]:
    """Return (session_id, snapshot_id, version, topic_filter)."""
    fields = ONE_SNAPSHOT.unpack_from(record)
    return fields[3], fields[2], fields[4], record[ONE_SNAPSHOT_SIZE:]


def encode_snapshot_ended(offset: int, session_id: int, snapshot_id: int) -> bytes:
    record: bytes = ONE_SNAPSHOT.pack(VERSION, SNAPSHOT_ENDED, offset, session_id, snapshot_id)
    return record


def record_snapshot(record: bytes) -> tuple[int, int]:
    """Return (session_id, snapshot_id) of any of these records but the one that begins a snapshot."""
    fields = ONE_SNAPSHOT.unpack_from(record)
    return fields[3], fields[4]


@final
class CopyRecord:
    """A copy at QoS 1 or 2 that a snapshot gave to its session, in the order of `seq`; `message` is its publish."""

    def __init__(
        self, session_id: int, snapshot_id: int, seq: int, qos: int, subscription_ids: list[int], message: bytes
    ) -> None:
        self.session_id: Final = session_id
        self.snapshot_id: Final = snapshot_id
        self.seq: Final = seq
        self.qos: Final = qos
        self.subscription_ids: Final = subscription_ids
        self.message: Final = message


def encode_copy(
    offset: int,
    session_id: int,
    snapshot_id: int,
    seq: int,
    qos: int,
    subscription_ids: list[int] | None,
    message: Message,
) -> bytes:
    count = 0 if subscription_ids is None else len(subscription_ids)
    head: bytes = COPY_HEAD.pack(VERSION, COPY, offset, session_id, snapshot_id, seq, qos, count)
    parts = [head]
    if subscription_ids is not None:
        for subscription_id in subscription_ids:
            number: bytes = SUBSCRIPTION_ID.pack(subscription_id)
            parts.append(number)
    parts.append(encode_publish(message, 0, False, True))
    return b"".join(parts)


def decode_copy(record: bytes) -> CopyRecord:
    fields = COPY_HEAD.unpack_from(record)
    count: int = fields[7]
    position = COPY_SIZE
    ids: list[int] = []
    for _ in range(count):
        subscription_id: int = SUBSCRIPTION_ID.unpack_from(record, position)[0]
        ids.append(subscription_id)
        position += 4
    return CopyRecord(fields[3], fields[4], fields[5], fields[6], ids, record[position:])


@final
class CopiedRecord:
    """Messages, by their offsets, of which a copy at QoS 0 was sent."""

    def __init__(self, session_id: int, snapshot_id: int) -> None:
        self.session_id: Final = session_id
        self.snapshot_id: Final = snapshot_id
        self.offsets: list[int] = []


def encode_copied(offset: int, copied: CopiedRecord) -> bytes:
    head: bytes = ONE_SNAPSHOT.pack(VERSION, COPIED, offset, copied.session_id, copied.snapshot_id)
    parts = [head]
    for message_offset in copied.offsets:
        number: bytes = NUMBER.pack(message_offset)
        parts.append(number)
    return b"".join(parts)


def decode_copied(record: bytes) -> CopiedRecord:
    session_id, snapshot_id = record_snapshot(record)
    copied = CopiedRecord(session_id, snapshot_id)
    for position in range(ONE_SNAPSHOT_SIZE, len(record), 8):
        message_offset: int = NUMBER.unpack_from(record, position)[0]
        copied.offsets.append(message_offset)
    return copied


def encode_missed(offset: int, session_id: int, snapshot_id: int, topic: bytes) -> bytes:
    """Return the record that a topic changed and the session missed the live message: the snapshot makes up for it."""
    head: bytes = ONE_SNAPSHOT.pack(VERSION, MISSED, offset, session_id, snapshot_id)
    return head + topic


def missed_topic(record: bytes) -> bytes:
    return record[ONE_SNAPSHOT_SIZE:]


def renumbered(record: bytes, offset: int) -> bytes:
    """Return the same record at another offset."""
    head: bytes = HEAD.pack(VERSION, record[1], offset)
    return head + record[HEAD_SIZE:]
