"""A client of a round: a thread that connects to one node after the other. That nodes refuse it and connections break
is its everyday life, and anything that MQTT does not allow is an entry in the history.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from jepsen.history import Clock, History, Malformed, Outcome
from jepsen.systems import System
from wire import (
    Acknowledgement,
    Closed,
    ConnAck,
    Disconnect,
    Packet,
    Property,
    Will,
    WireClient,
    connect,
    disconnect,
)

PATIENCE_S = 4.0  # then a client tries elsewhere: what it asked for has an unknown outcome
AnyPacket = TypeVar("AnyPacket", bound=Packet)


class Gone(Exception):
    """This connection is of no more use."""


class Connection(WireClient):
    patience_s = PATIENCE_S
    node = ""


@dataclass
class World:
    """What all clients of a round share."""

    system: System
    seed: int
    clock: Clock = field(default_factory=Clock)
    history: History = field(default_factory=History)
    stop: threading.Event = field(default_factory=threading.Event)
    errors: list[str] = field(default_factory=list)


class Actor(threading.Thread):
    """One client that lives until the round is over. `turn` is one connection or what comes with it."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.world = world
        self.history = world.history
        self.random = Random(f"{world.seed} {name}")
        self.over = world.stop
        self.node = ""

    def now(self) -> float:
        return self.world.clock.now()

    def run(self) -> None:
        while not self.over.is_set():
            try:
                self.turn()
            except (Gone, Closed, OSError):
                self.over.wait(self.random.uniform(0.02, 0.2))
            except AssertionError as problem:  # what came cannot be decoded
                self.history.malformed.append(Malformed(self.name, self.node, self.now(), str(problem)))
            except Exception as problem:
                self.world.errors.append(f"{self.name}: {problem!r}")
                raise

    def turn(self) -> None:
        raise NotImplementedError

    # Connecting

    def any_node(self) -> str:
        return self.random.choice(self.world.system.nodes)

    @contextlib.contextmanager
    def connection(self, client_id: str, *, node: str = "", version: int = 4, **fields: Any) -> Iterator[Connection]:
        client = self.connect(client_id, node=node, version=version, **fields)
        try:
            yield client
        finally:
            client.cut()

    def connect(
        self,
        client_id: str,
        *,
        node: str = "",
        version: int = 4,
        clean: bool = True,
        will: Will | None = None,
        properties: Sequence[Property] = (),
    ) -> Connection:
        """A connection that was accepted; its `connack` says whether there was a session."""
        self.node = node or self.any_node()
        port = self.world.system.port(self.node)
        client = Connection(port, version, sock=socket.create_connection(("127.0.0.1", port), PATIENCE_S))
        client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.node = self.node
        try:
            client.send(
                connect(client_id, version=version, clean=clean, will=will, properties=properties, keep_alive=60)
            )
            answer = self.wait_for(client, ConnAck)
            if answer.code != 0:
                raise Gone(f"refused with 0x{answer.code:02X}")
            client.connack = answer
        except BaseException:
            client.cut()
            raise
        return client

    def leave(self, client: Connection) -> None:
        """One of the ways in which clients go, if they are still there."""
        way = self.random.randrange(3)
        with contextlib.suppress(OSError):
            if way == 0:
                client.send(disconnect())
            elif way == 1:
                client.reset()
        client.cut()

    # Answers

    def wait_for(self, client: Connection, kind: type[AnyPacket], packet_id: int | None = None) -> AnyPacket:
        """The first packet of this kind; what comes before it goes to `on_packet`."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            packet = self.receive(client, deadline - time.monotonic())
            if isinstance(packet, kind) and (packet_id is None or getattr(packet, "packet_id", None) == packet_id):
                return packet
            self.on_packet(client, packet)

    def receive(self, client: Connection, timeout: float) -> Packet:
        try:
            packet = client.recv(max(0.001, timeout))
        except TimeoutError:
            raise Gone("no answer") from None
        if isinstance(packet, Disconnect):
            raise Gone(f"sent away with 0x{packet.reason:02X}")
        return packet

    def on_packet(self, client: Connection, packet: Packet) -> None:
        """What comes while something else is waited for."""
        raise AssertionError(f"nobody asked for {packet}")

    def listen(self, client: Connection, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and not self.over.is_set():
            try:
                packet = client.recv(min(left, 0.1))
            except TimeoutError:
                continue
            if isinstance(packet, Disconnect):
                raise Gone(f"sent away with 0x{packet.reason:02X}")
            self.on_packet(client, packet)

    def rest(self, most_s: float) -> None:
        self.over.wait(self.random.uniform(0.0, most_s))


def outcome_of(answer: Acknowledgement) -> Outcome:
    return Outcome.OK if answer.reason < 0x80 else Outcome.REFUSED
