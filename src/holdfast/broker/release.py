"""What may leave, and when: the records of a call go to the log, and the bytes that depend on them wait for it.

*Persist, then acknowledge* is this one function, `carry_out`. It reaches the world through the ports alone:
`Log.append`, `Peer.write`, `Peer.close`.
"""

from collections import deque
from typing import Final, final

from holdfast.broker.effects import Counters, Effects
from holdfast.broker.log import Log
from holdfast.broker.session import Connection
from holdfast.errors import StoreError


@final
class Held:
    """Bytes for a connection that may leave when the log has reached `after`."""

    def __init__(self, after: int, connection: Connection, data: bytes) -> None:
        self.after: Final = after
        self.connection: Final = connection
        self.data: Final = data


@final
class Release:
    """Invariants: `held` is in the order of the offsets that its bytes wait for; `Outbox.held` counts those of a
    connection, and while there are any, all that the connection is sent goes there too; `closing` are connections to be
    closed when theirs have left.
    """

    def __init__(self, log: Log, counters: Counters) -> None:
        self.log: Final = log
        self.counters: Final = counters
        self.held: deque[Held] = deque()
        self.closing: set[Connection] = set()

    def carry_out(self, effects: Effects) -> None:
        """Keep the records, let go what may leave at once, hold back the rest, and close what is to be closed."""
        after = 0
        if effects.records:
            records = effects.records
            effects.records = []
            after = self.log.append(records)
        if effects.writes:
            holds_all = after > 0 and self.log.waits_to_deliver
            for connection in effects.writes:
                outbox = connection.outbox
                outbox.listed = False
                if outbox.held > 0 or holds_all or (after > 0 and outbox.waits):
                    if outbox.pieces:
                        last = after if after > 0 else self.held[-1].after
                        self.held.append(Held(last, connection, outbox.drain()))
                        outbox.held += 1
                elif outbox.pieces and not outbox.blocked:
                    self.write(connection, outbox.drain())
                outbox.waits = False
            effects.writes.clear()
        if effects.closes:
            closes = effects.closes
            effects.closes = []
            for connection in closes:
                self.close(connection)

    def close(self, connection: Connection) -> None:
        if connection.outbox.held > 0:
            self.closing.add(connection)
            return
        if connection.outbox.pieces:
            self.write(connection, connection.outbox.drain())
        connection.peer.close(connection.close_reason)

    def write(self, connection: Connection, data: bytes) -> None:
        self.counters.bytes_sent += len(data)
        self.counters.bytes_sent_by_version[connection.agreed.version & 7] += len(data)
        connection.peer.write(data)

    def on_durable(self, offset: int, error: StoreError | None) -> list[Connection]:
        """Let go what waited for this offset. Returns those who were to be told what could not be made durable."""
        held = self.held
        refused: list[Connection] = []
        while held and held[0].after <= offset:
            one = held.popleft()
            connection = one.connection
            connection.outbox.held -= 1
            if error is None:
                self.write(connection, one.data)
            else:
                refused.append(connection)
            if connection.outbox.held == 0 and connection in self.closing:
                self.closing.remove(connection)
                connection.peer.close(connection.close_reason)
        return refused
