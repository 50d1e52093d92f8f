"""The process that subscribes: all receiving connections of a run in one loop, counting and acknowledging."""

import contextlib
import gc
import select
import time
from multiprocessing.connection import Connection

from holdfast.bench.board import BYTES, DONE, LAST_NS, MESSAGES, QUIT, READY, Board
from holdfast.bench.codec import Histogram
from holdfast.bench.link import READ_BYTES, Link, LinkError
from holdfast.bench.plan import Plan
from holdfast.bench.worker import open_links, settle

IDLE_S = 0.02


def subscribe(plan: Plan, board: Board, worker: int, pipe: Connection) -> None:
    """The body of a worker process; reports an error or its latencies on `pipe` when it is over."""
    settle(plan)
    try:
        pipe.send(_subscribe(plan, board, worker))
    except (LinkError, OSError) as error:
        pipe.send(str(error))
    finally:
        board.put(worker, DONE, 1)


def _subscribe(plan: Plan, board: Board, worker: int) -> tuple[int, list[tuple[int, int]]]:
    links = open_links(plan, plan.subscribers, "sub")
    for index, link in enumerate(links):
        link.subscribe([plan.topic_filter_of(index)], plan.qos)
    board.put(worker, READY, 1)
    gc.disable()
    _Loop(board, worker, links).run()
    latencies = Histogram()
    for link in links:
        latencies.merge(link.intake.latencies.highest, link.intake.latencies.export())
        link.close()
    return latencies.highest, latencies.export()


class _Loop:
    def __init__(self, board: Board, worker: int, links: list[Link]) -> None:
        self.board = board
        self.worker = worker
        self.received_bytes = 0
        self.epoll = select.epoll()
        self.owed: dict[int, bytearray] = {}
        self.by_fd = {link.socket.fileno(): link for link in links}
        self.messages = sum(link.intake.messages for link in links)
        for fd, link in self.by_fd.items():
            link.socket.setblocking(False)
            self.owed[fd] = bytearray()
            self.epoll.register(fd, select.EPOLLIN)

    def run(self) -> None:
        board, worker = self.board, self.worker
        while board.phase != QUIT:
            events = self.epoll.poll(IDLE_S)
            if not events:
                continue
            for fd, event in events:
                if event & ~select.EPOLLOUT:
                    self.receive(fd)
                if self.owed[fd]:
                    self.acknowledge(fd, bool(event & select.EPOLLOUT))
            board.put(worker, MESSAGES, self.messages)
            board.put(worker, BYTES, self.received_bytes)
            board.put(worker, LAST_NS, time.monotonic_ns())

    def receive(self, fd: int) -> None:
        link = self.by_fd[fd]
        try:
            data = link.socket.recv(READ_BYTES)
        except ConnectionError:
            data = b""
        if not data:
            raise LinkError(f"the broker closed subscriber {link.client_id}")
        before = link.intake.messages
        self.owed[fd] += link.intake.feed(data, time.monotonic_ns())
        self.messages += link.intake.messages - before
        self.received_bytes += len(data)

    def acknowledge(self, fd: int, was_blocked: bool) -> None:
        owed = self.owed[fd]
        with contextlib.suppress(BlockingIOError):
            del owed[: self.by_fd[fd].socket.send(owed)]
        if bool(owed) != was_blocked:
            self.epoll.modify(fd, select.EPOLLIN | select.EPOLLOUT if owed else select.EPOLLIN)
