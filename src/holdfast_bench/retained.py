"""Retained messages by the million: setting them, having them sent to one or many new subscribers, clearing them."""

import gc
import select
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from holdfast_bench.codec import PublishFrame, encode_subscribe, numbered_topic, retained_block
from holdfast_bench.connection import LoadConnection, LoadError
from holdfast_bench.plan import Plan
from holdfast_bench.worker import open_connections

BLOCK = 2000  # messages per write
QUIET_S = 5.0

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
        self.busy = 0.0  # processor time of this process over the time of the last `fill`, `clear` or `snapshot`

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
        connection = self.open("set")
        for first in range(0, self.count, BLOCK):
            left_s = max(1, round(at_s - time.monotonic()))
            count = min(BLOCK, self.count - first)
            connection.socket.sendall(
                retained_block(self.pattern, first, count, self.plan.payload, self.plan.version, left_s)
            )
            if step:
                step((first + count) / self.count)
        connection.ping()
        connection.close()

    def _publish(self, payload: bytes, step: Step | None) -> float:
        blocks = [
            retained_block(self.pattern, first, min(BLOCK, self.count - first), payload, self.plan.version)
            for first in range(0, self.count, BLOCK)
        ]
        connection = self.open("set")
        began, began_cpu = time.monotonic(), time.process_time()
        for done, block in enumerate(blocks, 1):
            connection.socket.sendall(block)
            if step and done % 10 == 0:
                step(done / len(blocks))
        connection.ping()
        seconds = time.monotonic() - began
        self.busy = (time.process_time() - began_cpu) / seconds
        connection.close()
        return seconds

    def snapshot(self, topic_filter: str, expected: int, quiet_s: float = 2.0, step: Step | None = None) -> Snapshot:
        """Subscribes and waits until `expected` messages are there, or none comes for `quiet_s`."""
        connection = self.open("snapshot")
        connection.socket.settimeout(quiet_s)
        began, began_cpu = time.monotonic(), time.process_time()
        connection.send_subscribe([topic_filter], self.plan.qos)
        first = last = 0.0
        reads = 0
        while connection.received.messages < expected:
            before = connection.received.messages
            try:
                connection.read("retained messages")
            except LoadError:
                break
            if connection.received.messages > before:
                last = time.monotonic() - began
                first = first or last
                self.busy = (time.process_time() - began_cpu) / last
            reads += 1
            if step and expected and reads % 20 == 0:
                step(connection.received.messages / expected)
        messages = connection.received.messages
        connection.close()
        return Snapshot(topic_filter, messages, expected, last, first)

    def round_trips(self, times: int, at_most_s: float = 2.0) -> tuple[float, float]:
        """Medians in ms: subscribing one topic until its message is there, and a topic that has none until SUBACK."""
        deadline = time.perf_counter() + at_most_s
        connection = self.open("exact")
        exact: list[float] = []
        empty: list[float] = []
        for turn in range(times):
            topic = self.topic(turn * 7919 % self.count)
            wanted = connection.received.messages + 1
            began = time.perf_counter()
            connection.send_subscribe([topic], 0)
            while connection.received.messages < wanted:
                connection.read(f"the retained message of {topic}")
            exact.append(time.perf_counter() - began)
            connection.await_subscribed()
            connection.unsubscribe([topic])
            topic += "/none"
            began = time.perf_counter()
            connection.send_subscribe([topic], 0)
            connection.await_subscribed()
            empty.append(time.perf_counter() - began)
            connection.unsubscribe([topic])
            if time.perf_counter() > deadline:
                break
        connection.close()
        return statistics.median(exact) * 1e3, statistics.median(empty) * 1e3

    def set_and_receive(self, times: int) -> float:
        """The median in ms from setting one topic to the subscriber that has it, one message at a time."""
        publisher, subscriber = self.open("setter"), self.open("receiver")
        topic = self.topic(0)
        subscriber.subscribe([topic], 0)
        publisher.ping()
        frame = PublishFrame(topic.encode(), self.plan.payload, 0, True, self.plan.version).block(1)
        trips: list[float] = []
        for _ in range(times):
            wanted = subscriber.received.messages + 1
            began = time.perf_counter()
            publisher.socket.sendall(frame)
            while subscriber.received.messages < wanted:
                subscriber.read(f"the message of {topic}")
            trips.append(time.perf_counter() - began)
        publisher.close()
        subscriber.close()
        return statistics.median(trips) * 1e3

    def open(self, role: str) -> LoadConnection:
        self._opened += 1
        plan = self.plan
        return LoadConnection.open(
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


@dataclass
class ConcurrentSnapshot:
    messages: int  # over all clients
    seconds: float  # until the last message of the last client
    first_done_s: float  # when the first client had everything
    behind: float  # how far the slowest was behind the average when the first was done, 0 to 1


def snapshot_concurrently(
    plan: Plan, clients: int, topic_filter: str, expected: int, quiet_s: float = QUIET_S
) -> ConcurrentSnapshot:
    """All clients subscribe `topic_filter` at once and read until each has `expected` messages."""
    connections = open_connections(plan, clients, "crowd")
    gc.disable()
    try:
        began = time.monotonic()
        for connection in connections:
            connection.socket.sendall(encode_subscribe(1, [topic_filter], plan.qos, plan.version))
        return _read_all(connections, expected, began, quiet_s)
    finally:
        gc.enable()
        for connection in connections:
            connection.close()


def _read_all(connections: list[LoadConnection], expected: int, began: float, quiet_s: float) -> ConcurrentSnapshot:
    waiting = {connection.socket.fileno(): connection for connection in connections}
    first_done_s = behind = 0.0
    with select.epoll() as epoll:
        for fd in waiting:
            epoll.register(fd, select.EPOLLIN)
        while waiting:
            events = epoll.poll(quiet_s)
            if not events:
                missing = sum(expected - connection.received.messages for connection in waiting.values())
                raise LoadError(f"nothing arrived for {quiet_s:g} s and {missing} of the retained messages are missing")
            for fd, _ in events:
                waiting[fd].read("retained messages")
                if waiting[fd].received.messages >= expected:
                    del waiting[fd]
                    epoll.unregister(fd)
                    if not first_done_s:
                        first_done_s = time.monotonic() - began
                        counts = [connection.received.messages for connection in connections]
                        behind = 1 - min(counts) / (sum(counts) / len(counts))
    seconds = time.monotonic() - began
    return ConcurrentSnapshot(
        sum(connection.received.messages for connection in connections), seconds, first_done_s, behind
    )
