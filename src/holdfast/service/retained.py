"""The retained messages of a source: find, read, publish, delete, take back, bring back from the past.

Each delete, publish and restore has a name, the operation, which stands as client id in the history rows it made: that
is how it can be undone later, by any broker that has the history. The last few deletes are kept in memory as well, so
that undo needs no history when it comes at once.
"""

import asyncio
import secrets
from array import array
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from holdfast.broker.access import ANY_QOS
from holdfast.broker.effects import Accepted
from holdfast.broker.message import BY_USER, Message, Publisher
from holdfast.broker.session import is_reserved
from holdfast.errors import NotFound, ProtocolError, TooLarge
from holdfast.rules.restore import PRESENT, REFUSED, RESTORE, seconds_left, verdict
from holdfast.service.caller import Caller
from holdfast.service.history import HistoryService
from holdfast.service.messages import same_content
from holdfast.service.past import PROTOCOL, Moment
from holdfast.service.requests import (
    Conditions,
    Publication,
    RestoreRequest,
    conditions_from,
    encode_text,
    topic_bytes,
)
from holdfast.service.source import RetainedSource, RetainedWriter

# Publishes between two waits for the disk.
PORTION = 200
# What is kept in memory for undo, all operations together.
KEPT_BYTES = 32 << 20
# What a message takes in memory beside its bytes, about.
OVERHEAD_BYTES = 200
REFUSED_FROM = 0x80  # reason codes from here on are refusals
# Changes that a restore names; it counts them all.
NAMED_MOST = 20
REMOVED = "removed"
REPLACED = "replaced"

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
    """How many messages came to which end; see `rules.restore`. `removed` were not there before. `changes` names the
    first few topics that are different afterwards, with `restored`, `replaced` or `removed`.
    """

    operation: str
    dry_run: bool
    restored: int = 0
    present: int = 0
    expired: int = 0
    refused: int = 0
    removed: int = 0
    changes: list[dict[str, str]] = field(default_factory=list)

    def count(self, end: str) -> None:
        setattr(self, end, getattr(self, end) + 1)

    def name(self, topic: bytes, what: str) -> None:
        if len(self.changes) < NAMED_MOST:
            self.changes.append({"topic": topic.decode(), "what": what})

    @property
    def is_empty(self) -> bool:
        return self.restored + self.present + self.expired + self.refused + self.removed == 0


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
        query = conditions.query(self.source.now_ms(), caller.admin)
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

    async def remove(self, found: Sequence[Found], caller: Caller, part_of: str = "") -> Removed:
        """Delete these messages, except those that have been replaced since and those that a policy protects. `part_of`
        is the operation that does more than this.
        """
        operation = part_of or new_operation(caller)
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
        if size <= KEPT_BYTES and not part_of:
            self.remember(operation, gone, size)
        return Removed(operation, count)

    def remember(self, operation: str, gone: list[Message], size: int) -> None:
        self.recent[operation] = gone
        self.recent_bytes += size
        while self.recent_bytes > KEPT_BYTES:
            _, old = self.recent.popitem(last=False)
            self.recent_bytes -= sum(message.size() + OVERHEAD_BYTES for message in old)

    async def undo(self, operation: str, caller: Caller, dry_run: bool = False) -> Restored:
        """Take back what an operation did, where nothing new has come since: bring back what it took away or replaced,
        and delete what it brought. Raises NotFound.
        """
        recent = self.recent.get(operation)
        if recent is not None:
            return await self.put_back(one_portion(recent), caller, replace=False, dry_run=dry_run)
        before = await self.history.undoing(operation)
        if not any(before):
            raise NotFound(f"no operation named {operation!r} is known here or in the history")
        done = Restored(new_operation(caller), dry_run)
        cleared = self.history.messages(array("q", before.cleared))
        replaced = self.history.messages(array("q", before.replaced))
        await self.put_back(cleared, caller, replace=False, dry_run=dry_run, done=done)
        await self.put_back(replaced, caller, replace=True, dry_run=dry_run, done=done, only_of=operation)
        present = (self.source.get(topic.encode()) for topic in before.new)
        brought = [one for one in present if one is not None and one.publisher.client_id == operation]
        done.present += len(before.new) - len(brought)
        await self.take_away([Found.of(one) for one in brought], caller, done)
        return done

    async def restore(self, asked: RestoreRequest, caller: Caller) -> Restored:
        """Bring back what was retained at a moment, as far as the caller may see it, and delete what was not there when
        that is asked for.
        """
        asked.check()
        then = self.history.messages_at(Moment(asked.at_ms, asked.offset, asked.filter), caller)
        if not asked.remove:
            return await self.put_back(then, caller, asked.replace, asked.dry_run)
        known: set[bytes] = set()
        done = await self.put_back(noting(then, known), caller, asked.replace, asked.dry_run)
        later = await self.find_writable(conditions_from({"filter": asked.filter}), caller)
        await self.take_away([one for one in later if one.topic not in known], caller, done)
        return done

    async def take_away(self, found: list[Found], caller: Caller, done: Restored) -> None:
        """Delete these as part of an operation, or say that it would."""
        may = [one for one in found if not is_reserved(one.topic) and caller.may_write(one.topic, True, one.qos)]
        for one in may:
            done.name(one.topic, REMOVED)
        gone = len(may) if done.dry_run else (await self.remove(may, caller, part_of=done.operation)).count
        done.removed += gone
        done.refused += len(found) - gone

    async def put_back(
        self,
        portions: AsyncIterator[list[Message]],
        caller: Caller,
        replace: bool,
        dry_run: bool,
        on_progress: Callable[[int], None] = lambda count: None,
        done: Restored | None = None,
        only_of: str = "",
    ) -> Restored:
        """Follow `rules.restore` for each message. One portion is in memory at a time, and a source without anything to
        restore is not written to. `on_progress` is told now and then how many were seen to. `done` is the operation
        that does more than this. With `only_of` what is there is replaced only where that operation has set it, and
        what is not there any more stays away.
        """
        done = Restored(new_operation(caller), dry_run) if done is None else done
        publisher = Publisher(done.operation, caller.name, PROTOCOL)
        async with AsyncExitStack() as stack:
            writer: RetainedWriter | None = None
            before = 0
            async for messages in portions:
                for portion in in_portions(messages):
                    published: list[tuple[Message, Accepted]] = []
                    for message in portion:
                        where = self.source if writer is None else writer
                        stored = where.get(message.topic)
                        if only_of and (stored is None or stored.publisher.client_id != only_of):
                            done.count(PRESENT)
                            continue
                        end = judge(where, message, caller, replace)
                        if end == RESTORE:
                            done.name(message.topic, RESTORE if stored is None else REPLACED)
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


async def noting(portions: AsyncIterator[list[Message]], topics: set[bytes]) -> AsyncIterator[list[Message]]:
    """The same messages; their topics are added on the way."""
    async for messages in portions:
        topics.update(one.topic for one in messages)
        yield messages


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
