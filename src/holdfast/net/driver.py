"""Where the event loop and the broker meet: calls the core, keeps what it wants kept, and lets its bytes leave.

The broker is called from nowhere else, so no call can be left without its effects carried out: `Release` hands the
records of a call to the log and lets go of bytes when they may leave; long work is gone on with in the next turn of the
loop, so that other clients have theirs.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from holdfast.broker.core import Broker
from holdfast.broker.effects import Accepted, Effects, LiveItem, Release
from holdfast.broker.log import Log
from holdfast.broker.message import Publisher
from holdfast.broker.ports import Peer
from holdfast.broker.session import Connection
from holdfast.broker.settings import changed_settings, shared_settings
from holdfast.errors import StoreError
from holdfast.net.sightings import Sightings

log = logging.getLogger("holdfast.net")

TICK_S = 0.1
# At most this many lines of diagnostics per tick come from bad clients; the rest are counted.
NOTES_PER_TICK = 20


class Driver:
    """Owns the broker's time. Everything here runs on the one event loop."""

    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop) -> None:
        self.broker = broker
        self.loop = loop
        self.log = broker.log
        self.release = Release(broker.log, broker.counters)
        self.last_ms = 0
        self.skew_ms = 0  # by which the clock of the log is ahead of the one of this machine
        # Where nodes share a log: called when there is something to propose, and with what other nodes' clients want.
        self.on_proposed: Callable[[], None] | None = None
        self.on_live: Callable[[list[LiveItem]], None] | None = None
        self.proposing = False
        self.working = False
        self.ticker: asyncio.TimerHandle | None = None
        self.notes_left = NOTES_PER_TICK
        self.notes_left_out = 0
        self.sightings = Sightings()

    def use_log(self, log: Log) -> None:
        """Keep what happens from now on in this log."""
        self.broker.use_log(log)
        self.log = log
        self.release = Release(log, self.broker.counters)
        log.on_durable = self.on_durable
        log.at_end_of_turn = self.at_end_of_turn

    def now_ms(self) -> int:
        """Milliseconds since the epoch, never going backwards."""
        now = int(time.time() * 1000) + self.skew_ms
        if now > self.last_ms:
            self.last_ms = now
        return self.last_ms

    # Calls into the broker.

    def open(self, peer: Peer, identity: str = "") -> Connection:
        return self.broker.open(peer, self.now_ms(), identity)

    def receive(self, connection: Connection, data: bytes) -> None:
        self.carry_out(self.broker.receive(connection, data, self.now_ms()))

    def lost(self, connection: Connection) -> None:
        self.carry_out(self.broker.lost(connection, self.now_ms()))

    def on_writable(self, connection: Connection) -> None:
        self.carry_out(self.broker.on_writable(connection, self.now_ms()))

    def on_authenticated(self, ticket: int, reason: int, username: str, data: bytes = b"") -> None:
        self.carry_out(self.broker.on_authenticated(ticket, reason, username, self.now_ms(), data))

    def on_challenge(self, ticket: int, data: bytes) -> None:
        self.carry_out(self.broker.on_challenge(ticket, data, self.now_ms()))

    def apply(self, sequence: int, time_ms: int, frame: bytes) -> None:
        """A message of the log that nodes share."""
        shared = self.broker.shared
        assert shared is not None
        self.carry_out(shared.apply(sequence, time_ms, frame))

    def receive_live(self, data: bytes) -> None:
        """Live messages of another node's clients."""
        self.carry_out(self.broker.receive_live(data, self.now_ms()))

    def send_all_away(self, reason: int, text: str, reference: str = "") -> None:
        self.carry_out(self.broker.send_all_away(reason, text, self.now_ms(), reference))

    def let_go(self) -> None:
        """Close what waits for entries that will never come back."""
        self.carry_out(self.broker.let_go(self.now_ms()))

    def kick(self, client_id: str, reason: int, text: str) -> bool:
        """Disconnect a client by an operator's wish; False when it is not connected."""
        connected = self.broker.is_connected(client_id)
        self.carry_out(self.broker.kick(client_id, reason, text, self.now_ms()))
        return connected

    def send_away(self, connection: Connection, reason: str) -> None:
        """Close the connection of a client that takes more than it may."""
        self.carry_out(self.broker.send_away(connection, reason, self.now_ms()))

    def expel(self, connection: Connection, text: str) -> None:
        """Disconnect a client that would not be let in any more."""
        self.carry_out(self.broker.expel(connection, text, self.now_ms()))

    def drop_wills(self, usernames: frozenset[str]) -> None:
        """Forget the wills of absent clients of users that are no more."""
        self.carry_out(self.broker.drop_wills(usernames, self.now_ms()))

    def end_session(self, client_id: str) -> bool:
        """Forget an absent client's session by an operator's wish; False when there is none."""
        present = client_id in self.broker.sessions and not self.broker.is_connected(client_id)
        self.carry_out(self.broker.end_session(client_id, self.now_ms()))
        return present

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
        """A publish by the server itself or its API; returns its offset and what became of it."""
        effects = self.broker.publish(publisher, topic, payload, qos, retain, self.now_ms(), properties, expiry_s)
        accepted = effects.accepted
        assert accepted is not None
        self.carry_out(effects)
        return accepted

    def set_retainer(
        self,
        *,
        enable: bool | None = None,
        expiry_ms: int | None = None,
        max_payload: int | None = None,
        max_messages: int | None = None,
    ) -> None:
        """Change settings of the retainer for what is published from now on; None leaves one as it is. Where nodes
        share a log, that is for all of them, once it has come back.
        """
        given = {
            "retain_available": enable,
            "retained_expiry_ms": expiry_ms,
            "max_retained_payload": max_payload,
            "max_retained_messages": max_messages,
        }
        changes = {name: value for name, value in given.items() if value is not None}
        settings = self.broker.settings
        shared = self.broker.shared
        if shared is not None:
            shared.change_settings(changed_settings(shared.settings or shared_settings(settings), changes))
            self.propose()
            return
        for name, value in changes.items():
            setattr(settings, name, value)
        if max_messages is not None:
            self.broker.retained.recount()

    async def durable(self) -> None:
        """Return when everything that was done so far is durable; raises StoreError when it cannot be."""
        shared = self.broker.shared
        if shared is not None and not shared.is_member:
            raise StoreError("nothing can be stored now: this node is not a member of the cluster")
        done: asyncio.Future[StoreError | None] = self.loop.create_future()
        self.log.flush(lambda error: None if done.cancelled() else done.set_result(error))
        if shared is not None:
            self.propose()
        error = await done
        if error is not None:
            raise error

    # Time.

    def start(self) -> None:
        self.on_tick()

    def stop(self) -> None:
        if self.ticker is not None:
            self.ticker.cancel()
            self.ticker = None
        self.carry_out(self.broker.shut_down(self.now_ms()))

    def on_tick(self) -> None:
        self.ticker = self.loop.call_later(TICK_S, self.on_tick)
        if self.notes_left_out:
            log.warning("more diagnostics left out", extra={"count": self.notes_left_out})
        self.notes_left = NOTES_PER_TICK
        self.notes_left_out = 0
        self.sightings.on_tick(self.loop.time())
        self.carry_out(self.broker.tick(self.now_ms()))
        self.log.hand_over()

    def on_work(self) -> None:
        self.working = False
        self.carry_out(self.broker.work(self.now_ms()))

    # Effects.

    def carry_out(self, effects: Effects) -> None:
        self.release.carry_out(effects)
        if effects.notes:
            self.write_notes(effects)
        if effects.seen:
            self.sightings.write(effects.seen, effects.unseen, self.loop.time(), self.now_ms())
            effects.seen.clear()
            effects.unseen = 0
        if effects.live:
            if self.on_live is not None:
                self.on_live(effects.live)
            effects.live.clear()
        shared = self.broker.shared
        if shared is not None and not self.proposing and (shared.entries or shared.interest.changes):
            self.proposing = True
            self.loop.call_soon(self.propose)
        if not self.working and self.broker.has_work():
            self.working = True
            self.loop.call_soon(self.on_work)

    def propose(self) -> None:
        """Send what the calls of this turn have proposed."""
        self.proposing = False
        if self.on_proposed is not None:
            self.on_proposed()

    def on_durable(self, offset: int, error: StoreError | None) -> None:
        """The log has come so far, or could not: those who waited for what is lost are sent away."""
        refused = self.release.on_durable(offset, error)
        if refused:
            self.carry_out(self.broker.on_not_durable(refused, self.now_ms()))
        if self.release.relieved:
            relieved, self.release.relieved = self.release.relieved, []
            for connection in relieved:
                self.on_writable(connection)

    def at_end_of_turn(self, call: Callable[[], None]) -> None:
        """Call when all that came in together was handled; what followed at once leaves right after that."""
        self.loop.call_soon(call)

    def on_denied(self, event: str, username: str, host: str, reason: str) -> None:
        """Somebody was denied something over HTTP."""
        self.sightings.deny(event, username, host, reason, self.loop.time(), self.now_ms())

    def write_notes(self, effects: Effects) -> None:
        notes = effects.notes
        for connection, note in notes:
            why = note.removeprefix("protocol error: ")
            self.sightings.denials.add(
                self.now_ms(),
                "protocol error" if why != note else "sent away",
                connection.client_id,
                connection.username,
                connection.peer.remote_address(),
                {"reason": why},
            )
        for connection, note in notes[: self.notes_left]:
            log.warning(note, extra={"client_id": connection.client_id, "address": connection.peer.remote_address()})
        self.notes_left_out += max(0, len(notes) - self.notes_left)
        self.notes_left = max(0, self.notes_left - len(notes))
        notes.clear()
