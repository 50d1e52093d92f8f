"""Many clients that behave badly, and one pair at QoS 2 that must not notice.

The crowd connects, publishes, subscribes, stalls, sends garbage, leaves in every way there is. Meanwhile a publisher
and a subscriber exchange numbered messages of which none may be lost, doubled or out of order. Afterwards the broker
must have given back what the crowd made it take: memory, descriptors, connections; and it stops in good order.

`make test-long` runs it, and `make chaos` at full size: CHAOS_S seconds with CHAOS_CLIENTS clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import psutil
import pytest

import wire
from broker_process import BrokerProcess
from holdfast.net.peer import WRITE_HIGH_WATER
from wire import P, WireClient

SECONDS = float(os.environ.get("CHAOS_S", "20"))
CLIENTS = int(os.environ.get("CHAOS_CLIENTS", "200"))
MIB = 1024 * 1024
OUTBOX, QUEUE = 256 * 1024, 128 * 1024
# What the settings let a client cost that reads nothing: bytes in its transport, in its outbox and in its queue. A
# client that reads costs 3 KiB; what passes through it on the way is allowed for with 16.
STALLED_MOST = min(WRITE_HIGH_WATER, OUTBOX) + OUTBOX + QUEUE
READING_MOST = 16 * 1024
# The broker learns a moment late that a client has gone.
LEAVING_S = 1.0
SETTLE_S = 120.0


@dataclass
class Tally:
    connected: int = 0
    stalled: int = 0
    done: dict[str, int] = field(default_factory=dict)

    def count(self, name: str) -> None:
        self.done[name] = self.done.get(name, 0) + 1


class Crowd:
    """All of it on one event loop in a thread of its own, from one seed."""

    def __init__(self, port: int, seconds: float) -> None:
        self.port = port
        self.until = time.monotonic() + seconds
        self.tally = Tally()
        self.most = 0
        self.most_stalled = 0
        self.thread = threading.Thread(target=lambda: asyncio.run(self.main()), name="crowd")

    async def main(self) -> None:
        await asyncio.gather(*(self.client(random.Random(number), number) for number in range(CLIENTS)))

    async def client(self, chance: random.Random, number: int) -> None:
        acts = [self.chat, self.chat, self.chat, self.stall, self.garbage, self.half, self.flood, self.steal]
        await asyncio.sleep(chance.random())
        while time.monotonic() < self.until:
            act = chance.choice(acts)
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
                await self.visit(act, chance, number)
            self.tally.count(act.__name__)
            await asyncio.sleep(chance.random() * 0.5)

    async def visit(self, act: Callable[..., object], chance: random.Random, number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.tally.connected += 1
        self.most = max(self.most, self.tally.connected)
        try:
            await asyncio.wait_for(act(chance, number, reader, writer), 15)  # type: ignore[arg-type]
        finally:
            self.tally.connected -= 1
            self.leave(chance, writer)

    def leave(self, chance: random.Random, writer: asyncio.StreamWriter) -> None:
        """With a reset, as a killed process would, or with an ordinary close."""
        sock = writer.get_extra_info("socket")
        if chance.random() < 0.5 and sock is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort() if chance.random() < 0.3 else writer.close()

    async def enter(
        self, chance: random.Random, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> int:
        version = chance.choice((4, 5))
        keep = [(P.SESSION_EXPIRY, 1)] if version == 5 and chance.random() < 0.3 else []
        will = wire.Will(f"crowd/will/{chance.randrange(50)}", b"gone") if chance.random() < 0.3 else None
        writer.write(wire.connect(name, version=version, will=will, properties=keep))
        await reader.readexactly(4)
        return version

    async def chat(
        self, chance: random.Random, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        version = await self.enter(chance, f"chat{number}", reader, writer)
        writer.write(wire.subscribe(1, [(f"crowd/{chance.randrange(50)}/#", chance.randrange(3))], version=version))
        for packet_id in range(1, chance.randrange(2, 20)):
            qos = chance.randrange(3)
            writer.write(
                wire.publish(
                    f"crowd/{chance.randrange(50)}/{chance.randrange(20)}",
                    bytes(chance.randrange(500)),
                    qos=qos,
                    packet_id=packet_id if qos else None,
                    retain=chance.random() < 0.3,
                    version=version,
                )
            )
            await writer.drain()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(reader.read(4096), chance.random() * 0.3)
        if chance.random() < 0.5:
            writer.write(wire.disconnect())

    async def stall(
        self, chance: random.Random, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Subscribe to everything of the crowd's and never read it."""
        version = await self.enter(chance, f"stall{number}", reader, writer)
        writer.write(wire.subscribe(1, [("crowd/#", 1)], version=version))
        await writer.drain()
        transport = writer.transport
        assert isinstance(transport, asyncio.Transport)
        transport.pause_reading()
        self.tally.stalled += 1
        self.most_stalled = max(self.most_stalled, self.tally.stalled)
        try:
            await asyncio.sleep(chance.random() * 4)
        finally:
            asyncio.get_running_loop().call_later(LEAVING_S, self.woken)

    def woken(self) -> None:
        self.tally.stalled -= 1

    async def garbage(
        self, chance: random.Random, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if chance.random() < 0.5:
            await self.enter(chance, f"garbage{number}", reader, writer)
        writer.write(chance.randbytes(chance.randrange(1, 2000)))
        await writer.drain()
        await reader.read(1000)

    async def half(
        self, chance: random.Random, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Part of a packet, and then nothing."""
        packet = wire.connect(f"half{number}", version=5, username="u", password=bytes(100))
        writer.write(packet[: chance.randrange(len(packet))])
        await writer.drain()
        await asyncio.sleep(chance.random() * 2)

    async def flood(
        self, chance: random.Random, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await self.enter(chance, f"flood{number}", reader, writer)
        writer.write(wire.publish(f"crowd/{chance.randrange(50)}/f", bytes(200)) * 200)
        await writer.drain()

    async def steal(
        self, chance: random.Random, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Take over one of few names again and again."""
        await self.enter(chance, f"shared{number % 5}", reader, writer)
        await reader.read(1000)


class Pair:
    """A publisher and a subscriber at QoS 2, each with its own connection and thread."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.sent = 0
        self.received: list[int] = []
        self.stop = threading.Event()
        self.finished = threading.Event()  # the last message is through on the publisher's side
        self.problem: BaseException | None = None
        self.reader = WireClient(port, 5)
        self.reader.connect("pair-reader")
        self.reader.subscribe("pair/numbers", qos=2)
        self.threads = [threading.Thread(target=self.guard, args=(act,)) for act in (self.publish, self.receive)]

    def guard(self, act: Callable[[], None]) -> None:
        try:
            act()
        except BaseException as problem:
            self.problem = problem
            self.stop.set()
        if act == self.publish:
            self.finished.set()

    def publish(self) -> None:
        with WireClient(self.port, 5) as writer:
            writer.connect("pair-writer")
            writer.sock.settimeout(60)
            while not self.stop.is_set():
                number = self.sent + 1
                writer.send(
                    wire.publish("pair/numbers", str(number).encode(), qos=2, packet_id=number % 65535 + 1, version=5)
                )
                writer.expect(wire.PubRec, timeout=60)
                writer.send(wire.pubrel(number % 65535 + 1))
                writer.expect(wire.PubComp, timeout=60)
                self.sent = number
                time.sleep(0.005)
            writer.disconnect()

    def receive(self) -> None:
        """The next message may come before the handshake of the last one is through."""
        patience = 30  # seconds of silence after the last message was sent, before one counts as lost
        while patience > 0 and not (self.finished.is_set() and len(self.received) >= self.sent):
            try:
                packet = self.reader.recv(1)
            except TimeoutError:
                patience -= self.finished.is_set()
                continue
            if isinstance(packet, wire.Publish):
                assert packet.packet_id is not None
                self.reader.send(wire.pubrec(packet.packet_id))
                self.received.append(int(packet.payload))
            else:
                assert isinstance(packet, wire.PubRel)
                self.reader.send(wire.pubcomp(packet.packet_id))


def descriptors(broker: BrokerProcess) -> int:
    return int(psutil.Process(broker.pid).num_fds())


def rehearse(broker: BrokerProcess, seconds: float) -> Crowd:
    crowd = Crowd(broker.port, seconds)
    crowd.thread.start()
    return crowd


@pytest.mark.long
@pytest.mark.timeout(600 + 3 * SECONDS)
def test_a_well_behaved_pair_does_not_notice_the_crowd(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker(
        limits__max_outbox_bytes=OUTBOX,
        limits__max_queued_bytes=QUEUE,
        limits__max_queued_messages=500,
        limits__max_inflight=50,
        limits__connect_timeout=3,
        limits__session_expiry_max=2,
        history__enable=False,
    )
    # A first, short crowd: what the broker takes once (caches, code, the heap of the allocator) is not a leak.
    rehearse(broker, min(SECONDS / 3, 15)).thread.join()
    wait_for_calm(broker)
    time.sleep(6)  # the broker tidies up every five seconds
    memory, fds = broker.memory(), descriptors(broker)

    pair = Pair(broker.port)
    for thread in pair.threads:
        thread.start()
    crowd = rehearse(broker, SECONDS)
    worst = 0
    while crowd.thread.is_alive():
        worst = max(worst, broker.memory())
        assert broker.process.poll() is None, broker.output
        assert pair.problem is None, pair.problem
        time.sleep(0.1)
    crowd.thread.join()
    pair.stop.set()
    for thread in pair.threads:
        thread.join(60)
    pair.reader.cut()

    assert pair.problem is None, pair.problem
    assert pair.sent > 0
    assert pair.received == list(range(1, pair.sent + 1))
    assert set(crowd.tally.done) == {"chat", "stall", "garbage", "half", "flood", "steal"}
    bound = memory * 1.2 + crowd.most * READING_MOST + crowd.most_stalled * STALLED_MOST
    print(f"{memory / MIB:.0f} MiB before, {worst / MIB:.0f} at the worst moment, bound {bound / MIB:.0f}")
    print(f"{crowd.most} at once, {crowd.most_stalled} of them stalled; {pair.sent} through; {crowd.tally.done}")
    assert worst < bound, f"{worst / MIB:.0f} MiB at the worst moment, expected at most {bound / MIB:.0f}"
    wait_for_calm(broker, fds)
    deadline = time.monotonic() + SETTLE_S
    while broker.memory() > memory * 1.2 and time.monotonic() < deadline:
        time.sleep(0.2)
    assert broker.memory() <= memory * 1.2, f"{memory / MIB:.0f} MiB before, {broker.memory() / MIB:.0f} MiB after"
    assert descriptors(broker) <= fds
    assert broker.stop() == 0
    for word in ("Traceback", "never retrieved", "was destroyed", "never awaited"):
        assert word not in broker.output, broker.output


def wait_for_calm(broker: BrokerProcess, fds: int | None = None) -> None:
    """Until the last connection of the crowd is gone, those that said nothing included."""
    process = psutil.Process(broker.pid)
    deadline = time.monotonic() + SETTLE_S
    while time.monotonic() < deadline:
        there = [link for link in process.net_connections("tcp") if link.status == psutil.CONN_ESTABLISHED]
        if not there and (fds is None or process.num_fds() <= fds):
            time.sleep(2.5)  # the sessions that were left with an expiry go too
            return
        time.sleep(0.1)
    raise AssertionError(f"{len(there)} connections were still open {SETTLE_S} s after the crowd had left")
