"""Who is there, seen by nodes that meet at a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cluster.connection import Connection
from holdfast.cluster.options import ConnectionOptions
from holdfast.cluster.presence import BEAT, HEAD, NameTaken, Peer, Presence
from log_nodes import run, until
from log_servers import LogServers, paused


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[LogServers]:
    with LogServers(tmp_path, count=1) as started:
        yield started


class Present:
    """A node that does nothing but be there."""

    def __init__(self, servers: LogServers, name: str, timeout_s: float = 10.0, born: int = 0) -> None:
        self.connection = Connection(ConnectionOptions(tuple(servers.urls)), asyncio.get_running_loop())
        self.heard: list[tuple[str, bool]] = []
        self.said = b"position 0"
        self.presence = Presence(
            self.connection, "holdfast", name, lambda: self.said, self.on_change, timeout_s, now_ms=born
        )

    async def start(self) -> Present:
        await self.connection.open()
        await self.presence.claim()
        self.presence.start()
        return self

    async def stop(self) -> None:
        self.presence.stop()
        await self.connection.close()

    def on_change(self, peer: Peer) -> None:
        self.heard.append((peer.node, peer.is_alive))


def test_nodes_hear_each_other_and_what_each_has_to_say(servers: LogServers) -> None:
    async def story() -> None:
        a, b = await Present(servers, "a", timeout_s=10_000).start(), await Present(servers, "b").start()
        await until(lambda: a.heard and b.heard, "they have heard each other")
        assert (a.heard, b.heard) == ([("b", True)], [("a", True)])
        b.said = b"position 7"
        await until(lambda: a.presence.peers["b"].payload == b"position 7", "the news has come")
        await b.stop()
        await until(lambda: a.heard == [("b", True), ("b", False)], "b has taken leave")
        await a.stop()

    run(story())


def test_a_node_that_falls_silent_is_given_up_and_welcomed_back(servers: LogServers) -> None:
    async def story() -> None:
        a, b = await Present(servers, "a", timeout_s=2.0).start(), await Present(servers, "b").start()
        await until(lambda: a.heard, "a has heard b")
        b.connection.publish = lambda *args: False  # type: ignore[method-assign]
        await until(lambda: a.heard == [("b", True), ("b", False)], "b is given up")
        del b.connection.publish
        await until(lambda: a.heard[-1] == ("b", True), "b is back")
        await a.stop()
        await b.stop()

    run(story())


def test_nobody_is_given_up_for_a_silence_that_was_our_own(servers: LogServers) -> None:
    async def story() -> None:
        a, b = await Present(servers, "a", timeout_s=3.0).start(), await Present(servers, "b").start()
        await until(lambda: a.heard, "a has heard b")
        with paused(servers[0]):
            await until(lambda: not a.connection.is_connected, "the server is given up")
        await until(lambda: a.connection.is_connected and b.connection.is_connected, "it is there again")
        heard_at = a.presence.peers["b"].heard_at
        await until(lambda: a.presence.peers["b"].heard_at > heard_at + 2, "b is heard again")
        assert a.heard == [("b", True)]
        await a.stop()
        await b.stop()

    run(story())


def test_a_second_node_of_the_same_name_does_not_start(servers: LogServers) -> None:
    async def story() -> None:
        a = await Present(servers, "a").start()
        second = Present(servers, "a")
        with pytest.raises(NameTaken, match="a node named 'a' is part of this cluster already"):
            await second.start()
        await second.connection.close()
        await a.stop()
        third = await Present(servers, "a").start()
        await third.stop()

    run(story())


def test_of_two_that_begin_at_once_with_one_name_the_later_gives_way(servers: LogServers) -> None:
    async def story() -> None:
        first, second = Present(servers, "a", born=1), Present(servers, "a", born=2)
        told: list[str] = []
        first.presence.on_conflict = lambda e: told.append("first")
        second.presence.on_conflict = lambda e: told.append("second")
        for one in (first, second):
            await one.connection.open()
            await one.presence.claim()
        first.presence.start()
        second.presence.start()
        await until(lambda: told, "one was told")
        await first.stop()
        await second.stop()
        assert set(told) == {"second"}

    run(story())


def test_nobody_gives_way_to_what_an_earlier_one_of_its_name_had_said_before_it_died(servers: LogServers) -> None:
    async def story() -> None:
        b = await Present(servers, "b").start()
        a = Present(servers, "a", born=2)
        told: list[NameTaken] = []
        a.presence.on_conflict = told.append
        await a.start()
        await until(lambda: a.heard == [("b", True)], "b is heard")
        for _ in range(3):  # all at once, as from a server that stood still
            b.connection.publish("holdfast.holdfast.node.a", HEAD.pack(BEAT, b"earlier!", 1) + b"position 0")
        heard_at = a.presence.peers["b"].heard_at
        await until(lambda: a.presence.peers["b"].heard_at > heard_at, "b is heard again, after all of that")
        assert told == []
        await a.stop()
        await b.stop()

    run(story())
