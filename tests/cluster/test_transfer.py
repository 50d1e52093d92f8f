"""The state of a node through the object store of real servers."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast.cluster.connection import Connection
from holdfast.cluster.options import ConnectionOptions
from holdfast.cluster.transfer import CHUNK, Stored, Transfer
from holdfast.errors import StoreError
from log_nodes import run, until
from log_servers import LogServers


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[LogServers]:
    with LogServers(tmp_path) as started:
        yield started


async def connect(servers: LogServers) -> tuple[Connection, Transfer]:
    connection = Connection(ConnectionOptions(tuple(servers.urls)), asyncio.get_running_loop())
    await connection.open()
    return connection, Transfer(connection, "holdfast", 3)


async def pieces(size: int, of: int = 10_000) -> AsyncIterator[bytes]:
    """Bytes that differ from place to place, in pieces that have nothing to do with chunks."""
    done = 0
    while done < size:
        piece = hashlib.sha256(b"%d" % done).digest() * (of // 32 + 1)
        yield piece[: min(of, size - done)]
        done += min(of, size - done)


async def whole(stream: AsyncIterator[bytes]) -> bytes:
    return b"".join([piece async for piece in stream])


@pytest.mark.parametrize("size", [0, 1, CHUNK, CHUNK + 1, 20_000_000])
def test_what_is_put_in_comes_out(servers: LogServers, size: int) -> None:
    async def story() -> None:
        connection, transfer = await connect(servers)
        progress: list[tuple[int, int]] = []
        stored = await transfer.put("a", pieces(size), {"position": "17", "hash": "ab"})
        assert await transfer.find() == [Stored(**{**vars(stored), "stored_at": (await transfer.find())[0].stored_at})]
        found = (await transfer.find())[0]
        assert (found.size, found.about) == (size, {"position": "17", "hash": "ab"})
        got = await whole(transfer.get(found, lambda done, of: progress.append((done, of))))
        assert got == await whole(pieces(size))
        assert progress[-1:] == ([(size, size)] if size else [])
        await connection.close()

    run(story())


def test_there_is_nothing_before_anything_was_put_in(servers: LogServers) -> None:
    async def story() -> None:
        connection, transfer = await connect(servers)
        assert await transfer.find() == []
        await connection.close()

    run(story())


def test_a_newer_one_takes_the_place_of_an_older_one_and_old_ones_are_removed(servers: LogServers) -> None:
    async def story() -> None:
        connection, transfer = await connect(servers)
        for name, size in (("a", 100), ("b", 200), ("a", 300), ("c", 400)):
            await transfer.put(name, pieces(size), {})
        assert [(found.name, found.size) for found in await transfer.find()] == [("c", 400), ("a", 300), ("b", 200)]
        await transfer.keep_newest(2)
        assert [found.name for found in await transfer.find()] == ["c", "a"]
        info = await asyncio.to_thread(servers.request, "$JS.API.STREAM.INFO.OBJ_HF_holdfast_state")
        assert info["state"]["messages"] == 4, "two notes, and two chunks: nothing is left behind"
        await connection.close()

    run(story())


def test_one_that_breaks_off_is_not_there_and_leaves_nothing_behind(servers: LogServers) -> None:
    async def broken() -> AsyncIterator[bytes]:
        async for piece in pieces(3_000_000):
            yield piece
        raise OSError("the disk is gone")

    async def story() -> None:
        connection, transfer = await connect(servers)
        with pytest.raises(OSError, match="the disk is gone"):
            await transfer.put("a", broken(), {})
        assert await transfer.find() == []
        info = await asyncio.to_thread(servers.request, "$JS.API.STREAM.INFO.OBJ_HF_holdfast_state")
        assert info["state"]["messages"] == 0
        await connection.close()

    run(story())


def test_one_that_is_damaged_is_refused(servers: LogServers) -> None:
    async def story() -> None:
        connection, transfer = await connect(servers)
        stored = await transfer.put("a", pieces(1000), {})
        with pytest.raises(StoreError, match="came out of the object store damaged: expected 1000 bytes"):
            await whole(transfer.get(Stored(**{**vars(stored), "digest": "SHA-256=other"})))
        await connection.close()

    run(story())


def test_reading_goes_on_when_the_server_is_lost_in_the_middle(servers: LogServers) -> None:
    async def story() -> None:
        connection, transfer = await connect(servers)
        size = 40 * CHUNK
        stored = await transfer.put("a", pieces(size, 100_000), {})
        digest = hashlib.sha256()
        got = 0
        mine = next(server for server in servers if server.url == connection.url)
        async for chunk in transfer.get(stored):
            digest.update(chunk)
            got += 1
            if got == 10:
                mine.kill()
                await until(lambda: connection.is_connected and connection.url != mine.url, "another one is found")
        assert digest.digest() == hashlib.sha256(await whole(pieces(size, 100_000))).digest()
        await connection.close()

    run(story())
