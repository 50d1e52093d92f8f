"""What nodes say to each other without anybody keeping it, through a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cluster.channel import Channel
from holdfast.cluster.connection import Connection
from holdfast.cluster.options import ConnectionOptions
from holdfast.errors import NoAnswer
from log_nodes import run, until
from log_servers import LogServers, Variant


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[LogServers]:
    with LogServers(tmp_path, count=1, variant=Variant(max_payload=65536)) as started:
        yield started


class Speaker:
    def __init__(self, servers: LogServers, name: str) -> None:
        options = ConnectionOptions(tuple(servers.urls), max_message=65536)
        self.connection = Connection(options, asyncio.get_running_loop())
        self.heard: list[tuple[str, bytes]] = []
        self.published = 0
        self.channel = Channel(self.connection, "holdfast", name, self.on_message, self.on_request)

    async def start(self) -> Speaker:
        await self.connection.open()
        self.channel.start()
        await self.connection.request("$JS.API.INFO")  # the server has our subscriptions when it has answered this
        return self

    async def stop(self) -> None:
        self.channel.stop()
        await self.connection.close()

    def on_message(self, node: str, payload: bytes) -> None:
        self.heard.append((node, payload))

    def on_request(self, node: str, payload: bytes) -> bytes:
        return node.encode() + b" asked " + payload


async def three(servers: LogServers) -> list[Speaker]:
    return [await Speaker(servers, name).start() for name in "abc"]


def test_messages_reach_the_node_they_are_for_in_order_and_all_but_the_sender_otherwise(servers: LogServers) -> None:
    async def story() -> None:
        a, b, c = await three(servers)
        for number in range(100):
            a.channel.send("b", b"to b %d" % number)
        a.channel.broadcast(b"to all")
        await until(lambda: len(b.heard) == 101 and len(c.heard) == 1, "all have it")
        assert [said for _, said in b.heard if said != b"to all"] == [b"to b %d" % number for number in range(100)]
        assert c.heard == [("a", b"to all")]
        assert a.heard == []
        assert b.channel.lost == 0
        for one in (a, b, c):
            await one.stop()

    run(story())


def test_what_one_turn_has_for_a_node_goes_out_together(servers: LogServers) -> None:
    async def story() -> None:
        a, b, c = await three(servers)
        frames: list[int] = []
        publish = a.connection.publish

        def counted(subject: str, payload: bytes, reply: str = "", headers: bytes = b"") -> bool:
            frames.append(len(payload))
            return publish(subject, payload, reply, headers)

        a.connection.publish = counted  # type: ignore[method-assign]
        for _ in range(1000):
            a.channel.send("b", b"x" * 100)
        await until(lambda: len(b.heard) == 1000, "all have arrived")
        assert len(frames) == 2, "104 000 bytes in frames of up to 65 536"
        assert max(frames) <= 65536
        for one in (a, b, c):
            await one.stop()

    run(story())


def test_a_message_larger_than_the_servers_take_arrives_whole(servers: LogServers) -> None:
    async def story() -> None:
        a, b, c = await three(servers)
        large = bytes(range(256)) * 1000
        for payload in (b"before", large, b"after", b""):
            a.channel.send("b", payload)
        await until(lambda: len(b.heard) == 4, "all have arrived")
        assert [said for _, said in b.heard] == [b"before", large, b"after", b""]
        for one in (a, b, c):
            await one.stop()

    run(story())


def test_a_loss_is_counted_and_a_torn_message_is_not_handed_on(servers: LogServers) -> None:
    async def story() -> None:
        a, b, c = await three(servers)
        a.channel.send("b", b"first")
        await until(lambda: b.heard, "the first has arrived")
        publish = a.connection.publish
        calls = 0

        def lossy(subject: str, payload: bytes, reply: str = "", headers: bytes = b"") -> bool:
            nonlocal calls
            calls += 1
            return True if calls == 2 else publish(subject, payload, reply, headers)

        a.connection.publish = lossy  # type: ignore[method-assign]
        a.channel.send("b", b"x" * 200_000)  # four parts, of which the second is lost
        a.channel.send("b", b"last")
        await until(lambda: len(b.heard) == 2, "the last has arrived")
        assert [said for _, said in b.heard] == [b"first", b"last"]
        assert b.channel.lost == 1
        for one in (a, b, c):
            await one.stop()

    run(story())


def test_a_question_is_answered_and_one_to_nobody_says_so(servers: LogServers) -> None:
    async def story() -> None:
        a, b, c = await three(servers)
        assert await a.channel.request("b", b"what?") == b"a asked what?"
        with pytest.raises(NoAnswer, match=r"nobody answers to holdfast\.holdfast\.ask\.z"):
            await a.channel.request("z", b"what?")
        for one in (a, b, c):
            await one.stop()

    run(story())


def test_what_is_sent_without_a_connection_is_counted_as_dropped(servers: LogServers) -> None:
    async def story() -> None:
        a = await Speaker(servers, "a").start()
        servers[0].kill()
        await until(lambda: not a.connection.is_connected, "the connection is lost")
        a.channel.send("b", b"1")
        a.channel.send("b", b"2")
        a.channel.flush()
        assert a.channel.dropped == 2
        await a.stop()

    run(story())
