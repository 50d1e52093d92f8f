"""A client that writes for as long as it is let, and knows when each of its writes was acknowledged."""

import itertools
import threading
import time
from types import TracebackType
from typing import Self

from holdfast_bench.codec import PublishFrame
from holdfast_bench.connection import LoadConnection, LoadError

PATIENCE_S = 60.0
PAUSE_S = 0.02  # between two tries to connect


class Writer(threading.Thread):
    """Sets one retained topic after another at QoS 1, `window` in flight, through the first of `ports` that takes it.

    A connection that is lost is made again, and what was not acknowledged is sent again.
    """

    def __init__(self, ports: tuple[int, ...], name: str, window: int = 1, topics: int = 0) -> None:
        """With `topics`, it begins again after that many."""
        super().__init__(name=name, daemon=True)
        self.ports = ports
        self.window = window
        self.topics = topics
        self.acknowledged_at: list[float] = []
        self.connects = 0
        self.problem = ""
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self.join()

    @property
    def acknowledged(self) -> int:
        return len(self.acknowledged_at)

    def topic(self, number: int) -> str:
        return f"write/{self.name}/{number % self.topics if self.topics else number}"

    def value(self, number: int) -> bytes:
        return b"%064d" % number

    def run(self) -> None:
        failing_since = time.monotonic()
        while not self._ended.is_set():
            port = self.ports[self.connects % len(self.ports)]
            before = self.acknowledged
            try:
                self.write(port)
            except LoadError as error:
                self.connects += 1
                if self.acknowledged > before:
                    failing_since = time.monotonic()
                elif time.monotonic() - failing_since > PATIENCE_S:
                    self.problem = str(error)
                    return
                time.sleep(PAUSE_S)

    def write(self, port: int) -> None:
        """Over one connection, until it is lost or all is done."""
        connection = LoadConnection.open("127.0.0.1", port, f"bench-{self.name}", timeout_s=PATIENCE_S)
        received = connection.received
        try:
            while not self._ended.is_set():
                first = self.acknowledged
                packets = [self.packet(first + n, n + 1) for n in range(self.window)]
                connection.socket.sendall(b"".join(packets))
                before = received.acknowledged
                while (done := received.acknowledged - before) < self.window:
                    connection.read("PUBACK")
                    now = time.monotonic()
                    self.acknowledged_at += [now] * (received.acknowledged - before - done)
        except OSError as error:
            raise LoadError(str(error)) from None
        finally:
            connection.close()

    def packet(self, number: int, packet_id: int) -> bytes:
        return PublishFrame(self.topic(number).encode(), self.value(number), 1, True, 4).block(1, packet_id)

    def demand(self, count: int) -> None:
        """Wait until it has `count` acknowledgements."""
        deadline = time.monotonic() + 2 * PATIENCE_S
        while self.acknowledged < count:
            if self.problem or time.monotonic() > deadline:
                raise LoadError(
                    f"{self.name} got {self.acknowledged} acknowledgements, expected {count}: {self.problem}"
                )
            time.sleep(0.005)

    def longest_gap_s(self, since: float, until: float) -> float:
        """The longest time between two acknowledgements, both ends of the span included."""
        times = [since, *(at for at in list(self.acknowledged_at) if since < at < until), until]
        return max(later - earlier for earlier, later in itertools.pairwise(times))

    def per_s(self, since: float, until: float) -> float:
        return sum(since <= at < until for at in list(self.acknowledged_at)) / (until - since)
