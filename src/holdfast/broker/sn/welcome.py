"""A CONNECT of MQTT-SN that is accepted: whose session it is, who has to go for it, and the link's place in it."""

from holdfast.broker.lifecycle import end_session, is_banned, take_over
from holdfast.broker.message import Publisher
from holdfast.broker.publishing import check_publish
from holdfast.broker.session import Connection, PendingWill, Session
from holdfast.broker.sn.link import Link
from holdfast.protocol.mqtt.connection import CONNECTED
from holdfast.protocol.mqtt.packets import Connect
from holdfast.protocol.mqtt.reasons import CLIENT_ID_NOT_VALID, NOT_AUTHORIZED, SUCCESS


def may_have(link: Link, packet: Connect, username: str) -> int:
    """Whether this user may connect under that client id and with that will; the reason when not."""
    broker = link.broker
    if is_banned(broker, username, packet.client_id):
        return NOT_AUTHORIZED
    will = packet.will
    if will is not None:
        field = len(will.topic).to_bytes(2, "big") + will.topic
        if broker.find_route(field).reserved:
            return NOT_AUTHORIZED
        if not check_publish(broker, username, packet.client_id, will.topic, will.retain):
            return NOT_AUTHORIZED
    old = broker.sessions.get(packet.client_id)
    if old is not None and old.owner != username:
        return CLIENT_ID_NOT_VALID  # a session belongs to the user that made it
    return SUCCESS


def take_session(
    link: Link, client_id: str, username: str, clean_start: bool, sends_will: bool
) -> tuple[Session, bool]:
    """The session of this client id, and whether there was one to resume. `sends_will`: those who leave for it do."""
    broker = link.broker
    old = broker.sessions.get(client_id)
    if old is not None:
        before = old.connection
        adapter = before.adapter if before is not None else None
        if isinstance(adapter, Link):
            # To the same address a goodbye would look like the end of what has just begun.
            adapter.silent = adapter.key == link.key
            if not sends_will and adapter.protocol == link.protocol:
                old.will = None
        take_over(broker, old)
        if not clean_start and not old.ended:
            old.will = None
    if clean_start and old is not None:
        end_session(broker, old)
    session = broker.sessions.get(client_id)
    if session is not None:
        return session, True
    session = Session(client_id, username, broker.now_ms)
    broker.sessions[client_id] = session
    return session, False


def attach(link: Link, session: Session, present: bool, username: str, expiry_s: int, packet: Connect) -> None:
    """The link is now the connection of that session. The caller writes CONNACK, then calls `start`."""
    broker = link.broker
    connection: Connection = link.connection
    connection.state = CONNECTED
    connection.session = session
    connection.client_id = session.client_id
    connection.username = username
    connection.connected_at_ms = broker.now_ms
    connection.outbox.limit = broker.settings.max_outbox_bytes
    connection.agreed.plain = False  # frames of MQTT are nothing for it
    connection.publisher = Publisher(session.client_id, username, link.protocol)
    session.connection = connection
    session.attached = True
    session.protocol = link.protocol
    session.expires_at_ms = 0
    session.expiry_s = expiry_s
    session.window = 1
    session.will = PendingWill(packet.will, 0) if packet.will is not None else None
    link.session = session
    link.client_id = session.client_id
    if present:
        link.first_id = 0x8000 + broker.log.position % 0x4000  # the table may have been lost: see ids.py
    broker.counters.connected_now += 1
    broker.counters.connected_most = max(broker.counters.connected_most, broker.counters.connected_now)
    link.gateway.bind(link)


def start(link: Link) -> None:
    """CONNACK is written: what was under way goes again, and what waits follows."""
    session = link.session
    assert session is not None
    session.resending.clear()
    session.resending.extend(session.inflight)
    link.connection.busy = False
    link.become_active()
    for snapshot in session.snapshots:
        link.broker.wake(snapshot)
