"""Retained messages by the million: setting them, having them sent to a new subscriber, clearing them."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.bench.codec import numbered_topic, retained_block
from holdfast.bench.link import Link, LinkError
from holdfast.bench.plan import Plan

BLOCK = 2000  # messages per write

Step = Callable[[float], None]  # hears which share of the work is done


@dataclass
class Snapshot:
    topic_filter: str
    messages: int
    expected: int
    seconds: float  # from SUBSCRIBE to the last message
    first_s: float  # from SUBSCRIBE to the first read that brought messages

    @property
    def per_s(self) -> float:
        return self.messages / self.seconds if self.seconds else 0.0


class RetainedSet:
    """`count` topics on one broker, numbered by the plan's topic; without a `%i` in it, the made-up fleet's."""

    def __init__(self, plan: Plan, count: int) -> None:
        self.plan = plan
        self.count = count
        self.pattern = plan.topic.encode() if "%i" in plan.topic else b""
        self._opened = 0

    def topic(self, index: int) -> str:
        return numbered_topic(self.pattern, index).decode()

    def wire_bytes(self) -> int:
        """Topic and payload of all messages together: what no store can do without."""
        topics = sum(len(numbered_topic(self.pattern, index)) for index in range(self.count))
        return topics + self.count * self.plan.size

    def matching(self, topic_filter: str) -> int:
        if topic_filter == "#":
            return self.count
        levels = topic_filter.split("/")
        return sum(matches(levels, self.topic(index).split("/")) for index in range(self.count))

    def fill(self, step: Step | None = None) -> float:
        """Sets them all; seconds from the first byte to the answer of a ping behind the last."""
        return self._publish(self.plan.payload, step)

    def clear(self, step: Step | None = None) -> float:
        return self._publish(b"", step)

    def fill_expiring(self, at_s: float, step: Step | None = None) -> None:
        """Sets them all to expire at `at_s` on the monotonic clock, to the second; needs MQTT 5."""
        link = self.open("set")
        for first in range(0, self.count, BLOCK):
            left_s = max(1, round(at_s - time.monotonic()))
            count = min(BLOCK, self.count - first)
            link.socket.sendall(
                retained_block(self.pattern, first, count, self.plan.payload, self.plan.version, left_s)
            )
            if step:
                step((first + count) / self.count)
        link.ping()
        link.close()

    def _publish(self, payload: bytes, step: Step | None) -> float:
        blocks = [
            retained_block(self.pattern, first, min(BLOCK, self.count - first), payload, self.plan.version)
            for first in range(0, self.count, BLOCK)
        ]
        link = self.open("set")
        began = time.monotonic()
        for done, block in enumerate(blocks, 1):
            link.socket.sendall(block)
            if step and done % 10 == 0:
                step(done / len(blocks))
        link.ping()
        seconds = time.monotonic() - began
        link.close()
        return seconds

    def snapshot(self, topic_filter: str, expected: int, quiet_s: float = 2.0, step: Step | None = None) -> Snapshot:
        """Subscribes and waits until `expected` messages are there, or none comes for `quiet_s`."""
        link = self.open("snapshot")
        link.socket.settimeout(quiet_s)
        began = time.monotonic()
        link.send_subscribe([topic_filter], self.plan.qos)
        first = last = 0.0
        reads = 0
        while link.intake.messages < expected:
            before = link.intake.messages
            try:
                link.read("retained messages")
            except LinkError:
                break
            if link.intake.messages > before:
                last = time.monotonic() - began
                first = first or last
            reads += 1
            if step and expected and reads % 20 == 0:
                step(link.intake.messages / expected)
        messages = link.intake.messages
        link.close()
        return Snapshot(topic_filter, messages, expected, last, first)

    def round_trips(self, times: int, at_most_s: float = 2.0) -> tuple[float, float]:
        """Medians in ms: subscribing one topic until its message is there, and a topic that has none until SUBACK."""
        deadline = time.perf_counter() + at_most_s
        link = self.open("exact")
        exact: list[float] = []
        empty: list[float] = []
        for turn in range(times):
            topic = self.topic(turn * 7919 % self.count)
            wanted = link.intake.messages + 1
            began = time.perf_counter()
            link.send_subscribe([topic], 0)
            while link.intake.messages < wanted:
                link.read(f"the retained message of {topic}")
            exact.append(time.perf_counter() - began)
            link.await_subscribed()
            link.unsubscribe([topic])
            topic += "/none"
            began = time.perf_counter()
            link.send_subscribe([topic], 0)
            link.await_subscribed()
            empty.append(time.perf_counter() - began)
            link.unsubscribe([topic])
            if time.perf_counter() > deadline:
                break
        link.close()
        return statistics.median(exact) * 1e3, statistics.median(empty) * 1e3

    def open(self, role: str) -> Link:
        self._opened += 1
        plan = self.plan
        return Link.open(
            plan.host,
            plan.port,
            f"{plan.prefix}-{role}-{self._opened}",
            plan.version,
            username=plan.username,
            password=plan.password,
            timeout_s=60.0,
        )


def matches(filter_levels: list[str], topic_levels: list[str]) -> bool:
    for position, level in enumerate(filter_levels):
        if level == "#":
            return True
        if position == len(topic_levels) or (level != "+" and level != topic_levels[position]):
            return False
    return len(filter_levels) == len(topic_levels)
