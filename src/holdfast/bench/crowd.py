"""Many clients that subscribe at the same moment: does each get everything, and does anybody wait for the others?"""

import gc
import select
import time
from dataclasses import dataclass

from holdfast.bench import frames
from holdfast.bench.link import READ_BYTES, LinkError
from holdfast.bench.plan import Plan
from holdfast.bench.worker import open_links

QUIET_S = 5.0


@dataclass
class CrowdSnapshot:
    messages: int  # over all clients
    seconds: float  # until the last message of the last client
    first_done_s: float  # when the first client had everything
    behind: float  # how far the slowest was behind the average when the first was done, 0 to 1


def snapshot_crowd(plan: Plan, clients: int, topic_filter: str, expected: int) -> CrowdSnapshot:
    """All clients subscribe `topic_filter` at once and read until each has `expected` messages."""
    links = open_links(plan, clients, "crowd")
    waiting = {link.socket.fileno(): link for link in links}
    epoll = select.epoll()
    for fd in waiting:
        epoll.register(fd, select.EPOLLIN)
    began = time.monotonic()
    for link in links:
        link.socket.sendall(frames.subscribe(1, [topic_filter], plan.qos, plan.version))
    gc.disable()
    first_done_s = behind = 0.0
    while waiting:
        events = epoll.poll(QUIET_S)
        if not events:
            missing = sum(expected - link.intake.messages for link in waiting.values())
            raise LinkError(f"nothing arrived for {QUIET_S:g} s and {missing} of the retained messages are missing")
        for fd, _ in events:
            link = waiting[fd]
            data = link.socket.recv(READ_BYTES)
            if not data:
                raise LinkError(f"the broker closed {link.client_id} after {link.intake.messages} messages")
            owed = link.intake.feed(data, 0)
            if owed:
                link.socket.sendall(owed)
            if link.intake.messages >= expected:
                del waiting[fd]
                epoll.unregister(fd)
                if not first_done_s:
                    first_done_s = time.monotonic() - began
                    counts = [each.intake.messages for each in links]
                    behind = 1 - min(counts) / (sum(counts) / len(counts))
    seconds = time.monotonic() - began
    gc.enable()
    total = sum(link.intake.messages for link in links)
    for link in links:
        link.close()
    epoll.close()
    return CrowdSnapshot(total, seconds, first_done_s, behind)
