"""What nodes say to each other and nobody has to remember, on core NATS: it may get lost, and a loss is counted.

Everything for one node from one turn of the loop goes out as one message of NATS. One that would be larger than the
servers take is sent in parts.
"""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from holdfast.cluster.connection import Connection, Message

HEAD: Final = struct.Struct(">B8sQB")  # kind, instance, sequence, length of the node's name; then the name
LENGTH: Final = struct.Struct(">I")
WHOLE: Final = 0  # any number of messages, each with its length before it
PART: Final = 1  # of one message, more to come
LAST_PART: Final = 2
ALL: Final = ""  # in place of a node: every other one
UNSENT_LIMIT: Final = (
    64 << 20
)  # when the socket takes nothing, no more than this waits for it; then messages are dropped


@dataclass
class _Outgoing:
    subject: str
    sequence: int = 0
    size: int = 0
    waiting: list[bytes] = field(default_factory=list)


@dataclass
class _Incoming:
    instance: bytes
    expected: int
    parts: list[bytes] = field(default_factory=list)
    is_torn: bool = False  # a part is missing: the rest of that message is of no use


class Channel:
    """`on_message(node, payload)` for each message; `on_request(node, payload)` returns the answer."""

    def __init__(
        self,
        connection: Connection,
        cluster: str,
        node: str,
        on_message: Callable[[str, bytes], None],
        on_request: Callable[[str, bytes], bytes],
    ) -> None:
        self.connection = connection
        self.node = node
        self.on_message = on_message
        self.on_request = on_request
        self.lost = 0  # messages of NATS that others sent and that did not arrive here
        self.dropped = 0  # messages that could not be sent
        self._instance = random.randbytes(8)
        self._prefix = f"holdfast.{cluster}"
        self._outgoing: dict[str, _Outgoing] = {}
        self._incoming: dict[tuple[str, bool], _Incoming] = {}
        self._subscriptions: list[int] = []
        self._flush: asyncio.Handle | None = None

    def start(self) -> None:
        self._subscriptions = [
            self.connection.subscribe(f"{self._prefix}.live.{self.node}", self._on_direct),
            self.connection.subscribe(f"{self._prefix}.live", self._on_broadcast),
            self.connection.subscribe(f"{self._prefix}.ask.{self.node}", self._on_ask),
        ]

    def stop(self) -> None:
        self.flush()
        for subscription in self._subscriptions:
            self.connection.unsubscribe(subscription)

    def send(self, node: str, payload: bytes) -> None:
        self._put(node, payload)

    def broadcast(self, payload: bytes) -> None:
        """To all other nodes."""
        self._put(ALL, payload)

    async def request(self, node: str, payload: bytes, timeout_s: float = 5.0) -> bytes:
        """What that node answers. Raises NoAnswer."""
        name = self.node.encode()
        question = bytes([len(name)]) + name + payload
        return await self.connection.request(f"{self._prefix}.ask.{node}", question, timeout_s)

    def flush(self) -> None:
        """Send what waits; by itself this happens at the end of the turn."""
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        for out in self._outgoing.values():
            self._send_waiting(out)

    @property
    def _room(self) -> int:
        return max(1024, self.connection.max_payload - HEAD.size - len(self.node.encode()))

    def _put(self, node: str, payload: bytes) -> None:
        out = self._outgoing.get(node)
        if out is None:
            subject = f"{self._prefix}.live.{node}" if node else f"{self._prefix}.live"
            out = self._outgoing[node] = _Outgoing(subject)
        size = LENGTH.size + len(payload)
        room = self._room
        if out.size + size > room:
            self._send_waiting(out)
        if size > room:
            for start in range(0, len(payload), room):
                last = start + room >= len(payload)
                self._publish(out, LAST_PART if last else PART, payload[start : start + room])
            return
        out.waiting += (LENGTH.pack(len(payload)), payload)
        out.size += size
        if self._flush is None:
            self._flush = self.connection.loop.call_soon(self.flush)

    def _send_waiting(self, out: _Outgoing) -> None:
        if out.waiting:
            waiting, out.waiting, out.size = out.waiting, [], 0
            self._publish(out, WHOLE, b"".join(waiting), len(waiting) // 2)

    def _publish(self, out: _Outgoing, kind: int, body: bytes, count: int = 1) -> None:
        name = self.node.encode()
        frame = HEAD.pack(kind, self._instance, out.sequence, len(name)) + name + body
        out.sequence += 1  # one that is dropped here is missed there
        if self.connection.unsent_bytes > UNSENT_LIMIT or not self.connection.publish(out.subject, frame):
            self.dropped += count

    def _on_direct(self, message: Message) -> None:
        self._take(message.payload, is_direct=True)

    def _on_broadcast(self, message: Message) -> None:
        self._take(message.payload, is_direct=False)

    def _take(self, frame: bytes, is_direct: bool) -> None:
        kind, instance, sequence, length = HEAD.unpack_from(frame)
        at = HEAD.size + length
        node = frame[HEAD.size : at].decode()
        if node == self.node:
            return
        source = self._incoming.get((node, is_direct))
        if source is None or source.instance != instance:
            source = self._incoming[(node, is_direct)] = _Incoming(instance, sequence)
            source.is_torn = kind != WHOLE and sequence > 0
        if sequence != source.expected:
            self.lost += max(0, sequence - source.expected)
            source.is_torn = True
            source.parts.clear()
        source.expected = sequence + 1
        if kind == WHOLE:
            source.is_torn = False
            end = len(frame)
            while at < end:
                (size,) = LENGTH.unpack_from(frame, at)
                at += LENGTH.size + size
                self.on_message(node, frame[at - size : at])
            return
        if not source.is_torn:
            source.parts.append(frame[at:])
        if kind == LAST_PART:
            whole, source.parts = b"".join(source.parts), []
            if not source.is_torn:
                self.on_message(node, whole)
            source.is_torn = False

    def _on_ask(self, message: Message) -> None:
        length = message.payload[0]
        node = message.payload[1 : 1 + length].decode()
        self.connection.publish(message.reply, self.on_request(node, message.payload[1 + length :]))
