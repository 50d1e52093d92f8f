"""The broker: bytes or a tick in, effects out. It decides; it never waits, writes, logs or asks the time.

Every call that may change anything is told the time and returns `Effects`, which the caller carries out before the next
call. Inside, each change goes the same way: it is admitted (`inbound`, `lifecycle`, `subscribing`, `publishing`), the
log gives it its offset, it is applied to sessions and the retained set, and the bytes that follow from it wait in
outboxes, marked where they have to wait for the disk.
"""

from collections import deque
from typing import Final, final

from holdfast.broker.access import Access
from holdfast.broker.delivery import pump, write
from holdfast.broker.effects import Counters, Effects
from holdfast.broker.inbound import PublishRun, has_slow_receivers, receive
from holdfast.broker.lifecycle import (
    close,
    disconnect,
    drop_will,
    end_session,
    on_authenticated,
    on_authenticated_again,
    on_challenge,
    on_session_due,
    on_will_due,
    refuse,
)
from holdfast.broker.live import pass_on
from holdfast.broker.log import Log, NullLog
from holdfast.broker.message import BY_USER, Message, Publisher, topic_field
from holdfast.broker.ports import Authenticator, Peer
from holdfast.broker.publishing import check_entry_size, own_message, publish_as
from holdfast.broker.rate import LeakyBucket, UserRates
from holdfast.broker.recorder import Recorder
from holdfast.broker.retained import RetainedStore
from holdfast.broker.session import CACHED_TOPIC, Connection, Heard, Receiver, Route, Session, Snapshot, is_reserved
from holdfast.broker.settings import Policy, Settings
from holdfast.broker.shared import Shared, SharedLog, expiry_of
from holdfast.broker.snapshot import step
from holdfast.broker.subscribing import FILTERS_PER_STEP, FIRST_QUANTUM, go_on
from holdfast.broker.subscription import PendingFilters, SubscriptionTree, build_receivers
from holdfast.broker.timers import ADAPTER, CONNECT_TIMEOUT, KEEP_ALIVE, SESSION_EXPIRY, Timer, Timers
from holdfast.broker.topics import check_topic
from holdfast.errors import ProtocolError, UnsupportedProtocol, UsageError
from holdfast.protocol.mqtt.connection import AUTHENTICATING, CLOSED, CONNECTED, WAITING
from holdfast.protocol.mqtt.encode import encode_connack
from holdfast.protocol.mqtt.packets import V311, ConnAck, Connect
from holdfast.protocol.mqtt.reasons import (
    KEEP_ALIVE_TIMEOUT,
    NOT_AUTHORIZED,
    QUOTA_EXCEEDED,
    SERVER_SHUTTING_DOWN,
    SERVER_UNAVAILABLE,
    UNACCEPTABLE_PROTOCOL_311,
)
from holdfast.protocol.wire import decode_text

# Topics whose receivers are remembered. Past it the cache starts afresh.
ROUTES_KEPT: Final = 65536
LEVEL_SIZE: Final = 48  # of an object for one level, beside its text
ROUTES_BYTES: Final = 32 * 1024 * 1024  # what their topics may take
# Messages that all snapshots together may send in one call of `work`.
WORK_QUANTUM: Final = 4096
SNAPSHOT_LEAST: Final = 32
EXPIRE_QUANTUM: Final = 2000


@final
class Broker:
    def __init__(self, settings: Settings, id_prefix: str) -> None:
        self.settings = settings
        self.id_prefix: Final = id_prefix
        self.log: Log = NullLog()
        self.effects: Final = Effects()
        self.recorder = Recorder(self.log, self.effects)
        self.counters = Counters()
        self.timers = Timers()
        self.subscriptions = SubscriptionTree()
        self.retained = RetainedStore(settings)
        self.sessions: dict[str, Session] = {}
        self.kept_sessions: dict[str, int] = {}  # by user; of those that outlive their connection
        self.routes: dict[bytes, Route] = {}
        self.routes_size = 0
        self.heard: dict[bytes, Heard] = {}  # by topic field, of the topics that `listen_for` names
        self.running: deque[Snapshot] = deque()
        self.pending: deque[PendingFilters] = deque()  # packets whose filters are gone through in portions
        self.run = PublishRun()
        self.access: Access | None = None
        self.rights_generation = 1
        self.authenticator: Authenticator | None = None
        self.tickets: dict[int, Connection] = {}
        self.last_ticket = 0
        self.last_assigned = 0
        self.connect_rate: Final = LeakyBucket(settings.connect_rate, max(settings.connect_rate, 1.0))
        self.user_rates: Final = UserRates(settings.user_message_rate, settings.user_byte_rate)
        self.in_call = False  # between `begin` and `finish`
        self.filters_left = 0  # topic filters that may still be gone through in the call at hand
        self.first_left = 0  # messages that its new snapshots may send at once
        self.now_ms = 0  # of the call at hand; set by `begin` alone
        self.expiring = False
        self.met_high_water = False  # the publish at hand met a receiver that is behind
        self.shared: Shared | None = None  # the log, where other nodes write to it too
        self.elsewhere: Final = Connection(Peer(), 0)  # stands for publishers that are connected to other nodes

    def use_shared_log(self, log: SharedLog, node: str, fresh_reads: bool = True) -> Shared:
        """Be one of many nodes that write to a log."""
        self.use_log(log)
        self.shared = Shared(self, log, node, fresh_reads)
        return self.shared

    def use_log(self, log: Log) -> None:
        """Keep entries in this log. To be called before the first client comes, or what that did is not in the log."""
        self.log = log
        self.recorder = Recorder(log, self.effects)
        self.subscriptions.generation += 1

    # The frame of every call.

    def begin(self, now_ms: int) -> None:
        """Begin a call into the broker, at this time. What a call that broke off has left goes out with this one."""
        effects = self.effects
        if self.in_call:
            self.recorder.break_off()
        elif effects.records.count > 0 or effects.writes or effects.closes:
            raise UsageError("the effects of the last call into the broker were not carried out")
        self.in_call = True
        self.now_ms = now_ms
        self.filters_left = FILTERS_PER_STEP
        self.first_left = FIRST_QUANTUM

    def finish(self) -> Effects:
        """End the call; returns the effects that follow from it."""
        if self.recorder.done or self.recorder.copied:
            self.recorder.finish()
        if self.recorder.given_back and self.shared is not None:
            self.shared.give_back()
        self.in_call = False
        return self.effects

    # What comes in.

    def open(self, peer: Peer, now_ms: int, identity: str = "") -> Connection:
        """Return a connection for a peer that has just come. It has a limited time to send CONNECT."""
        connection = Connection(peer, now_ms, identity)
        self.counters.connections_opened += 1
        if self.settings.connect_timeout_ms > 0:
            self.timers.add(now_ms + self.settings.connect_timeout_ms, Timer(CONNECT_TIMEOUT, connection, None))
        return connection

    def receive(self, connection: Connection, data: bytes, now_ms: int) -> Effects:
        self.begin(now_ms)
        if connection.state != CLOSED:
            self.handle(connection, data)
        return self.finish()

    def lost(self, connection: Connection, now_ms: int) -> Effects:
        """Handle the loss of the network connection, without DISCONNECT."""
        self.begin(now_ms)
        connection.outbox.clear()
        close(self, connection, "connection lost")
        return self.finish()

    def is_backpressured(self, connection: Connection, now_ms: int) -> bool:
        """Return whether there is still reason to hold a publisher back that is being held back."""
        connection.backpressured = connection.state == CONNECTED and has_slow_receivers(connection, now_ms)
        return connection.backpressured

    def on_writable(self, connection: Connection, now_ms: int) -> Effects:
        """Go on sending, since the transport accepts bytes again."""
        self.begin(now_ms)
        connection.outbox.unblock()
        if connection.outbox.pieces:
            self.effects.write_to(connection)
        session = connection.session
        if connection.state == CONNECTED and session is not None:
            pump(self, session)
            for snapshot in session.snapshots:
                self.wake(snapshot)
            if connection.adapter is not None:
                connection.adapter.on_room()
        return self.finish()

    def on_authenticated(self, ticket: int, reason: int, username: str, now_ms: int, data: bytes = b"") -> Effects:
        """Accept or refuse a client whose login has ended; `data` is the last message of a method of MQTT 5."""
        self.begin(now_ms)
        connection = self.tickets.pop(ticket, None)
        if connection is not None:
            connection.ticket = 0
            if connection.state == AUTHENTICATING:
                connection.state = WAITING
                on_authenticated(self, connection, reason, username, data)
                if connection.state == CONNECTED:
                    self.read_on(connection)
            elif connection.state == CONNECTED:
                on_authenticated_again(self, connection, reason, username, data)
        return self.finish()

    def on_challenge(self, ticket: int, data: bytes, now_ms: int) -> Effects:
        """Send the next message of a login by a method of MQTT 5."""
        self.begin(now_ms)
        connection = self.tickets.get(ticket)
        if connection is not None and connection.state != CLOSED:
            on_challenge(self, connection, data)
            if connection.state == AUTHENTICATING:
                self.read_on(connection)
        return self.finish()

    def on_not_durable(self, connections: list[Connection], now_ms: int) -> Effects:
        """Disconnect clients whose acknowledgements cannot be sent, since what they acknowledge could not be kept."""
        self.begin(now_ms)
        for connection in connections:
            if connection.state != CLOSED:
                disconnect(self, connection, QUOTA_EXCEEDED, "the message cannot be stored now")
        return self.finish()

    def tick(self, now_ms: int) -> Effects:
        """Carry out what is due: time-outs, wills, session ends, expiry."""
        self.begin(now_ms)
        timer = self.timers.pop(now_ms)
        while timer is not None:
            self.on_timer(timer)
            timer = self.timers.pop(now_ms)
        self.timers.sweep()
        if self.shared is not None:
            self.shared.tick(now_ms)
            if self.shared.gone:
                self.end_waiting(self.shared)
        else:
            self.expire()
        return self.finish()

    def work(self, now_ms: int) -> Effects:
        """Do a bounded portion of long work: snapshots in turn, mass expiry. To be called while `has_work` says so."""
        self.begin(now_ms)
        if self.expiring:
            self.expire()
        if self.pending:
            self.go_on(self.pending.popleft())
        count = len(self.running)
        if count > 0:
            quantum = max(WORK_QUANTUM // count, SNAPSHOT_LEAST)
            rounds = min(count, WORK_QUANTUM // SNAPSHOT_LEAST)
            while rounds > 0 and self.running:
                rounds -= 1
                snapshot = self.running.popleft()
                snapshot.running = False
                step(self, snapshot, quantum)
        return self.finish()

    def has_work(self) -> bool:
        return len(self.running) > 0 or self.expiring or len(self.pending) > 0

    def shut_down(self, now_ms: int) -> Effects:
        """Disconnect all clients [5: 0x8B]; the caller flushes and closes."""
        self.begin(now_ms)
        for session in list(self.sessions.values()):
            connection = session.connection
            if connection is not None:
                disconnect(self, connection, SERVER_SHUTTING_DOWN, "the server is shutting down")
        return self.finish()

    def is_connected(self, client_id: str) -> bool:
        session = self.sessions.get(client_id)
        return session is not None and session.attached

    def kick(self, client_id: str, reason: int, text: str, now_ms: int) -> Effects:
        """Disconnect a client at an operator's request, if it is connected."""
        self.begin(now_ms)
        session = self.sessions.get(client_id)
        if session is not None and session.connection is not None:
            disconnect(self, session.connection, reason, text)
        elif session is not None and session.attached and self.shared is not None:
            self.shared.kick(client_id, reason, text)
        return self.finish()

    def send_away(self, connection: Connection, reason: str, now_ms: int) -> Effects:
        """Close the connection of a client that takes more than it may, without a word: it does not listen."""
        self.begin(now_ms)
        if connection.state != CLOSED:
            self.counters.clients_sent_away += 1
            self.effects.notes.append((connection, reason))
            connection.outbox.clear()
            close(self, connection, reason)
        return self.finish()

    def expel(self, connection: Connection, text: str, now_ms: int) -> Effects:
        """Disconnect a client that would not be let in any more. It has no last word: its will is not sent."""
        self.begin(now_ms)
        session = connection.session
        if session is not None and session.connection is connection:
            drop_will(self, session)
        if connection.state != CLOSED:
            disconnect(self, connection, NOT_AUTHORIZED, text)
        return self.finish()

    def drop_wills(self, usernames: frozenset[str], now_ms: int) -> Effects:
        """Forget the wills of absent clients of users that are no more."""
        self.begin(now_ms)
        if self.shared is not None:
            self.shared.drop_wills(usernames)
            return self.finish()
        for session in self.sessions.values():
            if session.connection is None and session.owner in usernames:
                drop_will(self, session)
        return self.finish()

    def end_session(self, client_id: str, now_ms: int) -> Effects:
        """Forget an absent client's session at an operator's request, if there is one."""
        self.begin(now_ms)
        session = self.sessions.get(client_id)
        if session is not None and not session.attached:
            if self.shared is not None:
                self.shared.end_session(client_id)
            else:
                end_session(self, session)
        return self.finish()

    def publish(
        self,
        publisher: Publisher,
        topic: bytes,
        payload: bytes,
        qos: int,
        retain: bool,
        now_ms: int,
        properties: bytes = b"",
        expiry_s: int = -1,
    ) -> Effects:
        """Publish for the server itself or its API; `Effects.accepted` says what became of it."""
        self.begin(now_ms)
        shared = self.shared
        if shared is None:
            self.effects.accepted = publish_as(self, publisher, topic, payload, qos, retain, properties, expiry_s)
        else:
            message = own_message(self, publisher, topic, payload, qos, retain, properties, expiry_s)
            check_entry_size(self, message)
            self.effects.accepted = shared.publish_as(message, expiry_of(message))
        return self.finish()

    def receive_live(self, data: bytes, now_ms: int) -> Effects:
        """Handle live messages of clients of another node."""
        self.begin(now_ms)
        pass_on(self, data)
        return self.finish()

    def send_all_away(self, reason: int, text: str, now_ms: int, reference: str = "") -> Effects:
        """Disconnect all clients of this node; `reference` is where they may go instead [5: 0x9C]."""
        self.begin(now_ms)
        for session in list(self.sessions.values()):
            connection = session.connection
            if connection is not None:
                connection.reference = reference
                disconnect(self, connection, reason, text)
        return self.finish()

    def let_go(self, now_ms: int) -> Effects:
        """Close connections that wait for what will never come back from the log."""
        self.begin(now_ms)
        if self.shared is not None:
            self.end_waiting(self.shared)
        return self.finish()

    def set_access(self, access: Access | None) -> None:
        """Put new rules in force, at once and for existing subscriptions too."""
        self.access = access
        self.rights_generation += 1
        self.subscriptions.generation += 1

    def set_policies(self, policies: list[Policy]) -> None:
        """Put new retainer rules and limits in force, for what is published from now on."""
        self.settings.policies = policies
        self.retained.recount()
        self.subscriptions.generation += 1

    def listen_for(self, topics: list[bytes]) -> None:
        """Note from now on when these topics are published to, and no others. What is known of them stays."""
        fields = [topic_field(topic) for topic in topics]
        if len(fields) == len(self.heard) and all(field in self.heard for field in fields):
            return
        known = self.heard
        self.heard = {}
        for field in fields:
            heard = known.get(field)
            if heard is None:
                heard = Heard()
                if field in self.routes:  # it has been published to; that it was just now is the best guess
                    heard.at_ms = self.now_ms
            self.heard[field] = heard
        self.subscriptions.generation += 1

    # What the parts ask of each other.

    def handle(self, connection: Connection, data: bytes) -> None:
        """Handle everything that one read of a connection brought."""
        counters = self.counters
        received = counters.messages_received
        before = received[0] + received[1] + received[2]
        try:
            receive(self, connection, data)
        except ProtocolError as error:
            self.fail(connection, error)
        version = connection.agreed.version & 7
        counters.received_by_version[version] += received[0] + received[1] + received[2] - before
        counters.bytes_received_by_version[version] += len(data)

    def go_on(self, pending: PendingFilters) -> None:
        """Do the next portion of a packet with many filters, and then what came after it."""
        connection = pending.connection
        if connection.state != CONNECTED:
            return
        if go_on(self, pending):
            connection.pending = None
            self.read_on(connection)
        else:
            self.pending.append(pending)

    def end_waiting(self, shared: Shared) -> None:
        gone = shared.gone
        shared.gone = []
        for pending in gone:
            connection = pending.connection
            if connection is not None and connection.state != CLOSED:
                disconnect(self, connection, SERVER_UNAVAILABLE, "this node was cut off from the cluster")
            if pending.then is not None:
                pending.then(SERVER_UNAVAILABLE)
            elif pending.accepted is not None:
                pending.accepted.reason = SERVER_UNAVAILABLE

    def read_on(self, connection: Connection) -> None:
        """Handle what came while the client was being authenticated, or its last packet was gone through."""
        connection.inbound.needed = 0
        if connection.inbound.size > 0:
            self.handle(connection, connection.inbound.drain())

    def fail(self, connection: Connection, error: ProtocolError) -> None:
        """Answer a breach of the protocol as the version can, close, and leave one line of diagnostics."""
        self.counters.protocol_errors += 1
        text = str(error)
        if connection.state == WAITING:
            if isinstance(error, UnsupportedProtocol):
                self.refuse_protocol(connection, error)
            elif connection.agreed.is_v5:
                refuse(self, connection, error.reason)
        elif connection.state == AUTHENTICATING and connection.agreed.is_v5:
            refuse(self, connection, error.reason)
        self.effects.notes.append((connection, f"protocol error: {text}"))
        disconnect(self, connection, error.reason, text)

    def refuse_protocol(self, connection: Connection, error: UnsupportedProtocol) -> None:
        if error.known_name:  # [3.1.1: MQTT-3.1.2-2]; a client of a later version knows this answer too
            write(connection, encode_connack(ConnAck(False, UNACCEPTABLE_PROTOCOL_311), V311))
            self.effects.write_to(connection)

    def count_sent(self, connection: Connection, qos: int, size: int) -> None:
        """Count a message with a payload of `size` bytes that has been put into the outbox."""
        counters = self.counters
        counters.messages_sent[qos] += 1
        counters.sent_by_version[connection.agreed.version & 7] += 1
        counters.payload_sent += size
        if not connection.outbox.listed:
            self.effects.write_to(connection)

    def hold(self, connection: Connection) -> None:
        """What this connection is sent in this call acknowledges its entries, so it leaves when they are kept."""
        if self.log.waits:
            connection.outbox.waits = True
            self.effects.waits = True

    def wake(self, snapshot: Snapshot) -> None:
        if not snapshot.running and not snapshot.ended:
            snapshot.running = True
            self.running.append(snapshot)

    def may_receive(self, session: Session, topic_field: bytes) -> bool:
        access = self.access
        if access is None:
            return True
        # An absent client is asked for its certificate again before it is sent what waits for it.
        certified = session.certified or session.connection is None
        return access.may_receive(session.owner, session.client_id, topic_field[2:].split(b"/"), certified)

    def may_show(self, session: Session, message: Message) -> bool:
        """Return whether a retained message may be handed to a client, and its publisher might still put it there."""
        access = self.access
        if access is None or not self.may_receive(session, message.topic_field):
            return access is None
        return self.may_stay(message)

    def may_stay(self, message: Message) -> bool:
        """Return whether the publisher of a retained message might retain it today, by the rules of today."""
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

    def new_client_id(self) -> str:
        while True:
            self.last_assigned += 1
            client_id = f"{self.id_prefix}{self.last_assigned}"
            if client_id not in self.sessions:
                return client_id

    def name_unasked(self, connection: Connection, packet: Connect) -> str | None:
        """Return the name under which a client is let in at once; None when it has to prove first who it is."""
        authenticator = self.authenticator
        if authenticator is None:
            return packet.username or ""
        return authenticator.name_unasked(packet.username, packet.password, connection.peer)

    def count_kept(self, session: Session) -> None:
        """Keep count of the sessions that outlive their connection, by user."""
        kept = session.expiry_s > 0 and not session.ended
        if kept != session.counted:
            session.counted = kept
            count = self.kept_sessions.get(session.owner, 0) + (1 if kept else -1)
            if count > 0:
                self.kept_sessions[session.owner] = count
            else:
                self.kept_sessions.pop(session.owner, None)

    def begin_authentication(self, connection: Connection, packet: Connect) -> None:
        authenticator = self.authenticator
        assert authenticator is not None
        ticket = self.issue_ticket(connection)
        authenticator.begin(ticket, packet.client_id, packet.username, packet.password, connection.peer)

    def exchange_authentication(self, connection: Connection, data: bytes, first: bool) -> None:
        authenticator = self.authenticator
        assert authenticator is not None
        ticket = self.issue_ticket(connection) if first else connection.ticket
        authenticator.exchange(ticket, data, first, connection.peer)

    def issue_ticket(self, connection: Connection) -> int:
        self.last_ticket += 1
        connection.ticket = self.last_ticket
        self.tickets[self.last_ticket] = connection
        return self.last_ticket

    def forget_ticket(self, connection: Connection) -> None:
        if connection.ticket:
            self.tickets.pop(connection.ticket, None)

    def route_of(self, connection: Connection, field: bytes) -> Route:
        """Return the route of a topic that a client publishes to; raises when it may not be published to at all."""
        route = self.find_route(field)
        connection.last_topic = field
        connection.last_route = route
        return route

    def find_route(self, field: bytes, admitted: bool = False) -> Route:
        """Return where messages of a topic go; raises when it is no topic, unless it was `admitted` elsewhere."""
        generation = self.subscriptions.generation
        route = self.routes.get(field)
        if route is not None and route.generation == generation:
            return route
        topic = field[2:]
        known = route is not None
        if not known:
            if not admitted:
                decode_text(topic)
                check_topic(topic, self.settings.max_topic_levels)
            if len(self.routes) >= ROUTES_KEPT or self.routes_size >= ROUTES_BYTES:
                self.routes.clear()
                self.routes_size = 0
        levels = topic.split(b"/")
        policies = self.retained.policies_for(levels) if self.settings.policies else None
        route = Route(field, levels, generation, policies)
        if self.subscriptions.count > 0:
            found = self.subscriptions.match(levels)
            if found.subscriptions:
                route.receivers = build_receivers(found)
                if self.access is not None:
                    # Where nodes share a log, they all give to kept sessions; the node that sends asks for the right.
                    route.receivers = [
                        r
                        for r in route.receivers
                        if (self.shared is not None and r.session.kept) or self.may_receive(r.session, field)
                    ]
                if self.shared is not None:
                    route.receivers.sort(key=creation)
                for receiver in route.receivers:
                    if receiver.identifiers is not None or receiver.no_local:
                        route.plain = False
                    if receiver.session.kept:
                        route.persistent = True
            if found.groups:
                route.groups = found.groups
                route.plain = False
                route.persistent = True
        if not route.reserved and self.log.history_filters:
            route.recorded = self.log.records_history(levels)
            route.recorded_live = route.recorded and self.log.records_live
        if self.heard:
            route.heard = self.heard.get(field)
            if route.heard is not None:
                route.plain = False
        if self.shared is not None and not route.reserved:
            route.nodes = self.shared.interest.nodes_for(levels)
            if route.persistent or route.recorded_live:
                route.plain = False  # it is an entry
        if (route.receivers or route.groups or route.nodes) and len(field) <= CACHED_TOPIC:
            if not known:
                self.routes_size += route_size(field, levels)
            self.routes[field] = route  # topics without receivers are many, and quickly worked out again
        elif known:
            del self.routes[field]
            self.routes_size -= route_size(field, levels)
        return route

    def on_timer(self, timer: Timer) -> None:
        connection = timer.connection
        if timer.kind == KEEP_ALIVE:
            assert connection is not None
            if connection.state == CONNECTED:
                due_ms = connection.last_seen_ms + connection.agreed.keep_alive_ms
                if due_ms <= self.now_ms:
                    disconnect(self, connection, KEEP_ALIVE_TIMEOUT, "keep alive timeout")
                else:
                    self.timers.add(due_ms, timer)
        elif timer.kind == ADAPTER:
            assert connection is not None
            if connection.state == CONNECTED and connection.adapter is not None:
                connection.adapter.on_due()
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
        if self.retained.expire(self.now_ms, self.log.position + 1, EXPIRE_QUANTUM) > 0:
            self.log.order(1)
            self.expiring = True
        else:
            self.expiring = False


def creation(receiver: Receiver) -> int:
    """Return what the log knows a receiver's session by: an order that all nodes find."""
    return receiver.session.record_id


def route_size(field: bytes, levels: list[bytes]) -> int:
    """Return what the topic of a kept route takes: as the key, in the route, and level by level."""
    return 3 * len(field) + LEVEL_SIZE * len(levels)
