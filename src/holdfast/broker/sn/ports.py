"""What the sensors' side is given from outside: a way to send datagrams, and its settings.

Addresses are the transport's own values. The core compares them and hands them back, and never looks inside.
"""

from typing import final

from mypy_extensions import mypyc_attr

from holdfast.broker.ports import Peer
from holdfast.broker.session import Connection
from holdfast.protocol.sn.frame import Envelope


@mypyc_attr(allow_interpreted_subclasses=True)
class DatagramPeer(Peer):
    """One client at an address, perhaps reached through a forwarder. `write` is given whole packets, joined."""

    def attach(self, connection: Connection) -> None:
        """Tell the peer which connection it is the far end of."""
        raise NotImplementedError

    def move(self, address: object, envelope: Envelope | None) -> None:
        """Send to another address from now on."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Datagrams:
    def open(self, address: object, envelope: Envelope | None) -> DatagramPeer:
        """Return the far end of a new connection with the client at this address."""
        raise NotImplementedError

    def unguessable_id(self) -> int:
        """Return a packet id from 1 to 65535 that nobody can know before it is sent."""
        raise NotImplementedError

    def send(self, packet: bytes, address: object, envelope: Envelope | None) -> None:
        """Send one packet to an address that has no connection."""
        raise NotImplementedError


@final
class SnSettings:
    """Plain values, filled in by the composition root from the configuration."""

    def __init__(self) -> None:
        self.gateway_id = 1
        self.predefined: dict[int, bytes] = {}
        # Topic filters that may be published to without a connection, and whether such messages may be retained.
        self.open_filters: list[bytes] = []
        self.open_retain = False
        self.open_rate = 1000.0  # a second, all addresses together; 0: any

        self.retry_ms = 10_000  # 1.2
        self.response_ms = 5_000  # 2.0: before the first resend, which then backs off from `backoff_ms`
        self.backoff_ms = 1_000
        self.retries = 4

        self.session_expiry_max = 86_400  # seconds, of clients without a name; 0: as for all others
        self.max_clients = 100_000
        self.max_clients_per_host = 0
        self.max_topics = 1024  # topic ids of one client
        self.max_topic_bytes = 256 * 1024
        self.max_buffered = 100  # QoS 0 messages that wait for a sleeping client or for a topic id
        self.awake_messages = 0  # 0: all there are
        self.message_rate = 0.0  # packets a second from one client; 0: any
        # Answers a second to addresses without a connection: to one host, and to all together.
        self.answer_rate_per_host = 20
        self.answer_rate = 2000
