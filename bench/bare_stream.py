"""A bare JetStream publish: what a message costs that is on the disks of a quorum, with nothing built on it."""

import json
import socket
import time

from holdfast_bench.connection import LoadError

PATIENCE_S = 60.0
REPLY = b"bench.reply"


class BareStream:
    """A connection to one server, and a stream with three replicas in files."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.lines = self.socket.makefile("rb")
        self.lines.readline()  # INFO
        hello = {"verbose": False, "headers": True, "no_responders": True}
        self.socket.sendall(b"CONNECT %b\r\nSUB %b.%d 1\r\n" % (json.dumps(hello).encode(), REPLY, port))
        self.reply = b"%b.%d" % (REPLY, port)

    def make(self) -> None:
        wanted = {"name": "BENCH_BARE", "subjects": ["bench.bare"], "num_replicas": 3, "storage": "file"}
        deadline = time.monotonic() + PATIENCE_S
        while "error" in (answer := self.request(b"$JS.API.STREAM.CREATE.BENCH_BARE", json.dumps(wanted).encode())):
            if time.monotonic() > deadline:
                raise LoadError(f"the bare stream could not be made: {answer['error']}")
            time.sleep(0.2)

    def publish_s(self, payload: bytes) -> float:
        """Seconds until it is acknowledged."""
        began = time.perf_counter()
        answer = self.request(b"bench.bare", payload)
        took_s = time.perf_counter() - began
        if "seq" not in answer:
            raise LoadError(f"a bare publish was answered with {answer}")
        return took_s

    def request(self, subject: bytes, payload: bytes) -> dict[str, object]:
        self.socket.sendall(b"PUB %b %b %d\r\n%b\r\n" % (subject, self.reply, len(payload), payload))
        while line := self.lines.readline():
            if line.startswith(b"PING"):
                self.socket.sendall(b"PONG\r\n")
            elif line.startswith((b"MSG", b"HMSG")):
                body = self.lines.read(int(line.split()[-1]) + 2)
                if line.startswith(b"HMSG"):
                    raise LoadError(f"{subject.decode()} was answered with {body!r}")
                return dict(json.loads(body))
            elif line.startswith(b"-ERR"):
                raise LoadError(f"{subject.decode()} was answered with {line.decode().strip()}")
        raise LoadError(f"the server closed the connection before it answered {subject.decode()}")

    def close(self) -> None:
        self.lines.close()
        self.socket.close()
