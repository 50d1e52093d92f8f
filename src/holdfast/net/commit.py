"""Durable before acknowledged: hands each batch of records to the journal and holds back the bytes that depend on it.

What a guarded connection was to be sent becomes a segment of the batch and leaves when the batch is durable, in order.
Everyone else's bytes leave at once, or wait too when `deliver_after` asks that no subscriber sees a message first.
"""

from collections import deque
from collections.abc import Callable

from holdfast.broker.connection import Connection
from holdfast.broker.core import Broker
from holdfast.broker.lifecycle import disconnect
from holdfast.broker.log import CROWDED_BYTES, Log
from holdfast.errors import StoreError
from holdfast.journal.writer import Journal
from holdfast.protocol.mqtt.connection import CLOSED
from holdfast.protocol.mqtt.reasons import QUOTA_EXCEEDED


class Batch:
    def __init__(self) -> None:
        self.segments: list[tuple[Connection, bytes]] = []
        self.closing: list[Connection] = []


class Commits:
    """The batches on their way to the disk, oldest first."""

    def __init__(self, broker: Broker, log: Log, journal: Journal, deliver_after: bool) -> None:
        self.broker = broker
        self.log = log
        self.journal = journal
        self.deliver_after = deliver_after
        self.under_way: deque[Batch] = deque()
        self.after: Callable[[], None] = lambda: None
        self.count = 0

    def is_crowded(self) -> bool:
        """Whether the disk is so far behind that it is better to read more slowly."""
        return self.journal.backlog > CROWDED_BYTES

    def hand_over(self, touched: list[Connection]) -> None:
        """Take the records of this batch to the journal, and the bytes that must wait for them out of the outboxes."""
        log = self.log
        if not log.has_records:
            if self.under_way:
                self.withhold(touched, self.under_way[-1], False)
            return
        records = log.take(self.broker)
        self.count += 1
        if not log.waits:
            self.journal.append(records)
            return
        batch = Batch()
        self.withhold(touched, batch, True)
        self.under_way.append(batch)
        self.journal.append(records, self.on_durable)

    def withhold(self, touched: list[Connection], batch: Batch, guards: bool) -> None:
        for connection in touched:
            if connection.withheld > 0 or (guards and (connection.guarded or self.deliver_after)):
                if connection.outbox:
                    batch.segments.append((connection, connection.take()))
                    connection.withheld += 1
            connection.guarded = False

    def close_later(self, connection: Connection) -> bool:
        """Whether a connection that is to be closed has to wait for bytes held back."""
        if connection.withheld == 0 or not self.under_way:
            return False
        self.under_way[-1].closing.append(connection)
        return True

    def on_durable(self, error: StoreError | None) -> None:
        batch = self.under_way.popleft()
        self.log.healthy = self.journal.healthy
        for connection, data in batch.segments:
            connection.withheld -= 1
            if error is None:
                self.broker.counters.bytes_sent += len(data)
                self.broker.counters.bytes_sent_by_version[connection.version & 7] += len(data)
                connection.peer.write(data)
            elif connection.state != CLOSED:
                disconnect(self.broker, connection, QUOTA_EXCEEDED, "the message cannot be stored now")
        for connection in batch.closing:
            if connection.withheld == 0:
                connection.peer.close(connection.close_reason)
            else:
                self.under_way[-1].closing.append(connection)
        self.after()
