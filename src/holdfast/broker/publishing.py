"""What happens to a publish: it is admitted, ordered, applied, and acknowledged.

*Admit* (`on_publish`) asks what only the node with the connection can know: is the packet whole, may this client do
that, is there room for its QoS 2 identifier. *Order* is the log's: `accept` asks it for the offset. *Apply*
(`apply_publish`) is the fold: the verdict on retaining and who the message goes to, from the state of the broker and
the message alone. Whether the bytes that follow leave at once or wait for the disk is up to the driver (*release*).
"""

from typing import TYPE_CHECKING, Final

from holdfast.broker.access import ANY_QOS, PUBLISH, RETAIN
from holdfast.broker.delivery import enqueue, transmit, u16, write, write_publish
from holdfast.broker.effects import Accepted, LiveItem
from holdfast.broker.entries import NO_EXPIRY
from holdfast.broker.kept import give
from holdfast.broker.message import (
    CLEARED,
    LIVE,
    NEVER,
    REFUSED_BUDGET,
    REFUSED_POLICY,
    REFUSED_SIZE,
    Message,
    Publisher,
    topic_field,
)
from holdfast.broker.seen import PUBLISH_DENIED, Seen
from holdfast.broker.session import (
    AWAITING_ACK,
    CACHED_TOPIC,
    HIGH_WATER_BYTES,
    Connection,
    Delivery,
    Route,
    Session,
    SharedGroup,
    Subscription,
)
from holdfast.broker.settings import REFUSE
from holdfast.broker.snapshot import before_live, missed_live
from holdfast.errors import MalformedPacket, ProtocolError
from holdfast.protocol.mqtt.encode import encode_ack
from holdfast.protocol.mqtt.packets import PUBACK as PUBACK_KIND
from holdfast.protocol.mqtt.packets import PUBLISH as PUBLISH_KIND
from holdfast.protocol.mqtt.packets import PUBREC as PUBREC_KIND
from holdfast.protocol.mqtt.packets import V5, Ack
from holdfast.protocol.mqtt.properties import Properties, decode_properties
from holdfast.protocol.mqtt.reasons import (
    NO_MATCHING_SUBSCRIBERS,
    NOT_AUTHORIZED,
    PACKET_ID_NOT_FOUND,
    PACKET_TOO_LARGE,
    QOS_NOT_SUPPORTED,
    QUOTA_EXCEEDED,
    RECEIVE_MAXIMUM_EXCEEDED,
    RETAIN_NOT_SUPPORTED,
    SUCCESS,
    TOPIC_ALIAS_INVALID,
    reason_name,
)
from holdfast.protocol.wire import BYTE, Reader

if TYPE_CHECKING:
    from holdfast.broker.core import Broker

# Every plain PUBACK there is: the packet that a publisher at QoS 1 is sent most.
PUBACK: Final = b"\x40\x02"
PUBACKS: Final[list[bytes | None]] = [None] * 65536  # as `delivery.U16`
PUBREC: Final = b"\x50\x02"
PUBCOMP: Final = b"\x70\x02"
PUBACK_WITH_REASON: Final = b"\x40\x03"
PUBREC_WITH_REASON: Final = b"\x50\x03"
PUBCOMP_WITH_REASON: Final = b"\x70\x03"
ENTRY_OVERHEAD: Final = 512  # of a message in the log, beside its own bytes: no name of a node is longer


# Admit.


def on_publish(broker: "Broker", connection: Connection, first: int, data: bytes, body: int, end: int) -> None:
    """Handle a PUBLISH that the fast path does not: any QoS, RETAIN, properties, aliases."""
    qos = first >> 1 & 3
    if qos == 3:  # [MQTT-3.3.1-4]
        raise MalformedPacket("QoS is 3, expected 0, 1 or 2")
    if qos == 0 and first & 8:  # [MQTT-3.3.1-2]
        raise MalformedPacket("DUP is set on a QoS 0 message")
    if end - body < 2:
        raise MalformedPacket("packet ends inside the topic")
    at = body + 2 + (data[body] << 8 | data[body + 1])
    if at + (2 if qos > 0 else 0) > end:
        raise MalformedPacket("packet ends inside the topic")
    field = data[body:at]
    packet_id = 0
    if qos > 0:
        packet_id = data[at] << 8 | data[at + 1]
        if packet_id == 0:
            raise ProtocolError("packet identifier is 0, expected 1 to 65535")
        at += 2
    agreed = connection.agreed
    properties: Properties | None = None
    if agreed.is_v5:
        if at < end and data[at] == 0:
            at += 1
        else:
            reader = Reader(data, at, end)
            properties = decode_properties(reader, PUBLISH_KIND)
            at = reader.position
            if properties is not None:
                field = resolve_alias(broker, connection, field, properties)
                check_user_properties(broker, properties)
                if properties.subscription_ids is not None:  # [5: MQTT-3.3.4-6]
                    raise ProtocolError("a client's PUBLISH carries a subscription identifier")
        if len(field) == 2:
            raise ProtocolError("topic name is empty and there is no topic alias")
    known = connection.last_route
    if known is None or field != connection.last_topic or known.generation != broker.subscriptions.generation:
        route = broker.route_of(connection, field)
    else:
        route = known
    settings = broker.settings
    retain = first & 1 != 0
    if qos > settings.max_qos:  # [5: MQTT-3.2.2-11]
        raise ProtocolError(f"QoS is {qos}, expected no more than {settings.max_qos}", QOS_NOT_SUPPORTED)
    if retain and not settings.retain_available:
        if agreed.is_v5:  # [5: MQTT-3.2.2-14]
            raise ProtocolError("RETAIN is set, but retained messages are off", RETAIN_NOT_SUPPORTED)
        retain = False
    session = connection.session
    assert session is not None
    broker.counters.messages_received[qos] += 1
    broker.counters.payload_received += end - at
    if qos == 2:
        if packet_id in session.unreleased:  # [3.1.1: MQTT-4.3.3-2] [5: MQTT-4.3.3-10]
            answer_in_turn(broker, connection, 2, packet_id, SUCCESS)
            return
        if agreed.is_v5 and len(session.unreleased) >= settings.receive_maximum:  # [5: MQTT-3.3.4-7]
            raise ProtocolError("more QoS 2 messages under way than the receive maximum", RECEIVE_MAXIMUM_EXCEEDED)
    expires_at_ms = NEVER
    if properties is not None and properties.message_expiry is not None:
        # A message that is already expired must not look like one that never does.
        expires_at_ms = broker.now_ms + properties.message_expiry * 1000
    reason = SUCCESS
    if qos > 0 and not broker.log.healthy and must_be_kept(route, retain):
        # Nothing can be made durable now. 3.1.1 has no word for that but to hang up without acknowledging.
        broker.counters.publishes_refused += 1
        if not agreed.is_v5:
            raise ProtocolError("the message cannot be stored now: the disk is full or failing", QUOTA_EXCEEDED)
        answer_in_turn(broker, connection, qos, packet_id, QUOTA_EXCEEDED)
        return
    if route.reserved or (broker.access is not None and not may_publish(broker, connection, field, retain, qos)):
        reason = NOT_AUTHORIZED
        on_denied(broker, connection, field, retain, qos)
    else:
        message = Message(
            route.topic_field,
            data[at:end],
            qos,
            retain,
            b"" if properties is None else properties.forward,
            connection.publisher,
            0,
            broker.now_ms,
            expires_at_ms,
            expires_at_ms != NEVER,
        )
        shared = broker.shared
        if shared is not None and must_be_ordered(connection, route, message):
            check_entry_size(broker, message)
            expiry_ms = NO_EXPIRY
            if properties is not None and properties.message_expiry is not None:
                expiry_ms = properties.message_expiry * 1000
            shared.publish(connection, message, packet_id, expiry_ms, agreed.is_v5 and qos > 0)
            return
        reason = accept(broker, message, route, session, agreed.is_v5 and qos > 0)
        if route.nodes:
            broker.effects.live.append(LiveItem(route.nodes, message))
    if broker.shared is not None:
        if qos > 0:
            answer_in_turn(broker, connection, qos, packet_id, reason)
        return
    if qos > 0:
        if qos == 2 and reason < 0x80:
            session.unreleased.add(packet_id)
            broker.recorder.on_received(session, packet_id)
        acknowledge(broker, connection, qos, packet_id, reason)


def check_user_properties(broker: "Broker", properties: Properties | None) -> None:
    most = broker.settings.max_user_properties
    if most > 0 and properties is not None and properties.user_properties is not None:
        count = len(properties.user_properties)
        if count > most:
            raise ProtocolError(f"packet has {count} user properties, expected no more than {most}", QUOTA_EXCEEDED)


def must_be_kept(route: Route, retain: bool) -> bool:
    return retain or route.recorded_live or route.persistent


def must_be_ordered(connection: Connection, route: Route, message: Message) -> bool:
    """Return whether a publish has to go through the log that nodes share: it must be kept, or must not be lost on its
    way to another node, or comes behind one of the same client that does.
    """
    return message.qos > 0 or must_be_kept(route, message.retain) or connection.under_way > 0


def check_entry_size(broker: "Broker", message: Message) -> None:
    most = broker.settings.max_entry_size
    size = message.size() + ENTRY_OVERHEAD + len(message.publisher.origin)
    if 0 < most < size:
        raise ProtocolError(
            f"message takes {size} bytes in the log, whose servers accept {most} (max_payload)", PACKET_TOO_LARGE
        )


def resolve_alias(broker: "Broker", connection: Connection, field: bytes, properties: Properties) -> bytes:
    """Return the topic that an alias stands for, which is learnt or looked up [5: MQTT-3.3.2-12]."""
    alias = properties.topic_alias
    if alias is None:
        return field
    if alias > broker.settings.topic_alias_maximum:  # [5: MQTT-3.2.2-17]
        raise ProtocolError(
            f"topic alias is {alias}, expected no more than {broker.settings.topic_alias_maximum}", TOPIC_ALIAS_INVALID
        )
    if len(field) > 2:
        connection.inbound.aliases[alias] = field
        return field
    known = connection.inbound.aliases.get(alias)
    if known is None:
        raise ProtocolError(f"topic alias {alias} was never given a topic")
    return known


def may_publish(broker: "Broker", connection: Connection, field: bytes, retain: bool, qos: int = ANY_QOS) -> bool:
    """Return whether a client may publish so. Since this is asked for every publish, the answer is cached per topic."""
    if connection.rights_generation != broker.rights_generation or len(connection.rights) > 4096:
        connection.rights.clear()
        connection.rights_generation = broker.rights_generation
    # The field begins with its length, so nothing that follows it can be taken for a part of another topic.
    key = field + b"r" if retain else field
    access = broker.access
    if access is not None and access.asks_qos:
        key = BYTE[qos] + key
    known = connection.rights.get(key)
    if known is None:
        certified = connection.identity != ""
        known = check_publish(broker, connection.username, connection.client_id, field[2:], retain, qos, certified)
        if len(field) <= CACHED_TOPIC:
            connection.rights[key] = known
    return known


def on_denied(broker: "Broker", connection: Connection, field: bytes, retain: bool, qos: int) -> None:
    """Count a publish that the rules, or a topic of the broker's own, do not allow, and leave a note of it."""
    counters = broker.counters
    counters.publishes_refused += 1
    counters.publishes_denied += 1
    effects = broker.effects
    if effects.has_room_to_see():
        detail: dict[str, object] = {"topic": field[2:], "qos": qos, "retain": retain}
        effects.seen.append(Seen(PUBLISH_DENIED, connection, connection.client_id, connection.username, detail))


def check_publish(
    broker: "Broker",
    username: str,
    client_id: str,
    topic: bytes,
    retain: bool,
    qos: int = ANY_QOS,
    certified: bool = False,
) -> bool:
    access = broker.access
    if access is None:
        return True
    levels = topic.split(b"/")
    return access.may(PUBLISH, username, client_id, levels, qos, certified) and (
        not retain or access.may(RETAIN, username, client_id, levels, qos, certified)
    )


def publish_as(
    broker: "Broker",
    publisher: Publisher,
    topic: bytes,
    payload: bytes,
    qos: int,
    retain: bool,
    properties: bytes = b"",
    expiry_s: int = -1,
    sender: Session | None = None,
) -> Accepted:
    """Publish what did not come in a PUBLISH: a will, a system topic, a call of the API. The caller checks rights.

    Returns the offset and the reason code.
    """
    message = own_message(broker, publisher, topic, payload, qos, retain, properties, expiry_s)
    route = broker.find_route(message.topic_field, broker.shared is not None)
    reason = accept(broker, message, route, sender, False)
    return Accepted(message.offset, reason)


def own_message(
    broker: "Broker",
    publisher: Publisher,
    topic: bytes,
    payload: bytes,
    qos: int,
    retain: bool,
    properties: bytes,
    expiry_s: int,
) -> Message:
    """Return a message that did not come in a PUBLISH."""
    return Message(
        topic_field(topic),
        payload,
        qos,
        retain and broker.settings.retain_available,
        properties,
        publisher,
        0,
        broker.now_ms,
        broker.now_ms + expiry_s * 1000 if expiry_s >= 0 else NEVER,
        expiry_s >= 0,
    )


# Order and apply.


def accept(broker: "Broker", message: Message, route: Route, sender: Session | None, can_be_told: bool) -> int:
    """Give a publish its offset and apply it; returns the reason code to acknowledge it with."""
    message.offset = broker.log.order_beside(1, message.retain)
    return apply_publish(broker, message, route, sender, can_be_told)


def apply_publish(broker: "Broker", message: Message, route: Route, sender: Session | None, can_be_told: bool) -> int:
    """Retain, deliver and record a publish; returns the reason code to acknowledge it with.

    `can_be_told`: the publisher learns the reason, so what strict limits refuse need not be delivered.
    """
    if route.heard is not None:
        route.heard.at_ms = message.stored_at_ms
    outcome: int = LIVE
    stored = message
    refusal = SUCCESS
    if message.retain:
        retained = broker.retained
        now_ms = message.stored_at_ms
        policy = None if route.policies is None else route.policy_for(message.publisher.username)
        if policy is not None and policy.action == REFUSE:
            outcome = retained.refuse(REFUSED_POLICY)
            refusal = NOT_AUTHORIZED
        else:
            outcome = retained.decide(message, policy, now_ms)
        if REFUSED_SIZE <= outcome <= REFUSED_BUDGET and broker.settings.strict_limits:
            if can_be_told:
                refusal = QUOTA_EXCEEDED
            if retained.index.get(message.topic) is not None:
                # By the letter of the standard the new message replaces the old one, even if it cannot be kept itself.
                outcome = CLEARED
        stored = retained.apply(message, route.levels, outcome, policy, now_ms)
        if outcome == REFUSED_POLICY:
            message = message.without_retain()
    recorder = broker.recorder
    recorded = recorder.keeps and not route.reserved  # what the broker says of itself is made again at every start
    if recorded and broker.shared is not None:
        recorded = broker.shared.log.applying
    count = 0
    if refusal == SUCCESS and (route.receivers or route.groups):
        recorder.publishing = recorded
        count = deliver(broker, message, route, sender)
    if recorded:
        history = route.recorded_live if outcome == LIVE else route.recorded
        recorder.on_publish(stored, outcome, history, can_be_told)
    if refusal != SUCCESS:
        return refusal
    return SUCCESS if count > 0 else NO_MATCHING_SUBSCRIBERS


def deliver(broker: "Broker", message: Message, route: Route, sender: Session | None) -> int:
    """Give a message to all sessions on its route and to one member of each group; returns how many get it."""
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
    """Give a message to one member of a group; returns False when no member can get it."""
    if broker.shared is not None:
        return share_alike(broker, message, group)
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


def share_alike(broker: "Broker", message: Message, group: SharedGroup) -> bool:
    """Give a message to one member of a group, the same one on every node. What is on its way to a session that is not
    kept is remembered by all, since its node may be gone before it arrives.
    """
    member = group.choose_alike(message)
    if member is None:
        broker.counters.dropped_no_member += 1
        return False
    session = member.session
    qos = min(message.qos, member.qos)
    retain = message.retain and member.retain_as_published
    identifiers = [member.identifier] if member.identifier else None
    spread = session.spread
    if session.kept or qos == 0 or spread is None:
        send(broker, session, message, qos, retain, identifiers, group)
        return True
    delivery = Delivery(message, qos, retain, identifiers, group)
    broker.recorder.on_given(session, delivery)
    spread.given[delivery.sequence] = delivery
    if session.connection is not None:
        pass_on(broker, session, session.connection, delivery)
    return True


def choose_allowed(broker: "Broker", message: Message, group: SharedGroup) -> Subscription | None:
    """Return whose turn it is, as `choose` does, among the members that the rules allow to receive the message."""
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
    """Give a message to one session: into its outbox if there is room, into its queue if that can wait."""
    if session.kept and broker.shared is not None:
        give(broker, session, message, qos, retain, identifiers, group)
        return
    connection = session.connection
    if qos == 0:
        if connection is None:
            if session.snapshots:
                missed_live(broker, session, message)
            return
        outbox = connection.outbox
        if outbox.is_full():
            broker.counters.dropped_slow += 1
            if session.snapshots:
                missed_live(broker, session, message)
            return
        if session.snapshots:
            before_live(broker, session, message)
        if (session.queue and message.topic_field in session.waiting) or (
            session.resending and session.has_yet_to_resend(message.topic_field)
        ):
            # Older messages of this topic wait for the window: it may not overtake them.
            if not enqueue(broker, session, Delivery(message, 0, retain, identifiers, group)) and session.snapshots:
                missed_live(broker, session, message)
            return
        if outbox.size > HIGH_WATER_BYTES:
            broker.met_high_water = True
        if write_publish(connection, message, 0, retain, False, 0, identifiers, broker.now_ms):
            broker.count_sent(connection, 0, len(message.payload))
        else:
            broker.counters.dropped_too_large += 1
        return
    if session.snapshots:
        before_live(broker, session, message)
    if connection is None and broker.shared is not None:
        return  # it is connected elsewhere, or its end is on its way
    delivery = Delivery(message, qos, retain, identifiers, group)
    if session.kept:
        broker.recorder.on_queued(session, delivery)
    if (
        connection is not None
        and len(session.inflight) < session.window
        and not session.queue
        and not connection.outbox.is_full()
    ):
        transmit(broker, session, connection, delivery)
    elif not enqueue(broker, session, delivery, connection is None and session.attached) and session.snapshots:
        missed_live(broker, session, message)


def pass_on(broker: "Broker", session: Session, connection: Connection, delivery: Delivery) -> None:
    """Send a message that was given to a session of this node, now or when there is room."""
    if session.has_window() and not session.queue and not connection.outbox.is_full():
        transmit(broker, session, connection, delivery)
    else:
        enqueue(broker, session, delivery)


def redistribute(broker: "Broker", session: Session, group: SharedGroup | None) -> None:
    """Give what waits for a member that leaves to the others of its group. With no group named, do so for all groups.

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
            broker.recorder.publishing = True
            share(broker, delivery.message, to)
            broker.recorder.on_requeued(delivery.message)
        if delivery.sequence:
            broker.recorder.on_done(session, delivery)


# Acknowledge.


def acknowledge(broker: "Broker", connection: Connection, qos: int, packet_id: int, reason: int) -> None:
    """Send PUBACK or PUBREC. 3.1.1 has no reasons, so what was refused is acknowledged too [3.1.1: MQTT-3.3.5-2]."""
    if reason == SUCCESS or not connection.agreed.is_v5:
        if qos == 1:
            known = PUBACKS[packet_id]
            if known is None:
                known = PUBACK + packet_id.to_bytes(2, "big")
                PUBACKS[packet_id] = known
            write(connection, known)
        else:
            write(connection, PUBREC + u16(packet_id))
    elif reason < 0x80 or not connection.agreed.reports_problems:
        write(connection, (PUBACK_WITH_REASON if qos == 1 else PUBREC_WITH_REASON) + u16(packet_id) + BYTE[reason])
    else:
        write(connection, refusal_packet(connection, qos, packet_id, reason))
    broker.effects.write_to(connection)
    broker.hold(connection)


def answer_in_turn(broker: "Broker", connection: Connection, qos: int, packet_id: int, reason: int) -> None:
    """Acknowledge what needs no entry, behind what the client published before [MQTT-4.6.0-2]."""
    if connection.under_way > 0 and broker.shared is not None:
        broker.shared.answer_in_turn(connection, qos, packet_id, reason)
    else:
        acknowledge(broker, connection, qos, packet_id, reason)


def refusal_packet(connection: Connection, qos: int, packet_id: int, reason: int) -> bytes:
    """Return an acknowledgement that says why not, in words where they fit [5: MQTT-3.4.2-2, 3.5.2-2]."""
    kind = PUBACK_KIND if qos == 1 else PUBREC_KIND
    properties = Properties()
    properties.reason_string = reason_name(reason)
    data = encode_ack(Ack(kind, packet_id, reason, properties), V5)
    if len(data) > connection.agreed.max_packet_size:
        data = encode_ack(Ack(kind, packet_id, reason), V5)
    return data


def on_pubrel(broker: "Broker", connection: Connection, packet_id: int) -> None:
    session = connection.session
    assert session is not None
    if broker.shared is not None and (packet_id in session.unreleased or connection.under_way > 0):
        broker.shared.release(connection, packet_id)
        return
    if packet_id in session.unreleased:
        write(connection, PUBCOMP + u16(packet_id))
        release_packet_id(broker, connection, session, packet_id)
    elif connection.agreed.is_v5:
        write(connection, PUBCOMP_WITH_REASON + u16(packet_id) + BYTE[PACKET_ID_NOT_FOUND])
    else:
        write(connection, PUBCOMP + u16(packet_id))
    broker.effects.write_to(connection)


def released(broker: "Broker", connection: Connection, packet_id: int) -> None:
    """Tell a client that the log knows of its PUBREL."""
    write(connection, PUBCOMP + u16(packet_id))
    broker.effects.write_to(connection)


def release_packet_id(broker: "Broker", connection: Connection, session: Session, packet_id: int) -> None:
    """Forget a QoS 2 packet id that its publisher has released: the next message under it is a new one."""
    session.unreleased.discard(packet_id)
    if session.record_id:
        broker.recorder.on_released(session, packet_id)
        broker.hold(connection)
