"""A running broker as a source of retained messages.

A change is a publish like any other, by a publisher whose protocol is `api`: it gets an offset, is delivered to
subscribers, goes to the journal and to the history, and is answered for when it is durable.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Container
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from holdfast.broker.effects import Accepted
from holdfast.broker.message import Message, Publisher
from holdfast.broker.ports import TopicIndex
from holdfast.broker.session import is_reserved
from holdfast.errors import NotAllowed, StoreError
from holdfast.history.place import At, Place, place_of
from holdfast.service.past import Past
from holdfast.service.past_process import PastProcess
from holdfast.service.source import BrokerHandle, RetainedSource, RetainedWriter
from holdfast.service.states import StateTopics

WAIT_S = 15.0
WAIT_STEP_S = 0.1

P = ParamSpec("P")
T = TypeVar("T")


class JournalStatus(Protocol):
    """How the journal is doing. `durable` is the offset up to which it is on disk."""

    @property
    def durable(self) -> int: ...


class LiveSource(RetainedSource, RetainedWriter):
    """`reached` says how far the followers are, by name; `refusal` why nothing can be stored now, empty while it can.
    The history is read in another process.
    """

    def __init__(
        self,
        handle: BrokerHandle,
        *,
        journal: JournalStatus | None = None,
        history: At | None = None,
        erasures: Path | None = None,
        reached: dict[str, int] | None = None,
        refusal: Callable[[], str] = lambda: "",
    ) -> None:
        self.handle = handle
        self.broker = handle.broker
        self.journal = journal
        self.table = None if history is None else place_of(history)
        self.reached = reached if reached is not None else {}
        self.past = PastProcess(history, requests=erasures) if history is not None else None
        self.refusal = refusal
        self.states: StateTopics | None = None

    async def close(self) -> None:
        if self.past is not None:
            await self.past.stop()

    def now_ms(self) -> int:
        return self.handle.now_ms()

    @property
    def history(self) -> Place | None:
        return self.table

    @property
    def records_live(self) -> bool:
        return self.broker.log.records_live

    @property
    def index(self) -> TopicIndex:
        return self.broker.retained.index

    @property
    def version(self) -> int:
        return self.broker.log.position

    @property
    def last_change(self) -> int:
        return self.broker.retained.version

    def client_ids(self) -> Container[str]:
        return self.broker.sessions

    async def listen(self) -> None:
        if self.states is not None:
            await self.states.refresh()

    @property
    def listening_since_ms(self) -> int | None:
        return self.states.since_ms if self.states is not None else None

    def heard_at_ms(self, topic: str) -> int:
        return self.states.heard_at_ms(topic) if self.states is not None else 0

    def get(self, topic: bytes) -> Message | None:
        return self.broker.retained.get(topic, self.now_ms())

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[RetainedWriter]:
        yield self

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
        if why := self.refusal():
            raise StoreError(f"nothing can be stored now: {why}")
        if is_reserved(topic):
            raise NotAllowed(f"topic {topic.decode()!r} belongs to the broker, expected one that clients may write to")
        return self.handle.publish(publisher, topic, payload, qos, retain, properties, expiry_s)

    async def durable(self) -> None:
        await self.handle.durable()

    async def in_history(self, offset: int) -> None:
        deadline = time.monotonic() + WAIT_S
        offset = min(offset, self.newest())
        while self.reached.get("history", 0) < offset and time.monotonic() < deadline:
            await asyncio.sleep(WAIT_STEP_S)

    def newest(self) -> int:
        """The offset of the last record that the table could have: $SYS, which may come after it, is not in it."""
        if self.broker.shared is not None:
            return self.broker.log.position  # what has come back from the log is durable
        return self.journal.durable if self.journal is not None else 0

    async def ask(self, question: Callable[Concatenate[Past, P], T], *given: P.args, **named: P.kwargs) -> T:
        assert self.past is not None
        return await self.past.ask(question, *given, **named)
