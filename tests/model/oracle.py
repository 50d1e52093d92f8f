"""What must be true after each step: the store by the reference fold, and what every client is owed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from model.debts import Copy, Mismatch, Snapshot, Subscription
from model.fold import LIMITS, Outcome, Publication, fold, matches, verdict
from model.group import Due, Pool, shared_copy
from model.person import FOREVER, Person
from model.steps import CLIENTS, USERS, Connect, Plan, Wish
from model.world import BEGIN_MS

SWEEP_MS = 1000
REFUSED_BY_POLICY, OVER_QUOTA = 0x87, 0x97


@dataclass(order=True)
class Timer:
    due_ms: int
    order: int
    name: str
    kind: str


class Oracle:
    def __init__(self, plan: Plan) -> None:
        self.limits = plan.limits
        self.plan = plan
        self.now_ms = BEGIN_MS
        self.number = 0
        self.log: list[tuple[Publication, Outcome]] = []
        self.store: dict[str, Publication] = {}  # what has expired stays until it is swept out
        self.deleted: dict[str, int] = {}
        self.pool = Pool()
        lossy = plan.max_queued < 1000
        self.people = {name: Person(name, USERS[name], lossy, self.pool) for name in CLIENTS}
        self.timers: list[Timer] = []
        self.timer_order = 0
        self.wills = 0
        self.restarts = 0

    # The store.

    def kept(self) -> dict[str, Publication]:
        return {topic: each for topic, each in self.store.items() if each.is_kept(self.now_ms)}

    def next_number(self) -> int:
        self.number += 1
        return self.number

    def publish(self, publication: Publication, told: bool) -> int:
        """Take a publish in; the reason code that its acknowledgement must carry, 0 for any success."""
        outcome = verdict(publication, self.kept(), self.limits)
        rule = self.limits.rule_for(publication.topic, publication.user) if publication.retain else None
        if rule is not None and rule.action == "refuse":
            self.log.append((publication, outcome))
            return REFUSED_BY_POLICY
        lifetime_ms = rule.ttl_ms if rule is not None and rule.ttl_ms else self.limits.expiry_ms
        publication = replace(publication, lifetime_ms=lifetime_ms)
        over = self.limits.strict and outcome in LIMITS
        if over and publication.topic in self.store:
            outcome = Outcome.CLEARED
        self.log.append((publication, outcome))
        self.apply(publication, outcome)
        if over and told:
            return OVER_QUOTA
        if outcome is Outcome.POLICY:
            publication = replace(publication, retain=False)
        self.deliver(publication)
        return 0

    def apply(self, publication: Publication, outcome: Outcome) -> None:
        topic = publication.topic
        if outcome is Outcome.SET and publication.interval_s != 0:
            self.store[topic] = publication
            self.deleted.pop(topic, None)
            self.changed(topic, publication, publication.number)
        elif outcome in (Outcome.SET, Outcome.CLEARED):
            if self.store.pop(topic, None) is not None:
                self.deleted[topic] = publication.number
                self.changed(topic, None, publication.number)
            for person in self.people.values():
                person.tell_live(topic)

    def changed(self, topic: str, new: Publication | None, number: int) -> None:
        for person in self.people.values():
            person.set_changed(topic, new, number)

    def sweep(self, holds: Callable[[str], bool]) -> None:
        """Expired messages leave the store, which is a change of the set. When exactly is the broker's affair."""
        gone = [topic for topic, each in self.store.items() if not each.is_kept(self.now_ms) and not holds(topic)]
        number = self.next_number() if gone else 0
        for topic in gone:
            del self.store[topic]
            self.deleted[topic] = number
            self.changed(topic, None, number)

    def check_swept(self) -> None:
        """Called after the broker had its chance: what expired a while ago is no longer there."""
        horizon_ms = self.now_ms - SWEEP_MS
        if late := [topic for topic, each in self.store.items() if not each.is_kept(horizon_ms)]:
            raise Mismatch(f"{late} are still held more than {SWEEP_MS} ms after they expired")

    # Delivery.

    def deliver(self, publication: Publication) -> None:
        groups: dict[str, dict[str, Copy]] = {}
        for person in self.people.values():
            if not person.exists:
                continue
            found: list[Subscription] = []
            for topic_filter, subscription in person.subscriptions.items():
                if is_shared(topic_filter):
                    if matches(inner_filter(topic_filter), publication.topic):
                        copies = groups.setdefault(topic_filter, {})
                        copies[person.name] = shared_copy(publication, subscription)
                elif matches(topic_filter, publication.topic):
                    if not (subscription.wish.no_local and person.name == publication.client):
                        found.append(subscription)
            if found:
                person.owe_live(
                    Copy(
                        publication,
                        min(publication.qos, max(each.wish.qos for each in found)),
                        publication.retain and any(each.wish.as_published for each in found),
                        tuple(number for each in found for number in each.identifiers),
                    )
                )
        for group, copies in groups.items():
            for name in copies:
                self.people[name].overtake(publication.topic)
            self.pool.dues.append(Due(group, publication, copies, self.is_certain(publication, copies)))

    def is_certain(self, publication: Publication, copies: dict[str, Copy]) -> bool:
        members = [self.people[name] for name in copies]
        return (
            bool(publication.payload)
            and publication.interval_s is None
            and all(
                person.connected and not person.blocked and not person.lazy and not person.lossy and not person.largest
                for person in members
            )
        )

    # Clients.

    def connect(self, step: Connect) -> bool:
        """A client connects; whether its old session must be there."""
        person = self.people[step.client]
        if person.connected:
            self.leave(step.client, normal=False)
        if person.exists and not step.clean:
            person.will = None
        if person.exists and step.clean:
            self.end_session(person)
        present = person.exists
        if not present:
            person.start_session()
        self.wills += 1
        size = step.will.size if step.will is not None else 0
        person.connect(step, self.wills, f"w{self.wills}".encode().ljust(size, b".") if size else b"")
        return present

    def leave(self, name: str, normal: bool) -> None:
        person = self.people[name]
        self.unsettle(name)
        person.leave()
        if normal:
            person.will = None
        if person.expiry_s == 0:
            self.end_session(person)
            return
        if person.expiry_s != FOREVER:
            person.expires_ms = self.now_ms + person.expiry_s * 1000
            self.at(person.expires_ms, name, "session")
        will = person.will
        if will is not None:
            if will.delay_s == 0:
                self.publish_will(person)
            else:
                will.due_ms = self.now_ms + will.delay_s * 1000
                self.at(will.due_ms, name, "will")

    def restart(self) -> None:
        """Everyone is cut off. Sessions that end with their connection are gone without a word; what the others have
        still to come, their end or their will, is due when it would have been.
        """
        self.restarts += 1
        self.timers.clear()
        for person in sorted(self.people.values(), key=lambda each: each.recorded):
            if person.connected:
                self.unsettle(person.name)
                person.leave()
                if not person.recorded:
                    person.will = None
                    person.end()
                    continue
                if person.expiry_s != FOREVER:
                    person.expires_ms = self.now_ms + person.expiry_s * 1000
                if person.will is not None:
                    person.will.due_ms = self.now_ms + person.will.delay_s * 1000
            if person.expires_ms:
                self.at(person.expires_ms, person.name, "session")
            if person.will is not None:
                self.at(person.will.due_ms, person.name, "will")

    def end_session(self, person: Person) -> None:
        will, person.will = person.will, None
        self.unsettle(person.name)
        person.end()
        person.will = will
        self.publish_will(person)

    def publish_will(self, person: Person) -> None:
        will, person.will = person.will, None
        if will is not None:
            number = self.next_number()
            self.publish(
                Publication(
                    number, will.topic, will.payload, will.qos, will.retain, person.name, person.user, self.now_ms
                ),
                told=False,
            )

    def subscribe(self, name: str, wish: Wish, identifier: int, since: int | None) -> None:
        person = self.people[name]
        is_new = wish.topic_filter not in person.subscriptions
        subscription = Subscription(wish, identifier)
        person.subscriptions[wish.topic_filter] = subscription
        if is_shared(wish.topic_filter):
            person.shared.setdefault(wish.topic_filter, []).append(subscription)
            self.unsettle(name)
            return
        if wish.handling == 2 or (wish.handling == 1 and not is_new):
            person.carry_over(subscription)
            return
        person.end_snapshots_of(wish.topic_filter)
        pending = {
            topic: each
            for topic, each in self.kept().items()
            if matches(wish.topic_filter, topic) and not (wish.no_local and each.client == name)
        }
        deleted: dict[str, int] = {}
        if since is not None:
            deleted = {
                topic: number
                for topic, number in self.deleted.items()
                if number > since and matches(wish.topic_filter, topic)
            }
        person.begin_snapshot(Snapshot(subscription, pending, self.number, person.marks, since=since, deleted=deleted))

    def unsubscribe(self, name: str, topic_filter: str) -> None:
        person = self.people[name]
        if person.subscriptions.pop(topic_filter, None) is not None:
            person.end_snapshots_of(topic_filter)
            if is_shared(topic_filter):
                self.unsettle(name)

    def unsettle(self, name: str) -> None:
        """A member of groups leaves, or stops reading: its share may be given to others, before or after their own."""
        for group, topic in self.pool.unsettle(name):
            for person in self.people.values():
                if group in person.subscriptions:
                    person.overtake(topic)

    def block(self, name: str) -> None:
        person = self.people[name]
        person.blocked = person.was_blocked = True
        self.unsettle(name)

    # Time.

    def at(self, due_ms: int, name: str, kind: str) -> None:
        self.timer_order += 1
        self.timers.append(Timer(due_ms, self.timer_order, name, kind))

    def tick(self) -> None:
        while due := sorted(timer for timer in self.timers if timer.due_ms <= self.now_ms):
            timer = due[0]
            self.timers.remove(timer)
            person = self.people[timer.name]
            if timer.kind == "will":
                if person.will is not None and 0 < person.will.due_ms <= self.now_ms:
                    self.publish_will(person)
            elif person.exists and not person.connected and 0 < person.expires_ms <= self.now_ms:
                self.end_session(person)

    # Checks.

    def check_store(self, stored: dict[str, bytes], topics: tuple[str, ...]) -> None:
        expected = {topic: each.payload for topic, each in self.kept().items() if topic in topics}
        if stored != expected:
            raise Mismatch(f"the store holds {stored}, expected {expected}")

    def check_sums(self, sums: tuple[int, int]) -> None:
        expected = (len(self.store), sum(each.size for each in self.store.values()))
        if sums != expected:
            raise Mismatch(f"the store counts {sums[0]} messages and {sums[1]} bytes, expected {expected}")

    def check_fold(self) -> None:
        """The set is what the log adds up to, and nothing else."""
        if fold(self.log, self.now_ms) != self.kept():
            raise Mismatch("the running set and the fold of the log differ: the model is wrong")


def is_shared(topic_filter: str) -> bool:
    return topic_filter.startswith("$share/")


def inner_filter(topic_filter: str) -> str:
    return topic_filter.split("/", 2)[2]


def payload_of(number: int, size: int) -> bytes:
    """The number of the publish, padded; nothing at all for size 0."""
    return f"{number}".encode().ljust(size, b".") if size else b""
