"""API and dashboard as one thing that the server starts and stops, on any number of listeners."""

import socket
import ssl

from holdfast.api.app import make_app
from holdfast.api.desk import Desk
from holdfast.api.guard import Doorkeeper
from holdfast.api.listener import HttpListener
from holdfast.api.parts import make_parts

BACKLOG = 512


class HttpService:
    def __init__(self, desk: Desk, doorkeeper: Doorkeeper, cors: list[str]) -> None:
        self.doorkeeper = doorkeeper
        self.parts = make_parts(desk, doorkeeper)
        self.app = make_app(self.parts, cors)
        self.listeners: list[HttpListener] = []
        self.parts.series.start()

    def listen(self, host: str, port: int, context: ssl.SSLContext | None, max_connections: int) -> tuple[str, int]:
        """Serve on an address; the host and port that it became. Raises OSError when it cannot be had."""
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            sock.listen(BACKLOG)
            sock.setblocking(False)
        except OSError:
            sock.close()
            raise
        listener = HttpListener(self.app, context, max_connections)
        listener.start(sock)
        self.listeners.append(listener)
        name = sock.getsockname()
        return name[0], name[1]

    async def stop(self) -> None:
        self.parts.series.stop()
        for listener in self.listeners:
            await listener.stop()
        self.parts.past.stop()
        self.doorkeeper.stop()
