"""No packet stops the broker for others: the longest step over a table of the worst packets, in lines of code run.

Lines, not seconds: they are the same on every machine. They can only be counted in the interpreted build.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

import wire
from core_driver import ListLog, carry_out
from holdfast import build
from holdfast.broker.core import Broker
from holdfast.broker.effects import Effects
from holdfast.broker.ports import Peer
from holdfast.broker.session import Connection
from holdfast.broker.settings import Settings
from wire import P

pytestmark = pytest.mark.skipif(build.name() != "interpreted", reason="the lines of compiled code cannot be counted")

NOW_MS = 1_700_000_000_000
MOST_LINES = 400_000  # what a full portion of snapshots takes, a millisecond or two of compiled code
FILTERS = 1000


class Ear(Peer):
    def __init__(self) -> None:
        self.heard = b""

    def write(self, data: bytes) -> None:
        self.heard += data

    def close(self, reason: str) -> None:
        pass


class Scene:
    """A broker with things in it, and how many lines each call into it has run."""

    def __init__(self) -> None:
        settings = Settings()
        settings.max_filters_per_packet = FILTERS
        settings.max_subscriptions = 10 * FILTERS
        settings.max_tombstones = 20_000
        self.log = ListLog()
        self.broker = Broker(settings, "x")
        self.broker.use_log(self.log)
        self.client = self.join("client")
        self.lines = 0
        self.longest = 0

    def join(self, name: str, version: int = 5) -> Connection:
        connection = self.broker.open(Ear(), NOW_MS)
        carry_out(self.broker.receive(connection, wire.connect(name, version=version), NOW_MS), self.log)
        return connection

    def set(self, count: int, pattern: str = "a/{}", payload: bytes = b"1") -> None:
        for number in range(count):
            packet = wire.publish(pattern.format(number), payload, retain=True, version=5)
            carry_out(self.broker.receive(self.client, packet, NOW_MS), self.log)

    def clear(self, count: int) -> None:
        self.set(count, payload=b"")

    def send(self, data: bytes) -> None:
        """Send to the broker as the worst client, and let it work until there is nothing left to do."""
        self.counted(lambda: self.broker.receive(self.client, data, NOW_MS))
        rounds = 0
        while self.broker.has_work():
            self.counted(lambda: self.broker.work(NOW_MS))
            rounds += 1
            assert rounds < 10_000, "there is an end to it"

    def counted(self, call: Callable[[], Effects]) -> None:
        before = sys.gettrace()
        self.lines = 0
        sys.settrace(self.trace)
        try:
            effects = call()
        finally:
            sys.settrace(before)
        carry_out(effects, self.log)
        self.longest = max(self.longest, self.lines)

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.lines += 1
        return self.trace


def many_filters(scene: Scene) -> None:
    scene.set(2000)
    scene.send(wire.subscribe(1, [(f"a/{number}", 1) for number in range(FILTERS)], version=5))


def many_wide_filters(scene: Scene) -> None:
    scene.set(2000)
    scene.send(wire.subscribe(1, [(f"+/{number}/#", 1) for number in range(FILTERS)], version=5))


def many_filters_and_what_was_deleted(scene: Scene) -> None:
    scene.set(5000)
    scene.clear(5000)
    filters = [(f"a/{number}", 1) for number in range(FILTERS - 1)]
    since = (P.USER_PROPERTY, ("holdfast-since", "1"))
    scene.send(wire.subscribe(1, [*filters, ("#", 1)], version=5, properties=[since]))


def unsubscribed_while_all_snapshots_wait(scene: Scene) -> None:
    scene.set(2000)
    for start in range(0, 5000, FILTERS):
        filters = [(f"+/{number}", 1) for number in range(start, start + FILTERS)]
        scene.send(wire.subscribe(1, filters, version=5))
    scene.longest = 0
    scene.send(wire.unsubscribe(2, [f"+/{number}" for number in range(FILTERS)], version=5))


def everything_again_and_again(scene: Scene) -> None:
    scene.set(2000)
    scene.send(b"".join(wire.subscribe(1, [("#", 1)], version=5) for _ in range(200)))


def a_deep_topic(scene: Scene) -> None:
    scene.send(wire.subscribe(1, [("/".join(["+"] * depth), 0) for depth in range(1, 120)], version=5))
    scene.longest = 0
    scene.send(wire.publish("/".join(["x"] * 120), b"1", version=5))


@pytest.mark.parametrize(
    "attack",
    [
        many_filters,
        many_wide_filters,
        many_filters_and_what_was_deleted,
        unsubscribed_while_all_snapshots_wait,
        everything_again_and_again,
        a_deep_topic,
    ],
)
def test_the_worst_packets_are_gone_through_in_short_steps(attack: Callable[[Scene], None]) -> None:
    scene = Scene()
    attack(scene)
    assert scene.longest < MOST_LINES


def test_what_follows_a_long_subscribe_waits_for_its_answer() -> None:
    scene = Scene()
    long = wire.subscribe(1, [(f"a/{number}", 0) for number in range(FILTERS)], version=5)
    scene.send(long + wire.pingreq())
    ear = scene.client.peer
    assert isinstance(ear, Ear)
    assert ear.heard.index(b"\xd0\x00") > ear.heard.index(b"\x90")
    assert len(scene.broker.sessions["client"].subscriptions) == FILTERS
