"""Sessions of another broker as records of the log, the ones that this broker itself would have left.

They are only written, never loaded: the broker that is opened for it ends, and the next one finds them in the folder.
A message that several sessions wait for is stored once, like any other.
"""

from collections.abc import Callable, Iterable

from holdfast.broker.core import Broker
from holdfast.broker.message import Message, Publisher, topic_field
from holdfast.broker.records import encode_stored_message
from holdfast.broker.session_records import (
    RELEASING,
    UNACKNOWLEDGED,
    QueuedRecord,
    SessionRecord,
    SubscriptionRecord,
    encode_queued,
    encode_received,
    encode_sent,
    encode_session,
    encode_subscribed,
)
from holdfast.migration.inventory import FoundDelivery, FoundMessage, FoundSession
from holdfast.protocol.mqtt.packets import PROTOCOL_NAMES


class SessionRecorder:
    """Adds records to the effects of the call at hand: begin the broker's call before, and carry it out after."""

    def __init__(self, broker: Broker, now_ms: int) -> None:
        self.broker = broker
        self.now_ms = now_ms
        self.waiting: dict[FoundMessage, list[QueuedRecord]] = {}
        self.sent: list[tuple[int, int, int, int]] = []

    def record(self, sessions: Iterable[FoundSession]) -> None:
        """A message that sessions of several calls wait for is stored once for each."""
        for session in sessions:
            self.record_session(session)
        for message, entries in self.waiting.items():
            self.record_message(message, entries)
        for session_id, sequence, packet_id, stage in self.sent:
            self.add(encode_sent, session_id, sequence, packet_id, stage)
        self.waiting = {}
        self.sent = []

    def add(self, encode: Callable[..., bytes], *given: object) -> int:
        offset = self.broker.log.order(1)
        self.broker.recorder.add(encode(offset, *given))
        return offset

    def record_session(self, session: FoundSession) -> None:
        session_id = self.broker.log.order(1)
        record = SessionRecord(
            session_id,
            session.client_id,
            session.owner,
            session.version,
            session.expiry_interval_s,
            self.now_ms,
            session.disconnected_at_ms or self.now_ms,
        )
        self.broker.recorder.add(encode_session(session_id, record))
        for one in session.subscriptions.values():
            self.add(encode_subscribed, SubscriptionRecord(session_id, one.topic_filter, one.options, one.identifier))
        for packet_id in session.received:
            self.add(encode_received, session_id, packet_id)
        for sequence, delivery in enumerate(session.queue, 1):
            self.record_delivery(session_id, sequence, delivery)

    def record_delivery(self, session_id: int, sequence: int, delivery: FoundDelivery) -> None:
        entry = QueuedRecord(session_id, sequence, 0, delivery.qos, delivery.retain, list(delivery.identifiers))
        self.waiting.setdefault(delivery.message, []).append(entry)
        if delivery.packet_id:
            stage = RELEASING if delivery.released else UNACKNOWLEDGED
            self.sent.append((session_id, sequence, delivery.packet_id, stage))

    def record_message(self, message: FoundMessage, entries: list[QueuedRecord]) -> None:
        offset = self.broker.log.order(1)
        self.broker.recorder.add(encode_stored_message(offset, as_message(message, offset, self.now_ms)))
        self.add(encode_queued, offset, entries)


def as_message(found: FoundMessage, offset: int, now_ms: int) -> Message:
    """A message as the core knows it, from a publisher as far as the source tells."""
    protocol = PROTOCOL_NAMES[5] if found.properties or found.expires_at_ms else PROTOCOL_NAMES[4]
    return Message(
        topic_field(found.topic),
        found.payload,
        found.qos,
        found.retain,
        found.properties,
        Publisher(found.client_id, found.username, protocol),
        offset,
        now_ms,
        found.expires_at_ms,
        found.expires_at_ms != 0,
    )
