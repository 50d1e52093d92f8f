"""The HTTP listeners, on the broker's own event loop, and what they ask of a connection before and while it speaks.

Whether an address is banned and how many connections there may be is asked when one is accepted, of the same policy as
on the other listeners. Then time runs: for the head of each request, for an answer that is not taken, and for a body
that nobody is going to read any more. Bodies that are read have `bodies.py`.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol
from wsproto.events import Ping

from holdfast.api.auth import Bans
from holdfast.broker.core import Broker

BACKLOG = 512
KEEP_ALIVE_S = 30
STOP_S = 2
# How long an answer may wait for a client that takes none of it.
STALLED_S = 30.0
# How long the rest of a body is read and thrown away after its request was answered: a client that is still sending
# would otherwise find the connection reset, and never read why.
LINGER_S = 5.0
# What a page may say on the live channel in one message.
LIVE_MESSAGE_BYTES = 1 << 20


class Policy(Protocol):
    """What a listener asks of each connection, bans and limits that it shares with the others."""

    def admit(self, peer: "HttpConnection", now: float) -> str:
        """Count a connection. Returns why it must be refused, or an empty string."""

    def holds(self, peer: "HttpConnection") -> bool:
        """Whether a connection would still be taken with the certificate that it has shown."""

    def release(self, peer: "HttpConnection") -> None: ...


@dataclass
class Room:
    """How many HTTP connections there are and may be, on all listeners together (0 is no limit), and who gets none."""

    broker: Broker
    bans: Bans
    most: int = 0
    present: set["HttpConnection"] = field(default_factory=set)

    def end_revoked(self) -> None:
        """Hang up on those whose certificates are not good any more, in the middle of a request if need be."""
        for connection in list(self.present):
            if not connection.policy.holds(connection):
                connection.hang_up()

    def is_full(self) -> bool:
        everyone = self.broker.settings.max_connections
        here = len(self.present)
        return 0 < self.most <= here or 0 < everyone <= here + self.broker.counters.connected_now


class HttpConnection(H11Protocol):
    """`counted` belongs to the policy: the connection is one of its address's."""

    def __init__(self, *, room: Room, policy: Policy, head_s: float, **given: Any) -> None:
        super().__init__(**given)
        self.room = room
        self.policy = policy
        self.head_s = head_s
        self.host = ""
        self.counted = False
        self.refused = False
        self.head_timer: asyncio.TimerHandle | None = None
        self.stall_timer: asyncio.TimerHandle | None = None
        self.linger_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.host = self.client[0] if self.client is not None else ""
        now = self.loop.time()
        full = self.room.is_full()
        self.room.present.add(self)
        if self.room.bans.bans(self.host, now):
            self.refuse(b"403 Forbidden", "the address is banned")
        elif objection := self.policy.admit(self, now):
            self.refuse(b"503 Service Unavailable", objection)
        elif full:
            self.refuse(b"503 Service Unavailable", "too many connections")
        else:
            self.wait_for_head()

    def refuse(self, status: bytes, objection: str) -> None:
        """Answer and hang up before a word is read."""
        self.refused = True
        text = objection.encode()
        self.transport.write(
            b"HTTP/1.1 %b\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"
            % (status, len(text), text)
        )
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.leave()

    def leave(self) -> None:
        for timer in (self.head_timer, self.stall_timer, self.linger_timer):
            if timer is not None:
                timer.cancel()
        self.room.present.discard(self)
        self.policy.release(self)
        self.ws_protocol_class = None  # no cycle may keep a closed connection in memory

    # Time.

    def data_received(self, data: bytes) -> None:
        if self.refused:
            return
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self.wait_for_head()
        elif self.head_timer is not None:
            self.head_timer.cancel()
            self.head_timer = None
        if self.linger_timer is not None and not self.is_lingering():
            self.linger_timer.cancel()
            self.linger_timer = None

    def wait_for_head(self) -> None:
        if self.head_timer is None:
            self.head_timer = self.loop.call_later(self.head_s, self.hang_up)

    def is_lingering(self) -> bool:
        """Whether all is answered and the body still comes."""
        return self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.is_lingering():
            self.linger_timer = self.loop.call_later(LINGER_S, self.hang_up)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.stall_timer = self.loop.call_later(STALLED_S, self.hang_up)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.stall_timer is not None:
            self.stall_timer.cancel()
            self.stall_timer = None

    def hang_up(self) -> None:
        self.transport.abort()

    # What a policy may do with those it has let in.

    def close(self, reason: str) -> None:
        self.transport.close()

    def abort(self) -> None:
        self.transport.abort()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        if self.head_timer is not None:
            self.head_timer.cancel()
            self.head_timer = None
        # The transport is handed over: the end of the connection is the WebSocket's to tell.
        self.ws_protocol_class = partial(LiveConnection, self.leave)  # type: ignore[assignment]
        super().handle_websocket_upgrade(event)


class LiveConnection(WSProtocol):
    def __init__(self, leave: Any, **given: Any) -> None:
        super().__init__(**given)
        self.leave = leave

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.leave()

    def handle_ping(self, event: Ping) -> None:
        """Who sends PINGs and reads no PONG gets none (RFC 6455 5.5.3 asks for the last one only)."""
        if self.writable.is_set():
            super().handle_ping(event)


class QuietServer(uvicorn.Server):
    """Signals are the broker's business, and so is who may connect, and how long the beginning of TLS may take."""

    def __init__(self, config: uvicorn.Config, policy: Policy, room: Room, head_s: float) -> None:
        super().__init__(config)
        self.policy = policy
        self.room = room
        self.head_s = head_s

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def make_connection(self) -> HttpConnection:
        given = {"config": self.config, "server_state": self.server_state, "app_state": {}}
        return HttpConnection(room=self.room, policy=self.policy, head_s=self.head_s, **given)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        context = self.config.ssl
        handshake_s = None if context is None else self.head_s
        create = asyncio.get_running_loop().create_server
        self.servers = [
            await create(
                self.make_connection, sock=sock, ssl=context, ssl_handshake_timeout=handshake_s, backlog=BACKLOG
            )
            for sock in sockets or []
        ]
        self.started = True


class HttpListener:
    """`start` serves on a socket that is bound already; `stop` ends open requests within moments."""

    def __init__(self, app: ASGIApp, context: ssl.SSLContext | None, policy: Policy, room: Room, head_s: float) -> None:
        config = uvicorn.Config(
            app,
            loop="none",
            http="h11",
            ws="wsproto",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=STOP_S,
            ws_max_size=LIVE_MESSAGE_BYTES,
            ws_per_message_deflate=False,  # a few bytes would become megabytes before anyone counts them
        )
        config.load()
        if context is not None:
            config.ssl = context  # made by the net room, which can exchange its certificates
        self.server = QuietServer(config, policy, room, head_s)
        self.task: asyncio.Task[None] | None = None

    def start(self, sock: socket.socket) -> None:
        self.task = asyncio.create_task(self.server.serve([sock]), name="holdfast-http")

    async def stop(self) -> None:
        if self.task is not None:
            self.server.should_exit = True
            await asyncio.wait([self.task], timeout=STOP_S + 1)
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
