"""A cluster of three nodes beside nats-server's own MQTT on three servers: rates, and what a loss costs its clients.

The processes of a cluster run on all cores, the generator on those it has in every comparison. A kill is SIGKILL.
"""

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from bare_stream import BareStream
from cluster_peers import NODES_NAME, SERVERS_NAME, RunningCluster, kill
from holdfast_bench.codec import PublishFrame, encode_connect
from holdfast_bench.connection import READ_BYTES, LoadConnection, LoadError
from holdfast_bench.coordinator import Coordinator
from holdfast_bench.plan import Plan, Result
from holdfast_bench.retained import RetainedSet
from holdfast_demo.cluster import Part
from peers import AS_SHIPPED, Running
from scenario import GENERATOR, Figure, Figures, Scenario
from writer import Writer

PUBLISHERS, IN_FLIGHT = 10, 200
PATIENCE_S = 60.0
RETRY_S = 0.05
FILL_S = 300.0  # a retained set may still be on its way through the log when its setter is done
WARM_UP_S = 2.0  # by then each node knows what the others' clients subscribe
IDLE_S, IDLE_SHARE = 1.0, 0.15  # of one core, in all processes together
FLEET = "site/#"  # where a retained set is
JOINING = "d"
LOAD_WINDOW, LOAD_TOPICS = 50, 1000  # of each writer while a node joins


@dataclass(frozen=True)
class Amounts:
    """How much of everything is done."""

    seconds: float
    one_at_a_time: int  # publishes, over all nodes, and as many bare ones
    retained: int
    joining_retained: int
    before_kill_s: float
    after_kill_s: float  # long enough for the others to call the node down
    writes_after: int  # acknowledged before a failover counts as over


FULL = Amounts(5.0, 3000, 200_000, 1_000_000, 5.0, 20.0, 2000)
QUICK = Amounts(0.5, 30, 500, 1000, 0.5, 1.0, 20)


def published(amounts: Amounts, running: Running) -> Figures:
    """Retained publishes at QoS 1, by clients of all nodes at once."""
    plan = Plan(
        publish_ports=running.ports,
        qos=1,
        retain=True,
        topic="site/%i",
        publishers=PUBLISHERS,
        subscribers=0,
        inflight=IN_FLIGHT,
        duration_s=amounts.seconds,
        warmup_s=WARM_UP_S,
    )
    before_s = running.cpu_seconds()
    result = loaded(plan)
    figures = {"acknowledged_per_s": result.sent_per_s, "cpu_us": used_us(running, before_s, result.sent)}
    return figures | busy(result)


def live(amounts: Amounts, running: Running) -> Figures:
    """QoS 0 from a client of one node to one client of each other node."""
    first, *others = running.ports
    plan = Plan(
        publish_ports=(first,),
        subscribe_ports=tuple(others),
        topic="live/all",
        subscribers=len(others),
        duration_s=amounts.seconds,
        warmup_s=WARM_UP_S,
        drain_at_most_s=0.2,
    )
    before_s = running.cpu_seconds()
    result = loaded(plan)
    figures = {"received_per_s": result.received_per_s, "published_per_s": result.sent_per_s}
    figures |= {"cpu_us": used_us(running, before_s, result.received)}
    return figures | busy(result)


def loaded(plan: Plan) -> Result:
    result = Coordinator(plan, "compare").run()
    if result.problems:
        raise LoadError("; ".join(result.problems))
    return result


def busy(result: Result) -> Figures:
    return {GENERATOR: 100 * result.busy.generator} if result.busy else {}


def used_us(running: Running, before_s: float, messages: int) -> float:
    return (running.cpu_seconds() - before_s) * 1e6 / max(1, messages)


def one_at_a_time(amounts: Amounts, running: Running) -> Figures:
    """Publishes and bare JetStream publishes in turn, each through every node and every server."""
    cluster = clustered(running)
    payload = Plan().payload
    frame = PublishFrame(b"site/one", payload, 1, True, 4)
    took_s: list[float] = []
    bare_s: list[float] = []
    with ExitStack() as stack:
        publishers = [opened(stack, port, f"one-{port}") for port in cluster.ports]
        streams = [BareStream(port) for port in cluster.server_ports]
        for stream in streams:
            stack.callback(stream.close)
        streams[0].make()
        for number in range(amounts.one_at_a_time):
            packet = frame.block(1, number % 60_000 + 1)
            took_s.append(acknowledged_s(publishers[number % len(publishers)], packet))
            bare_s.append(streams[number % len(streams)].publish_s(payload))
    figures = percentiles(took_s, "") | percentiles(bare_s, "bare_")
    return figures | {"to_bare": figures["p50_ms"] / figures["bare_p50_ms"]}


def percentiles(times_s: list[float], prefix: str) -> Figures:
    cuts = statistics.quantiles(times_s, n=20)
    return {f"{prefix}p50_ms": statistics.median(times_s) * 1e3, f"{prefix}p95_ms": cuts[-1] * 1e3}


def snapshot(amounts: Amounts, running: Running) -> Figures:
    """A retained set that was made through the first node, sent to a new client of each; the slowest counts."""
    filled(running, amounts.retained)
    settle(running)
    return {"snapshot_per_s": min(snapshot_per_s(port, amounts.retained) for port in running.ports)}


def filled(running: Running, count: int) -> None:
    """`count` retained messages through the first node, which all nodes have when this returns."""
    RetainedSet(Plan(port=running.port, topic=""), count).fill()
    with ExitStack() as stack:
        last = PublishFrame(b"filled", b"all", 1, True, 4).block(1)
        writer = opened(stack, running.port, "fill")
        writer.socket.settimeout(FILL_S)
        acknowledged_s(writer, last)
        for port in running.ports:
            reader = opened(stack, port, f"filled-{port}")
            reader.socket.settimeout(FILL_S)
            reader.subscribe(["filled"], 0)
            while not reader.received.messages:
                reader.read("the message behind the retained set")


def settle(running: Running) -> None:
    """Until the processes have done what the retained set left them to do: state and history follow behind the log."""
    deadline = time.monotonic() + FILL_S
    while time.monotonic() < deadline:
        before_s = running.cpu_seconds()
        time.sleep(IDLE_S)
        if running.cpu_seconds() - before_s < IDLE_SHARE * IDLE_S:
            return


def snapshot_per_s(port: int, count: int) -> float:
    found = RetainedSet(Plan(port=port, topic="", prefix=f"bench-{port}"), count).snapshot(FLEET, count, quiet_s=5.0)
    if found.messages != count:
        raise LoadError(f"the snapshot of {FLEET} brought {found.messages} messages, expected {count}")
    return found.per_s


def node_killed(amounts: Amounts, running: Running) -> Figures:
    """What a client of another node notices, and how soon the node's own client has its session elsewhere."""
    cluster = clustered(running)
    first, second, last = cluster.ports
    with ExitStack() as stack:
        session = persistent(stack, last)
        session.subscribe(["resumed"], 1)
        acknowledged_s(opened(stack, first, "told"), PublishFrame(b"resumed", b"told", 1, False, 4).block(1))
        while not session.received.messages:  # not acknowledged: it has to be sent again
            session.received.feed(session.socket.recv(READ_BYTES), 0)
        writer = stack.enter_context(Writer((first,), "elsewhere"))
        writer.demand(1)
        began = time.monotonic()
        time.sleep(amounts.before_kill_s)
        killed = time.monotonic()
        kill(cluster.nodes[-1])
        resumed_s = redelivered_s(stack, second)
        time.sleep(max(0.0, killed + amounts.after_kill_s - time.monotonic()))
        over = time.monotonic()
        if writer.connects or writer.problem:
            raise LoadError(f"a client of another node lost its connection: {writer.problem}")
    return {
        "usual_gap_ms": writer.longest_gap_s(began, killed) * 1e3,
        "gap_ms": writer.longest_gap_s(killed, over) * 1e3,
        "resumed_s": resumed_s,
    }


def persistent(stack: ExitStack, port: int) -> LoadConnection:
    connection = LoadConnection.dial("127.0.0.1", port, "bench-resuming", timeout_s=PATIENCE_S)
    stack.callback(connection.close)
    connection.socket.sendall(encode_connect(connection.client_id, 4, clean=False))
    connection.finish_connect()
    return connection


def redelivered_s(stack: ExitStack, port: int) -> float:
    """Seconds from the first try to connect to the first message that is sent again."""
    began = time.monotonic()
    while True:
        try:
            session = persistent(stack, port)
            while not session.received.messages:
                session.read("the message that was not acknowledged")
            return time.monotonic() - began
        except LoadError:  # hung up on: a client tries again
            if time.monotonic() - began > PATIENCE_S:
                raise
            time.sleep(RETRY_S)


def leader_killed(amounts: Amounts, running: Running) -> Figures:
    """How long writes stand still, and how many acknowledged ones are not there afterwards."""
    cluster = clustered(running)
    with ExitStack() as stack:
        leader = cluster.leader()
        # one of nats-server's servers is the leader: the writer is to lose the leader, not its connection
        ports = tuple(port for node, port in zip(cluster.nodes, cluster.ports, strict=True) if node is not leader)
        writer = stack.enter_context(Writer(ports, "failover"))
        writer.demand(1)
        time.sleep(amounts.before_kill_s)
        killed = time.monotonic()
        gone = cluster.leader()
        kill(gone)
        with ThreadPoolExecutor(1) as beside:
            elected = beside.submit(elected_at, cluster, gone)
            writer.demand(writer.acknowledged + amounts.writes_after)
            over = time.monotonic()
            elected_s = elected.result() - killed
    standstill_s = writer.longest_gap_s(killed, over)
    alive = [port for node, port in zip(cluster.nodes, cluster.ports, strict=True) if node.process.poll() is None]
    return {
        "elected_s": elected_s,
        "standstill_s": standstill_s,
        "after_election_s": max(0.0, standstill_s - elected_s),
        "lost": max(lost_on(port, writer) for port in alive),
        "written": writer.acknowledged,
    }


def elected_at(cluster: RunningCluster, gone: Part) -> float:
    """When the servers that are left name another leader of the stream."""
    deadline = time.monotonic() + PATIENCE_S
    while cluster.leader() is gone and time.monotonic() < deadline:
        time.sleep(0.02)
    return time.monotonic()


def lost_on(port: int, writer: Writer) -> int:
    """How many of the writer's acknowledged values a node does not have, after it was given time to follow."""
    expected = {writer.topic(number): writer.value(number) for number in range(writer.acknowledged)}
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = retained_values(port, f"write/{writer.name}/#", len(expected))
        missing = sum(found.get(topic) != value for topic, value in expected.items())
        if not missing or time.monotonic() > deadline:
            return missing
        time.sleep(0.5)


def retained_values(port: int, topic_filter: str, expected: int) -> dict[str, bytes]:
    """What a node has, read until `expected` messages are there or none comes for two seconds."""
    connection = LoadConnection.open("127.0.0.1", port, f"bench-values-{port}", timeout_s=PATIENCE_S)
    values: dict[str, bytes] = {}
    data = b""
    try:
        connection.socket.settimeout(2.0)
        connection.send_subscribe([topic_filter], 0)
        while len(values) < expected:
            try:
                more = connection.socket.recv(READ_BYTES)
            except TimeoutError:
                break
            if not more:
                break
            data = take_publishes(data + more, values)
    finally:
        connection.close()
    return values


def take_publishes(data: bytes, values: dict[str, bytes]) -> bytes:
    """Put topics and payloads of QoS 0 into `values`; what is left is the beginning of a packet."""
    position = 0
    while len(data) - position >= 2:
        length, shift, body = 0, 0, position + 1
        while body < len(data):
            byte = data[body]
            length |= (byte & 127) << shift
            shift += 7
            body += 1
            if byte < 128:
                break
        else:
            break
        if body + length > len(data):
            break
        if data[position] >> 4 == 3:
            topic_end = body + 2 + int.from_bytes(data[body : body + 2], "big")
            values[data[body + 2 : topic_end].decode()] = data[topic_end : body + length]
        position = body + length
    return data[position:]


def node_joins(amounts: Amounts, running: Running) -> Figures:
    """A new node takes up all retained messages while clients of the others write."""
    cluster = clustered(running)
    count = amounts.joining_retained
    filled(cluster, count)
    settle(cluster)
    with ExitStack() as stack:
        writers = [
            stack.enter_context(Writer((port,), f"load-{port}", LOAD_WINDOW, LOAD_TOPICS)) for port in cluster.ports
        ]
        for writer in writers:
            writer.demand(LOAD_TOPICS)  # every topic is set: from here on the retained set does not grow
        began = time.monotonic()
        time.sleep(amounts.before_kill_s)
        started = time.monotonic()
        node = cluster.join(JOINING)
        port = cluster.listening_port(node)
        ready = time.monotonic()
        time.sleep(amounts.before_kill_s)
        over = time.monotonic()
        for writer in writers:
            if writer.problem:
                raise LoadError(writer.problem)
    snapshot_per_s(port, count)
    before = sum(writer.per_s(began, started) for writer in writers)
    meanwhile = sum(writer.per_s(started, ready) for writer in writers)
    afterwards = sum(writer.per_s(ready, over) for writer in writers)
    return {
        "join_s": ready - started,
        "before_per_s": before,
        "meanwhile_per_s": meanwhile,
        "slower": 100 * (1 - meanwhile / before),
        "slower_after": 100 * (1 - afterwards / before),
    }


def clustered(running: Running) -> RunningCluster:
    if not isinstance(running, RunningCluster):
        raise LoadError("expected a cluster, got one broker")
    return running


def opened(stack: ExitStack, port: int, client: str) -> LoadConnection:
    connection = LoadConnection.open("127.0.0.1", port, f"bench-{client}", timeout_s=PATIENCE_S)
    stack.callback(connection.close)
    return connection


def acknowledged_s(connection: LoadConnection, packet: bytes) -> float:
    """Seconds from sending a publish of QoS 1 to its PUBACK."""
    wanted = connection.received.acknowledged + 1
    began = time.perf_counter()
    connection.socket.sendall(packet)
    while connection.received.acknowledged < wanted:
        connection.read("PUBACK")
    return time.perf_counter() - began


def less(key: str, label: str, unit: str = "", *, at_most: float | None = None, beside: str = SERVERS_NAME) -> Figure:
    return Figure(key, label, unit, more_is_better=False, of=NODES_NAME, beside=beside, at_most=at_most)


def more(
    key: str, label: str, *, at_least: float | None = None, times: float | None = None, beside: str = SERVERS_NAME
) -> Figure:
    return Figure(
        key, label, "msgs/s", of=NODES_NAME, beside=beside, at_least=at_least, times=times, limited_by=GENERATOR
    )


CPU = less("cpu_us", "time of all processes each", "us")
GENERATOR_BUSY = Figure(GENERATOR, "generator busy", "%", of=NODES_NAME, beside=SERVERS_NAME)
BOTH = (NODES_NAME, SERVERS_NAME)


def scenarios(amounts: Amounts) -> tuple[Scenario, ...]:
    def scenario(
        name: str,
        title: str,
        run: Callable[[Amounts, Running], Figures],
        figures: tuple[Figure, ...],
        rounds: int = 3,
        peers: tuple[str, ...] = BOTH,
    ) -> Scenario:
        return Scenario(f"cluster-{name}", title, partial(run, amounts), figures, rounds, peers)

    return (
        scenario(
            "publish",
            f"retained at QoS 1, {PUBLISHERS} publishers with {IN_FLIGHT} in flight over all nodes",
            published,
            (more("acknowledged_per_s", "acknowledged", at_least=60_000, times=10), CPU, GENERATOR_BUSY),
        ),
        scenario(
            "roundtrip",
            "retained at QoS 1, one in flight, beside a bare JetStream publish",
            one_at_a_time,
            (
                less("p50_ms", "p50", "ms"),
                less("p95_ms", "p95", "ms"),
                less("bare_p50_ms", "bare publish, p50", "ms"),
                less("bare_p95_ms", "bare publish, p95", "ms"),
                less("to_bare", "p50 to that of a bare publish", "times", at_most=2),
            ),
        ),
        scenario(
            "live",
            "QoS 0 from one node to a subscriber on each other node",
            live,
            (
                more("received_per_s", "received by both", at_least=500_000),
                more("published_per_s", "published"),
                CPU,
                GENERATOR_BUSY,
            ),
        ),
        scenario(
            "snapshot",
            f"{amounts.retained:,} retained messages sent to a new subscriber of any node",
            snapshot,
            (more("snapshot_per_s", "snapshot, the slowest node", beside=AS_SHIPPED),),
            peers=(AS_SHIPPED, NODES_NAME),
        ),
        scenario(
            "node",
            "a node is killed",
            node_killed,
            (
                less("usual_gap_ms", "longest wait for a PUBACK on another node before", "ms"),
                less("gap_ms", "longest wait for a PUBACK on another node afterwards", "ms"),
                less("resumed_s", "session resumed elsewhere, connecting until redelivery", "s", at_most=1),
            ),
        ),
        scenario(
            "leader",
            "the leader of the stream is killed",
            leader_killed,
            (
                less("elected_s", "until another leads", "s"),
                less("standstill_s", "until writes go on", "s"),
                less("after_election_s", "until writes go on, from the election", "s", at_most=1),
                less("lost", "acknowledged and not there", at_most=0),
                Figure("written", "acknowledged in all", of=NODES_NAME, beside=SERVERS_NAME),
            ),
        ),
        scenario(
            "join",
            f"a node joins, {amounts.joining_retained:,} retained messages",
            node_joins,
            (
                less("join_s", "until it is ready", "s", at_most=30),
                more("before_per_s", "acknowledged by the others before"),
                more("meanwhile_per_s", "acknowledged by the others meanwhile"),
                less("slower", "slower meanwhile", "%", at_most=10),
                less("slower_after", "slower in the 5 s after that, while its state follows", "%"),
            ),
            rounds=1,
            peers=(NODES_NAME,),
        ),
    )


SCENARIOS = scenarios(FULL)
