"""A client as the core knows it: its connection, the session that outlives it, and the messages on their way.

These are the nouns; what happens to them stands in the modules named after verbs. They refer to each other, so they
stand together: a session has a connection while one is there, a subscription belongs to a session, a route leads to
sessions, and a snapshot feeds one.
"""

from collections import deque
from typing import TYPE_CHECKING, Final, final

from holdfast.broker.message import Message, Publisher
from holdfast.broker.ports import OutboundAdapter, Peer, TopicCursor
from holdfast.broker.settings import Policy
from holdfast.broker.sn.ids import SensorState
from holdfast.broker.topics import matches
from holdfast.protocol.mqtt.connection import WAITING
from holdfast.protocol.mqtt.packets import V5, Connect, Will

if TYPE_CHECKING:
    from holdfast.broker.subscription import PendingFilters

NO_ONE: Final = Publisher("", "", "")
UNLIMITED: Final = 1 << 60
FOREVER: Final = 0xFFFFFFFF  # a session expiry interval
LAST_PACKET_ID: Final = 65535
# A client asks for a mark at the end of a snapshot with this user property, and CONNACK says so too if it will be sent.
SNAPSHOT_PROPERTY: Final = "holdfast-snapshot"
MARK: Final = "mark"

# Where a QoS 2 delivery stands; QoS 1 never leaves the first.
AWAITING_ACK: Final = 0
AWAITING_COMPLETE: Final = 1

# A receiver with more than this on its way is behind: publishers that serve mostly such are read from more slowly, for
# as long as the receiver makes progress at all.
HIGH_WATER_BYTES: Final = 1024 * 1024
HIGH_WATER_QUEUE: Final = 1000
PATIENCE_MS: Final = 1000

# What the answers to a client may cost that does not read them, and what each costs beside its bytes.
MOST_ANSWERS: Final = 1024 * 1024
ANSWER_COST: Final = 48

# Longer topics are not remembered for speed: what is remembered of one client, or of all, has a bound in bytes.
CACHED_TOPIC: Final = 1024
MOST_ALIASES: Final = 4096

DOLLAR: Final = 0x24
SCATTER: Final = 2654435761  # so that neighbouring offsets do not have neighbouring turns


# Connections.


@final
class Inbound:
    """What has come in and is not handled yet: the beginning of a packet, and how many bytes it needs."""

    def __init__(self) -> None:
        self.partial: list[bytes] = []
        self.size = 0
        self.needed = 0
        self.aliases: dict[int, bytes] = {}

    def add(self, data: bytes) -> None:
        self.partial.append(data)
        self.size += len(data)

    def drain(self) -> bytes:
        """Remove everything that was gathered, and return it."""
        data = b"".join(self.partial)
        self.partial.clear()
        self.size = 0
        return data


@final
class Outbox:
    """What is to go out, in pieces that are joined once.

    Invariants: `size` is the length of all `pieces`; `listed` exactly while the connection is in `Effects.writes`;
    `held` counts the stretches of bytes that are held back until their entries are durable, `held_size` their bytes.
    """

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.size = 0
        self.limit = UNLIMITED
        self.listed = False
        self.waits = False  # what is in it acknowledges, or reveals, entries of the call at hand
        self.held = 0
        self.held_size = 0
        self.wanted = False  # something could not be added for what is held: go on when that has left
        self.answers = 0  # what the answers cost that have not left: acknowledgements and the like
        self.blocked = False  # the transport is full: gather, do not write
        self.in_transport = 0  # bytes that it had not sent when it said so
        self.blocked_since_ms = 0
        self.aliases: dict[bytes, int] = {}

    def drain(self) -> bytes:
        """Remove everything that was gathered, and return it as one write."""
        pieces = self.pieces
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self.size = 0
        if self.held == 0:
            self.answers = 0
        return data

    def is_full(self) -> bool:
        """Return whether so much waits for the client that it is given no more messages for now."""
        if self.size + self.held_size + self.in_transport < self.limit:
            return False
        self.wanted = self.held > 0
        return True

    def holds_much(self, water: int) -> bool:
        """Return whether more than `water` bytes wait for the log, so that it is better to wait with them."""
        if self.held_size < water:
            return False
        self.wanted = True
        return True

    def is_choked(self) -> bool:
        """Return whether the client asks for answers faster than it reads them: then nothing more is read from it."""
        return self.answers > MOST_ANSWERS

    def block(self, now_ms: int, in_transport: int) -> None:
        """Note that the transport is full. It says so while it is written to, so nothing else may follow from this."""
        self.blocked = True
        self.blocked_since_ms = now_ms
        self.in_transport = in_transport

    def unblock(self) -> None:
        self.blocked = False
        self.in_transport = 0

    def may_learn_alias(self, field: bytes, most: int) -> bool:
        """Return whether a topic is given an alias. A client may allow 65 535 of them; here they take memory."""
        return len(self.aliases) < min(most, MOST_ALIASES) and len(field) <= CACHED_TOPIC

    def clear(self) -> None:
        self.pieces.clear()
        self.size = 0
        self.answers = 0


@final
class Agreed:
    """What CONNECT says about the client's end of the wire."""

    def __init__(self) -> None:
        self.version = 4
        self.is_v5 = False
        self.max_packet_size = UNLIMITED
        self.alias_maximum = 0
        self.reports_problems = True
        self.wants_meta = False
        self.wants_mark = False
        self.plain = True  # takes any QoS 0 frame of its version as it is
        self.keep_alive_ms = 0

    def set_version(self, version: int) -> None:
        self.version = version
        self.is_v5 = version == V5

    def read(self, packet: Connect) -> None:
        self.set_version(packet.version)
        properties = packet.properties
        if properties is None:
            return
        if properties.maximum_packet_size is not None:
            self.max_packet_size = properties.maximum_packet_size
        if properties.topic_alias_maximum is not None:
            self.alias_maximum = properties.topic_alias_maximum
        if properties.request_problem_info is not None:
            self.reports_problems = properties.request_problem_info != 0
        self.wants_mark = properties.user_property(SNAPSHOT_PROPERTY) == MARK
        self.wants_meta = properties.user_property("holdfast-retained-meta") == "on"
        self.plain = self.alias_maximum == 0


@final
class Connection:
    """Invariants: `session.connection is self` exactly while `state` is CONNECTED; nothing is added to the outbox of a
    CLOSED connection.
    """

    def __init__(self, peer: Peer, now_ms: int, identity: str = "") -> None:
        self.peer: Final = peer
        self.identity: Final = identity  # the name that the transport vouches for, such as a certificate's
        self.state: int = WAITING  # see protocol/mqtt/connection.py
        self.inbound: Final = Inbound()
        self.outbox: Final = Outbox()
        self.agreed: Final = Agreed()
        self.session: Session | None = None
        self.adapter: OutboundAdapter | None = None  # for a client that is not sent MQTT packets
        self.busy = False  # its adapter accepts no snapshot messages now; it wakes the snapshots when it does
        self.publisher = NO_ONE
        self.client_id = ""
        self.username = ""
        self.connect: Connect | None = None  # while authenticating
        self.ticket = 0
        self.auth_method = ""  # of MQTT 5, for the whole connection [5: MQTT-4.12.0-5]
        self.exchanging = False  # the client has been asked something: AUTH comes next
        self.backpressured = False  # most receivers of what it publishes are behind: read from it a little later
        self.close_reason = ""
        self.last_seen_ms = now_ms
        self.connected_at_ms = now_ms
        self.rights: dict[bytes, bool] = {}
        self.rights_generation = 0
        # The route of the topic published last: most clients publish to the same topic again.
        self.last_topic = b""
        self.last_route: Route | None = None
        self.pending: PendingFilters | None = None  # nothing more of what it sent is handled before this is answered
        # Only where nodes share a log.
        self.connection_id = 0  # what the log knows it by: the offset of its ATTACH
        self.under_way = 0  # entries that it has caused and that have not come back
        self.pings = 0  # PINGREQs that are answered behind them
        self.parked = False  # nothing more is handled before the log has answered
        self.drops_will = False
        self.new_expiry_s = -1
        self.reference = ""  # where else the client may connect, for a DISCONNECT that says so


# Sessions.


@final
class Delivery:
    """A message on its way to one session, at the QoS and with the flags that this session gets."""

    def __init__(
        self,
        message: Message,
        qos: int,
        retain: bool,
        identifiers: list[int] | None,
        group: "SharedGroup | None",
    ) -> None:
        self.message: Final = message
        self.qos: Final = qos
        self.retain: Final = retain
        self.identifiers: Final = identifiers
        self.group: Final = group
        self.stage: int = AWAITING_ACK
        self.sequence = 0  # its number in the log; 0: not in it
        # Only where nodes share a log: they agree on the packet identifier before anything is written.
        self.packet_id = 0
        self.dup = False
        self.copy_of = 0  # the snapshot that it belongs to, while it waits in the queue
        self.shared = group is not None  # by a group, though it may not be known any more by which


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
    at most `window` of them are under way, the others are in `resending`; `attached` while the client is connected,
    to this node or, in a broker that follows another's log, elsewhere (`connection` is None then).
    """

    def __init__(self, client_id: str, owner: str, now_ms: int) -> None:
        self.client_id: Final = client_id
        self.owner: Final = owner
        self.created_at_ms: Final = now_ms
        self.connection: Connection | None = None
        self.attached = False
        self.record_id = 0  # what the log knows it by; 0: not at all
        self.kept = False  # it outlives its connection, and the log knows its subscriptions and what waits for it
        self.spread: SpreadSession | None = None  # what all nodes know of it, where they share a log
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
        self.snapshots: dict[Snapshot, None] = {}  # in the order of their beginning
        self.snapshot_turn = False
        self.sensor: SensorState | None = None  # what MQTT-SN keeps beside the session
        self.progress_ms = now_ms  # when the client last acknowledged something
        self.certified = False  # its connection showed a certificate
        self.counted = False  # among those that its owner has, see `Broker.count_kept`

    def attach(self, protocol: str, expiry_s: int) -> None:
        """The client is connected, here or elsewhere."""
        self.attached = True
        self.protocol = protocol
        self.expiry_s = expiry_s
        self.expires_at_ms = 0

    def detach(self, at_ms: int) -> None:
        """The client has lost its connection at that time: from then on its end and its will are counted."""
        self.connection = None
        self.attached = False
        self.window = 0
        if self.expiry_s != FOREVER:
            self.expires_at_ms = at_ms + self.expiry_s * 1000
        if self.will is not None:
            self.will.due_ms = at_ms + self.will.delay_s * 1000

    def has_window(self) -> bool:
        return len(self.inflight) < self.window

    def has_room(self) -> bool:
        """Return whether one more QoS 1 or 2 message could leave at once."""
        spread = self.spread
        if spread is not None:  # as every node knows it
            if not self.kept:
                return len(spread.given) < spread.window
            return len(self.queue) == 0 and len(self.inflight) < self.window
        connection = self.connection
        return (
            connection is not None
            and not self.queue
            and len(self.inflight) < self.window
            and not connection.outbox.is_full()
        )

    def is_over_high_water(self, now_ms: int) -> bool:
        """Return whether a publisher that has only this receiver had better wait a moment.

        Only for clients that make progress: one that has stopped reading or acknowledging holds no publisher up.
        """
        connection = self.connection
        if connection is None:
            return False
        if len(self.queue) > HIGH_WATER_QUEUE:
            return now_ms - self.progress_ms < PATIENCE_MS
        outbox = connection.outbox
        if outbox.size < HIGH_WATER_BYTES:
            return False
        return not outbox.blocked or now_ms - outbox.blocked_since_ms < PATIENCE_MS

    def push(self, delivery: Delivery) -> None:
        """Put a message at the end of the queue."""
        message = delivery.message
        self.queue.append(delivery)
        self.queued_bytes += message.size()
        field = message.topic_field
        self.waiting[field] = self.waiting.get(field, 0) + 1

    def pull(self) -> Delivery:
        """Remove the first message of the queue and return it."""
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

    def remove_queued(self, delivery: Delivery) -> None:
        """Take one message out of the queue, wherever it stands."""
        for _ in range(len(self.queue)):
            other = self.pull()
            if other is not delivery:
                self.push(other)

    def has_yet_to_resend(self, topic_field: bytes) -> bool:
        """Return whether a message of this topic was under way before the client came back and is not yet again."""
        for packet_id in self.resending:
            delivery = self.inflight.get(packet_id)
            if delivery is not None and delivery.message.topic_field == topic_field:
                return True
        return False

    def new_sequence(self) -> int:
        sequence = self.next_sequence
        self.next_sequence = sequence + 1
        return sequence

    def new_packet_id(self) -> int:
        """Return an unused, non-zero packet id [3.1.1: MQTT-2.3.1-4] [5: MQTT-2.2.1-4]. The window leaves one free."""
        packet_id = self.next_packet_id
        while packet_id in self.inflight:
            packet_id = packet_id + 1 if packet_id < LAST_PACKET_ID else 1
        self.next_packet_id = packet_id + 1 if packet_id < LAST_PACKET_ID else 1
        return packet_id


@final
class RestingSnapshot:
    """What has to be known of a snapshot in order to go on with it on any node: `copied` are the offsets of messages of
    which the session was given a copy, `missed` the topics of which it was not told a change, with an offset between
    that change and the next.
    """

    def __init__(self, snapshot_id: int, version: int, topic_filter: bytes) -> None:
        self.snapshot_id: Final = snapshot_id
        self.version: Final = version
        self.topic_filter: Final = topic_filter
        self.copied: set[int] = set()
        self.missed: dict[bytes, int] = {}

    def has_missed(self, stored: Message) -> bool:
        """Return whether the session has yet to be told what is stored now."""
        return stored.offset <= self.missed.get(stored.topic_field, 0) and stored.offset not in self.copied


@final
class SpreadSession:
    """What all nodes know of a session beside itself: who serves it, and what was given to it by groups.

    Invariants: `connection_id` is 0 exactly while the client is absent; `given` are messages at QoS 1 and 2 of shared
    subscriptions on their way to a session that is not kept, by their number; `outgoing` is empty on every node but the
    one with the connection.
    """

    def __init__(self) -> None:
        self.connection_id = 0
        self.node = ""
        self.window = 0  # as it was agreed
        self.given: dict[int, Delivery] = {}
        self.resting: dict[int, RestingSnapshot] = {}
        self.outgoing: deque[Delivery] = deque()  # what was given a packet identifier and is not written yet


# Subscriptions.


@final
class Subscription:
    """`topic_filter` is the whole text the client sent, `$share/NAME/` included; `levels` are of the filter proper."""

    def __init__(
        self,
        session: Session,
        topic_filter: bytes,
        levels: list[bytes],
        share_name: bytes,
        qos: int,
        no_local: bool,
        retain_as_published: bool,
        identifier: int,
    ) -> None:
        self.session: Final = session
        self.topic_filter: Final = topic_filter
        self.levels: Final = levels
        self.share_name: Final = share_name  # empty: not shared
        self.qos: Final = qos
        self.no_local: Final = no_local
        self.retain_as_published: Final = retain_as_published
        self.identifier: Final = identifier  # 0: none
        self.snapshots: list[Snapshot] | None = None  # that were begun for it and have not ended


@final
class SharedGroup:
    """The members of one `$share/NAME/FILTER`, in the order of their next turn."""

    def __init__(self) -> None:
        self.members: list[Subscription] = []
        self.turn = 0

    def put(self, subscription: Subscription) -> None:
        for i in range(len(self.members)):
            if self.members[i].session is subscription.session:
                self.members[i] = subscription
                return
        self.members.append(subscription)

    def remove(self, session: Session) -> None:
        for i in range(len(self.members)):
            if self.members[i].session is session:
                del self.members[i]
                if i < self.turn:
                    self.turn -= 1
                return

    def choose_alike(self, message: Message) -> Subscription | None:
        """Return whose turn it is as every node finds it, whatever it remembers of earlier turns: those follow from the
        offset of the message.
        """
        members = sorted(self.members, key=creation)
        self.turn = 0
        chosen = SharedGroup()
        start = (message.offset * SCATTER >> 16) % len(members) if members else 0
        chosen.members = members[start:] + members[:start]
        return chosen.choose(message.qos)

    def choose(self, qos: int) -> Subscription | None:
        """Return whose turn it is: the next connected member with room, else any connected, else one that can queue."""
        count = len(self.members)
        fallback: Subscription | None = None
        fallback_turn = 0
        absent: Subscription | None = None
        for step in range(count):
            at = (self.turn + step) % count
            member = self.members[at]
            session = member.session
            if not session.attached:
                if absent is None and min(qos, member.qos) > 0:
                    absent = member
            elif session.has_room():
                self.turn = (at + 1) % count
                return member
            elif fallback is None:
                fallback = member
                fallback_turn = at
        if fallback is not None:
            self.turn = (fallback_turn + 1) % count
            return fallback
        if absent is not None:
            self.turn = (self.turn + 1) % count
        return absent


def creation(member: Subscription) -> int:
    """Return what the log knows a member's session by: the order in which sessions were made."""
    return member.session.record_id


@final
class Receiver:
    """One session's view of a topic: overlapping subscriptions are one copy, at the highest QoS [MQTT-3.3.5-1]."""

    def __init__(self, subscription: Subscription) -> None:
        self.session: Final = subscription.session
        self.qos = subscription.qos
        self.retain_as_published = subscription.retain_as_published
        self.identifiers: list[int] | None = [subscription.identifier] if subscription.identifier else None
        self.no_local = subscription.no_local
        # What is left for this session's own messages once No Local subscriptions are taken out.
        self.own: Receiver | None = None

    def merge(self, subscription: Subscription) -> None:
        self.qos = max(self.qos, subscription.qos)
        self.retain_as_published = self.retain_as_published or subscription.retain_as_published
        if subscription.identifier:
            if self.identifiers is None:
                self.identifiers = []
            self.identifiers.append(subscription.identifier)
        self.no_local = self.no_local or subscription.no_local


# Most topics have none; these are never added to.
NO_RECEIVERS: Final[list[Receiver]] = []
NO_GROUPS: Final[list[SharedGroup]] = []
NO_NODES: Final[list[str]] = []


@final
class Heard:
    """When a topic that somebody asks about was last published to; 0: not yet."""

    def __init__(self) -> None:
        self.at_ms = 0


@final
class Route:
    """Who receives a topic, worked out once and kept until a subscription changes."""

    def __init__(self, topic_field: bytes, levels: list[bytes], generation: int, policies: list[Policy] | None) -> None:
        self.topic_field: Final = topic_field
        self.levels: Final = levels
        self.generation: Final = generation
        self.policies: Final = policies
        self.recorded = False  # publishes with RETAIN go to the history
        self.recorded_live = False  # and so do those without
        self.persistent = False  # may have to wait for someone who outlives a connection
        self.receivers = NO_RECEIVERS
        self.groups = NO_GROUPS
        self.nodes: list[str] = NO_NODES  # other nodes whose clients want live messages of this topic
        self.heard: Heard | None = None  # where it is noted that the topic is published to; it is not `plain` then
        # Topics that only the broker itself writes to.
        self.reserved: Final = topic_field[2] == DOLLAR and is_reserved(topic_field[2:])
        # Every receiver takes a QoS 0 frame as it is: no identifiers, no No Local, no shared groups.
        self.plain = not self.reserved

    def policy_for(self, username: str) -> Policy | None:
        """Return the first policy that matches topic and user, or None."""
        if self.policies is not None:
            for policy in self.policies:
                if policy.applies_to(username):
                    return policy
        return None


def is_reserved(topic: bytes) -> bool:
    return topic.startswith((b"$SYS/", b"$holdfast/")) or topic == b"$SYS" or topic == b"$holdfast"


# Snapshots.


@final
class Snapshot:
    """What a new subscription is being sent: a cursor over the retained set as of `version`.

    `done` are topics sent out of turn; `missed` are changed topics whose live message the client could not be given,
    for it was too slow or not there; `copied` are the offsets of what was sent before the broker started.
    """

    def __init__(
        self, session: Session, subscription: Subscription, cursor: TopicCursor, version: int, since: int, full: bool
    ) -> None:
        self.session: Final = session
        self.subscription = subscription
        self.cursor: Final = cursor
        self.version: Final = version
        self.since: Final = since
        self.full: Final = full
        self.identifiers = [subscription.identifier] if subscription.identifier else None
        self.no_local = subscription.no_local
        self.record_id = 0  # what the log knows it by; 0: it ends with the connection
        self.resting: RestingSnapshot | None = None  # where nodes share a log: its copies are entries
        self.under_way = 0  # copies that have been proposed and have not come back
        self.ending = False
        self.deleted: dict[bytes, int] = {}
        self.queued = 0  # copies that went into the session's queue instead
        self.held: Message | None = None
        self.sent = 0
        self.done: set[bytes] = set()
        self.missed: dict[bytes, None] = {}  # in the order they were missed
        self.copied: set[int] = set()
        self.running = False
        self.ended = False

    def wants(self, message: Message, now_ms: int) -> bool:
        offset = message.offset
        if offset > self.version or offset <= self.since:
            return False
        if (self.done and message.topic_field in self.done) or (self.copied and offset in self.copied):
            return False
        return self.suits(message, now_ms)

    def suits(self, message: Message, now_ms: int) -> bool:
        if self.no_local and message.publisher.client_id == self.session.client_id:
            return False
        return not message.expired(now_ms)

    def belong_to(self, subscription: Subscription) -> None:
        """Be the snapshot of this subscription from now on."""
        self.leave_subscription()
        self.subscription = subscription
        if subscription.snapshots is None:
            subscription.snapshots = [self]
        else:
            subscription.snapshots.append(self)

    def leave_subscription(self) -> None:
        mine = self.subscription.snapshots
        if mine is not None:
            rest = [snapshot for snapshot in mine if snapshot is not self]
            self.subscription.snapshots = rest if rest else None

    def awaits(self, message: Message) -> bool:
        """Return whether this stored message still has its turn to come."""
        if self.held is not None and self.held.offset == message.offset:
            return True
        if message.topic_field in self.done or message.offset in self.copied:
            return False
        levels = message.topic.split(b"/")
        return matches(self.subscription.levels, levels) and not self.cursor.passed(levels)
