"""Runs a plan: starts the worker processes, says go and stop, and turns their counters into a result.

Rates are taken from two looks at the shared counters, one after the warm-up and one when sending is told to stop, so
neither starting nor draining is part of them. A run of a given number of messages is timed from go to the last arrival.
"""

import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from holdfast_bench.codec import Histogram
from holdfast_bench.connection import LoadError
from holdfast_bench.plan import Busy, Latency, Plan, Result
from holdfast_bench.probe import cpu_seconds
from holdfast_bench.publisher import publish
from holdfast_bench.subscriber import subscribe
from holdfast_bench.worker import (
    ACKNOWLEDGED,
    BYTES,
    CPU_NS,
    DONE,
    GO,
    LAST_NS,
    MESSAGES,
    QUIT,
    READY,
    STOP,
    SharedCounters,
)

TICK_S = 0.05
SETUP_S = 60.0
PATIENCE_S = 20.0  # the longest wait for publishers to see their last acknowledgements


@dataclass
class Progress:
    elapsed_s: float
    share: float  # of the run that is over, 0 to 1
    sent: int = 0
    received: int = 0
    step: str = ""  # what is being done, in scenarios of several steps


Watcher = Callable[[Progress], None]


@dataclass
class _Look:
    at_ns: int
    sent: int
    received: int
    received_bytes: int
    sources_ns: int  # processor time of the publishers' process
    sinks_ns: int
    broker_s: float
    broker_at_s: float  # when the broker's processor time was read, which is not always when the rest was true


class Coordinator:
    def __init__(self, plan: Plan, scenario: str, watch: Watcher | None = None, broker_pid: int = 0) -> None:
        """With `broker_pid`, the result says how busy that process was."""
        self.plan = plan
        self.broker_pid = broker_pid
        self.scenario = scenario
        self.watch = watch
        roles = [subscribe] * (plan.subscribers > 0) + [publish] * (plan.publishers > 0)
        context = multiprocessing.get_context("spawn")
        self.counters = SharedCounters(context, len(roles))
        self.sinks = range(1 if plan.subscribers else 0)
        self.sources = range(len(self.sinks), len(roles))
        self.pipes: list[Connection] = []
        self.processes: list[BaseProcess] = []
        for worker, role in enumerate(roles):
            here, there = context.Pipe(duplex=False)
            process = context.Process(
                target=role, args=(plan, self.counters, worker, there), name=f"bench-{role.__name__}", daemon=True
            )
            self.pipes.append(here)
            self.processes.append(process)

    def run(self) -> Result:
        """The whole run. Raises LoadError when the broker cannot be reached or refuses to take part."""
        for process in self.processes:
            process.start()
        try:
            return self._run()
        finally:
            self.counters.phase = QUIT
            for process in self.processes:
                process.join(timeout=5)
                if process.is_alive():
                    process.terminate()

    def _run(self) -> Result:
        self._await_ready()
        self.counters.started_ns = time.monotonic_ns()
        self.counters.phase = GO
        if self.plan.count:
            begin = self._look(self.counters.started_ns)
            self._wait_until_done()
        else:
            self._wait(self.plan.warmup_s)
            begin = self._look()
            self._wait(self.plan.warmup_s + self.plan.duration_s)
        end = self._look()
        self.counters.phase = STOP
        result = Result(self.scenario)
        self._finish_publishing(result)
        self._drain(result)
        if self.plan.count:
            end = self._look(self.counters.get(0, LAST_NS))
        self._fill(result, begin, end)
        self.counters.phase = QUIT
        self._collect(result)
        return result

    def _await_ready(self) -> None:
        deadline = time.monotonic() + SETUP_S
        for worker, process in enumerate(self.processes):
            while not self.counters.get(worker, READY):
                if self.counters.get(worker, DONE) or not process.is_alive():
                    reason = self.pipes[worker].recv() if self.pipes[worker].poll(1) else "it ended without a word"
                    raise LoadError(str(reason))
                if time.monotonic() > deadline:
                    raise LoadError(f"{process.name} was not ready within {SETUP_S:.0f} s")
                time.sleep(0.002)

    def _look(self, at_ns: int = 0) -> _Look:
        return _Look(
            at_ns or time.monotonic_ns(),
            self.counters.total(self.sources, MESSAGES),
            self.counters.total(self.sinks, MESSAGES),
            self.counters.total(self.sinks, BYTES),
            self.counters.total(self.sources, CPU_NS),
            self.counters.total(self.sinks, CPU_NS),
            cpu_seconds(self.broker_pid) if self.broker_pid else 0.0,
            time.monotonic(),
        )

    def _elapsed(self) -> float:
        return (time.monotonic_ns() - self.counters.started_ns) / 1e9

    def _failed(self) -> bool:
        """A worker that is done before it was told to be has met an error, or has sent all it was asked to send."""
        return any(self.counters.get(worker, DONE) for worker in self.sinks)

    def _tell(self, share: float) -> None:
        if self.watch:
            sent, received = (self.counters.total(side, MESSAGES) for side in (self.sources, self.sinks))
            self.watch(Progress(self._elapsed(), min(share, 1.0), sent, received))

    def _wait(self, until_s: float) -> None:
        whole_s = self.plan.warmup_s + self.plan.duration_s
        while (left_s := until_s - self._elapsed()) > 0 and not self._failed():
            time.sleep(min(TICK_S, left_s))
            self._tell(self._elapsed() / whole_s)

    def _wait_until_done(self) -> None:
        counting = self.sources or self.sinks
        share = 0.0
        while not self._failed() and share < 1.0:
            time.sleep(TICK_S)
            share = self.counters.total(counting, MESSAGES) / self.plan.count
            self._tell(share)
            if self.sources and all(self.counters.get(worker, DONE) for worker in self.sources):
                return

    def _finish_publishing(self, result: Result) -> None:
        deadline = time.monotonic() + PATIENCE_S
        last = -1
        while not all(self.counters.get(worker, DONE) for worker in self.sources):
            acknowledged = self.counters.total(self.sources, ACKNOWLEDGED)
            if acknowledged != last:
                last = acknowledged
                deadline = time.monotonic() + PATIENCE_S
            if time.monotonic() > deadline or self._failed():
                result.problems.append("publishing did not finish: acknowledgements are missing")
                return
            time.sleep(0.005)

    def _drain(self, result: Result) -> None:
        """Waits until all that was sent has arrived, or nothing has arrived for a while."""
        result.sent = self.counters.total(self.sources, MESSAGES)
        result.acknowledged = self.counters.total(self.sources, ACKNOWLEDGED)
        if self.sources and self.sinks:
            result.expected = (result.acknowledged if self.plan.qos else result.sent) * self.plan.copies
        if not self.sinks or not self.sources:
            return
        received, quiet_since = -1, time.monotonic()
        deadline = quiet_since + self.plan.drain_at_most_s
        while received < result.expected and not self._failed():
            if time.monotonic() > min(deadline, quiet_since + self.plan.drain_s):
                return
            now = self.counters.total(self.sinks, MESSAGES)
            if now != received:
                received, quiet_since = now, time.monotonic()
            time.sleep(0.005)

    def _fill(self, result: Result, begin: _Look, end: _Look) -> None:
        result.received = self.counters.total(self.sinks, MESSAGES)
        result.seconds = max((end.at_ns - begin.at_ns) / 1e9, 1e-9)
        result.sent_per_s = (end.sent - begin.sent) / result.seconds
        result.received_per_s = (end.received - begin.received) / result.seconds
        result.received_bytes_per_s = (end.received_bytes - begin.received_bytes) / result.seconds
        result.busy = self._busy(result.seconds, begin, end)
        if self.sinks and not result.received:
            result.problems.append("nothing was received")
        if self.plan.qos and result.lost:
            result.problems.append(f"{result.lost} messages were lost at QoS {self.plan.qos}")

    def _busy(self, seconds: float, begin: _Look, end: _Look) -> Busy:
        cores = 1 if self.plan.cpu is not None else len(os.sched_getaffinity(0))
        busy = Busy(
            (end.sources_ns - begin.sources_ns) / 1e9 / seconds, (end.sinks_ns - begin.sinks_ns) / 1e9 / seconds, cores
        )
        if self.broker_pid:
            busy.broker = (end.broker_s - begin.broker_s) / max(end.broker_at_s - begin.broker_at_s, 1e-9)
        return busy

    def _collect(self, result: Result) -> None:
        latencies = Histogram()
        for pipe in self.pipes:
            if not pipe.poll(10):
                result.problems.append("a worker process did not report")
                continue
            report = pipe.recv()
            if isinstance(report, str):
                result.problems.append(report)
            elif report is not None:
                highest, counts = report
                latencies.merge(highest, counts)
        if latencies.total:
            result.latency = Latency.of(latencies)
