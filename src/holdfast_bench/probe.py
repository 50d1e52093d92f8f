"""A busy broker seen from outside: its memory, its processor time, and the pings of a client that does nothing else."""

import contextlib
import gc
import multiprocessing
import os
import time
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType

from holdfast.errors import UsageError
from holdfast_bench.codec import Histogram
from holdfast_bench.connection import LoadConnection, LoadError
from holdfast_bench.plan import Latency, Plan
from holdfast_bench.worker import GO, QUIT, READY, SharedCounters, prepare_process

PAUSE_S = 0.002


class PingProbe:
    """Pings from entering to leaving the block; `latency` holds the round trips afterwards."""

    def __init__(self, plan: Plan) -> None:
        context = multiprocessing.get_context("spawn")
        self._counters = SharedCounters(context, 1)
        self._pipe, there = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_ping, args=(plan, self._counters, there), name="bench-ping-probe", daemon=True
        )
        self.latency = Latency(0.0, 0.0, 0.0, 0.0)

    def __enter__(self) -> "PingProbe":
        self._process.start()
        while not self._counters.get(0, READY):
            if self._pipe.poll(0.002):
                raise LoadError(str(self._pipe.recv()))
        self._counters.phase = GO
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._counters.phase = QUIT
        report = self._pipe.recv() if self._pipe.poll(15) else "the ping probe got no answer for 15 s"
        self._process.join(timeout=5)
        if self._process.is_alive():
            self._process.terminate()
        if isinstance(report, Latency):
            self.latency = report
        elif error is None:
            raise LoadError(str(report))


def _ping(plan: Plan, counters: SharedCounters, pipe: Connection) -> None:
    prepare_process(plan)
    try:
        connection = LoadConnection.open(
            plan.host,
            plan.port,
            f"{plan.prefix}-ping",
            plan.version,
            username=plan.username,
            password=plan.password,
            timeout_s=30.0,
        )
        connection.ping()
        round_trips = Histogram()
        counters.put(0, READY, 1)
        gc.disable()
        while counters.phase != QUIT:
            round_trips.add(connection.ping())
            time.sleep(PAUSE_S)
        pipe.send(Latency.of(round_trips))
        connection.close()
    except LoadError as error:
        pipe.send(str(error))


def resident_bytes(pid: int) -> int:
    """The resident set of `pid`, swapped pages not included."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError as error:
        raise UsageError(f"cannot read the memory of process {pid}: {error.strerror}") from None
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid: int) -> float:
    """Processor time of `pid` and the processes it started so far, in user and kernel mode."""
    total_s = own_cpu_seconds(pid)
    for child in children(pid):
        with contextlib.suppress(UsageError):  # it has just ended
            total_s += cpu_seconds(child)
    return total_s


def children(pid: int) -> list[int]:
    found: list[int] = []
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # a thread that has just ended
            found += map(int, listed.read_text().split())
    return found


def own_cpu_seconds(pid: int) -> float:
    """Processor time of `pid` and its threads."""
    try:
        # the second field is the program's name in parentheses, which may hold spaces
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError as error:
        raise UsageError(f"cannot read the processor time of process {pid}: {error.strerror}") from None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
