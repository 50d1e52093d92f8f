"""The fold: what each kind of record does to the tables.

Rules about messages and sessions are decided before a record exists. Here a record only sets, replaces and deletes.
Applying a record again, or one about something that is gone, changes nothing that matters, so damage elsewhere cannot
stop the fold.
"""

from lmdb import Transaction

from holdfast.broker import records as kinds
from holdfast.broker.message import CLEARED, SET
from holdfast.broker.records import (
    KEPT,
    publish_expires_at_ms,
    publish_flags,
    publish_outcome,
    publish_topic,
    record_kind,
    record_offset,
    stored_message,
    without_topic,
)
from holdfast.broker.session_records import (
    decode_done,
    decode_packet_id,
    decode_queued,
    decode_sent,
    decode_subscribed,
    decode_unsubscribed,
    record_session,
)
from holdfast.broker.snapshot_records import (
    decode_copied,
    decode_copy,
    decode_snapshot,
    missed_topic,
    record_snapshot,
)
from holdfast.state.environment import APPLIED_KEY, Environment
from holdfast.state.formats import (
    CHECKSUM_SIZE,
    NUMBER,
    PACKET_ID,
    PAIR,
    REFERENCES,
    STATISTICS,
    filter_key,
    is_long_key,
    seal,
    topic_key,
    unseal,
)
from holdfast.state.queued import QueuedValue, message_offset_of
from holdfast.state.snapshots import SnapshotTable
from holdfast.state.tables import Table

STATISTICS_KEY = b"retained"
NOTHING = STATISTICS.pack(0, 0, 0)


class Fold:
    """One batch on its way into the tables. Hand it records in offset order, then `finish`."""

    def __init__(self, environment: Environment, txn: "Transaction[bytes]") -> None:
        self.environment = environment
        self.txn = txn
        db = environment.db
        self.retained: dict[bytes, bytes | None] = {}  # topic to publish record
        self.sessions = Table(txn, db["sessions"])
        self.subscriptions = Table(txn, db["subscriptions"])
        self.queue = Table(txn, db["queue"])
        self.received = Table(txn, db["received"])
        self.wills = Table(txn, db["wills"])
        self.messages = Table(txn, db["messages"])
        self.refs = Table(txn, db["refs"])
        self.snapshots = SnapshotTable(txn, db["snapshots"])
        self.version = 0

    def apply(self, record: bytes) -> None:
        kind = record_kind(record)
        if kind == kinds.PUBLISH:
            self.on_publish(record)
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
            self.sessions.put(NUMBER.pack(record_session(record)), record)
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

    def on_publish(self, record: bytes) -> None:
        outcome = publish_outcome(record)
        if outcome == SET:
            self.retained[publish_topic(record)] = record
            self.version = record_offset(record)
        elif outcome == CLEARED:
            self.retained[publish_topic(record)] = None
            self.version = record_offset(record)
        if publish_flags(record) & KEPT:
            self.messages.put_new(NUMBER.pack(record_offset(record)), record)

    def on_queued(self, record: bytes) -> None:
        entries = decode_queued(record)
        if not entries:
            return
        for entry in entries:
            value = QueuedValue(entry.seq, entry.message_offset, entry.qos, entry.retain, tuple(entry.subscription_ids))
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
        ):
            table.flush()
        self.snapshots.flush()
        self.environment.set_number(self.txn, APPLIED_KEY, applied)

    def finish_retained(self) -> None:
        if not self.retained:
            return
        statistics = read_statistics(self.txn, self.environment)
        db = self.environment.db["retained"]
        replace, pop = self.txn.replace, self.txn.pop
        changes = {topic_key(topic): record for topic, record in self.retained.items()}
        count = size = 0
        for key in sorted(changes):
            record = changes[key]
            if record is None:
                old = pop(key, db=db)
            else:
                value = record if is_long_key(key) else without_topic(record)
                old = replace(key, seal(key, value), db=db)
                count += 1
                size += len(key) + len(value)
            if old is not None:
                count -= 1
                size -= len(key) + len(old) - CHECKSUM_SIZE
                self.unschedule(old[CHECKSUM_SIZE:])
            if record is not None:
                self.schedule(key, record)
        statistics.add(count, size)
        statistics.version = max(statistics.version, self.version)
        write_statistics(self.txn, self.environment, statistics)

    def schedule(self, key: bytes, record: bytes) -> None:
        expires_at_ms = publish_expires_at_ms(record)
        if expires_at_ms:
            at = PAIR.pack(expires_at_ms, record_offset(record))
            self.txn.put(at, seal(at, key), db=self.environment.db["expiry"])

    def unschedule(self, record: bytes) -> None:
        expires_at_ms = publish_expires_at_ms(record)
        if expires_at_ms:
            self.txn.delete(PAIR.pack(expires_at_ms, record_offset(record)), db=self.environment.db["expiry"])


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
