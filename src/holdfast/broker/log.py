"""What must outlast the process: records gathered while a batch of packets is handled, handed over at its end.

The core only gathers. Whoever calls it takes the records after each batch, makes them durable, and lets the bytes of
every `guarded` connection leave only then: an acknowledgement never overtakes what it acknowledges.
"""

from typing import TYPE_CHECKING, Final, final

from holdfast.broker.connection import Connection
from holdfast.broker.message import CLEARED, SET, Message
from holdfast.broker.records import encode_publish, encode_stored_message
from holdfast.broker.session import Delivery, PendingWill, Session
from holdfast.broker.session_records import (
    RELEASING,
    UNACKNOWLEDGED,
    QueuedRecord,
    SessionRecord,
    SubscriptionRecord,
    WillRecord,
    encode_done,
    encode_queued,
    encode_received,
    encode_released,
    encode_sent,
    encode_session,
    encode_session_ended,
    encode_subscribed,
    encode_unsubscribed,
    encode_will,
    encode_will_cleared,
)
from holdfast.broker.snapshot_records import (
    CopiedRecord,
    encode_copied,
    encode_copy,
    encode_missed,
    encode_snapshot,
    encode_snapshot_ended,
    renumbered,
)
from holdfast.broker.subscription import Subscription
from holdfast.broker.topics import matches
from holdfast.protocol.mqtt.packets import PROTOCOL_NAMES, V311

if TYPE_CHECKING:
    from holdfast.broker.core import Broker

VERSIONS: Final = {name: version for version, name in PROTOCOL_NAMES.items()}
# How much may wait for the disk before publishers are read from more slowly.
CROWDED_BYTES: Final = 64 * 1024 * 1024


@final
class Log:
    """`waits`: acknowledgements wait for the disk. `keeps_state`: the retained set and sessions are kept at all."""

    def __init__(self, waits: bool, keeps_state: bool, history_filters: list[bytes]) -> None:
        self.waits: Final = waits
        self.keeps_state: Final = keeps_state
        self.history_filters: Final = [topic_filter.split(b"/") for topic_filter in history_filters]
        self.healthy = True
        self.backlog = 0  # bytes handed over and not yet written, as the caller last said
        self.records: list[bytes] = []
        self.size = 0
        # The publish at hand: who it waits for, and who has been sent it already.
        self.entries: list[QueuedRecord] = []
        self.sent: list[Delivery] = []
        self.sent_ids: list[int] = []
        self.sent_sessions: list[int] = []
        self.late: list[bytes] = []  # records that belong behind it; they get their offsets there
        self.publishing = False
        self.done: dict[int, list[int]] = {}
        self.copied: dict[int, CopiedRecord] = {}

    def records_history(self, topic_levels: list[bytes]) -> bool:
        return any(matches(levels, topic_levels) for levels in self.history_filters)

    def add(self, record: bytes) -> None:
        self.records.append(record)
        self.size += len(record)

    def take(self, broker: "Broker") -> list[bytes]:
        """Everything gathered since the last call, in offset order."""
        if self.done:
            for session_id, sequences in self.done.items():
                self.add(encode_done(broker.next_offset(), session_id, sequences))
            self.done = {}
        if self.copied:
            for copied in self.copied.values():
                self.add(encode_copied(broker.next_offset(), copied))
            self.copied = {}
        records = self.records
        self.records = []
        self.size = 0
        return records

    @property
    def has_records(self) -> bool:
        return len(self.records) > 0 or len(self.done) > 0 or len(self.copied) > 0

    # Publishes.

    def begin_publish(self) -> None:
        self.publishing = True

    def end_publish(self, broker: "Broker", message: Message, outcome: int, history: bool) -> None:
        """The message is delivered: now it is known whom it waits for."""
        self.publishing = False
        kept = len(self.entries) > 0
        changes = self.keeps_state and outcome in (SET, CLEARED)
        if kept or changes or history:
            self.add(encode_publish(message, outcome, history, kept))
        if kept or self.late:
            self.add_queued(broker, message.offset)

    def end_requeue(self, broker: "Broker", message: Message) -> None:
        """A message that was given to somebody else waits for another now."""
        self.publishing = False
        if self.entries:
            self.add(encode_stored_message(broker.next_offset(), message))
        if self.entries or self.late:
            self.add_queued(broker, message.offset)

    def end_run(self, broker: "Broker") -> None:
        """A run of messages is delivered that wait for nobody, and recorded."""
        self.publishing = False
        if self.late:
            self.add_queued(broker, 0)

    def add_queued(self, broker: "Broker", message_offset: int) -> None:
        if self.entries:
            self.add(encode_queued(broker.next_offset(), message_offset, self.entries))
            self.entries = []
        if self.late:
            for record in self.late:
                self.add(renumbered(record, broker.next_offset()))
            self.late = []
        for i in range(len(self.sent)):
            self.add(
                encode_sent(
                    broker.next_offset(), self.sent_sessions[i], self.sent[i].sequence, self.sent_ids[i], UNACKNOWLEDGED
                )
            )
        if self.sent:
            self.sent = []
            self.sent_ids = []
            self.sent_sessions = []

    def on_queued(self, session: Session, delivery: Delivery) -> None:
        """A session that outlives its connection has a message to get."""
        if session.record_id == 0 or not self.publishing:
            return
        delivery.sequence = session.take_sequence()
        identifiers = delivery.identifiers
        self.entries.append(
            QueuedRecord(
                session.record_id,
                delivery.sequence,
                delivery.message.offset,
                delivery.qos,
                delivery.retain,
                identifiers if identifiers is not None else [],
            )
        )

    def on_sent(self, broker: "Broker", session: Session, delivery: Delivery, packet_id: int) -> None:
        if delivery.sequence == 0 or session.record_id == 0:
            return
        if self.publishing:
            self.sent.append(delivery)
            self.sent_ids.append(packet_id)
            self.sent_sessions.append(session.record_id)
        else:
            self.add(encode_sent(broker.next_offset(), session.record_id, delivery.sequence, packet_id, UNACKNOWLEDGED))

    def on_releasing(self, broker: "Broker", session: Session, delivery: Delivery, packet_id: int) -> bool:
        """PUBREC has come. Whether PUBREL has to wait for the disk."""
        if delivery.sequence == 0 or session.record_id == 0:
            return False
        self.add(encode_sent(broker.next_offset(), session.record_id, delivery.sequence, packet_id, RELEASING))
        return True

    def on_done(self, session: Session, delivery: Delivery) -> None:
        """Acknowledged, expired or dropped: nobody waits for this to be durable."""
        if delivery.sequence == 0 or session.record_id == 0:
            return
        sequences = self.done.get(session.record_id)
        if sequences is None:
            self.done[session.record_id] = [delivery.sequence]
        else:
            sequences.append(delivery.sequence)

    def on_received(self, broker: "Broker", session: Session, packet_id: int) -> None:
        if session.record_id:
            self.add(encode_received(broker.next_offset(), session.record_id, packet_id))

    def on_released(self, broker: "Broker", session: Session, packet_id: int) -> None:
        if session.record_id:
            self.add(encode_released(broker.next_offset(), session.record_id, packet_id))

    # Snapshots. A live message may make a copy leave out of turn: then the publish at hand comes first in the log.

    def on_snapshot(self, broker: "Broker", session: Session, version: int, topic_filter: bytes) -> int:
        """A snapshot begins; what the log knows it by, 0 when it does not."""
        if session.record_id == 0:
            return 0
        offset = broker.next_offset()
        self.add(encode_snapshot(offset, session.record_id, version, topic_filter))
        return offset

    def on_snapshot_ended(self, broker: "Broker", session: Session, snapshot_id: int) -> None:
        self.copied.pop(snapshot_id, None)
        if session.record_id:
            self.add_late(encode_snapshot_ended(self.late_offset(broker), session.record_id, snapshot_id))

    def on_copy(self, broker: "Broker", session: Session, snapshot_id: int, delivery: Delivery) -> None:
        """A snapshot gives the session a copy, to be sent now or from the queue."""
        if session.record_id == 0:
            return
        message = delivery.message
        if delivery.qos == 0:
            copied = self.copied.get(snapshot_id)
            if copied is None:
                copied = CopiedRecord(session.record_id, snapshot_id)
                self.copied[snapshot_id] = copied
            copied.offsets.append(message.offset)
            return
        delivery.sequence = session.take_sequence()
        self.add_late(
            encode_copy(
                self.late_offset(broker),
                session.record_id,
                snapshot_id,
                delivery.sequence,
                delivery.qos,
                delivery.identifiers,
                message,
            )
        )

    def on_missed(self, broker: "Broker", session: Session, snapshot_id: int, topic: bytes) -> None:
        if session.record_id:
            self.add_late(encode_missed(self.late_offset(broker), session.record_id, snapshot_id, topic))

    def late_offset(self, broker: "Broker") -> int:
        return 0 if self.publishing else broker.next_offset()

    def add_late(self, record: bytes) -> None:
        if self.publishing:
            self.late.append(record)
        else:
            self.add(record)

    # Sessions.

    def on_attached(self, broker: "Broker", session: Session, connection: Connection) -> None:
        """A session that will outlive its connection, new or resumed, with the will of this connection."""
        if not self.keeps_state or (session.expiry_s == 0 and session.record_id == 0):
            return
        offset = broker.next_offset()
        if session.record_id == 0:
            session.record_id = offset
        self.add(encode_session(offset, self.session_record(session, connection.version, 0)))
        will = session.will
        if will is not None:
            self.add(encode_will(broker.next_offset(), will_record(session, will)))
        else:
            self.add(encode_will_cleared(broker.next_offset(), session.record_id))
        self.guard(connection)

    def on_detached(self, broker: "Broker", session: Session) -> None:
        if session.record_id:
            version = VERSIONS.get(session.protocol, V311)
            self.add(encode_session(broker.next_offset(), self.session_record(session, version, broker.now_ms)))

    def session_record(self, session: Session, version: int, disconnected_at_ms: int) -> SessionRecord:
        return SessionRecord(
            session.record_id,
            session.client_id,
            session.owner,
            version,
            session.expiry_s,
            session.created_at_ms,
            disconnected_at_ms,
        )

    def on_ended(self, broker: "Broker", session: Session) -> None:
        if session.record_id:
            self.add(encode_session_ended(broker.next_offset(), session.record_id))
            session.record_id = 0

    def on_will_cleared(self, broker: "Broker", session: Session) -> None:
        if session.record_id:
            self.add(encode_will_cleared(broker.next_offset(), session.record_id))

    def on_subscribed(self, broker: "Broker", session: Session, subscription: Subscription) -> None:
        if session.record_id:
            options = subscription.qos
            if subscription.no_local:
                options |= 4
            if subscription.retain_as_published:
                options |= 8
            record = SubscriptionRecord(session.record_id, subscription.topic_filter, options, subscription.identifier)
            self.add(encode_subscribed(broker.next_offset(), record))

    def on_unsubscribed(self, broker: "Broker", session: Session, topic_filter: bytes) -> None:
        if session.record_id:
            self.add(encode_unsubscribed(broker.next_offset(), session.record_id, topic_filter))

    def guard(self, connection: Connection) -> None:
        """What this connection is sent in this batch may leave only when the batch is durable."""
        if self.waits:
            connection.guarded = True


def will_record(session: Session, pending: PendingWill) -> WillRecord:
    will = pending.will
    properties = will.properties
    expiry_s = -1
    forward = b""
    if properties is not None:
        forward = properties.forward
        if properties.message_expiry is not None:
            expiry_s = properties.message_expiry
    return WillRecord(
        session.record_id,
        will.topic,
        will.payload,
        will.qos,
        will.retain,
        pending.delay_s,
        expiry_s,
        forward,
        session.certified,
    )
