"""One network connection as the core sees it: where its bytes gather, and what the two ends agreed on."""

from typing import TYPE_CHECKING, Final, final

from holdfast.broker.carrier import Carrier
from holdfast.broker.message import Publisher
from holdfast.broker.ports import Peer
from holdfast.protocol.mqtt.connection import WAITING
from holdfast.protocol.mqtt.packets import V5, Connect

if TYPE_CHECKING:
    from holdfast.broker.route import Route
    from holdfast.broker.session import Session

NO_ONE: Final = Publisher("", "", "")
UNLIMITED: Final = 1 << 60


@final
class Connection:
    """Invariants: `session.connection is self` exactly while `state` is CONNECTED; `outbox_bytes` is the length of
    what `outbox` holds; nothing is added to the outbox of a CLOSED connection.
    """

    def __init__(self, peer: Peer, now_ms: int, identity: str = "") -> None:
        self.peer: Final = peer
        self.identity: Final = identity  # the name that the transport vouches for, such as a certificate's
        self.state: int = WAITING  # see protocol/mqtt/connection.py
        self.version = 4
        self.is_v5 = False
        self.session: Session | None = None
        self.carrier: Carrier | None = None  # for a client that is not sent MQTT packets
        self.busy = False  # its carrier takes no snapshot messages now; it wakes the snapshots when it does
        self.publisher = NO_ONE
        self.client_id = ""
        self.username = ""
        self.connect: Connect | None = None  # while authenticating
        self.ticket = 0
        self.auth_method = ""  # of MQTT 5, for the whole connection [5: MQTT-4.12.0-5]
        self.exchanging = False  # the client has been asked something: AUTH comes next

        # Bytes of a packet that has not arrived whole, and how many it needs.
        self.partial: list[bytes] = []
        self.partial_size = 0
        self.needed = 0

        self.outbox: list[bytes] = []
        self.outbox_bytes = 0
        self.outbox_limit = UNLIMITED
        self.touched = False
        self.blocked = False  # the transport is full: gather, do not write
        self.blocked_since_ms = 0
        self.crowding = False  # most receivers of what this client publishes are behind: read from it a little later
        self.guarded = False  # what it is sent now may leave only when this batch is durable
        self.withheld = 0  # batches that hold bytes of this connection back
        self.closing = False
        self.close_reason = ""

        self.max_packet_size = UNLIMITED
        self.alias_maximum = 0
        self.aliases_out: dict[bytes, int] = {}
        self.aliases_in: dict[int, bytes] = {}
        self.reports_problems = True
        self.wants_meta = False
        self.wants_mark = False
        # Takes any QoS 0 frame of its version as it is.
        self.plain = True

        self.keep_alive_ms = 0
        self.last_seen_ms = now_ms
        self.connected_at_ms = now_ms
        self.received = 0
        self.rights: dict[bytes, bool] = {}
        self.rights_generation = 0

        # The route of the topic published last: most clients publish to the same topic again.
        self.last_topic = b""
        self.last_route: Route | None = None

    def agree(self, packet: Connect) -> None:
        """Take over what CONNECT says about this end of the wire."""
        self.version = packet.version
        self.is_v5 = packet.version == V5
        properties = packet.properties
        if properties is None:
            return
        if properties.maximum_packet_size is not None:
            self.max_packet_size = properties.maximum_packet_size
        if properties.topic_alias_maximum is not None:
            self.alias_maximum = properties.topic_alias_maximum
        if properties.request_problem_info is not None:
            self.reports_problems = properties.request_problem_info != 0
        self.wants_mark = properties.user_property("holdfast-snapshot") == "mark"
        self.wants_meta = properties.user_property("holdfast-retained-meta") == "on"
        self.plain = self.alias_maximum == 0

    def take(self) -> bytes:
        """Everything gathered, as one write."""
        outbox = self.outbox
        data = outbox[0] if len(outbox) == 1 else b"".join(outbox)
        outbox.clear()
        self.outbox_bytes = 0
        return data
