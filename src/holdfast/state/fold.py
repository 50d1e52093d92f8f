"""The fold: what each kind of record does to the tables.

Rules about messages and sessions are decided before a record exists. Here a record only sets, replaces and deletes.
Applying a record again, or one about something that is gone, changes nothing that matters, so damage elsewhere cannot
stop the fold.
"""

from operator import itemgetter

from lmdb import Transaction

from holdfast.broker import records as kinds
from holdfast.broker.node_records import decode_node, decode_position
from holdfast.broker.records import (
    Changes,
    publish_expires_at_ms,
    record_kind,
    record_offset,
    stored_message,
    without_topic,
)
from holdfast.broker.session_records import (
    decode_copied,
    decode_copy,
    decode_done,
    decode_packet_id,
    decode_queued,
    decode_sent,
    decode_session,
    decode_snapshot,
    decode_subscribed,
    decode_unsubscribed,
    missed_topic,
    record_session,
    record_snapshot,
)
from holdfast.state.environment import APPLIED_KEY, Environment
from holdfast.state.sessions import (
    COUNTER_PREFIX,
    NODE_PREFIX,
    POSITION_KEY,
    SETTINGS_KEY,
    QueuedValue,
    SnapshotTable,
    message_offset_of,
)
from holdfast.state.tables import (
    CHECKSUM_SIZE,
    KEY_MAX,
    LONG_PREFIX,
    NUMBER,
    PACKET_ID,
    PAIR,
    REFERENCES,
    STATISTICS,
    Table,
    filter_key,
    seal,
    topic_key,
    unseal,
)

STATISTICS_KEY = b"retained"
NOTHING = STATISTICS.pack(0, 0, 0)
EXPIRY = slice(18, 26)  # of a publish record
STORED_EXPIRY = slice(CHECKSUM_SIZE + 18, CHECKSUM_SIZE + 26)
NEVER = bytes(8)


class Fold:
    """One batch on its way into the tables. Hand it records in offset order, then `finish`."""

    def __init__(self, environment: Environment, txn: "Transaction[bytes]") -> None:
        self.environment = environment
        self.txn = txn
        db = environment.db
        self.changes = Changes()
        self.sessions = Table(txn, db["sessions"])
        self.subscriptions = Table(txn, db["subscriptions"])
        self.queue = Table(txn, db["queue"])
        self.received = Table(txn, db["received"])
        self.wills = Table(txn, db["wills"])
        self.messages = Table(txn, db["messages"])
        self.refs = Table(txn, db["refs"])
        self.snapshots = SnapshotTable(txn, db["snapshots"])
        self.attached = Table(txn, db["attached"])
        self.cluster = Table(txn, db["cluster"])

    def apply_all(self, records: list[bytes], after: int) -> int:
        """Take in the records behind offset `after`; returns the offset that they reach."""
        reached = self.changes.add_all(records, after)
        for record in self.changes.others:
            self.apply(record)
        self.changes.others.clear()
        return reached

    def apply(self, record: bytes) -> None:
        kind = record_kind(record)
        if kind == kinds.PUBLISH:
            self.messages.put_new(NUMBER.pack(record_offset(record)), record)
        elif kind == kinds.QUEUED:
            self.on_queued(record)
        elif kind == kinds.DONE:
            session_id, seqs = decode_done(record)
            for seq in seqs:
                self.forget(PAIR.pack(session_id, seq))
        elif kind == kinds.SENT:
            self.on_sent(record)
        elif kind == kinds.RECEIVED:
            self.received.put(PACKET_ID.pack(*decode_packet_id(record)), b"")
        elif kind == kinds.RELEASED:
            self.received.delete(PACKET_ID.pack(*decode_packet_id(record)))
        elif kind == kinds.SESSION:
            key = NUMBER.pack(record_session(record))
            self.sessions.put(key, record)
            if decode_session(record).disconnected_at_ms:
                self.attached.delete(key)
        elif kind == kinds.SESSION_ENDED:
            self.on_session_ended(record_session(record))
        elif kind == kinds.SUBSCRIBED:
            subscription = decode_subscribed(record)
            self.subscriptions.put(filter_key(subscription.session_id, subscription.topic_filter), record)
        elif kind == kinds.UNSUBSCRIBED:
            self.subscriptions.delete(filter_key(*decode_unsubscribed(record)))
        elif kind == kinds.WILL:
            self.wills.put(NUMBER.pack(record_session(record)), record)
        elif kind == kinds.WILL_CLEARED:
            self.wills.delete(NUMBER.pack(record_session(record)))
        elif kind == kinds.MESSAGE:
            message = stored_message(record)
            key = NUMBER.pack(record_offset(message))
            if self.messages.get(key) is None:
                self.messages.put(key, message)
        elif kind == kinds.COPY:
            self.on_copy(record)
        elif kind == kinds.COPIED:
            copied = decode_copied(record)
            self.snapshots.on_copied(copied.session_id, copied.snapshot_id, copied.offsets, record_offset(record))
        elif kind == kinds.SNAPSHOT:
            self.snapshots.begin(*decode_snapshot(record))
        elif kind == kinds.SNAPSHOT_ENDED:
            self.snapshots.end(*record_snapshot(record))
        elif kind == kinds.MISSED:
            self.snapshots.on_missed(*record_snapshot(record), missed_topic(record), record_offset(record))
        elif kind == kinds.ATTACHED:
            self.attached.put(NUMBER.pack(record_session(record)), record)
        elif kind == kinds.POSITION:
            position = decode_position(record)
            self.cluster.put(POSITION_KEY, record)
            if position.counter:
                self.cluster.put(COUNTER_PREFIX + position.node.encode(), NUMBER.pack(position.counter))
        elif kind == kinds.NODE:
            node = decode_node(record)
            if node.version:
                self.cluster.put(NODE_PREFIX + node.name.encode(), record)
            else:
                self.cluster.delete(NODE_PREFIX + node.name.encode())
        elif kind == kinds.SETTINGS:
            self.cluster.put(SETTINGS_KEY, record)

    def on_queued(self, record: bytes) -> None:
        entries = decode_queued(record)
        if not entries:
            return
        for entry in entries:
            value = QueuedValue(
                entry.seq,
                entry.message_offset,
                entry.qos,
                entry.retain,
                tuple(entry.subscription_ids),
                shared=entry.shared,
            )
            self.queue.put_new(PAIR.pack(entry.session_id, entry.seq), value.encode())
        self.count(NUMBER.pack(entries[0].message_offset), len(entries))

    def on_copy(self, record: bytes) -> None:
        """As `on_queued`, for a message that some snapshot copied; others may have done so before."""
        copy = decode_copy(record)
        offset = record_offset(copy.message)
        value = QueuedValue(copy.seq, offset, copy.qos, True, tuple(copy.subscription_ids), copy=True)
        self.queue.put_new(PAIR.pack(copy.session_id, copy.seq), value.encode())
        key = NUMBER.pack(offset)
        if self.messages.get(key) is None:
            if key in self.messages.changes:
                self.messages.put(key, copy.message)
            else:
                self.messages.put_new(key, copy.message)
        self.count(key, 1)
        self.snapshots.on_copied(copy.session_id, copy.snapshot_id, [offset], record_offset(record))

    def on_sent(self, record: bytes) -> None:
        session_id, seq, packet_id, stage = decode_sent(record)
        key = PAIR.pack(session_id, seq)
        value = self.queue.get(key)
        if value is not None:
            self.queue.put(key, QueuedValue.decode(seq, value).at(packet_id, stage).encode())

    def forget(self, key: bytes) -> None:
        """A queued message is done with."""
        value = self.queue.get(key)
        if value is not None:
            self.queue.delete(key)
            self.count(NUMBER.pack(message_offset_of(value)), -1)

    def count(self, message_key: bytes, change: int) -> None:
        """So many more, or fewer, sessions wait for a message; with none left it goes."""
        stored = self.refs.get(message_key)
        before: int = REFERENCES.unpack(stored)[0] if stored is not None else 0
        after = before + change
        if after > 0:
            if stored is None and message_key in self.messages.new:
                self.refs.put_new(message_key, REFERENCES.pack(after))
            else:
                self.refs.put(message_key, REFERENCES.pack(after))
        else:
            self.refs.delete(message_key)
            self.messages.delete(message_key)

    def on_session_ended(self, session_id: int) -> None:
        prefix = NUMBER.pack(session_id)
        self.sessions.delete(prefix)
        self.attached.delete(prefix)
        self.wills.delete(prefix)
        self.subscriptions.delete_prefix(prefix)
        self.snapshots.end_all(session_id)
        self.received.delete_prefix(prefix)
        for value in self.queue.delete_prefix(prefix):
            self.count(NUMBER.pack(message_offset_of(value)), -1)

    def finish(self, applied: int) -> None:
        """Write everything, with the offset that it brings the state to."""
        self.finish_retained()
        for table in (
            self.sessions,
            self.subscriptions,
            self.queue,
            self.received,
            self.wills,
            self.messages,
            self.refs,
            self.attached,
            self.cluster,
        ):
            table.flush()
        self.snapshots.flush()
        self.environment.set_number(self.txn, APPLIED_KEY, applied)

    def finish_retained(self) -> None:
        """All at once and in the order of keys: looking up and writing then walks the tree instead of jumping in it."""
        if not self.changes.retained:
            return
        rows: list[tuple[bytes, bytes]] = []
        cleared: list[bytes] = []
        expiring: list[tuple[bytes, bytes]] = []
        size = 0
        for topic, record in self.changes.retained.items():
            key = topic.replace(b"/", b"\0")
            if len(key) > LONG_PREFIX:
                key = topic_key(topic)
            if record is None:
                cleared.append(key)
                continue
            value = without_topic(record) if len(key) < KEY_MAX else record
            rows.append((key, seal(key, value)))
            size += len(key) + len(value)
            if record[EXPIRY] != NEVER:
                expiring.append((key, record))
        rows.sort(key=itemgetter(0))
        cleared.sort()
        statistics = read_statistics(self.txn, self.environment)
        statistics.add(len(rows), size)
        with self.txn.cursor(self.environment.db["retained"]) as cursor:
            for key, old in cursor.getmulti([key for key, _ in rows] + cleared):
                statistics.add(-1, -(len(key) + len(old) - CHECKSUM_SIZE))
                if old[STORED_EXPIRY] != NEVER and len(old) >= STORED_EXPIRY.stop:
                    self.unschedule(old[CHECKSUM_SIZE:])
            cursor.putmulti(rows)
        for key in cleared:
            self.txn.delete(key, db=self.environment.db["retained"])
        for key, record in expiring:
            self.schedule(key, record)
        statistics.version = max(statistics.version, self.changes.version)
        write_statistics(self.txn, self.environment, statistics)

    def schedule(self, key: bytes, record: bytes) -> None:
        at = PAIR.pack(publish_expires_at_ms(record), record_offset(record))
        self.txn.put(at, seal(at, key), db=self.environment.db["expiry"])

    def unschedule(self, record: bytes) -> None:
        at = PAIR.pack(publish_expires_at_ms(record), record_offset(record))
        self.txn.delete(at, db=self.environment.db["expiry"])


class Statistics:
    """Sums over the retained table: how many, how many bytes of keys and values, and the offset of the last change."""

    def __init__(self, count: int, size: int, version: int) -> None:
        self.count = count
        self.size = size
        self.version = version

    def add(self, count: int, size: int) -> None:
        self.count += count
        self.size += size


def read_statistics(txn: "Transaction[bytes]", environment: Environment) -> Statistics:
    stored = txn.get(STATISTICS_KEY, db=environment.db["meta"])
    return Statistics(*STATISTICS.unpack(NOTHING if stored is None else unseal(STATISTICS_KEY, stored)))


def write_statistics(txn: "Transaction[bytes]", environment: Environment, statistics: Statistics) -> None:
    value = STATISTICS.pack(max(0, statistics.count), max(0, statistics.size), statistics.version)
    txn.put(STATISTICS_KEY, seal(STATISTICS_KEY, value), db=environment.db["meta"])


def count_again(txn: "Transaction[bytes]", environment: Environment) -> None:
    """Set the sums from the table itself, after entries were taken out behind their back."""
    statistics = read_statistics(txn, environment)
    statistics.count = statistics.size = 0
    with txn.cursor(environment.db["retained"]) as cursor:
        for key, stored in cursor.iternext():
            statistics.add(1, len(key) + len(stored) - CHECKSUM_SIZE)
    write_statistics(txn, environment, statistics)
