"""A login service on loopback, as a broker with `callback.url` asks one."""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


class Service:
    """Answers with `status` and `body`, after `delay_s`; keeps what it was asked."""

    def __init__(self) -> None:
        self.status = 200
        self.body: bytes = b'{"result": "allow"}'
        self.headers: dict[str, str] = {}
        self.delay_s = 0.0
        self.stopping = threading.Event()
        self.asked: list[dict[str, Any]] = []
        self.authorization: list[str | None] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                service.asked.append(json.loads(self.rfile.read(length)))
                service.authorization.append(self.headers["Authorization"])
                service.stopping.wait(service.delay_s)
                self.send_response(service.status)
                for name, value in service.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(service.body)))
                self.end_headers()
                self.wfile.write(service.body)

            def log_message(self, format: str, *args: object) -> None:
                pass

            def handle(self) -> None:
                with contextlib.suppress(ConnectionError):  # the broker has lost patience
                    super().handle()

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/login"

    def stop(self) -> None:
        self.stopping.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def service() -> Iterator[Service]:
    running = Service()
    yield running
    running.stop()
