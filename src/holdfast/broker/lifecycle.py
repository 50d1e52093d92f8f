"""How connections begin and end, and with them sessions and wills.

CONNECT: who the client is, whether it may connect, which session it gets, and what both sides agree on. DISCONNECT, or
the loss of the network: what becomes of the session, its will and its queue.
"""

from typing import TYPE_CHECKING

from holdfast.broker.delivery import pump, resend, write
from holdfast.broker.entries import AttachEntry, encode_attach
from holdfast.broker.message import Publisher
from holdfast.broker.publishing import (
    ENTRY_OVERHEAD,
    check_publish,
    check_user_properties,
    publish_as,
    redistribute,
)
from holdfast.broker.seen import CONNECT_REFUSED, DISCONNECTED, LOGIN_FAILED, Seen
from holdfast.broker.seen import CONNECTED as CAME_IN
from holdfast.broker.session import (
    FOREVER,
    MARK,
    SNAPSHOT_PROPERTY,
    Connection,
    PendingWill,
    Session,
    is_reserved,
)
from holdfast.broker.session_records import WillRecord
from holdfast.broker.snapshot import end_all
from holdfast.broker.timers import KEEP_ALIVE, SESSION_EXPIRY, WILL, Timer
from holdfast.broker.topics import check_topic
from holdfast.errors import ProtocolError
from holdfast.protocol.mqtt.connection import AUTHENTICATING, CLOSED, CONNECTED
from holdfast.protocol.mqtt.encode import encode_auth, encode_connack, encode_disconnect
from holdfast.protocol.mqtt.packets import PROTOCOL_NAMES, V5, V31, V311, Auth, ConnAck, Connect, Disconnect, Will
from holdfast.protocol.mqtt.properties import Properties
from holdfast.protocol.mqtt.reasons import (
    BAD_AUTHENTICATION_METHOD,
    BAD_USERNAME_OR_PASSWORD,
    BANNED,
    CLIENT_ID_NOT_VALID,
    CONNECTION_RATE_EXCEEDED,
    CONTINUE_AUTHENTICATION,
    NORMAL_DISCONNECTION,
    NOT_AUTHORIZED,
    PACKET_TOO_LARGE,
    QOS_NOT_SUPPORTED,
    QUOTA_EXCEEDED,
    REAUTHENTICATE,
    RETAIN_NOT_SUPPORTED,
    SERVER_BUSY,
    SERVER_UNAVAILABLE,
    SESSION_TAKEN_OVER,
    SUCCESS,
    reason_name,
    return_code_311,
)

if TYPE_CHECKING:
    from holdfast.broker.core import Broker


# CONNECT.


def on_connect(broker: "Broker", connection: Connection, packet: Connect) -> None:
    connection.agreed.read(packet)
    reason = validate_connect(broker, packet)
    if reason != SUCCESS:
        refuse(broker, connection, reason, packet.client_id)
        return
    properties = packet.properties
    method = properties.auth_method if properties is not None else None
    if connection.identity and method is None:  # the transport has proven who it is
        accept_connect(broker, connection, packet, connection.identity)
        return
    name = broker.name_unasked(connection, packet) if method is None else None
    if name is not None:
        accept_connect(broker, connection, packet, name)
        return
    connection.state = AUTHENTICATING
    connection.connect = packet
    if properties is not None and method is not None:
        connection.auth_method = method
        broker.exchange_authentication(connection, properties.auth_data or b"", True)
    else:
        broker.begin_authentication(connection, packet)


def on_auth(broker: "Broker", connection: Connection, packet: Auth) -> None:
    """Handle the next message of a login by a method of MQTT 5, or the first one of a client that logs in again."""
    properties = packet.properties
    method = properties.auth_method if properties is not None else None
    if not connection.auth_method or method != connection.auth_method:  # [5: MQTT-4.12.0-5, 4.12.0-7, 4.12.1-1]
        raise ProtocolError(f"AUTH with reason 0x{packet.reason:02X} came without the authentication method of CONNECT")
    data = properties.auth_data if properties is not None else None
    begins = packet.reason == REAUTHENTICATE and connection.state == CONNECTED and connection.ticket == 0
    if not begins and not (packet.reason == CONTINUE_AUTHENTICATION and connection.exchanging):
        raise ProtocolError(f"AUTH with reason 0x{packet.reason:02X} has no place here")
    connection.exchanging = False
    broker.exchange_authentication(connection, data or b"", begins)


def on_challenge(broker: "Broker", connection: Connection, data: bytes) -> None:
    """Send what the authenticator asks the client next [5: MQTT-4.12.0-2]."""
    connection.exchanging = True
    write(connection, auth_packet(connection, CONTINUE_AUTHENTICATION, data))
    broker.effects.write_to(connection)


def auth_packet(connection: Connection, reason: int, data: bytes) -> bytes:
    properties = Properties()
    properties.auth_method = connection.auth_method
    properties.auth_data = data
    return encode_auth(Auth(reason, properties), V5)


def on_authenticated(broker: "Broker", connection: Connection, reason: int, username: str, data: bytes) -> None:
    """Accept or refuse a client as the authenticator says. Nothing that it sent after CONNECT has been handled yet."""
    if connection.adapter is not None:
        connection.adapter.on_authenticated(reason, username)
        return
    packet = connection.connect
    connection.connect = None
    assert packet is not None
    if reason == SUCCESS and connection.auth_method and packet.username is not None and packet.username != username:
        reason = BAD_USERNAME_OR_PASSWORD  # it says two names, and has proven one
    if reason != SUCCESS:
        refuse(broker, connection, reason, packet.client_id, username)
    else:
        accept_connect(broker, connection, packet, username, data)


def on_authenticated_again(broker: "Broker", connection: Connection, reason: int, username: str, data: bytes) -> None:
    """Answer a connected client that has logged in again, which it may only as the same user [5: MQTT-4.12.1-2]."""
    if reason != SUCCESS or username != connection.username:
        disconnect(broker, connection, NOT_AUTHORIZED, "re-authentication failed")
        return
    write(connection, auth_packet(connection, SUCCESS, data))
    broker.effects.write_to(connection)


def validate_connect(broker: "Broker", packet: Connect) -> int:
    """Return why this CONNECT cannot be accepted from any user, or SUCCESS when it can."""
    settings = broker.settings
    properties = packet.properties
    if properties is not None and properties.auth_method is not None:  # [5: MQTT-4.12.0-1]
        if broker.authenticator is None or not broker.authenticator.knows(properties.auth_method):
            return BAD_AUTHENTICATION_METHOD
    check_user_properties(broker, properties)
    if not packet.client_id:
        if packet.version == V31 or (packet.version == V311 and not packet.clean_start):  # [3.1.1: MQTT-3.1.3-8]
            return CLIENT_ID_NOT_VALID
    elif len(packet.client_id.encode()) > settings.max_client_id_length:
        return CLIENT_ID_NOT_VALID
    if 0 < settings.max_connections <= broker.counters.connected_now and packet.client_id not in broker.sessions:
        return SERVER_BUSY
    if settings.connect_rate > 0 and not broker.connect_rate.offer(broker.now_ms / 1000):
        return CONNECTION_RATE_EXCEEDED
    will = packet.will
    if will is not None:
        check_topic(will.topic, settings.max_topic_levels)
        check_user_properties(broker, will.properties)
        if packet.version == V5:
            if will.qos > settings.max_qos:  # [5: MQTT-3.2.2-12]
                return QOS_NOT_SUPPORTED
            if will.retain and not settings.retain_available:  # [5: MQTT-3.2.2-13]
                return RETAIN_NOT_SUPPORTED
    return SUCCESS


def refuse(broker: "Broker", connection: Connection, reason: int, client_id: str = "", username: str = "") -> None:
    """Send CONNACK with the reason, if the version has one, and close [3.1.1: MQTT-3.2.2-5] [5: MQTT-3.2.2-7]."""
    on_refused(broker, connection, reason, client_id, username)
    if connection.agreed.is_v5:
        write(connection, refusal(connection, reason))
    else:
        code = return_code_311(reason)
        if code >= 0:
            write(connection, encode_connack(ConnAck(False, code), connection.agreed.version))
    broker.effects.write_to(connection)
    close(broker, connection, f"connect refused with reason 0x{reason:02X}")


def on_refused(broker: "Broker", connection: Connection, reason: int, client_id: str, username: str) -> None:
    """Count a CONNECT that is refused, and leave a note of it with the name that the authenticator knows it by."""
    broker.counters.connects_refused += 1
    event = CONNECT_REFUSED
    if reason in (BAD_USERNAME_OR_PASSWORD, NOT_AUTHORIZED, BANNED, BAD_AUTHENTICATION_METHOD):
        broker.counters.logins_failed += 1
        event = LOGIN_FAILED
    if broker.effects.has_room_to_see():
        broker.effects.seen.append(Seen(event, connection, client_id, username, {"reason": reason_name(reason)}))


def refusal(connection: Connection, reason: int) -> bytes:
    """Return CONNACK, with the reason in words if that fits into the client's limit [5: MQTT-3.1.2-24, 3.2.2-19]."""
    properties = Properties()
    properties.reason_string = reason_name(reason)
    data = encode_connack(ConnAck(False, reason, properties), V5)
    if len(data) > connection.agreed.max_packet_size:
        data = encode_connack(ConnAck(False, reason), V5)
    return data if len(data) <= connection.agreed.max_packet_size else b""


def accept_connect(
    broker: "Broker", connection: Connection, packet: Connect, username: str, auth_data: bytes = b""
) -> None:
    """Give a client whose identity is known its session, and tell it what it gets."""
    assigned = not packet.client_id
    client_id = broker.new_client_id() if assigned else packet.client_id
    connection.client_id = client_id
    connection.username = username
    reason = check_client(broker, username, client_id, assigned)
    if reason == SUCCESS and asked_expiry(broker, packet) > 0 and not has_session_left(broker, username, client_id):
        reason = QUOTA_EXCEEDED
    if reason != SUCCESS:
        refuse(broker, connection, reason, client_id, username)
        return
    will = packet.will
    if will is not None:
        certified = connection.identity != ""
        if is_reserved(will.topic) or not check_publish(
            broker, username, client_id, will.topic, will.retain, will.qos, certified
        ):
            refuse(broker, connection, NOT_AUTHORIZED, client_id, username)
            return
    old = broker.sessions.get(client_id)
    if old is not None and old.owner != username:
        refuse(broker, connection, CLIENT_ID_NOT_VALID, client_id, username)  # a session is its maker's
        return
    shared = broker.shared
    if shared is not None:
        if not shared.accepts:
            refuse(broker, connection, SERVER_UNAVAILABLE, client_id, username)
            return
        entry = attach_entry(broker, connection, packet)
        most = broker.settings.max_entry_size
        if will is not None and 0 < most < len(encode_attach(entry)) + ENTRY_OVERHEAD:
            refuse(broker, connection, PACKET_TOO_LARGE, client_id, username)
            return
        shared.attach(connection, entry, packet, assigned, auth_data)
        return
    if old is not None:
        take_over(broker, old)
        if not packet.clean_start and not old.ended:
            old.will = None  # back before its delay ran out [5: MQTT-3.1.3-9]
    # Ending an old session sends its will, which must not reach the new one: look again.
    if packet.clean_start and old is not None:
        end_session(broker, old)
    session = broker.sessions.get(client_id)
    present = session is not None
    if session is None:
        session = Session(client_id, username, broker.now_ms)
        broker.sessions[client_id] = session
    attach(broker, connection, session, packet)
    if not welcome(broker, connection, session, packet, present, assigned, auth_data):
        return
    resend(broker, session, connection)
    pump(broker, session)


def welcome(
    broker: "Broker",
    connection: Connection,
    session: Session,
    packet: Connect,
    present: bool,
    assigned: bool,
    auth_data: bytes,
) -> bool:
    """Send CONNACK; returns False when the client cannot be told what it has to know, and was refused for that."""
    answer = connack(broker, connection, session, packet, present, assigned, auth_data)
    if len(answer) > connection.agreed.max_packet_size:
        refuse(broker, connection, PACKET_TOO_LARGE, session.client_id, connection.username)
        return False
    if broker.shared is None:
        broker.recorder.on_attached(session, connection.agreed.version)
        if session.kept:
            broker.hold(connection)
    write(connection, answer)
    broker.effects.write_to(connection)
    return True


def attach_entry(broker: "Broker", connection: Connection, packet: Connect) -> AttachEntry:
    """Return what other nodes have to know of a client that is let in."""
    return AttachEntry(
        connection.client_id,
        connection.username,
        PROTOCOL_NAMES[packet.version],
        packet.version,
        packet.clean_start,
        asked_expiry(broker, packet),
        window_of(broker, packet),
        packet.will,
        connection.identity != "",
    )


def window_of(broker: "Broker", packet: Connect) -> int:
    """Return how many messages may be under way to a client at once."""
    properties = packet.properties
    receive_maximum = properties.receive_maximum if properties is not None else None
    most = broker.settings.max_inflight
    return receive_maximum if receive_maximum is not None and receive_maximum < most else most


def is_banned(broker: "Broker", username: str, client_id: str) -> bool:
    settings = broker.settings
    return username in settings.banned_users or client_id in settings.banned_client_ids


def check_client(broker: "Broker", username: str, client_id: str, assigned: bool) -> int:
    """Return why this user may not come in under that client id, or SUCCESS; `assigned`: the server has chosen it."""
    if is_banned(broker, username, client_id):
        return BANNED
    pattern = broker.settings.client_id_pattern
    if pattern and not assigned and not is_bound(pattern, username, client_id):
        return CLIENT_ID_NOT_VALID
    return SUCCESS


def is_bound(pattern: str, username: str, client_id: str) -> bool:
    """Return whether a client id fits the pattern, where `%u` is the user name and `*` any text.

    Who has no name fits no pattern with `%u`: else it could take the ids of those who have one.
    """
    if not username and "%u" in pattern:
        return False
    parts = pattern.split("*")
    for i in range(len(parts)):
        parts[i] = parts[i].replace("%u", username)
    if len(parts) == 1:
        return client_id == parts[0]
    first, last = parts[0], parts[len(parts) - 1]
    if len(client_id) < len(first) + len(last) or not client_id.startswith(first) or not client_id.endswith(last):
        return False
    at = len(first)
    end = len(client_id) - len(last)
    for i in range(1, len(parts) - 1):
        found = client_id.find(parts[i], at, end)
        if found < 0:
            return False
        at = found + len(parts[i])
    return True


def has_session_left(broker: "Broker", username: str, client_id: str) -> bool:
    """Return whether a session that outlives its connection may be made for this user, or is there already."""
    most = broker.settings.max_sessions_per_user
    if most == 0 or broker.kept_sessions.get(username, 0) < most:
        return True
    old = broker.sessions.get(client_id)
    return old is not None and old.counted and old.owner == username


def asked_expiry(broker: "Broker", packet: Connect) -> int:
    """Return how many seconds the session is to outlive its connection, as far as the broker grants it."""
    if packet.version == V5:
        asked = packet.properties.session_expiry if packet.properties is not None else None
        return broker.cap_session_expiry(asked) if asked is not None else 0
    return 0 if packet.clean_start else broker.cap_session_expiry(FOREVER)


def certify(broker: "Broker", session: Session, certified: bool) -> None:
    """Note whether the connection that a session is about to get showed a certificate.

    An absent client counts as one that will show it (`Broker.may_receive`), and routes were made by that: one that
    comes without may not be sent what they say.
    """
    session.certified = certified
    access = broker.access
    if not certified and session.subscriptions and access is not None and access.asks_certificate:
        broker.subscriptions.generation += 1


def on_connected(broker: "Broker", connection: Connection) -> None:
    counters = broker.counters
    counters.connects_accepted += 1
    counters.connected_now += 1
    counters.connected_most = max(counters.connected_most, counters.connected_now)
    if broker.effects.has_room_to_see():
        publisher = connection.publisher
        detail: dict[str, object] = {"protocol": publisher.protocol}
        if connection.identity:
            detail["certificate"] = True
        broker.effects.seen.append(Seen(CAME_IN, connection, connection.client_id, connection.username, detail))


def take_over(broker: "Broker", session: Session) -> None:
    """End the connection of a session for a new one of the same client id [3.1.1: MQTT-3.1.4-2] [5: MQTT-3.1.4-3]."""
    connection = session.connection
    if connection is not None:
        broker.counters.sessions_taken_over += 1
        disconnect(broker, connection, SESSION_TAKEN_OVER, "session taken over by another connection")


def attach(broker: "Broker", connection: Connection, session: Session, packet: Connect) -> None:
    """Give a session its new connection."""
    certify(broker, session, connection.identity != "")
    session.connection = connection
    session.attach(PROTOCOL_NAMES[packet.version], asked_expiry(broker, packet))
    broker.count_kept(session)
    session.window = window_of(broker, packet)
    will = packet.will
    session.will = PendingWill(will, will_delay(will)) if will is not None else None
    agree(broker, connection, session, packet)


def agree(broker: "Broker", connection: Connection, session: Session, packet: Connect) -> None:
    """Be connected, on the terms of CONNECT."""
    settings = broker.settings
    connection.state = CONNECTED
    connection.session = session
    connection.connected_at_ms = broker.now_ms
    connection.outbox.limit = settings.max_outbox_bytes
    connection.publisher = Publisher(session.client_id, connection.username, PROTOCOL_NAMES[packet.version])
    broker.timers.dead += 1  # its end, and the time this client had to connect
    keep_alive = packet.keep_alive
    if settings.keep_alive_max > 0 and (keep_alive == 0 or keep_alive > settings.keep_alive_max):
        if packet.version == V5:
            keep_alive = settings.keep_alive_max
    if keep_alive > 0:
        connection.agreed.keep_alive_ms = keep_alive * 1500  # [3.1.1: MQTT-3.1.2-24] [5: MQTT-3.1.2-22]
        broker.timers.add(broker.now_ms + connection.agreed.keep_alive_ms, Timer(KEEP_ALIVE, connection, None))
    on_connected(broker, connection)


def will_delay(will: Will) -> int:
    properties = will.properties
    delay = properties.will_delay if properties is not None else None
    return delay if delay is not None else 0


def will_of(record: WillRecord) -> Will:
    """Return the will that a record keeps."""
    properties = Properties()
    properties.forward = record.properties
    properties.will_delay = record.delay_interval_s
    if record.message_expiry_s >= 0:
        properties.message_expiry = record.message_expiry_s
    return Will(record.topic, record.payload, record.qos, record.retain, properties)


def connack(
    broker: "Broker",
    connection: Connection,
    session: Session,
    packet: Connect,
    present: bool,
    assigned: bool,
    auth_data: bytes,
) -> bytes:
    if packet.version != V5:
        # 3.1 knows no Session Present flag.
        return encode_connack(ConnAck(present and packet.version == V311, SUCCESS), packet.version)
    settings = broker.settings
    asked = packet.properties
    answer = Properties()
    asked_expiry = asked.session_expiry if asked is not None and asked.session_expiry is not None else 0
    if session.expiry_s != asked_expiry:
        answer.session_expiry = session.expiry_s
    if settings.receive_maximum < 65535:
        answer.receive_maximum = settings.receive_maximum
    if settings.max_qos < 2:
        answer.maximum_qos = settings.max_qos
    if not settings.retain_available:
        answer.retain_available = 0
    answer.maximum_packet_size = settings.max_packet_size
    if assigned:
        answer.assigned_client_id = session.client_id
    if settings.topic_alias_maximum > 0:
        answer.topic_alias_maximum = settings.topic_alias_maximum
    if connection.agreed.keep_alive_ms != packet.keep_alive * 1500:
        answer.server_keep_alive = connection.agreed.keep_alive_ms // 1500
    if asked is not None and asked.request_response_info == 1 and settings.response_information:
        answer.response_info = f"{settings.response_information}/{session.client_id}"
    if connection.auth_method:  # [5: MQTT-4.12.0-5]
        answer.auth_method = connection.auth_method
        answer.auth_data = auth_data
    data = encode_connack(ConnAck(present, SUCCESS, answer), V5)
    if connection.agreed.wants_mark:
        answer.user_properties = [(SNAPSHOT_PROPERTY, MARK)]
        with_mark = encode_connack(ConnAck(present, SUCCESS, answer), V5)
        if len(with_mark) <= connection.agreed.max_packet_size:  # [5: MQTT-3.2.2-20]
            return with_mark
    return data


# The end of a connection, and of a session.


def on_disconnect(broker: "Broker", connection: Connection, packet: Disconnect) -> None:
    session = connection.session
    if session is None:  # it gives up a login
        close(broker, connection, "client disconnected")
        return
    properties = packet.properties
    if properties is not None and properties.session_expiry is not None:
        if session.expiry_s == 0 and properties.session_expiry != 0:
            raise ProtocolError("DISCONNECT turns a session expiry of 0 into another, which it may not")
        set_expiry(broker, connection, session, broker.cap_session_expiry(properties.session_expiry))
    if packet.reason == NORMAL_DISCONNECTION:
        drop_will(broker, session)  # [3.1.1: MQTT-3.14.4-3] [5: MQTT-3.14.4-3]
    close(broker, connection, "client disconnected")


def set_expiry(broker: "Broker", connection: Connection, session: Session, expiry_s: int) -> None:
    """Change how long the session outlives the connection, which is about to end."""
    if broker.shared is None:
        session.expiry_s = expiry_s
    else:
        connection.new_expiry_s = expiry_s


def disconnect(broker: "Broker", connection: Connection, reason: int, text: str) -> None:
    """End a connection from this side; MQTT 5 clients are told why, once they have been accepted [5: MQTT-3.14.0-1]."""
    if connection.state == CLOSED:
        return
    if connection.adapter is not None and connection.state == CONNECTED:
        connection.adapter.goodbye(reason)
    elif connection.state == CONNECTED and connection.agreed.is_v5:
        write(connection, disconnect_packet(connection, reason, text))
        broker.effects.write_to(connection)
    close(broker, connection, text)


def disconnect_packet(connection: Connection, reason: int, text: str) -> bytes:
    """Return DISCONNECT, with the reason in words unless that is too large for the client [5: MQTT-3.14.2-3]."""
    properties = Properties()
    properties.reason_string = text
    if connection.reference:  # [5: 4.11]
        properties.server_reference = connection.reference
    data = encode_disconnect(Disconnect(reason, properties), connection.agreed.version)
    if len(data) > connection.agreed.max_packet_size:
        data = encode_disconnect(Disconnect(reason), connection.agreed.version)
    return data


def close(broker: "Broker", connection: Connection, text: str) -> None:
    """Leave the connection to the caller to close, once its outbox is written."""
    if connection.state == CLOSED:
        return
    was_connected = connection.state == CONNECTED
    connection.state = CLOSED
    broker.timers.dead += 1
    connection.close_reason = text
    connection.inbound.drain()
    connection.last_route = None
    broker.effects.closes.append(connection)
    broker.forget_ticket(connection)
    if connection.adapter is not None:
        connection.adapter.on_closed()
    session = connection.session
    if was_connected and session is not None and session.connection is connection:
        broker.counters.connected_now -= 1
        broker.counters.disconnects += 1
        if broker.effects.has_room_to_see():
            broker.effects.seen.append(
                Seen(DISCONNECTED, connection, connection.client_id, connection.username, {"reason": text})
            )
        if broker.shared is not None:
            leave(broker, connection, session)
        else:
            detach(broker, session)


def leave(broker: "Broker", connection: Connection, session: Session) -> None:
    """Let go of a session whose connection has ended. What becomes of it follows from the entry that says so."""
    shared = broker.shared
    assert shared is not None
    if not session.kept:
        end_all(broker, session)
        for subscription in list(session.subscriptions.values()):
            if not subscription.share_name:
                shared.interest.remove(b"/".join(subscription.levels))
                broker.subscriptions.remove(subscription)
        session.queue.clear()
        session.waiting.clear()
        session.queued_bytes = 0
        session.inflight.clear()
        session.resending.clear()
    shared.detach(connection, session)


def detach(broker: "Broker", session: Session) -> None:
    """Schedule the will and the end of a session without connection. Its snapshots rest until the client is back."""
    session.detach(broker.now_ms)
    forget_markers(session)
    if session.expiry_s == 0:
        end_session(broker, session)
        return
    broker.recorder.on_detached(session, broker.now_ms)
    if session.will is not None and session.will.delay_s == 0:
        publish_will(broker, session)
    schedule_end(broker, session)


def schedule_end(broker: "Broker", session: Session) -> None:
    """See to it that the end and the will of an absent client come when they are due."""
    shared = broker.shared
    if shared is not None:
        if session.expires_at_ms > 0:
            shared.schedule(session.expires_at_ms, session, False)
        if session.will is not None:
            shared.schedule(session.will.due_ms, session, True)
        return
    if session.expires_at_ms > 0:
        broker.timers.add(session.expires_at_ms, Timer(SESSION_EXPIRY, None, session))
    if session.will is not None:
        broker.timers.add(session.will.due_ms, Timer(WILL, None, session))


def forget_markers(session: Session) -> None:
    """Drop queued end markers, which are for the connection that asked for them. They alone have no offset."""
    for _ in range(len(session.queue)):
        delivery = session.pull()
        if delivery.message.offset != 0:
            session.push(delivery)


def end_session(broker: "Broker", session: Session) -> None:
    """Forget a session for good. A will that still waits is due now [5: MQTT-3.1.2-8]."""
    if session.ended:
        return
    session.ended = True
    broker.count_kept(session)
    broker.timers.dead += 1
    if broker.sessions.get(session.client_id) is session:
        del broker.sessions[session.client_id]
    end_all(broker, session)
    for subscription in list(session.subscriptions.values()):
        broker.subscriptions.remove(subscription)
    if broker.shared is None:
        redistribute(broker, session, None)
    session.queue.clear()
    session.waiting.clear()
    session.queued_bytes = 0
    session.inflight.clear()
    session.unreleased.clear()
    session.resending.clear()
    publish_will(broker, session)
    broker.recorder.on_ended(session)


def publish_will(broker: "Broker", session: Session) -> None:
    """Send the will, if there is one, and forget it [3.1.1: MQTT-3.1.2-10] [5: MQTT-3.1.2-10]."""
    pending = session.will
    if pending is None:
        return
    session.will = None
    will = pending.will
    topic = will.topic
    # Rights may have changed since the will was set. Nodes that share a log have their own, and must do the same.
    if (broker.access is not None and broker.shared is None) and not check_publish(
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
    broker.recorder.on_will_cleared(session)


def drop_will(broker: "Broker", session: Session) -> None:
    """Forget a will that is not to be sent."""
    if broker.shared is not None:
        if session.connection is not None:
            session.connection.drops_will = True
        return
    if session.will is not None:
        session.will = None
        broker.recorder.on_will_cleared(session)


def on_will_due(broker: "Broker", session: Session) -> None:
    pending = session.will
    if pending is not None and 0 < pending.due_ms <= broker.now_ms:
        publish_will(broker, session)


def on_session_due(broker: "Broker", session: Session) -> None:
    if not session.ended and session.connection is None and 0 < session.expires_at_ms <= broker.now_ms:
        broker.counters.sessions_expired += 1
        end_session(broker, session)
