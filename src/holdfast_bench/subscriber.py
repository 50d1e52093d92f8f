"""The process that subscribes: all receiving connections of a run in one loop, counting and acknowledging."""

import contextlib
import gc
import select
import time
from multiprocessing.connection import Connection

from holdfast_bench.codec import Histogram
from holdfast_bench.connection import READ_BYTES, LoadConnection, LoadError
from holdfast_bench.plan import Plan
from holdfast_bench.worker import (
    BYTES,
    CPU_NS,
    DONE,
    LAST_NS,
    MESSAGES,
    QUIT,
    SharedCounters,
    open_connections,
    prepare_process,
    report_ready,
)

IDLE_S = 0.02


def subscribe(plan: Plan, counters: SharedCounters, worker: int, pipe: Connection) -> None:
    """The body of a worker process; reports an error or its latencies on `pipe` when it is over."""
    prepare_process(plan)
    try:
        pipe.send(_subscribe(plan, counters, worker))
    except (LoadError, OSError) as error:
        pipe.send(str(error))
    finally:
        counters.put(worker, DONE, 1)


def _subscribe(plan: Plan, counters: SharedCounters, worker: int) -> tuple[int, list[tuple[int, int]]]:
    connections = open_connections(plan, plan.subscribers, "sub", ports=plan.subscribe_ports)
    for index, connection in enumerate(connections):
        connection.subscribe([plan.topic_filter_of(index)], plan.qos)
    report_ready(counters, worker)
    gc.disable()
    _Loop(counters, worker, connections).run()
    latencies = Histogram()
    for connection in connections:
        latencies.merge(connection.received.latencies.highest, connection.received.latencies.export())
        connection.close()
    return latencies.highest, latencies.export()


class _Loop:
    def __init__(self, counters: SharedCounters, worker: int, connections: list[LoadConnection]) -> None:
        self.counters = counters
        self.worker = worker
        self.received_bytes = 0
        self.epoll = select.epoll()
        self.owed: dict[int, bytearray] = {}
        self.by_fd = {connection.socket.fileno(): connection for connection in connections}
        self.messages = sum(connection.received.messages for connection in connections)
        for fd, connection in self.by_fd.items():
            connection.socket.setblocking(False)
            self.owed[fd] = bytearray()
            self.epoll.register(fd, select.EPOLLIN)

    def run(self) -> None:
        counters, worker = self.counters, self.worker
        while counters.phase != QUIT:
            events = self.epoll.poll(IDLE_S)
            if not events:
                continue
            for fd, event in events:
                if event & ~select.EPOLLOUT:
                    self.receive(fd)
                if self.owed[fd]:
                    self.acknowledge(fd, bool(event & select.EPOLLOUT))
            counters.put(worker, MESSAGES, self.messages)
            counters.put(worker, BYTES, self.received_bytes)
            counters.put(worker, LAST_NS, time.monotonic_ns())
            counters.put(worker, CPU_NS, time.process_time_ns())

    def receive(self, fd: int) -> None:
        connection = self.by_fd[fd]
        try:
            data = connection.socket.recv(READ_BYTES)
        except ConnectionError:
            data = b""
        if not data:
            raise LoadError(f"the broker closed subscriber {connection.client_id}")
        before = connection.received.messages
        self.owed[fd] += connection.received.feed(data, time.monotonic_ns())
        self.messages += connection.received.messages - before
        self.received_bytes += len(data)

    def acknowledge(self, fd: int, was_blocked: bool) -> None:
        owed = self.owed[fd]
        with contextlib.suppress(BlockingIOError):
            del owed[: self.by_fd[fd].socket.send(owed)]
        if bool(owed) != was_blocked:
            self.epoll.modify(fd, select.EPOLLIN | select.EPOLLOUT if owed else select.EPOLLIN)
