"""The records that applying an entry leaves, which the journal keeps and every other fold reads.

The core says what happened, in its own words; here it becomes records, in the order of their offsets, gathered in the
effects of the call. Nothing is written for a session that ends with its connection (`record_id` is 0), nor by a broker
whose log keeps nothing.
"""

from typing import Final, final

from holdfast.broker.effects import Effects
from holdfast.broker.log import Log
from holdfast.broker.message import CLEARED, LIVE, SET, Message
from holdfast.broker.records import add_publish, encode_stored_message
from holdfast.broker.session import Delivery, PendingWill, Session, Subscription
from holdfast.broker.session_records import (
    RELEASING,
    UNACKNOWLEDGED,
    AttachedRecord,
    CopiedRecord,
    QueuedRecord,
    SessionRecord,
    SubscriptionRecord,
    WillRecord,
    encode_attached,
    encode_copied,
    encode_copy,
    encode_done,
    encode_missed,
    encode_queued,
    encode_received,
    encode_released,
    encode_sent,
    encode_session,
    encode_session_ended,
    encode_snapshot,
    encode_snapshot_ended,
    encode_subscribed,
    encode_unsubscribed,
    encode_will,
    encode_will_cleared,
    renumbered,
)
from holdfast.protocol.mqtt.packets import PROTOCOL_NAMES, V311

VERSIONS: Final = {name: version for version, name in PROTOCOL_NAMES.items()}


@final
class Recorder:
    def __init__(self, log: Log, effects: Effects) -> None:
        self.log: Final = log
        self.effects: Final = effects
        self.keeps: Final = log.keeps_state
        # The publish at hand: the sessions it waits for, and those that have been sent it already. Records of other
        # things that happen meanwhile belong after it; they get their offsets there.
        self.publishing = False
        self.following = False  # the entry at hand is another broker's, which numbers what waits in sessions
        self.queued: list[QueuedRecord] = []
        self.sent: list[Delivery] = []
        self.sent_ids: list[int] = []
        self.sent_sessions: list[int] = []
        self.deferred: list[bytes] = []
        # What no client waits for is written once at the end of the call.
        self.done: dict[int, list[int]] = {}
        # What groups had given to sessions that are not kept, and that is done with there: other nodes are to be told.
        self.given_back: list[tuple[Session, int]] = []
        self.copied: dict[int, CopiedRecord] = {}

    def add(self, record: bytes) -> None:
        self.effects.records.add(record)

    def finish(self) -> None:
        """Add what was gathered for the end of the call."""
        if self.done:
            for session_id in list(self.done):
                self.add_done(session_id)
        if self.copied:
            for copied in self.copied.values():
                self.add(encode_copied(self.log.order(1), copied))
            self.copied = {}

    def break_off(self) -> None:
        """Forget the publish at hand: a defect has ended the call in the middle of it."""
        self.publishing = False
        self.following = False
        self.queued = []
        self.sent = []
        self.sent_ids = []
        self.sent_sessions = []
        self.deferred = []

    def add_done(self, session_id: int) -> None:
        sequences = self.done.pop(session_id, None)
        if sequences is not None:
            self.add(encode_done(self.log.order(1), session_id, sequences))

    # Publishes.

    def on_publish(self, message: Message, outcome: int, history: bool, told: bool) -> None:
        """Record a publish that is applied and delivered, so that it is known which sessions it waits for."""
        self.publishing = False
        kept = len(self.queued) > 0
        changes = outcome in (SET, CLEARED)
        if kept or changes or history:
            add_publish(self.effects.records, message, outcome, history, kept, told)
        if kept or self.deferred:
            self.add_queued(message.offset)

    def on_requeued(self, message: Message) -> None:
        """Record that a message which one member of a group had been given waits for another now."""
        self.publishing = False
        if self.queued:
            self.add(encode_stored_message(self.log.order(1), message))
        if self.queued or self.deferred:
            self.add_queued(message.offset)

    def on_run(self, recorded: list[Message]) -> None:
        """Record a delivered run of messages that no session waits for; `recorded` are those that go to the history."""
        self.publishing = False
        for message in recorded:
            add_publish(self.effects.records, message, LIVE, True, False, False)
        if self.deferred:
            self.add_queued(0)

    def add_queued(self, message_offset: int) -> None:
        if self.queued:
            self.add(encode_queued(self.log.order(1), message_offset, self.queued))
            self.queued = []
        if self.deferred:
            for record in self.deferred:
                self.add(renumbered(record, self.log.order(1)))
            self.deferred = []
        for i in range(len(self.sent)):
            self.add(
                encode_sent(
                    self.log.order(1), self.sent_sessions[i], self.sent[i].sequence, self.sent_ids[i], UNACKNOWLEDGED
                )
            )
        if self.sent:
            self.sent = []
            self.sent_ids = []
            self.sent_sessions = []

    def on_queued(self, session: Session, delivery: Delivery) -> None:
        """Record a message that waits for a session which outlives its connection."""
        if not session.kept or not self.publishing or self.following:
            return
        delivery.sequence = self.new_sequence(session)
        self.add_waiting(session, delivery)

    def add_waiting(self, session: Session, delivery: Delivery) -> None:
        """Note that the publish at hand waits for this session, under the number that it was given."""
        identifiers = delivery.identifiers
        self.queued.append(
            QueuedRecord(
                session.record_id,
                delivery.sequence,
                delivery.message.offset,
                delivery.qos,
                delivery.retain,
                identifiers if identifiers is not None else [],
                delivery.shared,
            )
        )

    def on_sent(self, session: Session, delivery: Delivery, packet_id: int) -> None:
        if delivery.sequence == 0 or not session.kept:
            return
        if self.publishing:
            self.sent.append(delivery)
            self.sent_ids.append(packet_id)
            self.sent_sessions.append(session.record_id)
        else:
            self.add(encode_sent(self.log.order(1), session.record_id, delivery.sequence, packet_id, UNACKNOWLEDGED))

    def on_releasing(self, session: Session, delivery: Delivery, packet_id: int) -> bool:
        """Record that PUBREC has come; returns whether PUBREL has to wait for the disk."""
        if delivery.sequence == 0 or not session.kept:
            return False
        self.add(encode_sent(self.log.order(1), session.record_id, delivery.sequence, packet_id, RELEASING))
        return True

    def on_done(self, session: Session, delivery: Delivery) -> None:
        """Record that a message was acknowledged, expired or was dropped. Nothing waits for this to be durable."""
        if delivery.sequence == 0 or session.record_id == 0:
            return
        if not session.kept:
            self.given_back.append((session, delivery.sequence))
            return
        sequences = self.done.get(session.record_id)
        if sequences is None:
            self.done[session.record_id] = [delivery.sequence]
        else:
            sequences.append(delivery.sequence)

    def on_received(self, session: Session, packet_id: int) -> None:
        if session.record_id:
            self.add(encode_received(self.log.order(1), session.record_id, packet_id))

    def on_released(self, session: Session, packet_id: int) -> None:
        if session.record_id:
            self.add(encode_released(self.log.order(1), session.record_id, packet_id))

    # Snapshots. A live message may make a copy leave out of turn: then the publish at hand comes first in the log.

    def on_snapshot(self, session: Session, version: int, topic_filter: bytes) -> int:
        """Record that a snapshot begins; returns what the log knows it by, or 0 when it is not in the log."""
        if not session.kept:
            return 0
        offset = self.log.order(1)
        self.add(encode_snapshot(offset, session.record_id, version, topic_filter))
        return offset

    def on_snapshot_ended(self, session: Session, snapshot_id: int) -> None:
        self.copied.pop(snapshot_id, None)
        if session.record_id:
            self.add_deferred(encode_snapshot_ended(self.deferred_offset(), session.record_id, snapshot_id))

    def on_copy(self, session: Session, snapshot_id: int, delivery: Delivery, waits: bool = False) -> None:
        """Record that a snapshot gives the session a copy, to be sent now or from the queue; `waits`: it is to be found
        there also at QoS 0.
        """
        if not session.kept:
            return
        message = delivery.message
        if delivery.qos == 0 and not waits:
            copied = self.copied.get(snapshot_id)
            if copied is None:
                copied = CopiedRecord(session.record_id, snapshot_id)
                self.copied[snapshot_id] = copied
            copied.offsets.append(message.offset)
            return
        delivery.sequence = self.new_sequence(session)
        self.add_deferred(
            encode_copy(
                self.deferred_offset(),
                session.record_id,
                snapshot_id,
                delivery.sequence,
                delivery.qos,
                delivery.identifiers,
                message,
            )
        )

    def on_missed(self, session: Session, snapshot_id: int, topic: bytes) -> None:
        if session.record_id:
            self.add_deferred(encode_missed(self.deferred_offset(), session.record_id, snapshot_id, topic))

    def deferred_offset(self) -> int:
        return 0 if self.publishing else self.log.order(1)

    def add_deferred(self, record: bytes) -> None:
        if self.publishing:
            self.deferred.append(record)
        else:
            self.add(record)

    # Sessions.

    def on_attached(self, session: Session, version: int) -> None:
        """Record a session that will outlive its connection, new or resumed, with the will of this connection. Where
        nodes share a log, they have to know of every client.
        """
        spread = session.spread
        if not self.keeps or (session.expiry_s == 0 and session.record_id == 0 and spread is None):
            return
        offset = self.log.order(1)
        if session.record_id == 0:
            session.record_id = offset
        session.kept = session.kept or spread is None or session.expiry_s > 0
        self.add(encode_session(offset, session_record(session, version, 0)))
        if spread is not None:
            spread.connection_id = self.log.order(1)
            self.add(
                encode_attached(
                    AttachedRecord(spread.connection_id, session.record_id, spread.window, session.kept, spread.node)
                )
            )
        self.on_will(session)

    def on_will(self, session: Session) -> None:
        """Record the will that a session has now, or that it has none."""
        if session.record_id == 0:
            return
        will = session.will
        if will is not None:
            self.add(encode_will(self.log.order(1), will_record(session, will)))
        else:
            self.add(encode_will_cleared(self.log.order(1), session.record_id))

    def on_detached(self, session: Session, now_ms: int) -> None:
        if session.record_id:
            # How much an absent client may have waiting is counted alike everywhere: so what is done is said first.
            self.add_done(session.record_id)
            version = VERSIONS.get(session.protocol, V311)
            self.add(encode_session(self.log.order(1), session_record(session, version, now_ms)))

    def on_ended(self, session: Session) -> None:
        if session.record_id:
            self.add(encode_session_ended(self.log.order(1), session.record_id))
            session.record_id = 0
            session.kept = False

    def on_will_cleared(self, session: Session) -> None:
        if session.record_id:
            self.add(encode_will_cleared(self.log.order(1), session.record_id))

    def on_given(self, session: Session, delivery: Delivery) -> None:
        """Record a message that a group has given to a session which is not kept: all nodes must know whose it is."""
        delivery.sequence = self.log.order(1)
        self.add_waiting(session, delivery)

    def on_taken(self, session: Session, sequence: int) -> None:
        """Record that such a message needs nothing more."""
        self.add(encode_done(self.log.order(1), session.record_id, [sequence]))

    def new_sequence(self, session: Session) -> int:
        """Return the number of a message that waits in a session; one that all nodes find, where they share a log."""
        return session.new_sequence() if session.spread is None else self.log.order(1)

    def on_subscribed(self, session: Session, subscription: Subscription) -> None:
        if session.record_id:
            options = subscription.qos
            if subscription.no_local:
                options |= 4
            if subscription.retain_as_published:
                options |= 8
            record = SubscriptionRecord(session.record_id, subscription.topic_filter, options, subscription.identifier)
            self.add(encode_subscribed(self.log.order(1), record))

    def on_unsubscribed(self, session: Session, topic_filter: bytes) -> None:
        if session.record_id:
            self.add(encode_unsubscribed(self.log.order(1), session.record_id, topic_filter))


def session_record(session: Session, version: int, disconnected_at_ms: int) -> SessionRecord:
    return SessionRecord(
        session.record_id,
        session.client_id,
        session.owner,
        version,
        session.expiry_s,
        session.created_at_ms,
        disconnected_at_ms,
    )


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
