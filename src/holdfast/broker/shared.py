"""The log that many nodes write to, as one node sees it: what it proposes, and what comes back in the order of all.

*Admit* happens on the node with the connection, and ends here: `propose` takes an entry and what is to be done when it
comes back. Entries leave in frames (`take_frame`). *Order* is the log's. `apply` takes each of its messages, in order,
on every node alike; what follows for clients of this node leaves with the effects of that call. An entry that has come
back is on the disks of most log servers, so nothing has to wait any longer.
"""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, final

from holdfast.broker import kept
from holdfast.broker.applying import apply_entry, go_on, on_due
from holdfast.broker.batch import Batch
from holdfast.broker.effects import Accepted, Effects
from holdfast.broker.entries import (
    BARRIER_ENTRY,
    FORMAT,
    NO_EXPIRY,
    NODE_UP,
    WILL_BY_RULE,
    WILL_DROPPED,
    AttachEntry,
    CopyItem,
    NodeUpEntry,
    encode_ack,
    encode_attach,
    encode_copy,
    encode_detach,
    encode_end_session,
    encode_group_done,
    encode_kick,
    encode_missed,
    encode_node_up,
    encode_publish,
    encode_release,
    encode_set_will,
    encode_settings,
    encode_snapshot_end,
    encode_subscribe,
    encode_texts,
    encode_unsubscribe,
    encode_verify,
)
from holdfast.broker.entries import DROP_WILLS as DROP_WILLS_KIND
from holdfast.broker.frame import NO_HASH, FrameHead, chained, decode_head, encode_frame, entries_of
from holdfast.broker.interest import Interest
from holdfast.broker.log import Flushed, Log
from holdfast.broker.message import NEVER, Message
from holdfast.broker.node_records import PositionRecord, encode_position
from holdfast.broker.pending import (
    ACCEPTED,
    ACKNOWLEDGE,
    CALL,
    NOTHING,
    RELEASED,
    SUBSCRIBED,
    UNSUBSCRIBED,
    WELCOME,
    Member,
    Pending,
    Then,
)
from holdfast.broker.records import Publishers
from holdfast.broker.session import Connection, RestingSnapshot, Session, Snapshot
from holdfast.broker.subscription import PendingFilters
from holdfast.errors import StoreError, UsageError
from holdfast.protocol.mqtt.connection import CONNECTED
from holdfast.protocol.mqtt.packets import Connect, SubscriptionRequest, Will
from holdfast.protocol.mqtt.reasons import SUCCESS

if TYPE_CHECKING:
    from holdfast.broker.core import Broker

# How many of the last positions are remembered, so that what others say of them can be compared.
REMEMBERED: Final = 4096

ENTRY_COST: Final = 4  # the length in front of an entry
EXPIRE_QUANTUM: Final = 2000
LIST_BYTES: Final = 64 * 1024  # of the filters in one entry, unless one alone has more
FILTER_COST: Final = 8


@final
class SharedLog(Log):
    """The log of a node that shares it. What follows from the entries is kept in a log of the node's own (`local`), so
    that it need not read everything again when it starts; nobody waits for that.

    Invariants: entries get their offsets while they are applied, at no other time; so all nodes give the same ones.
    """

    def __init__(self, local: Log, history_filters: list[bytes], records_live: bool = False) -> None:
        super().__init__(
            waits=False,
            waits_to_deliver=False,
            keeps_state=True,
            history_filters=history_filters,
            records_live=records_live,
        )
        self.local: Final = local
        self.position = local.position
        self.durable = local.position
        self.applying = False
        self.has_much: Callable[[], bool] | None = None  # so much waits to be ordered that clients had better wait
        self.flushes: Callable[[Flushed], None] | None = None

    def order(self, count: int) -> int:
        if not self.applying:
            raise UsageError("an entry was ordered that did not come from the log")
        first = self.position + 1
        self.position += count
        return first

    def order_beside(self, count: int, retained: bool) -> int:
        if self.applying:
            return self.order(count)
        # Behind everything that was ordered; what is retained beside the log is a part of what is there now.
        return self.position if retained else self.position + 1

    def append(self, records: Batch, waited_for: bool) -> int:
        self.local.position = self.position
        self.local.append(records, False)
        self.durable = self.position
        return 0

    def flush(self, done: Flushed) -> None:
        assert self.flushes is not None
        self.flushes(done)

    def hand_over(self) -> None:
        self.local.hand_over()

    def is_behind(self) -> bool:
        return self.local.is_behind() or (self.has_much is not None and self.has_much())


@final
class Due:
    def __init__(self, at_ms: int, session: Session, is_will: bool) -> None:
        self.at_ms: Final = at_ms
        self.session: Final = session
        self.is_will: Final = is_will


@final
class Shared:
    """Invariants: `pending` has one item for each entry that this instance has proposed and that has not come back, in
    order; `connections` are the sessions that are attached, by what the log knows the connection by.
    """

    def __init__(self, broker: "Broker", log: SharedLog, node: str, fresh_reads: bool = True) -> None:
        self.broker: Final = broker
        self.log: Final = log
        self.node: Final = node
        self.fresh_reads: Final = fresh_reads
        self.publishers: Final = Publishers()
        self.interest: Final = Interest()
        log.flushes = self.flush
        # What was read.
        self.sequence = 0
        self.chain: bytes = NO_HASH
        self.time_ms = 0
        self.members: dict[str, Member] = {}
        self.connections: dict[int, Session] = {}
        self.timers: list[tuple[int, int, int, Due]] = []
        self.timed = 0
        self.recent: dict[int, bytes] = {}  # the hashes at the last sequences
        self.contradictions: list[str] = []  # what others have read differently
        self.settings = b""
        self.passed_over = 0
        # What was proposed.
        self.instance = 0  # 0: this node is not part of the cluster now
        self.counter = 0  # of the last frame that was taken
        self.returned = 0  # of the last own frame that came back
        self.entries: deque[bytes] = deque()
        self.size = 0
        self.pending: deque[Pending] = deque()
        self.barrier: Pending | None = None  # that has not left yet: whoever reads now may wait for the same one
        self.ticking = False
        self.accepts = True  # new clients; not while the cluster has no quorum, or this node is being drained
        self.saw_gap = False  # an own frame was passed over, since one before it is missing
        self.settled: list[Pending] = []  # what waited for entries of the message at hand
        self.read_on: list[Connection] = []  # whose next packets may be handled
        self.gone: list[Pending] = []
        self.on_verify: Callable[[int], None] | None = None
        self.on_settings: Callable[[bytes], None] | None = None

    # Proposing.

    def propose(self, entry: bytes, pending: Pending) -> None:
        if self.instance == 0:
            self.gone.append(pending)  # nobody would count it: the first that counts says that this node begins
            return
        connection = pending.connection
        if connection is not None:
            connection.under_way += 1
        self.entries.append(entry)
        self.size += len(entry) + ENTRY_COST
        self.pending.append(pending)

    def begin(self, instance: int, address: str, version: str) -> None:
        """Be a part of the cluster from now on, as a new instance."""
        self.instance = instance
        self.counter = 0
        self.returned = 0
        self.propose(encode_node_up(NodeUpEntry(instance, FORMAT, address, version)), Pending(NOTHING, None))

    def leave(self) -> None:
        """Forget all that was proposed: nobody will count it. What waited for it is told so."""
        self.instance = 0
        self.entries.clear()
        self.size = 0
        self.barrier = None
        self.ticking = False
        self.gone.extend(self.pending)
        self.pending.clear()

    def take_frame(self, most: int, now_ms: int) -> bytes | None:
        """Return what was proposed as one frame of at most so many bytes, unless one entry alone has more; None when
        there is nothing to send.
        """
        if not self.entries or self.instance == 0:
            return None
        entries: list[bytes] = []
        size = 0
        while self.entries:
            entry = self.entries[0]
            if entries and size + len(entry) + ENTRY_COST > most:
                break
            entries.append(self.entries.popleft())
            size += len(entry) + ENTRY_COST
        self.size -= size
        if not self.entries:
            self.barrier = None
        self.counter += 1
        head = FrameHead(self.node, self.instance, self.counter, self.sequence, self.log.position, now_ms, self.chain)
        return encode_frame(head, entries, self.oldest_format())

    def publish(
        self, connection: Connection, message: Message, packet_id: int, expiry_ms: int, can_be_told: bool
    ) -> None:
        pending = Pending(ACKNOWLEDGE if message.qos > 0 else NOTHING, connection)
        pending.qos = message.qos
        pending.packet_id = packet_id
        named = packet_id if message.qos == 2 else 0
        self.propose(encode_publish(connection.connection_id, named, message, expiry_ms, can_be_told), pending)

    def publish_then(self, connection: Connection, message: Message, packet_id: int, then: Then) -> None:
        """Publish, and call with the reason when it is done."""
        pending = Pending(CALL, connection)
        pending.then = then
        named = packet_id if message.qos == 2 else 0
        self.propose(encode_publish(connection.connection_id, named, message, NO_EXPIRY, False), pending)

    def publish_as(self, message: Message, expiry_ms: int) -> Accepted:
        """Publish for the API; the offset and the reason are filled in when they are known."""
        pending = Pending(ACCEPTED, None)
        pending.accepted = Accepted(0, SUCCESS)
        self.propose(encode_publish(0, 0, message, expiry_ms, False), pending)
        return pending.accepted

    def answer_in_turn(self, connection: Connection, qos: int, packet_id: int, reason: int) -> None:
        """Acknowledge what needs no entry, behind what was published before it [MQTT-4.6.0-2]."""
        pending = Pending(ACKNOWLEDGE, connection)
        pending.qos = qos
        pending.packet_id = packet_id
        pending.reason = reason
        self.propose(BARRIER_ENTRY, pending)

    def attach(
        self, connection: Connection, attach: AttachEntry, packet: Connect, assigned: bool, auth_data: bytes
    ) -> None:
        connection.parked = True
        pending = Pending(WELCOME, connection)
        pending.connect = packet
        pending.assigned = assigned
        pending.auth_data = auth_data
        self.propose(encode_attach(attach), pending)

    def attach_then(self, connection: Connection, attach: AttachEntry, then: Then) -> None:
        connection.parked = True
        pending = Pending(CALL, connection)
        pending.then = then
        self.propose(encode_attach(attach), pending)

    def detach(self, connection: Connection, session: Session) -> None:
        """Tell that a connection has ended. Until that has come back, the session is attached to it for all nodes."""
        session.connection = None
        kept.let_rest(self.broker, session)
        kept.spread_of(session).outgoing.clear()
        if self.instance and connection.connection_id:
            will = WILL_DROPPED if connection.drops_will else WILL_BY_RULE
            self.propose(encode_detach(connection.connection_id, will, connection.new_expiry_s), Pending(NOTHING, None))

    def set_will(self, connection: Connection, will: Will | None) -> None:
        self.propose(encode_set_will(connection.connection_id, will), Pending(NOTHING, connection))

    def subscribe(self, connection: Connection, filters: PendingFilters, requests: list[SubscriptionRequest]) -> None:
        """Propose the filters that were admitted; with none, only find out what the log has come to."""
        connection.parked = True
        pending = Pending(SUBSCRIBED, connection)
        pending.filters = filters
        self.propose_filters(connection, filters.identifier, requests, pending)

    def subscribe_then(
        self, connection: Connection, identifier: int, requests: list[SubscriptionRequest], then: Then
    ) -> None:
        pending = Pending(CALL, connection)
        pending.then = then
        self.propose_filters(connection, identifier, requests, pending)

    def propose_filters(
        self, connection: Connection, identifier: int, requests: list[SubscriptionRequest], pending: Pending
    ) -> None:
        """Propose filters in as many entries as they need: a packet may be larger than a message of the log."""
        if not requests:
            self.propose(BARRIER_ENTRY, pending)
            return
        first = 0
        size = 0
        for index in range(len(requests)):
            filter_size = len(requests[index].topic_filter) + FILTER_COST
            if size > 0 and size + filter_size > LIST_BYTES:
                some = encode_subscribe(connection.connection_id, identifier, requests[first:index])
                self.propose(some, Pending(NOTHING, connection))
                first = index
                size = 0
            size += filter_size
        self.propose(encode_subscribe(connection.connection_id, identifier, requests[first:]), pending)

    def unsubscribe(self, connection: Connection, filters: PendingFilters, topic_filters: list[bytes]) -> None:
        connection.parked = True
        pending = Pending(UNSUBSCRIBED, connection)
        pending.filters = filters
        first = 0
        size = 0
        for index in range(len(topic_filters)):
            filter_size = len(topic_filters[index]) + FILTER_COST
            if size > 0 and size + filter_size > LIST_BYTES:
                some = encode_unsubscribe(connection.connection_id, topic_filters[first:index])
                self.propose(some, Pending(NOTHING, connection))
                first = index
                size = 0
            size += filter_size
        self.propose(encode_unsubscribe(connection.connection_id, topic_filters[first:]), pending)

    def unsubscribe_then(self, connection: Connection, topic_filter: bytes, then: Then) -> None:
        pending = Pending(CALL, connection)
        pending.then = then
        self.propose(encode_unsubscribe(connection.connection_id, [topic_filter]), pending)

    def acknowledge(self, connection: Connection, kind: int, packet_id: int, reason: int) -> None:
        self.propose(encode_ack(connection.connection_id, kind, packet_id, reason), Pending(NOTHING, None))

    def release(self, connection: Connection, packet_id: int, then: Then | None = None) -> None:
        pending = Pending(RELEASED if then is None else CALL, connection)
        pending.packet_id = packet_id
        pending.then = then
        self.propose(encode_release(connection.connection_id, packet_id), pending)

    def give_back(self) -> None:
        """Tell what sessions have done with that groups had given to them."""
        given_back = self.broker.recorder.given_back
        done: dict[int, list[int]] = {}
        for session, sequence in given_back:
            spread = session.spread
            if spread is not None and spread.connection_id:
                done.setdefault(spread.connection_id, []).append(sequence)
        given_back.clear()
        for connection_id in done:
            self.propose(encode_group_done(connection_id, done[connection_id]), Pending(NOTHING, None))

    def copy(self, connection: Connection, snapshot: Snapshot, items: list[CopyItem]) -> None:
        self.propose(encode_copy(connection.connection_id, snapshot.record_id, items), Pending(NOTHING, None))

    def miss(self, connection: Connection, resting: RestingSnapshot, topic: bytes) -> None:
        self.propose(encode_missed(connection.connection_id, resting.snapshot_id, topic), Pending(NOTHING, None))

    def end_snapshot(self, connection: Connection, snapshot: Snapshot) -> None:
        self.propose(encode_snapshot_end(connection.connection_id, snapshot.record_id), Pending(NOTHING, None))

    def resend(self, session: Session) -> None:
        kept.resend(self.broker, session)

    def go_on(self, session: Session) -> None:
        """Write what has waited for the socket of a client."""
        kept.go_on(self.broker, session)

    def advance(self, snapshot: Snapshot, quantum: int) -> bool:
        return kept.advance(self.broker, snapshot, quantum)

    def kick(self, client_id: str, reason: int, text: str) -> None:
        self.propose(encode_kick(client_id, reason, text), Pending(NOTHING, None))

    def end_session(self, client_id: str) -> None:
        self.propose(encode_end_session(client_id), Pending(NOTHING, None))

    def drop_wills(self, usernames: frozenset[str]) -> None:
        names = sorted([name.encode() for name in usernames])
        if names:
            self.propose(encode_texts(DROP_WILLS_KIND, names), Pending(NOTHING, None))

    def change_settings(self, settings: bytes) -> None:
        if settings != self.settings:
            self.propose(encode_settings(settings), Pending(NOTHING, None))

    def verify(self, question: int) -> None:
        self.propose(encode_verify(question), Pending(NOTHING, None))

    def flush(self, done: Flushed) -> None:
        """Call when all that was proposed so far has come back, or with an error when it never will."""

        def on_back(reason: int) -> None:
            error = None if reason < 0x80 else StoreError("the cluster did not take the entries: it has no quorum now")
            done(error)

        pending = Pending(CALL, None)
        pending.then = on_back
        self.propose(BARRIER_ENTRY, pending)

    def tick(self, now_ms: int) -> None:
        """Let the log tell the time when something is due: it is done when that comes back, by all nodes alike."""
        if self.ticking or self.instance == 0:
            return
        is_due = len(self.timers) > 0 and self.timers[0][0] <= now_ms
        if is_due or self.broker.retained.expiry.is_due(now_ms):
            self.ticking = True
            pending = Pending(CALL, None)
            pending.then = self.on_ticked
            self.propose(BARRIER_ENTRY, pending)

    def on_ticked(self, reason: int) -> None:
        self.ticking = False

    # Applying.

    def apply(self, sequence: int, time_ms: int, frame: bytes) -> Effects:
        """Apply the next message of the log; returns what follows for the clients of this node.

        Raises StoreError when it cannot be read: then this node must not go on.
        """
        if sequence <= self.sequence:
            raise UsageError(f"message {sequence} of the log came after {self.sequence}")
        head = decode_head(frame)
        broker = self.broker
        log = self.log
        if time_ms > self.time_ms:
            self.time_ms = time_ms
        broker.begin(self.time_ms)
        log.applying = True
        self.sequence = sequence
        self.chain = chained(self.chain, frame)
        self.remember(head)
        self.run_timers()
        entries = entries_of(frame)
        counter = 0
        if self.counts(head, entries):
            counter = head.counter
            self.member(head.node).counter = counter
            own = head.node == self.node and head.instance == self.instance
            if own:
                self.returned = counter
            for entry in entries:
                pending = self.pending.popleft() if own and self.pending else None
                apply_entry(self, entry, head.node, pending)
        else:
            self.passed_over += 1
            if head.node == self.node and head.instance == self.instance and head.counter > self.returned:
                self.saw_gap = True
        recorder = broker.recorder
        recorder.finish()
        offset = log.order(1)
        broker.retained.expire(self.time_ms, offset, EXPIRE_QUANTUM)
        recorder.add(encode_position(offset, PositionRecord(sequence, self.time_ms, self.chain, head.node, counter)))
        log.applying = False
        if self.settled:
            settled = self.settled
            self.settled = []
            for one in settled:
                go_on(self, one)
        if self.read_on:
            connections = self.read_on
            self.read_on = []
            for connection in connections:
                if connection.state == CONNECTED and not connection.parked:
                    broker.read_on(connection)
        return broker.finish()

    def counts(self, head: FrameHead, entries: list[bytes]) -> bool:
        """Return whether a frame is the next one of its node: repeats, what follows a gap, and what an instance sends
        that has been replaced or declared down are passed over.
        """
        member = self.members.get(head.node)
        if head.counter == 1 and len(entries) > 0 and entries[0][0] == NODE_UP:
            return member is None or head.instance > member.instance
        if member is None or not member.up or head.instance != member.instance:
            return False
        return head.counter == member.counter + 1

    def member(self, name: str) -> Member:
        member = self.members.get(name)
        if member is None:
            member = Member(name)
            self.members[name] = member
        return member

    def remember(self, head: FrameHead) -> None:
        """Keep the hash of this position, and compare what the writer had read with what was read here."""
        self.recent[self.sequence] = self.chain
        if len(self.recent) > 2 * REMEMBERED:
            for sequence in sorted(self.recent)[:REMEMBERED]:
                del self.recent[sequence]
        self.compare(head.node, head.seen, head.chain)

    def compare(self, node: str, sequence: int, chain: bytes) -> None:
        mine = self.recent.get(sequence)
        if mine is not None and mine != chain:
            self.contradictions.append(
                f"node {node} has read {chain.hex()} up to message {sequence}, this node {mine.hex()}"
            )

    def run_timers(self) -> None:
        """Do what is due by the time of the log, in an order that all nodes find."""
        while self.timers and self.timers[0][0] <= self.time_ms:
            due = heappop(self.timers)[3]
            on_due(self, due.session, due.is_will, due.at_ms)

    def schedule(self, at_ms: int, session: Session, is_will: bool) -> None:
        self.timed += 1
        key = session.record_id * 2 + (1 if is_will else 0)
        heappush(self.timers, (at_ms, key, self.timed, Due(at_ms, session, is_will)))

    # Asking.

    @property
    def is_member(self) -> bool:
        """Return whether this node's beginning has come back, and nobody has declared it down since."""
        member = self.members.get(self.node)
        return self.instance != 0 and member is not None and member.up and member.instance == self.instance

    def was_ended(self) -> bool:
        """Return whether the log says that this instance is down, or has been replaced."""
        member = self.members.get(self.node)
        if self.instance == 0 or member is None:
            return False
        return member.instance > self.instance or (member.instance == self.instance and not member.up)

    def unreturned(self) -> int:
        """Return how many frames have left and not come back."""
        return self.counter - self.returned

    def oldest_format(self) -> int:
        """Return the newest format of entries that all nodes read."""
        oldest: int = FORMAT
        for member in self.members.values():
            oldest = min(oldest, member.reads)
        return oldest


def expiry_of(message: Message) -> int:
    """Return the interval that a publisher named, in milliseconds, or NO_EXPIRY."""
    if message.expires_at_ms == NEVER or not message.interval_given:
        return NO_EXPIRY
    return message.expires_at_ms - message.stored_at_ms
