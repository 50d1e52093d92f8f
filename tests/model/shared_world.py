"""Brokers that share one log, in this process: the log is a list, and every broker reads it at its own pace.

`SharedWorld` is a world like the others, for the model: all clients meet one broker, whose entries come back at once.
Two more brokers read the same log, one of which starts again and again from its disk, and all three must come to hold
the same.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from core_driver import ListLog, carry_out
from holdfast.broker.core import Broker
from holdfast.broker.effects import Effects
from holdfast.broker.session import Delivery, Session
from holdfast.broker.shared import Shared, SharedLog
from holdfast.state.store import StateStore
from holdfast.storage.loading import load_cluster, load_retained
from model.replicas import retained_lines, subscription_line, will_line
from model.steps import Advance, Plan
from model.world import World

COMPARE_EVERY = 5
RESTART_EVERY = 23


class SharedWorld(World):
    """Time passes for the log with every entry, so whoever lets it pass here does what is due too (`ticking`)."""

    shared: Shared

    def make_broker(self) -> Broker:
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-model-"))
        self.store = StateStore(self.folder / "state")
        broker = super().make_broker()
        self.sequence = 0
        self.calls = 0
        self.seen = Counter[str]()
        self.followers: list[Broker] = []
        self.shared = share(broker, "a")
        for name in ("b", "c"):
            follower = Broker(self.settings(), f"{name}-")
            share(follower, name)
            self.followers.append(follower)
        self.broker = broker
        self.shared.begin(1, "", "test")
        self.pass_on()
        return broker

    def carry_out(self, effects: Effects) -> None:
        carry_out(effects, self.broker.log)
        self.pass_on()
        self.calls += 1
        if self.calls % RESTART_EVERY == 0:
            self.start_again()
        if self.calls % COMPARE_EVERY == 0:
            self.compare()

    def start_again(self) -> None:
        """The last broker forgets everything, and loads what it has on disk."""
        old = self.followers.pop()
        assert old.shared is not None
        local = old.shared.log.local
        assert isinstance(local, ListLog)
        self.store.apply(local.drain())
        broker = Broker(self.settings(), "c-")
        share(broker, "c")
        load_retained(broker, self.store, old.shared.time_ms)
        load_cluster(broker, self.store)
        self.followers.append(broker)

    def close(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def pass_on(self) -> None:
        while (frame := self.shared.take_frame(1 << 20, self.now_ms)) is not None:
            self.sequence += 1
            for broker in (*self.followers, self.broker):
                assert broker.shared is not None
                carry_out(broker.shared.apply(self.sequence, self.now_ms, frame), broker.log)

    def work_off_expiry(self) -> None:
        for _ in range(100):
            if not self.broker.retained.expiry.is_due(self.now_ms):
                return
            self.tick()

    def compare(self) -> None:
        """Fail unless all brokers hold the same now."""
        held = shared_dump(self.broker)
        for follower in self.followers:
            other = shared_dump(follower)
            differing: list[Any] = [pair for pair in zip(held, other, strict=False) if pair[0] != pair[1]]
            if differing and isinstance(differing[0][0][-1], list):
                one, two = differing[0][0][-1], differing[0][1][-1]
                differing = [*differing[0][0][:-1], [x for x in one if x not in two], [x for x in two if x not in one]]
            assert other == held, f"after {self.calls} calls of {self.plan.label}: {differing}"
        for line in held:
            if line[0] == "session" and line[3]:
                self.seen[line[2]] += 1


def ticking(plan: Plan) -> Plan:
    return replace(plan, steps=[replace(step, tick=True) if isinstance(step, Advance) else step for step in plan.steps])


def share(broker: Broker, node: str) -> Shared:
    return broker.use_shared_log(SharedLog(ListLog(), []), node)


def shared_dump(broker: Broker) -> list[tuple[Any, ...]]:
    """What a broker holds that every node must hold: nothing that belongs to a connection of its own."""
    shared = broker.shared
    assert shared is not None
    lines: list[tuple[Any, ...]] = [("at", shared.sequence, shared.chain, shared.log.position, shared.time_ms)]
    lines += [("member", *vars_of(member)) for member in sorted(shared.members.values(), key=lambda each: each.name)]
    lines += [("retained", *line) for line in retained_lines(broker, shared.time_ms) if not line[0].startswith(b"$SYS")]
    for session in sorted(broker.sessions.values(), key=lambda each: each.record_id):
        lines += [("session", session.client_id, *line) for line in lines_of(session)]
        lines.append(("session", session.client_id, "snapshots", snapshot_lines(broker, session)))
    return lines


def vars_of(member: Any) -> tuple[Any, ...]:
    return member.name, member.instance, member.counter, member.began, member.up


def delivery_line(each: Delivery) -> tuple[Any, ...]:
    message = each.message
    content = message.offset, message.topic, message.payload, message.properties, message.expires_at_ms
    return each.sequence, each.qos, each.retain, each.identifiers or [], each.stage, each.shared, *content


def snapshot_lines(broker: Broker, session: Session) -> list[tuple[Any, ...]]:
    assert session.spread is not None
    assert broker.shared is not None
    lines = []
    for each in session.spread.resting.values():
        missed = []
        for field in each.missed:
            stored = broker.retained.get(field[2:], broker.shared.time_ms)
            if stored is not None and each.has_missed(stored):
                missed.append(field)
        lines.append((each.version, each.topic_filter, sorted(each.copied), sorted(missed)))
    return lines


def lines_of(session: Session) -> list[tuple[Any, ...]]:
    spread = session.spread
    assert spread is not None
    subscriptions = session.subscriptions.values()
    if not session.kept:
        subscriptions = [each for each in subscriptions if each.share_name]  # type: ignore[assignment]
    lines: list[tuple[Any, ...]] = [
        ("is", (session.record_id, session.owner, session.protocol, session.created_at_ms, session.attached)),
        ("kept", session.kept),
        ("connection", (spread.connection_id, spread.node, spread.window)),
        ("ends", (session.expiry_s, session.expires_at_ms)),
        ("will", will_line(session.will)),
        ("subscriptions", sorted(subscription_line(each) for each in subscriptions)),
        ("unreleased", sorted(session.unreleased)),
        ("given", sorted((number, each.qos, each.message.offset) for number, each in spread.given.items())),
    ]
    if session.kept:
        lines += [
            ("queue", [delivery_line(each) for each in session.queue]),
            ("inflight", sorted((number, *delivery_line(each)) for number, each in session.inflight.items())),
        ]
    return lines
