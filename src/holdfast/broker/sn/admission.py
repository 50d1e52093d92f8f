"""What sensors ask for, admitted or refused: a session by CONNECT, and messages with a connection or without one."""

from typing import TYPE_CHECKING, Final

from holdfast.broker.effects import LiveItem
from holdfast.broker.entries import NO_EXPIRY
from holdfast.broker.lifecycle import certify, check_client, has_session_left, on_connected
from holdfast.broker.message import NEVER, Message, Publisher, topic_field
from holdfast.broker.pending import Then
from holdfast.broker.publishing import (
    accept,
    check_entry_size,
    check_publish,
    may_publish,
    must_be_kept,
    must_be_ordered,
    on_denied,
    own_message,
    publish_as,
    release_packet_id,
)
from holdfast.broker.session import Connection, PendingWill, Session
from holdfast.broker.topics import matches
from holdfast.errors import ProtocolError
from holdfast.protocol.mqtt.connection import CONNECTED
from holdfast.protocol.mqtt.packets import Connect, Will
from holdfast.protocol.mqtt.reasons import (
    BANNED,
    CLIENT_ID_NOT_VALID,
    NOT_AUTHORIZED,
    QOS_NOT_SUPPORTED,
    QUOTA_EXCEEDED,
    SUCCESS,
)

if TYPE_CHECKING:
    from holdfast.broker.core import Broker

LATER: Final = -1  # the answer is known when an entry comes back from the log

UNCONNECTED_12: Final = Publisher("", "", "SN1.2")
UNCONNECTED_20: Final = Publisher("", "", "SN2.0")


def check_connect(broker: "Broker", packet: Connect, username: str, assigned: bool, is_kept: bool) -> int:
    """Return SUCCESS when this user may connect under that client id and with that will, else the reason why not."""
    reason = check_client(broker, username, packet.client_id, assigned)
    if reason != SUCCESS:
        return NOT_AUTHORIZED if reason == BANNED else reason
    if is_kept and not has_session_left(broker, username, packet.client_id):
        return QUOTA_EXCEEDED
    will = packet.will
    if will is not None:
        if broker.find_route(topic_field(will.topic)).reserved:
            return NOT_AUTHORIZED
        if not check_publish(broker, username, packet.client_id, will.topic, will.retain):
            return NOT_AUTHORIZED
    old = broker.sessions.get(packet.client_id)
    if old is not None and old.owner != username:
        return CLIENT_ID_NOT_VALID  # a session belongs to the user that made it
    return SUCCESS


def attach(
    broker: "Broker", connection: Connection, session: Session, username: str, protocol: str, will: Will | None
) -> None:
    """Make a sensor's connection the connection of its session."""
    certify(broker, session, False)
    session.connection = connection
    session.attach(protocol, session.expiry_s)
    session.window = 1
    session.will = PendingWill(will, 0) if will is not None else None
    be_connected(broker, connection, session, username, protocol)


def be_connected(broker: "Broker", connection: Connection, session: Session, username: str, protocol: str) -> None:
    connection.state = CONNECTED
    connection.session = session
    connection.client_id = session.client_id
    connection.username = username
    connection.connected_at_ms = broker.now_ms
    connection.outbox.limit = broker.settings.max_outbox_bytes
    connection.agreed.plain = False  # frames of MQTT are nothing for it
    connection.publisher = Publisher(session.client_id, username, protocol)
    on_connected(broker, connection)


def accept_publish(
    broker: "Broker",
    connection: Connection,
    session: Session,
    field: bytes,
    payload: bytes,
    qos: int,
    retain: bool,
    packet_id: int,
    then: Then,
) -> int:
    """Publish what a connected sensor sent, unless it is a copy of a QoS 2 message that came before.

    Returns the reason code of MQTT 5 to acknowledge it with, or LATER: `then` is called with it when the log that nodes
    share has the message.
    """
    route = broker.route_of(connection, field)
    if qos > broker.settings.max_qos:
        raise ProtocolError(f"QoS is {qos}, expected no more than {broker.settings.max_qos}", QOS_NOT_SUPPORTED)
    broker.counters.messages_received[qos] += 1
    broker.counters.received_by_version[connection.agreed.version] += 1
    broker.counters.payload_received += len(payload)
    if qos == 2 and packet_id in session.unreleased:  # [SN2: 4.3.4-11]
        return SUCCESS
    if qos > 0 and not broker.log.healthy and must_be_kept(route, retain):
        broker.counters.publishes_refused += 1
        return QUOTA_EXCEEDED
    if route.reserved or (broker.access is not None and not may_publish(broker, connection, field, retain, qos)):
        on_denied(broker, connection, field, retain, qos)
        return NOT_AUTHORIZED
    message = Message(
        route.topic_field,
        payload,
        qos,
        retain and broker.settings.retain_available,
        b"",
        connection.publisher,
        0,
        broker.now_ms,
        NEVER,
        False,
    )
    shared = broker.shared
    if shared is not None:
        if must_be_ordered(connection, route, message):
            check_entry_size(broker, message)

            def on_back(reason: int) -> None:
                then(reason if reason >= 0x80 else SUCCESS)

            shared.publish_then(connection, message, packet_id, on_back)
            return LATER
        if route.nodes:
            broker.effects.live.append(LiveItem(route.nodes, message))
    reason = accept(broker, message, route, session, False)
    if reason >= 0x80:
        return reason
    if qos == 2:
        session.unreleased.add(packet_id)
        broker.recorder.on_received(session, packet_id)
    return SUCCESS


def on_pubrel(broker: "Broker", connection: Connection, session: Session, packet_id: int, then: Then) -> bool:
    """Release the packet id of a QoS 2 message, and call `then` when that is done; returns False if it is not known."""
    if packet_id not in session.unreleased:
        return False
    if broker.shared is not None:
        broker.shared.release(connection, packet_id, then)
    else:
        release_packet_id(broker, connection, session, packet_id)
        then(SUCCESS)
    return True


def publish_unconnected(
    broker: "Broker", publisher: Publisher, filters: list[list[bytes]], field: bytes, payload: bytes, retain: bool
) -> bool:
    """Publish what came without a connection; returns whether the topic is one that the configuration opens for it."""
    topic = field[2:]
    levels = topic.split(b"/")
    allowed = False
    for levels_of_filter in filters:
        if matches(levels_of_filter, levels):
            allowed = True
            break
    if not allowed or broker.find_route(field).reserved or not check_publish(broker, "", "", topic, retain):
        return False
    broker.counters.messages_received[0] += 1
    broker.counters.payload_received += len(payload)
    shared = broker.shared
    if shared is None:
        publish_as(broker, publisher, topic, payload, 0, retain)
        return True
    route = broker.find_route(field)
    message = own_message(broker, publisher, topic, payload, 0, retain, b"", -1)
    if must_be_kept(route, message.retain):
        shared.publish_as(message, NO_EXPIRY)
    else:
        accept(broker, message, route, None, False)
        if route.nodes:
            broker.effects.live.append(LiveItem(route.nodes, message))
    return True
