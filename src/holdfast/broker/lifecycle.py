"""How connections and sessions end, and what happens to their wills."""

from typing import TYPE_CHECKING

from holdfast.broker.connection import Connection
from holdfast.broker.delivery import redistribute
from holdfast.broker.message import Publisher
from holdfast.broker.outbound import write
from holdfast.broker.publishing import check_publish, publish_as
from holdfast.broker.session import FOREVER, Session
from holdfast.broker.snapshot import end_all
from holdfast.broker.timers import SESSION_EXPIRY, WILL, Timer
from holdfast.errors import ProtocolError
from holdfast.protocol.mqtt.connection import CLOSED, CONNECTED
from holdfast.protocol.mqtt.encode import encode_disconnect
from holdfast.protocol.mqtt.packets import Disconnect
from holdfast.protocol.mqtt.properties import Properties
from holdfast.protocol.mqtt.reasons import NORMAL_DISCONNECTION

if TYPE_CHECKING:
    from holdfast.broker.core import Broker


def on_disconnect(broker: "Broker", connection: Connection, packet: Disconnect) -> None:
    session = connection.session
    if session is None:  # it gives up a login
        close(broker, connection, "client disconnected")
        return
    properties = packet.properties
    if properties is not None and properties.session_expiry is not None:
        if session.expiry_s == 0 and properties.session_expiry != 0:
            raise ProtocolError("DISCONNECT turns a session expiry of 0 into another, which it may not")
        session.expiry_s = broker.cap_session_expiry(properties.session_expiry)
    if packet.reason == NORMAL_DISCONNECTION and session.will is not None:
        session.will = None  # [3.1.1: MQTT-3.14.4-3] [5: MQTT-3.14.4-3]
        if broker.log is not None:
            broker.log.on_will_cleared(broker, session)
    close(broker, connection, "client disconnected")


def disconnect(broker: "Broker", connection: Connection, reason: int, text: str) -> None:
    """End a connection from this side; MQTT 5 clients are told why, once they have been accepted [5: MQTT-3.14.0-1]."""
    if connection.state == CLOSED:
        return
    if connection.carrier is not None and connection.state == CONNECTED:
        connection.carrier.goodbye(reason)
    elif connection.state == CONNECTED and connection.is_v5:
        write(connection, disconnect_packet(connection, reason, text))
        broker.touch(connection)
    close(broker, connection, text)


def disconnect_packet(connection: Connection, reason: int, text: str) -> bytes:
    """With the reason in words, unless that would be too large for the client [5: MQTT-3.14.2-3]."""
    properties = Properties()
    properties.reason_string = text
    data = encode_disconnect(Disconnect(reason, properties), connection.version)
    if len(data) > connection.max_packet_size:
        data = encode_disconnect(Disconnect(reason), connection.version)
    return data


def close(broker: "Broker", connection: Connection, text: str) -> None:
    """Leave the connection to the caller to close, once its outbox is written."""
    if connection.state == CLOSED:
        return
    was_connected = connection.state == CONNECTED
    connection.state = CLOSED
    broker.timers.dead += 1
    connection.close_reason = text
    connection.partial.clear()
    connection.partial_size = 0
    connection.last_route = None
    if not connection.closing:
        connection.closing = True
        broker.effects.closing.append(connection)
    broker.forget_ticket(connection)
    if connection.carrier is not None:
        connection.carrier.on_closed()
    session = connection.session
    if was_connected and session is not None and session.connection is connection:
        broker.counters.connected_now -= 1
        detach(broker, session)


def detach(broker: "Broker", session: Session) -> None:
    """A session has lost its connection: settle its will and its own end. Its snapshots rest until it is back."""
    session.connection = None
    session.window = 0
    forget_markers(session)
    will = session.will
    if session.expiry_s == 0:
        end_session(broker, session)
        return
    if broker.log is not None:
        broker.log.on_detached(broker, session)
    if session.expiry_s != FOREVER:
        session.expires_at_ms = broker.now_ms + session.expiry_s * 1000
        broker.timers.add(session.expires_at_ms, Timer(SESSION_EXPIRY, None, session))
    if will is not None:
        if will.delay_s == 0:
            publish_will(broker, session)
        else:
            will.due_ms = broker.now_ms + will.delay_s * 1000
            broker.timers.add(will.due_ms, Timer(WILL, None, session))


def forget_markers(session: Session) -> None:
    """End markers that wait are for the connection that asked for them. They alone have no offset."""
    for _ in range(len(session.queue)):
        delivery = session.pull()
        if delivery.message.offset != 0:
            session.push(delivery)


def end_session(broker: "Broker", session: Session) -> None:
    """Forget a session for good. A will that still waits is due now [5: MQTT-3.1.2-8]."""
    if session.ended:
        return
    session.ended = True
    broker.timers.dead += 1
    if broker.sessions.get(session.client_id) is session:
        del broker.sessions[session.client_id]
    end_all(broker, session)
    for subscription in session.subscriptions.values():
        broker.subscriptions.remove(subscription)
    session.subscriptions.clear()
    redistribute(broker, session, None)
    session.queue.clear()
    session.waiting.clear()
    session.queued_bytes = 0
    session.inflight.clear()
    session.unreleased.clear()
    session.resending.clear()
    publish_will(broker, session)
    if broker.log is not None:
        broker.log.on_ended(broker, session)


def publish_will(broker: "Broker", session: Session) -> None:
    """Send the will, if there is one, and forget it [3.1.1: MQTT-3.1.2-10] [5: MQTT-3.1.2-10]."""
    pending = session.will
    if pending is None:
        return
    session.will = None
    will = pending.will
    topic = will.topic
    # Rights may have changed since the will was set.
    if broker.access is not None and not check_publish(
        broker, session.owner, session.client_id, topic, will.retain, will.qos, session.certified
    ):
        broker.counters.publishes_refused += 1
        return
    properties = will.properties
    expiry_s = -1
    if properties is not None and properties.message_expiry is not None:
        expiry_s = properties.message_expiry
    broker.counters.wills_published += 1
    publish_as(
        broker,
        Publisher(session.client_id, session.owner, session.protocol),
        topic,
        will.payload,
        will.qos,
        will.retain,
        b"" if properties is None else properties.forward,
        expiry_s,
        session,
    )
    if broker.log is not None:
        broker.log.on_will_cleared(broker, session)


def on_will_due(broker: "Broker", session: Session) -> None:
    pending = session.will
    if pending is not None and 0 < pending.due_ms <= broker.now_ms:
        publish_will(broker, session)


def on_session_due(broker: "Broker", session: Session) -> None:
    if not session.ended and session.connection is None and 0 < session.expires_at_ms <= broker.now_ms:
        broker.counters.sessions_expired += 1
        end_session(broker, session)
