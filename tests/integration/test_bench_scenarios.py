"""The scenarios against a real broker, and against one that loses messages."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from broker_process import BrokerProcess, Unique
from holdfast.errors import UsageError
from holdfast_bench.connection import LoadError
from holdfast_bench.coordinator import Coordinator
from holdfast_bench.plan import Busy, Plan, Result
from holdfast_bench.probe import PingProbe, cpu_seconds, own_cpu_seconds, resident_bytes
from holdfast_bench.report import bounds
from holdfast_bench.retained import RetainedSet, matches, snapshot_concurrently
from holdfast_bench.scenarios import Extras, run_scenario
from wire_packets import puback

PATIENCE_S = 60.0


def plan(broker: BrokerProcess, unique: Unique, **fields: object) -> Plan:
    given: dict[str, object] = {
        "topic": f"{unique}/%i",
        "duration_s": 0.3,
        "warmup_s": 0.1,
        "drain_s": PATIENCE_S,
        "prefix": str(unique),
    }
    return Plan(port=broker.port, **(given | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [4, 5], ids=["v311", "v5"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_pair_counts_every_message_once(broker: BrokerProcess, unique: Unique, version: int, qos: int) -> None:
    load = plan(broker, unique, version=version, qos=qos, count=1001, inflight=20)
    result = run_scenario("pair", load, 2, Extras())
    assert (result.sent, result.received, result.lost, result.problems) == (1001, 1001, 0, [])
    assert result.acknowledged == (1001 if qos else 0)


def test_pair_runs_for_its_duration_and_drains(broker: BrokerProcess, unique: Unique) -> None:
    result = run_scenario("pair", plan(broker, unique, qos=1, duration_s=2.0), 1, Extras())
    assert result.problems == []
    assert result.received == result.acknowledged > 0
    assert result.received_per_s > 0
    assert result.seconds > 1.9


def test_fanout_expects_one_copy_for_each_subscriber(broker: BrokerProcess, unique: Unique) -> None:
    result = run_scenario("fanout", plan(broker, unique, topic=f"{unique}/all", qos=1, count=50), 4, Extras())
    assert (result.sent, result.expected, result.received) == (50, 200, 200)


def test_latency_has_percentiles_in_order(broker: BrokerProcess, unique: Unique) -> None:
    result = run_scenario("latency", plan(broker, unique, rate=500), 1, Extras())
    assert result.problems == []
    assert result.latency is not None
    assert 0 < result.latency.p50_ms <= result.latency.p99_ms <= result.latency.p999_ms <= result.latency.max_ms


def test_paced_load_keeps_to_its_rate(broker: BrokerProcess, unique: Unique) -> None:
    started = time.monotonic()
    result = run_scenario("pair", plan(broker, unique, rate=200, stamped=True, duration_s=1.0), 2, Extras())
    passed = time.monotonic() - started
    assert 0 < result.sent <= 200 * (passed + 0.1), "what is late is sent at once, and nothing before its time"


def test_sub_alone_that_hears_nothing_is_a_problem(broker: BrokerProcess, unique: Unique) -> None:
    result = run_scenario("sub", plan(broker, unique, topic=f"{unique}/#"), 1, Extras())
    assert result.problems == ["nothing was received"]


def test_conn_holds_connections_that_still_answer(broker: BrokerProcess, unique: Unique) -> None:
    result = run_scenario("conn", plan(broker, unique, duration_s=0.1), 150, Extras(pid=broker.pid))
    assert (result.figures["connections"], result.figures["alive"], result.problems) == (150, 150, [])
    assert "bytes_per_connection" in result.figures


def test_retained_snapshot_is_complete_and_cleared_afterwards(broker: BrokerProcess, unique: Unique) -> None:
    load = plan(broker, unique, topic=f"{unique}/%i/v", count=3000)
    result = run_scenario("retained", load, 1, Extras(topic_filter=f"{unique}/#"))
    assert (result.expected, result.received, result.problems) == (3000, 3000, [])
    assert result.figures["exact_ms"] > 0
    reader = broker.client(4)
    reader.connect(unique.client("reader"))
    reader.subscribe(f"{unique}/#")
    assert reader.barrier() == []
    reader.cut()


def test_distinct_topics_reach_a_wildcard_filter(broker: BrokerProcess, unique: Unique) -> None:
    load = plan(
        broker,
        unique,
        topic=f"{unique}/%m/v",
        distinct=10,
        topic_filters=(f"{unique}/#", f"{unique}/+/v"),
        subscribers=2,
        count=25,
    )
    result = Coordinator(load, "pair").run()
    assert (result.sent, result.expected, result.received) == (25, 50, 50)


def test_distinct_topics_at_qos_1_are_all_set(broker: BrokerProcess, unique: Unique) -> None:
    load = plan(
        broker,
        unique,
        topic=f"{unique}/%i/%m",
        distinct=100,
        qos=1,
        retain=True,
        inflight=10,
        count=400,
        publishers=4,
        subscribers=0,
    )
    result = Coordinator(load, "pub").run()
    assert (result.sent, result.acknowledged, result.problems) == (400, 400, [])
    retained = RetainedSet(plan(broker, unique), 1)
    assert retained.snapshot(f"{unique}/#", 400, quiet_s=PATIENCE_S).messages == 400


def test_set_and_receive_waits_for_each_message(broker: BrokerProcess, unique: Unique) -> None:
    retained = RetainedSet(plan(broker, unique), 1)
    assert retained.set_and_receive(20) > 0
    retained.clear()


def test_result_says_how_busy_everybody_was(broker: BrokerProcess, unique: Unique) -> None:
    result = run_scenario("pair", plan(broker, unique, count=2000), 1, Extras(pid=broker.pid))
    assert result.busy is not None
    assert result.busy.publishers > 0
    assert result.busy.subscribers > 0
    assert result.busy.generator >= max(result.busy.publishers, result.busy.subscribers)
    assert result.busy.broker is not None


def test_retained_says_how_busy_the_generator_was(broker: BrokerProcess, unique: Unique) -> None:
    load = plan(broker, unique, topic=f"{unique}/%i/b", count=2000)
    result = run_scenario("retained", load, 1, Extras(topic_filter=f"{unique}/#"))
    assert result.figures["set_busy"] > 0
    assert result.figures["snapshot_busy"] > 0


@pytest.mark.parametrize(
    ("busy", "expected"),
    [
        (Busy(0.5, 0.97, 2), ["generator 97% busy: this is a lower bound"]),
        (Busy(0.45, 0.5, 1), ["generator 95% busy: this is a lower bound"]),  # both on one core
        (Busy(0.45, 0.5, 2, broker=1.0), []),
    ],
)
def test_rate_of_a_busy_generator_is_called_a_lower_bound(busy: Busy, expected: list[str]) -> None:
    assert bounds(Result("pair", busy=busy)) == expected


def test_lower_bound_of_a_step_names_the_step() -> None:
    result = Result("retained", figures={"set_busy": 0.95, "snapshot_busy": 0.3})
    assert bounds(result) == ["set: generator 95% busy: this is a lower bound"]


def test_processor_time_includes_that_of_started_processes() -> None:
    work = "import time\nwhile time.process_time() < 0.3: pass\nprint('done', flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", work], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"done\n"
        ours = own_cpu_seconds(os.getpid())
        assert cpu_seconds(os.getpid()) >= ours + 0.25
        child.communicate(b"\n")


def test_crowd_gets_everything_each(broker: BrokerProcess, unique: Unique) -> None:
    load = plan(broker, unique, topic=f"{unique}/%i/c")
    retained = RetainedSet(load, 2000)
    retained.fill()
    crowd = snapshot_concurrently(load, 5, f"{unique}/#", 2000)
    retained.clear()
    assert crowd.messages == 10_000
    assert 0 < crowd.first_done_s <= crowd.seconds
    assert 0 <= crowd.behind <= 1


def test_crowd_that_misses_messages_says_how_many(broker: BrokerProcess, unique: Unique) -> None:
    load = plan(broker, unique, topic=f"{unique}/%i/c")
    retained = RetainedSet(load, 10)
    retained.fill()
    with pytest.raises(LoadError, match="2 of the retained messages are missing"):
        snapshot_concurrently(load, 2, f"{unique}/#", 11, quiet_s=3.0)
    retained.clear()


def test_expiring_messages_are_gone_in_time(broker: BrokerProcess, unique: Unique) -> None:
    retained = RetainedSet(plan(broker, unique, topic=f"{unique}/%i/e", version=5), 100)
    ends_at_s = time.monotonic() + 6
    retained.fill_expiring(ends_at_s)
    assert retained.snapshot(f"{unique}/#", 100, quiet_s=PATIENCE_S).messages == 100
    time.sleep(max(0.0, ends_at_s + 1 - time.monotonic()))  # it is told in whole seconds
    assert retained.snapshot(f"{unique}/#", 1, quiet_s=0.2).messages == 0


def test_ping_probe_sees_round_trips(broker: BrokerProcess, unique: Unique) -> None:
    with PingProbe(plan(broker, unique)) as probe:
        time.sleep(0.2)
    assert 0 < probe.latency.p50_ms <= probe.latency.max_ms


def test_usage_of_no_process_is_a_clear_error() -> None:
    with pytest.raises(UsageError, match="cannot read the memory of process 999999999"):
        resident_bytes(999_999_999)


@pytest.fixture
def losing_peer() -> Iterator[int]:
    """Speaks just enough MQTT to accept clients and acknowledge publishes, and delivers none of them."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(peer: socket.socket) -> None:
        with peer:
            while data := peer.recv(65536):
                kind = data[0] >> 4
                if kind == 1:
                    peer.sendall(b"\x20\x02\x00\x00")
                elif kind == 8:
                    peer.sendall(b"\x90\x03" + data[2:4] + b"\x01")
                elif kind == 3:
                    peer.sendall(b"".join(puback(i) for i in range(1, data.count(b"lost/") + 1)))

    def accept() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(peer,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def test_losses_at_qos_1_are_a_problem(losing_peer: int) -> None:
    load = Plan(port=losing_peer, topic="lost/%i", qos=1, count=10, drain_s=2.0)
    result = run_scenario("pair", load, 1, Extras())
    assert (result.acknowledged, result.received, result.lost) == (10, 0, 10)
    assert result.problems == ["nothing was received", "10 messages were lost at QoS 1"]


def test_unreachable_broker_is_one_clear_error(unique: Unique) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(LoadError, match=f"could not connect to 127.0.0.1:{port}: Connection refused"):
        run_scenario("pair", Plan(port=port), 1, Extras())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"stamped": True, "size": 7}, "expected at least 8"),
        ({"inflight": 0}, "inflight is 0"),
        ({"qos": 3}, "qos is 3"),
        ({"version": 3}, "protocol level is 3"),
        ({"distinct": 10, "rate": 5}, "without a rate"),
        ({"distinct": 399, "qos": 1, "inflight": 200}, "distinct is 399, expected 400 to 65535 at QoS 1"),
    ],
)
def test_impossible_plans_are_refused(fields: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Plan(**fields)  # type: ignore[arg-type]


def test_fanout_refuses_a_topic_of_its_own_for_each_client() -> None:
    with pytest.raises(UsageError, match="expected no %i"):
        run_scenario("fanout", Plan(topic="a/%i"), 2, Extras())


@pytest.mark.parametrize(
    ("topic_filter", "topic", "expected"),
    [
        ("#", "a/b", True),
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("a/+", "a/b", True),
        ("a/+", "a/b/c", False),
        ("a/+", "a", False),
        ("a/b", "a/b", True),
        ("a/b", "a/c", False),
        ("+/+/line/3/#", "x/y/line/3/d", True),
        ("+/+/line/3/#", "x/y/line/4/d", False),
    ],
)
def test_expected_snapshot_follows_the_matching_rules(topic_filter: str, topic: str, expected: bool) -> None:
    assert matches(topic_filter.split("/"), topic.split("/")) is expected
