"""The retained messages of a source: find, read, publish, delete, take back, bring back from the past.

Each delete, publish and restore has a name, the operation, which stands as client id in the history rows it made: that
is how a delete can be undone later, by any broker that has the history. The last few deletes are kept in memory as
well, so that undo needs no history when it comes at once.
"""

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from holdfast.broker.access import ANY_QOS
from holdfast.broker.effects import Accepted
from holdfast.broker.message import BY_USER, Message, Publisher
from holdfast.broker.session import is_reserved
from holdfast.errors import NotFound, ProtocolError, TooLarge
from holdfast.rules.restore import REFUSED, RESTORE, seconds_left, verdict
from holdfast.service.caller import Caller
from holdfast.service.history import HistoryService
from holdfast.service.messages import same_content
from holdfast.service.past import PROTOCOL, Moment
from holdfast.service.requests import Conditions, Publication, RestoreRequest, encode_text, topic_bytes
from holdfast.service.source import RetainedSource, RetainedWriter

# Publishes between two waits for the disk.
PORTION = 200
# What is kept in memory for undo, all operations together.
KEPT_BYTES = 32 << 20
# What a message takes in memory beside its bytes, about.
OVERHEAD_BYTES = 200
REFUSED_FROM = 0x80  # reason codes from here on are refusals

T = TypeVar("T")


@dataclass
class Published:
    """The operation that published, and what became of each message, in order."""

    operation: str
    accepted: list[Accepted]

    @property
    def refused(self) -> int:
        return sum(one.reason >= REFUSED_FROM for one in self.accepted)


class Found(NamedTuple):
    """A retained message as far as a delete needs it: what is on disk stays there."""

    topic: bytes
    offset: int
    qos: int
    size: int

    @classmethod
    def of(cls, message: Message) -> "Found":
        return cls(message.topic, message.offset, message.qos, message.size())


@dataclass
class Removed:
    operation: str
    count: int


@dataclass
class Restored:
    """How many messages came to which end; see `rules.restore`."""

    operation: str
    dry_run: bool
    restored: int = 0
    present: int = 0
    expired: int = 0
    refused: int = 0

    def count(self, end: str) -> None:
        setattr(self, end, getattr(self, end) + 1)

    @property
    def is_empty(self) -> bool:
        return self.restored + self.present + self.expired + self.refused == 0


class RetainedService:
    """`max_payload` bounds what may be published, in bytes."""

    def __init__(self, source: RetainedSource, history: HistoryService, max_payload: int = 0) -> None:
        self.source = source
        self.history = history
        self.max_payload = max_payload
        self.recent: OrderedDict[str, list[Message]] = OrderedDict()
        self.recent_bytes = 0

    async def find(self, conditions: Conditions, caller: Caller) -> AsyncIterator[list[Message]]:
        """All that meet the conditions and the caller may see, in the order of the source, portion by portion."""
        caller.need_publisher(conditions.client_id, conditions.username)
        query = conditions.query(self.source.now_ms())
        async for portion in self.source.walk(self.source.cursor(conditions), query):
            yield portion if caller.sees_all else [m for m in portion if caller.may_see(m)]

    async def find_writable(self, conditions: Conditions, caller: Caller) -> list[Found]:
        """Those of them that the caller may delete."""
        found: list[Found] = []
        async for portion in self.find(conditions, caller):
            found += [Found.of(one) for one in portion if caller.may_write(one.topic, True, one.qos)]
        return found

    def get(self, topic: str, caller: Caller) -> Message:
        """A retained message that the caller would be sent. Raises NotAllowed, or NotFound when there is none: what its
        publisher has lost the right to is not there.
        """
        name = encode_text(topic)
        caller.need_read(name)
        message = self.source.get(name)
        if message is None or not caller.may_see(message):
            raise NotFound(f"topic {topic!r} is not retained")
        return message

    async def publish(self, publications: list[Publication], caller: Caller, client_id: str = "") -> Published:
        """Publish in order, as one operation, and wait until all are durable. One that is not valid stops those after
        it: then it raises, and those before it are durable. `client_id` stands for the name of the operation.
        """
        operation = client_id or new_operation(caller)
        publisher = Publisher(operation, caller.name, PROTOCOL)
        accepted: list[Accepted] = []
        async with self.source.writing() as writer:
            try:
                for number, one in enumerate(publications, 1):
                    accepted.append(self.publish_one(writer, publisher, one, caller))
                    if number % PORTION == 0:
                        await pause(writer)
            finally:
                if accepted:
                    await writer.durable()
        return Published(operation, accepted)

    def publish_one(self, writer: RetainedWriter, publisher: Publisher, one: Publication, caller: Caller) -> Accepted:
        topic = topic_bytes(one.topic)
        caller.need_write(topic, one.retain, one.qos)
        payload = one.payload_bytes()
        if 0 < self.max_payload < len(payload):
            raise TooLarge(f"payload has {len(payload)} bytes, expected no more than limits.max_packet_size")
        expiry_s = one.seconds_to_live(writer.now_ms())
        return writer.publish(publisher, topic, payload, one.qos, one.retain, one.properties_bytes(), expiry_s)

    async def remove_topic(self, topic: str, caller: Caller) -> Removed:
        """Delete one message. Raises NotAllowed or NotFound."""
        name = encode_text(topic)
        message = self.source.get(name)
        caller.need_write(name, True, ANY_QOS if message is None else message.qos)
        if message is None:
            raise NotFound(f"topic {topic!r} is not retained")
        return await self.remove([Found.of(message)], caller)

    async def remove(self, found: Sequence[Found], caller: Caller) -> Removed:
        """Delete these messages, except those that have been replaced since and those that a policy protects."""
        operation = new_operation(caller)
        publisher = Publisher(operation, caller.name, PROTOCOL)
        gone: list[Message] = []  # as long as these are few enough to be kept
        count = size = 0
        if found:
            async with self.source.writing() as writer:
                for portion in in_portions(found):
                    deletes: list[tuple[Message, Accepted]] = []
                    for one in portion:
                        stored = writer.get(one.topic)
                        if stored is not None and stored.offset == one.offset:
                            deletes.append((stored, writer.publish(publisher, one.topic, b"", one.qos, True)))
                    await pause(writer)
                    for message, delete in deletes:
                        if has_removed(writer, message, delete):
                            count += 1
                            size += message.size() + OVERHEAD_BYTES
                            if size <= KEPT_BYTES:
                                gone.append(message)
        if size <= KEPT_BYTES:
            self.remember(operation, gone, size)
        return Removed(operation, count)

    def remember(self, operation: str, gone: list[Message], size: int) -> None:
        self.recent[operation] = gone
        self.recent_bytes += size
        while self.recent_bytes > KEPT_BYTES:
            _, old = self.recent.popitem(last=False)
            self.recent_bytes -= sum(message.size() + OVERHEAD_BYTES for message in old)

    async def undo(self, operation: str, caller: Caller) -> Restored:
        """Bring back what a delete took away, where nothing new has come since. Raises NotFound."""
        recent = self.recent.get(operation)
        portions = one_portion(recent) if recent is not None else self.history.removed_by(operation)
        done = await self.put_back(portions, caller, replace=False, dry_run=False)
        if done.is_empty and recent is None:
            raise NotFound(f"no delete named {operation!r} is known here or in the history")
        return done

    async def restore(self, asked: RestoreRequest, caller: Caller) -> Restored:
        """Bring back what was retained at a moment, as far as the caller may see it."""
        asked.check()
        then = self.history.messages_at(Moment(asked.at_ms, asked.offset, asked.filter), caller)
        return await self.put_back(then, caller, asked.replace, asked.dry_run)

    async def put_back(
        self,
        portions: AsyncIterator[list[Message]],
        caller: Caller,
        replace: bool,
        dry_run: bool,
        on_progress: Callable[[int], None] = lambda count: None,
    ) -> Restored:
        """Follow `rules.restore` for each message. One portion is in memory at a time, and a source without anything to
        restore is not written to. `on_progress` is told now and then how many were seen to.
        """
        operation = new_operation(caller)
        publisher = Publisher(operation, caller.name, PROTOCOL)
        done = Restored(operation, dry_run)
        async with AsyncExitStack() as stack:
            writer: RetainedWriter | None = None
            before = 0
            async for messages in portions:
                for portion in in_portions(messages):
                    published: list[tuple[Message, Accepted]] = []
                    for message in portion:
                        end = judge(self.source if writer is None else writer, message, caller, replace)
                        if end != RESTORE or dry_run:
                            done.count(end)
                            continue
                        if writer is None:
                            writer = await stack.enter_async_context(self.source.writing())
                            end = judge(writer, message, caller, replace)
                        again = publish_again(writer, publisher, message) if end == RESTORE else None
                        if again is not None:
                            published.append((message, again))
                        else:
                            done.count(REFUSED if end == RESTORE else end)
                    await (asyncio.sleep(0) if writer is None else pause(writer))
                    for message, again in published:
                        assert writer is not None
                        done.count(RESTORE if has_set(writer, message, again) else REFUSED)
                    before += len(portion)
                    on_progress(before)
        return done


def judge(where: RetainedSource | RetainedWriter, message: Message, caller: Caller, replace: bool) -> str:
    """What the rule says of one message of the past, rights included."""
    stored = where.get(message.topic)
    same = stored is not None and same_content(stored, message)
    end = verdict(message.expires_at_ms, same, stored is not None, replace, where.now_ms())
    if end == RESTORE and (is_reserved(message.topic) or not caller.may_write(message.topic, True, message.qos)):
        return REFUSED
    return end


def publish_again(writer: RetainedWriter, publisher: Publisher, message: Message) -> Accepted | None:
    """Publish a message of the past; returns None when its topic has more levels than are allowed today."""
    expiry_s = seconds_left(message.expires_at_ms, writer.now_ms())
    try:
        return writer.publish(
            publisher, message.topic, message.payload, message.qos, True, message.properties, expiry_s
        )
    except ProtocolError:
        return None


# What became of a publish is known when it is durable: in a cluster it is applied then, in the order of the log.


def has_removed(writer: RetainedWriter, message: Message, delete: Accepted) -> bool:
    """Whether a delete took its message away: none is there, or one that was set later. Else a policy protects it."""
    stored = writer.get(message.topic)
    return stored is None or stored.offset > delete.offset


def has_set(writer: RetainedWriter, message: Message, publish: Accepted) -> bool:
    """Whether a message is retained now, or one that was set later. Else a limit or a policy refused it."""
    stored = writer.get(message.topic)
    return stored is not None and stored.offset >= publish.offset


def in_portions(messages: Sequence[T]) -> Iterator[Sequence[T]]:
    """As many as are published between two waits for the disk."""
    for start in range(0, len(messages), PORTION):
        yield messages[start : start + PORTION]


async def one_portion(messages: list[Message]) -> AsyncIterator[list[Message]]:
    yield messages


async def pause(writer: RetainedWriter) -> None:
    """Wait for the disk, so that a long operation neither fills memory nor holds others up."""
    await writer.durable()
    await asyncio.sleep(0)


def new_operation(caller: Caller) -> str:
    """A name under which everything that one call changed can be found in the history. It tells whether rights were
    asked for, so that they can be asked again.
    """
    return f"{'api-' if caller.admin else BY_USER}{secrets.token_hex(6)}"
