"""What happened to the snapshots of persistent sessions, as records of the log. See `records.py` for what all share.

A snapshot that is cut off by a crash goes on where it was: the log knows when it began and of which messages a copy has
been given to the session. A copy that has to be acknowledged is in the log as a whole, since the retained message it
was made of may be replaced before the client has answered.
"""

import struct
from typing import Final, final

from holdfast.broker.message import Message
from holdfast.broker.records import (
    COPIED,
    COPY,
    HEAD,
    HEAD_SIZE,
    MISSED,
    NUMBER,
    PUBLISH,
    SNAPSHOT,
    SNAPSHOT_ENDED,
    VERSION,
    encode_message,
)
from holdfast.broker.session_records import SUBSCRIPTION_ID

ONE_SNAPSHOT: Final = struct.Struct("<BBQQQ")
ONE_SNAPSHOT_SIZE: Final = 26
COPY_HEAD: Final = struct.Struct("<BBQQQQBB")
COPY_SIZE: Final = 36


def encode_snapshot(offset: int, session_id: int, version: int, topic_filter: bytes) -> bytes:
    """A snapshot has begun. It is named by the offset of this record."""
    head: bytes = ONE_SNAPSHOT.pack(VERSION, SNAPSHOT, offset, session_id, version)
    return head + topic_filter


def decode_snapshot(record: bytes) -> tuple[int, int, int, bytes]:
    """(session_id, snapshot_id, version, topic_filter)"""
    fields = ONE_SNAPSHOT.unpack_from(record)
    return fields[3], fields[2], fields[4], record[ONE_SNAPSHOT_SIZE:]


def encode_snapshot_ended(offset: int, session_id: int, snapshot_id: int) -> bytes:
    record: bytes = ONE_SNAPSHOT.pack(VERSION, SNAPSHOT_ENDED, offset, session_id, snapshot_id)
    return record


def record_snapshot(record: bytes) -> tuple[int, int]:
    """(session_id, snapshot_id) of any of these records but the one that begins a snapshot."""
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
    parts.append(encode_message(PUBLISH, message.offset, message, 0, False, True))
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
    """A topic was set anew and its live message could not be given to the session: the snapshot makes up for it."""
    head: bytes = ONE_SNAPSHOT.pack(VERSION, MISSED, offset, session_id, snapshot_id)
    return head + topic


def missed_topic(record: bytes) -> bytes:
    return record[ONE_SNAPSHOT_SIZE:]


def renumbered(record: bytes, offset: int) -> bytes:
    """The same record at another offset."""
    head: bytes = HEAD.pack(VERSION, record[1], offset)
    return head + record[HEAD_SIZE:]
