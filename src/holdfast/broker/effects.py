"""What a call into the broker asks of the world, what the broker counts while it runs, and what may leave when.

One `Effects` is used again and again: every call fills it, `Release` carries it out and empties it before the next.
*Persist, then acknowledge* is its one function `carry_out`: the records of a call go to the log, and the bytes that
depend on them wait for it. It reaches the world through the ports alone: `Log.append`, `Peer.write`, `Peer.close`.
"""

from collections import deque
from typing import Final, final

from holdfast.broker.batch import Batch
from holdfast.broker.log import Log
from holdfast.broker.message import Message, Publisher
from holdfast.broker.seen import Seen
from holdfast.broker.session import Connection
from holdfast.errors import StoreError

# Events of one call that are told one by one: a flood of them costs no more than counting.
SEEN_MOST: Final = 64


@final
class Accepted:
    """What became of a publish: the offset that the log gave it, and the reason code of MQTT 5."""

    def __init__(self, offset: int, reason: int) -> None:
        self.offset = offset
        self.reason = reason


@final
class LiveItem:
    """A message, or `count` of them as they came in (`frames`), that other nodes have subscribers for."""

    def __init__(self, nodes: list[str], message: Message | None, frames: bytes = b"") -> None:
        self.nodes: Final = nodes
        self.message: Final = message
        self.frames: Final = frames
        self.publisher: Publisher | None = None
        self.topic_field = b""
        self.is_v5 = False
        self.count = 0
        self.largest = 0


@final
class Effects:
    """In the order in which they are carried out: `records` are to be kept together, `writes` are connections with
    bytes in their outbox (which wait for the records where `Outbox.waits` says so), `closes` are closed after that, and
    `notes` are lines of diagnostics. `seen` is what operators may want to know of clients; `unseen` counts what there
    was no room for. `accepted` is the answer to a publish by the server itself or its API.
    """

    def __init__(self) -> None:
        self.records: Final = Batch()
        self.waits = False  # there is an outbox that waits for the records
        self.writes: list[Connection] = []
        self.closes: list[Connection] = []
        self.notes: list[tuple[Connection, str]] = []
        self.seen: list[Seen] = []
        self.unseen = 0
        self.accepted: Accepted | None = None
        self.live: list[LiveItem] = []  # for the clients of other nodes

    def write_to(self, connection: Connection) -> None:
        """List a connection that has something in its outbox."""
        outbox = connection.outbox
        if not outbox.listed:
            outbox.listed = True
            self.writes.append(connection)

    def has_room_to_see(self) -> bool:
        """Return whether one more event may be added to `seen`; if not, it is counted."""
        if len(self.seen) < SEEN_MOST:
            return True
        self.unseen += 1
        return False


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
        self.connects_accepted = 0
        self.connects_refused = 0
        self.logins_failed = 0
        self.disconnects = 0
        self.connected_now = 0
        self.connected_most = 0
        self.sessions_taken_over = 0
        self.sessions_expired = 0
        self.protocol_errors = 0
        self.publishes_refused = 0
        self.clients_sent_away = 0  # since they did not read what they had asked for
        self.publishes_denied = 0  # of these, for want of a right
        self.subscribes_denied = 0
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


@final
class Held:
    """Bytes for a connection that may leave when the log has reached `after`."""

    def __init__(self, after: int, connection: Connection, data: bytes) -> None:
        self.after: Final = after
        self.connection: Final = connection
        self.data: Final = data


@final
class Release:
    """Invariants: `held` is in the order of the offsets that its bytes wait for; `Outbox.held` counts those of a
    connection, and while there are any, all that the connection is sent goes there too; `closing` are connections to be
    closed when theirs have left; to the `relieved` more could be sent again, since what was held for them has left.
    """

    def __init__(self, log: Log, counters: Counters) -> None:
        self.log: Final = log
        self.counters: Final = counters
        self.held: deque[Held] = deque()
        self.closing: set[Connection] = set()
        self.appended = 0  # the last offset that something waits for
        self.settled = 0  # and how far it is known what became of it
        self.relieved: list[Connection] = []

    def carry_out(self, effects: Effects) -> None:
        """Keep the records, let go what may leave at once, hold back the rest, and close what is to be closed."""
        after = 0
        if effects.records.count > 0:
            after = self.log.append(effects.records, effects.waits or self.log.waits_to_deliver)
            if after > 0:
                self.appended = after
        elif self.log.waits_to_deliver and self.appended > self.settled and effects.writes:
            after = self.appended  # it may show what is not kept yet: a snapshot, of what was retained a moment ago
        effects.waits = False
        if effects.writes:
            holds_all = after > 0 and self.log.waits_to_deliver
            for connection in effects.writes:
                outbox = connection.outbox
                outbox.listed = False
                if outbox.held > 0 or holds_all or (after > 0 and outbox.waits):
                    if outbox.pieces:
                        last = after if after > 0 else self.held[-1].after
                        outbox.held += 1
                        outbox.held_size += outbox.size
                        self.held.append(Held(last, connection, outbox.drain()))
                elif outbox.pieces and not outbox.blocked:
                    self.log.wrote = True
                    if after == 0:
                        self.log.served += 1
                    self.write(connection, outbox.drain())
                outbox.waits = False
            effects.writes.clear()
        if effects.closes:
            closes = effects.closes
            effects.closes = []
            for connection in closes:
                self.close(connection)

    def close(self, connection: Connection) -> None:
        if connection.outbox.held > 0:
            self.closing.add(connection)
            return
        if connection.outbox.pieces:
            self.write(connection, connection.outbox.drain())
        connection.peer.close(connection.close_reason)

    def write(self, connection: Connection, data: bytes) -> None:
        self.counters.bytes_sent += len(data)
        self.counters.bytes_sent_by_version[connection.agreed.version & 7] += len(data)
        connection.peer.write(data)

    def on_durable(self, offset: int, error: StoreError | None) -> list[Connection]:
        """Let go what waited for this offset. Returns those who were to be told what could not be made durable."""
        if offset > self.settled:
            self.settled = offset
        held = self.held
        refused: list[Connection] = []
        while held and held[0].after <= offset:
            one = held.popleft()
            connection = one.connection
            outbox = connection.outbox
            outbox.held -= 1
            outbox.held_size -= len(one.data)
            if error is not None:
                refused.append(connection)
            elif outbox.blocked:  # the transport is full: it goes on waiting, as what nothing holds back does
                outbox.pieces.append(one.data)
                outbox.size += len(one.data)
            else:
                self.write(connection, one.data)
                if outbox.held == 0:
                    outbox.answers = 0
                    if outbox.wanted:
                        outbox.wanted = False
                        self.relieved.append(connection)
            if outbox.held == 0 and connection in self.closing:
                self.closing.remove(connection)
                self.close(connection)
        return refused
