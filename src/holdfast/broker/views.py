"""Reading the retained set without being a subscriber: bounded portions of a walk, one level of the tree, a scan for
what is worth a look.

Nothing here changes anything. Every function looks at a bounded number of places, so that a caller can let the event
loop go on between two portions of a long answer.
"""

from typing import Final, final

from holdfast.broker.index import Index, Node
from holdfast.broker.message import NEVER, IndexEntry, Message
from holdfast.broker.ports import TopicCursor
from holdfast.rules.hygiene import is_command, is_discovery, is_hidden, is_named, is_stale

# Places a cursor may look at between two matches before it is asked again.
STRIDE: Final = 512
ANY: Final = -1
# Bytes of a payload that are searched in about the time of a visit, as powers of two: letters beyond ASCII take longer.
ASCII_SHIFT: Final = 11
OTHER_SHIFT: Final = 7


@final
class Search:
    """A text that is looked for in topic and payload, and with `publishers` in client id and user name too. Large and
    small letters are the same.
    """

    def __init__(self, text: str, publishers: bool) -> None:
        self.text: Final = text.casefold()
        self.is_ascii: Final = text.isascii()
        self.data: Final = (text.lower() if self.is_ascii else self.text).encode()
        self.publishers: Final = publishers

    def finds(self, message: Message) -> bool:
        if self.is_in(message.topic) or self.is_in(message.payload):
            return True
        publisher = message.publisher
        return self.publishers and (
            self.text in publisher.client_id.casefold() or self.text in publisher.username.casefold()
        )

    def effort(self, message: Message) -> int:
        """What looking into a message costs, in visits."""
        return len(message.payload) >> (ASCII_SHIFT if self.is_ascii else OTHER_SHIFT)

    def is_in(self, data: bytes) -> bool:
        if self.is_ascii or data.isascii():
            return self.data in data.lower()
        return self.text in data.decode("utf-8", "replace").casefold()


@final
class Query:
    """Which messages are wanted, beyond the topic filter. `ANY` and empty texts ask for nothing."""

    def __init__(self) -> None:
        self.contains = b""  # part of the topic
        self.search: Search | None = None
        self.client_id = ""
        self.username = ""
        self.min_size: int = ANY
        self.max_size: int = ANY
        self.stored_before_ms: int = ANY
        self.stored_after_ms: int = ANY
        self.hidden = False  # topics that begin with `$` too, with the filter `#`: how to walk, not what to want

    def wants(self, message: Message, now_ms: int) -> bool:
        if message.expires_at_ms != NEVER and message.expires_at_ms <= now_ms:
            return False
        if self.stored_before_ms != ANY and message.stored_at_ms >= self.stored_before_ms:
            return False
        if self.stored_after_ms != ANY and message.stored_at_ms < self.stored_after_ms:
            return False
        if self.client_id and message.publisher.client_id != self.client_id:
            return False
        if self.username and message.publisher.username != self.username:
            return False
        if self.min_size != ANY and len(message.payload) < self.min_size:
            return False
        if self.max_size != ANY and len(message.payload) > self.max_size:
            return False
        if self.contains and self.contains not in message.topic:
            return False
        return self.search is None or self.search.finds(message)


def collect(cursor: TopicCursor, query: Query, now_ms: int, most: int, visits: int) -> list[Message]:
    """Up to `most` more wanted messages. Fewer, maybe none, when `visits` are used up; at the end `cursor.ended`."""
    found: list[Message] = []
    while visits > 0 and len(found) < most:
        message = cursor.next(STRIDE)
        if message is None:
            if cursor.ended:
                break
            visits -= STRIDE
            continue
        visits -= max(1, cursor.visited)
        if query.search is not None:
            visits -= query.search.effort(message)
        if query.wants(message, now_ms):
            found.append(message)
    return found


@final
class Branch:
    """One child of a place in the topic tree. `count` is ANY where the walk below it was cut short."""

    def __init__(self, name: bytes, message: Message | None, is_leaf: bool) -> None:
        self.name: Final = name
        self.message: Final = message  # the topic that ends here
        self.is_leaf: Final = is_leaf
        self.count: int = ANY
        self.size: int = ANY


def find_entry(index: Index, levels: list[bytes]) -> IndexEntry | None:
    """What lies at these levels: a node, a message that is alone below them, or nothing."""
    entry: IndexEntry = index.root_of(levels[0])
    for level in levels:
        if isinstance(entry, Message):
            return None  # alone further up: its own levels decide, see `find_lone`
        assert isinstance(entry, Node)
        child = entry.children.get(level)
        if child is None:
            return None
        entry = child
    return entry


def find_lone(index: Index, levels: list[bytes]) -> Message | None:
    """The only message at or below these levels, when the index stores it at a shorter path."""
    entry: IndexEntry = index.root_of(levels[0])
    for level in levels:
        if isinstance(entry, Message):
            break
        assert isinstance(entry, Node)
        child = entry.children.get(level)
        if child is None:
            return None
        entry = child
    if isinstance(entry, Message) and entry.topic.split(b"/")[: len(levels)] == levels:
        return entry
    return None


def child_names(index: Index, levels: list[bytes]) -> list[bytes]:
    """The names one level below, in the order they came."""
    if not levels:
        return list(index.root.children) + list(index.dollar.children)
    entry = find_entry(index, levels)
    if isinstance(entry, Node):
        return list(entry.children)
    lone = find_lone(index, levels)
    if lone is not None:
        own = lone.topic.split(b"/")
        if len(own) > len(levels):
            return [own[len(levels)]]
    return []


def child_count(index: Index, levels: list[bytes]) -> int:
    if not levels:
        return len(index.root.children) + len(index.dollar.children)
    entry = find_entry(index, levels)
    if isinstance(entry, Node):
        return len(entry.children)
    return len(child_names(index, levels))


def branch(index: Index, levels: list[bytes], name: bytes) -> Branch | None:
    """One child, not yet counted; None when it has gone."""
    path = [*levels, name]
    entry = find_entry(index, path)
    if isinstance(entry, Node):
        return Branch(name, entry.value, not entry.children)
    lone = find_lone(index, path)
    if lone is None:
        return None
    ends_here = lone.topic.count(b"/") + 1 == len(path)
    found = Branch(name, lone if ends_here else None, ends_here)
    found.count = 1
    found.size = lone.size()
    return found


def count_below(index: Index, levels: list[bytes], found: Branch, visits: int) -> int:
    """Fill in what lies at and below a branch; what is left of `visits`, 0 when they did not suffice."""
    if found.count != ANY:
        return visits - 1
    entry = find_entry(index, [*levels, found.name])
    count = 0
    size = 0
    waiting: list[IndexEntry] = [] if entry is None else [entry]
    while waiting:
        below = waiting.pop()
        if isinstance(below, Message):
            count += 1
            size += below.size()
            visits -= 1
            continue
        assert isinstance(below, Node)
        if below.value is not None:
            count += 1
            size += below.value.size()
        visits -= 1
        if len(below.children) > visits:
            return 0
        waiting.extend(below.children.values())
    found.count = count
    found.size = size
    return max(visits, 0)


@final
class Tally:
    """Sums over some messages, and the newest of them."""

    def __init__(self) -> None:
        self.count = 0
        self.size = 0
        self.newest_ms = 0
        self.sample = b""

    def add(self, message: Message) -> None:
        self.count += 1
        self.size += message.size()
        if message.stored_at_ms >= self.newest_ms:
            self.newest_ms = message.stored_at_ms
            self.sample = message.topic


@final
class HygieneScan:
    """What is worth a look in the retained set, gathered in one walk. Lists hold the first `most`, counts are exact."""

    def __init__(self, now_ms: int, stale_before_ms: int, expiring_before_ms: int, depth: int, most: int) -> None:
        self.now_ms: Final = now_ms
        self.stale_before_ms: Final = stale_before_ms
        self.expiring_before_ms: Final = expiring_before_ms
        self.depth: Final = depth
        self.most: Final = most
        self.all: Final = Tally()
        self.subtrees: dict[bytes, Tally] = {}
        self.publishers: dict[str, Tally] = {}  # those that have a name
        self.stale: list[Message] = []
        self.stale_tally: Final = Tally()
        self.commands: list[Message] = []
        self.commands_tally: Final = Tally()
        self.expiring: list[Message] = []
        self.expiring_tally: Final = Tally()
        self.discovery: list[Message] = []

    def add(self, message: Message) -> None:
        topic = message.topic
        if message.expired(self.now_ms) or is_hidden(topic):
            return
        self.all.add(message)
        subtree = b"/".join(topic.split(b"/")[: self.depth])
        known = self.subtrees.get(subtree)
        if known is None:
            known = Tally()
            self.subtrees[subtree] = known
        known.add(message)
        publisher = message.publisher
        if is_named(publisher.client_id, publisher.protocol):
            known = self.publishers.get(publisher.client_id)
            if known is None:
                known = Tally()
                self.publishers[publisher.client_id] = known
            known.add(message)
        if is_stale(message.stored_at_ms, self.stale_before_ms):
            self.stale_tally.add(message)
            if len(self.stale) < self.most:
                self.stale.append(message)
        if message.expires_at_ms != NEVER and message.expires_at_ms < self.expiring_before_ms:
            self.expiring_tally.add(message)
            if len(self.expiring) < self.most:
                self.expiring.append(message)
        if is_command(topic):
            self.commands_tally.add(message)
            if len(self.commands) < self.most:
                self.commands.append(message)
        if is_discovery(topic):
            self.discovery.append(message)


def scan_some(cursor: TopicCursor, scan: HygieneScan, visits: int) -> None:
    """A portion of the walk; ask `cursor.ended` whether it was the last."""
    while visits > 0 and not cursor.ended:
        message = cursor.next(STRIDE)
        if message is None:
            visits -= STRIDE
        else:
            visits -= max(1, cursor.visited)
            scan.add(message)
