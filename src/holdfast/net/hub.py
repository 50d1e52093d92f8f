"""Where the event loop and the broker meet: calls the core, then carries out the effects it asks for."""

import asyncio
import logging
import time

from holdfast.broker.connection import Connection
from holdfast.broker.core import Broker
from holdfast.broker.message import Publisher
from holdfast.broker.publishing import Accepted, publish_as
from holdfast.errors import StoreError
from holdfast.net.commit import Commits

log = logging.getLogger("holdfast.net")

TICK_S = 0.1
# At most this many lines of diagnostics per tick come from bad clients; the rest are counted.
NOTES_PER_TICK = 20


class Hub:
    """Owns the broker's time. Everything here runs on the one event loop."""

    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop) -> None:
        self.broker = broker
        self.loop = loop
        self.last_ms = 0
        self.working = False
        self.ticker: asyncio.TimerHandle | None = None
        self.notes_left = NOTES_PER_TICK
        self.notes_left_out = 0
        self.commits: Commits | None = None

    def keep(self, commits: Commits) -> None:
        """From now on acknowledgements wait for the disk."""
        self.commits = commits
        commits.after = self.carry_out

    def is_crowded(self) -> bool:
        return self.commits is not None and self.commits.is_crowded()

    def now_ms(self) -> int:
        """Milliseconds since the epoch, never going backwards."""
        now = int(time.time() * 1000)
        if now > self.last_ms:
            self.last_ms = now
        return self.last_ms

    def publish(
        self,
        publisher: Publisher,
        topic: bytes,
        payload: bytes,
        qos: int,
        retain: bool,
        properties: bytes = b"",
        expiry_s: int = -1,
    ) -> Accepted:
        """Publish for someone who is not a client, and carry out what follows. It is durable after `durable`."""
        self.broker.now_ms = self.now_ms()
        accepted = publish_as(self.broker, publisher, topic, payload, qos, retain, properties, expiry_s)
        self.carry_out()
        return accepted

    async def durable(self) -> None:
        """Return when everything published so far is durable. Raises StoreError when it cannot be stored."""
        if self.commits is None:
            return
        done: asyncio.Future[StoreError | None] = self.loop.create_future()
        self.commits.journal.append([], lambda error: None if done.cancelled() else done.set_result(error))
        error = await done
        if error is not None:
            raise error

    def kick(self, client_id: str, reason: int, text: str) -> bool:
        """Disconnect a client; returns False when no client of that id is connected."""
        kicked = self.broker.kick(client_id, reason, text, self.now_ms())
        self.carry_out()
        return kicked

    def end_session(self, client_id: str) -> bool:
        """Forget an absent client's session; returns False when there is none."""
        ended = self.broker.end_session(client_id, self.now_ms())
        self.carry_out()
        return ended

    def set_retainer(
        self,
        *,
        enable: bool | None = None,
        expiry_ms: int | None = None,
        max_payload: int | None = None,
        max_messages: int | None = None,
    ) -> None:
        """Change settings of the retainer for what is published from now on; None leaves one as it is."""
        settings = self.broker.settings
        if enable is not None:
            settings.retain_available = enable
        if expiry_ms is not None:
            settings.retained_expiry_ms = expiry_ms
        if max_payload is not None:
            settings.max_retained_payload = max_payload
        if max_messages is not None:
            settings.max_retained_messages = max_messages
            self.broker.retained.settle()

    def start(self) -> None:
        self.on_tick()

    def stop(self) -> None:
        if self.ticker is not None:
            self.ticker.cancel()
            self.ticker = None

    def on_tick(self) -> None:
        self.ticker = self.loop.call_later(TICK_S, self.on_tick)
        if self.notes_left_out:
            log.warning("more diagnostics left out", extra={"count": self.notes_left_out})
        self.notes_left = NOTES_PER_TICK
        self.notes_left_out = 0
        self.broker.tick(self.now_ms())
        self.carry_out()

    def carry_out(self) -> None:
        """Write, close, and keep long work going. Call after every call into the broker."""
        effects = self.broker.effects
        touched = effects.touched
        if self.commits is not None:
            self.commits.hand_over(touched)
        if touched:
            for connection in touched:
                connection.touched = False
                if not connection.blocked:
                    self.flush(connection)
            touched.clear()
        if effects.closing:
            closing = effects.closing
            effects.closing = []
            for connection in closing:
                if self.commits is not None and self.commits.close_later(connection):
                    continue
                if connection.outbox:
                    self.flush(connection)
                connection.peer.close(connection.close_reason)
        if effects.notes:
            self.write_notes()
        if not self.working and self.broker.has_work():
            self.working = True
            self.loop.call_soon(self.on_work)

    def flush(self, connection: Connection) -> None:
        if connection.outbox:
            data = connection.take()
            self.broker.counters.bytes_sent += len(data)
            self.broker.counters.bytes_sent_by_version[connection.version & 7] += len(data)
            connection.peer.write(data)

    def on_work(self) -> None:
        self.working = False
        self.broker.work(self.now_ms())
        self.carry_out()

    def write_notes(self) -> None:
        notes = self.broker.effects.notes
        for connection, note in notes[: self.notes_left]:
            peer = connection.peer
            log.warning(note, extra={"client_id": connection.client_id, "address": getattr(peer, "address", "")})
        self.notes_left_out += max(0, len(notes) - self.notes_left)
        self.notes_left = max(0, self.notes_left - len(notes))
        notes.clear()
