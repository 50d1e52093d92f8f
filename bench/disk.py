"""What must be on disk: acknowledged publishes, the start from a full folder, and the history behind it all.

In `durable` a broker has one core, like everywhere that brokers are compared, and Holdfast's followers have it too. The
other scenarios are about Holdfast alone, on all cores there are.
"""

import os
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from holdfast.journal.segment import ALLOCATE
from holdfast_bench.codec import encode_connect
from holdfast_bench.connection import LoadConnection, LoadError
from holdfast_bench.coordinator import Coordinator
from holdfast_bench.plan import Plan, Result
from holdfast_bench.retained import RetainedSet
from peers import AS_SHIPPED, BROKER_CORES, GENERATOR_CORES, HOLDFASTS, Holdfast, Running, await_answer
from scenario import Figure, Figures, Scenario, rate, shares

SECONDS = 3.0
TURNS = 3
SYNCS = 100
MILLION = 1_000_000
SESSIONS = 10_000
HISTORY_RATE = 200_000
HISTORY_S = 10.0
CATCH_UP_S = 60.0


def durable(running: Running) -> Figures:
    """Retained publishes at QoS 1, each acknowledged when it is on disk, for the broker that keeps it there.

    One in flight comes first: with the first message the history's writer starts, which takes a second of the broker's
    core once, and what a flood leaves to it would be measured with the next figure.
    """
    figures = one_at_a_time(running)
    for publishers in (1, 10):
        running.settle()
        prefix = f"durable_{publishers}_"
        before_s = running.cpu_seconds()
        result = published(running, publishers, 200)
        figures[f"{prefix}per_s"] = result.sent_per_s
        figures[f"{prefix}cpu_us"] = (running.cpu_seconds() - before_s) * 1e6 / result.sent
        figures |= shares(result.busy, prefix)
    return figures


def one_at_a_time(running: Running) -> Figures:
    """Publishes and bare syncs in turn, both on the broker's core: a disk is not equally fast from one second to the
    next, nor from one core to another.
    """
    keeps = (running.folder / "data" / "journal").is_dir()
    published(running, 1, 1, SECONDS / TURNS)
    running.settle()
    cores = os.sched_getaffinity(running.pid)
    each_ms: list[float] = []
    syncs_ms: list[float] = []
    answers_ms: list[float] = []
    size = 0
    for _ in range(TURNS):
        before = written_bytes(running.pid)
        result = published(running, 1, 1, SECONDS / TURNS)
        each_ms.append(1000 / result.sent_per_s)
        if keeps:
            size = (written_bytes(running.pid) - before) // result.sent
            with on_cores(cores):
                syncs_ms.append(bare_sync_ms(running.folder, size))
            answers_ms.append(synced_answer_ms(running.folder, size, cores))
    figures: Figures = {"one_at_a_time_ms": statistics.mean(each_ms)}
    if keeps:
        figures |= {"sync_bytes": size, "sync_ms": statistics.mean(syncs_ms)}
        figures["one_to_sync"] = figures["one_at_a_time_ms"] / figures["sync_ms"]
        figures["synced_answer_ms"] = statistics.mean(answers_ms)
    return figures


def published(running: Running, publishers: int, inflight: int, seconds: float = SECONDS) -> Result:
    plan = Plan(
        port=running.port,
        qos=1,
        retain=True,
        topic="site/%i",
        publishers=publishers,
        subscribers=0,
        inflight=inflight,
        duration_s=seconds,
    )
    result = Coordinator(plan, "compare", broker_pid=running.pid).run()
    if result.problems:
        raise LoadError("; ".join(result.problems))
    return result


def written_bytes(pid: int) -> int:
    """What the process has handed to `write` so far: the journal, for sockets are sent to."""
    counts = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(counts["wchar"])


def bare_sync_ms(folder: Path, size: int) -> float:
    """Writing `size` bytes and `fdatasync`, one after another, in a file with space set aside as the journal's has."""
    with set_aside(folder, size) as fd:
        data = os.urandom(size)
        started = time.monotonic()
        for number in range(SYNCS):
            os.pwrite(fd, data, number * size)
            os.fdatasync(fd)
        return (time.monotonic() - started) * 1000 / SYNCS


@contextmanager
def set_aside(folder: Path, size: int) -> Iterator[int]:
    """A file with space for all the writes, which goes with the context."""
    with tempfile.TemporaryFile(dir=folder) as file:
        fd = file.fileno()
        os.posix_fallocate(fd, 0, max(ALLOCATE, SYNCS * size))
        os.fdatasync(fd)
        yield fd


def synced_answer_ms(folder: Path, size: int, cores: set[int]) -> float:
    """A round trip to a server on these cores that does nothing but `bare_sync_ms` before each answer: what one in
    flight costs at least here, since both sides have to be woken.
    """
    server = socket.create_server(("127.0.0.1", 0))
    child = os.fork()
    if child == 0:
        try:
            os.sched_setaffinity(0, cores)
            answer_when_synced(server.accept()[0], folder, size)
        finally:
            os._exit(0)
    try:
        with server, socket.create_connection(server.getsockname()) as ours:
            started = time.monotonic()
            for number in range(SYNCS + 1):
                ours.send(bytes(size))
                if not ours.recv(16):
                    raise LoadError("the server that only syncs has ended")
                if number == 0:  # the first one has waited for the file
                    started = time.monotonic()
            return (time.monotonic() - started) * 1000 / SYNCS
    finally:
        os.waitpid(child, 0)


def answer_when_synced(sock: socket.socket, folder: Path, size: int) -> None:
    with set_aside(folder, size) as fd:
        position = 0
        while data := sock.recv(65536):
            os.pwrite(fd, data, position)
            os.fdatasync(fd)
            position += size
            sock.send(bytes(4))


def start(_: Running) -> Figures:
    """A folder with a million retained messages and ten thousand sessions, taken up again."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        peer = Holdfast(("durability=none", "retainer.storage_type=disc", "history.enable=false"))
        with on_all_cores(), ended(peer.launch(folder, False)) as running:
            await_answer(running, peer.name)
            RetainedSet(Plan(port=running.port, topic=""), MILLION).fill()
            for number in range(SESSIONS):
                open_session(running.port, number)
        started = time.monotonic()
        with on_all_cores(), ended(peer.launch(folder, False)) as running:
            await_answer(running, peer.name)
            figures: Figures = {"start_s": time.monotonic() - started, "start_cpu_s": running.cpu_seconds()}
            figures["start_mib"] = running.memory() / (1 << 20)
            snapshot = RetainedSet(Plan(port=running.port, topic=""), MILLION).snapshot("#", MILLION)
            if snapshot.messages != MILLION:
                raise LoadError(f"{snapshot.messages} messages came back, expected {MILLION}")
    return figures


def open_session(port: int, number: int) -> None:
    """A session that stays, with a subscription."""
    connection = LoadConnection.dial("127.0.0.1", port, f"device-{number}")
    connection.socket.sendall(encode_connect(connection.client_id, 4, clean=False))
    connection.finish_connect()
    connection.subscribe([f"device/{number}/#"], 1)
    connection.close()


def history(_: Running) -> Figures:
    """Publishes at a steady rate, and how far the table is behind when they end."""
    from deltalake import DeltaTable

    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        peer = Holdfast(("history.record=all",))
        table = folder / "data" / "history"

        def rows() -> int:
            if not DeltaTable.is_deltatable(str(table)):
                return 0
            counts = DeltaTable(str(table)).get_add_actions(flatten=True)["num_records"]
            return sum(counts.to_pylist())

        with on_all_cores(), ended(peer.launch(folder, False)) as running:
            await_answer(running, peer.name)
            plan = Plan(
                port=running.port,
                topic="site/%i",
                publishers=4,
                subscribers=0,
                rate=HISTORY_RATE,
                duration_s=HISTORY_S,
                warmup_s=1.0,
            )
            result = Coordinator(plan, "compare").run()
            ended_at = time.monotonic()
            behind = result.sent - rows()
            while rows() < result.sent:
                if time.monotonic() > ended_at + CATCH_UP_S:
                    raise LoadError(f"{rows():,} of {result.sent:,} rows after {CATCH_UP_S:.0f} s")
                time.sleep(0.1)
            caught_up_s = time.monotonic() - ended_at
    return {"offered_per_s": result.sent_per_s, "behind_rows": max(0, behind), "caught_up_s": caught_up_s}


def on_all_cores() -> AbstractContextManager[None]:
    return on_cores(BROKER_CORES | GENERATOR_CORES)


@contextmanager
def on_cores(cores: set[int]) -> Iterator[None]:
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)


@contextmanager
def ended(running: Running) -> Iterator[Running]:
    try:
        yield running
    finally:
        running.process.terminate()
        running.process.wait(60)


SCENARIOS = (
    Scenario(
        "durable",
        "retained publishes at QoS 1: as shipped on disk before they are acknowledged, the others never",
        durable,
        (
            *rate("durable_1_per_s", "one publisher, 200 in flight", "durable_1_", times=3),
            *rate("durable_10_per_s", "ten publishers, 200 in flight each", "durable_10_", times=4),
            Figure("one_at_a_time_ms", "one in flight, each", "ms", more_is_better=False),
            Figure("sync_bytes", "written for each", "bytes", more_is_better=False),
            Figure("sync_ms", "a bare fdatasync of as much", "ms", more_is_better=False),
            Figure("synced_answer_ms", "a server that only syncs and answers", "ms", more_is_better=False),
            Figure("one_to_sync", "one in flight to a bare fdatasync", "times", more_is_better=False, at_most=1.8),
        ),
        peers=(*HOLDFASTS, "mosquitto", "FlashMQ"),
    ),
    Scenario(
        "start",
        f"start with {MILLION:,} retained messages and {SESSIONS:,} sessions on disk",
        start,
        (
            Figure("start_s", "until clients are served", "s", more_is_better=False, at_most=5),
            Figure("start_cpu_s", "broker time", "s", more_is_better=False),
            Figure("start_mib", "resident", "MiB", more_is_better=False),
        ),
        rounds=1,
        peers=(AS_SHIPPED,),
    ),
    Scenario(
        "history",
        f"{HISTORY_RATE:,} publishes a second for {HISTORY_S:.0f} s, and the history table behind them",
        history,
        (
            Figure("offered_per_s", "published", "msgs/s", at_least=0.95 * HISTORY_RATE),
            Figure("behind_rows", "rows behind when publishing ends", "rows", more_is_better=False),
            Figure("caught_up_s", "until the table has them all", "s", more_is_better=False, at_most=5),
        ),
        rounds=1,
        peers=(AS_SHIPPED,),
    ),
)
