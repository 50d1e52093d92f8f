"""That the servers of these tests do what the tests ask of them: a proxy between two is the only way between them."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from log_servers import NOWHERE, LogServers, until


class Forwarder:
    """Passes bytes on to a port that is known later, for as long as `is_open`."""

    def __init__(self, target: Callable[[], int]) -> None:
        self.target = target
        self.is_open = True
        self.passed = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self.carry, args=(client,), daemon=True).start()

    def carry(self, client: socket.socket) -> None:
        with (
            client,
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self.target())) as server,
            selectors.DefaultSelector() as arriving,
        ):
            arriving.register(client, selectors.EVENT_READ, (client, server))
            arriving.register(server, selectors.EVENT_READ, (server, client))
            while self.is_open:
                for key, _ in arriving.select(0.1):
                    end, other = key.data
                    data = end.recv(65536)
                    if not data:
                        return
                    self.passed += len(data)
                    other.sendall(data)


def test_servers_meet_through_proxies_only_and_part_when_these_close(tmp_path: Path) -> None:
    ways: dict[tuple[int, int], Forwarder] = {}

    def route(one: int, other: int) -> int:
        ways[(one, other)] = Forwarder(lambda: servers[other - 1].route_port)
        return ways[(one, other)].port

    servers = LogServers(tmp_path, route=route)
    with servers:
        assert f'advertise: "127.0.0.1:{NOWHERE}"' in (servers[0].folder / "server.conf").read_text()
        assert len(ways) == 6
        for pair, way in ways.items():
            way.is_open = 3 not in pair
        until(lambda: len(servers[2].look("routez").get("routes", [1])) == 0, "the third server is by itself")
        until(lambda: servers[0].look("routez").get("num_routes", 0) > 0, "the other two are not")
        for way in ways.values():
            way.is_open = True
        until(lambda: servers[2].look("routez").get("num_routes", 0) > 0, "they have met again")
        servers.wait_ready()
    for way in ways.values():
        way.listener.shutdown(socket.SHUT_RDWR)  # which ends the thread that waits there; closing would not
        way.listener.close()
