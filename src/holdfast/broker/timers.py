"""Things due at a time, earliest first.

A timer is never cancelled. One that has lost its reason is passed over when it comes up; and when about half of them
have, all of these are dropped at once. A keep alive may be 18 hours and a session's end years away: without that second
rule, clients that come and go would each leave a connection in memory for as long.
"""

from heapq import heapify, heappop, heappush
from typing import Final, final

from holdfast.broker.session import Connection, Session
from holdfast.protocol.mqtt.connection import AUTHENTICATING, CONNECTED, WAITING

CONNECT_TIMEOUT: Final = 0
KEEP_ALIVE: Final = 1
SESSION_EXPIRY: Final = 2
WILL: Final = 3
ADAPTER: Final = 4

# Fewer than this are not worth looking for.
DEAD_LEAST: Final = 256


@final
class Timer:
    def __init__(self, kind: int, connection: Connection | None, session: Session | None) -> None:
        self.kind: Final = kind
        self.connection: Final = connection
        self.session: Final = session

    def is_dead(self, due_ms: int) -> bool:
        """Return whether nothing will happen when this comes up."""
        connection = self.connection
        if connection is not None:
            if self.kind == CONNECT_TIMEOUT:
                return connection.state != WAITING and connection.state != AUTHENTICATING
            return connection.state != CONNECTED
        session = self.session
        if session is None or session.ended:
            return True
        if self.kind == SESSION_EXPIRY:
            return session.connection is not None or session.expires_at_ms != due_ms
        will = session.will
        return will is None or will.due_ms != due_ms


@final
class Timers:
    """`dead` estimates how many timers in the heap have lost their reason; what takes a reason away adds to it."""

    def __init__(self) -> None:
        self.heap: list[tuple[int, int, Timer]] = []
        self.sequence = 0
        self.dead = 0

    def sweep(self) -> None:
        """Forget what is dead once that may be half of all: the work is a constant share of having added it."""
        if self.dead > DEAD_LEAST and self.dead * 2 > len(self.heap):
            self.dead = 0
            self.heap = [entry for entry in self.heap if not entry[2].is_dead(entry[0])]
            heapify(self.heap)

    def add(self, due_ms: int, timer: Timer) -> None:
        self.sequence += 1
        heappush(self.heap, (due_ms, self.sequence, timer))

    def pop(self, now_ms: int) -> Timer | None:
        """Remove the first timer that is due and return it, or None when none is."""
        if self.heap and self.heap[0][0] <= now_ms:
            return heappop(self.heap)[2]
        return None
