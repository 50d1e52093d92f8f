"""From the state on disk back to a broker that can serve: the retained set, the sessions and what they wait for."""

from holdfast.broker.core import Broker
from holdfast.broker.effects import Effects
from holdfast.broker.kept import spread_of
from holdfast.broker.lifecycle import schedule_end, will_of
from holdfast.broker.message import Message, topic_field
from holdfast.broker.records import as_published
from holdfast.broker.session import (
    AWAITING_COMPLETE,
    Delivery,
    PendingWill,
    RestingSnapshot,
    Session,
    Snapshot,
)
from holdfast.broker.session_records import RELEASING
from holdfast.broker.settings import use_shared
from holdfast.broker.shared import Shared
from holdfast.broker.snapshot import NOT_SINCE, add
from holdfast.broker.subscribing import add_subscription
from holdfast.protocol.mqtt.packets import PROTOCOL_NAMES
from holdfast.state.sessions import QueuedValue, StoredSession, StoredSnapshot
from holdfast.state.store import StateStore
from holdfast.storage.disk_index import DiskIndex
from holdfast.storage.progress import Progress, silent

SESSIONS_AT_ONCE = 1000


def load_retained(broker: Broker, store: StateStore, now_ms: int, progress: Progress = silent) -> None:
    """Load the retained set into memory. What expired meanwhile stays behind."""
    retained = broker.retained
    total = store.retained.statistics().count
    done = 0
    for messages in store.retained.all():
        retained.put_all(messages, now_ms)
        done += len(messages)
        progress("loading retained messages", done, total)
    retained.sets = 0
    retained.version = store.retained.statistics().version


def use_disk(broker: Broker, store: StateStore, now_ms: int, progress: Progress = silent) -> DiskIndex:
    """Leave the retained messages on disk, for the core to read them there; only their sums come into memory.

    What has expired meanwhile lies on disk until it is purged, and counts for nothing.
    """
    retained = broker.retained
    index = DiskIndex(store.retained)
    retained.index = index
    retained.in_memory = False
    for message in store.retained.expiring():
        if not message.expired(now_ms):
            retained.expiry.add(message)
    total = store.retained.statistics().count
    done = 0
    for messages in store.retained.all():
        retained.charge_all(messages, now_ms)
        done += len(messages)
        progress("counting retained messages", done, total)
    retained.version = store.retained.statistics().version
    return index


def load_sessions(broker: Broker, store: StateStore, now_ms: int, progress: Progress = silent) -> Effects:
    """Load the sessions; returns what follows from that, to be carried out before anything else happens."""
    broker.begin(now_ms)
    messages = store.sessions.messages()
    sessions = store.sessions.all()
    for count, stored in enumerate(sessions, 1):
        load_session(broker, stored, messages)
        if count % SESSIONS_AT_ONCE == 0:
            progress("loading sessions", count, len(sessions))
    return broker.finish()


def load_session(broker: Broker, stored: StoredSession, messages: dict[int, Message]) -> None:
    record = stored.record
    session = Session(record.client_id, record.owner, record.connected_at_ms)
    session.record_id = record.session_id
    session.kept = True
    session.attach(PROTOCOL_NAMES.get(record.version, "3.1.1"), broker.cap_session_expiry(record.expiry_interval_s))
    broker.count_kept(session)
    session.unreleased.update(stored.unreleased)
    broker.sessions[session.client_id] = session
    for subscription in stored.subscriptions:
        add_subscription(broker, session, subscription)
    for value in stored.queue:
        load_delivery(broker, session, value, messages)
    for snapshot in stored.snapshots.values():
        load_snapshot(broker, session, snapshot)
    if stored.will is not None:
        session.will = PendingWill(will_of(stored.will), stored.will.delay_interval_s)
        session.certified = stored.will.certified  # a rule may ask for that when the will is sent
    # One that was connected when the broker ended has lost its connection now.
    session.detach(record.disconnected_at_ms or broker.now_ms)
    if not record.disconnected_at_ms:
        broker.recorder.on_detached(session, broker.now_ms)  # or the next restart would give it its whole time again
    schedule_end(broker, session)


def load_cluster(broker: Broker, store: StateStore, progress: Progress = silent) -> None:
    """Load what a node knew of the log that it shares, and the sessions as all nodes knew them there.

    Nothing is concluded from the time that has passed: what is due is told by the log.
    """
    shared = broker.shared
    assert shared is not None
    stored = store.sessions.cluster()
    if stored.position is not None:
        shared.sequence = stored.position.sequence
        shared.chain = stored.position.chain
        shared.time_ms = stored.position.time_ms
        shared.log.position = shared.log.local.position = stored.offset
    for record in stored.nodes:
        member = shared.member(record.name)
        member.instance, member.began, member.reads = record.instance, record.began, record.reads
        member.up, member.address, member.version = record.up, record.address, record.version
        member.counter = stored.counters.get(record.name, 0)
    if stored.settings:
        shared.settings = stored.settings
        use_shared(broker.settings, stored.settings)
    messages = store.sessions.messages()
    sessions = store.sessions.all()
    for count, session in enumerate(sessions, 1):
        load_spread(broker, shared, session, messages)
        if count % SESSIONS_AT_ONCE == 0:
            progress("loading sessions", count, len(sessions))


def load_spread(broker: Broker, shared: Shared, stored: StoredSession, messages: dict[int, Message]) -> None:
    record = stored.record
    session = Session(record.client_id, record.owner, record.connected_at_ms)
    session.record_id = record.session_id
    spread = spread_of(session)
    attached = stored.attached
    session.kept = attached is None or attached.kept
    session.attach(PROTOCOL_NAMES.get(record.version, "3.1.1"), record.expiry_interval_s)
    broker.count_kept(session)
    session.unreleased.update(stored.unreleased)
    broker.sessions[session.client_id] = session
    for subscription in stored.subscriptions:
        add_subscription(broker, session, subscription)
    for value in stored.queue:
        load_delivery(broker, session, value, messages)
    for snapshot in stored.snapshots.values():
        resting = RestingSnapshot(snapshot.snapshot_id, snapshot.version, snapshot.topic_filter)
        resting.copied = snapshot.copied
        resting.missed = {topic_field(topic): at for topic, at in snapshot.missed.items()}
        spread.resting[snapshot.snapshot_id] = resting
    if stored.will is not None:
        session.will = PendingWill(will_of(stored.will), stored.will.delay_interval_s)
        session.certified = stored.will.certified
    if attached is not None:
        spread.connection_id, spread.node = attached.connection_id, attached.node
        session.window = spread.window = attached.window
        shared.connections[attached.connection_id] = session
    else:
        session.detach(record.disconnected_at_ms)
        schedule_end(broker, session)


def load_snapshot(broker: Broker, session: Session, stored: StoredSnapshot) -> None:
    """A snapshot goes through the set once more and leaves out what it has sent.

    Which topics were deleted before it began is not known any more, so one that was to tell only changes tells all.
    """
    subscription = session.subscriptions.get(stored.topic_filter)
    if subscription is None:
        return
    cursor = broker.retained.index.cursor(stored.topic_filter, stored.version)
    snapshot = Snapshot(session, subscription, cursor, stored.version, NOT_SINCE, True)
    snapshot.record_id = stored.snapshot_id
    snapshot.copied = stored.copied
    snapshot.missed = dict.fromkeys(topic_field(topic) for topic in stored.missed)
    snapshot.sent = len(stored.copied)
    add(broker, session, snapshot)


def load_delivery(broker: Broker, session: Session, value: QueuedValue, messages: dict[int, Message]) -> None:
    session.next_sequence = max(session.next_sequence, value.seq + 1)
    message = messages.get(value.message_offset)
    if message is None:
        return  # lost to damage, which recovery has reported
    if not value.copy:
        message = as_published(message)
    identifiers = list(value.subscription_ids) or None
    delivery = Delivery(message, value.qos, value.retain, identifiers, None)
    delivery.sequence = value.seq
    delivery.shared = value.shared
    if session.spread is not None and not session.kept:
        session.spread.given[value.seq] = delivery
    elif value.packet_id:
        delivery.packet_id = value.packet_id
        if value.stage == RELEASING:
            delivery.stage = AWAITING_COMPLETE
        session.inflight[value.packet_id] = delivery
        session.next_packet_id = value.packet_id % 65535 + 1
    else:
        session.push(delivery)
