"""A broker that applies what another has ordered, and comes to the same state.

An entry is a fact that some node admitted. Applying it asks no clock, no socket and no chance, so every broker with the
same settings that applies the same entries holds the same retained set, the same sessions and the same queues. A
publish is applied by the very function that its own node applies it with: verdict, queues and deliveries to clients of
this broker follow from the state. What only the node with the connection can know comes as entries of its own: what it
has sent, what was acknowledged, what was dropped, and which member of a shared group it chose.
"""

from typing import Final, final

from holdfast.broker.core import Broker
from holdfast.broker.effects import Effects
from holdfast.broker.lifecycle import end_session, take_over, will_of
from holdfast.broker.message import REFUSED_POLICY, Message
from holdfast.broker.publishing import apply_publish
from holdfast.broker.records import (
    COPIED,
    COPY,
    DONE,
    MESSAGE,
    MISSED,
    PUBLISH,
    QUEUED,
    RECEIVED,
    RELEASED,
    SENT,
    SESSION,
    SESSION_ENDED,
    SNAPSHOT,
    SNAPSHOT_ENDED,
    SUBSCRIBED,
    TOLD,
    UNSUBSCRIBED,
    WILL,
    WILL_CLEARED,
    Publishers,
    as_published,
    decode_publish,
    publish_outcome,
    record_kind,
    record_offset,
    stored_message,
)
from holdfast.broker.session import (
    AWAITING_COMPLETE,
    LAST_PACKET_ID,
    Delivery,
    PendingWill,
    Route,
    Session,
)
from holdfast.broker.session_records import (
    RELEASING,
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
    decode_will,
    missed_topic,
    record_session,
    record_snapshot,
)
from holdfast.broker.subscribing import add_subscription
from holdfast.errors import StoreError
from holdfast.protocol.mqtt.packets import PROTOCOL_NAMES

FLAGS: Final = 26  # where a publish record has them


@final
class RestingSnapshot:
    """A snapshot that another node feeds: what has to be known to go on with it here."""

    def __init__(self, session_id: int, version: int, topic_filter: bytes) -> None:
        self.session_id: Final = session_id
        self.version: Final = version
        self.topic_filter: Final = topic_filter
        self.copied: set[int] = set()
        self.missed: dict[bytes, None] = {}


@final
class Replica:
    """Invariants: `sessions` are those that the log knows, by the offset of the record that created them; `snapshots`
    are theirs, by the offset of theirs.
    """

    def __init__(self, broker: Broker) -> None:
        self.broker: Final = broker
        self.publishers: Final = Publishers()
        self.sessions: dict[int, Session] = {}
        self.snapshots: dict[int, RestingSnapshot] = {}
        self.applied = 0  # the offset of the last entry; an older one that comes again changes nothing
        self.last: Message | None = None  # the publish that the next QUEUED is about

    def apply(self, record: bytes, now_ms: int) -> Effects:
        """Apply one entry, at the offset that it has; returns what follows for the clients of this broker."""
        broker = self.broker
        log = broker.log
        broker.begin(now_ms)
        offset = record_offset(record)
        if offset > self.applied:
            self.applied = offset
            reached = max(log.position, offset)
            log.position = reached
            broker.recorder.following = True
            self.apply_kind(record_kind(record), record)
            broker.recorder.following = False
            log.position = reached  # what follows from the entry has its offsets from where it came
            broker.effects.records.clear()
            broker.effects.records.add(record)
        return broker.finish()

    def apply_kind(self, kind: int, record: bytes) -> None:
        if kind == PUBLISH:
            self.on_publish(record)
        elif kind == MESSAGE:
            self.last = decode_publish(stored_message(record), self.publishers)
        elif kind == QUEUED:
            self.on_queued(record)
        elif kind == SENT:
            self.on_sent(record)
        elif kind == DONE:
            self.on_done(record)
        elif kind in (RECEIVED, RELEASED):
            self.on_packet_id(kind, record)
        elif kind == SESSION:
            self.on_session(record)
        elif kind == SESSION_ENDED:
            self.on_session_ended(record)
        elif kind in (WILL, WILL_CLEARED):
            self.on_will(kind, record)
        elif kind == SUBSCRIBED:
            self.on_subscribed(record)
        elif kind == UNSUBSCRIBED:
            self.on_unsubscribed(record)
        else:
            self.on_snapshot(kind, record)

    # Publishes.

    def on_publish(self, record: bytes) -> None:
        broker = self.broker
        message = as_published(decode_publish(record, self.publishers))
        self.last = message
        route = broker.find_route(message.topic_field)
        if route.groups:
            route = without_groups(route)
        publisher = message.publisher
        sender = broker.sessions.get(publisher.client_id) if publisher.protocol != "api" else None
        apply_publish(broker, message, route, sender, record[FLAGS] & TOLD != 0)
        if publish_outcome(record) == REFUSED_POLICY:
            self.last = message.without_retain()  # as those were given it who were given it

    def on_queued(self, record: bytes) -> None:
        """Learn which sessions a publish waits for. This broker has found out most of that by itself and learns the
        numbers; what it could not know are the choices of shared groups.
        """
        message = self.last
        for entry in decode_queued(record):
            session = self.sessions.get(entry.session_id)
            if session is None:
                continue
            if message is None or message.offset != entry.message_offset:
                raise StoreError(f"entry names message {entry.message_offset}, expected the one before it")
            delivery = unnumbered(session, message)
            if delivery is None:
                delivery = Delivery(message, entry.qos, entry.retain, entry.subscription_ids, None)
                session.push(delivery)
            delivery.sequence = entry.seq
            session.next_sequence = max(session.next_sequence, entry.seq + 1)

    def on_sent(self, record: bytes) -> None:
        session_id, sequence, packet_id, stage = decode_sent(record)
        session = self.sessions.get(session_id)
        if session is None:
            return
        if stage == RELEASING:
            delivery = session.inflight.get(packet_id)
        else:
            delivery = remove_queued(session, sequence)
            if delivery is not None:
                session.inflight[packet_id] = delivery
                session.next_packet_id = packet_id % LAST_PACKET_ID + 1
        if delivery is not None and stage == RELEASING:
            delivery.stage = AWAITING_COMPLETE

    def on_done(self, record: bytes) -> None:
        session_id, sequences = decode_done(record)
        session = self.sessions.get(session_id)
        if session is None:
            return
        done = set(sequences)
        for packet_id, delivery in list(session.inflight.items()):
            if delivery.sequence in done:
                done.discard(delivery.sequence)
                del session.inflight[packet_id]
        for sequence in sequences:
            if sequence in done:
                remove_queued(session, sequence)

    def on_packet_id(self, kind: int, record: bytes) -> None:
        session_id, packet_id = decode_packet_id(record)
        session = self.sessions.get(session_id)
        if session is None:
            return
        if kind == RECEIVED:
            session.unreleased.add(packet_id)
        else:
            session.unreleased.discard(packet_id)

    # Sessions.

    def on_session(self, record: bytes) -> None:
        """Apply that a session was made, resumed or left."""
        broker = self.broker
        stored = decode_session(record)
        session = self.sessions.get(stored.session_id)
        if session is None:
            old = broker.sessions.get(stored.client_id)
            if old is not None:  # a client of this broker has connected elsewhere
                take_over(broker, old)
                end_session(broker, old)
            session = Session(stored.client_id, stored.owner, stored.connected_at_ms)
            session.record_id = stored.session_id
            session.kept = True
            self.sessions[stored.session_id] = session
            broker.sessions[session.client_id] = session
        session.attach(PROTOCOL_NAMES.get(stored.version, "3.1.1"), stored.expiry_interval_s)
        if stored.disconnected_at_ms:
            session.detach(stored.disconnected_at_ms)

    def on_session_ended(self, record: bytes) -> None:
        session = self.sessions.pop(record_session(record), None)
        if session is None:
            return
        session.ended = True
        session.record_id = 0
        session.kept = False
        for subscription in list(session.subscriptions.values()):
            self.broker.subscriptions.remove(subscription)
        if self.broker.sessions.get(session.client_id) is session:
            del self.broker.sessions[session.client_id]

    def on_will(self, kind: int, record: bytes) -> None:
        session = self.sessions.get(record_session(record))
        if session is None:
            return
        if kind == WILL:
            stored = decode_will(record)
            session.will = PendingWill(will_of(stored), stored.delay_interval_s)
            session.certified = stored.certified
        else:
            session.will = None

    def on_subscribed(self, record: bytes) -> None:
        stored = decode_subscribed(record)
        session = self.sessions.get(stored.session_id)
        if session is not None:
            add_subscription(self.broker, session, stored)

    def on_unsubscribed(self, record: bytes) -> None:
        session_id, topic_filter = decode_unsubscribed(record)
        session = self.sessions.get(session_id)
        subscription = session.subscriptions.get(topic_filter) if session is not None else None
        if subscription is not None:
            self.broker.subscriptions.remove(subscription)

    # Snapshots.

    def on_snapshot(self, kind: int, record: bytes) -> None:
        if kind == SNAPSHOT:
            session_id, snapshot_id, version, topic_filter = decode_snapshot(record)
            self.snapshots[snapshot_id] = RestingSnapshot(session_id, version, topic_filter)
            return
        snapshot_id = record_snapshot(record)[1]
        if kind == SNAPSHOT_ENDED:
            self.snapshots.pop(snapshot_id, None)
            return
        snapshot = self.snapshots.get(snapshot_id)
        if kind == COPIED and snapshot is not None:
            snapshot.copied.update(decode_copied(record).offsets)
        elif kind == MISSED and snapshot is not None:
            snapshot.missed[missed_topic(record)] = None
        elif kind == COPY:
            copy = decode_copy(record)
            session = self.sessions.get(copy.session_id)
            message = decode_publish(copy.message, self.publishers)
            if snapshot is not None:
                snapshot.copied.add(message.offset)
            if session is not None:
                insert(session, copy.seq, Delivery(message, copy.qos, True, copy.subscription_ids, None))


def without_groups(route: Route) -> Route:
    """Return the route without its groups: which member of a group gets a message is for its own node to choose."""
    plain = Route(route.topic_field, route.levels, route.generation, route.policies)
    plain.receivers = route.receivers
    plain.recorded = route.recorded
    plain.recorded_live = route.recorded_live
    return plain


def unnumbered(session: Session, message: Message) -> Delivery | None:
    """Return the first copy of this message at the end of the queue whose number is not known yet, if there is one."""
    found: Delivery | None = None
    for delivery in reversed(session.queue):
        if delivery.sequence != 0 or delivery.message.offset != message.offset:
            break
        found = delivery
    return found


def insert(session: Session, sequence: int, delivery: Delivery) -> None:
    """Put a message into the queue where its number belongs: a copy that went out of turn is before a live message."""
    delivery.sequence = sequence
    session.next_sequence = max(session.next_sequence, sequence + 1)
    later: list[Delivery] = []
    for _ in range(len(session.queue)):
        queued = session.pull()
        if queued.sequence > sequence:
            later.append(queued)
        else:
            session.push(queued)
    session.push(delivery)
    for queued in later:
        session.push(queued)


def remove_queued(session: Session, sequence: int) -> Delivery | None:
    """Remove the message of that number from the queue; returns it, or None when it is not there."""
    if session.queue and session.queue[0].sequence == sequence:
        return session.pull()
    found: Delivery | None = None
    for _ in range(len(session.queue)):
        delivery = session.pull()
        if found is None and delivery.sequence == sequence:
            found = delivery
        else:
            session.push(delivery)
    return found
