"""What every worker process does before and after its own loop."""

import os
import resource
import signal
import time
from collections.abc import Callable

from holdfast.bench import frames
from holdfast.bench.board import SETUP, Board
from holdfast.bench.link import Link
from holdfast.bench.plan import Plan

BATCH = 100  # connections opened side by side: brokers accept from a queue of about this length

SPARE_FILES = 64


def settle(plan: Plan) -> None:
    """Makes this process a quiet one: on its core, deaf to Ctrl-C (the conductor ends it), with files to spare."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if plan.cpu is not None:
        os.sched_setaffinity(0, {plan.cpu})
    allow_files(max(plan.publishers, plan.subscribers) + SPARE_FILES)


def allow_files(wanted: int) -> int:
    """Raises the limit on open files as far as `wanted` and the system allow; returns the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft


def open_links(plan: Plan, count: int, role: str, on_batch: Callable[[int], None] | None = None) -> list[Link]:
    """`count` accepted connections; `on_batch` hears how many there are so far."""
    links: list[Link] = []
    while len(links) < count:
        batch = [
            Link.dial(plan.host, plan.port, f"{plan.prefix}-{role}-{index}", plan.version, stamped=plan.stamped)
            for index in range(len(links), min(len(links) + BATCH, count))
        ]
        for link in batch:
            link.socket.sendall(
                frames.connect(link.client_id, plan.version, username=plan.username, password=plan.password)
            )
        for link in batch:
            link.finish_connect()
        links += batch
        if on_batch:
            on_batch(len(links))
    return links


def await_go(board: Board) -> None:
    while board.phase == SETUP:
        time.sleep(0.001)
