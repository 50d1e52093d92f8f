"""The retained index: a tree of topic levels that many readers can walk while it changes.

A child is a message itself as long as only one topic lies below it, and becomes a node when a second one arrives, so a
million devices with one topic each cost one tree edge each. Every node keeps its entries in numbered slots beside the
dictionary: a slot is a position that a cursor can point at. New entries are appended, deleted ones leave a hole, and
a node with many holes is compacted, of which its cursors are told.

Beside the tree there is a list of all messages in the order in which their topics came. A walk over everything follows
that list: messages that were set one after another lie one after another in memory, and a walk over a million of them
does little else than wait for memory.

Topics that start with `$` live under a root of their own, which wildcards in the first level never reach
[MQTT-4.7.2-1].
"""

from typing import Final, final

from holdfast.broker.message import IndexEntry, Message
from holdfast.broker.ports import TopicCursor, TopicIndex
from holdfast.broker.topics import matches

COMPACT_HOLES: Final = 64
LARGE: Final = 100_000
COMPACT_ORDER: Final = 4096
COMPACT_STEP: Final = 64


@final
class Node(IndexEntry):
    """Invariants: `children` and the filled `slots` hold the same entries; an entry's `slot` is its position."""

    def __init__(self) -> None:
        self.slot = 0
        self.value: Message | None = None  # the topic that ends here
        self.children: dict[bytes, IndexEntry] = {}
        self.slots: list[IndexEntry | None] = []

    def add(self, level: bytes, entry: IndexEntry) -> None:
        entry.slot = len(self.slots)
        self.slots.append(entry)
        self.children[level] = entry

    def replace(self, level: bytes, old: IndexEntry, new: IndexEntry) -> None:
        new.slot = old.slot
        self.slots[old.slot] = new
        self.children[level] = new

    def drop(self, level: bytes, entry: IndexEntry) -> None:
        self.slots[entry.slot] = None
        del self.children[level]

    def insert(self, message: Message, levels: list[bytes], depth: int) -> None:
        """Insert a message below this still empty node, which stands for the first `depth` levels of its topic."""
        if depth == len(levels):
            self.value = message
        else:
            self.add(levels[depth], message)


@final
class Index(TopicIndex):
    """Topic to message, in memory. A walk over it is a cursor, which has to be given back with `release`."""

    def __init__(self) -> None:
        self.root = Node()
        self.dollar = Node()
        self.order: list[Message | None] = []
        self.holes = 0  # in `order`
        self.compacted = -1  # how far the compaction of `order` has come; -1: none goes on
        self.uncompacted = 0
        self.cursors: dict[Cursor, None] = {}
        self.list_cursors: dict[ListCursor, None] = {}

    def root_of(self, level: bytes) -> Node:
        return self.dollar if level.startswith(b"$") else self.root

    def get(self, topic: bytes) -> Message | None:
        levels = topic.split(b"/")
        node = self.root_of(levels[0])
        for level in levels:
            entry = node.children.get(level)
            if entry is None:
                return None
            if isinstance(entry, Message):
                return entry if entry.topic == topic else None
            assert isinstance(entry, Node)
            node = entry
        return node.value

    def put(self, message: Message, levels: list[bytes]) -> Message | None:
        old = self.insert(message, levels)
        if levels[0].startswith(b"$"):
            return old
        if old is not None:
            message.list_position = old.list_position
            self.order[old.list_position] = message
        else:
            message.list_position = len(self.order)
            self.order.append(message)
        return old

    def insert(self, message: Message, levels: list[bytes]) -> Message | None:
        """Insert a message into the tree; returns the message of the same topic that it replaces, if any."""
        node = self.root_of(levels[0])
        depth = 0
        count = len(levels)
        while True:
            level = levels[depth]
            entry = node.children.get(level)
            if entry is None:
                node.add(level, message)
                return None
            depth += 1
            if isinstance(entry, Message):
                if entry.topic_field == message.topic_field:
                    node.replace(level, entry, message)
                    return entry
                inner = Node()
                node.replace(level, entry, inner)
                inner.insert(entry, entry.topic.split(b"/"), depth)
                node = inner
            else:
                assert isinstance(entry, Node)
                node = entry
            if depth == count:
                old = node.value
                node.value = message
                return old

    def remove(self, topic: bytes, offset: int) -> Message | None:
        old = self.delete(topic)
        if old is not None and not topic.startswith(b"$"):
            self.order[old.list_position] = None
            self.holes += 1
            if self.compacted >= 0 or (self.holes > COMPACT_ORDER and self.holes * 2 > len(self.order)):
                self.compact_order()
        return old

    def compact_order(self) -> None:
        """Close the holes in `order`, some positions at each removal: doing it at once would hold up all clients.

        Up to `compacted` every message is in its new position, from there to `uncompacted` is nothing, and after that
        is the rest.
        """
        order = self.order
        if self.compacted < 0:
            self.compacted = 0
            self.uncompacted = 0
        to = self.compacted
        at = self.uncompacted
        end = min(len(order), at + COMPACT_STEP)
        for cursor in self.list_cursors:
            if to < cursor.position <= end:
                position = to
                for i in range(at, cursor.position):
                    if order[i] is not None:
                        position += 1
                cursor.position = position
        while at < end:
            message = order[at]
            if message is not None:
                if to < at:
                    order[at] = None
                    order[to] = message
                    message.list_position = to
                to += 1
            at += 1
        self.compacted = to
        self.uncompacted = at
        if at == len(order):
            self.holes -= at - to
            del order[to:]
            self.compacted = -1

    def delete(self, topic: bytes) -> Message | None:
        """Delete a topic from the tree; returns its message, or None when there is none."""
        levels = topic.split(b"/")
        node = self.root_of(levels[0])
        path: list[Node] = []
        for level in levels:
            path.append(node)
            entry = node.children.get(level)
            if entry is None:
                return None
            if isinstance(entry, Message):
                if entry.topic != topic:
                    return None
                node.drop(level, entry)
                self.prune(path, levels)
                return entry
            assert isinstance(entry, Node)
            node = entry
        old = node.value
        node.value = None
        path.append(node)
        self.prune(path, levels)
        return old

    def prune(self, path: list[Node], levels: list[bytes]) -> None:
        """Drop the nodes of a path that have become empty, from its end on, and compact the one that is left."""
        depth = len(path) - 1
        while depth > 0:
            node = path[depth]
            if node.value is not None or node.children:
                break
            path[depth - 1].drop(levels[depth - 1], node)
            depth -= 1
        self.compact(path[depth])

    def compact(self, node: Node) -> None:
        """Close the holes in the slots of a node, if they are many."""
        holes = len(node.slots) - len(node.children)
        if not node.children:
            node.slots = []
            if node.value is None:
                node.children = {}
            return
        if holes < COMPACT_HOLES or holes * 2 < len(node.slots):
            return
        if len(node.slots) > LARGE and holes * 4 < len(node.slots) * 3:
            return  # all that is left is moved at once, so it has to be little
        self.compaction_cost += len(node.slots)
        for cursor in self.cursors:
            cursor.on_compact(node)
        slots: list[IndexEntry | None] = []
        for entry in node.slots:
            if entry is not None:
                entry.slot = len(slots)
                slots.append(entry)
        node.slots = slots
        # A dictionary never shrinks by deletion: build another, so that a mass delete gives the memory back.
        node.children = dict(node.children)

    def cursor(self, topic_filter: bytes, version: int) -> TopicCursor:
        if topic_filter == b"#" or topic_filter == b"+/#":
            list_cursor = ListCursor(self)
            self.list_cursors[list_cursor] = None
            return list_cursor
        cursor = Cursor(self, topic_filter.split(b"/"))
        self.cursors[cursor] = None
        return cursor

    def everything(self) -> TopicCursor:
        cursor = Cursor(self, [b"#"])
        cursor.push(self.dollar, -1)
        self.cursors[cursor] = None
        return cursor

    def release(self, cursor: TopicCursor) -> None:
        if isinstance(cursor, ListCursor):
            self.list_cursors.pop(cursor, None)
        elif isinstance(cursor, Cursor):
            self.cursors.pop(cursor, None)


@final
class ListCursor(TopicCursor):
    """A position in the walk over everything but `$` topics."""

    def __init__(self, index: Index) -> None:
        super().__init__()
        self.index = index
        self.position = 0

    def next(self, visits: int) -> Message | None:
        order = self.index.order
        position = self.position
        end = min(len(order), position + visits)
        while position < end:
            message = order[position]
            position += 1
            if message is not None:
                self.visited = position - self.position
                self.position = position
                return message
        self.visited = position - self.position
        self.position = position
        if position >= len(order):
            self.ended = True
        return None

    def passed(self, topic_levels: list[bytes]) -> bool:
        message = self.index.get(b"/".join(topic_levels))
        return message is None or message.list_position < self.position


@final
class Cursor(TopicCursor):
    """A position in the walk over all topics that match a filter, in memory of the order of the tree's depth.

    A frame is a node whose slots are being walked, the next slot, and the number of levels matched so far, or -1 where
    a `#` takes everything below. The innermost frame is in `node`, `position` and `depth`; the lists hold the others.
    """

    def __init__(self, index: Index, levels: list[bytes]) -> None:
        super().__init__()
        self.index = index
        self.levels = levels
        self.node: Node | None = None
        self.position = 0
        self.depth = 0
        self.nodes: list[Node] = []
        self.positions: list[int] = []
        self.depths: list[int] = []
        self.first = self.enter(index.root_of(levels[0]), 0)

    def push(self, node: Node, depth: int) -> None:
        outer = self.node
        if outer is not None:
            self.nodes.append(outer)
            self.positions.append(self.position)
            self.depths.append(self.depth)
        self.node = node
        self.position = 0
        self.depth = depth

    def pop(self) -> None:
        if self.nodes:
            self.node = self.nodes.pop()
            self.position = self.positions.pop()
            self.depth = self.depths.pop()
        else:
            self.node = None

    def enter(self, entry: IndexEntry, depth: int) -> Message | None:
        """Follow the filter from an entry that matches its first `depth` levels.

        Returns the message there, if the filter matches one; what else lies below is a new frame of the cursor.
        """
        levels = self.levels
        while True:
            if isinstance(entry, Message):
                return entry if matches(levels, entry.topic.split(b"/"), depth) else None
            assert isinstance(entry, Node)
            if depth == len(levels):
                return entry.value
            level = levels[depth]
            if level == b"#":
                self.push(entry, -1)
                return entry.value
            if level == b"+":
                self.push(entry, depth)
                return None
            child = entry.children.get(level)
            if child is None:
                return None
            entry = child
            depth += 1

    def next(self, visits: int) -> Message | None:
        self.visited = 1
        first = self.first
        if first is not None:
            self.first = None
            current = self.index.get(first.topic)  # it may have been replaced or deleted since
            if current is not None:
                return current
        left = visits
        while left > 0:
            node = self.node
            if node is None:
                self.ended = True
                return None
            left -= 1
            position = self.position
            if position >= len(node.slots):
                self.pop()
                continue
            self.position = position + 1
            entry = node.slots[position]
            if entry is None:
                continue
            if self.depth < 0:
                if isinstance(entry, Message):
                    self.visited = visits - left
                    return entry
                assert isinstance(entry, Node)
                self.push(entry, -1)
                found = entry.value
            else:
                found = self.enter(entry, self.depth + 1)
            if found is not None:
                self.visited = visits - left
                return found
        self.visited = visits
        return None

    def passed(self, topic_levels: list[bytes]) -> bool:
        if self.first is not None and self.first.topic.split(b"/") == topic_levels:
            return False
        level = 0
        outer_depth = 0
        for frame in range(self.frame_count()):
            depth = self.depth_of(frame)
            if depth >= 0:
                level = depth
            elif frame == 0 or outer_depth >= 0:
                level = len(self.levels) - 1
            else:
                level += 1
            outer_depth = depth
            if level >= len(topic_levels):
                return True  # the topic ends at this node, whose own value came before its slots
            entry = self.node_of(frame).children.get(topic_levels[level])
            if entry is None:
                return True
            current = self.position_of(frame) - 1
            if entry.slot != current:
                return entry.slot < current
        return True

    def frame_count(self) -> int:
        return len(self.nodes) + (1 if self.node is not None else 0)

    def node_of(self, frame: int) -> Node:
        if frame < len(self.nodes):
            return self.nodes[frame]
        assert self.node is not None
        return self.node

    def position_of(self, frame: int) -> int:
        return self.positions[frame] if frame < len(self.nodes) else self.position

    def depth_of(self, frame: int) -> int:
        return self.depths[frame] if frame < len(self.nodes) else self.depth

    def on_compact(self, node: Node) -> None:
        """Keep pointing at the same entry of a node whose holes are about to be closed."""
        if self.node is node:
            self.position = entries_before(node, self.position)
        for frame in range(len(self.nodes)):
            if self.nodes[frame] is node:
                self.positions[frame] = entries_before(node, self.positions[frame])


def entries_before(node: Node, position: int) -> int:
    """Return how many entries there are in the slots before a position."""
    count = 0
    for i in range(min(position, len(node.slots))):
        if node.slots[i] is not None:
            count += 1
    return count
