"""Deliveries to sessions that outlive their connections, where nodes share a log.

Every node works them out, from entries alone: which message waits in which queue, which packet identifier it has, what
was acknowledged. So any node can go on with a session when another one is gone. The node with the connection differs in
one thing: it writes. What its socket does not take waits in `outgoing`, and that nobody else need know. Where it cannot
send something, because the client does not accept it or may not see it any more, it says so by an entry.
"""

from typing import TYPE_CHECKING, Final

from holdfast.broker.delivery import enqueue, still_may, write_publish, write_pubrel
from holdfast.broker.entries import ACK_DISCARD, ACK_PUBACK, ACK_PUBCOMP, ACK_PUBREC, CopyItem
from holdfast.broker.message import Message, topic_field
from holdfast.broker.session import (
    AWAITING_COMPLETE,
    LAST_PACKET_ID,
    Connection,
    Delivery,
    RestingSnapshot,
    Session,
    SharedGroup,
    Snapshot,
    SpreadSession,
    Subscription,
)
from holdfast.broker.snapshot import NOT_SINCE, OUTBOX_WATER, VISITS_PER_STEP, add, end_marker
from holdfast.broker.topics import matches

if TYPE_CHECKING:
    from holdfast.broker.core import Broker

# Copies of one snapshot that may be on their way through the log, and how many of them make one entry.
COPIES_UNDER_WAY: Final = 1024
COPIES_PER_ENTRY: Final = 256
TOPICS_PER_ENTRY: Final = 64 * 1024  # bytes


def give(
    broker: "Broker",
    session: Session,
    message: Message,
    qos: int,
    retain: bool,
    identifiers: list[int] | None,
    group: SharedGroup | None,
) -> None:
    """Give a message that the log has ordered to a session."""
    spread = spread_of(session)
    if spread.resting:
        before_live(broker, session, spread, message)
    delivery = Delivery(message, qos, retain, identifiers, group)
    if qos == 0 and not session.attached:
        if spread.resting:
            miss(broker, session, spread, message)
        return
    if qos == 0 and not (session.queue and message.topic_field in session.waiting):
        if not write_here(broker, session, delivery) and spread.resting:
            propose_missed(broker, session, spread, message)
        return
    broker.recorder.on_queued(session, delivery)
    put_or_send(broker, session, delivery)


def put_or_send(broker: "Broker", session: Session, delivery: Delivery, is_copy: bool = False) -> bool:
    """Give a delivery that the log knows its packet identifier, or its place in the queue; returns whether it is there.

    A copy is part of what the client was promised, so it may go beyond the limits of the queue, but no further than
    that once more.
    """
    if delivery.qos > 0 and session.attached and not session.queue and len(session.inflight) < session.window:
        assign(broker, session, delivery)
        return False
    if is_copy:
        settings = broker.settings
        is_copy = (
            session.queued_bytes + delivery.message.size() <= 2 * settings.max_queued_bytes
            and len(session.queue) < 2 * settings.max_queued_messages
        )
    return enqueue(broker, session, delivery, is_copy)


def assign(broker: "Broker", session: Session, delivery: Delivery) -> None:
    """Give a delivery its packet identifier, which follows from its number, so that all nodes find the same."""
    packet_id = delivery.sequence % LAST_PACKET_ID + 1
    while packet_id in session.inflight:
        packet_id = packet_id % LAST_PACKET_ID + 1
    delivery.packet_id = packet_id
    session.inflight[packet_id] = delivery
    broker.recorder.on_sent(session, delivery, packet_id)
    write_here(broker, session, delivery)


def pump(broker: "Broker", session: Session) -> None:
    """Fill the window from the queue, on every node alike."""
    if not session.attached:
        return
    while session.queue and len(session.inflight) < session.window:
        delivery = session.pull()
        if delivery.copy_of:
            leave_queue(session, delivery)
        if delivery.message.expired(broker.now_ms):  # [5: MQTT-3.3.2-5]
            broker.counters.dropped_expired += 1
            broker.recorder.on_done(session, delivery)
        elif delivery.qos > 0:
            assign(broker, session, delivery)
        else:
            broker.recorder.on_done(session, delivery)
            write_here(broker, session, delivery)


def leave_queue(session: Session, delivery: Delivery) -> None:
    for snapshot in session.snapshots:
        if snapshot.record_id == delivery.copy_of:
            snapshot.queued -= 1
    delivery.copy_of = 0


# Here: the node with the connection.


def write_here(broker: "Broker", session: Session, delivery: Delivery, is_copy: bool = False) -> bool:
    """Send a delivery if the client is connected to this node, now or when its socket takes more; returns False when it
    was dropped: at QoS 0, for a client that reads too slowly.
    """
    connection = session.connection
    if connection is None:
        return True
    outgoing = spread_of(session).outgoing
    full = connection.outbox.is_full()
    waits = len(outgoing) > 0
    if waits and delivery.qos == 0:
        waits = any(other.message.topic_field == delivery.message.topic_field for other in outgoing)
    if not waits and not full and (delivery.qos == 0 or not connection.busy):
        write_delivery(broker, session, connection, delivery)
        return True
    if delivery.qos == 0 and not is_copy and (full or len(outgoing) >= broker.settings.max_queued_messages):
        broker.counters.dropped_slow += 1
        return False
    outgoing.append(delivery)
    return True


def go_on(broker: "Broker", session: Session) -> None:
    """Write what has waited for the socket."""
    connection = session.connection
    if connection is None:
        return
    outgoing = spread_of(session).outgoing
    while outgoing and not connection.outbox.is_full():
        delivery = outgoing[0]
        if delivery.qos > 0 and connection.busy:
            return
        packet_id = delivery.packet_id
        if packet_id:
            if session.inflight.get(packet_id) is not delivery:
                outgoing.popleft()  # the client has acknowledged it out of turn
                continue
            if len(session.inflight) > session.window and written(session) >= session.window:
                return  # of more that was under way before than the new connection accepts [5: MQTT-4.9.0-1]
        outgoing.popleft()
        write_delivery(broker, session, connection, delivery)


def written(session: Session) -> int:
    """Return how many deliveries the client has been sent and has not acknowledged."""
    waiting = 0
    for delivery in spread_of(session).outgoing:
        if delivery.packet_id and session.inflight.get(delivery.packet_id) is delivery:
            waiting += 1
    return len(session.inflight) - waiting


def write_delivery(broker: "Broker", session: Session, connection: Connection, delivery: Delivery) -> None:
    packet_id = delivery.packet_id
    message = delivery.message
    if delivery.stage == AWAITING_COMPLETE:
        write_pubrel(connection, packet_id)
        broker.effects.write_to(connection)
        return
    if broker.access is not None and not may_have(broker, session, delivery):
        broker.counters.dropped_not_allowed += 1
        discard(broker, connection, packet_id)
        return
    meta = delivery.retain and connection.agreed.wants_meta
    if write_publish(
        connection,
        message,
        delivery.qos,
        delivery.retain,
        delivery.dup,
        packet_id,
        delivery.identifiers,
        broker.now_ms,
        meta,
    ):
        broker.count_sent(connection, delivery.qos, len(message.payload))
    else:
        broker.counters.dropped_too_large += 1
        discard(broker, connection, packet_id)


def may_have(broker: "Broker", session: Session, delivery: Delivery) -> bool:
    message = delivery.message
    if message.retain and delivery.retain and message.offset:
        return broker.may_show(session, message)
    return still_may(broker, session, message)


def discard(broker: "Broker", connection: Connection, packet_id: int) -> None:
    if packet_id:
        shared = broker.shared
        assert shared is not None
        shared.acknowledge(connection, ACK_DISCARD, packet_id, 0)


def resend(broker: "Broker", session: Session) -> None:
    """Send again what was under way when a session is resumed, in order, with its packet ids [MQTT-4.4.0-1]."""
    outgoing = spread_of(session).outgoing
    outgoing.clear()
    for delivery in session.inflight.values():
        delivery.dup = True
        outgoing.append(delivery)
    go_on(broker, session)


# What clients acknowledge.


def on_ack(broker: "Broker", session: Session, kind: int, packet_id: int, reason: int) -> None:
    """Apply what a client has acknowledged."""
    delivery = session.inflight.get(packet_id)
    if delivery is None:
        return
    if kind == ACK_PUBREC and delivery.qos == 2 and reason < 0x80:
        if delivery.stage != AWAITING_COMPLETE:
            delivery.stage = AWAITING_COMPLETE
            broker.recorder.on_releasing(session, delivery, packet_id)
        connection = session.connection
        if connection is not None:
            write_pubrel(connection, packet_id)
            broker.effects.write_to(connection)
        return
    if (
        (kind == ACK_PUBACK and delivery.qos == 1)
        or (kind == ACK_PUBREC and delivery.qos == 2)  # it refused it: that ends the exchange [5: MQTT-4.4.0-2]
        or (kind == ACK_PUBCOMP and delivery.stage == AWAITING_COMPLETE)
        or kind == ACK_DISCARD
    ):
        del session.inflight[packet_id]
        broker.recorder.on_done(session, delivery)
        go_on(broker, session)
        pump(broker, session)
        for snapshot in session.snapshots:
            broker.wake(snapshot)
        if session.connection is not None and session.connection.adapter is not None:
            session.connection.adapter.on_room()


# Snapshots.


def begin(broker: "Broker", session: Session, subscription: Subscription) -> None:
    """Begin the snapshot of a new subscription, which the node with the connection feeds."""
    version = broker.log.position
    snapshot_id = broker.recorder.on_snapshot(session, version, subscription.topic_filter)
    resting = RestingSnapshot(snapshot_id, version, subscription.topic_filter)
    spread_of(session).resting[snapshot_id] = resting
    if session.connection is not None:
        take_up(broker, session, resting)


def take_up(broker: "Broker", session: Session, resting: RestingSnapshot) -> Snapshot | None:
    """Go on with a snapshot on the node that has the connection now; what was copied before is passed over."""
    subscription = session.subscriptions.get(resting.topic_filter)
    if subscription is None:
        return None
    cursor = broker.retained.index.cursor(b"/".join(subscription.levels), resting.version)
    snapshot = Snapshot(session, subscription, cursor, resting.version, NOT_SINCE, True)
    snapshot.record_id = resting.snapshot_id
    snapshot.resting = resting
    snapshot.copied = resting.copied
    snapshot.sent = len(resting.copied)
    for delivery in session.queue:
        if delivery.copy_of == 0 and delivery.retain and delivery.message.offset in resting.copied:
            delivery.copy_of = resting.snapshot_id  # it was read from the disk, which does not know
        if delivery.copy_of == resting.snapshot_id:
            snapshot.queued += 1
    add(broker, session, snapshot)
    broker.wake(snapshot)
    return snapshot


def let_rest(broker: "Broker", session: Session) -> None:
    """Stop feeding the snapshots of a session whose connection is gone: another node may go on with them."""
    for snapshot in list(session.snapshots):
        drop(broker, snapshot)


def drop(broker: "Broker", snapshot: Snapshot) -> None:
    if not snapshot.ended:
        snapshot.ended = True
        broker.retained.index.release(snapshot.cursor)
        broker.counters.snapshots_ended += 1
        broker.counters.snapshot_messages += snapshot.sent
        snapshot.leave_subscription()
        snapshot.session.snapshots.pop(snapshot, None)


def end_resting(broker: "Broker", session: Session, topic_filter: bytes) -> None:
    """End the snapshots of a subscription that is replaced or gone, on every node."""
    spread = spread_of(session)
    for resting in list(spread.resting.values()):
        if resting.topic_filter == topic_filter:
            end(broker, session, spread, resting)


def end(broker: "Broker", session: Session, spread: SpreadSession, resting: RestingSnapshot) -> Snapshot | None:
    """End a snapshot on every node; returns it where it was fed."""
    del spread.resting[resting.snapshot_id]
    broker.recorder.on_snapshot_ended(session, resting.snapshot_id)
    for snapshot in session.snapshots:
        if snapshot.resting is resting:
            drop(broker, snapshot)
            return snapshot
    return None


def advance(broker: "Broker", snapshot: Snapshot, quantum: int) -> bool:
    """Propose copies of the next messages; returns True when there is more to do and nothing to wait for."""
    session = snapshot.session
    connection = session.connection
    shared = broker.shared
    if connection is None or snapshot.ended or snapshot.ending or shared is None:
        return False
    resting = snapshot.resting
    assert resting is not None
    items: list[CopyItem] = []
    size = 0
    visits = VISITS_PER_STEP
    more = True
    room = session.window - len(session.inflight) - len(session.queue)
    for each in session.snapshots:
        room -= each.under_way
    while quantum > 0 and visits > 0:
        if connection.outbox.blocked or connection.busy or connection.outbox.size >= OUTBOX_WATER:
            more = not connection.outbox.blocked and not connection.busy  # on_writable or the adapter wakes it
            break
        if snapshot.under_way >= COPIES_UNDER_WAY or spread_of(session).outgoing:
            more = False  # what comes back wakes it
            break
        message = snapshot.held
        if message is not None:
            snapshot.held = None
        else:
            message = snapshot.cursor.next(visits)
            visits -= 1
            if message is None:
                more = not snapshot.cursor.ended
                break
        if not snapshot.wants(message, broker.now_ms):
            continue
        if broker.access is not None and not broker.may_show(session, message):
            continue
        if min(message.qos, snapshot.subscription.qos) > 0:
            if room <= 0:
                snapshot.held = message
                more = False  # the next acknowledgement wakes it
                break
            room -= 1
        items.append(CopyItem(message.topic, message.offset))
        snapshot.under_way += 1
        quantum -= 1
        size += len(message.topic)
        if len(items) >= COPIES_PER_ENTRY or size >= TOPICS_PER_ENTRY:
            shared.copy(connection, snapshot, items)
            items = []
            size = 0
    if items:
        shared.copy(connection, snapshot, items)
    if snapshot.cursor.ended and snapshot.held is None and snapshot.under_way == 0 and snapshot.queued == 0:
        return finish(broker, snapshot, resting, connection)
    return more


def finish(broker: "Broker", snapshot: Snapshot, resting: RestingSnapshot, connection: Connection) -> bool:
    """Propose what follows the set: topics whose change was missed, then the end."""
    shared = broker.shared
    assert shared is not None
    items: list[CopyItem] = []
    size = 0
    for field in resting.missed:
        message = broker.retained.index.get(field[2:])
        if message is None or field in snapshot.done or not snapshot.suits(message, broker.now_ms):
            continue
        if not resting.has_missed(message):
            continue
        if broker.access is not None and not broker.may_show(snapshot.session, message):
            continue
        snapshot.done.add(field)
        items.append(CopyItem(message.topic, message.offset))
        size += len(message.topic)
        if len(items) >= COPIES_PER_ENTRY or size >= TOPICS_PER_ENTRY:
            break
    if items:
        snapshot.under_way += len(items)
        shared.copy(connection, snapshot, items)
        return False
    snapshot.ending = True
    shared.end_snapshot(connection, snapshot)
    return False


def on_copy(broker: "Broker", session: Session, resting: RestingSnapshot, items: list[CopyItem]) -> None:
    """Apply copies: what has been replaced since they were proposed is left out, its successor was published live."""
    for item in items:
        message = broker.retained.index.get(item.topic)
        if message is not None and message.offset == item.offset and not message.expired(broker.now_ms):
            copy(broker, session, resting, message)
    for snapshot in session.snapshots:
        if snapshot.resting is resting:
            snapshot.under_way -= len(items)
        broker.wake(snapshot)  # the others too: they share the window


def copy(broker: "Broker", session: Session, resting: RestingSnapshot, message: Message) -> None:
    subscription = session.subscriptions.get(resting.topic_filter)
    if subscription is None or message.offset in resting.copied:
        return
    resting.copied.add(message.offset)
    identifiers = [subscription.identifier] if subscription.identifier else None
    delivery = Delivery(message, min(message.qos, subscription.qos), True, identifiers, None)
    waits = not session.attached or (len(session.queue) > 0 and message.topic_field in session.waiting)
    broker.recorder.on_copy(session, resting.snapshot_id, delivery, waits)
    queued = False
    if delivery.qos == 0 and not waits:
        write_here(broker, session, delivery, True)
    else:
        queued = put_or_send(broker, session, delivery, True)
        if queued:
            delivery.copy_of = resting.snapshot_id
    for snapshot in session.snapshots:
        if snapshot.resting is resting:
            snapshot.sent += 1
            if queued:
                snapshot.queued += 1


def on_snapshot_end(broker: "Broker", session: Session, resting: RestingSnapshot) -> None:
    """Apply that a snapshot has sent everything."""
    snapshot = end(broker, session, spread_of(session), resting)
    connection = session.connection
    if snapshot is not None and connection is not None:
        if connection.agreed.wants_mark:
            write_here(broker, session, Delivery(end_marker(broker, snapshot), 0, False, None, None), True)
        if connection.adapter is not None:
            connection.adapter.on_room()


def before_live(broker: "Broker", session: Session, spread: SpreadSession, message: Message) -> None:
    """Give an older retained message before a live one to a session in the middle of a snapshot: no client sees an
    older message after a newer one.
    """
    stored = broker.retained.index.get(message.topic)
    if stored is None or stored.offset >= message.offset or stored.expired(broker.now_ms):
        return
    levels = message.topic.split(b"/")
    for resting in list(spread.resting.values()):
        subscription = session.subscriptions.get(resting.topic_filter)
        if subscription is None or not matches(subscription.levels, levels):
            continue
        if subscription.no_local and stored.publisher.client_id == session.client_id:
            continue
        if resting.has_missed(stored) or stored.offset <= resting.version:
            copy(broker, session, resting, stored)


def miss(broker: "Broker", session: Session, spread: SpreadSession, message: Message) -> None:
    """Note a change that an absent client was not told: its snapshot makes up for it."""
    if not message.retain:
        return
    stored = broker.retained.index.get(message.topic)
    if stored is None or stored.offset != message.offset:
        return
    levels = message.topic.split(b"/")
    for resting in spread.resting.values():
        subscription = session.subscriptions.get(resting.topic_filter)
        if subscription is None or not matches(subscription.levels, levels):
            continue
        resting.missed[message.topic_field] = broker.log.position
        broker.recorder.on_missed(session, resting.snapshot_id, message.topic)


def propose_missed(broker: "Broker", session: Session, spread: SpreadSession, message: Message) -> None:
    """Let all nodes know that a client which reads too slowly was not told of a change."""
    connection = session.connection
    shared = broker.shared
    if message.retain and connection is not None and shared is not None:
        levels = message.topic.split(b"/")
        for resting in spread.resting.values():
            subscription = session.subscriptions.get(resting.topic_filter)
            if subscription is not None and matches(subscription.levels, levels):
                shared.miss(connection, resting, message.topic)


def on_missed(broker: "Broker", session: Session, resting: RestingSnapshot, topic: bytes) -> None:
    """Apply that a client was not told of a change."""
    resting.missed[topic_field(topic)] = broker.log.position
    broker.recorder.on_missed(session, resting.snapshot_id, topic)


def spread_of(session: Session) -> SpreadSession:
    spread = session.spread
    if spread is None:
        spread = SpreadSession()
        session.spread = spread
    return spread
