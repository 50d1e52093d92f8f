"""Nodes that meet at real log servers, with a fold that is as small as it can be.

A message is the name of its node, a counter and some bytes. The fold takes a node's messages in the order of their
counters, as the broker's does, and keeps what it has taken: nodes are equal when their lists are.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import uvloop

from holdfast.cluster.connection import Connection
from holdfast.cluster.options import ConnectionOptions, StreamOptions
from holdfast.cluster.stream import State, Stream

T = TypeVar("T")
PATIENCE_S = 120.0


async def until(look: Callable[[], T | None], what: str) -> T:
    """What `look` finds, as soon as it finds something."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        if found := look():
            return found
        assert time.monotonic() < deadline, f"after {PATIENCE_S:.0f} s still not true: {what}"
        await asyncio.sleep(0.02)


def run(story: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(story)


class LogNode:
    def __init__(
        self,
        urls: Sequence[str],
        name: str,
        options: StreamOptions | None = None,
        connection: ConnectionOptions | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.name = name
        self.connection = Connection(connection or ConnectionOptions(tuple(urls)), loop)
        self.stream = Stream(self.connection, options or StreamOptions(), self.on_message, self.on_state)
        self.states: list[tuple[State, str]] = []
        self.raw: list[tuple[int, int]] = []  # sequence and time of all that was read
        self.taken: list[tuple[str, int]] = []  # what the fold has taken
        self.last: dict[str, int] = {}
        self.sent = 0

    async def start(self, after: int = 0, identity: str = "") -> LogNode:
        await self.stream.start(after, identity)
        return self

    async def stop(self) -> None:
        await self.stream.stop()
        await self.connection.close()

    def on_state(self, state: State, why: str) -> None:
        self.states.append((state, why))

    def on_message(self, sequence: int, time_ms: int, payload: bytes) -> None:
        self.raw.append((sequence, time_ms))
        node, counter_text, _ = payload.decode().split(" ", 2)
        counter, last = int(counter_text), self.last.get(node, 0)
        if counter == last + 1:
            self.last[node] = counter
            self.taken.append((node, counter))
            if node == self.name:
                self.stream.returned(counter)
        elif counter > last + 1 and node == self.name:
            self.stream.resend()

    def send(self, count: int = 1, size: int = 200) -> None:
        for _ in range(count):
            self.sent += 1
            head = f"{self.name} {self.sent} "
            self.stream.send(self.sent, (head + "." * (size - len(head))).encode())

    async def all_back(self) -> None:
        await until(lambda: not self.stream.waiting, f"all messages of {self.name} have come back")

    async def is_in(self, state: State, words: str = "") -> None:
        await until(
            lambda: self.stream.state is state and words in self.stream.why,
            f"{self.name} is {state.value} ({words}); it is {self.stream.state.value}: {self.stream.why}",
        )
