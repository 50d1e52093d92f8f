"""The retained messages of a broker that keeps them on disk only: an index for the core over LMDB.

What the state follower has not applied yet is held in memory in front of the disk, so the core sees its own changes at
once.
"""

from dataclasses import dataclass, field

from holdfast.broker.message import Message
from holdfast.broker.ports import TopicCursor, TopicIndex
from holdfast.broker.topics import matches
from holdfast.state.retained import WALK_BYTES, Retained, Walk
from holdfast.state.tables import topic_key


@dataclass
class VersionedWalk:
    """A walk over the retained set as of one version: first over the topics that had not reached the disk when it
    began, then over the disk.

    Each topic comes at most once. What changed since is left out, because the subscriber is sent changes as they
    happen.
    """

    disk: Walk
    version: int
    hidden: bool
    topics: list[bytes]  # shared by all walks that began at the same state of things
    position: int = 0  # in `topics`
    seen: set[bytes] = field(default_factory=set)  # those of them that match and have had their turn
    visited: int = 0  # entries that the last step has looked at

    @property
    def in_memory(self) -> bool:
        return self.position < len(self.topics)

    @property
    def ended(self) -> bool:
        return self.disk.ended and not self.in_memory


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
        self.topics: list[bytes] | None = None  # of `pending`, as long as these are the same

    def set(self, message: Message) -> None:
        self.change(message.topic, message.offset, message)

    def clear(self, topic: bytes, offset: int) -> None:
        self.change(topic, offset, None)

    def change(self, topic: bytes, offset: int, message: Message | None) -> None:
        self.forget(topic)  # so that the newest is last
        self.pending[topic] = (offset, message)
        self.topics = None
        self.size += size_of(message)

    def forget(self, topic: bytes) -> None:
        if topic in self.pending:
            self.size -= size_of(self.pending.pop(topic)[1])
            self.topics = None

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
        if self.topics is None:
            self.topics = list(self.pending)
        return VersionedWalk(Walk(topic_filter, hidden), version, hidden, self.topics)

    def next(self, walk: VersionedWalk, count: int, visits: int = 10_000) -> list[Message]:
        """Returns up to `count` more messages, fewer where they are large, maybe none although there are more: ask
        `walk.ended`.
        """
        if walk.in_memory:
            return self.next_in_memory(walk, count, visits)
        walk.visited = 0
        if walk.disk.ended:
            return []
        found = self.disk.next(walk.disk, count, visits)
        walk.visited = walk.disk.visited
        return [
            message
            for message in found
            if message.offset <= walk.version
            and message.topic not in walk.seen
            and message.topic not in self.pending  # the disk is behind on these
        ]

    def next_in_memory(self, walk: VersionedWalk, count: int, visits: int) -> list[Message]:
        found: list[Message] = []
        start = position = walk.position
        size = 0
        end = min(len(walk.topics), start + max(1, visits))
        while position < end and len(found) < count and size < WALK_BYTES:
            topic = walk.topics[position]
            position += 1
            if not walk.hidden and not matches(walk.disk.levels, topic.split(b"/")):
                continue
            walk.seen.add(topic)
            message = self.get(topic)
            if message is not None and message.offset <= walk.version:
                found.append(message)
                size += message.size()
        walk.position = position
        walk.visited = position - start
        return found


def size_of(change: Message | None) -> int:
    return OVERHEAD_BYTES + (change.size() if change is not None else 0)


# Messages a cursor reads at once. Memory for a snapshot is bounded by this and by WALK_BYTES, whatever its size.
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
        self.from_memory = walk.in_memory
        self.last_key = b""

    def next(self, visits: int) -> Message | None:
        self.visited = 0
        while True:
            while self.batch:
                message = self.batch.pop()
                self.last_key = b"" if self.from_memory else topic_key(message.topic)
                if self.is_current(message):
                    return message
            if self.walk.ended:
                self.ended = True
                return None
            if self.visited >= max(1, visits):
                return None
            left = max(1, visits - self.visited)
            self.from_memory = self.walk.in_memory
            self.changes = self.index.changes
            self.batch = self.index.view.next(self.walk, min(BATCH, left), left)
            self.visited += max(1, self.walk.visited)
            self.batch.reverse()

    def is_current(self, message: Message) -> bool:
        """Whether a message read a moment ago has not been replaced or deleted since."""
        if self.index.changes == self.changes:
            return True
        stored = self.index.get(message.topic)
        return stored is not None and stored.offset == message.offset

    def passed(self, topic_levels: list[bytes]) -> bool:
        topic = b"/".join(topic_levels)
        if topic in self.walk.seen:
            return not self.from_memory or all(message.topic != topic for message in self.batch)
        if self.ended:
            return True
        return not self.from_memory and topic_key(topic) <= self.last_key
