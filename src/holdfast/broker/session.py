"""A session: what outlives a connection. Subscriptions, the messages under way to the client and those waiting."""

from collections import deque
from typing import TYPE_CHECKING, Final, final

from holdfast.broker.message import Message
from holdfast.broker.subscription import SharedGroup, Subscription
from holdfast.protocol.mqtt.packets import Will

if TYPE_CHECKING:
    from holdfast.broker.connection import Connection
    from holdfast.broker.sn.ids import SensorState
    from holdfast.broker.snapshot import Snapshot

FOREVER: Final = 0xFFFFFFFF

# Where a QoS 2 delivery stands; QoS 1 never leaves the first.
AWAITING_ACK: Final = 0
AWAITING_COMPLETE: Final = 1

LAST_PACKET_ID: Final = 65535

CROWDED_BYTES: Final = 1024 * 1024
CROWDED_QUEUE: Final = 1000
PATIENCE_MS: Final = 1000


@final
class Delivery:
    """A message on its way to one session, at the QoS and with the flags that this session gets."""

    def __init__(
        self,
        message: Message,
        qos: int,
        retain: bool,
        identifiers: list[int] | None,
        group: SharedGroup | None,
    ) -> None:
        self.message: Final = message
        self.qos: Final = qos
        self.retain: Final = retain
        self.identifiers: Final = identifiers
        self.group: Final = group
        self.stage: int = AWAITING_ACK
        self.sequence = 0  # its number in the log; 0: not in it


@final
class PendingWill:
    """The will of the current or last connection, with the time it is due once that connection is gone."""

    def __init__(self, will: Will, delay_s: int) -> None:
        self.will: Final = will
        self.delay_s: Final = delay_s
        self.due_ms = 0  # 0: the connection is there


@final
class Session:
    """Invariants: `inflight` is in the order of first sending; `queued_bytes` and `waiting` are sums over `queue`;
    at most `window` of them are under way, the others are in `resending`.
    """

    def __init__(self, client_id: str, owner: str, now_ms: int) -> None:
        self.client_id: Final = client_id
        self.owner: Final = owner
        self.created_at_ms: Final = now_ms
        self.connection: Connection | None = None
        self.record_id = 0  # what the log knows it by; 0: it ends with its connection
        self.next_sequence = 1
        self.protocol = ""
        self.expiry_s = 0  # FOREVER: never
        self.expires_at_ms = 0  # 0: connected, or never
        self.ended = False
        self.subscriptions: dict[bytes, Subscription] = {}
        self.inflight: dict[int, Delivery] = {}
        self.resending: deque[int] = deque()  # ids in flight that the resumed connection has yet to be sent again
        self.queue: deque[Delivery] = deque()
        self.queued_bytes = 0
        self.waiting: dict[bytes, int] = {}  # how many messages of each topic are in the queue
        self.window = 0
        self.next_packet_id = 1
        self.unreleased: set[int] = set()  # QoS 2 packet ids received and not yet released
        self.will: PendingWill | None = None
        self.snapshots: list[Snapshot] = []
        self.snapshot_turn = False
        self.sensor: SensorState | None = None  # what MQTT-SN keeps beside the session
        self.progress_ms = now_ms  # when the client last acknowledged something
        self.certified = False  # its connection showed a certificate

    def has_room(self) -> bool:
        """Whether one more QoS 1 or 2 message could leave at once."""
        connection = self.connection
        return (
            connection is not None
            and not self.queue
            and len(self.inflight) < self.window
            and connection.outbox_bytes < connection.outbox_limit
        )

    def is_crowded(self, now_ms: int) -> bool:
        """Whether a publisher that has only this receiver had better wait a moment.

        Only for clients that make progress: one that has stopped reading or acknowledging holds nobody up.
        """
        connection = self.connection
        if connection is None:
            return False
        if len(self.queue) > CROWDED_QUEUE:
            return now_ms - self.progress_ms < PATIENCE_MS
        if connection.outbox_bytes < CROWDED_BYTES:
            return False
        return not connection.blocked or now_ms - connection.blocked_since_ms < PATIENCE_MS

    def push(self, delivery: Delivery) -> None:
        """Put a message at the end of the queue."""
        message = delivery.message
        self.queue.append(delivery)
        self.queued_bytes += message.size()
        field = message.topic_field
        self.waiting[field] = self.waiting.get(field, 0) + 1

    def pull(self) -> Delivery:
        """Take the first message out of the queue."""
        delivery = self.queue.popleft()
        message = delivery.message
        self.queued_bytes -= message.size()
        field = message.topic_field
        count = self.waiting[field]
        if count == 1:
            del self.waiting[field]
        else:
            self.waiting[field] = count - 1
        return delivery

    def has_yet_to_resend(self, topic_field: bytes) -> bool:
        """Whether a message of this topic was under way before the client came back and is not under way again."""
        for packet_id in self.resending:
            delivery = self.inflight.get(packet_id)
            if delivery is not None and delivery.message.topic_field == topic_field:
                return True
        return False

    def take_sequence(self) -> int:
        sequence = self.next_sequence
        self.next_sequence = sequence + 1
        return sequence

    def take_packet_id(self) -> int:
        """An unused, non-zero packet id [3.1.1: MQTT-2.3.1-4] [5: MQTT-2.2.1-4]. The window leaves one free."""
        packet_id = self.next_packet_id
        while packet_id in self.inflight:
            packet_id = packet_id + 1 if packet_id < LAST_PACKET_ID else 1
        self.next_packet_id = packet_id + 1 if packet_id < LAST_PACKET_ID else 1
        return packet_id
