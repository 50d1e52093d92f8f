"""Where datagrams come in: which virtual connection they belong to, and what is said to those who have none.

A source address is a claim, not a proof. So an address that has not connected is answered with no more bytes than it
sent (CONNACK with an assigned client id and GWINFO excepted, which the protocol demands), not often, and can change
nothing; and a link that is in place stays until a CONNECT that may have its client id has been accepted.
"""

from typing import TYPE_CHECKING, Final, final

from holdfast.broker.effects import Effects
from holdfast.broker.lifecycle import close
from holdfast.broker.message import topic_field
from holdfast.broker.session import Snapshot
from holdfast.broker.sn.ids import Predefined
from holdfast.broker.sn.limiter import Limiter
from holdfast.broker.sn.link import Link
from holdfast.broker.sn.link2 import Link2, refusal_of
from holdfast.broker.sn.link12 import GOODBYE, Link12, is_sleeping
from holdfast.broker.sn.ports import Datagrams
from holdfast.broker.sn.publishing import WITHOUT_2, WITHOUT_12, publish_openly
from holdfast.broker.sn.settings import SnSettings
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
    PingRequest,
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
# Packets that may stand in a Connection Encapsulation [SN2: 3.18-3].
WRAPPABLE: Final = (v2.PUBLISH, v2.SUBSCRIBE, v2.UNSUBSCRIBE, v2.REGISTER, v2.DISCONNECT, v2.SLEEPREQ, v2.PINGREQ)


@final
class Gateway:
    """Invariants: a link is in `links` under its key exactly while it is connected, and in `pending` while CONNECT is
    still being decided; `hosts` counts both by host.
    """

    def __init__(self, broker: "Broker", settings: SnSettings, world: Datagrams) -> None:
        self.broker: Final = broker
        self.settings: Final = settings
        self.world: Final = world
        self.predefined: Final = Predefined(settings.predefined)
        self.open_filters: Final = [topic_filter.split(b"/") for topic_filter in settings.open_filters]
        self.links: dict[object, Link] = {}
        self.pending: dict[object, Link] = {}
        self.hosts: dict[str, int] = {}
        self.strangers: Final = Limiter(settings.stranger_rate_per_host, settings.stranger_rate)
        self.open_publishes: Final = Limiter(0, int(settings.open_rate))
        self.begun: list[Snapshot] = []  # lent to the SUBSCRIBE at hand

    def receive(self, datagrams: list[tuple[bytes, object, str]], now_ms: int) -> Effects:
        """Datagrams, each with the address that the transport answers to and the host that addresses are counted by."""
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
        link = self.links.get(key)
        if kind == v2.CONNECT or kind == v12.CONNECT:
            found = detect.is_connect(data) if link is not None else detect.classify(data)
            if found == detect.CONNECT_12:
                self.connect_12(data, key, address, host, envelope, link)
                return
            if found == detect.CONNECT_2:
                self.connect_2(data, key, address, host, envelope, link)
                return
        if link is None:
            link = self.pending.get(key)
            if link is None:
                self.on_stranger(data, key, address, host, envelope)
                return
        self.deliver(link, data)

    def deliver(self, link: Link, data: bytes) -> None:
        self.broker.counters.bytes_received_by_version[link.version] += len(data)
        try:
            link.receive(data)
        except ProtocolError as error:
            link.fail(error)

    def drop(self) -> None:
        """Leave the datagram at hand without effect or without an answer, and count it."""
        self.broker.counters.datagrams_dropped += 1

    # Encapsulations.

    def unwrap(
        self, data: bytes, head: int, kind: int, key: object, address: object, host: str, envelope: Envelope | None
    ) -> None:
        size = stated_size(data)
        if kind == FORWARDER_12 and size < len(data):
            # [SN12-19] The inner message follows behind and is not counted.
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
            self.by_client_id(data, head + 1, key, address, host, envelope)
        elif kind == PROTECTION_2:
            # Recognised, not spoken: the sender is told, unless that would be larger than what it sent.
            self.tell(NO_PROTECTION, data, address, host, envelope)

    def by_client_id(
        self, data: bytes, at: int, key: object, address: object, host: str, envelope: Envelope | None
    ) -> None:
        """A Connection Encapsulation: the client says who it is, so that its address may have changed."""
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
        session = self.broker.sessions.get(client_id)
        connection = session.connection if session is not None else None
        link = connection.adapter if connection is not None else None
        if not isinstance(link, Link2):
            self.tell(NO_CONNECTION, data, address, host, envelope)
            return
        moved = link.key != key
        if moved and link.connection.username:
            # The wrapper proves nothing. Who has logged in does not lose the connection to who merely knows the name.
            self.tell(NO_CONNECTION, data, address, host, envelope)
            return
        inner_head = head_size(inner)
        allowed = inner_head > 0 and inner[inner_head] in WRAPPABLE
        if not link.connect.may_move or not allowed:  # [SN2: 3.1.2.6-1, 3.18-1, 3.18-3]
            link.fail(ProtocolError("a Connection Encapsulation came that CONNECT did not ask for"))
            return
        if moved:
            self.move(link, key, address, host, envelope)
        self.deliver(link, inner)

    def move(self, link: Link, key: object, address: object, host: str, envelope: Envelope | None) -> None:
        self.unbind(link)
        link.key = key
        link.host = host
        link.envelope = envelope
        link.peer.move(address, envelope)
        self.bind(link)

    # CONNECT.

    def connect_12(
        self, data: bytes, key: object, address: object, host: str, envelope: Envelope | None, link: Link | None
    ) -> None:
        try:
            packet = v12.decode(data)
        except ProtocolError:
            self.drop()
            return
        assert isinstance(packet, Connect)
        if packet.version != v12.PROTOCOL_ID:  # [SN12-02]
            self.tell(v12.encode(ConnAck(v12.NOT_SUPPORTED)), data, address, host, envelope)
            return
        if self.is_repeated(link, data):
            return
        if not self.may_begin(key, host):
            self.tell(v12.encode(ConnAck(v12.CONGESTION)), data, address, host, envelope)
            return
        peer = self.world.open(address, envelope)
        connection = self.broker.open(peer, self.broker.now_ms)
        peer.attach(connection)
        fresh = Link12(self, key, host, envelope, peer, connection)
        connection.adapter = fresh
        fresh.begin(packet, data)

    def connect_2(
        self, data: bytes, key: object, address: object, host: str, envelope: Envelope | None, link: Link | None
    ) -> None:
        try:
            packet = decode_2(data)
        except ProtocolError as error:  # [SN2: 3.1.19-1]
            self.broker.counters.protocol_errors += 1
            self.tell(refusal_of(connect_id(data), error.reason), data, address, host, envelope)
            return
        assert isinstance(packet, Connect)
        if self.is_repeated(link, data):
            return
        if not self.may_begin(key, host):
            self.tell(refusal_of(packet.packet_id, v2.CONGESTION), data, address, host, envelope)
            return
        peer = self.world.open(address, envelope)
        connection = self.broker.open(peer, self.broker.now_ms)
        peer.attach(connection)
        fresh = Link2(self, key, host, envelope, peer, connection)
        connection.adapter = fresh
        fresh.begin(packet, data)

    def is_repeated(self, link: Link | None, data: bytes) -> bool:
        """The same CONNECT again, because the network doubled it or lost the answer: answered again, not done again."""
        if link is None or not link.is_repeated_connect(data):
            return False
        link.connection.last_seen_ms = self.broker.now_ms
        link.write(link.connack)
        return True

    def may_begin(self, key: object, host: str) -> bool:
        """Whether there is room for one more, at this host and altogether. An attempt under way makes way for it."""
        attempt = self.pending.get(key)
        if attempt is not None:
            close(self.broker, attempt.connection, "another CONNECT came")
        settings = self.settings
        if key not in self.links:
            if 0 < settings.max_clients <= len(self.links) + len(self.pending):
                return False
            if 0 < settings.max_clients_per_host <= self.hosts.get(host, 0):
                return False
        return len(self.pending) < MAX_PENDING

    def pend(self, link: Link) -> None:
        if link.key not in self.pending:
            self.pending[link.key] = link
            self.hosts[link.host] = self.hosts.get(link.host, 0) + 1

    def bind(self, link: Link) -> None:
        """The link is connected. Whoever was at its address before is not there any more."""
        if self.pending.get(link.key) is link:
            del self.pending[link.key]
            self.leave(link.host)
        before = self.links.get(link.key)
        if before is not None and before is not link:
            close(self.broker, before.connection, "another client connected from the same address")
        self.links[link.key] = link
        self.hosts[link.host] = self.hosts.get(link.host, 0) + 1

    def unbind(self, link: Link) -> None:
        if self.pending.get(link.key) is link:
            del self.pending[link.key]
            self.leave(link.host)
        if self.links.get(link.key) is link:
            del self.links[link.key]
            self.leave(link.host)

    def leave(self, host: str) -> None:
        count = self.hosts.get(host, 0)
        if count > 1:
            self.hosts[host] = count - 1
        else:
            self.hosts.pop(host, None)

    def bring_back(self, attempt: Link12) -> bool:
        """CONNECT of a client that is asleep: the link it has goes on, at the address it is at now."""
        session = self.broker.sessions.get(attempt.connect.client_id)
        connection = session.connection if session is not None else None
        link = connection.adapter if connection is not None else None
        if not isinstance(link, Link12) or not is_sleeping(link):
            return False
        key = attempt.key
        host = attempt.host
        envelope = attempt.envelope
        address = key[0] if envelope is not None and isinstance(key, tuple) else key
        close(self.broker, attempt.connection, "the client that was asleep is back")
        if link.key != key:
            self.move(link, key, address, host, envelope)
        link.come_back(attempt)
        return True

    # Those without a connection.

    def on_stranger(self, data: bytes, key: object, address: object, host: str, envelope: Envelope | None) -> None:
        found = detect.classify(data)
        if found == detect.WITHOUT_CONNECTION_12 or found == detect.WITHOUT_SESSION_2:
            self.publish_from_stranger(found, data, address, host, envelope)
        elif found == detect.PING_12:
            self.ping_from_stranger(data, key, address, host, envelope)
        elif found == detect.SEARCH_12:
            self.answer(v12.encode(GatewayInfo(self.settings.gateway_id)), address, host, envelope)
        elif found == detect.SEARCH_2:
            self.answer(encode_2(GatewayInfo(self.settings.gateway_id)), address, host, envelope)
        elif found == detect.OTHER_12:  # [SN12-15]
            self.tell(GOODBYE, data, address, host, envelope)
        elif found == detect.OTHER_2:
            self.tell(NO_CONNECTION, data, address, host, envelope)
        else:
            self.drop()

    def publish_from_stranger(
        self, found: int, data: bytes, address: object, host: str, envelope: Envelope | None
    ) -> None:
        try:
            if found == detect.WITHOUT_CONNECTION_12:
                packet = v12.decode(data)
                if isinstance(packet, Publish):
                    self.publish_without_connection(packet, host)
                return
            if not self.open_filters:
                # Off: then it may as well be a SUBSCRIBE of 1.2, which has the same shape.
                self.tell(GOODBYE, data, address, host, envelope)
                return
            pubwos = decode_2(data)
            if isinstance(pubwos, PublishWithoutSession):
                self.publish_without_session(pubwos, host)
        except ProtocolError:
            self.drop()

    def publish_without_connection(self, packet: Publish, host: str) -> None:
        """[SN12-10] QoS -1, for predefined and short topics."""
        if packet.topic_type == NORMAL:
            self.drop()
            return
        if packet.topic_type == PREDEFINED:
            field = self.predefined.by_id.get(packet.topic_id, b"")
        else:
            decode_text(packet.topic)
            field = topic_field(packet.topic)
        self.publish_openly(field, packet.payload, packet.retain, host, False)

    def publish_without_session(self, packet: PublishWithoutSession, host: str) -> None:
        if packet.topic_type == PREDEFINED:
            field = self.predefined.by_id.get(packet.topic_id, b"")
        else:
            field = topic_field(packet.topic)
        self.publish_openly(field, packet.payload, packet.retain, host, True)

    def publish_openly(self, field: bytes, payload: bytes, retain: bool, host: str, is_v2: bool) -> None:
        broker = self.broker
        if not field or not self.open_filters or not self.open_publishes.allow(host, broker.now_ms):
            self.drop()
            return
        publisher = WITHOUT_2 if is_v2 else WITHOUT_12
        if not publish_openly(
            broker, publisher, self.open_filters, field, payload, retain and self.settings.open_retain
        ):
            broker.counters.publishes_refused += 1

    def ping_from_stranger(
        self, data: bytes, key: object, address: object, host: str, envelope: Envelope | None
    ) -> None:
        """[SN12-12] A client that sleeps may wake up at another address; its client id finds it."""
        try:
            packet = v12.decode(data)
        except ProtocolError:
            self.drop()
            return
        if isinstance(packet, PingRequest) and packet.client_id:
            if self.wake_sleeper(packet.client_id, key, address, host, envelope):
                return
        self.tell(GOODBYE, data, address, host, envelope)

    def wake_elsewhere(self, client_id: str, key: object, host: str, envelope: Envelope | None) -> None:
        """A PINGREQ with another client's id, from an address that has a link of its own."""
        address = key[0] if envelope is not None and isinstance(key, tuple) else key
        before = self.links.get(key)
        session = self.broker.sessions.get(client_id)
        connection = session.connection if session is not None else None
        link = connection.adapter if connection is not None else None
        if not isinstance(link, Link12) or not is_sleeping(link):
            self.answer(GOODBYE, address, host, envelope)
            return
        if before is not None:
            close(self.broker, before.connection, "another client woke up at the same address")
        self.wake_sleeper(client_id, key, address, host, envelope)

    def wake_sleeper(self, client_id: str, key: object, address: object, host: str, envelope: Envelope | None) -> bool:
        session = self.broker.sessions.get(client_id)
        connection = session.connection if session is not None else None
        link = connection.adapter if connection is not None else None
        if not isinstance(link, Link12) or not is_sleeping(link) or link.connection.username:
            return False
        self.move(link, key, address, host, envelope)
        link.connection.last_seen_ms = self.broker.now_ms
        link.wake_up(self.settings.awake_messages)
        return True

    def tell(self, packet: bytes, request: bytes, address: object, host: str, envelope: Envelope | None) -> None:
        """Answer a stranger, with no more than it sent."""
        if len(packet) <= len(request):
            self.answer(packet, address, host, envelope)
        else:
            self.drop()

    def answer(self, packet: bytes, address: object, host: str, envelope: Envelope | None) -> None:
        if self.strangers.allow(host, self.broker.now_ms):
            self.world.send(packet, address, envelope)
        else:
            self.drop()

    def advertisements(self, interval_s: int) -> list[bytes]:
        """ADVERTISE in both versions, for whoever listens [SN12-18]."""
        packet = Advertise(self.settings.gateway_id, min(interval_s, 65535))
        return [v12.encode(packet), encode_2(packet)]


def connect_id(data: bytes) -> int:
    """The packet id of a CONNECT that may be malformed otherwise; `classify` has seen that it is long enough."""
    at = head_size(data) + 1
    if data[at] & v2.WILL_FLAG:
        at += 1
    return data[at + 1] << 8 | data[at + 2]
