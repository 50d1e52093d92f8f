"""Retained messages by the hundred thousand and the million: setting, sending, expiring and clearing them.

NATS is left out: it keeps retained messages in a stream on disk, which is another thing to compare.
"""

import time
from collections.abc import Callable

from holdfast_bench.connection import LoadError
from holdfast_bench.coordinator import Coordinator
from holdfast_bench.plan import Plan
from holdfast_bench.probe import PingProbe
from holdfast_bench.retained import RetainedSet, snapshot_concurrently
from peers import AS_SHIPPED, HOLDFASTS, MEMORY_ONLY, Running
from scenario import BROKER, GENERATOR, Figure, Figures, Scenario, rate, shares

MANY = 200_000
SETTERS, IN_FLIGHT = 4, 100
MILLION = 1_000_000
ON_DISK = 5_000_000
CROWD = 50
CROWD_MESSAGES = 100_000
ONE_LINE = "site/+/line/3/#"
ROUND_TRIPS = 3000
ROUND_TRIP_TOPICS = 10_000
EXPIRY_LEAD_S = 12.0  # time to set a million before they expire
AFTER_EXPIRY_S = 2.5

PEERS = (*HOLDFASTS, "mosquitto", "FlashMQ")


def a_million(running: Running) -> Figures:
    plan = Plan(port=running.port, topic="")
    retained = RetainedSet(plan, MILLION)
    before = running.memory()
    figures = timed(running, retained, "set_", retained.fill)
    figures["overhead_bytes"] = (running.memory() - before - retained.wire_bytes()) / MILLION
    with PingProbe(plan) as probe:
        figures |= timed(running, retained, "snapshot_", lambda: snapshot_s(retained))
    figures["ping_max_ms"] = probe.latency.max_ms
    expected = retained.matching(ONE_LINE)
    part = retained.snapshot(ONE_LINE, expected)
    demand(part.messages, expected, ONE_LINE)
    figures["one_line_per_s"] = part.per_s
    exact_ms, empty_ms = retained.round_trips(2000, at_most_s=1.0)
    figures |= {"exact_ms": exact_ms, "empty_ms": empty_ms, "exact_to_empty": exact_ms / empty_ms}
    figures["clear_per_s"] = MILLION / retained.clear()
    time.sleep(1.0)
    figures["left_bytes"] = (running.memory() - before) / MILLION
    return figures


def set_at_qos1(running: Running) -> Figures:
    """Each acknowledged as the broker does it: as shipped, when it is on disk."""
    plan = Plan(
        port=running.port,
        qos=1,
        retain=True,
        topic="site/%i/%m",
        distinct=MANY // SETTERS,
        count=MANY,
        publishers=SETTERS,
        subscribers=0,
        inflight=IN_FLIGHT,
    )
    before_s = running.cpu_seconds()
    result = Coordinator(plan, "compare", broker_pid=running.pid).run()
    if result.problems:
        raise LoadError("; ".join(result.problems))
    figures = {"set_per_s": result.sent_per_s} | shares(result.busy)
    figures["cpu_us"] = (running.cpu_seconds() - before_s) * 1e6 / MANY
    return figures


def snapshot(running: Running) -> Figures:
    retained = RetainedSet(Plan(port=running.port, topic=""), MANY)
    retained.fill()
    return timed(running, retained, "snapshot_", lambda: snapshot_s(retained))


def round_trip(running: Running) -> Figures:
    """One topic and one message on its way: what one client waits for, whatever the broker could do beside it."""
    retained = RetainedSet(Plan(port=running.port, topic=""), ROUND_TRIP_TOPICS)
    retained.fill()
    running.settle()
    before_s = running.cpu_seconds()
    figures = {"set_and_receive_ms": retained.set_and_receive(ROUND_TRIPS)}
    figures["cpu_us"] = (running.cpu_seconds() - before_s) * 1e6 / ROUND_TRIPS
    exact_ms, empty_ms = retained.round_trips(ROUND_TRIPS)
    return figures | {"exact_ms": exact_ms, "empty_ms": empty_ms}


def timed(running: Running, retained: RetainedSet, prefix: str, work: Callable[[], float]) -> Figures:
    """The rate of `work`, which is about all messages and says how long it took, and what it cost both sides."""
    before_s = running.cpu_seconds()
    seconds = work()
    cpu_s = running.cpu_seconds() - before_s
    return {
        f"{prefix}per_s": retained.count / seconds,
        f"{prefix}cpu_us": cpu_s * 1e6 / retained.count,
        prefix + BROKER: 100 * cpu_s / seconds,
        prefix + GENERATOR: 100 * retained.busy,
    }


def snapshot_s(retained: RetainedSet) -> float:
    everything = retained.snapshot("#", retained.count, quiet_s=5.0)
    demand(everything.messages, retained.count, "#")
    return everything.seconds


def a_crowd(running: Running) -> Figures:
    plan = Plan(port=running.port, topic="")
    RetainedSet(plan, CROWD_MESSAGES).fill()
    with PingProbe(plan) as probe:
        crowd = snapshot_concurrently(plan, CROWD, "#", CROWD_MESSAGES)
    demand(crowd.messages, CROWD * CROWD_MESSAGES, "#")
    return {
        "crowd_per_s": crowd.messages / crowd.seconds,
        "behind": crowd.behind,
        "ping_max_ms": probe.latency.max_ms,
    }


def expiring(running: Running) -> Figures:
    """All expire in one second; another client pings through that second."""
    plan = Plan(port=running.port, topic="", version=5)
    retained = RetainedSet(plan, MILLION)
    before = running.memory()
    expiry_s = time.monotonic() + EXPIRY_LEAD_S
    retained.fill_expiring(expiry_s)
    full = running.memory()
    time.sleep(max(0.0, expiry_s - 1.0 - time.monotonic()))
    with PingProbe(plan) as probe:
        time.sleep(max(0.0, expiry_s + AFTER_EXPIRY_S - time.monotonic()))
    left = running.memory()
    unexpired = retained.snapshot("#", 1, quiet_s=0.5).messages
    if unexpired:
        raise LoadError(f"{unexpired} messages were sent after they had expired, expected none")
    return {"expiry_ping_max_ms": probe.latency.max_ms, "expired_left": (left - before) / max(1, full - before)}


def on_disk(running: Running) -> Figures:
    """More messages than memory is meant for: set, looked for and sent, with the largest resident set on the way."""
    plan = Plan(port=running.port, topic="")
    retained = RetainedSet(plan, ON_DISK)
    sizes: list[int] = []

    def look(_: float) -> None:
        sizes.append(running.memory())

    figures: Figures = {"disk_set_per_s": ON_DISK / retained.fill(look)}
    expected = retained.matching(ONE_LINE)
    with PingProbe(plan) as probe:
        part = retained.snapshot(ONE_LINE, expected, quiet_s=10.0)
        look(1.0)
        everything = retained.snapshot("#", ON_DISK, quiet_s=10.0)
        look(1.0)
    demand(part.messages, expected, ONE_LINE)
    demand(everything.messages, ON_DISK, "#")
    figures |= {"disk_line_per_s": part.per_s, "disk_snapshot_per_s": everything.per_s}
    figures["disk_ping_max_ms"] = probe.latency.max_ms
    figures["disk_resident_mib"] = max(sizes) / (1 << 20)
    return figures


def demand(got: int, expected: int, topic_filter: str) -> None:
    if got != expected:
        raise LoadError(f"the snapshot of {topic_filter} brought {got} messages, expected {expected}")


SCENARIOS = (
    Scenario(
        "retained-set",
        f"{MANY:,} retained messages set at QoS 1, {SETTERS} connections with {IN_FLIGHT} in flight each",
        set_at_qos1,
        rate("set_per_s", "setting"),
        peers=PEERS,
    ),
    Scenario(
        "snapshot",
        f"{MANY:,} retained messages sent to a new subscriber",
        snapshot,
        rate("snapshot_per_s", "snapshot of #", "snapshot_"),
        peers=PEERS,
        quick_answers=True,
    ),
    Scenario(
        "roundtrip",
        "one retained topic, one message in flight",
        round_trip,
        (
            Figure("set_and_receive_ms", "set until received", "ms", more_is_better=False, times=1),
            Figure("cpu_us", "broker time each", "us", more_is_better=False),
            Figure("exact_ms", "subscribed until received", "ms", more_is_better=False, times=1),
            Figure("empty_ms", "subscribing an empty topic", "ms", more_is_better=False),
        ),
        peers=PEERS,
        quick_answers=True,
    ),
    Scenario(
        "retained",
        "1 000 000 retained messages",
        a_million,
        (
            Figure(
                "overhead_bytes",
                "memory beyond topic and payload",
                "bytes",
                more_is_better=False,
                of=MEMORY_ONLY,
                at_most=350,
            ),
            *rate("set_per_s", "setting", "set_", at_least=300_000, of=MEMORY_ONLY),
            *rate("snapshot_per_s", "snapshot of #", "snapshot_", times=15, of=MEMORY_ONLY),
            Figure("ping_max_ms", "slowest ping meanwhile", "ms", more_is_better=False, of=MEMORY_ONLY, at_most=50),
            Figure("one_line_per_s", f"snapshot of {ONE_LINE}", "msgs/s"),
            Figure("exact_ms", "subscribing one topic", "ms", more_is_better=False),
            Figure("empty_ms", "subscribing an empty topic", "ms", more_is_better=False),
            Figure(
                "exact_to_empty", "one topic to empty topic", "times", more_is_better=False, of=MEMORY_ONLY, at_most=1.2
            ),
            Figure("clear_per_s", "clearing", "msgs/s"),
            Figure(
                "left_bytes", "memory kept after clearing", "bytes", more_is_better=False, of=MEMORY_ONLY, at_most=64
            ),
        ),
        rounds=1,
        peers=PEERS,
        quick_answers=True,
    ),
    Scenario(
        "crowd",
        f"{CROWD} clients subscribe # over {CROWD_MESSAGES:,} at once",
        a_crowd,
        (
            Figure("crowd_per_s", "received by all", "msgs/s"),
            Figure("behind", "slowest behind the average", "share", more_is_better=False, of=MEMORY_ONLY, at_most=0.25),
            Figure("ping_max_ms", "slowest ping meanwhile", "ms", more_is_better=False, of=MEMORY_ONLY, at_most=50),
        ),
        rounds=1,
        peers=PEERS,
    ),
    Scenario(
        "expiry",
        "1 000 000 retained messages expire in one second",
        expiring,
        (
            Figure(
                "expiry_ping_max_ms", "slowest ping meanwhile", "ms", more_is_better=False, of=MEMORY_ONLY, at_most=50
            ),
            Figure("expired_left", "memory kept, share", "", more_is_better=False, of=MEMORY_ONLY, at_most=0.25),
        ),
        rounds=1,
        peers=PEERS,
    ),
    Scenario(
        "disc_only",
        f"{ON_DISK:,} retained messages on disk only",
        on_disk,
        (
            Figure("disk_resident_mib", "largest resident set", "MiB", more_is_better=False, at_most=1229),
            Figure("disk_set_per_s", "setting", "msgs/s"),
            Figure("disk_line_per_s", f"snapshot of {ONE_LINE}", "msgs/s"),
            Figure("disk_snapshot_per_s", "snapshot of #", "msgs/s"),
            Figure("disk_ping_max_ms", "slowest ping meanwhile", "ms", more_is_better=False),
        ),
        rounds=1,
        peers=(AS_SHIPPED,),
        settings=("durability=none", "retainer.storage_type=disc_only", "history.enable=false"),
    ),
)
