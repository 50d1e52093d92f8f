"""The retained index: a tree of topic levels that many readers can walk while it changes.

A child is a message itself as long as only one topic lies below it, and becomes a node when a second one arrives, so a
million devices with one topic each cost one tree edge each. Every node keeps its entries in numbered slots beside the
dictionary: a slot is a place that a cursor can point at. New entries are appended, removed ones leave a hole, and holes
are squeezed out under the feet of the cursors that are told about it.

Beside the tree there is a list of all messages in the order in which their topics came. Whoever wants everything walks
that: messages that were set one after another lie one after another in memory, and a walk over a million of them is
made of little else than waiting for memory.

Topics that start with `$` live under a root of their own, which wildcards in the first level never reach
[MQTT-4.7.2-1].
"""

from typing import Final, final

from holdfast.broker.message import Entry, Message
from holdfast.broker.ports import TopicCursor, TopicIndex
from holdfast.broker.topics import matches

SQUEEZE_HOLES: Final = 64
LARGE: Final = 100_000
SQUEEZE_ORDER: Final = 4096
SQUEEZE_STEP: Final = 64


@final
class Node(Entry):
    """Invariants: `children` and the filled `slots` hold the same entries; an entry's `slot` is its position."""

    def __init__(self) -> None:
        self.slot = 0
        self.value: Message | None = None  # the topic that ends here
        self.children: dict[bytes, Entry] = {}
        self.slots: list[Entry | None] = []

    def add(self, level: bytes, entry: Entry) -> None:
        entry.slot = len(self.slots)
        self.slots.append(entry)
        self.children[level] = entry

    def replace(self, level: bytes, old: Entry, new: Entry) -> None:
        new.slot = old.slot
        self.slots[old.slot] = new
        self.children[level] = new

    def drop(self, level: bytes, entry: Entry) -> None:
        self.slots[entry.slot] = None
        del self.children[level]

    def place(self, message: Message, levels: list[bytes], depth: int) -> None:
        """Put a message below this still empty node, which stands for its first `depth` levels."""
        if depth == len(levels):
            self.value = message
        else:
            self.add(levels[depth], message)


@final
class Index(TopicIndex):
    """Topic to message, in memory. Whoever walks it holds a `Cursor` and gives it back with `release`."""

    def __init__(self) -> None:
        self.root = Node()
        self.dollar = Node()
        self.order: list[Message | None] = []
        self.holes = 0  # in `order`
        self.squeezed = -1  # how far the squeezing of `order` has come; -1 = none goes on
        self.unsqueezed = 0
        self.cursors: list[Cursor] = []
        self.list_cursors: list[ListCursor] = []

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
        old = self.plant(message, levels)
        if levels[0].startswith(b"$"):
            return old
        if old is not None:
            message.place = old.place
            self.order[old.place] = message
        else:
            message.place = len(self.order)
            self.order.append(message)
        return old

    def plant(self, message: Message, levels: list[bytes]) -> Message | None:
        """Put a message into the tree; returns the one that was there."""
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
                inner.place(entry, entry.topic.split(b"/"), depth)
                node = inner
            else:
                assert isinstance(entry, Node)
                node = entry
            if depth == count:
                old = node.value
                node.value = message
                return old

    def remove(self, topic: bytes, offset: int) -> Message | None:
        old = self.uproot(topic)
        if old is not None and not topic.startswith(b"$"):
            self.order[old.place] = None
            self.holes += 1
            if self.squeezed >= 0 or (self.holes > SQUEEZE_ORDER and self.holes * 2 > len(self.order)):
                self.squeeze_order()
        return old

    def squeeze_order(self) -> None:
        """Bring together what is left, a few places at each removal: doing it at once would hold up everybody.

        Before `squeezed` all is in its new place, from there to `unsqueezed` is nothing, and behind that is the rest.
        """
        order = self.order
        if self.squeezed < 0:
            self.squeezed = 0
            self.unsqueezed = 0
        to = self.squeezed
        at = self.unsqueezed
        end = min(len(order), at + SQUEEZE_STEP)
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
                    message.place = to
                to += 1
            at += 1
        self.squeezed = to
        self.unsqueezed = at
        if at == len(order):
            self.holes -= at - to
            del order[to:]
            self.squeezed = -1

    def uproot(self, topic: bytes) -> Message | None:
        """Take a topic out of the tree; returns its message."""
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
        """Drop nodes of the path that have become empty, from the end on."""
        depth = len(path) - 1
        while depth > 0:
            node = path[depth]
            if node.value is not None or node.children:
                break
            path[depth - 1].drop(levels[depth - 1], node)
            depth -= 1
        self.squeeze(path[depth])

    def squeeze(self, node: Node) -> None:
        holes = len(node.slots) - len(node.children)
        if not node.children:
            node.slots = []
            if node.value is None:
                node.children = {}
            return
        if holes < SQUEEZE_HOLES or holes * 2 < len(node.slots):
            return
        if len(node.slots) > LARGE and holes * 4 < len(node.slots) * 3:
            return  # what is left is moved in one go, so it had better be little
        self.effort += len(node.slots)
        for cursor in self.cursors:
            cursor.on_squeeze(node)
        slots: list[Entry | None] = []
        for entry in node.slots:
            if entry is not None:
                entry.slot = len(slots)
                slots.append(entry)
        node.slots = slots
        # A dictionary never shrinks by deletion: build it anew so that a mass delete gives the memory back.
        node.children = dict(node.children)

    def cursor(self, topic_filter: bytes, version: int) -> TopicCursor:
        if topic_filter == b"#" or topic_filter == b"+/#":
            list_cursor = ListCursor(self)
            self.list_cursors.append(list_cursor)
            return list_cursor
        cursor = Cursor(self, topic_filter.split(b"/"))
        self.cursors.append(cursor)
        return cursor

    def everything(self) -> TopicCursor:
        cursor = Cursor(self, [b"#"])
        cursor.push(self.dollar, -1)
        self.cursors.append(cursor)
        return cursor

    def release(self, cursor: TopicCursor) -> None:
        for i in range(len(self.list_cursors)):
            if self.list_cursors[i] is cursor:
                del self.list_cursors[i]
                return
        for i in range(len(self.cursors)):
            if self.cursors[i] is cursor:
                del self.cursors[i]
                return


@final
class ListCursor(TopicCursor):
    """The walk over everything but `$` topics."""

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
                self.position = position
                return message
        self.position = position
        if position >= len(order):
            self.ended = True
        return None

    def passed(self, topic_levels: list[bytes]) -> bool:
        message = self.index.get(b"/".join(topic_levels))
        return message is None or message.place < self.position


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

    def enter(self, entry: Entry, depth: int) -> Message | None:
        """Follow the filter from an entry that matches its first `depth` levels."""
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
        first = self.first
        if first is not None:
            self.first = None
            current = self.index.get(first.topic)  # it may have been replaced or deleted since
            if current is not None:
                return current
        while visits > 0:
            node = self.node
            if node is None:
                self.ended = True
                return None
            visits -= 1
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
                    return entry
                assert isinstance(entry, Node)
                self.push(entry, -1)
                found = entry.value
            else:
                found = self.enter(entry, self.depth + 1)
            if found is not None:
                return found
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

    def on_squeeze(self, node: Node) -> None:
        """The holes of `node` are about to go: keep pointing at the same entry."""
        if self.node is node:
            self.position = entries_before(node, self.position)
        for frame in range(len(self.nodes)):
            if self.nodes[frame] is node:
                self.positions[frame] = entries_before(node, self.positions[frame])


def entries_before(node: Node, position: int) -> int:
    count = 0
    for i in range(min(position, len(node.slots))):
        if node.slots[i] is not None:
            count += 1
    return count
