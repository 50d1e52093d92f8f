"""A link between two brokers that can be cut and mended: a proxy for TCP in threads of its own."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable


class CutLink:
    """Connections to `port` go on to the server's. While it is cut they end, and no new ones are made.

    `on_bytes`, if given, sees what the server's client sends, and cuts the link with True before it is passed on. No
    more connections than `most`, if given, are there at once.
    """

    def __init__(self, server_port: int, on_bytes: Callable[[bytes], bool] | None = None) -> None:
        self.server_port = server_port
        self.on_bytes = on_bytes
        self.is_cut = False
        self.most: int | None = None
        self.ended = False
        self.passed = 0  # connections that were let through
        self.ends: set[socket.socket] = set()
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])
        self.accepting = threading.Thread(target=self._accept, name="cut-link", daemon=True)
        self.accepting.start()

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    def cut(self) -> None:
        with self.lock:
            self.is_cut = True
        self._end_all()

    def mend(self) -> None:
        self.is_cut = False

    def stop(self) -> None:
        with self.lock:
            self.ended = True
        self.listener.shutdown(socket.SHUT_RDWR)  # which wakes the thread that waits there; closing would not
        self.accepting.join()
        self.listener.close()
        self._end_all()

    def is_over(self) -> bool:
        return self.is_cut or self.ended

    def _end_all(self) -> None:
        with self.lock:
            ends, self.ends = self.ends, set()
        for one in ends:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        while not self.ended:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            if self.is_over() or (self.most is not None and len(self.ends) // 2 >= self.most):
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self.server_port), 30)
            except OSError:
                client.close()
                continue
            with self.lock:
                is_late = self.is_over()
                if not is_late:
                    self.ends |= {client, server}
                    self.passed += 1
            if is_late:  # it was cut while this connection was being made
                client.close()
                server.close()
                continue
            for one, other, watch in ((client, server, self.on_bytes), (server, client, None)):
                threading.Thread(target=self._pass_on, args=(one, other, watch), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket, watch: Callable[[bytes], bool] | None) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                if watch is not None and watch(data):
                    self.cut()
                    return
                other.sendall(data)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
            with self.lock:
                self.ends.discard(end)
