"""A virtual connection: one client of MQTT-SN at one address, from its CONNECT to its end.

What both versions of the protocol have in common is here; each fills in its own packets and rules.
"""

from typing import TYPE_CHECKING, Final, final

from holdfast.broker.entries import AttachEntry
from holdfast.broker.lifecycle import (
    close,
    disconnect,
    drop_will,
    end_session,
    on_refused,
    take_over,
    validate_connect,
)
from holdfast.broker.pending import Then
from holdfast.broker.ports import Peer
from holdfast.broker.rate import LeakyBucket
from holdfast.broker.session import Connection, Session
from holdfast.broker.sn.admission import attach, be_connected, check_connect
from holdfast.broker.sn.proof import AddressProof
from holdfast.broker.sn.sender import ACTIVE, GONE, SnSender
from holdfast.broker.subscribing import check_filter, on_subscribe_denied, send_first, subscribe, unsubscribe
from holdfast.broker.subscription import PendingFilters
from holdfast.errors import ProtocolError
from holdfast.protocol.mqtt.connection import AUTHENTICATING, CLOSED
from holdfast.protocol.mqtt.packets import Connect, SubscriptionRequest, Will
from holdfast.protocol.mqtt.reasons import NOT_AUTHORIZED, SERVER_UNAVAILABLE, SUCCESS, UNSPECIFIED_ERROR
from holdfast.protocol.sn.frame import Envelope

if TYPE_CHECKING:
    from holdfast.broker.shared import Shared
    from holdfast.broker.sn.gateway import Gateway

# The most that fits into a datagram over IPv4, less the room that a forwarder may need.
MAX_DATAGRAM: Final = 65_507 - 259
# A CONNECT that is the same again so soon is the network's doing.
DUPLICATE_CONNECT_MS: Final = 2_000

# The requests whose answers are cached, for how long, and how many of them.
SUBSCRIBED: Final = 1
UNSUBSCRIBED: Final = 2
REGISTERED: Final = 3
CACHED_MS: Final = 60_000
MAX_CACHED: Final = 4

# Stands in for the core's connection once it has ended, so that the two do not keep each other in memory.
NOWHERE: Final = Connection(Peer(), 0)
NOWHERE.state = CLOSED


@final
class CachedAnswer:
    def __init__(self, kind: int, request: bytes, answer: bytes, at_ms: int) -> None:
        self.kind: Final = kind
        self.request: Final = request
        self.answer: Final = answer
        self.at_ms: Final = at_ms


@final
class DuplicateCache:
    """The latest requests of one client, each with the answer it got.

    The network doubles datagrams and loses answers, so a client sends the same again. What was carried out is answered
    again and not carried out again: a SUBSCRIBE whose SUBACK got lost must not bring every retained message twice.
    """

    def __init__(self) -> None:
        self.answers: list[CachedAnswer] = []

    def find(self, request: bytes, now_ms: int) -> bytes:
        """Return what this very request was answered with, or nothing when it is new."""
        for cached in self.answers:
            if cached.request == request and now_ms - cached.at_ms <= CACHED_MS:
                return cached.answer
        return b""

    def add(self, kind: int, request: bytes, answer: bytes, now_ms: int) -> None:
        """Remember an answer. After a SUBSCRIBE, the same UNSUBSCRIBE as before is a new request, and the reverse."""
        if kind != REGISTERED:
            self.answers = [a for a in self.answers if a.kind == kind or a.kind == REGISTERED]
        if len(self.answers) >= MAX_CACHED:
            self.answers.pop(0)
        self.answers.append(CachedAnswer(kind, request, answer, now_ms))

    def clear(self) -> None:
        self.answers.clear()


class SnConnection(SnSender):
    protocol = ""
    version = 0  # as the counters and the log know it
    takeover_publishes_will = False  # whether the will is due of a connection that a new one of the client replaces

    def __init__(self, gateway: "Gateway", key: object, address: object, host: str, envelope: Envelope | None) -> None:
        self.gateway: Final = gateway
        self.peer: Final = gateway.transport.open(address, envelope)
        broker = gateway.broker
        super().__init__(broker, gateway.settings, broker.open(self.peer, broker.now_ms), AddressProof(envelope))
        self.connection.agreed.version = self.version
        self.connection.adapter = self
        self.peer.attach(self.connection)
        self.key = key
        self.address = address
        self.host = host
        self.envelope = envelope
        self.client_id = ""
        self.silent = False  # ends without a word, because the same address goes on as another connection
        self.connect_datagram = b""
        self.connack = b""
        self.accepted: Connect | None = None  # CONNECT, since it was let in
        self.under_way: dict[bytes, int] = {}  # requests that wait for the log, and how often each came
        self.heard = False  # anything since CONNACK
        self.answered: Final = DuplicateCache()
        rate = gateway.settings.message_rate
        self.publish_rate: Final = LeakyBucket(rate, max(rate, 1.0)) if rate > 0 else None

    # What the versions fill in.

    def receive(self, data: bytes) -> None:
        """Handle one packet from the client."""
        raise NotImplementedError

    def fail(self, error: ProtocolError) -> None:
        """Answer a packet that cannot be accepted, as far as the version has an answer."""
        raise NotImplementedError

    def requested_connect(self) -> Connect:
        """Return CONNECT as MQTT has it, before it is known who sends it; raises ProtocolError if it is not valid."""
        raise NotImplementedError

    def accepted_connect(self) -> Connect:
        """Return CONNECT with the client id and the will that it comes to, once it is known who sends it."""
        raise NotImplementedError

    def granted_expiry(self) -> int:
        """Return for how many seconds the session outlives the connection."""
        raise NotImplementedError

    def will_of(self, packet: Connect, known: Session | None) -> Will | None:
        """Return the will of the connection, which the session may have kept from the last one."""
        return packet.will

    def agree(self, session: Session, packet: Connect, present: bool) -> None:
        """Set what depends on the version: the keep alive, what is kept beside the session, and the CONNACK to send."""
        raise NotImplementedError

    def asks_for(self) -> tuple[str, bool]:
        """Return the client id in CONNECT, and whether the session is to outlive the connection."""
        raise NotImplementedError

    def refusal_packet(self, reason: int) -> bytes:
        """Return CONNACK with the reason, as far as the version has one for it."""
        raise NotImplementedError

    def goodbye_packet(self, reason: int) -> bytes:
        raise NotImplementedError

    # CONNECT.

    def authenticate(self) -> None:
        """Check CONNECT and ask who sends it, or accept it at once where nobody has to log in."""
        broker = self.broker
        try:
            packet = self.requested_connect()
            reason = self.validate(packet)
        except ProtocolError as error:
            self.refuse(error.reason)
            return
        if reason != SUCCESS:
            self.refuse(reason)
            return
        name = broker.name_unasked(self.connection, packet)
        if name is not None:
            self.accept_connect(name)
            return
        self.gateway.add_pending(self)
        self.connection.state = AUTHENTICATING
        broker.begin_authentication(self.connection, packet)

    def validate(self, packet: Connect) -> int:
        """Return the reason to refuse CONNECT with, or SUCCESS."""
        return validate_connect(self.broker, packet)

    def on_authenticated(self, reason: int, username: str) -> None:
        if reason != SUCCESS:
            self.refuse(reason, username)
        else:
            self.accept_connect(username)

    def refuse(self, reason: int, username: str = "") -> None:
        on_refused(self.broker, self.connection, reason, self.asks_for()[0], username)
        self.write(self.refusal_packet(reason))
        close(self.broker, self.connection, f"connect refused with reason 0x{reason:02X}")

    def accept_connect(self, username: str) -> None:
        """Attach the client to its session and answer CONNACK, unless this user may not connect so."""
        broker = self.broker
        try:
            packet = self.accepted_connect()
            client_id, is_kept = self.asks_for()
            reason = check_connect(broker, packet, username, not client_id, is_kept)
        except ProtocolError as error:
            self.refuse(error.reason, username)
            return
        if reason != SUCCESS:
            self.refuse(reason, username)
            return
        if self.wakes_sleeper(packet):
            return
        self.accepted = packet
        self.connection.client_id = packet.client_id
        self.connection.username = username
        if broker.shared is not None:
            self.propose(broker.shared, packet, username)
            return
        session, present = self.claim_session(packet, username)
        session.expiry_s = self.granted_expiry()
        attach(broker, self.connection, session, username, self.protocol, self.will_of(packet, session))
        broker.count_kept(session)
        self.welcome(session, packet, present)

    def welcome(self, session: Session, packet: Connect, present: bool) -> None:
        broker = self.broker
        self.session = session
        self.client_id = session.client_id
        if present:
            self.first_id = 0x8000 + broker.log.position % 0x4000  # the table may have been lost: see ids.py
        self.agree(session, packet, present)
        self.gateway.bind(self)
        if broker.shared is None:
            broker.recorder.on_attached(session, self.connection.agreed.version)
            if session.kept:
                broker.hold(self.connection)
        self.write(self.connack)
        self.resume(session)

    def propose(self, shared: "Shared", packet: Connect, username: str) -> None:
        """Ask the log that nodes share for the client id."""
        if not shared.accepts:
            self.refuse(SERVER_UNAVAILABLE, username)
            return
        old = self.broker.sessions.get(packet.client_id)
        adapter = old.connection.adapter if old is not None and old.connection is not None else None
        if isinstance(adapter, SnConnection):
            adapter.silent = adapter.key == self.key
        keeps_old_will = old is not None and not self.takeover_publishes_will and old.protocol == self.protocol
        self.gateway.add_pending(self)
        entry = AttachEntry(
            packet.client_id,
            username,
            self.protocol,
            self.version,
            packet.clean_start,
            self.granted_expiry(),
            1,
            self.will_of(packet, None if packet.clean_start else old),
            False,
            keeps_old_will,
        )
        shared.attach_then(self.connection, entry, self.on_attached)

    def on_attached(self, reason: int) -> None:
        """The log has decided who has the client id. 0 and 1: this connection, with a new session or an old one."""
        packet = self.accepted
        connection = self.connection
        session = connection.session
        assert packet is not None
        if reason > 1 or session is None:
            self.refuse(reason, connection.username)
            return
        be_connected(self.broker, connection, session, connection.username, self.protocol)
        self.welcome(session, packet, reason == 1)

    def cap_expiry(self, asked_s: int) -> int:
        """Return how long the session is kept: of those who have not said who they are, not for long."""
        most_s = self.settings.session_expiry_max
        if most_s > 0 and not self.connection.username:
            asked_s = min(asked_s, most_s)
        return self.broker.cap_session_expiry(asked_s)

    def watch(self, keep_alive_ms: int) -> None:
        """Set how long the client may be silent. Who has no name and asks for no end of it gets one all the same."""
        if keep_alive_ms == 0 and not self.connection.username:
            keep_alive_ms = self.settings.session_expiry_max * 1000
        self.keep_alive_ms = keep_alive_ms

    def wakes_sleeper(self, packet: Connect) -> bool:
        """Return whether CONNECT has been answered by a connection of the client that was asleep."""
        return False

    def claim_session(self, packet: Connect, username: str) -> tuple[Session, bool]:
        """Return the session of the client, and whether there was one to resume. Its last connection makes way."""
        broker = self.broker
        old = broker.sessions.get(packet.client_id)
        if old is not None:
            adapter = old.connection.adapter if old.connection is not None else None
            if isinstance(adapter, SnConnection):
                # To the same address a goodbye would look like the end of what has just begun.
                adapter.silent = adapter.key == self.key
                if not self.takeover_publishes_will and adapter.protocol == self.protocol:
                    old.will = None
            take_over(broker, old)
            if packet.clean_start:
                end_session(broker, old)
            elif not old.ended:
                old.will = None
        session = broker.sessions.get(packet.client_id)
        if session is not None:
            return session, True
        session = Session(packet.client_id, username, broker.now_ms)
        broker.sessions[packet.client_id] = session
        return session, False

    def resume(self, session: Session) -> None:
        """Send again what was under way before CONNACK, and then what waits."""
        session.resending.clear()
        shared = self.broker.shared
        if shared is not None and session.kept:
            shared.resend(session)
        else:
            session.resending.extend(session.inflight)
        self.connection.busy = False
        self.become_active()
        for snapshot in session.snapshots:
            self.broker.wake(snapshot)

    def leave(self, publishes_will: bool = False) -> None:
        """End the connection as the client wishes, by default without its will."""
        session = self.session
        assert session is not None
        if not publishes_will:
            drop_will(self.broker, session)
        close(self.broker, self.connection, "client disconnected")

    def goodbye(self, reason: int) -> None:
        if not self.silent:
            packet = self.goodbye_packet(reason)
            if packet:
                self.write(packet)

    def on_closed(self) -> None:
        self.state = GONE
        self.pending.clear()
        self.exchange.out = None
        self.answered.clear()
        self.session = None
        self.gateway.unbind(self)
        self.connection = NOWHERE

    def unguessable_id(self, session: Session) -> int:
        packet_id = self.gateway.transport.unguessable_id()
        while packet_id in session.inflight:
            packet_id = self.gateway.transport.unguessable_id()
        return packet_id

    def give_up_silently(self, text: str) -> None:
        """End the connection without a word to an address that is not the client's, by all that is known."""
        self.silent = True
        disconnect(self.broker, self.connection, UNSPECIFIED_ERROR, text)

    # Requests.

    def answer_duplicate(self, request: bytes) -> bool:
        """Answer a request again that has been carried out, or is being; returns False when it is new."""
        if request in self.under_way:
            self.under_way[request] += 1
            return True
        answer = self.answered.find(request, self.broker.now_ms)
        if answer:
            self.write(answer)
        return len(answer) > 0

    def answer(self, kind: int, request: bytes, packet: bytes) -> None:
        """Answer a request that has just been carried out."""
        for _ in range(self.under_way.pop(request, 1)):
            self.write(packet)
        self.answered.add(kind, request, packet, self.broker.now_ms)

    def is_duplicate_connect(self, data: bytes) -> bool:
        if data != self.connect_datagram or self.state != ACTIVE:
            return False
        return not self.heard or self.broker.now_ms - self.connection.connected_at_ms <= DUPLICATE_CONNECT_MS

    def is_in_rate(self, size: int) -> bool:
        """Return whether one more publish fits into the rates of the client and its user, with a second's burst."""
        broker = self.broker
        now_s = broker.now_ms / 1000
        if self.publish_rate is not None and not self.publish_rate.offer(now_s):
            return False
        rates = broker.user_rates
        return not rates.is_limited or rates.admit(self.connection.username, 1, size, now_s)

    def subscribe_then(self, request: SubscriptionRequest, data: bytes, then: Then) -> None:
        """Make a subscription, and call `then` with the granted QoS or the reason why not: now, or when the log that
        nodes share has come so far.
        """
        shared = self.broker.shared
        session = self.session
        assert session is not None
        if shared is None or (not session.kept and not shared.fresh_reads and self.connection.under_way == 0):
            then(self.subscribe(request))
            return
        granted = check_filter(self.broker, session, request)
        if granted >= 0x80:
            if granted == NOT_AUTHORIZED:
                on_subscribe_denied(self.broker, self.connection, request)
            then(granted)
            return
        is_kept = session.kept
        requests: list[SubscriptionRequest] = []
        if is_kept:
            requests.append(
                SubscriptionRequest(
                    request.topic_filter,
                    granted,
                    request.no_local,
                    request.retain_as_published,
                    request.retain_handling,
                )
            )

        def on_back(reason: int) -> None:
            if self.state != GONE:
                self.gateway.new_snapshots = []
                then(granted if is_kept else self.subscribe(request))

        self.under_way[data] = 1
        shared.subscribe_then(self.connection, 0, requests, on_back)

    def unsubscribe_then(self, topic_filter: bytes, data: bytes, then: Then) -> None:
        """End a subscription, and call `then` with the reason code."""
        session = self.session
        assert session is not None
        shared = self.broker.shared
        if shared is None or not session.kept or topic_filter not in session.subscriptions:
            then(unsubscribe(self.broker, session, topic_filter))
            return

        def on_back(reason: int) -> None:
            if self.state != GONE:
                then(SUCCESS)

        self.under_way[data] = 1
        shared.unsubscribe_then(self.connection, topic_filter, on_back)

    def subscribe(self, request: SubscriptionRequest) -> int:
        """Make a subscription; returns the granted QoS, or the reason why not. After SUBACK, call `send_snapshots`."""
        session = self.session
        assert session is not None
        pending = PendingFilters(self.connection, 0)
        self.gateway.new_snapshots = pending.begun
        reason = subscribe(self.broker, session, request, pending)
        if reason == NOT_AUTHORIZED:
            on_subscribe_denied(self.broker, self.connection, request)
        return reason

    def send_snapshots(self) -> None:
        """Send the first messages of the snapshots that the last SUBSCRIBE has begun."""
        for snapshot in self.gateway.new_snapshots:
            send_first(self.broker, snapshot)
