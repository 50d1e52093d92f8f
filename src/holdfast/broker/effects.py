"""What a call into the broker asks of the world, and what the broker counts while it runs.

One `Effects` is used again and again: every call fills it, the driver carries it out and empties it before the next.
"""

from typing import final

from holdfast.broker.session import Connection


@final
class Accepted:
    """What became of a publish: the offset that the log gave it, and the reason code of MQTT 5."""

    def __init__(self, offset: int, reason: int) -> None:
        self.offset = offset
        self.reason = reason


@final
class Effects:
    """In the order in which they are carried out: `records` are to be kept together, `writes` are connections with
    bytes in their outbox (which wait for the records where `Outbox.waits` says so), `closes` are closed after that, and
    `notes` are lines of diagnostics. `accepted` is the answer to a publish by the server itself or its API.
    """

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.writes: list[Connection] = []
        self.closes: list[Connection] = []
        self.notes: list[tuple[Connection, str]] = []
        self.accepted: Accepted | None = None

    def is_empty(self) -> bool:
        return not self.records and not self.writes and not self.closes

    def write_to(self, connection: Connection) -> None:
        """List a connection that has something in its outbox."""
        outbox = connection.outbox
        if not outbox.listed:
            outbox.listed = True
            self.writes.append(connection)


@final
class Counters:
    def __init__(self) -> None:
        self.messages_received = [0, 0, 0]  # by QoS
        self.messages_sent = [0, 0, 0]
        self.bytes_received = 0
        self.bytes_sent = 0
        self.payload_received = 0
        self.payload_sent = 0
        self.packets_received = 0
        self.received_by_version = [0] * 8  # publishes, by protocol version (3, 4, 5; 1 and 2 for MQTT-SN)
        self.sent_by_version = [0] * 8
        self.bytes_received_by_version = [0] * 8
        self.bytes_sent_by_version = [0] * 8
        self.datagrams_dropped = 0  # that were no packet, came from strangers too often, or asked for more than allowed
        self.connections_opened = 0
        self.connects_refused = 0
        self.connected_now = 0
        self.connected_most = 0
        self.sessions_taken_over = 0
        self.sessions_expired = 0
        self.protocol_errors = 0
        self.publishes_refused = 0
        self.dropped_slow = 0  # QoS 0 for a reader that does not keep up
        self.dropped_queue_full = 0
        self.dropped_expired = 0
        self.dropped_too_large = 0
        self.dropped_no_member = 0
        self.dropped_not_allowed = 0  # the right to receive was lost while it waited
        self.snapshots_begun = 0
        self.snapshots_ended = 0
        self.snapshot_messages = 0
        self.wills_published = 0

    def dropped(self) -> int:
        return (
            self.dropped_slow
            + self.dropped_queue_full
            + self.dropped_expired
            + self.dropped_too_large
            + self.dropped_no_member
            + self.dropped_not_allowed
        )
