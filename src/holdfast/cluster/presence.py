"""Which nodes are there: each says so once a second, with a few bytes of its own.

Silence counts as far as this node has heard itself, by the way that the others come: not while it had no connection,
nor while its server or it itself stood still. A node of the same name that is there already is asked for by name
before one begins: two with one name would each ignore what the other writes.
"""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from holdfast.cluster.connection import Connection, Message
from holdfast.errors import NoAnswer, UsageError

BEAT_S: Final = 1.0
GAP_S: Final = 2.5  # we have missed a beat of our own, and may have missed others
CLAIM_S: Final = 2.0
HEAD: Final = struct.Struct(">c8sQ")  # kind, instance, when it began; then what the node has to say
BEAT: Final = b"B"
LEAVING: Final = b"L"


class NameTaken(UsageError):
    """A node of this name is there already."""

    def __init__(self, node: str) -> None:
        super().__init__(
            f"a node named {node!r} is part of this cluster already: give this one another name with --node, "
            f"or stop the other first"
        )


@dataclass
class Peer:
    """Another node, as it was heard last."""

    node: str
    instance: bytes
    payload: bytes
    heard_at: float
    is_alive: bool = True


class Presence:
    """`say` is asked for what to tell the others; `on_change` hears of nodes that come and go."""

    def __init__(
        self,
        connection: Connection,
        cluster: str,
        node: str,
        say: Callable[[], bytes],
        on_change: Callable[[Peer], None],
        node_timeout_s: float = 10.0,
        now_ms: int = 0,
    ) -> None:
        self.connection = connection
        self.node = node
        self.say = say
        self.on_change = on_change
        self.on_beat: Callable[[Peer], None] = lambda peer: None
        self.on_conflict: Callable[[NameTaken], None] = lambda conflict: None
        self.node_timeout_s = node_timeout_s
        self.instance = random.randbytes(8)
        self.peers: dict[str, Peer] = {}
        self._born = now_ms
        self._subject = f"holdfast.{cluster}.node"
        self._who = f"holdfast.{cluster}.who.{node}"
        self._subscriptions: list[int] = []
        self._timer: asyncio.TimerHandle | None = None
        self._began_at = 0.0
        self._self_at = 0.0  # when we last heard ourselves
        self._twin = (b"", 0.0)  # another instance of our name, and when it was heard first

    @property
    def _now(self) -> float:
        return self.connection.loop.time()

    async def claim(self) -> None:
        """Ask whether somebody has our name. Raises NameTaken; to be called before anything is written to the log."""
        try:
            await self.connection.request(self._who, self.instance, CLAIM_S)
        except NoAnswer:  # nobody is there, or nobody who is able to speak: the log decides whose epoch is later
            return
        raise NameTaken(self.node)

    def start(self) -> None:
        self._began_at = self._self_at = self._now
        self._subscriptions = [
            self.connection.subscribe(self._who, self._on_who),
            self.connection.subscribe(f"{self._subject}.*", self._on_message),
        ]
        self._tick()

    def stop(self) -> None:
        """Take leave: the others need not wait to find out."""
        self._speak(LEAVING)
        if self._timer is not None:
            self._timer.cancel()
        for subscription in self._subscriptions:
            self.connection.unsubscribe(subscription)

    def _speak(self, kind: bytes) -> None:
        head = HEAD.pack(kind, self.instance, self._born)
        self.connection.publish(f"{self._subject}.{self.node}", head + self.say())

    def _tick(self) -> None:
        self._timer = self.connection.loop.call_later(BEAT_S, self._tick)
        self._speak(BEAT)

    def _on_self(self) -> None:
        gap_s = self._now - self._self_at
        self._self_at = self._now
        for peer in list(self.peers.values()):
            if gap_s > GAP_S:
                peer.heard_at = self._now  # they may well have spoken
            elif peer.is_alive and self._now - peer.heard_at > self.node_timeout_s:
                self._turn(peer, False)

    def _turn(self, peer: Peer, is_alive: bool) -> None:
        peer.is_alive = is_alive
        self.on_change(peer)

    def _on_who(self, message: Message) -> None:
        if message.payload != self.instance:
            self.connection.publish(message.reply, self.instance)

    def _on_twin(self, born: int, instance: bytes) -> None:
        """Another has our name. When both asked before either was there, the one that began later gives way.

        What a server or a network has held back may come from one that is long dead, all at once: one that lives is
        heard again later.
        """
        if instance != self._twin[0]:
            self._twin = (instance, self._now)
        elif self._now - self._twin[1] < BEAT_S / 2 or self._now - self._began_at > self.node_timeout_s:
            return
        elif (born, instance) < (self._born, self.instance):
            self.on_conflict(NameTaken(self.node))

    def _on_message(self, message: Message) -> None:
        node = message.subject[len(self._subject) + 1 :]
        if len(message.payload) < HEAD.size:
            return
        kind, instance, born = HEAD.unpack_from(message.payload)
        if instance == self.instance:
            self._on_self()
            return
        if node == self.node:
            if kind == BEAT:
                self._on_twin(born, instance)
            return
        said = message.payload[HEAD.size :]
        peer = self.peers.get(node)
        if peer is None:
            peer = self.peers[node] = Peer(node, instance, said, self._now, False)
        peer.instance, peer.payload, peer.heard_at = instance, said, self._now
        if (kind == BEAT) != peer.is_alive:
            self._turn(peer, kind == BEAT)
        if kind == BEAT:
            self.on_beat(peer)
