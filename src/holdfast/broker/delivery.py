"""From a session to its client: the window, the queue, the acknowledgements that move both, and the bytes.

`write_publish` and what it calls are on the path of every delivered message: packets are put together straight into the
receiver's outbox, in pieces that are joined once per flush, by table lookup where possible, and never as objects.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from holdfast.broker.entries import ACK_PUBACK, ACK_PUBCOMP, ACK_PUBREC
from holdfast.broker.message import NEVER, Message
from holdfast.broker.session import ANSWER_COST, AWAITING_COMPLETE, HIGH_WATER_QUEUE, Connection, Delivery, Session
from holdfast.protocol.mqtt.connection import CLOSED
from holdfast.protocol.mqtt.properties import MESSAGE_EXPIRY, SUBSCRIPTION_ID, TOPIC_ALIAS, USER_PROPERTY
from holdfast.protocol.mqtt.reasons import PACKET_ID_NOT_FOUND
from holdfast.protocol.wire import encode_varint

if TYPE_CHECKING:
    from holdfast.broker.core import Broker

# What was sent so far, by its number: looking it up costs less than making it, and few brokers need all 4 MB of it.
U16: Final[list[bytes | None]] = [None] * 65536
PUBREL: Final = b"\x62\x02"
PUBREL_NOT_FOUND: Final = b"\x62\x03"
SUBSCRIPTION_ID_MARK: Final = bytes((SUBSCRIPTION_ID,))
REASON_NOT_FOUND: Final = bytes((PACKET_ID_NOT_FOUND,))

HEAD_TABLE_LENGTHS: Final = 1024
# The first bytes of a PUBLISH, by its flags and remaining length.
HEADS: Final[list[list[bytes]]] = [
    [bytes((0x30 | flags,)) + encode_varint(length) for length in range(HEAD_TABLE_LENGTHS)] for flags in range(16)
]


def u16(value: int) -> bytes:
    known = U16[value]
    if known is None:
        known = value.to_bytes(2, "big")
        U16[value] = known
    return known


def transmit(broker: "Broker", session: Session, connection: Connection, delivery: Delivery) -> bool:
    """Send a QoS 1 or 2 message for the first time; returns False if it is dropped as too large [5: MQTT-3.1.2-25]."""
    packet_id = session.new_packet_id()
    if not write_publish(
        connection,
        delivery.message,
        delivery.qos,
        delivery.retain,
        False,
        packet_id,
        delivery.identifiers,
        broker.now_ms,
        delivery.retain and connection.agreed.wants_meta,
    ):
        broker.counters.dropped_too_large += 1
        if delivery.sequence:
            broker.recorder.on_done(session, delivery)
        return False
    session.inflight[packet_id] = delivery
    if delivery.sequence:
        broker.recorder.on_sent(session, delivery, packet_id)
        if delivery.qos == 2:
            # A restarted broker must know the packet id that the client has seen, or the message comes twice.
            broker.hold(connection)
    broker.count_sent(connection, delivery.qos, len(delivery.message.payload))
    return True


def enqueue(broker: "Broker", session: Session, delivery: Delivery, uncounted: bool = False) -> bool:
    """Keep a message until the window opens or the client returns; returns False if it was dropped for lack of room."""
    settings = broker.settings
    size = delivery.message.size()
    if not uncounted and (
        len(session.queue) >= settings.max_queued_messages or session.queued_bytes + size > settings.max_queued_bytes
    ):
        broker.counters.dropped_queue_full += 1
        if delivery.sequence:
            broker.recorder.on_done(session, delivery)
        return False
    session.push(delivery)
    if len(session.queue) > HIGH_WATER_QUEUE:
        broker.met_high_water = True
    return True


def pump(broker: "Broker", session: Session, most: int = 1 << 30) -> None:
    """Send what is queued, as far as window and socket allow."""
    connection = session.connection
    if connection is None:
        return
    if session.kept and broker.shared is not None:
        broker.shared.go_on(session)
        return
    queue = session.queue
    while queue and most > 0 and len(session.inflight) < session.window and not connection.outbox.is_full():
        delivery = session.pull()
        if delivery.message.expired(broker.now_ms):  # [5: MQTT-3.3.2-5]
            broker.counters.dropped_expired += 1
            if delivery.sequence:
                broker.recorder.on_done(session, delivery)
            continue
        if broker.access is not None and not still_may(broker, session, delivery.message):
            # The right was lost while it waited.
            broker.counters.dropped_not_allowed += 1
            if delivery.sequence:
                broker.recorder.on_done(session, delivery)
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
            delivery.retain and connection.agreed.wants_meta,
        ):
            broker.count_sent(connection, 0, len(delivery.message.payload))
        else:
            broker.counters.dropped_too_large += 1


def still_may(broker: "Broker", session: Session, message: Message) -> bool:
    """Return whether the client may still receive a message that has waited. The broker's own words have no offset."""
    return message.offset == 0 or broker.may_receive(session, message.topic_field)


def refill(broker: "Broker", session: Session) -> None:
    """Fill the window that has opened. Queue and snapshots take turns, so that neither starves the other."""
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
    if session.kept and broker.shared is not None:
        propose_ack(broker, session, ACK_PUBACK, packet_id, 0)
        return
    delivery = session.inflight.get(packet_id)
    if delivery is not None and delivery.qos == 1:
        session.progress_ms = broker.now_ms
        del session.inflight[packet_id]
        if delivery.sequence:
            broker.recorder.on_done(session, delivery)
        if session.queue or session.snapshots or session.resending:
            refill(broker, session)


def on_pubrec(broker: "Broker", session: Session, connection: Connection, packet_id: int, reason: int) -> None:
    delivery = session.inflight.get(packet_id)
    if delivery is None or delivery.qos != 2:
        if reason >= 0x80:
            return  # a refusal ends an exchange; of one that is not there, nothing is left to say
        if connection.agreed.is_v5:
            write(connection, PUBREL_NOT_FOUND + u16(packet_id) + REASON_NOT_FOUND)
        else:
            write(connection, PUBREL + u16(packet_id))
        broker.effects.write_to(connection)
        return
    if session.kept and broker.shared is not None:
        propose_ack(broker, session, ACK_PUBREC, packet_id, reason)
        return
    if reason >= 0x80:  # the client refused it: that ends the exchange [5: MQTT-4.4.0-2]
        del session.inflight[packet_id]
        if delivery.sequence:
            broker.recorder.on_done(session, delivery)
        refill(broker, session)
        return
    delivery.stage = AWAITING_COMPLETE
    if broker.recorder.on_releasing(session, delivery, packet_id):
        broker.hold(connection)
    write_pubrel(connection, packet_id)
    broker.effects.write_to(connection)


def on_pubcomp(broker: "Broker", session: Session, packet_id: int) -> None:
    if session.kept and broker.shared is not None:
        propose_ack(broker, session, ACK_PUBCOMP, packet_id, 0)
        return
    delivery = session.inflight.get(packet_id)
    if delivery is not None and delivery.stage == AWAITING_COMPLETE:
        session.progress_ms = broker.now_ms
        del session.inflight[packet_id]
        if delivery.sequence:
            broker.recorder.on_done(session, delivery)
        refill(broker, session)


def propose_ack(broker: "Broker", session: Session, kind: int, packet_id: int, reason: int) -> None:
    """Let all nodes know what a client has acknowledged; the window opens when that has come back."""
    connection = session.connection
    shared = broker.shared
    if connection is not None and shared is not None and packet_id in session.inflight:
        session.progress_ms = broker.now_ms
        shared.acknowledge(connection, kind, packet_id, reason)


def resend(broker: "Broker", session: Session, connection: Connection) -> None:
    """Send again what was under way when a session is resumed, in order, with its packet ids [MQTT-4.4.0-1]; then what
    its snapshots had still to send.
    """
    session.resending.clear()
    session.resending.extend(session.inflight)
    resend_more(broker, session)
    for snapshot in session.snapshots:
        broker.wake(snapshot)
    broker.effects.write_to(connection)


def resend_more(broker: "Broker", session: Session) -> None:
    """Send as much of it again as fits into the window of the new connection [5: MQTT-4.9.0-1]."""
    connection = session.connection
    assert connection is not None
    if session.kept and broker.shared is not None:
        broker.shared.go_on(session)
        return
    while session.resending and len(session.inflight) - len(session.resending) < session.window:
        packet_id = session.resending.popleft()
        delivery = session.inflight.get(packet_id)
        if delivery is None:
            continue  # the client has acknowledged it out of turn
        if delivery.stage == AWAITING_COMPLETE:
            write_pubrel(connection, packet_id)
            broker.effects.write_to(connection)
            continue
        if broker.access is not None and not still_may(broker, session, delivery.message):
            del session.inflight[packet_id]
            broker.counters.dropped_not_allowed += 1
            if delivery.sequence:
                broker.recorder.on_done(session, delivery)
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
            delivery.retain and connection.agreed.wants_meta,
        ):
            broker.count_sent(connection, delivery.qos, len(delivery.message.payload))
        else:
            del session.inflight[packet_id]
            broker.counters.dropped_too_large += 1
            if delivery.sequence:
                broker.recorder.on_done(session, delivery)


# The bytes.


def publish_head(flags: int, remaining: int) -> bytes:
    if remaining < HEAD_TABLE_LENGTHS:
        return HEADS[flags][remaining]
    return bytes((0x30 | flags,)) + encode_varint(remaining)


def write_publish(
    connection: Connection,
    message: Message,
    qos: int,
    retain: bool,
    dup: bool,
    packet_id: int,
    identifiers: list[int] | None,
    now_ms: int,
    meta: bool = False,
) -> bool:
    """Add a PUBLISH to the outbox; returns False when it is too large for the client [5: MQTT-3.1.2-24]."""
    flags = qos << 1
    if retain:
        flags |= 1
    if dup:
        flags |= 8
    field = message.topic_field
    payload = message.payload
    remaining = len(field) + len(payload)
    if qos > 0:
        remaining += 2
    agreed = connection.agreed
    outbox = connection.outbox
    pieces = outbox.pieces
    if not agreed.is_v5:
        if connection.adapter is not None:
            return connection.adapter.publish(message, qos, retain, dup, packet_id)
        head = publish_head(flags, remaining)
        if len(head) + remaining > agreed.max_packet_size:
            return False
        pieces.append(head)
        pieces.append(field)
        if qos > 0:
            pieces.append(u16(packet_id))
        pieces.append(payload)
        outbox.size += len(head) + remaining
        return True

    known_alias = False
    properties = message.properties
    if (
        identifiers is not None
        or agreed.alias_maximum > 0
        or meta
        or (message.interval_given and message.expires_at_ms != NEVER)
    ):
        extra = b""
        if message.interval_given and message.expires_at_ms != NEVER:
            # The received interval less the time it waited here, in whole seconds rounded up [5: MQTT-3.3.2-6].
            left_s = max(1, (message.expires_at_ms - now_ms + 999) // 1000)
            extra = bytes((MESSAGE_EXPIRY,)) + left_s.to_bytes(4, "big")
        if identifiers is not None:
            parts = [extra]
            for identifier in identifiers:
                parts.append(SUBSCRIPTION_ID_MARK)
                parts.append(encode_varint(identifier))
            extra = b"".join(parts)
        if agreed.alias_maximum > 0:
            alias = outbox.aliases.get(field)
            if alias is not None:
                known_alias = True
            elif outbox.may_learn_alias(field, agreed.alias_maximum):
                alias = len(outbox.aliases) + 1
            if alias is not None:
                extra += bytes((TOPIC_ALIAS,)) + u16(alias)
        if meta:
            extra += meta_properties(message, connection)
        properties = extra + properties
    topic = field
    if known_alias:
        topic = b"\0\0"
        remaining += 2 - len(field)
    size = len(properties)
    block = encode_varint(size)
    remaining += len(block) + size
    head = publish_head(flags, remaining)
    if len(head) + remaining > agreed.max_packet_size:
        return False
    if agreed.alias_maximum > 0 and not known_alias and outbox.may_learn_alias(field, agreed.alias_maximum):
        outbox.aliases[field] = len(outbox.aliases) + 1
    pieces.append(head)
    pieces.append(topic)
    if qos > 0:
        pieces.append(u16(packet_id))
    pieces.append(block)
    if size > 0:
        pieces.append(properties)
    pieces.append(payload)
    outbox.size += len(head) + remaining
    return True


def user_property(name: bytes, value: bytes) -> bytes:
    return bytes((USER_PROPERTY,)) + u16(len(name)) + name + u16(len(value)) + value


def meta_properties(message: Message, connection: Connection) -> bytes:
    """Return where a retained message comes from, for clients that asked with `holdfast-retained-meta: on`. Client ids
    are told to the user who published under them.
    """
    stored_at = datetime.fromtimestamp(message.stored_at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    told = user_property(b"hf-offset", str(message.offset).encode())
    told += user_property(b"hf-stored-at", stored_at.encode())
    if connection.session is not None and connection.session.owner == message.publisher.username:
        told += user_property(b"hf-publisher", message.publisher.client_id.encode())
    return told


def write_pubrel(connection: Connection, packet_id: int) -> None:
    if connection.adapter is not None:
        connection.adapter.release(packet_id)
    else:
        write(connection, PUBREL + u16(packet_id))


def write(connection: Connection, data: bytes) -> None:
    """Add any other packet to the outbox."""
    if connection.state != CLOSED:
        outbox = connection.outbox
        outbox.pieces.append(data)
        outbox.size += len(data)
        outbox.answers += len(data) + ANSWER_COST
