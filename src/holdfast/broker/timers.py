"""Things due at a time, earliest first. What was cancelled or moved is noticed when it comes up, not before."""

from heapq import heappop, heappush
from typing import Final, final

from holdfast.broker.connection import Connection
from holdfast.broker.session import Session

CONNECT_TIMEOUT: Final = 0
KEEP_ALIVE: Final = 1
SESSION_EXPIRY: Final = 2
WILL: Final = 3
CARRIER: Final = 4


@final
class Timer:
    def __init__(self, kind: int, connection: Connection | None, session: Session | None) -> None:
        self.kind: Final = kind
        self.connection: Final = connection
        self.session: Final = session


@final
class Timers:
    def __init__(self) -> None:
        self.heap: list[tuple[int, int, Timer]] = []
        self.sequence = 0

    def add(self, due_ms: int, timer: Timer) -> None:
        self.sequence += 1
        heappush(self.heap, (due_ms, self.sequence, timer))

    def take(self, now_ms: int) -> Timer | None:
        if self.heap and self.heap[0][0] <= now_ms:
            return heappop(self.heap)[2]
        return None

    def next_due_ms(self) -> int:
        """0 when nothing waits."""
        return self.heap[0][0] if self.heap else 0
