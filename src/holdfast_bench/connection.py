"""One connection of the generator: blocking while it is set up and probed, then handed to a worker's loop."""

import contextlib
import socket
import time

from holdfast.errors import HoldfastError
from holdfast_bench.codec import (
    DISCONNECT,
    PINGREQ,
    ReceiveParser,
    encode_connect,
    encode_subscribe,
    encode_unsubscribe,
)

READ_BYTES = 1 << 18


class LoadError(HoldfastError):
    """The broker refused a connection or a subscription, or went away."""


class LoadConnection:
    def __init__(self, sock: socket.socket, client_id: str, received: ReceiveParser) -> None:
        self.socket = sock
        self.client_id = client_id
        self.received = received
        self._packet_id = 0

    @classmethod
    def open(
        cls,
        host: str,
        port: int,
        client_id: str,
        version: int = 4,
        *,
        stamped: bool = False,
        username: str | None = None,
        password: str | None = None,
        timeout_s: float = 10.0,
    ) -> "LoadConnection":
        connection = cls.dial(host, port, client_id, version, stamped=stamped, timeout_s=timeout_s)
        connection.socket.sendall(encode_connect(client_id, version, username=username, password=password))
        connection.finish_connect()
        return connection

    @classmethod
    def dial(
        cls, host: str, port: int, client_id: str, version: int = 4, *, stamped: bool = False, timeout_s: float = 10.0
    ) -> "LoadConnection":
        """Connects the socket and sends nothing yet."""
        try:
            sock = socket.create_connection((host, port), timeout=timeout_s)
        except OSError as error:
            raise LoadError(f"could not connect to {host}:{port}: {error.strerror or error}") from None
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(sock, client_id, ReceiveParser(version, stamped))

    def finish_connect(self) -> None:
        while self.received.connected < 0:
            self.read("CONNACK")
        if self.received.connected:
            raise LoadError(f"the broker refused {self.client_id}: CONNACK code {self.received.connected:#04x}")

    def read(self, expected: str) -> None:
        """One read, counted and acknowledged; `expected` is named when the broker stays silent or hangs up."""
        try:
            data = self.socket.recv(READ_BYTES)
        except TimeoutError:
            raise LoadError(f"no {expected} for {self.client_id} within {self.socket.gettimeout()} s") from None
        except OSError as error:
            raise LoadError(f"waiting for {expected}: {error.strerror or error}") from None
        if not data:
            raise LoadError(f"the broker closed {self.client_id} while it waited for {expected}")
        owed = self.received.feed(data, time.monotonic_ns())
        if owed:
            self.socket.sendall(owed)

    def subscribe(self, topic_filters: list[str], qos: int) -> None:
        refused = self.received.refused
        self.send_subscribe(topic_filters, qos)
        self.await_subscribed()
        if self.received.refused > refused:
            raise LoadError(f"the broker refused the subscription of {self.client_id} to {', '.join(topic_filters)}")

    def send_subscribe(self, topic_filters: list[str], qos: int) -> None:
        self._awaited = self.received.subscribed + 1
        self.socket.sendall(encode_subscribe(self._next_id(), topic_filters, qos, self.received.version))

    def await_subscribed(self) -> None:
        while self.received.subscribed < self._awaited:
            self.read("SUBACK")

    def unsubscribe(self, topic_filters: list[str]) -> None:
        self._awaited = self.received.subscribed + 1
        self.socket.sendall(encode_unsubscribe(self._next_id(), topic_filters, self.received.version))
        while self.received.subscribed < self._awaited:
            self.read("UNSUBACK")

    def ping(self) -> int:
        """Nanoseconds from PINGREQ to PINGRESP; everything sent before has been handled by then."""
        awaited = self.received.pongs + 1
        sent_ns = time.monotonic_ns()
        self.socket.sendall(PINGREQ)
        while self.received.pongs < awaited:
            self.read("PINGRESP")
        return time.monotonic_ns() - sent_ns

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.settimeout(1.0)
            self.socket.sendall(DISCONNECT)
        self.socket.close()

    def _next_id(self) -> int:
        self._packet_id = self._packet_id % 65535 + 1
        return self._packet_id
