"""The retained set for a broker that keeps no messages in memory: the disk, with what is not applied yet in front.

What was accepted a moment ago is in the journal but not yet in LMDB. It is held here until it is.
"""

from dataclasses import dataclass, field

from holdfast.broker.message import Message
from holdfast.broker.topics import matches
from holdfast.state.retained import Retained, Walk


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


class RetainedView:
    """Invariant: `pending` is in offset order and holds exactly the changes behind the applied offset."""

    def __init__(self, disk: Retained) -> None:
        self.disk = disk
        self.pending: dict[bytes, tuple[int, Message | None]] = {}

    def set(self, message: Message) -> None:
        self.change(message.topic, message.offset, message)

    def clear(self, topic: bytes, offset: int) -> None:
        self.change(topic, offset, None)

    def change(self, topic: bytes, offset: int, message: Message | None) -> None:
        self.pending.pop(topic, None)  # so that the newest is last
        self.pending[topic] = (offset, message)

    def on_applied(self, offset: int) -> None:
        """Everything up to this offset is on disk now."""
        done: list[bytes] = []
        for topic, (at, _) in self.pending.items():
            if at > offset:
                break
            done.append(topic)
        for topic in done:
            del self.pending[topic]

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
