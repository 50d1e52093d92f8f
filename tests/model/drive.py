"""Carries a plan out on a world and on the oracle side by side, and makes failing plans smaller."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from model.debts import Mismatch
from model.fold import Publication
from model.oracle import Oracle, is_shared, payload_of
from model.person import Person
from model.steps import (
    CLIENTS,
    TOPICS,
    USERS,
    Acknowledge,
    Advance,
    Block,
    Connect,
    Cut,
    Disconnect,
    Drain,
    Fill,
    Plan,
    Publish,
    Restart,
    Step,
    Subscribe,
    Unblock,
    Unsubscribe,
    Wish,
    Work,
)
from model.world import Link, World
from wire_packets import (
    Acknowledgement,
    ConnAck,
    Packet,
    PubAck,
    PubRec,
    PubRel,
    SubAck,
    connect,
    disconnect,
    options,
    puback,
    pubcomp,
    publish,
    pubrec,
    pubrel,
    subscribe,
    unsubscribe,
)
from wire_packets import Publish as PublishPacket
from wire_packets import Will as WillFields
from wire_properties import P, Property, property_block

Answer = TypeVar("Answer", bound=Acknowledgement | SubAck)

DRESS: list[Property] = [(P.CONTENT_TYPE, "t"), (P.USER_PROPERTY, ("k", "1")), (P.USER_PROPERTY, ("k", "2"))]


class Driver:
    def __init__(self, plan: Plan, make_world: Callable[[Plan], World] = World) -> None:
        self.plan = plan
        self.world = make_world(plan)
        self.oracle = Oracle(plan)
        self.answers: dict[str, list[Packet]] = {name: [] for name in CLIENTS}
        self.filled: tuple[str, ...] = ()

    def run(self) -> None:
        try:
            for at, step in enumerate(self.plan.steps):
                try:
                    self.take(step)
                except Mismatch as problem:
                    raise Mismatch(f"step {at}, {step}: {problem}") from None
        finally:
            self.world.close()

    def take(self, step: Step) -> None:
        self.perform(step)
        self.oracle.sweep(self.world.holds)
        self.read_all()
        if not isinstance(step, Drain):
            self.oracle.check_store(self.world.stored(TOPICS), TOPICS)
            self.oracle.check_sums(self.world.sums())

    def perform(self, step: Step) -> None:
        match step:
            case Connect():
                self.connect(step)
            case Work():
                self.world.work()
            case Advance():
                self.advance(step)
            case Drain():
                self.drain()
            case Restart():
                if self.world.can_restart:
                    self.restart()
            case _:
                link = self.world.links.get(step.client)
                if link is not None:
                    self.perform_connected(step, link)

    def perform_connected(self, step: Step, link: Link) -> None:
        match step:
            case Disconnect(client):
                with_will = step.with_will and link.version == 5
                self.oracle.leave(client, normal=not with_will)
                self.world.send(link, disconnect(4 if with_will else None))
                del self.world.links[client]
            case Cut(client):
                self.oracle.leave(client, normal=False)
                self.world.lose(client)
            case Subscribe():
                self.subscribe(step, link)
            case Unsubscribe(client, topic_filter):
                self.oracle.unsubscribe(client, topic_filter)
                self.world.send(link, unsubscribe(link.next_id(), [topic_filter], version=link.version))
            case Publish():
                self.publish(step, link)
            case Fill(client, count):
                self.filled = tuple(f"f/{number}" for number in range(count))
                for topic in self.filled:
                    self.publish(Publish(client, topic, 4), link)
            case Block(client):
                self.oracle.block(client)
                self.world.block(link)
            case Unblock(client):
                if link.blocked:
                    self.oracle.people[client].blocked = False
                    self.world.unblock(link)
            case Acknowledge(client, count):
                if not link.blocked:
                    self.acknowledge(self.oracle.people[client], link, count)

    # Steps that need more than a line.

    def connect(self, step: Connect) -> None:
        old = self.world.links.get(step.client)
        present = self.oracle.connect(step)
        link = self.world.open(step.client, step.version)
        properties: list[Property] = []
        will_properties: list[Property] = []
        if step.version == 5:
            if step.expiry_s:
                properties.append((P.SESSION_EXPIRY, step.expiry_s))
            if step.window:
                properties.append((P.RECEIVE_MAXIMUM, step.window))
            if step.aliases:
                properties.append((P.TOPIC_ALIAS_MAXIMUM, step.aliases))
            elif step.largest:
                properties.append((P.MAXIMUM_PACKET_SIZE, step.largest))
            if step.marks:
                properties.append((P.USER_PROPERTY, ("holdfast-snapshot", "mark")))
        will = None
        if step.will is not None:
            if step.will.delay_s:
                will_properties.append((P.WILL_DELAY, step.will.delay_s))
            planned = self.oracle.people[step.client].will
            assert planned is not None
            will = WillFields(step.will.topic, planned.payload, step.will.qos, step.will.retain, will_properties)
        user = USERS[step.client] or None
        packet = connect(
            step.client,
            version=step.version,
            clean=step.clean,
            keep_alive=0,
            will=will,
            username=user,
            properties=properties,
        )
        self.world.send(link, packet)
        if old is not None and not old.peer.closed:
            raise Mismatch("the older connection of the client was not closed")
        self.answers[step.client] = []
        self.read(step.client)
        connacks = [packet for packet in self.answers[step.client] if isinstance(packet, ConnAck)]
        if [(c.code, c.session_present) for c in connacks] != [(0, present)]:
            raise Mismatch(f"CONNACK was {connacks}, expected code 0 and session present {present}")

    def subscribe(self, step: Subscribe, link: Link) -> None:
        person = self.oracle.people[step.client]
        properties: list[Property] = []
        five = link.version == 5
        identifier = step.identifier if five else 0
        if identifier:
            properties.append((P.SUBSCRIPTION_ID, identifier))
        since = None
        if step.since and five and person.marks:
            known = person.markers.get(step.wishes[0].topic_filter)
            if known is not None:
                properties.append((P.USER_PROPERTY, ("holdfast-since", str(known[0]))))
                since = known[1]
        pairs = []
        for wish in step.wishes:
            wish = wish if five else Wish(wish.topic_filter, wish.qos)
            if is_shared(wish.topic_filter):
                wish = replace(wish, no_local=False)
            pairs.append(
                (
                    wish.topic_filter,
                    options(
                        wish.qos,
                        no_local=wish.no_local,
                        retain_as_published=wish.as_published,
                        retain_handling=wish.handling,
                    ),
                )
            )
            self.oracle.subscribe(step.client, wish, identifier, since)
        packet_id = link.next_id()
        self.world.send(link, subscribe(packet_id, pairs, version=link.version, properties=properties))
        if not link.blocked:
            self.read(step.client)
            granted = [packet.codes for packet in self.answered(step.client, SubAck, packet_id)]
            if granted != [[wish.qos for wish in step.wishes]]:
                raise Mismatch(f"SUBACK granted {granted}, expected {[wish.qos for wish in step.wishes]}")

    def publish(self, step: Publish, link: Link) -> None:
        number = self.oracle.next_number()
        five = link.version == 5
        payload = payload_of(number, step.size)
        dress = list(DRESS) if step.dressed and five else []
        if not payload and five:
            dress.append((P.USER_PROPERTY, ("number", str(number))))  # empty ones are told apart by this
        interval_s = step.interval_s if five else None
        properties = list(dress)
        if interval_s is not None:
            properties.append((P.MESSAGE_EXPIRY, interval_s))
        taken = Publication(
            number,
            step.topic,
            payload,
            step.qos,
            step.retain,
            step.client,
            USERS[step.client],
            self.oracle.now_ms,
            interval_s,
            tuple(dress),
            len(property_block(dress)) - 1 if dress else 0,
        )
        reason = self.oracle.publish(taken, told=five and step.qos > 0)
        packet_id = link.next_id() if step.qos else None
        self.world.send(
            link,
            publish(
                step.topic,
                payload,
                qos=step.qos,
                retain=step.retain,
                packet_id=packet_id,
                properties=properties,
                version=link.version,
            ),
        )
        if packet_id is not None:
            self.finish_publish(step, link, packet_id, reason if five else 0)

    def finish_publish(self, step: Publish, link: Link, packet_id: int, reason: int) -> None:
        """See the acknowledgement, and release a QoS 2 message that was taken."""
        if not link.blocked:
            self.read(step.client)
            answers = self.answered(step.client, PubAck if step.qos == 1 else PubRec, packet_id)
            got = [packet.reason for packet in answers]
            if len(got) != 1 or (got[0] if got[0] >= 0x80 else 0) != reason:
                raise Mismatch(f"the publish was answered {got}, expected reason {reason:#x}")
        if step.qos == 2 and reason < 0x80:
            self.world.send(link, pubrel(packet_id))

    def advance(self, step: Advance) -> None:
        self.world.advance(step.ms)
        self.oracle.now_ms += step.ms
        if step.tick:
            self.tick()

    def tick(self) -> None:
        self.oracle.tick()
        self.world.tick()
        self.world.work_off_expiry()
        self.oracle.sweep(self.world.holds)
        self.oracle.check_swept()

    def acknowledge(self, person: Person, link: Link, count: int) -> None:
        for _ in range(min(count, len(person.unacknowledged))):
            packet = person.unacknowledged.pop(0)
            assert packet.packet_id is not None
            if packet.qos == 1:
                self.world.send(link, puback(packet.packet_id))
            else:
                self.world.send(link, pubrec(packet.packet_id))
                self.pull(person.name)
                if not self.answered(person.name, PubRel, packet.packet_id):
                    raise Mismatch(f"PUBREC {packet.packet_id} was answered with {self.answers[person.name]}")
                self.world.send(link, pubcomp(packet.packet_id))

    def drain(self) -> None:
        """Everyone reads and acknowledges until there is nothing left to do."""
        self.tick()
        for name, link in self.world.links.items():
            if link.blocked:
                self.oracle.people[name].blocked = False
                self.world.unblock(link)
        for _ in range(100_000):
            self.world.work_off()
            if not self.read_all(eager=True) and not self.world.broker.has_work():
                break
        else:
            raise Mismatch("the broker never came to rest")
        for person in self.oracle.people.values():
            if person.connected:
                person.check_up_to_date(self.oracle.now_ms)
                person.maybe.clear()
        self.oracle.pool.check_settled()
        absent = [name for name, person in self.oracle.people.items() if not person.connected and person.exists]
        leaks = [leak for leak in self.world.leaks() if not any(f"session {name} " in leak for name in absent)]
        if leaks:
            raise Mismatch(f"left over after everyone was served: {leaks}")
        topics = TOPICS + self.filled
        self.oracle.check_store(self.world.stored(topics), topics)
        self.oracle.check_sums(self.world.sums())
        self.oracle.check_fold()

    def restart(self) -> None:
        self.oracle.restart()
        self.world.links.clear()
        self.world.restart()
        self.tick()  # the first thing a broker does when it serves

    # Reading.

    def read_all(self, eager: bool = False) -> bool:
        """Everyone reads; those who are prompt (or everyone, when eager) acknowledge. Whether anything came."""
        came = False
        for name in list(self.world.links):
            came = self.read(name, eager) or came
        return came

    def read(self, name: str, eager: bool = False) -> bool:
        link = self.world.links[name]
        person = self.oracle.people[name]
        came = self.pull(name)
        while person.unacknowledged and not link.blocked and (eager or not person.lazy):
            self.acknowledge(person, link, len(person.unacknowledged))
            came = self.pull(name) or came
        return came

    def pull(self, name: str) -> bool:
        """Take in what has arrived; acknowledge nothing."""
        link = self.world.links[name]
        packets = link.packets()
        for packet in packets:
            if isinstance(packet, PublishPacket):
                self.oracle.people[name].receive(packet, self.oracle.now_ms)
            else:
                self.answers[name].append(packet)
        if link.peer.closed:
            raise Mismatch(f"the broker closed the connection of {name}: {link.peer.closed}")
        return bool(packets)

    def answered(self, name: str, kind: type[Answer], packet_id: int) -> list[Answer]:
        """The answers of a kind to a packet, which are then forgotten."""
        found = [p for p in self.answers[name] if isinstance(p, kind) and p.packet_id == packet_id]
        self.answers[name] = [packet for packet in self.answers[name] if packet not in found]
        return found


def failure_of(plan: Plan, make_world: Callable[[Plan], World] = World) -> str | None:
    """What goes wrong when the plan is carried out, None when nothing does."""
    try:
        Driver(plan, make_world).run()
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"
    return None


def shrink(plan: Plan, make_world: Callable[[Plan], World] = World, budget: int = 3000) -> Plan:
    """Leave out steps, halves first and single ones last, as long as something still goes wrong."""
    size = max(1, len(plan.steps) // 2)
    while budget > 0:
        at = 0
        smaller = False
        while at < len(plan.steps) and budget > 0:
            candidate = replace(plan, steps=plan.steps[:at] + plan.steps[at + size :])
            budget -= 1
            if failure_of(candidate, make_world) is not None:
                plan = candidate
                smaller = True
            else:
                at += size
        if size == 1 and not smaller:
            break
        size = max(1, size // 2)
    return plan


def report(plan: Plan, make_world: Callable[[Plan], World] = World) -> str:
    """A failing plan, made small, with what happens when it is carried out."""
    small = shrink(plan, make_world)
    lines = [f"{plan.label}: {len(plan.steps)} steps, shrunk to {len(small.steps)}", f"limits: {small.limits}"]
    lines.append(f"max_inflight {small.max_inflight}, max_queued {small.max_queued}, tombstones {small.tombstones}")
    lines += [f"  {step}" for step in small.steps]
    lines.append(failure_of(small, make_world) or "(does not fail alone)")
    return "\n".join(lines)
