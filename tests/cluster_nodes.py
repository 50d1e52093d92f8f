"""Real clusters for tests: log servers and nodes, as processes that can be killed, paused and started again.

    with ClusterNodes(folder) as cluster:
        cluster.client("a").connect("me")
        cluster["a"].kill()
        cluster["a"].start()
        cluster.wait_ready()

Each node has its own data folder and keeps its port over restarts. `ClusterNodes(folder, http=True)` gives each an HTTP
listener too; `settings` are those of all nodes, written as in the environment (`cluster__node_timeout=3`). A test that
fails inside of `with` ends with what all nodes have printed.
"""

from __future__ import annotations

import contextlib
import re
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

from broker_process import BrokerProcess, serve_command, serve_environment
from log_servers import LogServers, Variant, until
from ports import free_port
from wire import WireClient

NAMES = ("a", "b", "c")
SHOWN_LINES = 60  # of each node, when a test fails


class Node:
    """One node: its port, its folder, and its process while it runs."""

    def __init__(self, name: str, folder: Path, servers: LogServers, settings: Mapping[str, Any], http: bool) -> None:
        self.name = name
        self.folder = folder
        self.servers = servers
        self.settings = dict(settings)
        self.port = free_port()
        self.http_port = free_port() if http else 0
        self.earlier = ""  # what earlier processes have printed
        self.process: BrokerProcess | None = None
        self.clients: list[WireClient] = []

    @property
    def listen(self) -> list[str]:
        http = [f"http://127.0.0.1:{self.http_port}"] if self.http_port else []
        return [f"tcp://127.0.0.1:{self.port}", *http]

    @property
    def running(self) -> BrokerProcess:
        assert self.process is not None, f"node {self.name} was not started"
        return self.process

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.is_running()

    @property
    def output(self) -> str:
        """What its process has printed, of the newest one only."""
        return self.running.output

    def start(self, *args: str, wait: bool = True, env: Mapping[str, str] | None = None, **settings: Any) -> None:
        """Start its process, with settings that are only for this time; it listens once it is a member."""
        assert not self.is_running, f"node {self.name} is running already"
        if self.process is not None:
            self.earlier += self.process.output
        self.folder.mkdir(parents=True, exist_ok=True)
        given = {
            "cluster__url": ",".join(self.servers.urls),
            "cluster__node": self.name,
            "cluster__monitor": ",".join(self.servers.monitor_urls),
            "cluster__replicas": len(self.servers.all),
            "cluster__advertise": f"127.0.0.1:{self.port}",
            "history__enable": False,
            **self.settings,
            **settings,
        }
        command = serve_command(given, self.listen, self.folder, args)
        self.process = BrokerProcess(command, serve_environment(env), self.folder)
        if wait:
            self.wait_listening()

    def wait_listening(self) -> None:
        self.running.wait_listening(len(self.listen))

    def wait_output(self, text: str) -> None:
        self.running.wait_output(text, 120.0)

    def wait_exit(self) -> int:
        """The code it ends with by itself."""
        return self.running.wait_exit()

    def kill(self) -> None:
        self.running.kill()

    def stop(self) -> int:
        return self.running.stop()

    def pause(self) -> None:
        self.running.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.running.signal(signal.SIGCONT)

    def restart(self) -> None:
        """As after a crash."""
        self.kill()
        self.start()

    def client(self, version: int = 5, **options: Any) -> WireClient:
        """A connection on which nothing has been sent yet; it is closed with the cluster."""
        self.clients.append(WireClient(self.port, version, **options))
        return self.clients[-1]

    def heard(self) -> set[str]:
        """The nodes that this one hears, by what it has printed."""
        now: dict[str, bool] = {}
        for event, node in re.findall(r"node (heard|silent) node=(\S+)", self.output):
            now[node] = event == "heard"
        return {node for node, is_heard in now.items() if is_heard}

    def hears(self, others: set[str]) -> bool:
        assert self.is_running, f"node {self.name} ended by itself:\n{self.output}"
        return others <= self.heard()

    def look(self, path: str) -> tuple[int, str]:
        """Status and body of a page of its HTTP listener."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}{path}", timeout=60) as answer:
                return int(answer.status), answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def close(self) -> None:
        for client in self.clients:
            client.cut()
        if self.process is not None and self.is_running:
            self.process.process.kill()  # one that is paused ends too
            self.process.wait_exit()


class ClusterNodes:
    """Log servers and nodes; `settings` are those of all nodes."""

    def __init__(
        self,
        folder: Path,
        *,
        names: Sequence[str] = NAMES,
        log_count: int = 3,
        variant: Variant | None = None,
        servers: LogServers | None = None,
        http: bool = False,
        **settings: Any,
    ) -> None:
        self.folder = folder
        self.servers = servers or LogServers(folder / "log", log_count, variant)
        self.owns_servers = servers is None
        self.nodes = {name: Node(name, folder / name, self.servers, settings, http) for name in names}

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes.values())

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.show()
            self.close()
            raise
        return self

    def __exit__(self, problem: object, *_: object) -> None:
        if problem is not None:
            self.show()
        self.close()

    def start(self) -> None:
        """Start all that do not run, and wait until clients can come to any of them."""
        self.servers.start()
        for node in self:
            if not node.is_running:
                node.start(wait=False)
        self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until all nodes that run listen, and hear each other."""
        running = [node for node in self if node.is_running]
        for node in running:
            node.wait_listening()
        for node in running:
            others = {other.name for other in running if other is not node}
            until(partial(node.hears, others), f"node {node.name} hears {sorted(others)}")

    def client(self, name: str, version: int = 5, **options: Any) -> WireClient:
        return self.nodes[name].client(version, **options)

    def show(self) -> None:
        """Print the last lines of all nodes; pytest shows them with the failure."""
        for node in self:
            if node.process is not None:
                lines = (node.earlier + node.output).splitlines()
                print(f"\n--- node {node.name}, the last of {len(lines)} lines")
                print("\n".join(lines[-SHOWN_LINES:]))

    @contextlib.contextmanager
    def shown(self) -> Iterator[Self]:
        """Show what the nodes have printed when what happens inside fails."""
        try:
            yield self
        except BaseException:
            self.show()
            raise

    def close(self) -> None:
        """End all, whatever state they are in."""
        for node in self:
            node.close()
        if self.owns_servers:
            self.servers.close()
