"""Many clients that subscribe at the same moment: does each get everything, and does anybody wait for the others?"""

import gc
import select
import time
from dataclasses import dataclass

from holdfast.bench import frames
from holdfast.bench.link import Link, LinkError
from holdfast.bench.plan import Plan
from holdfast.bench.worker import open_links

QUIET_S = 5.0


@dataclass
class CrowdSnapshot:
    messages: int  # over all clients
    seconds: float  # until the last message of the last client
    first_done_s: float  # when the first client had everything
    behind: float  # how far the slowest was behind the average when the first was done, 0 to 1


def snapshot_crowd(
    plan: Plan, clients: int, topic_filter: str, expected: int, quiet_s: float = QUIET_S
) -> CrowdSnapshot:
    """All clients subscribe `topic_filter` at once and read until each has `expected` messages."""
    links = open_links(plan, clients, "crowd")
    gc.disable()
    try:
        began = time.monotonic()
        for link in links:
            link.socket.sendall(frames.subscribe(1, [topic_filter], plan.qos, plan.version))
        return _read_all(links, expected, began, quiet_s)
    finally:
        gc.enable()
        for link in links:
            link.close()


def _read_all(links: list[Link], expected: int, began: float, quiet_s: float) -> CrowdSnapshot:
    waiting = {link.socket.fileno(): link for link in links}
    first_done_s = behind = 0.0
    with select.epoll() as epoll:
        for fd in waiting:
            epoll.register(fd, select.EPOLLIN)
        while waiting:
            events = epoll.poll(quiet_s)
            if not events:
                missing = sum(expected - link.intake.messages for link in waiting.values())
                raise LinkError(f"nothing arrived for {quiet_s:g} s and {missing} of the retained messages are missing")
            for fd, _ in events:
                waiting[fd].read("retained messages")
                if waiting[fd].intake.messages >= expected:
                    del waiting[fd]
                    epoll.unregister(fd)
                    if not first_done_s:
                        first_done_s = time.monotonic() - began
                        counts = [link.intake.messages for link in links]
                        behind = 1 - min(counts) / (sum(counts) / len(counts))
    seconds = time.monotonic() - began
    return CrowdSnapshot(sum(link.intake.messages for link in links), seconds, first_done_s, behind)
