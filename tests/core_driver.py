"""What stands around a broker core that runs in the test's own process: a log that is a list, and a small driver."""

from __future__ import annotations

from holdfast.broker.batch import Batch, split
from holdfast.broker.effects import Effects
from holdfast.broker.log import Flushed, Log


class ListLog(Log):
    """Keeps records in memory and says that they are durable at once; nothing has to wait."""

    def __init__(
        self, position: int = 0, history_filters: list[bytes] | None = None, records_live: bool = True
    ) -> None:
        super().__init__(
            waits=False,
            waits_to_deliver=False,
            keeps_state=True,
            history_filters=history_filters or [],
            records_live=records_live,
        )
        self.position = position
        self.records: list[bytes] = []

    def append(self, records: Batch, waited_for: bool) -> int:
        self.records += split(records.take())
        self.durable = self.position
        return 0

    def flush(self, done: Flushed) -> None:
        done(None)

    def drain(self) -> list[bytes]:
        """The records since the last time."""
        records, self.records = self.records, []
        return records


def carry_out(effects: Effects, log: Log | None = None) -> None:
    """Do what a call into the broker asks for: keep its records, write what may be written, close."""
    if log is not None and effects.records.count > 0:
        log.append(effects.records, False)
    effects.records.clear()
    for connection in effects.writes:
        outbox = connection.outbox
        outbox.listed = outbox.waits = False
        if not outbox.blocked and outbox.pieces:
            connection.peer.write(outbox.drain())
    effects.writes.clear()
    closes, effects.closes = effects.closes, []
    for connection in closes:
        if connection.outbox.pieces:
            connection.peer.write(connection.outbox.drain())
        connection.peer.close(connection.close_reason)
    effects.notes.clear()
