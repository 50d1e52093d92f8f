"""A million retained messages: their memory, setting, sending, expiring and clearing them.

NATS is left out: it keeps retained messages in a stream on disk, which is another thing to compare.
"""

import time

from holdfast_bench.connection import LoadError
from holdfast_bench.plan import Plan
from holdfast_bench.probe import PingProbe
from holdfast_bench.retained import RetainedSet, snapshot_concurrently
from peers import Running
from scenario import Figure, Figures, Scenario

MILLION = 1_000_000
ON_DISK = 5_000_000
CROWD = 50
CROWD_MESSAGES = 100_000
ONE_LINE = "site/+/line/3/#"
EXPIRY_LEAD_S = 12.0  # time to set a million before they expire
AFTER_EXPIRY_S = 2.5

PEERS = ("Holdfast", "mosquitto")


def a_million(running: Running) -> Figures:
    plan = Plan(port=running.port, topic="")
    retained = RetainedSet(plan, MILLION)
    before = running.memory()
    started_s = running.cpu_seconds()
    figures: Figures = {"set_per_s": MILLION / retained.fill()}
    figures["set_cpu_us"] = running.cpu_seconds() - started_s  # a million of them: seconds are microseconds each
    figures["overhead_bytes"] = (running.memory() - before - retained.wire_bytes()) / MILLION
    started_s = running.cpu_seconds()
    with PingProbe(plan) as probe:
        everything = retained.snapshot("#", MILLION)
    figures["snapshot_cpu_us"] = running.cpu_seconds() - started_s
    demand(everything.messages, MILLION, "#")
    figures["snapshot_per_s"] = everything.per_s
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
        "retained",
        "1 000 000 retained messages",
        a_million,
        (
            Figure("overhead_bytes", "memory beyond topic and payload", "bytes", more_is_better=False, at_most=350),
            Figure("set_per_s", "setting", "msgs/s", at_least=300_000),
            Figure("set_cpu_us", "broker time each", "us", more_is_better=False),
            Figure("snapshot_per_s", "snapshot of #", "msgs/s", times=15),
            Figure("snapshot_cpu_us", "broker time each", "us", more_is_better=False),
            Figure("ping_max_ms", "slowest ping meanwhile", "ms", more_is_better=False, at_most=50),
            Figure("one_line_per_s", f"snapshot of {ONE_LINE}", "msgs/s"),
            Figure("exact_ms", "subscribing one topic", "ms", more_is_better=False),
            Figure("empty_ms", "subscribing an empty topic", "ms", more_is_better=False),
            Figure("exact_to_empty", "one topic to empty topic", "times", more_is_better=False, at_most=1.2),
            Figure("clear_per_s", "clearing", "msgs/s"),
            Figure("left_bytes", "memory kept after clearing", "bytes", more_is_better=False, at_most=64),
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
            Figure("behind", "slowest behind the average", "share", more_is_better=False, at_most=0.25),
            Figure("ping_max_ms", "slowest ping meanwhile", "ms", more_is_better=False, at_most=50),
        ),
        rounds=1,
        peers=PEERS,
    ),
    Scenario(
        "expiry",
        "1 000 000 retained messages expire in one second",
        expiring,
        (
            Figure("expiry_ping_max_ms", "slowest ping meanwhile", "ms", more_is_better=False, at_most=50),
            Figure("expired_left", "memory kept, share", "", more_is_better=False, at_most=0.25),
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
        peers=("Holdfast",),
        settings=("retainer.storage_type=disc_only",),
    ),
)
