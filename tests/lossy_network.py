"""A bad network between a UDP client and a server: loses, doubles and delays, the same way every time."""

from __future__ import annotations

import heapq
import random
import selectors
import socket
import threading
import time


class LossyNetwork:
    """Forwards datagrams between clients that send to `port` and the server, in a thread of its own."""

    def __init__(self, server_port: int, share: float = 0.2, delay_s: float = 0.05, seed: int = 1) -> None:
        self.server = ("127.0.0.1", server_port)
        self.share = share
        self.delay_s = delay_s
        self.random = random.Random(seed)
        self.inside = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.inside.bind(("127.0.0.1", 0))
        self.port = int(self.inside.getsockname()[1])
        self.outside: dict[tuple[str, int], socket.socket] = {}
        self.later: list[tuple[float, int, bytes, socket.socket, tuple[str, int]]] = []
        self.free_from: dict[tuple[socket.socket, tuple[str, int]], float] = {}
        self.count = self.lost = self.doubled = self.delayed = 0
        self.stopping = False
        self.thread = threading.Thread(target=self.run, name="lossy-network", daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.stopping = True
        self.thread.join()
        for sock in [self.inside, *self.outside.values()]:
            sock.close()

    def run(self) -> None:
        clients: dict[socket.socket, tuple[str, int]] = {}
        arriving = selectors.DefaultSelector()
        arriving.register(self.inside, selectors.EVENT_READ, self.inside)
        while not self.stopping:
            wait = 0.02 if not self.later else max(0.0, min(0.02, self.later[0][0] - time.monotonic()))
            for key, _ in arriving.select(wait):
                sock: socket.socket = key.data
                data, address = sock.recvfrom(65535)
                if sock is self.inside:
                    if address not in self.outside:
                        self.outside[address] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                        self.outside[address].bind(("127.0.0.1", 0))
                        clients[self.outside[address]] = address
                        arriving.register(self.outside[address], selectors.EVENT_READ, self.outside[address])
                    self.pass_on(data, self.outside[address], self.server)
                else:
                    self.pass_on(data, self.inside, clients[sock])
            while self.later and self.later[0][0] <= time.monotonic():
                _, _, data, sock, to = heapq.heappop(self.later)
                sock.sendto(data, to)
        arriving.close()

    def pass_on(self, data: bytes, sock: socket.socket, to: tuple[str, int]) -> None:
        self.count += 1
        if self.random.random() < self.share:
            self.lost += 1
            return
        copies = 1
        if self.random.random() < self.share:
            self.doubled += 1
            copies = 2
        due = time.monotonic()
        if self.random.random() < self.share:
            self.delayed += 1
            due += self.random.random() * self.delay_s
        # What follows waits too. A PUBLISH sent again that comes behind the PUBREL of its exchange is a new message to
        # anybody, so where datagrams overtake each other nobody can keep QoS 2.
        due = max(due, self.free_from.get((sock, to), 0.0))
        self.free_from[sock, to] = due
        for copy in range(copies):
            heapq.heappush(self.later, (due, self.count * 2 + copy, data, sock, to))
