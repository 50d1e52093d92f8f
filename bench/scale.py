"""Many connections, many filters, many matches."""

import itertools
import statistics
import time

from holdfast_bench.codec import subscribe_block
from holdfast_bench.connection import LoadConnection, LoadError
from holdfast_bench.coordinator import Coordinator
from holdfast_bench.plan import Plan
from holdfast_bench.scenarios import Extras, run_connections
from peers import MEMORY_ONLY, Running
from scenario import Figure, Figures, Scenario

CONNECTIONS = 10_000
FILTER = "plant/%i/+/state"
TIMED = 500  # subscriptions timed one by one, around the 1 000th and the 100 000th
MATCHES = (100, 1000)
DELIVERIES = 300_000  # for each number of matches
LEVELS = "abcdefghi"
BOUND_S = 10.0  # a broker that has not taken the filters by then is not waited for


def idle_connections(running: Running) -> Figures:
    plan = Plan(port=running.port, duration_s=1.0)
    result = run_connections(plan, CONNECTIONS, Extras(pid=running.pid))
    if result.problems:
        raise LoadError("; ".join(result.problems))
    return {
        "bytes_per_connection": result.figures["bytes_per_connection"],
        "connections_per_s": result.figures["connections_per_s"],
    }


def many_filters(running: Running) -> Figures:
    """One client subscribes 100 000 filters; some are timed one at a time, early and late."""
    connection = LoadConnection.open("127.0.0.1", running.port, "bench-filters", timeout_s=30.0)
    subscribe_in_bulk(connection, 0, 1000 - TIMED // 2)
    early = subscribe_timed(connection, 1000 - TIMED // 2, TIMED)
    first, last = 1000 + TIMED // 2, 100_000 - TIMED // 2
    began = time.monotonic()
    subscribe_in_bulk(connection, first, last)
    bulk_s = time.monotonic() - began
    late = subscribe_timed(connection, last, TIMED)
    connection.close()
    return {
        "early_us": early * 1e6,
        "late_us": late * 1e6,
        "late_to_early": late / early,
        "filters_per_s": (last - first) / bulk_s,
    }


def subscribe_in_bulk(connection: LoadConnection, first: int, stop: int) -> None:
    deadline = time.monotonic() + BOUND_S
    for start in range(first, stop, 500):
        count = min(500, stop - start)
        awaited = connection.received.subscribed + count
        connection.socket.sendall(subscribe_block(FILTER.encode(), start, count, 0, 4))
        while connection.received.subscribed < awaited:
            connection.read("SUBACK")
        if time.monotonic() > deadline:
            raise LoadError(f"{start + count:,} filters after {BOUND_S:g} s, expected {stop:,}")


def subscribe_timed(connection: LoadConnection, first: int, count: int) -> float:
    """The median of single round trips, in seconds."""
    trips: list[float] = []
    for number in range(first, first + count):
        began = time.perf_counter()
        connection.subscribe([FILTER.replace("%i", str(number))], 0)
        trips.append(time.perf_counter() - began)
    return statistics.median(trips)


def many_matches(running: Running) -> Figures:
    """Wildcard filters that all match, one subscriber each: the time per delivery should not depend on how many."""
    figures: Figures = {}
    for distinct, kind in ((0, "same"), (50_000, "fresh")):
        for matches in MATCHES:
            per_s = deliveries_per_s(running, matches, distinct)
            figures[f"{kind}_{matches}_us"] = 1e6 / per_s
        figures[f"{kind}_ratio"] = figures[f"{kind}_{MATCHES[1]}_us"] / figures[f"{kind}_{MATCHES[0]}_us"]
    return figures


def deliveries_per_s(running: Running, matches: int, distinct: int) -> float:
    plan = Plan(
        port=running.port,
        topic="/".join(LEVELS) + "/%m",
        distinct=distinct or 1,
        count=DELIVERIES // matches,
        topic_filters=tuple(itertools.islice(wildcard_filters(), matches)),
        subscribers=matches,
        drain_at_most_s=BOUND_S,
        prefix=f"m{matches}-{distinct}",
    )
    result = Coordinator(plan, "compare").run()
    if result.problems or result.lost:
        raise LoadError("; ".join(result.problems) or f"{result.lost} of {result.expected} deliveries are missing")
    return result.received_per_s


def wildcard_filters() -> "itertools.chain[str]":
    """1 024 different filters that all match a topic of these levels and any last one."""
    choices = list(itertools.product(*((level, "+") for level in LEVELS)))
    return itertools.chain(
        ("/".join(levels) + "/+" for levels in choices), ("/".join(levels) + "/#" for levels in choices)
    )


SCENARIOS = (
    Scenario(
        "idle",
        f"{CONNECTIONS:,} idle connections",
        idle_connections,
        (
            Figure(
                "bytes_per_connection", "memory each", "bytes", more_is_better=False, of=MEMORY_ONLY, at_most=12 * 1024
            ),
            Figure("connections_per_s", "connecting", "conns/s"),
        ),
        rounds=1,
    ),
    Scenario(
        "filters",
        "subscribing the 100 000th filter and the 1 000th",
        many_filters,
        (
            Figure("early_us", "the 1 000th", "us", more_is_better=False),
            Figure("late_us", "the 100 000th", "us", more_is_better=False),
            Figure("late_to_early", "100 000th to 1 000th", "times", more_is_better=False, of=MEMORY_ONLY, at_most=1.1),
            Figure("filters_per_s", "between them, in bulk", "filters/s"),
        ),
        rounds=3,
    ),
    Scenario(
        "matches",
        "a topic with 1 000 matching wildcard filters",
        many_matches,
        (
            Figure("same_100_us", "100 matches, each delivery", "us", more_is_better=False),
            Figure("same_1000_us", "1 000 matches, each delivery", "us", more_is_better=False),
            Figure("same_ratio", "1 000 to 100", "times", more_is_better=False, of=MEMORY_ONLY, at_most=1.5),
            Figure("fresh_100_us", "new topic each time, 100 matches", "us", more_is_better=False),
            Figure("fresh_1000_us", "new topic each time, 1 000", "us", more_is_better=False),
            Figure("fresh_ratio", "1 000 to 100", "times", more_is_better=False, of=MEMORY_ONLY, at_most=1.5),
        ),
        rounds=1,
    ),
)
