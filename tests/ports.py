"""Ports for the servers that tests start: below those that the kernel gives to connections, so that they stay free
until they are needed, and each for one worker alone and only once, so that no other test is given it meanwhile.
"""

import contextlib
import itertools
import os
import random
import socket

FIRST, END = 10_000, 26_000  # `make cluster` takes from those behind
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
SHARE = (END - FIRST) // WORKERS

# Another run of the tests may be under way on this machine: it has most likely begun elsewhere.
numbers = itertools.count(random.SystemRandom().randrange(SHARE))


def free_port() -> int:
    """A port that nobody has, for TCP or UDP."""
    while True:
        port = FIRST + WORKER * SHARE + next(numbers) % SHARE
        with contextlib.suppress(OSError), socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
            tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tcp.bind(("127.0.0.1", port))
            udp.bind(("127.0.0.1", port))
            return port
