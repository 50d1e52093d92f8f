"""What a new subscription is sent: the retained set as of one version, at the pace of the client.

A snapshot is a cursor, not a copy. Whatever changes after its version reaches the client live, so the cursor passes
over it. The one danger is a plain message for a topic whose retained message has not had its turn: then the retained
one is sent first, out of turn, so that no client ever sees an older message after a newer one.

A session that outlives its connection keeps its snapshots too: they rest until the client is back, and go on. The log
knows what they have sent, so that they go on after a restart of the broker as well.
"""

import json
from typing import TYPE_CHECKING, Final

from holdfast.broker.delivery import enqueue, pump, transmit, write_publish
from holdfast.broker.message import Message, topic_field
from holdfast.broker.session import NO_ONE, Connection, Delivery, Session, Snapshot, Subscription
from holdfast.broker.topics import matches

if TYPE_CHECKING:
    from holdfast.broker.core import Broker

END_TOPIC: Final = b"$holdfast/snapshot/end"
# Bytes a snapshot may put into an outbox before it lets the socket take them.
OUTBOX_WATER: Final = 256 * 1024
# Slots a cursor may look at in one step, found or not.
VISITS_PER_STEP: Final = 8192
NOT_SINCE: Final = -1


def begin(
    broker: "Broker", session: Session, subscription: Subscription, since: int, deleted: dict[bytes, int] | None
) -> Snapshot:
    """Start the snapshot of a new subscription and return it; the caller advances it once SUBACK is written.

    `deleted` are the topics that were deleted after the offset `since`; None: the client is sent everything.
    """
    store = broker.retained
    version = broker.log.position
    known = deleted is not None
    topic_filter = b"/".join(subscription.levels)
    snapshot = Snapshot(
        session,
        subscription,
        store.index.cursor(topic_filter, version),
        version,
        since if known else NOT_SINCE,
        not known,
    )
    if deleted is not None:
        snapshot.deleted = deleted
    snapshot.record_id = broker.recorder.on_snapshot(session, snapshot.version, subscription.topic_filter)
    add(broker, session, snapshot)
    return snapshot


def add(broker: "Broker", session: Session, snapshot: Snapshot) -> None:
    session.snapshots[snapshot] = None
    snapshot.belong_to(snapshot.subscription)
    broker.counters.snapshots_begun += 1


def carry_over(old: Subscription, new: Subscription) -> None:
    """Give what a replaced subscription is still owed to the new one, which asks for no snapshot itself."""
    if old.snapshots is not None:
        for snapshot in old.snapshots:
            snapshot.belong_to(new)
            snapshot.identifiers = [new.identifier] if new.identifier else None
            snapshot.no_local = snapshot.no_local or new.no_local


def step(broker: "Broker", snapshot: Snapshot, quantum: int) -> None:
    """Send up to `quantum` messages, and come up again if there is more to do and nothing to wait for."""
    if advance(broker, snapshot, quantum):
        broker.wake(snapshot)


def advance(broker: "Broker", snapshot: Snapshot, quantum: int) -> bool:
    """Send up to `quantum` messages; returns True when there is more to do and nothing to wait for."""
    session = snapshot.session
    connection = session.connection
    if connection is None:
        return False  # it goes on when the client is back
    if snapshot.resting is not None:
        shared = broker.shared
        return shared is not None and shared.advance(snapshot, quantum)
    if snapshot.ended:
        pump(broker, session)  # the turn it had been given goes back to the queue
        return False
    visits = VISITS_PER_STEP
    while quantum > 0 and visits > 0:
        if connection.outbox.blocked or connection.busy or connection.outbox.holds_much(OUTBOX_WATER):
            return False  # on_writable or the adapter wakes it
        if connection.outbox.size >= OUTBOX_WATER:
            return True
        message = snapshot.held
        if message is not None:
            snapshot.held = None
            stored = broker.retained.index.get(message.topic)
            if stored is None or stored.offset != message.offset:
                continue  # replaced or deleted while it waited
        else:
            message = snapshot.cursor.next(visits)
            visits -= max(1, snapshot.cursor.visited)
            if message is None:
                if snapshot.cursor.ended:
                    return finish(broker, snapshot, connection, quantum)
                return True
        if not snapshot.wants(message, broker.now_ms):
            continue
        if broker.access is not None and not broker.may_show(session, message):
            continue
        if not send_copy(broker, snapshot, connection, message):
            snapshot.held = message
            return False  # the window is full: the next acknowledgement wakes it
        quantum -= 1
    return True


def send_copy(broker: "Broker", snapshot: Snapshot, connection: Connection, message: Message) -> bool:
    """Send one retained copy, with RETAIN 1; returns False when it has to wait for the window [3.1.1: MQTT-3.3.1-8]."""
    session = snapshot.session
    qos = min(message.qos, snapshot.subscription.qos)
    if session.queue and message.topic_field in session.waiting:
        # Older live messages of this topic wait there: it goes after them.
        put_in_line(broker, snapshot, message, qos)
        return True
    if qos == 0:
        if snapshot.record_id:
            copy_of(broker, snapshot, message, 0)
        if write_publish(
            connection, message, 0, True, False, 0, snapshot.identifiers, broker.now_ms, connection.agreed.wants_meta
        ):
            snapshot.sent += 1
            broker.count_sent(connection, 0, len(message.payload))
        else:
            broker.counters.dropped_too_large += 1
        return True
    if len(session.inflight) >= session.window:
        return False
    if transmit(broker, session, connection, copy_of(broker, snapshot, message, qos)):
        snapshot.sent += 1
    return True


def put_in_line(broker: "Broker", snapshot: Snapshot, message: Message, qos: int) -> None:
    """Queue a copy that cannot leave at once, after what waits already. It is part of what the client was promised, so
    it may go beyond the queue's limits, but no further than that once more.
    """
    session = snapshot.session
    settings = broker.settings
    if (
        session.queued_bytes + message.size() > 2 * settings.max_queued_bytes
        or len(session.queue) >= 2 * settings.max_queued_messages
    ):
        broker.counters.dropped_queue_full += 1
        return
    enqueue(broker, snapshot.session, copy_of(broker, snapshot, message, qos), True)
    snapshot.sent += 1
    snapshot.queued += 1


def copy_of(broker: "Broker", snapshot: Snapshot, message: Message, qos: int) -> Delivery:
    """Return the copy that goes to the client, known to the log from now on."""
    delivery = Delivery(message, qos, True, snapshot.identifiers, None)
    if snapshot.record_id:
        broker.recorder.on_copy(snapshot.session, snapshot.record_id, delivery)
    return delivery


def finish(broker: "Broker", snapshot: Snapshot, connection: Connection, quantum: int) -> bool:
    """Send what follows the set: topics whose change was missed, deletions, for a client that asked what changed, and
    the end marker. Returns True when there is more to do and nothing to wait for.
    """
    if connection.outbox.blocked or connection.outbox.holds_much(OUTBOX_WATER):
        return False
    while snapshot.missed:
        if quantum == 0 or connection.outbox.size >= OUTBOX_WATER:
            return True
        changed = next(iter(snapshot.missed))
        message = broker.retained.index.get(changed[2:])
        if message is not None and snapshot.suits(message, broker.now_ms):
            if broker.access is None or broker.may_show(snapshot.session, message):
                if not send_copy(broker, snapshot, connection, message):
                    return False
                quantum -= 1
        del snapshot.missed[changed]
    while snapshot.deleted:
        if quantum == 0 or connection.outbox.size >= OUTBOX_WATER:
            return True
        field, offset = snapshot.deleted.popitem()
        if broker.retained.get(field[2:], broker.now_ms) is None:  # on disk, what has expired lies there for a while
            send_tombstone(broker, snapshot, connection, field, offset)
            quantum -= 1
    if connection.agreed.wants_mark:
        mark_end(broker, snapshot, connection)
    end(broker, snapshot)
    pump(broker, snapshot.session)
    if connection.adapter is not None:
        connection.adapter.on_room()
    return False


def send_tombstone(
    broker: "Broker", snapshot: Snapshot, connection: Connection | None, field: bytes, offset: int
) -> None:
    """Tell a client that asked what changed that a topic is gone: an empty message with RETAIN 1."""
    session = snapshot.session
    if broker.access is not None and not broker.may_receive(session, field):
        return
    gone = Message(field, b"", 0, True, b"", NO_ONE, offset, broker.now_ms, 0, False)
    snapshot.sent += 1
    if connection is None or (session.queue and field in session.waiting):
        enqueue(broker, session, Delivery(gone, 0, True, snapshot.identifiers, None), True)
        snapshot.queued += 1
    elif write_publish(connection, gone, 0, True, False, 0, snapshot.identifiers, broker.now_ms):
        broker.count_sent(connection, 0, 0)


def end_marker(broker: "Broker", snapshot: Snapshot) -> Message:
    """Return what tells a client that asked for it that a snapshot is complete."""
    payload = json.dumps(
        {
            "filter": snapshot.subscription.topic_filter.decode(),
            "count": snapshot.sent,
            "version": snapshot.version,
            "full": snapshot.full,
        }
    )
    return Message(topic_field(END_TOPIC), payload.encode(), 0, False, b"", NO_ONE, 0, broker.now_ms, 0, False)


def mark_end(broker: "Broker", snapshot: Snapshot, connection: Connection) -> None:
    marker = end_marker(broker, snapshot)
    if snapshot.queued > 0 and snapshot.session.queue:
        enqueue(broker, snapshot.session, Delivery(marker, 0, False, None, None), True)
    elif write_publish(connection, marker, 0, False, False, 0, None, broker.now_ms):
        broker.count_sent(connection, 0, len(marker.payload))


def end(broker: "Broker", snapshot: Snapshot) -> None:
    if not snapshot.ended:
        snapshot.ended = True
        broker.retained.index.release(snapshot.cursor)
        if snapshot.record_id:
            broker.recorder.on_snapshot_ended(snapshot.session, snapshot.record_id)
        broker.counters.snapshots_ended += 1
        broker.counters.snapshot_messages += snapshot.sent
        snapshot.leave_subscription()
        snapshot.session.snapshots.pop(snapshot, None)


def end_all(broker: "Broker", session: Session, subscription: Subscription | None = None) -> None:
    """End a session's snapshots, or only those of one subscription."""
    if subscription is None:
        for snapshot in list(session.snapshots):
            end(broker, snapshot)
    elif subscription.snapshots is not None:
        for snapshot in subscription.snapshots:
            end(broker, snapshot)


def before_live(broker: "Broker", session: Session, message: Message) -> None:
    """Send an older retained message before a live one that is about to go to a client in the middle of a snapshot."""
    connection = session.connection
    field = message.topic_field
    stored = broker.retained.index.get(message.topic)
    gone = stored is None or stored.expired(broker.now_ms)
    for snapshot in session.snapshots:
        if snapshot.missed and stored is not None and stored.offset == message.offset:
            snapshot.missed.pop(field, None)  # this makes up for it
        if snapshot.deleted:
            offset = snapshot.deleted.pop(field, None)
            if offset is not None and gone and (message.payload or not message.retain):
                send_tombstone(broker, snapshot, connection, field, offset)
    if stored is None or gone or stored.offset >= message.offset:
        return
    for snapshot in session.snapshots:
        if field in snapshot.missed:
            wanted = snapshot.suits(stored, broker.now_ms)
        else:
            wanted = snapshot.awaits(stored) and snapshot.wants(stored, broker.now_ms)
        if wanted:
            if broker.access is not None and not broker.may_show(session, stored):
                continue
            if connection is None or not send_copy(broker, snapshot, connection, stored):
                put_in_line(broker, snapshot, stored, min(stored.qos, snapshot.subscription.qos))
            snapshot.missed.pop(field, None)
            snapshot.done.add(field)


def missed_live(broker: "Broker", session: Session, message: Message) -> None:
    """Let the snapshots send the change later that a dropped live message made, since the client reads too slowly or is
    not there.
    """
    if message.retain:
        stored = broker.retained.index.get(message.topic)
        if stored is None or stored.offset != message.offset:
            return
        levels = message.topic.split(b"/")
        for snapshot in session.snapshots:
            if (
                message.topic_field not in snapshot.missed
                and matches(snapshot.subscription.levels, levels)
                and not snapshot.cursor.passed(levels)
            ):
                snapshot.missed[message.topic_field] = None
                if snapshot.record_id:
                    broker.recorder.on_missed(session, snapshot.record_id, message.topic)
