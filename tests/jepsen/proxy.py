"""A network that can be broken: TCP links that stand between any two parties, and what can be done to each.

    network = Network()
    link = network.link("a to log 1", lambda: server.client_port)
    link.port                      where the one party connects to, instead of to the other
    link.hold()                    as a cable that is pulled: both sides believe in the connection, and nothing passes
    link.hold(TO_SERVER)           the same in one direction
    link.cut()                     as a firewall that refuses: connections are reset, and new ones are too
    link.delay(0.2)                everything comes later by so much
    link.heal()                    new connections pass; held ones go on where they stood, or with `lose=True` are reset

What is held is not read, so the sender notices by its full buffers, as with a real one. All links run in one thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import struct
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

TO_SERVER = "to server"
TO_CLIENT = "to client"
BOTH = (TO_SERVER, TO_CLIENT)
CHUNK = 65536
STOP_S = 60.0


@dataclass(eq=False)
class _Connection:
    """Two sockets and the two tasks that copy between them."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter | None = None
    waited: set[str] = field(default_factory=set)  # directions in which something had to wait while the link was held

    def reset(self) -> None:
        for writer in (self.client, self.server):
            if writer is None:
                continue
            sock: socket.socket | None = writer.get_extra_info("socket")
            if sock is not None:
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()


class Link:
    """One way for connections from those who know its port to whoever is behind `target`."""

    def __init__(self, network: Network, name: str, target: Callable[[], int]) -> None:
        self.network = network
        self.name = name
        self.target = target
        self.port = 0
        self.refusing = False
        self.delay_s = 0.0
        self.open: dict[str, asyncio.Event] = {}
        self.connections: set[_Connection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.server: asyncio.Server | None = None

    def __repr__(self) -> str:
        return f"Link({self.name!r}, {self.state})"

    @property
    def state(self) -> str:
        held = [direction for direction, event in self.open.items() if not event.is_set()]
        if self.refusing:
            return "cut"
        if held:
            return "held" if len(held) == 2 else f"held {held[0]}"
        return f"late by {self.delay_s} s" if self.delay_s else "open"

    # What a test does; each returns when it is done.

    def hold(self, *directions: str) -> None:
        self.network.call(lambda: self._hold(directions or BOTH))

    def cut(self) -> None:
        self.network.call(self._cut)

    def delay(self, seconds: float) -> None:
        self.network.call(lambda: setattr(self, "delay_s", seconds))

    def heal(self, *, lose: bool = False) -> None:
        """With `lose`, connections on which something had to wait are reset: the senders had given them up."""
        self.network.call(lambda: self._heal(lose))

    # In the network's thread

    async def start(self) -> None:
        for direction in BOTH:
            self.open[direction] = asyncio.Event()
            self.open[direction].set()
        self.server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = int(self.server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        assert self.server is not None
        self.server.close()
        self._cut()
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def _hold(self, directions: tuple[str, ...]) -> None:
        for direction in directions:
            self.open[direction].clear()

    def _cut(self) -> None:
        self.refusing = True
        for connection in list(self.connections):
            connection.reset()

    def _heal(self, lose: bool) -> None:
        self.refusing = False
        self.delay_s = 0.0
        for connection in list(self.connections):
            if lose and connection.waited:
                connection.reset()
            connection.waited.clear()
        for event in self.open.values():
            event.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        connection = _Connection(writer)
        self.connections.add(connection)
        try:
            if not self.refusing:
                await self._serve(connection, reader)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            connection.reset()
            self.connections.discard(connection)
            self.tasks.discard(task)

    async def _serve(self, connection: _Connection, reader: asyncio.StreamReader) -> None:
        await self._pass(connection, TO_SERVER)  # not even a SYN gets through
        server_reader, connection.server = await connect(self.target())
        if self.refusing:
            return
        copies = [
            asyncio.ensure_future(self._copy(connection, reader, connection.server, TO_SERVER)),
            asyncio.ensure_future(self._copy(connection, server_reader, connection.client, TO_CLIENT)),
        ]
        try:
            await asyncio.gather(*copies)
        finally:
            for copy in copies:
                copy.cancel()

    async def _copy(
        self, connection: _Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: str
    ) -> None:
        while True:
            await self._pass(connection, direction)
            data = await reader.read(CHUNK)
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            await self._pass(connection, direction)
            if not data:
                break
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()

    async def _pass(self, connection: _Connection, direction: str) -> None:
        if not self.open[direction].is_set():
            connection.waited.add(direction)
            await self.open[direction].wait()


class Network:
    """All links of a test, and the thread that they run in."""

    def __init__(self) -> None:
        self.links: list[Link] = []
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="network", daemon=True)
        self.thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def link(self, name: str, target: Callable[[], int]) -> Link:
        """`target` is asked for the port at each connection: a server that is started again may have another."""
        link = Link(self, name, target)
        asyncio.run_coroutine_threadsafe(link.start(), self.loop).result(STOP_S)
        self.links.append(link)
        return link

    def call(self, action: Callable[[], None]) -> None:
        async def run() -> None:
            action()

        asyncio.run_coroutine_threadsafe(run(), self.loop).result(STOP_S)

    def heal(self) -> None:
        for link in self.links:
            link.heal()

    def close(self) -> None:
        for link in self.links:
            asyncio.run_coroutine_threadsafe(link.close(), self.loop).result(STOP_S)
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0.1), self.loop).result(STOP_S)  # what was aborted is closed now
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(STOP_S)
        self.loop.close()
        with warnings.catch_warnings():
            # A connection that comes while its link is being closed is left to nobody. It is no sign of anything.
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection. One that is given up while it is being made is made and closed: asyncio would leave it open."""
    making = asyncio.ensure_future(asyncio.open_connection("127.0.0.1", port))
    try:
        return await asyncio.shield(making)
    except asyncio.CancelledError:
        with contextlib.suppress(OSError):
            (await making)[1].transport.abort()
        raise
