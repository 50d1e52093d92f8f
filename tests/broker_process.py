"""The broker under test, run as a process of its own, and the fixtures that hand it to tests.

`broker` is one process with default settings, shared by all tests of a worker; tests keep apart by the topics and
client ids of `unique`. `start_broker(retainer__enable=False)` starts another one, with settings written as in the
environment (`__` for a dot).

Tests marked `told_clock` are about decisions that take time and about nothing else: they meet the core in this process
(`core_broker`), where nobody has to wait. `server` is the broker that a test talks to, whichever it is.

With TEST_BROKER=process those go through sockets and wait by the wall clock like all others. With TEST_BROKER=mosquitto
the shared broker is Debian's mosquitto: what is true of MQTT must pass there too, which shows that the tests check the
protocol and not this product. Tests that need settings of ours are skipped then.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from core_broker import CoreBroker
from ports import free_port
from wire import WireClient

MOSQUITTO = "mosquitto"
START_TIMEOUT = 120.0
STOP_TIMEOUT = 120.0


def under_test() -> str:
    return os.environ.get("TEST_BROKER", "holdfast")


def on_told_clock(request: pytest.FixtureRequest) -> bool:
    """Whether this test is to meet the core in this process."""
    return under_test() == "holdfast" and request.node.get_closest_marker("told_clock") is not None


class BrokerProcess:
    """A running broker: the ports by URL scheme, what it printed, and how to end it."""

    quiet_s = 0.05  # a snapshot goes on behind a PINGRESP: only silence says that nothing more comes

    def __init__(self, command: Sequence[str], env: Mapping[str, str], cwd: Path) -> None:
        self.command = list(command)
        self.ports: dict[str, int] = {}
        self.listening: list[str] = []
        self.process = subprocess.Popen(
            self.command,
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._lines: list[str] = []
        self._clients: list[WireClient] = []
        self._changed = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, name="broker-output", daemon=True)
        self._reader.start()

    @property
    def port(self) -> int:
        return self.ports["tcp"]

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def output(self) -> str:
        """All it has printed so far, both streams."""
        with self._changed:
            return "".join(self._lines)

    def memory(self) -> int:
        """Resident bytes."""
        return int(psutil.Process(self.pid).memory_info().rss)

    def client(self, version: int = 4, **options: Any) -> WireClient:
        """A connection on which nothing has been sent yet; it is closed when the broker ends."""
        self._clients.append(WireClient(self.port, version, **options))
        return self._clients[-1]

    def is_running(self) -> bool:
        return self.process.poll() is None

    def now(self) -> float:
        """Seconds since the epoch, by the clock that it lives by."""
        return time.time()

    def pass_time(self, seconds: float) -> None:
        time.sleep(seconds)

    def wait_listening(self, count: int) -> None:
        self._wait_until(lambda: len(self.listening) >= count or self._ended, START_TIMEOUT)
        if len(self.listening) < count:
            self.stop()
            raise AssertionError(
                f"expected {count} lines `listening URL` in {START_TIMEOUT} s, got {self.listening} from "
                f"{' '.join(self.command)}\n{self.output}"
            )

    def wait_output(self, text: str, timeout: float = 60.0) -> None:
        """Wait until the broker has printed this text."""
        if not self._wait_until(lambda: any(text in line for line in self._lines), timeout):
            raise AssertionError(f"expected {text!r} in the output within {timeout} s, got:\n{self.output}")

    def wait_exit(self, timeout: float = STOP_TIMEOUT) -> int:
        code = self.process.wait(timeout)
        self._reader.join(STOP_TIMEOUT)
        return code

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self, with_followers: bool = True) -> None:
        """Kill it, and wait until what it had started has ended too, unless told not to."""
        self.process.kill()
        if with_followers:
            self.wait_exit()
        else:
            self.process.wait(STOP_TIMEOUT)

    def stop(self) -> int:
        """End it as an operator would; a broker that does not go in time is killed and reported."""
        for client in self._clients:
            client.cut()
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.wait_exit()
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"broker did not stop within {STOP_TIMEOUT} s of SIGTERM:\n{self.output}") from None

    def _wait_until(self, condition: Callable[[], bool], timeout: float) -> bool:
        with self._changed:
            return self._changed.wait_for(condition, timeout)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for raw in self.process.stdout:
            line = raw.decode(errors="replace")
            with self._changed:
                self._lines.append(line)
                self._note_listening(line)
                self._changed.notify_all()
        self.process.stdout.close()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _note_listening(self, line: str) -> None:
        _, found, rest = line.partition("listening ")
        if found and "://" in rest:
            url = urlsplit(rest.split()[0])
            if url.port:
                self.listening.append(url.geturl())
                self.ports.setdefault(url.scheme, url.port)


# Whatever a test can open connections to and wait beside.
Server = BrokerProcess | CoreBroker


# With the addresses of log servers here, every broker with a disk is a cluster of one node: what holds for a broker
# alone must hold there too.
LOG_SERVERS = "TEST_LOG_SERVERS"


def serve_command(settings: Mapping[str, Any], listen: Sequence[str], data: Path, args: Sequence[str]) -> list[str]:
    command = [sys.executable, "-m", "holdfast.cli.main", "serve", "--data", str(data)]
    for url in listen:
        command += ["--listen", url]
    for key, value in settings.items():
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        command += ["--set", f"{key.replace('__', '.')}={shown}"]
    if (servers := os.environ.get(LOG_SERVERS)) and settings.get("retainer__storage_type") != "ram":
        name = hashlib.sha256(str(data).encode()).hexdigest()[:16]
        command += ["--cluster", servers, "--node", "a", "--set", f"cluster.name={name}", "--set", "cluster.replicas=1"]
    return [*command, *args]


def serve_environment(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a broker: this one, less any HOLDFAST_ setting that would change what is tested."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_") or name == "HOLDFAST_PURE"
    }
    source = Path(__file__).parent.parent / "src"
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), str(source)]))
    kept["PYTHONUNBUFFERED"] = "1"
    kept.update(env or {})
    return kept


def start_holdfast(
    data: Path,
    settings: Mapping[str, Any] | None = None,
    *,
    listen: Sequence[str] = ("tcp://127.0.0.1:0",),
    args: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> BrokerProcess:
    data.mkdir(parents=True, exist_ok=True)
    broker = BrokerProcess(serve_command(settings or {}, listen, data, args), serve_environment(env), data)
    broker.wait_listening(len(listen))
    return broker


def start_mosquitto(folder: Path) -> BrokerProcess:
    """Debian's mosquitto with TCP and WebSocket listeners; it cannot pick ports itself, so free ones are looked up."""
    program = shutil.which(MOSQUITTO) or "/usr/sbin/mosquitto"
    if not Path(program).exists():
        pytest.skip("mosquitto is not installed")
    tcp, websocket = free_port(), free_port()
    config = folder / "mosquitto.conf"
    config.write_text(
        f"listener {tcp} 127.0.0.1\n"
        f"listener {websocket} 127.0.0.1\nprotocol websockets\n"
        "allow_anonymous true\nmax_queued_messages 0\n"
    )
    broker = BrokerProcess([program, "-c", str(config)], os.environ, folder)
    broker.ports = {"tcp": tcp, "ws": websocket}
    deadline = time.monotonic() + START_TIMEOUT
    while True:
        try:
            socket.create_connection(("127.0.0.1", tcp), 1).close()
            return broker
        except OSError:
            if time.monotonic() > deadline or broker.process.poll() is not None:
                raise AssertionError(f"mosquitto did not start:\n{broker.output}") from None
            time.sleep(0.05)


class Unique:
    """Names that no other test on the same broker uses."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def __str__(self) -> str:
        return self.prefix

    def topic(self, rest: str = "t") -> str:
        return f"{self.prefix}/{rest}"

    def client(self, name: str = "c") -> str:
        """Short, and only of the characters that every server must accept."""
        return f"{self.prefix}{name}"


_counter = itertools.count(1)


@pytest.fixture
def unique() -> Unique:
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    return Unique(f"u{worker}x{next(_counter)}")


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The shared broker: default settings, TCP and WebSocket."""
    folder = tmp_path_factory.mktemp("broker")
    if under_test() == MOSQUITTO:
        running = start_mosquitto(folder)
    else:
        running = start_holdfast(folder, listen=("tcp://127.0.0.1:0", "ws://127.0.0.1:0"))
    yield running
    if running.process.poll() is not None:
        raise AssertionError(f"the shared broker ended by itself with {running.process.returncode}:\n{running.output}")
    running.stop()


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """The broker with default settings that this test talks to: the shared one, or on a told clock one of its own."""
    if not on_told_clock(request):
        yield request.getfixturevalue("broker")
        return
    core = CoreBroker()
    yield core
    core.close()


@pytest.fixture
def holdfast_only() -> None:
    """For what is Holdfast's choice and not the standard's."""
    if under_test() == MOSQUITTO:
        pytest.skip("about a choice of Holdfast")


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Start another Holdfast for this test, e.g. `start_broker(retainer__enable=False, listen=[...])`.

    Without history, unless the test names one of its settings or asks for the API.
    """
    started: list[BrokerProcess] = []

    def start(
        *,
        listen: Sequence[str] = ("tcp://127.0.0.1:0",),
        data: Path | None = None,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> BrokerProcess:
        if under_test() == MOSQUITTO:
            pytest.skip("needs a broker with Holdfast's settings")
        if not any(key.startswith("history") for key in settings) and not any(url.startswith("http") for url in listen):
            settings["history__enable"] = False  # its process takes longer to start than most tests to run
        folder = data if data is not None else tmp_path / f"data{len(started)}"
        started.append(start_holdfast(folder, settings, listen=listen, args=args, env=env))
        return started[-1]

    yield start
    for running in started:
        running.stop()


@pytest.fixture
def connect(server: Server, unique: Unique) -> Iterator[Callable[..., WireClient]]:
    """A connected client, closed after the test, e.g. `connect(version=5, clean=False)`.

    Without a client id it gets a fresh one. `port` connects to another broker.
    """
    opened: list[WireClient] = []

    def start(client_id: str | None = None, *, version: int = 4, port: int | None = None, **fields: Any) -> WireClient:
        client = server.client(version) if port is None else WireClient(port, version)
        opened.append(client)
        client.connect(unique.client(f"n{len(opened)}") if client_id is None else client_id, **fields)
        return client

    yield start
    for client in opened:
        client.cut()


@pytest.fixture
def open_client(server: Server) -> Iterator[Callable[..., WireClient]]:
    """A bare connection on which nothing has been sent yet, closed after the test."""
    opened: list[WireClient] = []

    def start(version: int = 4, *, port: int | None = None, **options: Any) -> WireClient:
        opened.append(server.client(version, **options) if port is None else WireClient(port, version, **options))
        return opened[-1]

    yield start
    for client in opened:
        client.cut()
