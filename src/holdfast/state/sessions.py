"""The persistent sessions on disk, as a broker takes them up again after a restart."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from lmdb import Transaction

from holdfast.broker.message import Message
from holdfast.broker.records import Publishers, decode_publish
from holdfast.broker.session_records import (
    SessionRecord,
    SubscriptionRecord,
    WillRecord,
    decode_session,
    decode_subscribed,
    decode_will,
)
from holdfast.errors import StoreError
from holdfast.state.environment import Environment
from holdfast.state.formats import NUMBER, PACKET_ID, PAIR, unseal
from holdfast.state.queued import QueuedValue
from holdfast.state.snapshots import StoredSnapshot


@dataclass
class StoredSession:
    """`queue` is in the order of `seq`; entries with a packet id were under way when they were last heard of."""

    record: SessionRecord
    subscriptions: list[SubscriptionRecord] = field(default_factory=list)
    queue: list[QueuedValue] = field(default_factory=list)
    unreleased: list[int] = field(default_factory=list)  # packet ids of QoS 2 publishes received and not released
    will: WillRecord | None = None
    snapshots: dict[int, StoredSnapshot] = field(default_factory=dict)  # those that have not ended


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
                    snapshot.take(key[PAIR.size : PAIR.size + 1], value)
        return list(sessions.values())

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
        """Every message that some session waits for, by its offset."""
        return self.environment.read(
            lambda txn: {
                NUMBER.unpack(key)[0]: decode_publish(value, self.publishers)
                for key, value in self.rows(txn, "messages")
            }
        )

    def message(self, offset: int) -> Message | None:
        key = NUMBER.pack(offset)
        stored = self.environment.read(lambda txn: txn.get(key, db=self.environment.db["messages"]))
        return None if stored is None else decode_publish(unseal(key, stored), self.publishers)

    def sweep(self) -> int:
        """Delete messages that nobody waits for: their queueing was cut off by a crash. How many there were."""
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
