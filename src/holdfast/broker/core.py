"""The broker: bytes or a tick in, effects out. It decides; it never waits, writes, logs or asks the time.

The caller gives it the time with every call and carries out `effects` afterwards: write the outboxes of `touched`,
close `closing`, and call `work` again while `has_work` says so.
"""

from collections import deque
from typing import Final, final

from holdfast.broker import snapshot as snapshots
from holdfast.broker.access import Access
from holdfast.broker.connection import Connection
from holdfast.broker.counters import Counters
from holdfast.broker.delivery import pump
from holdfast.broker.effects import Effects
from holdfast.broker.handshake import on_authenticated, on_authenticated_again, on_challenge, refuse
from holdfast.broker.inbound import Run, is_crowding, receive
from holdfast.broker.lifecycle import close, disconnect, end_session, on_session_due, on_will_due
from holdfast.broker.log import Log
from holdfast.broker.message import BY_USER, Message, Publisher
from holdfast.broker.outbound import write
from holdfast.broker.policy import Policy
from holdfast.broker.ports import Authenticator, Peer
from holdfast.broker.publishing import Accepted, publish_as
from holdfast.broker.retained import RetainedStore
from holdfast.broker.route import Route, build_receivers, is_reserved
from holdfast.broker.session import Session
from holdfast.broker.settings import Settings
from holdfast.broker.snapshot import Snapshot
from holdfast.broker.subscription import SubscriptionTree
from holdfast.broker.timers import CARRIER, CONNECT_TIMEOUT, KEEP_ALIVE, SESSION_EXPIRY, Timer, Timers
from holdfast.broker.topics import check_topic
from holdfast.errors import ProtocolError, UnsupportedProtocol
from holdfast.protocol.mqtt.connection import AUTHENTICATING, CLOSED, CONNECTED, WAITING
from holdfast.protocol.mqtt.encode import encode_connack
from holdfast.protocol.mqtt.packets import V311, ConnAck, Connect
from holdfast.protocol.mqtt.reasons import KEEP_ALIVE_TIMEOUT, SERVER_SHUTTING_DOWN, UNACCEPTABLE_PROTOCOL_311
from holdfast.protocol.wire import decode_text

# Topics whose receivers are remembered. Past it the cache starts afresh.
ROUTES_KEPT: Final = 65536
# Messages that all snapshots together may send in one call of `work`.
WORK_QUANTUM: Final = 4096
SNAPSHOT_LEAST: Final = 32
EXPIRE_QUANTUM: Final = 2000


@final
class Broker:
    def __init__(self, settings: Settings, id_prefix: str) -> None:
        self.settings = settings
        self.id_prefix: Final = id_prefix
        self.effects = Effects()
        self.counters = Counters()
        self.timers = Timers()
        self.subscriptions = SubscriptionTree()
        self.retained = RetainedStore(settings)
        self.sessions: dict[str, Session] = {}
        self.routes: dict[bytes, Route] = {}
        self.running: deque[Snapshot] = deque()
        self.run = Run()
        self.access: Access | None = None
        self.rights_generation = 1
        self.authenticator: Authenticator | None = None
        self.log: Log | None = None
        self.tickets: dict[int, Connection] = {}
        self.last_ticket = 0
        self.last_assigned = 0
        self.connects_owed = 0.0
        self.connects_since_ms = 0
        self.offset = 0
        self.now_ms = 0
        self.expiring = False
        self.congested = False  # the publish at hand met a receiver that is behind

    # What comes in.

    def open(self, peer: Peer, now_ms: int, identity: str = "") -> Connection:
        self.now_ms = now_ms
        connection = Connection(peer, now_ms, identity)
        self.counters.connections_opened += 1
        if self.settings.connect_timeout_ms > 0:
            self.timers.add(now_ms + self.settings.connect_timeout_ms, Timer(CONNECT_TIMEOUT, connection, None))
        return connection

    def receive(self, connection: Connection, data: bytes, now_ms: int) -> None:
        self.now_ms = now_ms
        if connection.state == CLOSED:
            return
        counters = self.counters
        received = counters.messages_received
        before = received[0] + received[1] + received[2]
        try:
            receive(self, connection, data)
        except ProtocolError as error:
            self.fail(connection, error)
        version = connection.version & 7
        counters.received_by_version[version] += received[0] + received[1] + received[2] - before
        counters.bytes_received_by_version[version] += len(data)

    def lost(self, connection: Connection, now_ms: int) -> None:
        """The network connection is gone without DISCONNECT."""
        self.now_ms = now_ms
        close(self, connection, "connection lost")

    def on_blocked(self, connection: Connection, now_ms: int) -> None:
        """The transport is full."""
        connection.blocked = True
        connection.blocked_since_ms = now_ms

    def is_crowding(self, connection: Connection, now_ms: int) -> bool:
        """Asked while a publisher is being held back: is there still reason to?"""
        self.now_ms = now_ms
        connection.crowding = connection.state == CONNECTED and is_crowding(self, connection)
        return connection.crowding

    def on_writable(self, connection: Connection, now_ms: int) -> None:
        """The transport takes bytes again."""
        self.now_ms = now_ms
        connection.blocked = False
        if connection.outbox:
            self.touch(connection)
        session = connection.session
        if connection.state == CONNECTED and session is not None:
            pump(self, session)
            for snapshot in session.snapshots:
                self.wake(snapshot)
            if connection.carrier is not None:
                connection.carrier.on_room()

    def on_authenticated(self, ticket: int, reason: int, username: str, now_ms: int, data: bytes = b"") -> None:
        """A login has succeeded or failed; `data` is the last word of a method of MQTT 5."""
        self.now_ms = now_ms
        connection = self.tickets.pop(ticket, None)
        if connection is None:
            return
        connection.ticket = 0
        if connection.state == AUTHENTICATING:
            connection.state = WAITING
            on_authenticated(self, connection, reason, username, data)
            if connection.state == CONNECTED:
                self.read_on(connection)
        elif connection.state == CONNECTED:
            on_authenticated_again(self, connection, reason, username, data)

    def on_challenge(self, ticket: int, data: bytes, now_ms: int) -> None:
        """A login by a method of MQTT 5 goes on."""
        self.now_ms = now_ms
        connection = self.tickets.get(ticket)
        if connection is not None and connection.state != CLOSED:
            on_challenge(self, connection, data)
            if connection.state == AUTHENTICATING:
                self.read_on(connection)

    def read_on(self, connection: Connection) -> None:
        """Look at what came while the client was being made out."""
        connection.needed = 0
        if connection.partial_size > 0:
            data = b"".join(connection.partial)
            connection.partial.clear()
            connection.partial_size = 0
            self.receive(connection, data, self.now_ms)

    def tick(self, now_ms: int) -> None:
        """Carry out what is due: time-outs, wills, session ends, expiry."""
        self.now_ms = now_ms
        timer = self.timers.take(now_ms)
        while timer is not None:
            self.on_timer(timer)
            timer = self.timers.take(now_ms)
        self.timers.sweep()
        self.expire()

    def work(self, now_ms: int) -> None:
        """A bounded portion of long work: snapshots in turn, mass expiry."""
        self.now_ms = now_ms
        if self.expiring:
            self.expire()
        count = len(self.running)
        if count == 0:
            return
        quantum = max(WORK_QUANTUM // count, SNAPSHOT_LEAST)
        rounds = min(count, WORK_QUANTUM // SNAPSHOT_LEAST)
        while rounds > 0 and self.running:
            rounds -= 1
            snapshot = self.running.popleft()
            snapshot.running = False
            self.step(snapshot, quantum)

    def has_work(self) -> bool:
        return len(self.running) > 0 or self.expiring

    def shut_down(self, now_ms: int) -> None:
        """Say goodbye to everyone [5: 0x8B]; the caller flushes and closes."""
        self.now_ms = now_ms
        for session in list(self.sessions.values()):
            connection = session.connection
            if connection is not None:
                disconnect(self, connection, SERVER_SHUTTING_DOWN, "the server is shutting down")

    def kick(self, client_id: str, reason: int, text: str, now_ms: int) -> bool:
        """Disconnect a client by an operator's wish."""
        self.now_ms = now_ms
        session = self.sessions.get(client_id)
        if session is None or session.connection is None:
            return False
        disconnect(self, session.connection, reason, text)
        return True

    def publish(
        self, publisher: Publisher, topic: bytes, payload: bytes, qos: int, retain: bool, now_ms: int
    ) -> Accepted:
        """A publish by the server itself or its API."""
        self.now_ms = now_ms
        return publish_as(self, publisher, topic, payload, qos, retain)

    def set_access(self, access: Access | None) -> None:
        """New rules, at once and for existing subscriptions too."""
        self.access = access
        self.rights_generation += 1
        self.subscriptions.generation += 1

    def set_policies(self, policies: list[Policy]) -> None:
        """New retainer rules and limits, for what is published from now on."""
        self.settings.policies = policies
        self.retained.settle()
        self.subscriptions.generation += 1

    # What the parts ask of each other.

    def fail(self, connection: Connection, error: ProtocolError) -> None:
        """The peer broke the protocol: answer as its version can, close, and leave one line of diagnostics."""
        self.counters.protocol_errors += 1
        text = str(error)
        if connection.state == WAITING:
            if isinstance(error, UnsupportedProtocol):
                self.refuse_protocol(connection, error)
            elif connection.is_v5:
                refuse(self, connection, error.reason)
        elif connection.state == AUTHENTICATING and connection.is_v5:
            refuse(self, connection, error.reason)
        self.effects.notes.append((connection, f"protocol error: {text}"))
        disconnect(self, connection, error.reason, text)

    def refuse_protocol(self, connection: Connection, error: UnsupportedProtocol) -> None:
        if error.known_name:  # [3.1.1: MQTT-3.1.2-2]; whoever speaks a later version knows this answer too
            write(connection, encode_connack(ConnAck(False, UNACCEPTABLE_PROTOCOL_311), V311))
            self.touch(connection)

    def touch(self, connection: Connection) -> None:
        """This connection has something in its outbox."""
        if not connection.touched:
            connection.touched = True
            self.effects.touched.append(connection)

    def count_sent(self, connection: Connection, qos: int, size: int) -> None:
        self.counters.messages_sent[qos] += 1
        self.counters.sent_by_version[connection.version & 7] += 1
        self.counters.payload_sent += size
        if not connection.touched:
            connection.touched = True
            self.effects.touched.append(connection)

    def guard(self, session: Session) -> None:
        if self.log is not None and session.connection is not None:
            self.log.guard(session.connection)

    def next_offset(self) -> int:
        self.offset += 1
        return self.offset

    def wake(self, snapshot: Snapshot) -> None:
        if not snapshot.running and not snapshot.ended:
            snapshot.running = True
            self.running.append(snapshot)

    def step(self, snapshot: Snapshot, quantum: int) -> None:
        if snapshots.advance(self, snapshot, quantum):
            self.wake(snapshot)

    def before_live(self, session: Session, message: Message) -> None:
        snapshots.before_live(self, session, message)

    def missed_live(self, session: Session, message: Message) -> None:
        snapshots.missed_live(self, session, message)

    def may_receive(self, session: Session, topic_field: bytes) -> bool:
        access = self.access
        if access is None:
            return True
        # An absent client is asked for its certificate again before it is sent what waits for it.
        certified = session.certified or session.connection is None
        return access.may_receive(session.owner, session.client_id, topic_field[2:].split(b"/"), certified)

    def may_show(self, session: Session, message: Message) -> bool:
        """Whether a retained message may be handed to a client, and whether its publisher might still put it there."""
        access = self.access
        if access is None or not self.may_receive(session, message.topic_field):
            return access is None
        return self.may_stay(message)

    def may_stay(self, message: Message) -> bool:
        """Whether who put a retained message there might do so today. What was asked of it then is asked again."""
        access = self.access
        if access is None or not access.check_source or is_reserved(message.topic):
            return True
        publisher = message.publisher
        client_id = publisher.client_id
        if publisher.protocol == "api":
            if not client_id.startswith(BY_USER):
                return True  # an API key or an administrator, of whom no right was asked
            client_id = ""
        return access.may_keep(publisher.username, client_id, message.topic.split(b"/"))

    def cap_session_expiry(self, seconds: int) -> int:
        most = self.settings.session_expiry_max
        return most if 0 < most < seconds else seconds

    def connect_in_rate(self) -> bool:
        """Whether one more CONNECT fits into the rate, with a second's worth of burst."""
        rate = self.settings.connect_rate
        elapsed_s = (self.now_ms - self.connects_since_ms) / 1000
        self.connects_since_ms = self.now_ms
        self.connects_owed = max(0.0, self.connects_owed - elapsed_s * rate)
        if self.connects_owed + 1 > max(rate, 1.0):
            return False
        self.connects_owed += 1
        return True

    def new_client_id(self) -> str:
        while True:
            self.last_assigned += 1
            client_id = f"{self.id_prefix}{self.last_assigned}"
            if client_id not in self.sessions:
                return client_id

    def begin_authentication(self, connection: Connection, packet: Connect) -> None:
        authenticator = self.authenticator
        assert authenticator is not None
        ticket = self.issue_ticket(connection)
        authenticator.begin(ticket, packet.client_id, packet.username, packet.password, connection.peer)

    def take_authentication(self, connection: Connection, data: bytes, first: bool) -> None:
        authenticator = self.authenticator
        assert authenticator is not None
        ticket = self.issue_ticket(connection) if first else connection.ticket
        authenticator.take(ticket, data, first, connection.peer)

    def issue_ticket(self, connection: Connection) -> int:
        self.last_ticket += 1
        connection.ticket = self.last_ticket
        self.tickets[self.last_ticket] = connection
        return self.last_ticket

    def forget_ticket(self, connection: Connection) -> None:
        if connection.ticket:
            self.tickets.pop(connection.ticket, None)

    def route_of(self, connection: Connection, field: bytes) -> Route:
        """The route of a topic that a client publishes to; raises when it may not be published to at all."""
        route = self.find_route(field)
        connection.last_topic = field
        connection.last_route = route
        return route

    def find_route(self, field: bytes) -> Route:
        generation = self.subscriptions.generation
        route = self.routes.get(field)
        if route is not None and route.generation == generation:
            return route
        topic = field[2:]
        known = route is not None
        if not known:
            decode_text(topic)
            check_topic(topic, self.settings.max_topic_levels)
            if len(self.routes) >= ROUTES_KEPT:
                self.routes.clear()
        levels = topic.split(b"/")
        policies = self.retained.policies_for(levels) if self.settings.policies else None
        route = Route(field, levels, generation, policies)
        if self.subscriptions.count > 0:
            found = self.subscriptions.match(levels)
            if found.subscriptions:
                route.receivers = build_receivers(found)
                if self.access is not None:
                    route.receivers = [r for r in route.receivers if self.may_receive(r.session, field)]
                for receiver in route.receivers:
                    if receiver.identifiers is not None or receiver.no_local:
                        route.plain = False
                    if receiver.session.record_id:
                        route.persistent = True
            if found.groups:
                route.groups = found.groups
                route.plain = False
                route.persistent = True
        if self.log is not None and not route.reserved:
            route.recorded = self.log.records_history(levels)
        if route.receivers or route.groups:
            self.routes[field] = route  # topics without receivers are many, and quickly worked out again
        elif known:
            del self.routes[field]
        return route

    def on_timer(self, timer: Timer) -> None:
        connection = timer.connection
        if timer.kind == KEEP_ALIVE:
            assert connection is not None
            if connection.state == CONNECTED:
                due_ms = connection.last_seen_ms + connection.keep_alive_ms
                if due_ms <= self.now_ms:
                    disconnect(self, connection, KEEP_ALIVE_TIMEOUT, "keep alive timeout")
                else:
                    self.timers.add(due_ms, timer)
        elif timer.kind == CARRIER:
            assert connection is not None
            if connection.state == CONNECTED and connection.carrier is not None:
                connection.carrier.on_due()
        elif timer.kind == CONNECT_TIMEOUT:
            assert connection is not None
            if connection.state == WAITING or connection.state == AUTHENTICATING:
                self.effects.notes.append((connection, "no CONNECT in time"))
                close(self, connection, "no CONNECT in time")
        else:
            session = timer.session
            assert session is not None
            if timer.kind == SESSION_EXPIRY:
                on_session_due(self, session)
            else:
                on_will_due(self, session)

    def expire(self) -> None:
        """Remove expired retained messages, a portion at a time. The set changes, so its version does too."""
        if self.retained.expire(self.now_ms, self.offset + 1, EXPIRE_QUANTUM) > 0:
            self.offset += 1
            self.expiring = True
        else:
            self.expiring = False

    def end_session(self, client_id: str, now_ms: int) -> bool:
        """Forget an absent client's session by an operator's wish."""
        self.now_ms = now_ms
        session = self.sessions.get(client_id)
        if session is None or session.connection is not None:
            return False
        end_session(self, session)
        return True
