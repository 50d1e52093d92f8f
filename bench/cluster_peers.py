"""The clusters that are compared: Holdfast's nodes on their log servers, and nats-server's own MQTT on three servers.

Both have servers with the same settings, each with a folder of its own, and no other process has a part in them.
"""

import json
import time
import urllib.request
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError
from holdfast_bench.connection import LoadConnection, LoadError
from holdfast_bench.probe import cpu_seconds, resident_bytes
from holdfast_demo.cluster import NODES, SERVERS, LocalCluster, Part, free_ports, listening, nats_server
from peers import Holdfast, Nats, Peer, Running

PATIENCE_S = 300.0
JOIN_S = 1800.0  # the longest wait for a node that takes up a large state

NODES_NAME, SERVERS_NAME = "Holdfast, three nodes", "nats-server, three servers"


class RunningCluster(Running):
    """A cluster that answers on all of `ports`; `nodes` are the processes behind them, in the same order."""

    def __init__(self, local: LocalCluster, ports: list[int], nodes: list[Part], stream: str) -> None:
        super().__init__(nodes[0].process, ports[0], local.folder)
        self.local = local
        self.nodes = nodes
        self.stream = stream  # the one that a publish is acknowledged from
        self._ports = tuple(ports)

    @property
    def ports(self) -> tuple[int, ...]:
        return self._ports

    @property
    def server_ports(self) -> list[int]:
        """Where NATS itself is spoken."""
        return self.local.clients

    @property
    def pids(self) -> list[int]:
        return [part.process.pid for part in self.local.parts if part.process.poll() is None]

    def memory(self) -> int:
        return sum(map(resident_bytes, self.pids))

    def cpu_seconds(self) -> float:
        return sum(map(cpu_seconds, self.pids))

    def stop(self) -> None:
        self.local.stop()

    def leader(self) -> Part:
        """The server that leads the stream, as soon as one is said to."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for port in self.local.monitors:
                if name := leader_of(self.stream, port):
                    return self.local.parts[int(name.removeprefix("log-")) - 1]
            time.sleep(0.05)
        raise LoadError(f"stream {self.stream} has had no leader for {PATIENCE_S:g} s")

    def join(self, name: str) -> Part:
        """Start one more node; it is not waited for."""
        return self.local.start_node(name)

    def listening_port(self, node: Part) -> int:
        """Where a node that was started takes clients, as soon as it does."""
        deadline = time.monotonic() + JOIN_S
        while "tcp" not in (urls := listening(node.output())):
            node.need_alive()
            if time.monotonic() > deadline:
                raise LoadError(f"{node.name} was not ready within {JOIN_S:g} s")
            time.sleep(0.02)
        return port_of(urls["tcp"])


class HoldfastCluster(Peer):
    """Three nodes with all their defaults, on three log servers."""

    name = NODES_NAME
    on_all_cores = True

    def missing(self) -> str:
        return no_server()

    def version(self) -> str:
        return Holdfast().version()

    def described(self) -> str:
        return f"{Holdfast().described()} on each node; three log servers, sync_interval=always, three replicas"

    def launch(self, folder: Path, quick_answers: bool) -> Running:
        local = LocalCluster(folder)
        try:
            local.start()
            ports = [port_of(local.urls[name]["tcp"]) for name in NODES]
            await_all(ports, self.name)
        except BaseException:
            local.stop()
            raise
        return RunningCluster(local, ports, local.parts[SERVERS:], "HF_holdfast")


class MqttServers(LocalCluster):
    """The same servers, which speak MQTT themselves."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.mqtt = free_ports(SERVERS)

    def server_settings(self, folder: Path, number: int) -> str:
        mqtt = f'listen: "127.0.0.1:{self.mqtt[number]}", stream_replicas: {SERVERS}, max_ack_pending: 65535'
        return super().server_settings(folder, number) + f"mqtt {{ {mqtt} }}\n"

    def start(self) -> None:
        self.start_servers()


class NatsCluster(Peer):
    name = SERVERS_NAME
    only_311 = True
    on_all_cores = True

    def missing(self) -> str:
        return no_server()

    def version(self) -> str:
        return Nats.version_of(nats_server())

    def described(self) -> str:
        return "MQTT of its own, stream_replicas=3, sync_interval=always, max_ack_pending=65535"

    def launch(self, folder: Path, quick_answers: bool) -> Running:
        local = MqttServers(folder)
        try:
            local.start()
            await_all(local.mqtt, self.name)
        except BaseException:
            local.stop()
            raise
        return RunningCluster(local, local.mqtt, local.parts, "$MQTT_msgs")


def no_server() -> str:
    try:
        nats_server()
    except HoldfastError as error:
        return str(error)
    return ""


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def kill(part: Part) -> None:
    part.process.kill()
    part.process.wait()


def await_all(ports: list[int], name: str) -> None:
    """Until every node accepts a client."""
    deadline = time.monotonic() + PATIENCE_S
    for port in ports:
        while True:
            try:
                LoadConnection.open("127.0.0.1", port, f"bench-first-{port}", timeout_s=10.0).close()
                break
            except LoadError as error:
                if time.monotonic() > deadline:
                    raise LoadError(f"{name} did not start: {error}") from None
                time.sleep(0.1)


def leader_of(stream: str, monitor_port: int) -> str:
    """The leader of a stream by the word of one server; empty when it has none."""
    try:
        url = f"http://127.0.0.1:{monitor_port}/jsz?accounts=true&streams=true"
        with urllib.request.urlopen(url, timeout=5) as answer:
            page: dict[str, Any] = json.load(answer)
    except OSError:
        return ""
    for account in page.get("account_details", []):
        for detail in account.get("stream_detail", []):
            if detail["name"] == stream:
                return str(detail.get("cluster", {}).get("leader", ""))
    return ""


CLUSTERS: tuple[Peer, ...] = (HoldfastCluster(), NatsCluster())
