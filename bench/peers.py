"""The brokers that are compared: how each is started, on which core, with which settings, and how it is stopped."""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType

from holdfast_bench.connection import LoadConnection, LoadError
from holdfast_bench.probe import cpu_seconds, resident_bytes

START_S = 20.0

HOLDFAST_SETTINGS = ("durability=none", "retainer.storage_type=ram", "history.enable=false")
MOSQUITTO_SETTINGS = (
    "allow_anonymous true",
    "max_queued_messages 0",  # no limit: it must not drop what the others deliver
    "max_inflight_messages 0",  # no limit: the publisher's 200 set the window
    "log_type error",  # no line for each connection
)


class Running:
    """A broker that answers on `port`, and to MQTT-SN on `udp_port` if it speaks that."""

    def __init__(self, process: "subprocess.Popen[str]", port: int, udp_port: int = 0) -> None:
        self.process = process
        self.port = port
        self.udp_port = udp_port

    @property
    def pid(self) -> int:
        return self.process.pid

    def memory(self) -> int:
        return resident_bytes(self.pid)

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.pid)


class Peer(ABC):
    """One broker of the comparison. `with peer.started() as running:` gives a fresh one with an empty store."""

    name = ""
    only_311 = False

    @abstractmethod
    def missing(self) -> str:
        """Why it cannot take part; empty when it can."""

    @abstractmethod
    def version(self) -> str: ...

    @abstractmethod
    def launch(self, folder: Path, quick_answers: bool) -> Running: ...

    def configured(self, settings: tuple[str, ...]) -> "Peer":
        """The same broker with other settings, if they are meant for it."""
        return self

    def started(self, quick_answers: bool = False) -> "Session":
        """`quick_answers` asks for small packets to be sent at once, where that is not the default."""
        return Session(self, quick_answers)


class Session:
    def __init__(self, peer: Peer, quick_answers: bool) -> None:
        self.peer = peer
        self.quick_answers = quick_answers
        self.folder = tempfile.TemporaryDirectory(prefix="holdfast-bench-", ignore_cleanup_errors=True)
        self.running: Running | None = None

    def __enter__(self) -> Running:
        own = os.sched_getaffinity(0)
        os.sched_setaffinity(0, BROKER_CORES)  # inherited by the broker and its threads
        try:
            self.running = self.peer.launch(Path(self.folder.name), self.quick_answers)
        finally:
            os.sched_setaffinity(0, own)
        await_answer(self.running, self.peer.name)
        return self.running

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.running:
            process = self.running.process
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.folder.cleanup()


class Holdfast(Peer):
    name = "Holdfast"

    def __init__(self, settings: tuple[str, ...] = HOLDFAST_SETTINGS) -> None:
        self.settings = settings

    def configured(self, settings: tuple[str, ...]) -> Peer:
        return Holdfast(self.settings + settings)

    def missing(self) -> str:
        return ""

    def version(self) -> str:
        from holdfast import __version__, build

        return f"{__version__}, {build.name()}"

    def launch(self, folder: Path, quick_answers: bool) -> Running:
        command = [sys.executable, "-m", "holdfast.cli.main", "serve", "--listen", "tcp://127.0.0.1:0"]
        command += ["--listen", "udp://127.0.0.1:0"]
        command += ["--data", str(folder / "data")]
        named = dict(setting.split("=", 1) for setting in self.settings)  # the last one of a name counts
        for name, value in named.items():
            command += ["--set", f"{name}={value}"]
        log = (folder / "log").open("w+")
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, text=True)
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and process.poll() is None:
            text = (folder / "log").read_text()
            tcp, udp = (re.search(rf"listening {scheme}://\S+:(\d+)", text) for scheme in ("tcp", "udp"))
            if tcp and udp:
                return Running(process, int(tcp[1]), int(udp[1]))
            time.sleep(0.02)
        process.kill()
        raise LoadError(f"Holdfast did not start:\n{(folder / 'log').read_text()}")


class Program(Peer):
    """A broker that is a program of the system's, started with a file of settings."""

    program = ""

    @property
    def path(self) -> str | None:
        return shutil.which(self.program, path=os.environ.get("PATH", "") + os.pathsep + "/usr/sbin")

    def missing(self) -> str:
        return "" if self.path else f"{self.program} is not installed"

    @abstractmethod
    def settings(self, port: int, folder: Path, quick_answers: bool) -> str: ...

    def launch(self, folder: Path, quick_answers: bool) -> Running:
        port = free_port()
        config = folder / "settings.conf"
        config.write_text(self.settings(port, folder, quick_answers))
        log = (folder / "log").open("w")
        process = subprocess.Popen([str(self.path), "-c", str(config)], stdout=log, stderr=log, text=True)
        return Running(process, port)


class Mosquitto(Program):
    name = "mosquitto"
    program = "mosquitto"

    def version(self) -> str:
        shown = subprocess.run([str(self.path), "-h"], capture_output=True, text=True, check=False).stdout
        return shown.splitlines()[0].removeprefix("mosquitto version ")

    def settings(self, port: int, folder: Path, quick_answers: bool) -> str:
        lines = [f"listener {port} 127.0.0.1", *MOSQUITTO_SETTINGS]
        if os.getuid() == 0:
            lines.append("user root")  # it would else give up its rights, and with them its folder
        if quick_answers:
            lines.append("set_tcp_nodelay true")
        return "\n".join(lines) + "\n"


class Nats(Program):
    name = "nats-server"
    program = "nats-server"
    only_311 = True

    def version(self) -> str:
        shown = subprocess.run([str(self.path), "--version"], capture_output=True, text=True, check=False).stdout
        return shown.strip().removeprefix("nats-server: v")

    def settings(self, port: int, folder: Path, quick_answers: bool) -> str:
        return (
            f'server_name: bench\nlisten: "127.0.0.1:-1"\nmax_connections: 65536\n'
            f'jetstream {{ store_dir: "{folder}/jetstream" }}\n'
            f'mqtt {{ listen: "127.0.0.1:{port}", max_ack_pending: 65535 }}\n'
        )


def await_answer(running: Running, name: str) -> None:
    """Until a client is accepted: an open port is not yet a broker."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            LoadConnection.open("127.0.0.1", running.port, "bench-first", timeout_s=2.0).close()
            return
        except LoadError as error:
            if time.monotonic() > deadline or running.process.poll() is not None:
                raise LoadError(f"{name} did not start: {error}") from None
            time.sleep(0.05)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def cores() -> tuple[set[int], set[int]]:
    """The broker's cores and the generator's: one for the broker, the others for the generator."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2 or os.environ.get("PIN") == "0":
        return set(allowed), set(allowed)
    return {allowed[0]}, set(allowed[1:])


BROKER_CORES, GENERATOR_CORES = cores()

PEERS: tuple[Peer, ...] = (Holdfast(), Mosquitto(), Nats())
