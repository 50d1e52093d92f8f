"""Messages a second and latency, between brokers that have nothing else to do."""

from holdfast_bench.connection import LoadError
from holdfast_bench.coordinator import Coordinator
from holdfast_bench.plan import Plan
from peers import MEMORY_ONLY, Running
from scenario import Figure, Figures, Scenario, rate, shares

SECONDS = 1.5


def measured(running: Running, **fields: object) -> Figures:
    # at QoS 0 a broker may be left with a long queue: its rate is known by then, the rest need not be read
    drain_s = 10.0 if fields.get("qos") else 0.2
    plan = Plan(port=running.port, duration_s=SECONDS, drain_at_most_s=drain_s, **fields)  # type: ignore[arg-type]
    before_s = running.cpu_seconds()
    result = Coordinator(plan, "compare", broker_pid=running.pid).run()
    if result.problems:
        raise LoadError("; ".join(result.problems))
    figures = {"received_per_s": result.received_per_s} | shares(result.busy)
    figures["cpu_us"] = (running.cpu_seconds() - before_s) * 1e6 / result.received
    if result.latency:
        figures |= {"p50_ms": result.latency.p50_ms, "p99_ms": result.latency.p99_ms}
    return figures


def one_to_one_qos0(running: Running) -> Figures:
    return measured(running)


def one_to_one_qos1(running: Running) -> Figures:
    return measured(running, qos=1, inflight=200)


def fan_out(running: Running) -> Figures:
    return measured(running, topic="bench/all", subscribers=50)


def twenty_pairs(running: Running) -> Figures:
    return measured(running, publishers=20, subscribers=20)


def latency(running: Running) -> Figures:
    return measured(running, rate=5000.0, stamped=True)


def received(times: float) -> tuple[Figure, ...]:
    return rate("received_per_s", "received", times=times, of=MEMORY_ONLY)


SCENARIOS = (
    Scenario("qos0", "one to one, QoS 0", one_to_one_qos0, received(12)),
    Scenario("qos1", "one to one, QoS 1, 200 in flight", one_to_one_qos1, received(10)),
    Scenario("fanout", "one to fifty, QoS 0", fan_out, received(12)),
    Scenario("pairs", "twenty pairs, QoS 0", twenty_pairs, received(8)),
    Scenario(
        "latency",
        "latency at 5 000 messages a second",
        latency,
        (
            Figure("p50_ms", "p50", "ms", more_is_better=False),
            Figure("p99_ms", "p99", "ms", more_is_better=False, times=1),
            Figure("cpu_us", "broker time each", "us", more_is_better=False),
        ),
        quick_answers=True,
    ),
)
