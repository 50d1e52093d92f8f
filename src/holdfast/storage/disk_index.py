"""The retained messages of a broker that keeps them on disk only: an index for the core over LMDB.

What the state follower has not applied yet is held in memory in front of the disk, so the core sees its own changes at
once.
"""

from dataclasses import dataclass, field

from holdfast.broker.message import Message
from holdfast.broker.ports import TopicCursor, TopicIndex
from holdfast.broker.topics import matches
from holdfast.state.retained import Retained, Walk
from holdfast.state.tables import topic_key


@dataclass
class VersionedWalk:
    """A walk over the retained set as of one version.

    Each topic comes at most once. What changed since is left out, because the subscriber is sent changes as they
    happen.
    """

    disk: Walk
    version: int
    waiting: list[Message] = field(default_factory=list)  # from memory, before the walk over the disk
    sent: set[bytes] = field(default_factory=set)

    @property
    def ended(self) -> bool:
        return self.disk.ended and not self.waiting


# What may wait in memory for the state follower before publishers are read from more slowly, and what a change takes
# beside its message's bytes, about.
PENDING_BYTES = 256 << 20
OVERHEAD_BYTES = 400


class RetainedView:
    """Invariants: `pending` is in offset order and holds exactly the changes behind the applied offset; `size` is about
    the memory that it takes.
    """

    def __init__(self, disk: Retained) -> None:
        self.disk = disk
        self.pending: dict[bytes, tuple[int, Message | None]] = {}
        self.size = 0

    def set(self, message: Message) -> None:
        self.change(message.topic, message.offset, message)

    def clear(self, topic: bytes, offset: int) -> None:
        self.change(topic, offset, None)

    def change(self, topic: bytes, offset: int, message: Message | None) -> None:
        self.forget(topic)  # so that the newest is last
        self.pending[topic] = (offset, message)
        self.size += size_of(message)

    def forget(self, topic: bytes) -> None:
        if topic in self.pending:
            self.size -= size_of(self.pending.pop(topic)[1])

    def is_full(self) -> bool:
        return self.size > PENDING_BYTES

    def on_applied(self, offset: int) -> None:
        """Everything up to this offset is on disk now."""
        done: list[bytes] = []
        for topic, (at, _) in self.pending.items():
            if at > offset:
                break
            done.append(topic)
        for topic in done:
            self.forget(topic)

    def get(self, topic: bytes) -> Message | None:
        if topic in self.pending:
            return self.pending[topic][1]
        return self.disk.get(topic)

    def walk(self, topic_filter: bytes, version: int, hidden: bool = False) -> VersionedWalk:
        """Begins a walk; `hidden`, with the filter `#`: topics that begin with `$` too."""
        disk = Walk(topic_filter, hidden)
        walk = VersionedWalk(disk, version)
        for topic, (offset, message) in self.pending.items():
            if offset <= version and (hidden or matches(disk.levels, topic.split(b"/"))):
                walk.sent.add(topic)
                if message is not None:
                    walk.waiting.append(message)
        return walk

    def next(self, walk: VersionedWalk, count: int, visits: int = 10_000) -> list[Message]:
        """Returns up to `count` more messages; maybe none although there are more: ask `walk.ended`."""
        if walk.waiting:
            found = walk.waiting[:count]
            del walk.waiting[:count]
            return found
        if walk.disk.ended:
            return []
        return [
            message
            for message in self.disk.next(walk.disk, count, visits)
            if message.offset <= walk.version
            and message.topic not in walk.sent
            and message.topic not in self.pending  # the disk is behind on these
        ]


def size_of(change: Message | None) -> int:
    return OVERHEAD_BYTES + (change.size() if change is not None else 0)


# Messages a cursor reads from disk at once. Memory for a snapshot is bounded by this, whatever its size.
BATCH = 256


class DiskIndex(TopicIndex):
    def __init__(self, disk: Retained) -> None:
        super().__init__()
        self.view = RetainedView(disk)
        self.changes = 0

    def get(self, topic: bytes) -> Message | None:
        return self.view.get(topic)

    def put(self, message: Message, levels: list[bytes]) -> Message | None:
        old = self.view.get(message.topic)
        self.view.set(message)
        self.changes += 1
        return old

    def remove(self, topic: bytes, offset: int) -> Message | None:
        old = self.view.get(topic)
        if old is not None:
            self.view.clear(topic, offset)
            self.changes += 1
        return old

    def cursor(self, topic_filter: bytes, version: int) -> TopicCursor:
        return DiskCursor(self, self.view.walk(topic_filter, version))

    def everything(self) -> TopicCursor:
        return DiskCursor(self, self.view.walk(b"#", 1 << 62, hidden=True))

    def release(self, cursor: TopicCursor) -> None:
        """Nothing is held for a cursor here."""


class DiskCursor(TopicCursor):
    """Messages come first from memory, in the order they were set, then from disk in the order of their keys."""

    def __init__(self, index: DiskIndex, walk: VersionedWalk) -> None:
        super().__init__()
        self.index = index
        self.walk = walk
        self.batch: list[Message] = []
        self.changes = index.changes
        self.from_memory = bool(walk.waiting)
        self.last_key = b""

    def next(self, visits: int) -> Message | None:
        while True:
            while self.batch:
                message = self.batch.pop()
                self.last_key = b"" if self.from_memory else topic_key(message.topic)
                if self.is_current(message):
                    return message
            if self.walk.ended:
                self.ended = True
                return None
            self.from_memory = bool(self.walk.waiting)
            # What waited in memory was gathered at the beginning: it may have changed since.
            self.changes = -1 if self.from_memory else self.index.changes
            self.batch = self.index.view.next(self.walk, min(BATCH, max(1, visits)), visits)
            self.batch.reverse()
            if not self.batch and not self.walk.ended:
                return None

    def is_current(self, message: Message) -> bool:
        """Whether a message read a moment ago has not been replaced or deleted since."""
        if self.index.changes == self.changes:
            return True
        stored = self.index.get(message.topic)
        return stored is not None and stored.offset == message.offset

    def passed(self, topic_levels: list[bytes]) -> bool:
        topic = b"/".join(topic_levels)
        if topic in self.walk.sent:
            waiting = self.walk.waiting + (self.batch if self.from_memory else [])
            return all(message.topic != topic for message in waiting)
        if self.ended:
            return True
        return not self.from_memory and topic_key(topic) <= self.last_key
