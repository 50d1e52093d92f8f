"""The retained set for a broker that keeps no messages in memory: the disk, with what is not applied yet in front.

What was accepted a moment ago is in the journal but not yet in LMDB. It is held here until it is.
"""

from dataclasses import dataclass, field

from holdfast.broker.message import Message
from holdfast.broker.topics import matches
from holdfast.state.retained import Retained
from holdfast.state.scan import Walk


@dataclass
class Snapshot:
    """A walk over the retained set as of one version. Each topic comes at most once; what changed since is left out,
    because whoever walks is sent changes as they happen.
    """

    walk: Walk
    version: int
    waiting: list[Message] = field(default_factory=list)  # from memory, before the walk over the disk
    sent: set[bytes] = field(default_factory=set)

    @property
    def ended(self) -> bool:
        return self.walk.ended and not self.waiting


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

    def snapshot(self, topic_filter: bytes, version: int, hidden: bool = False) -> Snapshot:
        """`hidden`, with the filter `#`: topics that begin with `$` too."""
        walk = Walk(topic_filter, hidden)
        snapshot = Snapshot(walk, version)
        for topic, (offset, message) in self.pending.items():
            if offset <= version and (hidden or matches(walk.levels, topic.split(b"/"))):
                snapshot.sent.add(topic)
                if message is not None:
                    snapshot.waiting.append(message)
        return snapshot

    def next(self, snapshot: Snapshot, count: int, visits: int = 10_000) -> list[Message]:
        """Up to `count` more messages; maybe none although there are more: ask `snapshot.ended`."""
        if snapshot.waiting:
            found = snapshot.waiting[:count]
            del snapshot.waiting[:count]
            return found
        if snapshot.walk.ended:
            return []
        return [
            message
            for message in self.disk.next(snapshot.walk, count, visits)
            if message.offset <= snapshot.version
            and message.topic not in snapshot.sent
            and message.topic not in self.pending  # the disk is behind on these
        ]
