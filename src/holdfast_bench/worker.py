"""What the worker processes of a run share: counters in shared memory, and how a process gets ready to work.

The counters are plain numbers without locks. Each has one writer: the coordinator writes the phase, each worker its own
row; everybody reads. A reader may see a row that is one pass old, never a torn number: aligned 64-bit stores are whole
on all machines this runs on.
"""

import os
import resource
import signal
import time
from collections.abc import Callable, MutableSequence
from multiprocessing.context import SpawnContext

from holdfast_bench.codec import encode_connect
from holdfast_bench.connection import LoadConnection
from holdfast_bench.plan import Plan

SETUP, GO, STOP, QUIT = range(4)

ROW = 8  # numbers per worker: a cache line, so that workers do not slow each other
MESSAGES, BYTES, ACKNOWLEDGED, LAST_NS, READY, DONE, CPU_NS = range(7)

BATCH = 100  # connections opened side by side: brokers accept from a queue of about this length
SPARE_FILES = 64


class SharedCounters:
    def __init__(self, context: SpawnContext, workers: int) -> None:
        self._cells: MutableSequence[int] = context.RawArray("q", ROW * (workers + 1))

    @property
    def phase(self) -> int:
        return self._cells[0]

    @phase.setter
    def phase(self, phase: int) -> None:
        self._cells[0] = phase

    @property
    def started_ns(self) -> int:
        """When the coordinator said go, on the monotonic clock that all processes of a machine share."""
        return self._cells[1]

    @started_ns.setter
    def started_ns(self, started_ns: int) -> None:
        self._cells[1] = started_ns

    def put(self, worker: int, field: int, value: int) -> None:
        self._cells[ROW * (worker + 1) + field] = value

    def get(self, worker: int, field: int) -> int:
        return self._cells[ROW * (worker + 1) + field]

    def total(self, workers: range, field: int) -> int:
        return sum(self.get(worker, field) for worker in workers)


def prepare_process(plan: Plan) -> None:
    """Makes this process a quiet one: on its core, deaf to Ctrl-C (the coordinator ends it), with files to spare."""
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


def open_connections(
    plan: Plan, count: int, role: str, on_batch: Callable[[int], None] | None = None, ports: tuple[int, ...] = ()
) -> list[LoadConnection]:
    """`count` accepted connections, to `ports` in turn; `on_batch` hears how many there are so far."""
    ports = ports or (plan.port,)
    connections: list[LoadConnection] = []
    while len(connections) < count:
        batch = [
            LoadConnection.dial(
                plan.host,
                ports[index % len(ports)],
                f"{plan.prefix}-{role}-{index}",
                plan.version,
                stamped=plan.stamped,
            )
            for index in range(len(connections), min(len(connections) + BATCH, count))
        ]
        for connection in batch:
            connection.socket.sendall(
                encode_connect(connection.client_id, plan.version, username=plan.username, password=plan.password)
            )
        for connection in batch:
            connection.finish_connect()
        connections += batch
        if on_batch:
            on_batch(len(connections))
    return connections


def report_ready(counters: SharedCounters, worker: int) -> None:
    """What the process used until now is not part of how busy it was."""
    counters.put(worker, CPU_NS, time.process_time_ns())
    counters.put(worker, READY, 1)


def await_go(counters: SharedCounters, worker: int) -> None:
    while counters.phase == SETUP:
        time.sleep(0.001)
        counters.put(worker, CPU_NS, time.process_time_ns())  # nor is waiting
