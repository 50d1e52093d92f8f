"""What a client that does not read may cost: one bound for everything that waits for it, whatever it or others do."""

from __future__ import annotations

import random
from collections import deque

import pytest

import wire
from holdfast.broker.batch import Batch
from holdfast.broker.core import Broker
from holdfast.broker.effects import Effects, Release
from holdfast.broker.log import Flushed, Log
from holdfast.broker.ports import Peer
from holdfast.broker.session import MOST_ANSWERS, Connection
from holdfast.broker.settings import Settings

NOW_MS = 1_700_000_000_000
TRANSPORT = 64 * 1024  # what a transport takes before it is full
LIMIT = 256 * 1024
LARGEST = 50_000  # a message
READ = 16 * 1024  # what is read from a socket at once


class Transport(Peer):
    """Takes bytes that nobody reads."""

    def __init__(self) -> None:
        self.waiting = 0
        self.connection: Connection | None = None

    def write(self, data: bytes) -> None:
        self.waiting += len(data)
        if self.connection is not None and self.waiting > TRANSPORT:
            self.connection.outbox.block(NOW_MS, self.waiting)


class LateLog(Log):
    """Is durable some time later."""

    def __init__(self, waits_to_deliver: bool) -> None:
        super().__init__(waits=True, waits_to_deliver=waits_to_deliver, keeps_state=True, history_filters=[b"#"])
        self.batches: deque[int] = deque()

    def append(self, records: Batch, waited_for: bool) -> int:
        self.batches.append(records.last)
        records.clear()
        return self.batches[-1]

    def flush(self, done: Flushed) -> None:
        done(None)


class Scene:
    def __init__(self, seed: int, waits_to_deliver: bool) -> None:
        self.chance = random.Random(seed)
        settings = Settings()
        settings.max_outbox_bytes = LIMIT
        settings.max_queued_bytes = LIMIT
        self.log = LateLog(waits_to_deliver)
        self.broker = Broker(settings, "x")
        self.broker.use_log(self.log)
        self.release = Release(self.log, self.broker.counters)
        self.version = self.chance.choice((4, 5))
        self.deaf, self.transport = self.join("deaf", clean=self.chance.random() < 0.5)
        self.other, _ = self.join("other", clean=True)
        for topic, qos in (("q0", 0), ("q1", 1), ("q2", 2), ("all/#", self.chance.randint(0, 2))):
            self.read(self.deaf, wire.subscribe(9, [(topic, qos)], version=self.version))
        self.settle()
        self.transport.connection = self.deaf
        self.next_id = 1

    def join(self, name: str, *, clean: bool) -> tuple[Connection, Transport]:
        transport = Transport()
        connection = self.broker.open(transport, NOW_MS)
        self.read(connection, wire.connect(name, version=self.version, clean=clean))
        return connection, transport

    def read(self, connection: Connection, data: bytes) -> None:
        self.carry_out(self.broker.receive(connection, data, NOW_MS))

    def carry_out(self, effects: Effects) -> None:
        self.release.carry_out(effects)

    def settle(self) -> None:
        """What was appended is durable now."""
        while self.log.batches:
            self.release.on_durable(self.log.batches.popleft(), None)
            relieved, self.release.relieved = self.release.relieved, []
            for connection in relieved:
                self.carry_out(self.broker.on_writable(connection, NOW_MS))

    def packet_id(self) -> int:
        self.next_id = self.next_id % 60_000 + 1
        return self.next_id

    def step(self) -> None:
        chance = self.chance
        what = chance.choice(("asks", "asks", "others publish", "durable", "work"))
        if what == "asks" and not self.deaf.outbox.is_choked():  # else nothing is read from it
            self.read(self.deaf, self.questions())
        elif what == "others publish":
            topic = chance.choice(("q0", "q1", "q2", "all/1", "all/2"))
            payload = bytes(chance.choice((0, 10, 1000, LARGEST)))
            qos, retain = chance.randint(0, 1), chance.random() < 0.3
            for _ in range(chance.randint(1, 30)):
                packet_id = self.packet_id() if qos else None
                self.read(
                    self.other,
                    wire.publish(topic, payload, qos=qos, retain=retain, packet_id=packet_id, version=self.version),
                )
        elif what == "durable":
            self.settle()
        elif what == "work" and self.broker.has_work():
            self.carry_out(self.broker.work(NOW_MS))

    def questions(self) -> bytes:
        """One read of packets that are all answered."""
        version = self.version
        kind = self.chance.choice(("ping", "publish", "retain", "pubrel", "pubrec", "subscribe"))
        packets = bytearray()
        while len(packets) < READ:
            packet_id = self.packet_id()
            match kind:
                case "ping":
                    packets += wire.pingreq()
                case "publish" | "retain":
                    retain = kind == "retain"
                    packets += wire.publish("x", b"1", qos=1, retain=retain, packet_id=packet_id, version=version)
                case "pubrel":
                    packets += wire.pubrel(packet_id)
                case "pubrec":
                    packets += wire.pubrec(packet_id)
                case _:
                    packets += wire.subscribe(packet_id, [("all/#", 1)], version=version)
        return bytes(packets)

    def cost(self) -> int:
        outbox = self.deaf.outbox
        held = sum(len(one.data) for one in self.release.held if one.connection is self.deaf)
        assert outbox.held_size == held
        assert outbox.size == sum(map(len, outbox.pieces))
        return outbox.size + held + self.transport.waiting


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("durability", ["ack", "deliver"])
def test_whatever_is_sent_what_waits_for_a_client_that_does_not_read_stays_within_the_bound(
    seed: int, durability: str
) -> None:
    scene = Scene(seed, durability == "deliver")
    session = scene.deaf.session
    assert session is not None
    # The last message may go over, and so may the answers to one read, at most four bytes for two.
    bound = LIMIT + LARGEST + 1000 + MOST_ANSWERS + 8 * READ
    for _ in range(300):
        scene.step()
        assert scene.cost() <= bound
        assert session.queued_bytes <= 2 * LIMIT
    assert scene.deaf.session is session, "it is still there"


@pytest.mark.parametrize("durability", ["ack", "deliver"])
def test_what_was_held_back_for_a_reader_comes_when_it_reads_again(durability: str) -> None:
    """Nothing that had to wait for room is forgotten."""
    scene = Scene(1, durability == "deliver")
    for number in range(40):
        scene.read(scene.other, wire.publish("q1", bytes(LARGEST), qos=1, packet_id=number + 1, version=scene.version))
    session = scene.deaf.session
    assert session is not None
    for _ in range(100):
        scene.settle()
        scene.transport.waiting = 0
        scene.carry_out(scene.broker.on_writable(scene.deaf, NOW_MS))
        for packet_id in list(session.inflight):
            scene.read(scene.deaf, wire.puback(packet_id))
    assert not session.queue
    assert scene.broker.counters.dropped_queue_full + scene.broker.counters.messages_sent[1] == 40
