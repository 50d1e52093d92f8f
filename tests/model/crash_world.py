"""A broker core that crashes, in this process: the disk is as slow as it is told to be, and clients come back.

The journal is a list. What was handed to it becomes durable when a test says so, and a crash keeps any beginning of
what was still on its way, one whole write after another. Everything behind it is real: the log, what holds back bytes
until they may leave, LMDB, and the way back from there into a new broker.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, cast

from crash_actors import FOR_EVER, QueueWriter, Subscriber
from holdfast.broker.batch import split
from holdfast.broker.core import Broker
from holdfast.broker.session import Connection
from holdfast.broker.settings import Settings
from holdfast.errors import StoreError
from holdfast.journal.log import JournalLog
from holdfast.journal.record import Chunk
from holdfast.net.driver import Driver
from holdfast.state.store import StateStore
from holdfast.storage.loading import load_sessions
from model.world import Buffer, Link
from wire import P, WireClient, connect, subscribe
from wire_packets import ConnAck, SubAck

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

WINDOW = 8
GAP = 1000  # offsets that a crash may cost
Done = Callable[[StoreError | None], None]


class SlowJournal:
    """Stands where the journal does, and writes when told to, or at once while it is quick and nothing waits."""

    healthy = True
    backlog = 0

    def __init__(self, next_offset: int, chance: Random) -> None:
        self.next_offset = next_offset
        self.chance = chance
        self.waiting: deque[tuple[list[bytes], Done | None]] = deque()
        self.aside: list[tuple[list[bytes], Done | None]] = []
        self.durable: list[bytes] = []

    @property
    def quick(self) -> bool:
        return self.chance.random() < 0.5

    def append_chunk(self, chunk: Chunk, done: Done | None) -> None:
        self.commit_there()
        self.waiting.append((split(chunk.data), done))

    def put_aside(self, chunk: Chunk, done: Done) -> None:
        self.aside.append((split(chunk.data), done))

    def commit_here(self) -> None:
        at_rest = not self.waiting
        self.commit_there()
        if at_rest:
            self.write(len(self.waiting))

    def commit_there(self) -> None:
        self.waiting += self.aside
        self.aside = []

    def write(self, count: int) -> None:
        """The oldest of what waits is durable now, and those who waited for it are told."""
        written = [self.waiting.popleft() for _ in range(min(count, len(self.waiting)))]
        for records, _ in written:
            self.durable += records
        for _, done in written:
            if done is not None:
                done(None)

    def crash(self, count: int) -> None:
        """As `write`, but there is nobody left to be told; the rest is lost."""
        for records, _ in list(self.waiting)[:count]:
            self.durable += records


class Turns:
    """As much of an event loop as the driver needs."""

    def __init__(self) -> None:
        self.soon: deque[Callable[[], None]] = deque()

    def call_soon(self, action: Callable[..., None], *arguments: object) -> None:
        self.soon.append(partial(action, *arguments))

    def time(self) -> float:
        return 0.0

    def run(self) -> None:
        while self.soon:
            self.soon.popleft()()


class Client:
    """One actor's end of its connections: bytes on the way to the broker, and those that have arrived from there."""

    def __init__(self, actor: QueueWriter | Subscriber) -> None:
        self.actor = actor
        self.link: Link | None = None
        self.outgoing = bytearray()
        self.greeted = False

    def send(self, data: bytes) -> None:
        self.outgoing += data

    def come(self, broker: Broker, now_ms: int) -> None:
        peer = Buffer()
        actor = self.actor
        self.link = Link(peer, broker.open(peer, now_ms), actor.version)
        self.outgoing.clear()
        self.greeted = False
        properties = [(P.SESSION_EXPIRY, FOR_EVER)] if actor.version == 5 else []
        self.send(connect(actor.name, version=actor.version, clean=False, properties=properties))

    def read(self, most: int) -> None:
        """Act on packets that have arrived, the first so many of them."""
        if self.link is None:
            return
        for packet in self.link.packets(most):
            if isinstance(packet, ConnAck):
                self.on_connack(packet)
            elif not isinstance(packet, SubAck):
                wire = cast(WireClient, self)
                if isinstance(self.actor, Subscriber):
                    self.actor.on_packet(wire, packet)
                else:
                    self.actor.on_answer(wire, packet)

    def on_connack(self, packet: ConnAck) -> None:
        actor = self.actor
        assert packet.code == 0, packet
        assert packet.session_present or not actor.started, f"session of {actor.name} is gone"
        self.greeted = True
        if isinstance(actor, Subscriber):
            if not actor.started:
                self.send(subscribe(1, [(actor.topic_filter, actor.qos)], version=actor.version))
        else:
            actor.resume(cast(WireClient, self))
        actor.started = True

    def publish(self) -> None:
        actor = self.actor
        if self.greeted and isinstance(actor, QueueWriter) and len(actor.under_way) + len(actor.releasing) < WINDOW:
            actor.publish(cast(WireClient, self))


class CrashWorld:
    def __init__(self, actors: list[QueueWriter | Subscriber], chance: Random) -> None:
        self.chance = chance
        self.clients = [Client(actor) for actor in actors]
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-model-"))
        self.store = StateStore(self.folder)
        self.offset = 0
        self.now_ms = 1_700_000_000_000
        self.start()

    def start(self) -> None:
        self.broker = Broker(Settings(), "auto-")
        self.journal = SlowJournal(self.offset + 1, self.chance)
        self.applied = 0
        self.turns = Turns()
        self.driver = Driver(self.broker, cast("AbstractEventLoop", self.turns))
        self.driver.use_log(
            JournalLog(self.journal, waits=True, waits_to_deliver=False, history_filters=[b"#"], records_live=True)
        )
        self.driver.carry_out(load_sessions(self.broker, self.store, self.now_ms))

    def close(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # What may happen next.

    def step(self) -> None:
        chance = self.chance
        client = chance.choice(self.clients)
        if client.link is None or client.link.peer.closed:
            client.come(self.broker, self.now_ms)
        match chance.choices(("publish", "carry", "read", "write", "follow", "cut"), (30, 40, 40, 20, 4, 0.3))[0]:
            case "publish":
                for _ in range(chance.randint(1, 4)):
                    client.publish()
            case "carry":
                self.carry(client, chance.choice((3, 50, 1 << 20)))
            case "read":
                client.read(chance.choice((1, 3, 1000)))
            case "write":
                self.journal.write(chance.randint(1, 3))
            case "follow":
                self.follow()
            case "cut":
                self.cut(client)
        self.turns.run()

    def carry(self, client: Client, most: int) -> None:
        """Some of what a client has sent arrives."""
        assert client.link is not None
        data = bytes(client.outgoing[:most])
        del client.outgoing[:most]
        if data:
            self.driver.carry_out(self.broker.receive(client.link.connection, data, self.now_ms))

    def follow(self) -> None:
        """The state takes in what is durable."""
        self.store.apply(self.journal.durable[self.applied :])
        self.applied = len(self.journal.durable)

    def cut(self, client: Client) -> None:
        """A connection is lost, of which the broker may hear only when the client is back."""
        link = client.link
        assert link is not None
        client.read(self.chance.choice((0, 1000)))
        client.link = None
        if self.chance.random() < 0.5:
            self.lose(link.connection)

    def lose(self, connection: Connection) -> None:
        self.driver.carry_out(self.broker.lost(connection, self.now_ms))

    def crash(self) -> None:
        """Of what is on its way to the disk a beginning gets there, of what is on its way to a client too."""
        self.journal.crash(self.chance.randint(0, len(self.journal.waiting)))
        self.follow()
        for client in self.clients:
            client.read(self.chance.choice((0, 1, 1000)))
            client.link = None
        self.offset = self.broker.log.position + GAP
        self.start()

    def settle(self) -> None:
        """No more crashes: go on until nothing moves."""
        quiet = 0
        while quiet < 3:
            before = self.activity()
            for client in self.clients:
                if client.link is None:
                    client.come(self.broker, self.now_ms)
                self.carry(client, 1 << 20)
                self.turns.run()
                self.journal.write(1000)
                client.read(1 << 20)
            quiet = quiet + 1 if self.activity() == before else 0

    def activity(self) -> tuple[Any, ...]:
        return (self.broker.log.position, *(len(client.outgoing) for client in self.clients))
