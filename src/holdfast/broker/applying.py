"""Apply: what each kind of entry of a shared log does, on every node alike.

Nothing here asks a clock, a socket, the rights or the configuration of this node. What differs is only whether the
client of an entry, or a receiver of what follows from it, is connected to this node: then bytes are written.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from holdfast.broker import kept
from holdfast.broker.delivery import write
from holdfast.broker.entries import (
    ACK,
    ATTACH,
    CONNECTION_SIZE,
    COPY,
    DETACH,
    DROP_WILLS,
    END_SESSION,
    GROUP_DONE,
    KICK,
    MISSED,
    NODE_DOWN,
    NODE_REMOVED,
    NODE_UP,
    PUBLISH,
    RELEASE,
    SET_WILL,
    SETTINGS,
    SNAPSHOT_END,
    SNAPSHOT_SIZE,
    SUBSCRIBE,
    UNCHANGED,
    UNSUBSCRIBE,
    VERIFY,
    WILL_BY_RULE,
    WILL_DROPPED,
    AttachEntry,
    decode_ack,
    decode_attach,
    decode_copy,
    decode_detach,
    decode_group_done,
    decode_kick,
    decode_node,
    decode_node_up,
    decode_publish,
    decode_release,
    decode_set_will,
    decode_subscribe,
    decode_texts,
    entry_connection,
    entry_snapshot,
)
from holdfast.broker.lifecycle import (
    agree,
    certify,
    close,
    detach,
    disconnect,
    end_session,
    publish_will,
    refuse,
    welcome,
    will_delay,
)
from holdfast.broker.node_records import encode_node, encode_settings
from holdfast.broker.pending import (
    ACCEPTED,
    ACKNOWLEDGE,
    CALL,
    RELEASED,
    SUBSCRIBED,
    UNSUBSCRIBED,
    WELCOME,
    Pending,
)
from holdfast.broker.publishing import acknowledge, apply_publish, released, share
from holdfast.broker.session import AWAITING_ACK, Connection, Delivery, PendingWill, Session, SharedGroup, Subscription
from holdfast.broker.settings import use_shared
from holdfast.broker.subscribing import put_subscription, start, take_subscription
from holdfast.broker.topics import matches
from holdfast.protocol.mqtt.connection import CLOSED, CONNECTED
from holdfast.protocol.mqtt.packets import Will
from holdfast.protocol.mqtt.reasons import (
    CLIENT_ID_NOT_VALID,
    NO_MATCHING_SUBSCRIBERS,
    SERVER_UNAVAILABLE,
    SESSION_TAKEN_OVER,
    SUCCESS,
)

if TYPE_CHECKING:
    from holdfast.broker.shared import Shared

PINGRESP: Final = b"\xd0\x00"

GroupOf = Callable[[Subscription], SharedGroup | None]


def apply_entry(shared: "Shared", entry: bytes, node: str, pending: Pending | None) -> None:
    """Apply one entry; `pending` is what waits for it on the node that proposed it."""
    kind = entry[0]
    if pending is not None and pending.connection is not None:
        pending.connection.under_way -= 1
    apply_kind(shared, kind, entry, node, pending)
    if pending is not None and pending.connection is not None and pending.connection.pings > 0:
        answer_pings(shared, pending.connection)


def answer_pings(shared: "Shared", connection: Connection) -> None:
    """Answer PINGREQs behind what came before them, as clients expect who use them to find out that it is done."""
    if connection.under_way == 0 and connection.state == CONNECTED:
        for _ in range(connection.pings):
            write(connection, PINGRESP)
        connection.pings = 0
        shared.broker.effects.write_to(connection)


def apply_kind(shared: "Shared", kind: int, entry: bytes, node: str, pending: Pending | None) -> None:
    if kind == PUBLISH:
        on_publish(shared, entry, pending)
    elif kind == ACK:
        session = shared.connections.get(entry_connection(entry))
        if session is not None and session.kept:
            kept.on_ack(shared.broker, session, *decode_ack(entry))
    elif kind == ATTACH:
        on_attach(shared, decode_attach(entry), node, pending)
    elif kind == DETACH:
        connection_id, will, expiry_s = decode_detach(entry)
        session = shared.connections.get(connection_id)
        if session is not None:
            apply_detach(shared, session, will, expiry_s)
    elif kind == SUBSCRIBE:
        on_subscribe(shared, entry, pending)
    elif kind == UNSUBSCRIBE:
        on_unsubscribe(shared, entry, pending)
    elif kind == RELEASE:
        on_release(shared, entry, pending)
    elif kind in (COPY, SNAPSHOT_END, MISSED):
        on_snapshot(shared, kind, entry)
    elif kind == GROUP_DONE:
        on_group_done(shared, entry)
    elif kind == NODE_UP:
        on_node_up(shared, entry, node)
    elif kind == NODE_DOWN:
        on_node_down(shared, *decode_node(entry))
    elif kind == NODE_REMOVED:
        on_node_removed(shared, decode_node(entry)[0])
    elif kind == SET_WILL:
        on_set_will(shared, entry)
    elif kind == KICK:
        on_kick(shared, entry)
    elif kind == END_SESSION:
        session = shared.broker.sessions.get(entry[1:].decode())
        if session is not None and not session.attached:
            end(shared, session)
    elif kind == DROP_WILLS:
        on_drop_wills(shared, entry)
    elif kind == SETTINGS:
        on_settings(shared, entry[1:])
    elif kind == VERIFY:
        if shared.on_verify is not None:
            shared.on_verify(entry_connection(entry))
    else:  # BARRIER: it only tells how far the log has come
        settle(shared, pending, SUCCESS)


def settle(shared: "Shared", pending: Pending | None, reason: int, offset: int = 0) -> None:
    """Do what waited for an entry, now that it has come back."""
    if pending is None:
        return
    connection = pending.connection
    broker = shared.broker
    act = pending.act
    if act in (CALL, SUBSCRIBED, UNSUBSCRIBED):
        pending.reason = reason
        shared.settled.append(pending)  # what it leads to may not be taken for a part of the fold
    elif act == ACKNOWLEDGE:
        if connection is not None and connection.state == CONNECTED:
            worse = pending.reason if pending.reason != SUCCESS else reason
            acknowledge(broker, connection, pending.qos, pending.packet_id, worse)
    elif act == ACCEPTED:
        accepted = pending.accepted
        assert accepted is not None
        accepted.offset = offset
        accepted.reason = reason
    elif act == RELEASED:
        if connection is not None and connection.state == CONNECTED:
            released(broker, connection, pending.packet_id)


def go_on(shared: "Shared", pending: Pending) -> None:
    """Do what waited for an entry and is this node's own business, after the message that it came with."""
    connection = pending.connection
    if pending.act == CALL:
        then = pending.then
        assert then is not None
        then(pending.reason)
        return
    filters = pending.filters
    assert connection is not None
    assert filters is not None
    connection.parked = False
    if connection.state == CONNECTED:
        start(shared.broker, filters)
        if connection.pending is None:
            shared.read_on.append(connection)


# Publishes.


def on_publish(shared: "Shared", entry: bytes, pending: Pending | None) -> None:
    broker = shared.broker
    admitted = decode_publish(entry, shared.publishers, shared.time_ms)
    message = admitted.message
    session = shared.connections.get(admitted.connection_id)
    packet_id = admitted.packet_id
    if packet_id:
        if session is None:
            return  # its connection was replaced before: the client sends it again over the new one
        if packet_id in session.unreleased:  # [3.1.1: MQTT-4.3.3-2] [5: MQTT-4.3.3-10]
            settle(shared, pending, SUCCESS)
            return
    message.offset = broker.log.order(1)
    route = broker.find_route(message.topic_field, True)
    reason = apply_publish(broker, message, route, session, admitted.told)
    if reason == NO_MATCHING_SUBSCRIBERS and shared.interest.nodes_for(route.levels):
        reason = SUCCESS
    if packet_id and session is not None and reason < 0x80:
        session.unreleased.add(packet_id)
        broker.recorder.on_received(session, packet_id)
    settle(shared, pending, reason, message.offset)


def on_release(shared: "Shared", entry: bytes, pending: Pending | None) -> None:
    session = shared.connections.get(entry_connection(entry))
    if session is not None:
        packet_id = decode_release(entry)
        session.unreleased.discard(packet_id)
        shared.broker.recorder.on_released(session, packet_id)
    settle(shared, pending, SUCCESS)


def on_group_done(shared: "Shared", entry: bytes) -> None:
    session = shared.connections.get(entry_connection(entry))
    if session is None:
        return
    given = kept.spread_of(session).given
    for sequence in decode_group_done(entry):
        if given.pop(sequence, None) is not None:
            shared.broker.recorder.on_taken(session, sequence)


# Sessions.


def on_attach(shared: "Shared", attach: AttachEntry, node: str, pending: Pending | None) -> None:
    """Apply that a client has connected: this decides who has the client id."""
    broker = shared.broker
    connection = pending.connection if pending is not None else None
    if connection is not None:
        connection.parked = False
    old = broker.sessions.get(attach.client_id)
    if old is not None and old.owner != attach.owner:  # a session is its maker's
        if connection is not None and connection.state != CLOSED:
            if pending is not None and pending.then is not None:
                pending.then(CLIENT_ID_NOT_VALID)
            else:
                refuse(broker, connection, CLIENT_ID_NOT_VALID, attach.client_id, attach.owner)
        return
    if old is not None:
        make_way(shared, old, attach)
    session = broker.sessions.get(attach.client_id)
    present = session is not None
    if session is None:
        session = Session(attach.client_id, attach.owner, shared.time_ms)
        broker.sessions[attach.client_id] = session
    spread = kept.spread_of(session)
    spread.node = node
    certify(broker, session, attach.certified)
    session.attach(attach.protocol, attach.expiry_s)
    session.window = attach.window
    spread.window = attach.window
    will = attach.will
    session.will = PendingWill(will, will_delay(will)) if will is not None else None
    broker.count_kept(session)
    broker.recorder.on_attached(session, attach.version)
    shared.connections[spread.connection_id] = session
    if connection is not None:
        connection.connection_id = spread.connection_id
        if connection.state == CLOSED:
            session.connection = connection
            shared.detach(connection, session)  # it has gone before it came
        elif pending is not None and pending.act == WELCOME:
            packet = pending.connect
            assert packet is not None
            session.connection = connection
            agree(broker, connection, session, packet)
            if welcome(broker, connection, session, packet, present, pending.assigned, pending.auth_data):
                kept.resend(broker, session)
        elif pending is not None and pending.then is not None:
            session.connection = connection
            connection.session = session
            pending.then(1 if present else SUCCESS)
        if session.connection is not None:
            for resting in list(spread.resting.values()):
                kept.take_up(broker, session, resting)
    if session.kept:
        kept.pump(broker, session)
    if connection is not None and connection.state == CONNECTED:
        shared.read_on.append(connection)


def make_way(shared: "Shared", old: Session, attach: AttachEntry) -> None:
    """End the connection that a session has, and the session where the new client starts clean."""
    if old.attached:
        send_away(shared, old, SESSION_TAKEN_OVER, "session taken over by another connection")
        if attach.keeps_old_will:
            old.will = None
        apply_detach(shared, old, WILL_BY_RULE, UNCHANGED)
    if not old.ended:
        if attach.clean_start:
            end(shared, old)
        else:
            old.will = None  # back before its delay ran out [5: MQTT-3.1.3-9]


def send_away(shared: "Shared", session: Session, reason: int, text: str) -> None:
    """Close the connection of a session on the node that has it; what becomes of the session is decided elsewhere."""
    connection = session.connection
    if connection is not None:
        connection.connection_id = 0
        if reason == SESSION_TAKEN_OVER:
            shared.broker.counters.sessions_taken_over += 1
        disconnect(shared.broker, connection, reason, text)


def apply_detach(shared: "Shared", session: Session, will: int, expiry_s: int) -> None:
    """Apply that a client has lost its connection."""
    broker = shared.broker
    spread = kept.spread_of(session)
    shared.connections.pop(spread.connection_id, None)
    spread.connection_id = 0
    spread.node = ""
    spread.window = 0
    if expiry_s != UNCHANGED:
        session.expiry_s = expiry_s
        broker.count_kept(session)
    if will == WILL_DROPPED and session.will is not None:
        session.will = None
        broker.recorder.on_will_cleared(session)
    connection = session.connection
    if connection is not None:
        connection.connection_id = 0
        close(broker, connection, "the session goes on elsewhere")
    if session.expiry_s == 0:
        session.detach(broker.now_ms)
        end(shared, session)
    else:
        detach(broker, session)


def end(shared: "Shared", session: Session) -> None:
    """Forget a session for good, on every node; what groups had given to it goes to their other members."""
    broker = shared.broker
    if session.ended:
        return
    spread = kept.spread_of(session)
    owed = owed_by_groups(broker.subscriptions.group_of, session)
    kept.let_rest(broker, session)
    spread.resting.clear()
    spread.given.clear()
    end_session(broker, session)
    for group, delivery in owed:
        share_again(shared, group, delivery)


def share_again(shared: "Shared", group: SharedGroup, delivery: Delivery) -> None:
    broker = shared.broker
    if group.members and not delivery.message.expired(broker.now_ms):
        broker.recorder.publishing = True
        share(broker, delivery.message, group)
        broker.recorder.on_requeued(delivery.message)


def owed_by_groups(
    group_of: GroupOf, session: Session, only: Subscription | None = None
) -> list[tuple[SharedGroup, Delivery]]:
    """Return what groups have given to a session and that may go to another member, in order. QoS 2 messages that are
    under way stay lost with the session [5: MQTT-4.8.2-5].

    Which group it was follows from the topic, so that a node knows it also after a restart.
    """
    waiting: list[Delivery] = []
    if session.kept:
        if only is None:
            for delivery in session.inflight.values():
                if delivery.shared and delivery.qos == 1 and delivery.stage == AWAITING_ACK:
                    waiting.append(delivery)
        for delivery in session.queue:
            if delivery.shared:
                waiting.append(delivery)
    elif only is None:
        for delivery in kept.spread_of(session).given.values():
            if delivery.qos == 1:
                waiting.append(delivery)
    if not waiting:
        return []
    waiting.sort(key=in_order)
    shares = (
        [only]
        if only is not None
        else sorted([one for one in session.subscriptions.values() if one.share_name], key=by_filter)
    )
    owed: list[tuple[SharedGroup, Delivery]] = []
    for delivery in waiting:
        levels = delivery.message.topic.split(b"/")
        for subscription in shares:
            if matches(subscription.levels, levels):
                group = group_of(subscription)
                if group is not None:
                    owed.append((group, delivery))
                break
    return owed


def in_order(delivery: Delivery) -> int:
    return delivery.sequence


def by_filter(subscription: Subscription) -> bytes:
    return subscription.topic_filter


def on_due(shared: "Shared", session: Session, is_will: bool, at_ms: int) -> None:
    """Apply that the will or the end of an absent client is due, unless it has come back since."""
    if session.ended or session.attached:
        return
    if is_will:
        will = session.will
        if will is not None and will.due_ms == at_ms:
            publish_will(shared.broker, session)
    elif session.expires_at_ms == at_ms:
        shared.broker.counters.sessions_expired += 1
        end(shared, session)


def on_set_will(shared: "Shared", entry: bytes) -> None:
    session = shared.connections.get(entry_connection(entry))
    if session is not None:
        will: Will | None = decode_set_will(entry)
        session.will = PendingWill(will, will_delay(will)) if will is not None else None
        shared.broker.recorder.on_will(session)


def on_kick(shared: "Shared", entry: bytes) -> None:
    client_id, reason, text = decode_kick(entry)
    session = shared.broker.sessions.get(client_id)
    if session is not None and session.connection is not None:
        disconnect(shared.broker, session.connection, reason, text)


def on_drop_wills(shared: "Shared", entry: bytes) -> None:
    users = {name.decode() for name in decode_texts(entry, 1)}
    broker = shared.broker
    for session in sorted(broker.sessions.values(), key=by_record):
        if not session.attached and session.owner in users and session.will is not None:
            session.will = None
            broker.recorder.on_will_cleared(session)


def by_record(session: Session) -> int:
    return session.record_id


# Subscriptions.


def on_subscribe(shared: "Shared", entry: bytes, pending: Pending | None) -> None:
    session = shared.connections.get(entry_connection(entry))
    if session is not None:
        identifier, requests = decode_subscribe(entry)
        for request in requests:
            put_subscription(shared.broker, session, request, identifier)
    settle(shared, pending, SUCCESS)


def on_unsubscribe(shared: "Shared", entry: bytes, pending: Pending | None) -> None:
    broker = shared.broker
    session = shared.connections.get(entry_connection(entry))
    if session is not None:
        for topic_filter in decode_texts(entry, CONNECTION_SIZE):
            subscription = session.subscriptions.get(topic_filter)
            if subscription is None:
                continue
            owed: list[tuple[SharedGroup, Delivery]] = []
            if subscription.share_name:
                owed = owed_by_groups(broker.subscriptions.group_of, session, subscription)
                for _, delivery in owed:
                    session.remove_queued(delivery)
                    broker.recorder.on_done(session, delivery)
            take_subscription(broker, session, subscription)
            for group, delivery in owed:
                share_again(shared, group, delivery)
    settle(shared, pending, SUCCESS)


def on_snapshot(shared: "Shared", kind: int, entry: bytes) -> None:
    session = shared.connections.get(entry_connection(entry))
    if session is None:
        return
    resting = kept.spread_of(session).resting.get(entry_snapshot(entry))
    if resting is None:
        return
    if kind == COPY:
        kept.on_copy(shared.broker, session, resting, decode_copy(entry))
    elif kind == SNAPSHOT_END:
        kept.on_snapshot_end(shared.broker, session, resting)
    else:
        kept.on_missed(shared.broker, session, resting, entry[SNAPSHOT_SIZE:])


# Nodes.


def on_node_up(shared: "Shared", entry: bytes, name: str) -> None:
    """Apply that a node begins, as a new instance: what its last one had is over."""
    up = decode_node_up(entry)
    member = shared.member(name)
    if member.up:
        end_connections(shared, name)
    member.instance = up.instance
    member.began = shared.log.position
    member.reads = up.reads
    member.up = True
    member.address = up.address
    member.version = up.version
    shared.broker.recorder.add(encode_node(shared.log.order(1), member.record()))


def on_node_down(shared: "Shared", name: str, instance: int) -> None:
    """Apply that a node was silent for too long: its clients have lost their connections."""
    member = shared.members.get(name)
    if member is None or member.instance != instance or not member.up:
        return
    member.up = False
    end_connections(shared, name)
    shared.interest.forget(name)
    shared.broker.subscriptions.generation += 1
    shared.broker.recorder.add(encode_node(shared.log.order(1), member.record()))


def on_node_removed(shared: "Shared", name: str) -> None:
    member = shared.members.get(name)
    if member is None:
        return
    if member.up:
        on_node_down(shared, name, member.instance)
    member.version = ""
    shared.broker.recorder.add(encode_node(shared.log.order(1), member.record()))
    del shared.members[name]


def end_connections(shared: "Shared", node: str) -> None:
    sessions = [one for one in shared.connections.values() if one.spread is not None and one.spread.node == node]
    for session in sorted(sessions, key=by_record):
        send_away(shared, session, SERVER_UNAVAILABLE, "this node was cut off from the cluster")
        apply_detach(shared, session, WILL_BY_RULE, UNCHANGED)


def on_settings(shared: "Shared", settings: bytes) -> None:
    """Apply limits and policies of the retainer: the same for all, from here on in the order of the log."""
    broker = shared.broker
    shared.settings = settings
    use_shared(broker.settings, settings)
    broker.set_policies(broker.settings.policies)
    broker.recorder.add(encode_settings(broker.log.order(1), settings))
    if shared.on_settings is not None:
        shared.on_settings(settings)
