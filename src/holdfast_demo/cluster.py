"""`make cluster`: three log servers and three nodes on this machine, until Ctrl-C.

Everything is a process of its own, as it would be on six machines, and lies in one folder: kill one of them and look at
what `holdfast cluster status` says.
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import Final
from urllib.parse import urlsplit

from holdfast.errors import UsageError

NODES: Final = ("a", "b", "c")
SERVERS: Final = 3
PORTS: Final = (26_000, 32_000)
START_S: Final = 120.0
STOP_S: Final = 15.0
INTERRUPTED: Final = 130


def nats_server() -> str:
    """The program that keeps the log: the one beside this Python, else the one on the PATH."""
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise UsageError("nats-server was not found, expected it beside Python or on the PATH: make setup installs it")
    return found


def free_ports(count: int) -> list[int]:
    """Ports that nobody has, below those that the kernel gives to connections: they stay free until they are needed."""
    found: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(found) < count:
            port = random.SystemRandom().randrange(*PORTS)
            with contextlib.suppress(OSError):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
                found.append(port)
    return found


class Part:
    """A process of the cluster, in a session of its own: Ctrl-C is for this one, which then ends it in good order."""

    def __init__(self, name: str, command: list[str], log: Path, env: dict[str, str]) -> None:
        self.name, self.log = name, log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=env, start_new_session=True
            )

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + START_S
        while text not in self.output():
            self.need_alive()
            if time.monotonic() > deadline:
                raise UsageError(f"{self.name} did not say {text!r} within {START_S:g} s; see {self.log}")
            time.sleep(0.05)

    def need_alive(self) -> None:
        code = self.process.poll()
        if code is not None:
            said = self.output().splitlines()
            raise UsageError(f"{self.name} ended with {code}; the last it said was: {said[-1] if said else 'nothing'}")

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()

    def wait(self) -> None:
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class LocalCluster:
    """Log servers and nodes below one folder. Those that were started are stopped by `stop`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parts: list[Part] = []
        self.urls: dict[str, dict[str, str]] = {}  # of the nodes, by scheme
        ports = free_ports(3 * SERVERS)
        self.clients, self.routes, self.monitors = ports[:SERVERS], ports[SERVERS : 2 * SERVERS], ports[2 * SERVERS :]

    @property
    def log_urls(self) -> list[str]:
        return [f"nats://127.0.0.1:{port}" for port in self.clients]

    def start_servers(self) -> None:
        program = nats_server()
        for number in range(SERVERS):
            self.start_server(program, number)
        for part in self.parts:
            part.wait_for("Server is ready")

    def start(self) -> None:
        self.start_servers()
        nodes = [self.start_node(name) for name in NODES]
        for name, node in zip(NODES, nodes, strict=True):
            node.wait_for("listening tcp")
            self.urls[name] = listening(node.output())

    def start_server(self, program: str, number: int) -> None:
        folder = self.folder / f"log-{number + 1}"
        folder.mkdir(parents=True, exist_ok=True)
        config = folder / "server.conf"
        config.write_text(self.server_settings(folder, number))
        command = [program, "--config", str(config)]
        self.parts.append(Part(f"log server {number + 1}", command, folder / "log.txt", dict(os.environ)))

    def server_settings(self, folder: Path, number: int) -> str:
        others = ", ".join(f'"nats://127.0.0.1:{port}"' for port in self.routes if port != self.routes[number])
        return (
            f'server_name: "log-{number + 1}"\n'
            f"listen: 127.0.0.1:{self.clients[number]}\n"
            f"http: 127.0.0.1:{self.monitors[number]}\n"
            f'jetstream {{ store_dir: "{folder}", sync_interval: always }}\n'
            f'cluster {{ name: "log", listen: "127.0.0.1:{self.routes[number]}", routes: [{others}] }}\n'
        )

    def start_node(self, name: str) -> Part:
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        monitors = ",".join(f"http://127.0.0.1:{port}" for port in self.monitors)
        command = [sys.executable, "-m", "holdfast", "serve", "--data", str(folder), "--node", name]
        command += ["--cluster", ",".join(self.log_urls), "--set", f"cluster.monitor={monitors}"]
        (port,) = free_ports(1)
        command += ["--listen", f"tcp://127.0.0.1:{port}", "--listen", "http://127.0.0.1:0"]
        command += ["--set", f"cluster.advertise=127.0.0.1:{port}"]
        # settings in the environment of the user are not meant for these
        kept = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
        if "HOLDFAST_PURE" in os.environ:
            kept["HOLDFAST_PURE"] = os.environ["HOLDFAST_PURE"]
        part = Part(f"node {name}", command, self.folder / f"{name}.log", {**kept, "PYTHONUNBUFFERED": "1"})
        self.parts.append(part)
        return part

    def show(self) -> None:
        print(f"log servers  {' '.join(self.log_urls)}")
        for name, urls in self.urls.items():
            mqtt, http = urls["tcp"].replace("tcp://", "mqtt://"), urls["http"]
            print(f"node {name}       {mqtt}  dashboard {http}/#cluster  {self.folder / f'{name}.log'}")
        print(f"try          holdfast cluster status --url {self.urls[NODES[0]]['http']}")
        print(f"             kill {self.parts[-1].process.pid}  (node {NODES[-1]})")
        print("Ctrl-C stops all", flush=True)

    def watch(self) -> None:
        """Say which part has ended, whenever one has, until there is none."""
        left = list(self.parts)
        while left:
            for part in left:
                if part.process.poll() is not None:
                    print(f"{part.name} ended with {part.process.returncode}", flush=True)
            left = [part for part in left if part.process.poll() is None]
            time.sleep(0.2)

    def stop(self) -> None:
        """The nodes first, so that they can say goodbye in the log."""
        nodes, servers = self.parts[SERVERS:], self.parts[:SERVERS]
        for parts in (nodes, servers):
            for part in parts:
                part.stop()
            for part in parts:
                part.wait()


def listening(output: str) -> dict[str, str]:
    """The addresses that a node has named, by scheme."""
    found = [line.partition("listening ")[2].split()[0] for line in output.splitlines() if "listening " in line]
    return {urlsplit(url).scheme: url for url in found}


def interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(prog="make cluster ARGS=...", description=__doc__)
    parser.add_argument("--data", type=Path, help="folder to work in; without it a temporary one, removed at the end")
    given = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    folder = given.data or Path(tempfile.mkdtemp(prefix="holdfast-cluster-"))
    cluster = LocalCluster(folder.resolve())
    try:
        cluster.start()
        cluster.show()
        cluster.watch()
        return 1
    except KeyboardInterrupt:
        print("\nstopping", flush=True)
        return INTERRUPTED
    except UsageError as error:
        print(f"make cluster: {error}", file=sys.stderr)
        return 1
    finally:
        cluster.stop()
        if given.data is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
