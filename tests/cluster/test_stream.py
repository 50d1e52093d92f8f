"""The log of a cluster on real servers: one order for all, nothing left out, whatever happens to the servers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cluster.options import ConnectionOptions, StreamOptions
from holdfast.cluster.stream import State
from log_nodes import LogNode, run, until
from log_servers import LogServers, paused

STREAM = StreamOptions().stream


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[LogServers]:
    with LogServers(tmp_path) as started:
        yield started


async def two(servers: LogServers) -> tuple[LogNode, LogNode]:
    return await LogNode(servers.urls, "a").start(), await LogNode(servers.urls, "b").start()


async def load(*nodes: LogNode, rounds: int = 100, a_round: int = 5) -> None:
    """Messages of all nodes mixed, never more than a few waiting; returns when all have come back."""
    for _ in range(rounds):
        for node in nodes:
            node.send(a_round)
        await until(lambda: all(node.stream.waiting < 50 for node in nodes), "there is room")
    for node in nodes:
        await node.all_back()


async def check_equal(*nodes: LogNode) -> None:
    """All have read all of the stream without a gap, and have taken everything that was sent, in one order."""
    end = max(node.stream.position for node in nodes)
    for node in nodes:
        await until(lambda node=node: node.stream.position >= end, f"{node.name} is at {end}")  # type: ignore[misc]
    first = nodes[0]
    for node in nodes:
        assert [sequence for sequence, _ in node.raw] == list(range(1, len(node.raw) + 1))
        assert node.raw[:end] == first.raw[:end], "the same times too"
        assert node.taken == first.taken
        assert {other.name: other.sent for other in nodes if other.sent} == node.last


def test_all_nodes_read_one_order_and_one_time(servers: LogServers) -> None:
    async def story() -> None:
        a, b = await two(servers)
        await load(a, b)
        await check_equal(a, b)
        times = [time_ms for _, time_ms in a.raw]
        assert times == sorted(times)
        assert len(a.raw) == a.sent + b.sent, "nothing was sent twice"
        await a.stop()
        await b.stop()

    run(story())


def test_a_node_that_comes_later_reads_all_from_where_it_was(servers: LogServers) -> None:
    async def story() -> None:
        a = await LogNode(servers.urls, "a").start()
        a.send(500)
        await a.all_back()
        b = await LogNode(servers.urls, "b").start(after=200)
        await b.is_in(State.READY)
        assert [sequence for sequence, _ in b.raw] == list(range(201, 501))
        await a.stop()
        await b.stop()

    run(story())


def test_no_more_than_the_window_is_under_way_and_the_rest_waits(servers: LogServers) -> None:
    async def story() -> None:
        a = await LogNode(servers.urls, "a", StreamOptions(in_flight=3)).start()
        a.send(20, size=1000)
        assert a.stream.waiting == 20
        assert a.stream.waiting_bytes == 20_000
        await a.all_back()
        assert a.stream.waiting_bytes == 0
        await a.stop()

    run(story())


def test_messages_as_large_as_the_servers_take_arrive_whole(servers: LogServers) -> None:
    async def story() -> None:
        a = await LogNode(servers.urls, "a").start()
        a.send(40, size=1 << 20)
        await a.all_back()
        assert a.taken == [("a", counter) for counter in range(1, 41)]
        await a.stop()

    run(story())


@pytest.mark.parametrize("fault", ["step down", "kill", "pause", "kill all"])
def test_order_holds_and_nothing_is_missing_when_the_leader(servers: LogServers, fault: str) -> None:
    async def story() -> None:
        a, b = await two(servers)
        loading = asyncio.create_task(load(a, b, rounds=300))
        await until(lambda: a.last.get("a", 0) > 200, "the load has begun")
        leader = await asyncio.to_thread(servers.leader, STREAM)
        if fault == "step down":
            await asyncio.to_thread(servers.step_down, STREAM)
        elif fault == "kill":
            leader.kill()
            await asyncio.to_thread(servers.leader, STREAM)
            leader.start()
        elif fault == "pause":
            before = a.last["a"]
            with paused(leader):
                await until(lambda: a.last["a"] > before + 100 and b.last["b"] > before + 100, "another one leads")
        else:
            for server in servers:
                server.kill()
            await a.is_in(State.AWAY)
            for server in servers:
                await asyncio.to_thread(server.start)
        await loading
        await check_equal(a, b)
        await a.is_in(State.READY)
        await b.is_in(State.READY)
        late = await LogNode(servers.urls, "late").start()
        await late.is_in(State.READY)
        await check_equal(a, b, late)
        for node in (a, b, late):
            await node.stop()

    run(story())


def test_a_paused_server_is_left_although_it_takes_no_more_bytes(servers: LogServers) -> None:
    """More is waiting in the socket than the kernel takes: a polite close would wait for the peer for ever."""

    async def story() -> None:
        a = await LogNode(servers.urls, "a").start()
        mine = next(server for server in servers if server.url == a.connection.url)
        with paused(mine):
            a.send(30, size=1_000_000)
            await until(lambda: a.connection.url != mine.url, "another server was found")
            await a.all_back()
        await a.stop()

    run(story())


def test_the_reader_is_made_again_when_its_consumer_is_gone(servers: LogServers) -> None:
    async def story() -> None:
        a = await LogNode(servers.urls, "a").start()
        a.send(10)
        await a.all_back()
        names = await asyncio.to_thread(servers.request, f"$JS.API.CONSUMER.NAMES.{STREAM}")
        for consumer in names["consumers"]:
            await asyncio.to_thread(servers.request, f"$JS.API.CONSUMER.DELETE.{STREAM}.{consumer}")
        a.send(10)
        await a.all_back()
        await until(lambda: a.stream.readers_made >= 2, "there is another reader")
        await check_equal(a)
        await a.stop()

    run(story())


def test_without_a_quorum_nothing_comes_back_and_all_does_afterwards(servers: LogServers) -> None:
    async def story() -> None:
        a = await LogNode(servers.urls, "a").start()
        a.send(10)
        await a.all_back()
        gone = servers[0], servers[1]
        for server in gone:
            server.kill()
        a.send(10)
        await a.is_in(State.AWAY)
        assert a.last == {"a": 10}
        assert a.stream.waiting == 10
        for server in gone:
            await asyncio.to_thread(server.start)
        await a.all_back()
        await a.is_in(State.READY)
        await check_equal(a)
        await a.stop()

    run(story())


def test_a_node_that_writes_nothing_notices_too_that_there_is_no_quorum(servers: LogServers) -> None:
    async def story() -> None:
        a = await LogNode(servers.urls, "a").start()
        await a.is_in(State.READY)
        mine = next(server for server in servers if server.url == a.connection.url)
        others = [server for server in servers if server is not mine]
        for server in others:
            server.kill()
        await a.is_in(State.AWAY)
        await until(lambda: not a.stream.leader, "nobody is said to lead")
        for server in others:
            await asyncio.to_thread(server.start)
        await a.is_in(State.READY)
        await until(lambda: a.stream.leader != "", "the leader is known")
        await a.stop()

    run(story())


def test_what_is_cut_off_is_gone_for_new_readers_and_no_concern_of_old_ones(servers: LogServers) -> None:
    async def story() -> None:
        a = await LogNode(servers.urls, "a").start()
        a.send(100)
        await a.all_back()
        await a.stream.trim(51)
        assert a.stream.first_seq == 51
        a.send(10)
        await a.all_back()
        b = await LogNode(servers.urls, "b").start(after=50)
        await b.is_in(State.READY)
        assert [sequence for sequence, _ in b.raw] == list(range(51, 111))
        await a.stop()
        await b.stop()

    run(story())


def test_a_fold_that_cannot_go_on_stops_the_reading(servers: LogServers) -> None:
    async def story() -> None:
        a = LogNode(servers.urls, "a")
        seen: list[int] = []

        def refuse(sequence: int, time_ms: int, payload: bytes) -> None:
            seen.append(sequence)
            if sequence == 3:
                raise ValueError("no such entry")

        a.stream.on_message = refuse
        await a.start()
        a.send(5)
        await a.is_in(State.FAILED, "message 3 of the log could not be applied: ValueError('no such entry')")
        assert seen == [1, 2, 3]
        await a.stop()

    run(story())


def test_a_log_on_one_server_will_do_where_one_copy_is_enough(tmp_path: Path) -> None:
    async def story(servers: LogServers) -> None:
        a = await LogNode(servers.urls, "a", StreamOptions(replicas=1)).start()
        a.send(50)
        await a.all_back()
        servers[0].kill()
        a.send(50)
        await a.is_in(State.AWAY)
        await asyncio.to_thread(servers[0].start)
        await a.all_back()
        await check_equal(a)
        await a.stop()

    with LogServers(tmp_path, count=1) as servers:
        run(story(servers))


def test_several_clusters_share_the_servers_and_know_nothing_of_each_other(servers: LogServers) -> None:
    async def story() -> None:
        a = await LogNode(servers.urls, "a", StreamOptions(name="east")).start()
        b = await LogNode(servers.urls, "b", StreamOptions(name="west")).start()
        await load(a, b)
        assert (a.last, b.last) == ({"a": a.sent}, {"b": b.sent})
        await a.stop()
        await b.stop()

    run(story())


def test_only_the_servers_that_are_named_are_used(servers: LogServers) -> None:
    async def story() -> None:
        a = await LogNode([], "a", connection=ConnectionOptions((servers[2].url,))).start()
        assert a.connection.url == servers[2].url
        await a.stop()

    run(story())
