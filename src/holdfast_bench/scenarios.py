"""The named loads of `holdfast bench`, each a function from a plan to a result."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from holdfast.errors import UsageError
from holdfast_bench.connection import LoadConnection, LoadError
from holdfast_bench.coordinator import Coordinator, Progress, Watcher
from holdfast_bench.plan import SCENARIOS, Plan, Result
from holdfast_bench.probe import PingProbe, resident_bytes
from holdfast_bench.retained import RetainedSet, Step
from holdfast_bench.worker import SPARE_FILES, allow_files, open_connections

LATENCY_RATE = 5000.0
RETAINED_COUNT = 100_000
ROUND_TRIPS = 500


@dataclass(frozen=True)
class Extras:
    """What only some scenarios look at."""

    topic_filter: str = "#"  # retained: the filter of the snapshot
    keep: bool = False  # retained: leave the messages on the broker
    pid: int = 0  # the broker's process, to see how busy it is; conn, retained: its memory


def run_scenario(name: str, plan: Plan, clients: int, extras: Extras, watch: Watcher | None = None) -> Result:
    if name == "conn":
        return run_connections(plan, clients, extras, watch)
    if name == "retained":
        return run_retained(plan, extras, watch)
    return Coordinator(shaped(name, plan, clients), name, watch, extras.pid).run()


def shaped(name: str, plan: Plan, clients: int) -> Plan:
    """`plan` with the numbers of publishers and subscribers, and the topics, that the scenario stands for."""
    topic = plan.topic
    if name == "pub":
        return replace(plan, publishers=clients, subscribers=0, topic=topic or "bench/%i")
    if name == "sub":
        return replace(plan, publishers=0, subscribers=clients, topic=topic or "bench/#")
    if name == "pair":
        return replace(plan, publishers=clients, subscribers=clients, topic=topic or "bench/%i")
    if name == "fanout":
        if "%i" in topic:
            raise UsageError(f"topic is {topic!r}, expected no %i: in a fan-out all clients share one topic")
        return replace(plan, publishers=1, subscribers=clients, topic=topic or "bench/fanout")
    if name == "latency":
        return replace(
            plan,
            publishers=clients,
            subscribers=clients,
            topic=topic or "bench/%i",
            rate=plan.rate or LATENCY_RATE,
            stamped=True,
        )
    raise UsageError(f"unknown scenario {name!r}, expected one of {', '.join(SCENARIOS)}")


def run_connections(plan: Plan, clients: int, extras: Extras, watch: Watcher | None = None) -> Result:
    """Opens `clients` connections, holds them for the plan's duration, then sees which still answer."""
    result = Result("conn")
    limit = allow_files(clients + SPARE_FILES)
    if limit < clients + SPARE_FILES:
        raise UsageError(
            f"the system allows {limit} open files, expected {clients + SPARE_FILES} for {clients} clients"
        )
    before = resident_bytes(extras.pid) if extras.pid else 0
    steps = Steps(watch)
    began = time.monotonic()
    with steps.of("connecting") as step:
        connections = open_connections(plan, clients, "conn", lambda count: step(count / clients))
    result.seconds = time.monotonic() - began
    result.figures["connections"] = len(connections)
    result.figures["connections_per_s"] = len(connections) / result.seconds
    with steps.of("holding") as step:
        held = time.monotonic()
        while (waited := time.monotonic() - held) < plan.duration_s:
            step(waited / plan.duration_s)
            time.sleep(min(0.05, plan.duration_s))
    if extras.pid:
        result.figures["bytes_per_connection"] = (resident_bytes(extras.pid) - before) / clients
    result.figures["alive"] = sum(_answers(connection) for connection in connections)
    for connection in connections:
        connection.close()
    dead = clients - int(result.figures["alive"])
    if dead:
        result.problems.append(f"{dead} of {clients} connections did not answer a ping after {plan.duration_s:g} s")
    return result


def _answers(connection: LoadConnection) -> bool:
    try:
        connection.ping()
    except (LoadError, OSError):
        return False
    return True


def run_retained(plan: Plan, extras: Extras, watch: Watcher | None = None) -> Result:
    """Sets retained messages, has them sent to a new subscriber, reads single ones, and clears them again."""
    result = Result("retained")
    retained = RetainedSet(plan, plan.count or RETAINED_COUNT)
    steps = Steps(watch)
    figures = result.figures
    before = resident_bytes(extras.pid) if extras.pid else 0
    with steps.of("setting") as step:
        figures["set_per_s"] = retained.count / retained.fill(step)
        figures["set_busy"] = retained.busy
    result.sent = retained.count
    if extras.pid:
        held = resident_bytes(extras.pid) - before
        figures["overhead_bytes_per_message"] = (held - retained.wire_bytes()) / retained.count
    result.expected = retained.matching(extras.topic_filter)
    with steps.of(f"snapshot of {extras.topic_filter}") as step, PingProbe(plan) as probe:
        snapshot = retained.snapshot(extras.topic_filter, result.expected, step=step)
    figures["snapshot_per_s"] = result.received_per_s = snapshot.per_s
    figures["snapshot_busy"] = retained.busy
    figures["snapshot_s"] = result.seconds = snapshot.seconds
    figures["ping_max_ms"] = probe.latency.max_ms
    result.received = snapshot.messages
    with steps.of("single topics"):
        figures["exact_ms"], figures["empty_ms"] = retained.round_trips(ROUND_TRIPS)
    if not extras.keep:
        with steps.of("clearing") as step:
            figures["clear_per_s"] = retained.count / retained.clear(step)
        if extras.pid:
            figures["bytes_left_per_message"] = (resident_bytes(extras.pid) - before) / retained.count
    if not result.received:
        result.problems.append("nothing was received")
    elif result.lost:
        result.problems.append(f"the snapshot lacks {result.lost} of {result.expected} retained messages")
    return result


class Steps:
    """Tells a watcher about scenarios that go through several steps."""

    def __init__(self, watch: Watcher | None) -> None:
        self._watch = watch
        self._began = time.monotonic()

    @contextlib.contextmanager
    def of(self, name: str) -> Iterator[Step]:
        def step(share: float) -> None:
            if self._watch:
                self._watch(Progress(time.monotonic() - self._began, min(share, 1.0), step=name))

        step(0.0)
        yield step
        step(1.0)
