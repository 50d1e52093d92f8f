"""The persistent sessions on disk: their queues, the snapshots that have not ended, and reading all of it at a start.

Snapshots have one table. A snapshot is a row under its session and its name; rows with longer keys belong to it. What
was sent is kept as the offsets of the messages, one row for each batch.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from lmdb import Transaction, _Database

from holdfast.broker.message import REFUSED_POLICY, Message
from holdfast.broker.node_records import NodeRecord, PositionRecord, decode_node, decode_position, decode_settings
from holdfast.broker.records import RETAIN, Publishers, decode_publish, publish_outcome, record_offset
from holdfast.broker.session_records import (
    WAITING,
    AttachedRecord,
    SessionRecord,
    SubscriptionRecord,
    WillRecord,
    decode_attached,
    decode_session,
    decode_subscribed,
    decode_will,
)
from holdfast.errors import StoreError
from holdfast.state.environment import Environment
from holdfast.state.tables import NUMBER, PACKET_ID, PAIR, QUEUED, SUBSCRIPTION_ID, Table, unseal

COPY = 0x08
SHARED = 0x10
# Of the table of what a node shares with others.
POSITION_KEY = b"position"
SETTINGS_KEY = b"settings"
NODE_PREFIX = b"node/"
COUNTER_PREFIX = b"counter/"
COPIED = b"c"
MISSED = b"m"
VERSION = struct.Struct("<Q")


@dataclass(frozen=True)
class QueuedValue:
    """A message that waits in a session, as it is stored: where the message is, and how far its delivery has come.

    `copy` is a snapshot's copy of a retained message, which lives no longer than the snapshot.
    """

    seq: int
    message_offset: int
    qos: int
    retain: bool
    subscription_ids: tuple[int, ...] = ()
    packet_id: int = 0  # 0 while it waits to be sent
    stage: int = WAITING
    copy: bool = False
    shared: bool = False  # by a shared subscription

    def at(self, packet_id: int, stage: int) -> "QueuedValue":
        return replace(self, packet_id=packet_id, stage=stage)

    def encode(self) -> bytes:
        flags = self.qos | (RETAIN if self.retain else 0) | (COPY if self.copy else 0) | (SHARED if self.shared else 0)
        fixed = QUEUED.pack(self.message_offset, flags, self.packet_id, self.stage, len(self.subscription_ids))
        return fixed + b"".join(map(SUBSCRIPTION_ID.pack, self.subscription_ids))

    @classmethod
    def decode(cls, seq: int, value: bytes) -> "QueuedValue":
        offset, flags, packet_id, stage, count = QUEUED.unpack_from(value)
        ids = tuple(SUBSCRIPTION_ID.unpack_from(value, QUEUED.size + 4 * i)[0] for i in range(count))
        copy, shared = flags & COPY != 0, flags & SHARED != 0
        return cls(seq, offset, flags & 3, flags & RETAIN != 0, ids, packet_id, stage, copy, shared)


def message_offset_of(value: bytes) -> int:
    """Returns the one field of a queued value that matters to the fold."""
    offset: int = QUEUED.unpack_from(value)[0]
    return offset


@dataclass
class StoredSnapshot:
    snapshot_id: int
    version: int
    topic_filter: bytes
    copied: set[int] = field(default_factory=set)
    missed: dict[bytes, int] = field(default_factory=dict)  # with the offset at which it was missed

    def add(self, kind: bytes, at: bytes, value: bytes) -> None:
        """Adds a row that belongs to the snapshot."""
        if kind == COPIED:
            self.copied.update(struct.unpack(f"<{len(value) // 8}Q", value))
        elif kind == MISSED:
            self.missed[value] = NUMBER.unpack(at)[0]

    @classmethod
    def decode(cls, snapshot_id: int, value: bytes) -> "StoredSnapshot":
        return cls(snapshot_id, VERSION.unpack_from(value)[0], value[VERSION.size :])


class SnapshotTable:
    """The table as one batch sees it. A snapshot that begins and ends within a batch never reaches a page."""

    def __init__(self, txn: "Transaction[bytes]", db: _Database) -> None:
        self.table = Table(txn, db)
        self.copied: dict[bytes, list[int]] = {}
        self.last: dict[bytes, int] = {}  # offsets of the records that said so, which make keys that differ
        self.begun: dict[bytes, list[bytes]] = {}  # in this batch, with the keys of their other rows

    def begin(self, session_id: int, snapshot_id: int, version: int, topic_filter: bytes) -> None:
        key = PAIR.pack(session_id, snapshot_id)
        self.table.put_new(key, VERSION.pack(version) + topic_filter)
        self.begun[key] = []

    def on_copied(self, session_id: int, snapshot_id: int, offsets: list[int], at: int) -> None:
        key = PAIR.pack(session_id, snapshot_id)
        known = self.copied.get(key)
        if known is None:
            if self.table.get(key) is None:
                return
            self.copied[key] = known = []
        known += offsets
        self.last[key] = at

    def on_missed(self, session_id: int, snapshot_id: int, topic: bytes, at: int) -> None:
        key = PAIR.pack(session_id, snapshot_id)
        row = key + MISSED + NUMBER.pack(at)
        if key in self.begun:
            self.begun[key].append(row)
        elif self.table.get(key) is None:
            return
        self.table.put_new(row, topic)

    def end(self, session_id: int, snapshot_id: int) -> None:
        key = PAIR.pack(session_id, snapshot_id)
        self.copied.pop(key, None)
        rows = self.begun.pop(key, None)
        if rows is None:
            self.table.delete_prefix(key)
            return
        for row in (key, *rows):
            self.table.delete(row)

    def end_all(self, session_id: int) -> None:
        prefix = NUMBER.pack(session_id)
        for key in [key for key in self.copied if key.startswith(prefix)]:
            del self.copied[key]
        self.begun = {key: rows for key, rows in self.begun.items() if not key.startswith(prefix)}
        self.table.delete_prefix(prefix)

    def flush(self) -> None:
        for key, offsets in self.copied.items():
            self.table.put_new(key + COPIED + NUMBER.pack(self.last[key]), struct.pack(f"<{len(offsets)}Q", *offsets))
        self.copied.clear()
        self.begun.clear()
        self.table.flush()


@dataclass
class StoredSession:
    """`queue` is in the order of `seq`; entries with a packet id were under way when they were last heard of."""

    record: SessionRecord
    subscriptions: list[SubscriptionRecord] = field(default_factory=list)
    queue: list[QueuedValue] = field(default_factory=list)
    unreleased: list[int] = field(default_factory=list)  # packet ids of QoS 2 publishes received and not released
    will: WillRecord | None = None
    snapshots: dict[int, StoredSnapshot] = field(default_factory=dict)  # those that have not ended
    attached: AttachedRecord | None = None  # where nodes share a log: the connection that it has


@dataclass
class StoredCluster:
    """What a node knew of the log that it shares; `position` is None where it has read none of it."""

    position: PositionRecord | None = None
    offset: int = 0  # of that record
    settings: bytes = b""
    nodes: list[NodeRecord] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)


def as_given(record: bytes, publishers: Publishers) -> Message:
    """Returns a message as sessions were given it: without RETAIN, where a policy took it away."""
    message = decode_publish(record, publishers)
    return message.without_retain() if publish_outcome(record) == REFUSED_POLICY else message


class Sessions:
    """`damaged` counts values that failed their checksum and were left out."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.publishers = Publishers()
        self.damaged = 0

    def all(self) -> list[StoredSession]:
        return self.environment.read(self.read_all)

    def read_all(self, txn: "Transaction[bytes]") -> list[StoredSession]:
        sessions: dict[int, StoredSession] = {}
        for key, value in self.rows(txn, "sessions"):
            sessions[NUMBER.unpack(key)[0]] = StoredSession(decode_session(value))
        for key, value in self.rows(txn, "subscriptions"):
            if owner := sessions.get(NUMBER.unpack_from(key)[0]):
                owner.subscriptions.append(decode_subscribed(value))
        for key, value in self.rows(txn, "queue"):
            session_id, seq = PAIR.unpack(key)
            if owner := sessions.get(session_id):
                owner.queue.append(QueuedValue.decode(seq, value))
        for key, _ in self.rows(txn, "received"):
            session_id, packet_id = PACKET_ID.unpack(key)
            if owner := sessions.get(session_id):
                owner.unreleased.append(packet_id)
        for key, value in self.rows(txn, "wills"):
            if owner := sessions.get(NUMBER.unpack(key)[0]):
                owner.will = decode_will(value)
        for key, value in self.rows(txn, "snapshots"):
            session_id, snapshot_id = PAIR.unpack_from(key)
            if owner := sessions.get(session_id):
                if len(key) == PAIR.size:
                    owner.snapshots[snapshot_id] = StoredSnapshot.decode(snapshot_id, value)
                elif snapshot := owner.snapshots.get(snapshot_id):
                    snapshot.add(key[PAIR.size : PAIR.size + 1], key[PAIR.size + 1 :], value)
        for key, value in self.rows(txn, "attached"):
            if owner := sessions.get(NUMBER.unpack(key)[0]):
                owner.attached = decode_attached(value)
        return list(sessions.values())

    def cluster(self) -> StoredCluster:
        return self.environment.read(self.read_cluster)

    def read_cluster(self, txn: "Transaction[bytes]") -> StoredCluster:
        found = StoredCluster()
        for key, value in self.rows(txn, "cluster"):
            if key == POSITION_KEY:
                found.position, found.offset = decode_position(value), record_offset(value)
            elif key == SETTINGS_KEY:
                found.settings = decode_settings(value)
            elif key.startswith(NODE_PREFIX):
                found.nodes.append(decode_node(value))
            elif key.startswith(COUNTER_PREFIX):
                found.counters[key.removeprefix(COUNTER_PREFIX).decode()] = NUMBER.unpack(value)[0]
        return found

    def forget_cluster(self) -> None:
        """Forget the log that was shared, and who took part; what was read from it stays."""
        self.environment.write(lambda txn: txn.drop(self.environment.db["cluster"], delete=False))

    def rows(self, txn: "Transaction[bytes]", table: str) -> Iterator[tuple[bytes, bytes]]:
        if table not in self.environment.db:
            return
        with txn.cursor(self.environment.db[table]) as cursor:
            for key, stored in cursor.iternext():
                try:
                    value = unseal(key, stored)
                except StoreError:
                    self.damaged += 1
                    continue
                yield key, value

    def messages(self) -> dict[int, Message]:
        """Returns every message that some session waits for, by its offset."""
        return self.environment.read(
            lambda txn: {
                NUMBER.unpack(key)[0]: as_given(value, self.publishers) for key, value in self.rows(txn, "messages")
            }
        )

    def message(self, offset: int) -> Message | None:
        key = NUMBER.pack(offset)
        stored = self.environment.read(lambda txn: txn.get(key, db=self.environment.db["messages"]))
        return None if stored is None else decode_publish(unseal(key, stored), self.publishers)

    def sweep(self) -> int:
        """Deletes messages that no session waits for, because a crash cut off their queueing; returns how many."""
        return self.environment.write(self.sweep_in)

    def sweep_in(self, txn: "Transaction[bytes]") -> int:
        count = 0
        with txn.cursor(self.environment.db["messages"]) as cursor:
            found = cursor.first()
            while found:
                if txn.get(cursor.key(), db=self.environment.db["refs"]) is None:
                    cursor.delete()
                    count += 1
                    found = bool(cursor.key())
                else:
                    found = cursor.next()
        return count
