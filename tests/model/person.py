"""One client as the oracle sees it: what it is owed, and whether what it gets is that.

Three kinds of debt. *Live* copies of a topic come in the order of publishing, whatever their QoS, and may be left out
only when they have expired or are larger than the client takes. *Snapshot* copies may come at any time
and in any order, but only the message that was stored when the subscription was made, at most once, and not after it
was replaced, deleted or expired. *Redelivered* copies come first after a resumed session, as they were.

Across all of them a topic never goes back: no copy of an older message after one of a newer.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from model.debts import Copy, Mismatch, Snapshot, Subscription, listed, shown
from model.fold import Publication, matches
from model.group import Pool
from model.steps import Connect
from wire_packets import Publish, publish
from wire_properties import P

END_MARKER = "$holdfast/snapshot/end"
FOREVER = 0xFFFFFFFF
LARGEST_GROWTH = 60
BROKERS_OWN = (P.SUBSCRIPTION_ID, P.TOPIC_ALIAS, P.MESSAGE_EXPIRY)


@dataclass
class Will:
    topic: str
    payload: bytes
    qos: int
    retain: bool
    delay_s: int
    due_ms: int = 0


class Person:
    """A client id with its session; `link` facts live in the world, this is only what must be true of it."""

    def __init__(self, name: str, user: str, lossy: bool, pool: Pool) -> None:
        self.name = name
        self.pool = pool
        self.user = user
        self.lossy = lossy  # queues are so short that live messages may be dropped
        self.connected = False
        self.exists = False  # has a session
        self.subscriptions: dict[str, Subscription] = {}
        self.shared: dict[str, list[Subscription]] = {}  # by group, all it ever had
        self.markers: dict[str, tuple[int, int]] = {}  # filter to (version, number) of its last end marker
        self.version = 5
        self.lazy = False
        self.window = 0
        self.marks = False
        self.largest = 0
        self.expiry_s = 0
        self.will: Will | None = None
        self.expires_ms = 0  # when an absent client's session ends, 0 for never
        self.blocked = False
        self.was_blocked = False
        self.start_session()

    def start_session(self) -> None:
        self.recorded = 0  # since which CONNECT the session is to outlive its connection; then it stays recorded
        self.live: dict[str, deque[Copy]] = {}
        self.unread: list[Copy] = []
        self.snapshots: list[Snapshot] = []
        self.maybe: list[tuple[Copy, Snapshot | None]] = []
        self.past: list[Snapshot] = []  # snapshots that have ended, whose copies may still be on their way
        self.unacknowledged: list[Publish] = []
        self.redeliver: deque[Publish] = deque()
        self.newest: dict[str, int] = {}
        self.perhaps_dropped: set[int] = set()  # publishes that were too large for a connection that is gone
        self.perhaps_forgotten: set[int | None] = set()  # packet ids, likewise
        self.emptied: Counter[str] = Counter()  # empty messages that look alike, by topic
        self.owed_by: Counter[int] = Counter()  # by publish, how many snapshots owed a copy since the last rest
        self.receipts = 0
        self.subscriptions = {}

    # Events.

    def connect(self, step: Connect, number: int, will_payload: bytes) -> None:
        self.connected = self.exists = True
        self.expires_ms = 0
        self.version = step.version
        self.lazy = step.lazy
        self.window = step.window
        self.largest = step.largest if not step.aliases else 0
        self.marks = step.marks and not self.largest  # the marker itself would be too large
        self.expiry_s = step.expiry_s if step.version == 5 else (0 if step.clean else FOREVER)
        if self.expiry_s != 0 and not self.recorded:
            self.recorded = number
        self.blocked = self.was_blocked = False
        self.redeliver = deque(self.unacknowledged)
        self.unacknowledged = []
        self.will = None
        if step.will is not None:
            will = step.will
            self.will = Will(will.topic, will_payload, will.qos, will.retain, will.delay_s)

    def leave(self) -> None:
        """The connection is gone, and QoS 0 with it. Snapshots rest until the client is back."""
        self.connected = False
        for topic, line in self.live.items():
            self.maybe += [(copy, None) for copy in line if copy.qos == 0]
            rest = [copy for copy in line if copy.qos > 0]
            if self.blocked:
                # Perhaps sent and not read: then they are sent again, when the window of the next connection allows.
                self.unread += rest
                rest = []
            self.live[topic] = deque(rest)
        # What this connection could not take counts as sent, if its turn had come.
        owed = [snapshot.copy_of(p) for snapshot in self.snapshots for p in snapshot.pending.values()]
        large = [copy for copy in (*self.unread, *self.all_live(), *owed) if self.too_large(self.size_of(copy))]
        self.perhaps_dropped |= {copy.publication.number for copy in large}
        self.perhaps_forgotten |= {p.packet_id for p in self.redeliver if self.perhaps_too_large(p)}
        self.unacknowledged += self.redeliver  # what was sent again stands before what was not yet
        self.redeliver.clear()
        for snapshot in list(self.snapshots):
            if snapshot.over:
                self.retire(snapshot, snapshot.pending.values())
            else:
                self.rest(snapshot)

    def rest(self, snapshot: Snapshot) -> None:
        """What was sent and not read comes again, unless it was QoS 0; the rest is still owed."""
        snapshot.rested = True
        snapshot.alone = False
        if self.blocked:
            snapshot.early |= set(snapshot.pending)
            snapshot.soft |= {t for t, p in snapshot.pending.items() if snapshot.copy_of(p).qos == 0}
            snapshot.told_live |= set(snapshot.deleted)

    def end(self) -> None:
        self.exists = False
        self.start_session()

    def owe_live(self, copy: Copy) -> None:
        if not copy.publication.payload and (self.version != 5 or not copy.publication.properties):
            self.emptied[copy.publication.topic] += 1
        if copy.qos > 0 or self.connected:
            self.live.setdefault(copy.publication.topic, deque()).append(copy)
        self.overtake(copy.publication.topic)

    def is_waiting(self, topic: str) -> bool:
        return (
            bool(self.live.get(topic))
            or any(copy.publication.topic == topic for copy in self.unread)
            or any(topic in snapshot.early for snapshot in self.snapshots)
            or any(copy.publication.topic == topic for copy, _ in self.maybe)
            or self.pool.owes(self.name, topic)
        )

    def overtake(self, topic: str) -> None:
        """A live message: a stored one of that topic that has yet to come is put before it."""
        for snapshot in self.snapshots:
            if topic in snapshot.pending:
                snapshot.early.add(topic)

    def tell_live(self, topic: str) -> None:
        for snapshot in self.snapshots:
            snapshot.told_live.add(topic)

    def set_changed(self, topic: str, new: Publication | None, number: int) -> None:
        """The stored message of a topic was replaced, deleted or has expired: it may no longer be sent as it was."""
        self.tell_live(topic)
        for snapshot in self.snapshots:
            if new is None and snapshot.since is not None and matches(snapshot.subscription.wish.topic_filter, topic):
                snapshot.deleted.setdefault(topic, number)
            old = snapshot.pending.pop(topic, None)
            if old is not None and (self.blocked or topic in snapshot.early):
                snapshot.changed.setdefault(topic, []).append(old)
            lost = self.lossy or not self.connected
            if new is not None and lost and matches(snapshot.subscription.wish.topic_filter, topic):
                # A live copy that the queue had no room for, or at QoS 0 nobody, is made up for by the snapshot.
                snapshot.changed.setdefault(topic, []).append(new)

    def begin_snapshot(self, snapshot: Snapshot) -> None:
        snapshot.begun = self.receipts
        self.owed_by.update(publication.number for publication in snapshot.pending.values())
        # What waits for a topic makes the copy wait behind it, out of reach of later changes.
        snapshot.early |= {topic for topic in snapshot.pending if self.is_waiting(topic)}
        for other in self.snapshots:
            other.alone = snapshot.alone = False
        self.snapshots.append(snapshot)

    def carry_over(self, new: Subscription) -> None:
        """A subscription was replaced by one that asks for no snapshot: it gets what the old one is owed.

        Copies that are on their way already look as the old one wanted them.
        """
        for snapshot in self.snapshots:
            if snapshot.subscription.wish.topic_filter == new.wish.topic_filter:
                snapshot.alone = False
                on_its_way = {t: p for t, p in snapshot.pending.items() if self.blocked or t in snapshot.early}
                self.maybe += [(snapshot.copy_of(p), snapshot) for p in on_its_way.values()]
                self.maybe += [(snapshot.copy_of(p), snapshot) for many in snapshot.changed.values() for p in many]
                for topic, number in snapshot.deleted.items():
                    gone = Publication(number, topic, b"", 0, True, "", "", 0)
                    self.maybe.append((Copy(gone, 0, True, snapshot.subscription.identifiers), snapshot))
                snapshot.told_live |= set(snapshot.deleted)
                snapshot.soft |= set(on_its_way)
                if new.wish.no_local:
                    snapshot.soft |= {t for t, p in snapshot.pending.items() if p.client == self.name}
                snapshot.subscription = new
                for other in self.snapshots:
                    # Copies that looked alike may have been sent for the one and taken for the other.
                    for one, two in ((snapshot, other), (other, snapshot)):
                        mixed = {t: p for t, p in two.pending.items() if one.took(p, since=two.begun)}
                        two.soft |= set(mixed)
                        self.maybe += [(one.copy_of(p), one) for p in mixed.values()]

    def end_snapshots_of(self, topic_filter: str) -> None:
        for snapshot in [s for s in self.snapshots if s.subscription.wish.topic_filter == topic_filter]:
            on_its_way = [p for topic, p in snapshot.pending.items() if self.blocked or topic in snapshot.early]
            self.retire(snapshot, on_its_way)
            for other in self.snapshots:
                # Copies that look alike may have been sent for the one and taken for the other.
                other.soft |= {t for t, p in other.pending.items() if snapshot.took(p, since=other.begun)}
                pending = snapshot.pending.values()
                self.maybe += [(other.copy_of(p), other) for p in pending if other.took(p, since=snapshot.begun)]

    def retire(self, snapshot: Snapshot, on_their_way: Iterable[Publication]) -> None:
        """A snapshot has ended; copies that wait in line behind others of their topic may still come."""
        self.snapshots.remove(snapshot)
        self.past.append(snapshot)
        self.maybe += [(snapshot.copy_of(p), snapshot) for p in on_their_way]
        self.maybe += [(snapshot.copy_of(p), snapshot) for many in snapshot.changed.values() for p in many]
        for topic, number in snapshot.deleted.items():
            gone = Publication(number, topic, b"", 0, True, "", "", 0)
            self.maybe.append((Copy(gone, 0, True, snapshot.subscription.identifiers), snapshot))

    # What arrives.

    def receive(self, packet: Publish, now_ms: int) -> None:
        if self.largest and len(packet.raw) > self.largest:
            raise Mismatch(f"{shown(packet)} has {len(packet.raw)} bytes, {self.name} takes {self.largest}")
        self.receipts += 1
        if packet.topic == END_MARKER:
            self.receive_marker(packet, now_ms)
            return
        if packet.dup:
            self.receive_again(packet, now_ms)
        else:
            if packet.qos > 0 and self.redeliver_due():
                raise Mismatch(f"{shown(packet)} came before {shown(self.redeliver[0])} was sent again")
            self.settle_debt(packet, now_ms)
        if packet.qos > 0:
            self.unacknowledged.append(packet)
            if 0 < self.window < len(self.unacknowledged):
                raise Mismatch(
                    f"{self.name} has {len(self.unacknowledged)} messages to acknowledge, it takes {self.window}"
                )

    def receive_again(self, packet: Publish, now_ms: int) -> None:
        while self.redeliver:
            first = self.redeliver.popleft()
            same = (first.topic, first.payload, first.qos, first.retain, first.packet_id)
            if same == (packet.topic, packet.payload, packet.qos, packet.retain, packet.packet_id):
                return
            if not self.perhaps_too_large(first) and first.packet_id not in self.perhaps_forgotten:
                raise Mismatch(f"sent again was {shown(packet)}, expected {shown(first)} with id {first.packet_id}")
        # Sent before, while the client was not reading, so new to it.
        self.was_blocked = True
        self.settle_debt(packet, now_ms)

    def redeliver_due(self) -> bool:
        """Whether something must be sent again before anything new."""
        while self.redeliver:
            first = self.redeliver[0]
            if not self.perhaps_too_large(first) and first.packet_id not in self.perhaps_forgotten:
                return True
            self.redeliver.popleft()
        return False

    def perhaps_too_large(self, packet: Publish) -> bool:
        """Sent again, a packet may have grown: the client may have had another version or another maximum."""
        return 0 < self.largest < len(packet.raw) + LARGEST_GROWTH

    def settle_debt(self, packet: Publish, now_ms: int) -> None:
        """Find what this copy was owed for, the most certain explanation first."""
        origin: Snapshot | None = None
        found = self.take_live(packet, now_ms, losses=False)
        if found is None:
            found = self.take_unread(packet, now_ms)
        if found is None:
            found, origin = self.take_pending(packet, now_ms)
        if found is None and self.pool.take(self, packet, now_ms):
            return  # groups may be given old messages late: another member's that has left
        if found is None:
            found, origin = self.take_changed(packet, now_ms)
        if found is None and self.pool.take_again(self, packet, now_ms):
            return
        if found is None:
            found, origin = self.take_maybe(packet, now_ms)
        if found is None:
            found = self.take_live(packet, now_ms, losses=True)
        if found is None and not packet.payload and packet.topic in self.emptied:
            return  # taken for another that looks just like it
        if found is None:
            raise Mismatch(
                f"{self.name} got {shown(packet)}, which it is not owed\n"
                f"  live: {listed(self.all_live())}\n  snapshots: {self.open_snapshots()}\n"
                f"  maybe: {listed(copy for copy, _ in self.maybe)}"
            )
        if not packet.dup and not self.is_ambiguous(found):
            self.check_order(packet, found.number, origin)

    def is_ambiguous(self, publication: Publication) -> bool:
        """Whether copies look alike that are owed for different reasons: one may have been taken for the other."""
        return self.owed_by[publication.number] > 1 or (not publication.payload and self.emptied[publication.topic] > 1)

    def check_order(self, packet: Publish, number: int, origin: Snapshot | None) -> None:
        """A topic never goes back. What was published before a subscription was made does not bind its snapshot."""
        topic = packet.topic
        before = origin.newest.get(topic, 0) if origin is not None else self.newest.get(topic, 0)
        if number < before:
            raise Mismatch(f"{self.name} got {shown(packet)} of publish {number} after one of {before}")
        for snapshot in (*self.snapshots, *self.past):
            if number > snapshot.number:
                snapshot.newest[topic] = max(number, snapshot.newest.get(topic, 0))
        self.newest[topic] = max(number, self.newest.get(topic, 0))

    def take_live(self, packet: Publish, now_ms: int, losses: bool) -> Publication | None:
        """The next in line that this can be; of several that look alike the one that had to come.

        With `losses`, what comes before it may also have been dropped for want of room.
        """
        line = self.live.get(packet.topic, deque())
        place = -1
        for at, copy in enumerate(line):
            must_come = not (self.may_skip(copy, now_ms) if losses else self.has_no_right(copy, now_ms))
            must_come = must_come and (not self.is_vague(copy) or self.is_same(copy, packet, now_ms))
            # Whoever was not reading may have been sent what has expired by now.
            vague = self.was_blocked or self.is_vague(copy)
            if self.is_same(copy, packet, now_ms) and (place < 0 or (must_come and not vague)):
                place = at
            if must_come:
                break
        if place < 0:
            return None
        found = line[place]
        for _ in range(place + 1):
            line.popleft()
        return found.publication

    def take_unread(self, packet: Publish, now_ms: int) -> Publication | None:
        fitting = [copy for copy in self.unread if self.is_same(copy, packet, now_ms)]
        if not fitting:
            return None
        copy = min(fitting, key=lambda each: self.has_no_right(each, now_ms))
        self.unread.remove(copy)
        return copy.publication

    def take_pending(self, packet: Publish, now_ms: int) -> tuple[Publication | None, Snapshot | None]:
        fitting = [
            (snapshot, publication)
            for snapshot in self.snapshots
            if (publication := snapshot.pending.get(packet.topic)) is not None
            and self.is_same(snapshot.copy_of(publication), packet, now_ms)
        ]
        if not fitting:
            return None, None
        # Of snapshots that owe the same, the one whose order allows it, and that surely has not been served yet.
        snapshot, publication = min(
            fitting, key=lambda pair: (not pair[0].allows(pair[1]), packet.topic in pair[0].soft)
        )
        if not publication.is_kept(now_ms) and not self.was_blocked:
            raise Mismatch(f"{self.name} got {shown(packet)}, which expired at {publication.forgotten_ms}")
        del snapshot.pending[packet.topic]
        snapshot.consumed[publication.number] = self.receipts
        snapshot.sent += 1
        return publication, snapshot

    def take_changed(self, packet: Publish, now_ms: int) -> tuple[Publication | None, Snapshot | None]:
        fitting = [
            (snapshot, publication)
            for snapshot in self.snapshots
            for publication in snapshot.changed.get(packet.topic, [])
            if self.is_same(snapshot.copy_of(publication), packet, now_ms)
        ]
        if fitting:
            snapshot, publication = min(fitting, key=lambda pair: not pair[0].allows(pair[1]))
            snapshot.changed[packet.topic].remove(publication)
            snapshot.sent += 1
            return publication, snapshot
        for snapshot in self.snapshots:
            if self.is_tombstone(snapshot, packet):
                number = snapshot.deleted.pop(packet.topic)
                snapshot.sent += 1
                return Publication(number, packet.topic, b"", 0, True, "", "", 0), snapshot
        return None, None

    def is_tombstone(self, snapshot: Snapshot, packet: Publish) -> bool:
        return (
            packet.payload == b""
            and packet.retain
            and packet.qos == 0
            and packet.topic in snapshot.deleted
            and packet.props(P.SUBSCRIPTION_ID) == list(snapshot.subscription.identifiers)
        )

    def is_same(self, copy: Copy, packet: Publish, now_ms: int) -> bool:
        publication = copy.publication
        return (
            publication.topic == packet.topic
            and publication.payload == packet.payload
            and copy.qos == packet.qos
            and copy.retain == packet.retain
            and (self.version != 5 or sorted(copy.identifiers) == sorted(packet.props(P.SUBSCRIPTION_ID)))
            and self.is_dressed(packet, publication)
            and self.is_aged(packet, publication, now_ms)
        )

    def is_dressed(self, packet: Publish, publication: Publication) -> bool:
        """Carries the publisher's properties, in order, and nothing of its own making."""
        passed_on = tuple((at, value) for at, value in packet.properties if at not in BROKERS_OWN)
        return passed_on == (publication.properties if self.version == 5 else ())

    def is_aged(self, packet: Publish, publication: Publication, now_ms: int) -> bool:
        """Carries what is left of the publisher's interval, in seconds rounded up and never 0."""
        interval = packet.prop(P.MESSAGE_EXPIRY)
        if self.version != 5 or publication.interval_s is None or publication.expires_ms is None:
            return interval is None
        left = max(1, -(-(publication.expires_ms - now_ms) // 1000))
        if interval is None or not left <= interval <= max(1, publication.interval_s):
            return False
        return interval == left or self.was_blocked  # a client that did not read gets what was true then

    def take_maybe(self, packet: Publish, now_ms: int) -> tuple[Publication | None, Snapshot | None]:
        fitting = [entry for entry in self.maybe if self.is_same(entry[0], packet, now_ms)]
        if not fitting:
            return None, None
        entry = min(fitting, key=lambda e: e[1] is not None and not e[1].allows(e[0].publication))
        self.maybe.remove(entry)
        return entry[0].publication, entry[1]

    def receive_marker(self, packet: Publish, now_ms: int) -> None:
        told = json.loads(packet.payload)
        named = [s for s in self.snapshots if s.subscription.wish.topic_filter == told["filter"]]
        named = [s for s in named if s.marked or s.rested]
        snapshot = next((s for s in named if not s.over), None)
        if snapshot is not None:
            snapshot.full = told["full"]
        if snapshot is None or (snapshot.alone and self.lacks(snapshot, now_ms)):
            if self.is_late_marker(told["filter"]):
                return
        if snapshot is None:
            raise Mismatch(f"{self.name} got an end marker that it is not owed: {told}")
        snapshot.over = True
        self.markers[told["filter"]] = (told["version"], snapshot.number)
        if snapshot.alone:
            # Where live messages get lost, a copy that makes up for one may look like it.
            dropped = len(snapshot.early) + sum(len(many) for many in snapshot.changed.values())
            alike = any(s.subscription.wish.topic_filter == told["filter"] for s in self.past)
            if not snapshot.sent <= told["count"] <= snapshot.sent + dropped and not self.lossy and not alike:
                raise Mismatch(f"end marker of {self.name} counts {told['count']} copies, {snapshot.sent} came")
            self.check_complete(snapshot, now_ms)
        if snapshot.alone or not snapshot.pending:
            self.retire(snapshot, snapshot.pending.values() if self.lossy else [])

    def is_late_marker(self, topic_filter: str) -> bool:
        """A marker that waited in line, while its subscription was replaced by another."""
        for snapshot in self.past:
            marked = snapshot.marked or snapshot.rested
            if marked and not snapshot.over and snapshot.subscription.wish.topic_filter == topic_filter:
                snapshot.over = True
                return self.marks
        return False

    def check_complete(self, snapshot: Snapshot, now_ms: int) -> None:
        if snapshot.since is not None and not snapshot.full:
            if late := [number for number in snapshot.consumed if number <= snapshot.since]:
                raise Mismatch(f"delta of {self.name} since {snapshot.since} repeats publishes {late}")
            untold = sorted(set(snapshot.deleted) - snapshot.told_live)
            if untold and not self.lossy:
                raise Mismatch(f"delta of {self.name} does not tell that {untold} are gone")
        if missing := self.lacks(snapshot, now_ms):
            raise Mismatch(f"snapshot of {snapshot.subscription.wish} for {self.name} lacks {missing}")

    def lacks(self, snapshot: Snapshot, now_ms: int) -> list[str]:
        """Copies that had to come and did not."""
        left = {t: p for t, p in snapshot.pending.items() if t not in snapshot.soft}
        if snapshot.since is not None and (not snapshot.full or snapshot.rested):
            left = {t: p for t, p in left.items() if p.number > snapshot.since}
        copies = [snapshot.copy_of(publication) for publication in left.values()]
        return [str(copy) for copy in copies if not self.may_skip(copy, now_ms)]

    # What must be true of what arrives, and when nothing more does.

    def may_skip(self, copy: Copy, now_ms: int) -> bool:
        """Whether it can be right that a copy does not come."""
        return self.has_no_right(copy, now_ms) or self.lossy or self.is_vague(copy)

    def has_no_right(self, copy: Copy, now_ms: int) -> bool:
        """Whether a copy need not come: it has expired, or the client cannot take it."""
        publication = copy.publication
        expired = publication.expires_ms is not None and publication.expires_ms <= now_ms
        gone = copy.retain and not publication.is_kept(now_ms)
        return expired or gone or publication.number in self.perhaps_dropped or self.too_large(self.size_of(copy))

    def is_vague(self, copy: Copy) -> bool:
        """Empty messages look alike: which of several has come, and which had expired, is open."""
        publication = copy.publication
        return not publication.payload and (self.was_blocked or self.emptied[publication.topic] > 1)

    def too_large(self, size: int) -> bool:
        return 0 < self.largest < size

    def size_of(self, copy: Copy) -> int:
        if not self.largest:
            return 0
        publication = copy.publication
        properties: list[tuple[int, Any]] = list(publication.properties)
        properties += [(P.SUBSCRIPTION_ID, number) for number in copy.identifiers]
        if publication.interval_s is not None:
            properties.append((P.MESSAGE_EXPIRY, 1))
        packet_id = 1 if copy.qos else None
        return len(
            publish(
                publication.topic,
                publication.payload,
                qos=copy.qos,
                packet_id=packet_id,
                properties=properties,
                version=self.version,
            )
        )

    def check_up_to_date(self, now_ms: int) -> None:
        """Called when the client has read and acknowledged all there is."""
        owed = [str(copy) for copy in (*self.unread, *self.all_live()) if not self.may_skip(copy, now_ms)]
        if owed:
            raise Mismatch(f"{self.name} never got {owed}")
        if self.redeliver_due():
            raise Mismatch(f"{self.name} was not sent {[shown(p) for p in self.redeliver]} again")
        for snapshot in self.snapshots:
            if snapshot.marked and not snapshot.over and not snapshot.rested:
                raise Mismatch(f"{self.name} never got the end marker of {snapshot.subscription.wish}")
            self.check_complete(snapshot, now_ms)
        self.live.clear()
        self.unread.clear()
        self.owed_by.clear()
        self.emptied.clear()
        self.past.clear()
        self.snapshots.clear()
        self.was_blocked = False

    def all_live(self) -> list[Copy]:
        return [copy for line in self.live.values() for copy in line]

    def open_snapshots(self) -> str:
        parts = [
            f"{s.subscription.wish.topic_filter} owes {listed([s.copy_of(p) for p in s.pending.values()])}"
            f"{' deleted ' + str(s.deleted) if s.deleted else ''}"
            for s in self.snapshots
        ]
        return "; ".join(parts) or "none"
