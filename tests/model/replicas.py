"""Two brokers and one log: what one has ordered the other applies, and both must come to hold the same.

The first has clients, sockets that block, timers and a clock; the second has none of them, and another clock. `dump`
says what a broker holds as bytes: everything that follows from the log, and nothing that belongs to a connection.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from typing import Any

from core_driver import carry_out
from holdfast.broker.core import Broker
from holdfast.broker.effects import Effects
from holdfast.broker.message import SET
from holdfast.broker.records import encode_publish
from holdfast.broker.session import Delivery, PendingWill, Session
from model.debts import Mismatch
from model.drive import Driver
from model.replica import Replica
from model.steps import Plan
from model.world import LoggedWorld, World, core_settings

OTHER_CLOCK_MS = 86_400_000
COMPARE_EVERY = 7


class FollowedWorld(LoggedWorld):
    """A world with a second broker that applies each record of the first as soon as it is there."""

    def make_broker(self) -> Broker:
        broker = super().make_broker()
        self.follower = follower_of(self.plan)
        self.calls = 0
        self.seen = Counter[str]()
        return broker

    def carry_out(self, effects: Effects) -> None:
        super().carry_out(effects)
        apply_all(self.follower, self.log.drain(), self.now_ms + OTHER_CLOCK_MS)
        self.calls += 1
        if self.calls % COMPARE_EVERY == 0:
            self.compare()

    def compare(self) -> None:
        """Fail unless both brokers hold the same now."""
        held = dump(self.broker, self.now_ms)
        followed = dump(self.follower.broker, self.now_ms, self.follower)
        assert followed.splitlines() == held.splitlines(), f"after {self.calls} calls of {self.plan.label}"
        for kind in ("queue", "inflight", "unreleased", "subscriptions", "will", "snapshots"):
            self.seen[kind] += len(re.findall(rb"'%s', [\[(]+[^])]" % kind.encode(), held))


def follower_of(plan: Plan) -> Replica:
    return Replica(Broker(core_settings(plan), "other-"))


def apply_all(follower: Replica, records: list[bytes], now_ms: int) -> None:
    for record in records:
        carry_out(follower.apply(record, now_ms))


def run(plan: Plan, kind: type[LoggedWorld]) -> LoggedWorld:
    """Carry a plan out. Whether the broker is right is not asked here: a run that goes wrong ends early."""
    worlds: list[LoggedWorld] = []

    def make(plan: Plan) -> World:
        worlds.append(kind(plan))
        return worlds[0]

    with contextlib.suppress(Mismatch):
        Driver(plan, make).run()
    return worlds[0]


def dump(broker: Broker, now_ms: int, resting: Replica | None = None) -> bytes:
    """What a broker holds: the retained set as of a time, and every session that the log knows."""
    lines = [("retained", *line) for line in retained_lines(broker, now_ms)]
    for session in sorted(broker.sessions.values(), key=lambda each: each.record_id):
        if session.record_id:
            lines += [("session", session.client_id, *line) for line in session_lines(session, resting)]
    return "\n".join(repr(line) for line in lines).encode()


def retained_lines(broker: Broker, now_ms: int) -> list[tuple[Any, ...]]:
    index = broker.retained.index
    cursor = index.everything()
    lines = []
    while not cursor.ended:
        message = cursor.next(1000)
        if message is not None and not message.expired(now_ms):
            lines.append((message.topic, encode_publish(message, SET, False, False)))
    index.release(cursor)
    return sorted(lines)


def session_lines(session: Session, resting: Replica | None) -> list[tuple[Any, ...]]:
    snapshots: list[tuple[Any, ...]] = [
        (one.record_id, one.version, one.subscription.topic_filter) for one in session.snapshots if one.record_id
    ]
    if resting is not None:
        snapshots += [
            (number, one.version, one.topic_filter)
            for number, one in resting.snapshots.items()
            if one.session_id == session.record_id
        ]
    return [
        ("is", session.record_id, session.owner, session.protocol, session.created_at_ms, session.attached),
        ("ends", session.expiry_s, session.expires_at_ms),
        ("will", will_line(session.will)),
        ("subscriptions", sorted(subscription_line(each) for each in session.subscriptions.values())),
        ("queue", [delivery_line(each) for each in session.queue if each.sequence]),
        ("inflight", [(number, *delivery_line(each)) for number, each in session.inflight.items() if each.sequence]),
        ("unreleased", sorted(session.unreleased)),
        ("numbers", session.next_sequence),
        ("snapshots", sorted(snapshots)),
    ]


def subscription_line(each: Any) -> tuple[Any, ...]:
    return each.topic_filter, each.share_name, each.qos, each.no_local, each.retain_as_published, each.identifier


def delivery_line(each: Delivery) -> tuple[Any, ...]:
    message = encode_publish(each.message, 0, False, False)
    return each.sequence, each.qos, each.retain, each.identifiers or [], each.stage, message


def will_line(pending: PendingWill | None) -> tuple[Any, ...]:
    if pending is None:
        return ()
    will = pending.will
    properties = will.properties
    forward, expiry = (properties.forward, properties.message_expiry) if properties is not None else (b"", None)
    return will.topic, will.payload, will.qos, will.retain, forward, expiry, pending.delay_s, pending.due_ms
