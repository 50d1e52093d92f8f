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
SETTLE_S = 15.0  # the longest wait for a broker to come to rest
QUIET_S = 0.4

AS_SHIPPED, MEMORY_ONLY = "Holdfast", "Holdfast, memory only"
HOLDFASTS = (AS_SHIPPED, MEMORY_ONLY)

LISTENERS = ("tcp", "ws", "udp", "http")  # those of the defaults, on ports that are free
MEMORY_ONLY_SETTINGS = ("durability=none", "retainer.storage_type=ram", "history.enable=false")
MOSQUITTO_SETTINGS = (
    "allow_anonymous true",
    "max_queued_messages 0",  # no limit: it must not drop what the others deliver
    "max_inflight_messages 0",  # no limit: the publisher's 200 set the window
    "log_type error",  # no line for each connection
)
FLASHMQ_SETTINGS = (
    "allow_anonymous true",
    "thread_count 1",
    "max_qos_msg_pending_per_client 65535",  # no limits, as for mosquitto
    "max_qos_bytes_pending_per_client 1073741824",
    "max_packet_size 65536",  # its default lets it read 256 MiB of a flood before it handles the first message
    "log_level warning",
)


class Running:
    """A broker that answers on `port`, and to MQTT-SN on `udp_port` if it speaks that."""

    def __init__(
        self, process: "subprocess.Popen[str] | subprocess.Popen[bytes]", port: int, folder: Path, udp_port: int = 0
    ) -> None:
        self.process = process
        self.port = port
        self.folder = folder  # all that it writes is in there
        self.udp_port = udp_port

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def ports(self) -> tuple[int, ...]:
        """All that clients can connect to: one of each node of a cluster."""
        return (self.port,)

    def memory(self) -> int:
        return resident_bytes(self.pid)

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.pid)

    def settle(self) -> None:
        """Waits until it does nothing by itself: a follower that is still starting would slow what is measured."""
        deadline = time.monotonic() + SETTLE_S
        quiet = 0
        while quiet < 2 and time.monotonic() < deadline:
            before_s = self.cpu_seconds()
            time.sleep(QUIET_S)
            quiet = quiet + 1 if self.cpu_seconds() - before_s < 0.05 * QUIET_S else 0

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Peer(ABC):
    """One broker of the comparison. `with peer.started() as running:` gives a fresh one with an empty store."""

    name = ""
    only_311 = False
    on_all_cores = False  # several processes, which one core would hold back

    @abstractmethod
    def missing(self) -> str:
        """Why it cannot take part; empty when it can."""

    @abstractmethod
    def version(self) -> str: ...

    @abstractmethod
    def described(self) -> str:
        """The settings that matter in a comparison."""

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
        # inherited by the broker and its threads
        os.sched_setaffinity(0, BROKER_CORES | GENERATOR_CORES if self.peer.on_all_cores else BROKER_CORES)
        try:
            self.running = self.peer.launch(Path(self.folder.name), self.quick_answers)
        finally:
            os.sched_setaffinity(0, own)
        await_answer(self.running, self.peer.name)
        self.running.settle()
        return self.running

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.running:
            self.running.stop()
        self.folder.cleanup()


class Holdfast(Peer):
    """With all its defaults, and `settings` over them."""

    def __init__(self, settings: tuple[str, ...] = (), name: str = AS_SHIPPED) -> None:
        self.settings = settings
        self.name = name

    def configured(self, settings: tuple[str, ...]) -> Peer:
        return Holdfast(self.settings + settings, self.name)

    def missing(self) -> str:
        return ""

    def version(self) -> str:
        from holdfast import __version__, build

        return f"{__version__}, {build.name()}"

    def described(self) -> str:
        told = {setting: default_of(setting) for setting in ("durability", "retainer.storage_type", "history.enable")}
        told |= dict(setting.split("=", 1) for setting in self.settings)
        return ", ".join(f"{name}={value}" for name, value in told.items()) + ", HTTP API listening"

    def launch(self, folder: Path, quick_answers: bool) -> Running:
        command = [sys.executable, "-m", "holdfast.cli.main", "serve"]
        for scheme in LISTENERS:
            command += ["--listen", f"{scheme}://127.0.0.1:0"]
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
                return Running(process, int(tcp[1]), folder, int(udp[1]))
            time.sleep(0.02)
        process.kill()
        raise LoadError(f"Holdfast did not start:\n{(folder / 'log').read_text()}")


def default_of(setting: str) -> str:
    from holdfast.config.settings import Settings

    value: object = Settings()
    for part in setting.split("."):
        value = getattr(value, part)
    return str(value).lower()


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
        process = subprocess.Popen(
            [str(self.path), "-c", str(config)],
            stdout=log,
            stderr=log,
            text=True,
            env=os.environ | {"HOME": str(folder)},  # FlashMQ keeps a lock there, against a second one
        )
        return Running(process, port, folder)


class Mosquitto(Program):
    name = "mosquitto"
    program = "mosquitto"

    def version(self) -> str:
        shown = subprocess.run([str(self.path), "-h"], capture_output=True, text=True, check=False).stdout
        return shown.splitlines()[0].removeprefix("mosquitto version ")

    def described(self) -> str:
        return f"persistence off (its default), {', '.join(MOSQUITTO_SETTINGS)}"

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
        return self.version_of(str(self.path))

    @staticmethod
    def version_of(program: str) -> str:
        shown = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
        return shown.strip().removeprefix("nats-server: v")

    def described(self) -> str:
        return "JetStream in a folder of its own, max_ack_pending 65535"

    def settings(self, port: int, folder: Path, quick_answers: bool) -> str:
        return (
            f'server_name: bench\nlisten: "127.0.0.1:-1"\nmax_connections: 65536\n'
            f'jetstream {{ store_dir: "{folder}/jetstream" }}\n'
            f'mqtt {{ listen: "127.0.0.1:{port}", max_ack_pending: 65535 }}\n'
        )


class FlashMQ(Program):
    """Only where its binary is named: few systems have a package of it."""

    name = "FlashMQ"
    program = "FlashMQ"

    def __init__(self, path: str) -> None:
        self._path = path

    @property
    def path(self) -> str | None:
        return self._path or None

    def missing(self) -> str:
        return "" if self._path else "FLASHMQ=path names no binary of it"

    def version(self) -> str:
        shown = subprocess.run([self._path, "--version"], capture_output=True, text=True, check=False).stdout
        return shown.splitlines()[0].removeprefix("FlashMQ Version ").partition(" ")[0]

    def described(self) -> str:
        return f"no storage_dir, {', '.join(FLASHMQ_SETTINGS)}"

    def settings(self, port: int, folder: Path, quick_answers: bool) -> str:
        listener = ["protocol mqtt", "inet_protocol ip4", "inet4_bind_address 127.0.0.1", f"port {port}"]
        if quick_answers:
            listener.append("tcp_nodelay true")
        return "\n".join((*FLASHMQ_SETTINGS, "listen {", *(f"    {line}" for line in listener), "}")) + "\n"


def flashmq_problem(path: str) -> str:
    """Why `path` is not a binary that can be started; empty when it is, or when none is named."""
    if not path or (os.access(path, os.X_OK) and Path(path).is_file()):
        return ""
    reason = "is not an executable file" if Path(path).exists() else "does not exist"
    return f"FLASHMQ is {path!r}, which {reason}; expected the path of FlashMQ's binary"


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

PEERS: tuple[Peer, ...] = (
    Holdfast(),
    Holdfast(MEMORY_ONLY_SETTINGS, MEMORY_ONLY),
    Mosquitto(),
    Nats(),
    FlashMQ(os.environ.get("FLASHMQ", "")),
)
