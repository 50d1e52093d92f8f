"""The HTTP listener: uvicorn on the broker's own event loop, with sockets and signals left to the server."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

KEEP_ALIVE_S = 30
STOP_S = 2


class QuietServer(uvicorn.Server):
    """Signals are the broker's business."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpListener:
    """`start` serves on a socket that is bound already; `stop` ends open requests within moments."""

    def __init__(self, app: ASGIApp, context: ssl.SSLContext | None, max_connections: int) -> None:
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
            limit_concurrency=max_connections or None,
            ws_max_size=1 << 20,
        )
        config.load()
        if context is not None:
            config.ssl = context  # made by the net room, which can exchange its certificates
        self.server = QuietServer(config)
        self.task: asyncio.Task[None] | None = None

    def start(self, sock: socket.socket) -> None:
        self.task = asyncio.create_task(self.server.serve([sock]), name="holdfast-http")

    async def stop(self) -> None:
        if self.task is not None:
            self.server.should_exit = True
            await asyncio.wait([self.task], timeout=STOP_S + 1)
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
