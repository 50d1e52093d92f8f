"""Getting messages to sessions: the window, the queue behind it, and the acknowledgements that move both."""

from typing import TYPE_CHECKING, Final

from holdfast.broker.connection import Connection
from holdfast.broker.message import Message
from holdfast.broker.outbound import PUBREL, U16, write, write_publish, write_pubrel
from holdfast.broker.route import Route
from holdfast.broker.session import AWAITING_ACK, AWAITING_COMPLETE, CROWDED_BYTES, CROWDED_QUEUE, Delivery, Session
from holdfast.broker.subscription import SharedGroup, Subscription
from holdfast.protocol.mqtt.reasons import PACKET_ID_NOT_FOUND

if TYPE_CHECKING:
    from holdfast.broker.core import Broker

PUBREL_NOT_FOUND: Final = b"\x62\x03"
REASON_NOT_FOUND: Final = bytes((PACKET_ID_NOT_FOUND,))


def deliver(broker: "Broker", message: Message, route: Route, sender: Session | None) -> int:
    """Give a message to everyone on its route; how many there were."""
    count = 0
    for receiver in route.receivers:
        session = receiver.session
        if receiver.no_local and session is sender:  # [5: MQTT-3.8.3-3]
            own = receiver.own
            if own is None:
                continue
            receiver = own
        count += 1
        send(
            broker,
            session,
            message,
            min(message.qos, receiver.qos),
            message.retain and receiver.retain_as_published,
            receiver.identifiers,
            None,
        )
    for group in route.groups:
        if share(broker, message, group):
            count += 1
    return count


def share(broker: "Broker", message: Message, group: SharedGroup) -> bool:
    """Give a message to one member of a group; False when there is none to take it."""
    member = group.choose(message.qos) if broker.access is None else choose_allowed(broker, message, group)
    if member is None:
        broker.counters.dropped_no_member += 1
        return False
    send(
        broker,
        member.session,
        message,
        min(message.qos, member.qos),
        message.retain and member.retain_as_published,
        [member.identifier] if member.identifier else None,
        group,
    )
    return True


def choose_allowed(broker: "Broker", message: Message, group: SharedGroup) -> Subscription | None:
    """As `choose`, among the members that may receive the message: a group is no way around a rule."""
    allowed = SharedGroup()
    for step in range(len(group.members)):
        member = group.members[(group.turn + step) % len(group.members)]
        if broker.may_receive(member.session, message.topic_field):
            allowed.members.append(member)
    chosen = allowed.choose(message.qos)
    if chosen is not None:
        group.turn = (group.members.index(chosen) + 1) % len(group.members)
    return chosen


def send(
    broker: "Broker",
    session: Session,
    message: Message,
    qos: int,
    retain: bool,
    identifiers: list[int] | None,
    group: SharedGroup | None,
) -> None:
    connection = session.connection
    if qos == 0:
        if connection is None:
            if session.snapshots:
                broker.missed_live(session, message)
            return
        if connection.outbox_bytes >= connection.outbox_limit:
            broker.counters.dropped_slow += 1
            if session.snapshots:
                broker.missed_live(session, message)
            return
        if session.snapshots:
            broker.before_live(session, message)
        if (session.queue and message.topic_field in session.waiting) or (
            session.resending and session.has_yet_to_resend(message.topic_field)
        ):
            # Older messages of this topic wait for the window: it may not overtake them.
            enqueue(broker, session, Delivery(message, 0, retain, identifiers, group))
            return
        if connection.outbox_bytes > CROWDED_BYTES:
            broker.congested = True
        if write_publish(connection, message, 0, retain, False, 0, identifiers, broker.now_ms):
            broker.count_sent(connection, 0, len(message.payload))
        else:
            broker.counters.dropped_too_large += 1
        return
    if session.snapshots:
        broker.before_live(session, message)
    delivery = Delivery(message, qos, retain, identifiers, group)
    if broker.log is not None and session.record_id:
        broker.log.on_queued(session, delivery)
    if (
        connection is not None
        and len(session.inflight) < session.window
        and not session.queue
        and connection.outbox_bytes < connection.outbox_limit
    ):
        transmit(broker, session, connection, delivery)
    else:
        enqueue(broker, session, delivery)


def transmit(broker: "Broker", session: Session, connection: Connection, delivery: Delivery) -> bool:
    """First sending of a QoS 1 or 2 message. One too large for the client counts as sent [5: MQTT-3.1.2-25]."""
    packet_id = session.take_packet_id()
    if not write_publish(
        connection,
        delivery.message,
        delivery.qos,
        delivery.retain,
        False,
        packet_id,
        delivery.identifiers,
        broker.now_ms,
        delivery.retain and connection.wants_meta,
    ):
        broker.counters.dropped_too_large += 1
        if delivery.sequence and broker.log is not None:
            broker.log.on_done(session, delivery)
        return False
    session.inflight[packet_id] = delivery
    if delivery.sequence and broker.log is not None:
        broker.log.on_sent(broker, session, delivery, packet_id)
        if delivery.qos == 2:
            # A restarted broker must know the packet id that the client has seen, or the message comes twice.
            broker.log.guard(connection)
    broker.count_sent(connection, delivery.qos, len(delivery.message.payload))
    return True


def enqueue(broker: "Broker", session: Session, delivery: Delivery, uncounted: bool = False) -> None:
    """Keep a message until the window opens or the client returns. The newest is dropped when there is no room."""
    settings = broker.settings
    size = delivery.message.size()
    if not uncounted and (
        len(session.queue) >= settings.max_queued_messages or session.queued_bytes + size > settings.max_queued_bytes
    ):
        broker.counters.dropped_queue_full += 1
        if delivery.sequence and broker.log is not None:
            broker.log.on_done(session, delivery)
        if session.snapshots:
            broker.missed_live(session, delivery.message)
        return
    session.push(delivery)
    if len(session.queue) > CROWDED_QUEUE:
        broker.congested = True


def pump(broker: "Broker", session: Session, most: int = 1 << 30) -> None:
    """Send what waits, as far as window and socket allow."""
    connection = session.connection
    if connection is None:
        return
    queue = session.queue
    while (
        queue
        and most > 0
        and len(session.inflight) < session.window
        and connection.outbox_bytes < connection.outbox_limit
    ):
        delivery = session.pull()
        if delivery.message.expired(broker.now_ms):  # [5: MQTT-3.3.2-5]
            broker.counters.dropped_expired += 1
            if delivery.sequence and broker.log is not None:
                broker.log.on_done(session, delivery)
            continue
        if broker.access is not None and not still_may(broker, session, delivery.message):
            # The right was lost while it waited.
            broker.counters.dropped_not_allowed += 1
            if delivery.sequence and broker.log is not None:
                broker.log.on_done(session, delivery)
            continue
        most -= 1
        if delivery.qos > 0:
            transmit(broker, session, connection, delivery)
        elif write_publish(
            connection,
            delivery.message,
            0,
            delivery.retain,
            False,
            0,
            delivery.identifiers,
            broker.now_ms,
            delivery.retain and connection.wants_meta,
        ):
            broker.count_sent(connection, 0, len(delivery.message.payload))
        else:
            broker.counters.dropped_too_large += 1


def still_may(broker: "Broker", session: Session, message: Message) -> bool:
    """Asked again when a message leaves that has waited. What the broker itself says to a client has no offset."""
    return message.offset == 0 or broker.may_receive(session, message.topic_field)


def refill(broker: "Broker", session: Session) -> None:
    """The window has opened. Queue and snapshots take turns, so that neither starves the other."""
    if session.resending:
        resend_more(broker, session)
    if len(session.inflight) >= session.window:
        return
    if session.snapshots:
        session.snapshot_turn = not session.snapshot_turn
        if not session.snapshot_turn and session.queue:
            pump(broker, session, 1)
            if len(session.inflight) >= session.window:
                return
        for snapshot in session.snapshots:
            broker.wake(snapshot)
    elif session.queue:
        pump(broker, session)


def on_puback(broker: "Broker", session: Session, packet_id: int) -> None:
    delivery = session.inflight.get(packet_id)
    if delivery is not None and delivery.qos == 1:
        session.progress_ms = broker.now_ms
        del session.inflight[packet_id]
        if delivery.sequence and broker.log is not None:
            broker.log.on_done(session, delivery)
        if session.queue or session.snapshots or session.resending:
            refill(broker, session)


def on_pubrec(broker: "Broker", session: Session, connection: Connection, packet_id: int, reason: int) -> None:
    delivery = session.inflight.get(packet_id)
    if delivery is None or delivery.qos != 2:
        if connection.is_v5:
            write(connection, PUBREL_NOT_FOUND + U16[packet_id] + REASON_NOT_FOUND)
        else:
            write(connection, PUBREL + U16[packet_id])
        broker.touch(connection)
        return
    if reason >= 0x80:  # the client refused it: that ends the exchange [5: MQTT-4.4.0-2]
        del session.inflight[packet_id]
        if delivery.sequence and broker.log is not None:
            broker.log.on_done(session, delivery)
        refill(broker, session)
        return
    delivery.stage = AWAITING_COMPLETE
    if broker.log is not None and broker.log.on_releasing(broker, session, delivery, packet_id):
        broker.log.guard(connection)
    write_pubrel(connection, packet_id)
    broker.touch(connection)


def on_pubcomp(broker: "Broker", session: Session, packet_id: int) -> None:
    delivery = session.inflight.get(packet_id)
    if delivery is not None and delivery.stage == AWAITING_COMPLETE:
        session.progress_ms = broker.now_ms
        del session.inflight[packet_id]
        if delivery.sequence and broker.log is not None:
            broker.log.on_done(session, delivery)
        refill(broker, session)


def resend(broker: "Broker", session: Session, connection: Connection) -> None:
    """A session is resumed: what was under way goes again, in order, with its packet id [MQTT-4.4.0-1]; what snapshots
    had still to send follows.
    """
    session.resending.clear()
    session.resending.extend(session.inflight)
    resend_more(broker, session)
    for snapshot in session.snapshots:
        broker.wake(snapshot)
    broker.touch(connection)


def resend_more(broker: "Broker", session: Session) -> None:
    """As much of it as the window of the new connection takes [5: MQTT-4.9.0-1]."""
    connection = session.connection
    assert connection is not None
    while session.resending and len(session.inflight) - len(session.resending) < session.window:
        packet_id = session.resending.popleft()
        delivery = session.inflight.get(packet_id)
        if delivery is None:
            continue  # the client has acknowledged it out of turn
        if delivery.stage == AWAITING_COMPLETE:
            write_pubrel(connection, packet_id)
            broker.touch(connection)
            continue
        if broker.access is not None and not still_may(broker, session, delivery.message):
            del session.inflight[packet_id]
            broker.counters.dropped_not_allowed += 1
            if delivery.sequence and broker.log is not None:
                broker.log.on_done(session, delivery)
            continue
        if write_publish(
            connection,
            delivery.message,
            delivery.qos,
            delivery.retain,
            True,
            packet_id,
            delivery.identifiers,
            broker.now_ms,
            delivery.retain and connection.wants_meta,
        ):
            broker.count_sent(connection, delivery.qos, len(delivery.message.payload))
        else:
            del session.inflight[packet_id]
            broker.counters.dropped_too_large += 1
            if delivery.sequence and broker.log is not None:
                broker.log.on_done(session, delivery)


def redistribute(broker: "Broker", session: Session, group: SharedGroup | None) -> None:
    """A member leaves: what waits for it goes to the others. With no group named, everything shared does.

    QoS 2 messages that are under way stay lost with the session [5: MQTT-4.8.2-5]; QoS 1 may go to another.
    """
    waiting: list[Delivery] = []
    if group is None:
        for packet_id, delivery in list(session.inflight.items()):
            if delivery.group is not None and delivery.qos == 1 and delivery.stage == AWAITING_ACK:
                waiting.append(delivery)
                del session.inflight[packet_id]
    for _ in range(len(session.queue)):
        delivery = session.pull()
        if delivery.group is not None and (group is None or delivery.group is group):
            waiting.append(delivery)
        else:
            session.push(delivery)
    for delivery in waiting:
        to = delivery.group
        assert to is not None
        if to.members and not delivery.message.expired(broker.now_ms):
            if broker.log is not None:
                broker.log.begin_publish()
            share(broker, delivery.message, to)
            if broker.log is not None:
                broker.log.end_requeue(broker, delivery.message)
        if delivery.sequence and broker.log is not None:
            broker.log.on_done(session, delivery)
