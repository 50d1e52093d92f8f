"""What a round is played against: nodes that clients connect to, the processes behind them, and the wires between all.

`OneBroker` is a single durable broker that three nodes stand for; everything but what needs a second node shows there.
`Cluster` is three nodes on three log servers, with a link on each wire.
"""

from __future__ import annotations

import importlib
import json
import signal
import time
import urllib.request
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from broker_process import BrokerProcess, start_holdfast
from jepsen.history import Recorded
from jepsen.proxy import Link, Network
from jepsen.recorded import recorded

CLIENTS = "clients"
PATIENCE_S = 120.0
# Shorter than the longest faults, so that nodes are declared dead; longer than a busy machine makes them silent.
NODE_TIMEOUT_S = 4


class Process(Protocol):
    """Something that can be killed, paused and started again."""

    @property
    def is_running(self) -> bool: ...
    def start(self) -> None: ...
    def kill(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


class Node:
    """A broker with its data folder, through all its lives; each may listen on another port."""

    def __init__(
        self, folder: Path, settings: Mapping[str, Any], listen: Sequence[str], args: Sequence[str] = ()
    ) -> None:
        self.folder = folder
        self.settings = settings
        self.listen = listen
        self.args = args
        self.broker: BrokerProcess | None = None
        self.earlier_output: list[str] = []

    @property
    def is_running(self) -> bool:
        return self.broker is not None and self.broker.is_running()

    @property
    def now(self) -> BrokerProcess:
        assert self.broker is not None, f"the broker of {self.folder} was never started"
        return self.broker

    def start(self) -> None:
        if self.broker is not None:
            self.earlier_output.append(self.broker.output)
        self.broker = start_holdfast(self.folder, self.settings, listen=self.listen, args=self.args)

    def kill(self) -> None:
        if self.broker is not None:
            self.broker.signal(signal.SIGCONT)
            self.broker.kill(with_followers=False)

    def pause(self) -> None:
        self.now.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.now.signal(signal.SIGCONT)

    def output(self) -> str:
        now = self.broker.output if self.broker is not None else "never started"
        return "\n=== started again ===\n".join([*self.earlier_output, now])


class System(ABC):
    """`nodes` is what clients connect to; `node_processes` and `log_servers` what can be killed and paused."""

    name: str
    nodes: Sequence[str]
    # Whether the will of a session that ends with its connection is published when the node dies.
    keeps_every_will: bool

    def __init__(self) -> None:
        self.network = Network()
        self.node_processes: dict[str, Process] = {}
        self.log_servers: dict[str, Process] = {}
        self.wires: dict[tuple[str, str], Link] = {}  # by who connects and who listens
        self.disturbed: Counter[str] = Counter()

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def wait_healthy(self) -> None:
        """Return when everything runs and every node acknowledges again."""

    @abstractmethod
    def digests(self) -> dict[str, str]:
        """What each node says of its state, when all have seen the same."""

    def recorded(self, at: float) -> list[Recorded]:
        """What the nodes have written down, where they do."""
        return []

    @abstractmethod
    def outputs(self) -> dict[str, str]:
        """What the processes printed, by name."""

    @abstractmethod
    def store(self, log_server: str) -> Path:
        """The folder in which a log server keeps what it was given."""

    @abstractmethod
    def nodes_of(self, process: str) -> Sequence[str]:
        """The nodes that notice when something is done to this party."""

    @property
    def processes(self) -> dict[str, Process]:
        return {**self.node_processes, **self.log_servers}

    def port(self, node: str) -> int:
        return self.wires[CLIENTS, node].port

    def wire(self, who: str, to: str, target: Callable[[], int]) -> Link:
        self.wires[who, to] = self.network.link(f"{who} to {to}", target)
        return self.wires[who, to]

    def disturb(self, parties: Sequence[str]) -> None:
        """Count that something is about to change for these, so that a client knows what it cannot be sure of."""
        for party in parties:
            self.disturbed.update(self.nodes_of(party))

    def heal(self) -> None:
        """Undo everything that was done, whatever it was; one that cannot be started does not keep others from it."""
        self.network.heal()
        problems: list[Exception] = []
        for name, process in self.processes.items():
            self.disturb([name])
            try:
                process.resume() if process.is_running else process.start()
            except Exception as problem:
                problems.append(problem)
        if problems:
            raise problems[0]


class OneBroker(System):
    name = "one broker"
    nodes = ("a", "b", "c")
    keeps_every_will = False

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        super().__init__()
        chosen = {"durability": "deliver", "history.enable": False, **settings}
        self.broker = Node(folder / "data", chosen, ["tcp://127.0.0.1:0"])
        self.node_processes["broker"] = self.broker
        for node in self.nodes:
            self.wire(CLIENTS, node, lambda: self.broker.now.port)

    def start(self) -> None:
        self.broker.start()

    def close(self) -> None:
        self.network.close()
        self.broker.kill()

    def wait_healthy(self) -> None:
        assert self.broker.is_running, self.broker.output()

    def digests(self) -> dict[str, str]:
        return dict.fromkeys(self.nodes, "one and the same")

    def outputs(self) -> dict[str, str]:
        return {"broker": self.broker.output()}

    def store(self, log_server: str) -> Path:
        raise AssertionError("there is no log server")

    def nodes_of(self, process: str) -> Sequence[str]:
        return [process] if process in self.nodes else self.nodes


class LogServer(Process, Protocol):
    """One of `log_servers.py`."""

    number: int
    folder: Path
    client_port: int
    route_port: int

    def output(self) -> str: ...


class LogServers(Protocol):
    def __iter__(self) -> Iterator[LogServer]: ...
    def __getitem__(self, index: int) -> LogServer: ...
    def start(self) -> None: ...
    def wait_ready(self) -> None: ...
    def close(self) -> None: ...


class Cluster(System):
    name = "cluster"
    nodes = ("a", "b", "c")
    keeps_every_will = True

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        super().__init__()
        self.logs: LogServers = importlib.import_module("log_servers").LogServers(folder / "logs", route=self.route)
        self.log_servers = {self.log_name(server.number): server for server in self.logs}
        chosen = {"cluster.node_timeout": f"{NODE_TIMEOUT_S}s", **settings}
        self.running: dict[str, Node] = {}
        for name in self.nodes:
            urls = [f"nats://127.0.0.1:{self.wire_to_log(name, server).port}" for server in self.logs]
            args = ["--cluster", ",".join(urls), "--node", name]
            listen = ["tcp://127.0.0.1:0", "http://127.0.0.1:0"]
            self.running[name] = Node(folder / name, chosen, listen, args)
            self.wire(CLIENTS, name, lambda node=name: self.running[node].now.port)  # type: ignore[misc]
        self.node_processes.update(self.running)

    @staticmethod
    def log_name(number: int) -> str:
        return f"log-{number}"

    def route(self, one: int, other: int) -> int:
        return self.wire(self.log_name(one), self.log_name(other), lambda: self.logs[other - 1].route_port).port

    def wire_to_log(self, node: str, server: LogServer) -> Link:
        return self.wire(node, self.log_name(server.number), lambda: server.client_port)

    def start(self) -> None:
        self.logs.start()
        for node in self.running.values():
            node.start()

    def close(self) -> None:
        self.network.close()
        for node in self.running.values():
            node.kill()
        self.logs.close()

    def wait_healthy(self) -> None:
        self.logs.wait_ready()
        until(lambda: all(self.ready(node) for node in self.running.values()), "every node is ready")

    def ready(self, node: Node) -> bool:
        assert node.is_running, f"{node.folder.name} ended by itself:\n{node.output()}"
        return self.ask(node, "/readyz") is not None

    def digests(self) -> dict[str, str]:
        """Position and hash of each node; a node that is behind the others is waited for."""
        seen: dict[str, dict[str, Any]] = {}

        def level() -> bool:
            for name, node in self.running.items():
                seen[name] = json.loads(self.ask(node, "/api/v1/cluster") or "{}")
            return all(seen.values()) and len({said["position"] for said in seen.values()}) == 1

        try:
            until(level, "all nodes are at one position")
        except AssertionError as error:
            raise AssertionError(f"{error}, got {seen}") from None
        return {name: f"{said['position']} {said['hash']}" for name, said in seen.items()}

    def ask(self, node: Node, path: str) -> str | None:
        """What a node answers over HTTP, or None when it does not or refuses."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{node.now.ports['http']}{path}", timeout=5) as answer:
                return str(answer.read().decode())
        except OSError:
            return None

    def recorded(self, at: float) -> list[Recorded]:
        return recorded({name: (node.folder, node.now.port) for name, node in self.running.items()}, at)

    def outputs(self) -> dict[str, str]:
        nodes = {name: node.output() for name, node in self.running.items()}
        return {**nodes, **{self.log_name(server.number): server.output() for server in self.logs}}

    def store(self, log_server: str) -> Path:
        return next(server.folder for server in self.logs if self.log_name(server.number) == log_server)

    def nodes_of(self, process: str) -> Sequence[str]:
        return [process] if process in self.nodes else self.nodes


def until(condition: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, f"after {patience_s:.0f} s still not true: {what}"
        time.sleep(0.05)


SYSTEMS: dict[str, Callable[[Path, Mapping[str, Any]], System]] = {"one": OneBroker, "cluster": Cluster}
