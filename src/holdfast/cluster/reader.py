"""The log from some position on: every message once, in order, none left out.

JetStream pushes to us through a consumer that lives in the memory of one server. It is a thing to throw away: when it
has left something out, has fallen silent or stands still, another one is made that begins behind the last message we
had. What keeps the promise is the sequence of the stream, which is looked at for every message; nothing else is
believed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from holdfast.cluster.connection import Connection, Message
from holdfast.errors import NoAnswer

HEARTBEAT_S: Final = 0.5
SILENCE_S: Final = 2.0  # a consumer that has sent neither message nor heartbeat for so long is gone
CREATE_S: Final = 2.0
RETRY_S: Final = 0.5
HEARD_S: Final = 0.5  # a question that is younger may still be answered
IDLE: Final = 100  # status of heartbeats and of questions whether we keep up

OnEntry = Callable[[int, int, bytes], None]


class StreamPosition(NamedTuple):
    sequence: int  # in the stream
    delivered: int  # how many the consumer has sent, this one included
    time_ms: int


def position_of(message: Message) -> StreamPosition:
    """Where in its stream a message stands: JetStream says so in the reply subject."""
    # $JS.ACK.<stream>.<consumer>.<deliveries>.<stream sequence>.<consumer sequence>.<time in ns>.<pending>,
    # or the same with domain and account behind ACK
    tokens = message.reply.split(".")
    at = 5 if len(tokens) == 9 else 7
    return StreamPosition(int(tokens[at]), int(tokens[at + 1]), int(tokens[at + 2]) // 1_000_000)


class Reader:
    """`on_entry(sequence, time_ms, payload)` gets the messages; `on_cut` is told when the next one is not the next."""

    def __init__(self, connection: Connection, stream: str, after: int, on_entry: OnEntry) -> None:
        self.connection = connection
        self.stream = stream
        self.position = after
        self.on_entry = on_entry
        self.on_cut: Callable[[], None] = lambda: None
        self.on_alive: Callable[[], None] = lambda: None
        self.heard_at = connection.loop.time()
        self.is_alive = False  # there is a consumer, and it has been heard
        self.why = "not begun"
        self.created = 0  # consumers so far
        self._subscription = 0
        self._consumer = ""
        self._delivered = 0  # by this consumer
        self._wanted = 0  # goes up whenever another consumer is called for
        self._task: asyncio.Task[None] | None = None
        self._attempt_at = 0.0

    @property
    def now(self) -> float:
        return self.connection.loop.time()

    def begin(self, why: str) -> None:
        """Make a consumer behind the last message, in place of the one there may be."""
        self.is_alive = False
        self.why = why
        self._wanted += 1
        self._forget()
        if self._task is None:
            self._task = self.connection.loop.create_task(self._create(), name="log-reader")

    def hurry(self) -> None:
        """Ask anew for the consumer that has not come; nobody may have heard the question."""
        if self._task is not None:
            if self.now - self._attempt_at > HEARD_S:
                self._task.cancel()
                self._task = None
                self.begin(self.why)
        elif self.now - self.heard_at > 2 * HEARTBEAT_S:
            self.begin("the log has another leader, and the consumer is silent")

    def end(self) -> None:
        self._forget()
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def tick(self) -> None:
        if self._task is not None and self._task.done():  # it ended with an error that was not foreseen
            self._task = None
        if self._task is None and self.now - self.heard_at > SILENCE_S:
            self.begin(f"the log servers have sent nothing for {SILENCE_S:g} s, not even a sign of life")

    def _forget(self) -> None:
        if self._subscription:
            self.connection.unsubscribe(self._subscription)
            self._subscription = 0
        if self._consumer:
            self.connection.publish(f"$JS.API.CONSUMER.DELETE.{self.stream}.{self._consumer}", b"")
            self._consumer = ""

    async def _create(self) -> None:
        """Until there is the one that was called for last."""
        made = 0
        while made != self._wanted:
            wanted = self._wanted
            self._forget()
            self._delivered = 0
            self.heard_at = self._attempt_at = self.now
            inbox = self.connection.new_inbox()
            self._subscription = self.connection.subscribe(inbox, self._on_message)
            body = json.dumps({"stream_name": self.stream, "config": self._config(inbox)}).encode()
            try:
                raw = await self.connection.request(f"$JS.API.CONSUMER.CREATE.{self.stream}", body, CREATE_S)
                answer: dict[str, Any] = json.loads(raw)
                if "error" in answer:
                    raise NoAnswer(answer["error"].get("description"))
            except NoAnswer as e:
                self.why = f"the log cannot be read: {e}"
                await asyncio.sleep(RETRY_S)
            else:
                made = wanted
                self._consumer = str(answer.get("name", ""))
                self.created += 1
        self.heard_at = self.now
        self.is_alive = True
        self._task = None
        self.on_alive()

    def _config(self, inbox: str) -> dict[str, Any]:
        return {
            "deliver_subject": inbox,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self.position + 1,
            "ack_policy": "none",
            "max_deliver": 1,
            "replay_policy": "instant",
            "flow_control": True,
            "idle_heartbeat": int(HEARTBEAT_S * 1e9),
            "mem_storage": True,
            "num_replicas": 1,
        }

    def _on_message(self, message: Message) -> None:
        self.heard_at = self.now
        if message.status:
            self._on_status(message)
            return
        sequence, delivered, time_ms = position_of(message)
        self._delivered = delivered
        if sequence == self.position + 1:
            self.position = sequence
            self.on_entry(sequence, time_ms, message.payload)
        elif sequence > self.position:
            self.begin(f"expected message {self.position + 1} of the log, got {sequence}")
            self.on_cut()

    def _on_status(self, message: Message) -> None:
        if message.status != IDLE:
            self.begin(f"the log servers have ended the reading: {message.description}")
            return
        if message.reply:  # a question whether we keep up: we do, all before it has been dealt with
            self.connection.publish(message.reply, b"")
            return
        stalled = message.header(b"Nats-Consumer-Stalled")
        if stalled:
            self.connection.publish(stalled, b"")
        last = message.header(b"Nats-Last-Consumer")
        if last.isdigit() and int(last) > self._delivered:
            self.begin(f"{int(last) - self._delivered} messages of the log did not arrive")
