"""Where datagrams come in: which virtual connection they belong to, and how addresses without one are answered.

A source address is a claim, not a proof. So an address that has not connected is answered with no more bytes than it
sent (GWINFO excepted, which the protocol demands), not often, and can change nothing; one that has connected is sent
little until it has proven itself (see proof.py). A connection stays until a CONNECT that may have its client id has
been accepted. DISCONNECT is not answered, or two gateways could go on answering each other.
"""

from typing import TYPE_CHECKING, Final, final

from holdfast.broker.effects import Effects
from holdfast.broker.lifecycle import close
from holdfast.broker.message import Publisher, topic_field
from holdfast.broker.ports import OutboundAdapter
from holdfast.broker.session import Snapshot
from holdfast.broker.sn.admission import UNCONNECTED_12, UNCONNECTED_20, publish_unconnected
from holdfast.broker.sn.connection import SnConnection
from holdfast.broker.sn.connection12 import GOODBYE, SnConnection12
from holdfast.broker.sn.connection20 import SnConnection20, refusal
from holdfast.broker.sn.ids import Predefined
from holdfast.broker.sn.ports import Datagrams, SnSettings
from holdfast.broker.sn.proof import AddressProof
from holdfast.errors import ProtocolError
from holdfast.protocol.sn import detect, v12
from holdfast.protocol.sn import v2_types as v2
from holdfast.protocol.sn.frame import (
    CONNECTION_2,
    FORWARDER_2,
    FORWARDER_12,
    PROTECTION_2,
    Envelope,
    head_size,
    stated_size,
)
from holdfast.protocol.sn.packets import (
    NONE,
    NORMAL,
    PREDEFINED,
    Advertise,
    ConnAck,
    Connect,
    Disconnect,
    GatewayInfo,
    Publish,
    PublishWithoutSession,
)
from holdfast.protocol.sn.v2_decode import decode as decode_2
from holdfast.protocol.sn.v2_encode import encode as encode_2
from holdfast.protocol.wire import decode_text

if TYPE_CHECKING:
    from holdfast.broker.core import Broker

NO_CONNECTION: Final = encode_2(Disconnect(NONE, v2.NO_VIRTUAL_CONNECTION))
NO_PROTECTION: Final = encode_2(Disconnect(NONE, v2.PROTECTION_NOT_SUPPORTED))
MAX_PENDING: Final = 10_000
MAX_LEFT: Final = 1000
RATE_WINDOW_MS: Final = 1000
# Packets that may stand in a Connection Encapsulation [SN2: 3.18-3].
WRAPPABLE: Final = (v2.PUBLISH, v2.SUBSCRIBE, v2.UNSUBSCRIBE, v2.REGISTER, v2.DISCONNECT, v2.SLEEPREQ, v2.PINGREQ)


@final
class HostRateLimit:
    """Counts by the second, per host and altogether. The table of hosts is as large as the rate, never larger."""

    def __init__(self, per_host: int, overall: int) -> None:
        self.per_host: Final = per_host
        self.overall: Final = overall
        self.since_ms = 0
        self.total = 0
        self.hosts: dict[str, int] = {}

    def allow(self, host: str, now_ms: int) -> bool:
        """Return whether one more is within the limits, and count it if so."""
        if now_ms - self.since_ms >= RATE_WINDOW_MS:
            self.since_ms = now_ms
            self.total = 0
            self.hosts.clear()
        if 0 < self.overall <= self.total:
            return False
        count = self.hosts.get(host, 0)
        if 0 < self.per_host <= count:
            return False
        self.hosts[host] = count + 1
        self.total += 1
        return True


@final
class Gateway:
    """Invariants: a connection is in `connections` under its key exactly while it is connected, and in `pending` while
    its CONNECT is still being decided; `hosts` counts both by host.

    The key of a connection is the address, or the address with what a forwarder calls the node behind it.
    """

    def __init__(self, broker: "Broker", settings: SnSettings, transport: Datagrams) -> None:
        self.broker: Final = broker
        self.settings: Final = settings
        self.transport: Final = transport
        self.predefined: Final = Predefined(settings.predefined)
        self.open_filters: Final = [topic_filter.split(b"/") for topic_filter in settings.open_filters]
        self.connections: dict[object, SnConnection] = {}
        self.pending: dict[object, SnConnection] = {}
        self.hosts: dict[str, int] = {}
        self.left: dict[object, int] = {}  # clients of 1.2 that left last, and how often they may hear so again
        self.answer_rate: Final = HostRateLimit(settings.answer_rate_per_host, settings.answer_rate)
        self.open_rate: Final = HostRateLimit(0, int(settings.open_rate))
        self.new_snapshots: list[Snapshot] = []  # of the SUBSCRIBE at hand

    def receive(self, datagrams: list[tuple[bytes, object, str]], now_ms: int) -> Effects:
        """Handle datagrams, each with the address to answer to and the host that addresses are counted by."""
        broker = self.broker
        broker.begin(now_ms)
        for data, address, host in datagrams:
            broker.counters.bytes_received += len(data)
            broker.counters.packets_received += 1
            self.route(data, address, address, host, None)
        return broker.finish()

    def route(self, data: bytes, key: object, address: object, host: str, envelope: Envelope | None) -> None:
        head = head_size(data)
        if head == 0:
            self.drop()
            return
        kind = data[head]
        if kind >= FORWARDER_2:
            self.unwrap(data, head, kind, key, address, host, envelope)
            return
        connection = self.connections.get(key)
        if kind == v2.CONNECT or kind == v12.CONNECT:
            found = detect.is_connect(data) if connection is not None else detect.classify(data)
            if found == detect.CONNECT_12:
                self.connect_12(data, key, address, host, envelope, connection)
                return
            if found == detect.CONNECT_2:
                self.connect_20(data, key, address, host, envelope, connection)
                return
        if connection is None:
            connection = self.pending.get(key)
            if connection is None:
                self.on_unconnected(data, key, address, host, envelope)
                return
        self.deliver(connection, data)

    def deliver(self, connection: SnConnection, data: bytes) -> None:
        self.broker.counters.bytes_received_by_version[connection.version] += len(data)
        connection.proof.on_received(len(data))
        try:
            connection.receive(data)
        except ProtocolError as error:
            connection.fail(error)

    def drop(self) -> None:
        """Count the datagram at hand, which is left without effect or without an answer."""
        self.broker.counters.datagrams_dropped += 1

    # Encapsulations.

    def unwrap(
        self, data: bytes, head: int, kind: int, key: object, address: object, host: str, envelope: Envelope | None
    ) -> None:
        size = stated_size(data)
        if kind == FORWARDER_12 and size < len(data):
            # [SN12-19] The inner message follows and is not counted.
            if envelope is None and size >= head + 2:
                wrapper = Envelope(1, data[:size], data[head + 2 : size])
                self.route(data[size:], (address, 1, wrapper.info), address, host, wrapper)
            else:
                self.drop()
            return
        if size != len(data):
            self.drop()
            return
        if kind == FORWARDER_2:
            start = head + 2
            if envelope is None and start <= size and start + data[head + 1] < size:
                start += data[head + 1]
                info = data[head + 2 : start]
                self.route(data[start:], (address, 2, info), address, host, Envelope(2, b"", info))
            else:
                self.drop()
        elif kind == CONNECTION_2:
            self.unwrap_client_id(data, head + 1, key, address, host, envelope)
        elif kind == PROTECTION_2:
            # Recognised, not spoken: the sender is told, unless that would be larger than what it sent.
            self.answer_within(NO_PROTECTION, data, address, host, envelope)

    def unwrap_client_id(
        self, data: bytes, at: int, key: object, address: object, host: str, envelope: Envelope | None
    ) -> None:
        """Handle a Connection Encapsulation, in which a client says who it is, since its address may have changed."""
        if at + 2 > len(data):
            self.drop()
            return
        start = at + 2 + (data[at] << 8 | data[at + 1])
        if start + 2 > len(data):
            self.drop()
            return
        inner = data[start:]
        try:
            client_id = decode_text(data[at + 2 : start])
        except ProtocolError:
            self.drop()
            return
        connection = self.find_adapter(client_id)
        if not isinstance(connection, SnConnection20):
            self.answer_within(NO_CONNECTION, data, address, host, envelope)
            return
        moved = connection.key != key
        if moved and (connection.connection.username or connection.is_sleeping()):
            # The wrapper proves nothing: who knows the name of a client that has logged in, or that sleeps and cannot
            # object, may not move it.
            self.answer_within(NO_CONNECTION, data, address, host, envelope)
            return
        inner_head = head_size(inner)
        allowed = inner_head > 0 and inner[inner_head] in WRAPPABLE
        if not connection.connect.may_move or not allowed:  # [SN2: 3.1.2.6-1, 3.18-1, 3.18-3]
            connection.fail(ProtocolError("a Connection Encapsulation came that CONNECT did not ask for"))
            return
        if moved:
            self.move(connection, key, address, host, envelope)
        connection.proof.received += start
        self.deliver(connection, inner)

    def find_adapter(self, client_id: str) -> OutboundAdapter | None:
        """Return what speaks another protocol than MQTT with this client, if it is connected and does."""
        session = self.broker.sessions.get(client_id)
        connection = session.connection if session is not None else None
        return connection.adapter if connection is not None else None

    def move(
        self, connection: SnConnection, key: object, address: object, host: str, envelope: Envelope | None
    ) -> None:
        self.unbind(connection)
        connection.key = key
        connection.address = address
        connection.host = host
        connection.envelope = envelope
        connection.proof = AddressProof(envelope)
        connection.peer.move(address, envelope)
        self.bind(connection)

    # CONNECT.

    def connect_12(
        self, data: bytes, key: object, address: object, host: str, envelope: Envelope | None, old: SnConnection | None
    ) -> None:
        try:
            packet = v12.decode(data)
        except ProtocolError:
            self.drop()
            return
        assert isinstance(packet, Connect)
        if packet.version != v12.PROTOCOL_ID:  # [SN12-02]
            self.answer_within(v12.encode(ConnAck(v12.NOT_SUPPORTED)), data, address, host, envelope)
        elif self.answer_duplicate(old, data):
            return
        elif self.make_room(key, host):
            attempt = SnConnection12(self, key, address, host, envelope)
            attempt.proof.on_received(len(data))
            attempt.begin(packet, data)
        else:
            self.answer_within(v12.encode(ConnAck(v12.CONGESTION)), data, address, host, envelope)

    def connect_20(
        self, data: bytes, key: object, address: object, host: str, envelope: Envelope | None, old: SnConnection | None
    ) -> None:
        try:
            packet = decode_2(data)
        except ProtocolError as error:  # [SN2: 3.1.19-1]
            self.broker.counters.protocol_errors += 1
            self.answer_within(refusal(connect_id(data), error.reason), data, address, host, envelope)
            return
        assert isinstance(packet, Connect)
        if self.answer_duplicate(old, data):
            return
        if self.make_room(key, host):
            attempt = SnConnection20(self, key, address, host, envelope)
            attempt.proof.on_received(len(data))
            attempt.begin(packet, data)
        else:
            self.answer_within(refusal(packet.packet_id, v2.CONGESTION), data, address, host, envelope)

    def answer_duplicate(self, old: SnConnection | None, data: bytes) -> bool:
        """Answer a CONNECT again that the network doubled or whose answer it lost; returns False when it is new."""
        if old is None or not old.is_duplicate_connect(data):
            return False
        old.connection.last_seen_ms = self.broker.now_ms
        old.proof.on_received(len(data))
        old.write(old.connack)
        return True

    def make_room(self, key: object, host: str) -> bool:
        """End an attempt to connect with the same key; returns whether one more client may try."""
        attempt = self.pending.get(key)
        if attempt is not None:
            close(self.broker, attempt.connection, "another CONNECT came")
        settings = self.settings
        if key not in self.connections:
            if 0 < settings.max_clients <= len(self.connections) + len(self.pending):
                return False
            if 0 < settings.max_clients_per_host <= self.hosts.get(host, 0):
                return False
        return len(self.pending) < MAX_PENDING

    def add_pending(self, connection: SnConnection) -> None:
        """Remember a connection whose CONNECT is still being decided."""
        if connection.key not in self.pending:
            self.pending[connection.key] = connection
            self.hosts[connection.host] = self.hosts.get(connection.host, 0) + 1

    def bind(self, connection: SnConnection) -> None:
        """Remember a connection as the one of its key, and end the one that was there before."""
        if self.pending.get(connection.key) is connection:
            del self.pending[connection.key]
            self.count_out(connection.host)
        before = self.connections.get(connection.key)
        if before is not None and before is not connection:
            close(self.broker, before.connection, "another client connected from the same address")
        self.connections[connection.key] = connection
        self.hosts[connection.host] = self.hosts.get(connection.host, 0) + 1

    def unbind(self, connection: SnConnection) -> None:
        """Forget a connection that has ended or moves."""
        if self.pending.get(connection.key) is connection:
            del self.pending[connection.key]
            self.count_out(connection.host)
        if self.connections.get(connection.key) is connection:
            del self.connections[connection.key]
            self.count_out(connection.host)

    def count_out(self, host: str) -> None:
        count = self.hosts.get(host, 0)
        if count > 1:
            self.hosts[host] = count - 1
        else:
            self.hosts.pop(host, None)

    # Clients of 1.2 that sleep.

    def find_sleeper(self, client_id: str) -> SnConnection12 | None:
        adapter = self.find_adapter(client_id)
        return adapter if isinstance(adapter, SnConnection12) and adapter.is_sleeping() else None

    def resume_sleeper(self, attempt: SnConnection12) -> bool:
        """Let the connection of a sleeping client that has sent CONNECT go on, at the address it is at now.

        Returns whether there was one; then `attempt` is closed.
        """
        sleeper = self.find_sleeper(attempt.connect.client_id)
        if sleeper is None:
            return False
        close(self.broker, attempt.connection, "the client that was asleep is back")
        if sleeper.key != attempt.key:
            self.move(sleeper, attempt.key, attempt.address, attempt.host, attempt.envelope)
        if not sleeper.proof.proven:
            sleeper.proof = attempt.proof
        sleeper.come_back(attempt)
        return True

    # Clients of 1.2 that leave.

    def on_left(self, connection: SnConnection12) -> None:
        """Remember who has just been told goodbye: the answer may get lost, and then the client asks again."""
        if len(self.left) >= MAX_LEFT:
            del self.left[next(iter(self.left))]
        self.left[connection.key] = self.settings.retries

    def leave_again(self, key: object, address: object, host: str, envelope: Envelope | None) -> None:
        """Handle a DISCONNECT without a connection, which is answered only to who had one, and not without end."""
        times = self.left.pop(key, 0)
        if times > 0:
            self.left[key] = times - 1
            self.answer(GOODBYE, address, host, envelope)
        else:
            self.drop()

    # Addresses without a connection.

    def on_unconnected(self, data: bytes, key: object, address: object, host: str, envelope: Envelope | None) -> None:
        found = detect.classify(data)
        if found == detect.WITHOUT_CONNECTION_12 or found == detect.WITHOUT_SESSION_2:
            self.publish_from_unconnected(found, data, address, host, envelope)
        elif found == detect.LEAVE_12:
            self.leave_again(key, address, host, envelope)
        elif found == detect.SEARCH_12:
            self.answer(v12.encode(GatewayInfo(self.settings.gateway_id)), address, host, envelope)
        elif found == detect.SEARCH_2:
            self.answer(encode_2(GatewayInfo(self.settings.gateway_id)), address, host, envelope)
        elif found == detect.OTHER_12:  # [SN12-15]
            self.answer_within(GOODBYE, data, address, host, envelope)
        elif found == detect.OTHER_2:
            self.answer_within(NO_CONNECTION, data, address, host, envelope)
        else:
            self.drop()

    def publish_from_unconnected(
        self, found: int, data: bytes, address: object, host: str, envelope: Envelope | None
    ) -> None:
        try:
            if found == detect.WITHOUT_CONNECTION_12:
                packet = v12.decode(data)
                if isinstance(packet, Publish):
                    self.publish_qos_minus_one(packet, host)
                return
            if not self.open_filters:
                # Off: then it may as well be a SUBSCRIBE of 1.2, which has the same shape.
                self.answer_within(GOODBYE, data, address, host, envelope)
                return
            pubwos = decode_2(data)
            if isinstance(pubwos, PublishWithoutSession):
                self.publish_without_session(pubwos, host)
        except ProtocolError:
            self.drop()

    def publish_qos_minus_one(self, packet: Publish, host: str) -> None:
        """Publish at QoS -1, to predefined and short topics [SN12-10]."""
        if packet.topic_type == NORMAL:
            self.drop()
            return
        if packet.topic_type == PREDEFINED:
            field = self.predefined.by_id.get(packet.topic_id, b"")
        else:
            decode_text(packet.topic)
            field = topic_field(packet.topic)
        self.publish_unconnected(UNCONNECTED_12, field, packet.payload, packet.retain, host)

    def publish_without_session(self, packet: PublishWithoutSession, host: str) -> None:
        if packet.topic_type == PREDEFINED:
            field = self.predefined.by_id.get(packet.topic_id, b"")
        else:
            field = topic_field(packet.topic)
        self.publish_unconnected(UNCONNECTED_20, field, packet.payload, packet.retain, host)

    def publish_unconnected(self, publisher: Publisher, field: bytes, payload: bytes, retain: bool, host: str) -> None:
        broker = self.broker
        if not field or not self.open_filters or not self.open_rate.allow(host, broker.now_ms):
            self.drop()
            return
        rates = broker.user_rates
        if rates.is_limited and not rates.admit("", 1, len(payload), broker.now_ms / 1000):
            self.drop()
            return
        retain = retain and self.settings.open_retain
        if not publish_unconnected(broker, publisher, self.open_filters, field, payload, retain):
            broker.counters.publishes_refused += 1

    def answer_within(
        self, packet: bytes, request: bytes, address: object, host: str, envelope: Envelope | None
    ) -> None:
        """Answer an address without a connection, if that is no more than it sent."""
        if len(packet) <= len(request):
            self.answer(packet, address, host, envelope)
        else:
            self.drop()

    def answer(self, packet: bytes, address: object, host: str, envelope: Envelope | None) -> None:
        if self.answer_rate.allow(host, self.broker.now_ms):
            self.transport.send(packet, address, envelope)
        else:
            self.drop()

    def advertisements(self, interval_s: int) -> list[bytes]:
        """Return ADVERTISE in both versions [SN12-18]."""
        packet = Advertise(self.settings.gateway_id, min(interval_s, 65535))
        return [v12.encode(packet), encode_2(packet)]


def connect_id(data: bytes) -> int:
    """Return the packet id of a CONNECT that may be malformed otherwise; `classify` has checked its length."""
    at = head_size(data) + 1
    if data[at] & v2.WILL_FLAG:
        at += 1
    return data[at + 1] << 8 | data[at + 2]
