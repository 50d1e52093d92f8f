"""What the services need of the place where retained messages are: the ports, and what all sources share.

A source is read through a topic index and written through a broker. A running broker is both at once; a data folder is
read as it is, also while a broker runs on it, and is written by a broker that is opened on it for the purpose.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Container
from contextlib import AbstractAsyncContextManager
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from holdfast.broker.core import Broker
from holdfast.broker.effects import Accepted
from holdfast.broker.message import Message, Publisher
from holdfast.broker.ports import TopicCursor, TopicIndex
from holdfast.broker.views import Query, collect
from holdfast.history.place import Place
from holdfast.service.past import Past
from holdfast.service.requests import Conditions

# Places looked at before the event loop has its turn.
WALK_PORTION = 2000

P = ParamSpec("P")
T = TypeVar("T")


class BrokerHandle(Protocol):
    """A broker as its neighbours use it. `broker` is for reading only; each method carries out its effects itself."""

    broker: Broker
    loop: asyncio.AbstractEventLoop

    def now_ms(self) -> int: ...

    def publish(
        self,
        publisher: Publisher,
        topic: bytes,
        payload: bytes,
        qos: int,
        retain: bool,
        properties: bytes = b"",
        expiry_s: int = -1,
    ) -> Accepted: ...

    async def durable(self) -> None:
        """Return when everything published so far is durable. Raises StoreError when it cannot be stored."""

    def kick(self, client_id: str, reason: int, text: str) -> bool: ...

    def end_session(self, client_id: str) -> bool: ...

    def set_retainer(
        self,
        *,
        enable: bool | None = None,
        expiry_ms: int | None = None,
        max_payload: int | None = None,
        max_messages: int | None = None,
    ) -> None: ...


class RetainedWriter(ABC):
    """A broker to publish through, for as long as its context lasts."""

    @abstractmethod
    def now_ms(self) -> int: ...

    @abstractmethod
    def get(self, topic: bytes) -> Message | None: ...

    @abstractmethod
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
        """Publish. Raises NotAllowed for the broker's own topics, StoreError while nothing can be stored."""

    @abstractmethod
    async def durable(self) -> None:
        """Return when everything published so far is durable. Raises StoreError when it cannot be stored."""


class RetainedSource(ABC):
    """`reads_history` says whether the history has been read in this process."""

    reads_history = False

    @abstractmethod
    def now_ms(self) -> int: ...

    @property
    @abstractmethod
    def history(self) -> Place | None:
        """Where the Delta table is; None where none is kept."""

    @property
    def records_live(self) -> bool:
        """Whether publishes without RETAIN go to the history, as far as is known before there is a table to say so."""
        return True

    @property
    @abstractmethod
    def index(self) -> TopicIndex: ...

    @property
    @abstractmethod
    def version(self) -> int:
        """The offset up to which a walk over the index shall go."""

    @property
    @abstractmethod
    def last_change(self) -> int:
        """The offset of the last change of the retained set."""

    @abstractmethod
    def client_ids(self) -> Container[str]:
        """The clients that have a session."""

    @abstractmethod
    async def listen(self) -> None:
        """Have it noted when the state topics that discovery configurations name now are published to."""

    @property
    @abstractmethod
    def listening_since_ms(self) -> int | None:
        """Since when that is noted; None: it is not."""

    @abstractmethod
    def heard_at_ms(self, topic: str) -> int:
        """When a state topic was last published to, retained or not; 0 where that is not known."""

    @abstractmethod
    def writing(self) -> AbstractAsyncContextManager[RetainedWriter]:
        """A writer. Raises StoreError when another broker has the folder."""

    @abstractmethod
    async def in_history(self, offset: int) -> None:
        """Return when the history has the publish with that offset, or when it takes too long."""

    @abstractmethod
    async def ask(self, question: Callable[Concatenate[Past, P], T], *given: P.args, **named: P.kwargs) -> T:
        """Answer a question to the past, a method of `Past`, where that holds nobody up. Only where there is a
        history.
        """

    def get(self, topic: bytes) -> Message | None:
        """The message that is retained now."""
        message = self.index.get(topic)
        return None if message is None or message.expired(self.now_ms()) else message

    def cursor(self, conditions: Conditions) -> TopicCursor:
        """A walk over what the filter matches. Give it back to the index. No wildcard reaches topics that begin with
        `$`: hidden ones are asked for beside `#`, and only there.
        """
        if conditions.hidden:
            return self.index.everything()
        return self.index.cursor(conditions.filter.encode(), self.version)

    async def walk(self, cursor: TopicCursor, query: Query) -> AsyncIterator[list[Message]]:
        """What the query wants, in portions between which the event loop goes on. The cursor is released at the end."""
        index = self.index
        try:
            while not cursor.ended:
                yield collect(cursor, query, self.now_ms(), WALK_PORTION, WALK_PORTION)
                await asyncio.sleep(0)
        finally:
            index.release(cursor)
