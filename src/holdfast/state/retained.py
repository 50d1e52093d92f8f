"""The retained set on disk: look up, walk by topic filter, load as a whole, purge what has expired.

Reads see what has been applied. A broker that keeps no messages in memory puts `RetainedView` in front, which holds
what has been accepted and is not applied yet.

Keys sort as the tree of topic levels does. A walk starts at the filter's literal beginning and, where a topic does not
match, jumps to the next key that could, so `a/+/c` does not visit everything below `a`. No transaction stays open
between two batches: a walk is a key, and costs nothing while its reader is slow.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

import google_crc32c
from lmdb import Cursor, Transaction

from holdfast.broker.message import Message, topic_field
from holdfast.broker.records import (
    Publishers,
    decode_publish,
    decode_without_topic,
    publish_topic,
    record_offset,
)
from holdfast.broker.session import NO_ONE
from holdfast.broker.topics import matches
from holdfast.errors import StoreError
from holdfast.state.environment import Environment
from holdfast.state.fold import Statistics, read_statistics, write_statistics
from holdfast.state.tables import (
    CHECKSUM_SIZE,
    KEY_MAX,
    LONG_PREFIX,
    PAIR,
    is_long_key,
    key_topic,
    topic_key,
    unseal,
)

# What is read of values at once: a walk holds that much, and a start some more.
WALK_BYTES = 256 << 10
LOAD_BYTES = 64 << 20

AFTER_SEPARATOR = b"\x01"
AFTER_DOLLAR = b"%"


@dataclass
class Walk:
    """A position in the walk over the topics that match a filter. `key` is where to go on."""

    topic_filter: bytes
    hidden: bool = False  # with `#`: topics that begin with `$` too
    levels: list[bytes] = field(init=False)
    prefix: bytes = field(init=False)  # every key that can match starts with this
    key: bytes = field(init=False)
    anywhere: bool = field(init=False)  # the filter begins with a wildcard; an empty first level is not that
    matches_rest: bool = field(init=False)  # the filter is a literal beginning and `#`: what has the prefix matches
    ended: bool = False
    visited: int = 0  # keys that the last step has looked at

    def __post_init__(self) -> None:
        self.levels = self.topic_filter.split(b"/")
        literal: list[bytes] = []
        for level in self.levels:
            if level in (b"+", b"#"):
                break
            literal.append(level)
        self.anywhere = not literal
        self.matches_rest = self.levels[-1] == b"#" and len(literal) == len(self.levels) - 1
        # Keys of long topics are cut, so a longer beginning than they have would miss them.
        self.prefix = self.key = b"\0".join(literal)[:LONG_PREFIX]

    def outside(self, key: bytes) -> bool:
        """Whether no key from this one on can match."""
        if self.anywhere:
            return False
        prefix = self.prefix
        if not key.startswith(prefix):
            return key > prefix
        return len(prefix) < LONG_PREFIX and key > prefix + AFTER_SEPARATOR


def next_candidate(filter_levels: list[bytes], key: bytes) -> bytes | None:
    """Returns the smallest key that could match and is greater than `key`, whose topic does not; None for the next one.

    `key` is no long one, so its levels are all there.
    """
    candidate = after_mismatch(filter_levels, key)
    return candidate if candidate is not None and key < candidate and len(candidate) <= KEY_MAX else None


def after_mismatch(filter_levels: list[bytes], key: bytes) -> bytes | None:
    levels = key.split(b"\0")
    if levels[0].startswith(b"$") and filter_levels[0] in (b"+", b"#"):
        return AFTER_DOLLAR
    for depth, wanted in enumerate(filter_levels):
        if wanted == b"#":
            return None
        if depth >= len(levels):
            # The topic is too short. What lies below it comes next, and begins with the levels that are still wanted.
            return None
        if wanted != b"+" and wanted != levels[depth]:
            above = levels[:depth]
            if levels[depth] < wanted:
                return b"\0".join([*above, wanted])
            # Everything below `above` with a later level is too late: go behind all of it.
            return b"\0".join(above) + AFTER_SEPARATOR if above else None
    # The topic is longer than the filter: go behind everything below the levels that matched.
    return b"\0".join(levels[: len(filter_levels)]) + AFTER_SEPARATOR


def seek(cursor: "Cursor[bytes]", key: bytes) -> bool:
    return cursor.set_range(key) if key else cursor.first()


class Retained:
    """`damaged` counts values that failed their checksum and were left out."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.db = environment.db["retained"]
        self.publishers = Publishers()
        self.damaged = 0

    def statistics(self) -> Statistics:
        return self.environment.read(lambda txn: read_statistics(txn, self.environment))

    def get(self, topic: bytes) -> Message | None:
        key = topic_key(topic)
        stored = self.environment.read(lambda txn: txn.get(key, db=self.db))
        return None if stored is None else self.decode(key, stored)

    def decode(self, key: bytes, stored: bytes) -> Message | None:
        """Returns None when the value is damaged: the topic then reads as not retained."""
        try:
            value = unseal(key, stored)
            if is_long_key(key):
                return decode_publish(value, self.publishers)
            return decode_without_topic(value, key_topic(key), self.publishers)
        except (StoreError, ValueError):
            self.damaged += 1
            return None

    def all(self, size: int = 50_000) -> Iterator[list[Message]]:
        """Yields every message, in key order, in lists. For loading at the start: nothing may be applied meanwhile."""
        key = b""
        while True:
            rows = self.environment.read(partial(self.rows, key=key, count=size, most_bytes=LOAD_BYTES, behind=True))
            if not rows:
                return
            yield self.decode_all(rows)
            key = rows[-1][0]

    def decode_all(self, rows: list[tuple[bytes, bytes]]) -> list[Message]:
        """As `decode` for each, without those that are damaged; a start does this for every message there is."""
        messages: list[Message] = []
        publishers = self.publishers
        for key, stored in rows:
            value = stored[CHECKSUM_SIZE:]
            found: Message | None
            if len(key) < KEY_MAX and stored[:CHECKSUM_SIZE] == google_crc32c.value(key + value).to_bytes(4, "little"):
                try:
                    found = decode_without_topic(value, key.replace(b"\0", b"/"), publishers)
                except (StoreError, ValueError):
                    found = self.decode(key, stored)
            else:
                found = self.decode(key, stored)
            if found is not None:
                messages.append(found)
        return messages

    def expiring(self) -> Iterator[Message]:
        """Yields every message that will expire, without its payload.

        For the start: nothing may be applied meanwhile.
        """
        rows = self.environment.read(self.expiry_rows)
        for expires_at_ms, offset, key in rows:
            if is_long_key(key):
                stored = self.environment.read(partial(self.value, key=key))
                if stored is None:
                    continue
                topic = publish_topic(stored[CHECKSUM_SIZE:])
            else:
                topic = key_topic(key)
            yield Message(topic_field(topic), b"", 0, True, b"", NO_ONE, offset, 0, expires_at_ms, False)

    def value(self, txn: "Transaction[bytes]", key: bytes) -> bytes | None:
        return txn.get(key, db=self.db)

    def expiry_rows(self, txn: "Transaction[bytes]") -> list[tuple[int, int, bytes]]:
        rows: list[tuple[int, int, bytes]] = []
        with txn.cursor(self.environment.db["expiry"]) as cursor:
            for at, stored in cursor.iternext():
                expires_at_ms, offset = PAIR.unpack(at)
                rows.append((expires_at_ms, offset, stored[CHECKSUM_SIZE:]))
        return rows

    def rows(
        self, txn: "Transaction[bytes]", key: bytes, count: int, most_bytes: int, behind: bool = False
    ) -> list[tuple[bytes, bytes]]:
        """Returns up to `count` rows from a key on, or from `behind` it, and no more once they have so many bytes."""
        found: list[tuple[bytes, bytes]] = []
        size = 0
        with txn.cursor(self.db) as cursor:
            more = seek(cursor, key)
            if more and behind and cursor.key() == key:
                more = cursor.next()
            if more:
                for row in islice(cursor.iternext(), count):
                    found.append(row)
                    size += len(row[1])
                    if size >= most_bytes:
                        break
        return found

    def next(self, walk: Walk, count: int, visits: int) -> list[Message]:
        """Returns up to `count` more messages of a walk, after at most `visits` keys, fewer where they are large. Check
        `walk.ended`.
        """
        return self.environment.read(lambda txn: self.advance(txn, walk, count, visits))

    def advance(self, txn: "Transaction[bytes]", walk: Walk, count: int, visits: int) -> list[Message]:
        if walk.matches_rest and len(walk.prefix) < LONG_PREFIX:
            return self.advance_through(txn, walk, min(count, visits))
        found: list[Message] = []
        size = 0
        levels = walk.levels
        walk.visited = 0
        with txn.cursor(self.db) as cursor:
            more = seek(cursor, walk.key)
            while more:
                key = cursor.key()
                if walk.outside(key):
                    more = False
                    break
                if len(found) >= count or walk.visited >= visits or size >= WALK_BYTES:
                    walk.key = key
                    return found
                walk.visited += 1
                long = is_long_key(key)
                topic = publish_topic(cursor.value()[CHECKSUM_SIZE:]) if long else key_topic(key)
                if matches(levels, topic.split(b"/")):
                    message = self.decode(key, cursor.value())
                    if message is not None:
                        found.append(message)
                        size += message.size()
                    more = cursor.next()
                    continue
                candidate = None if long else next_candidate(levels, key)
                more = cursor.next() if candidate is None else cursor.set_range(candidate)
        walk.ended = True
        return found

    def advance_through(self, txn: "Transaction[bytes]", walk: Walk, count: int) -> list[Message]:
        """Does the same for a filter that matches everything from its prefix on."""
        if walk.anywhere and not walk.hidden and walk.key[:1] == b"$":
            walk.key = AFTER_DOLLAR  # a wildcard in the first level does not take these [MQTT-4.7.2-1]
        rows = self.rows(txn, walk.key, count, WALK_BYTES)
        walk.visited = len(rows)
        following = self.rows(txn, rows[-1][0], 1, 0, behind=True) if rows else []
        if following:
            walk.key = following[0][0]
        else:
            walk.ended = True
        found: list[Message] = []
        for key, stored in rows:
            if not walk.anywhere:
                if walk.outside(key):
                    walk.ended = True
                    break
                if key != walk.prefix and not key.startswith(walk.prefix + b"\0"):
                    continue  # a level that begins with the last one of the prefix
            elif key[:1] == b"$" and not walk.hidden:
                walk.key = AFTER_DOLLAR
                walk.ended = False
                break
            message = self.decode(key, stored)
            if message is not None:
                found.append(message)
        return found

    def purge(self, now_ms: int, most: int = 10_000) -> int:
        """Deletes up to `most` messages that have expired, and returns how many there were."""
        return self.environment.write(lambda txn: self.purge_in(txn, now_ms, most))

    def purge_in(self, txn: "Transaction[bytes]", now_ms: int, most: int) -> int:
        statistics = read_statistics(txn, self.environment)
        count = 0
        with txn.cursor(self.environment.db["expiry"]) as cursor:
            found = cursor.first()
            while found and count < most:
                at, stored = cursor.item()
                expires_at_ms, offset = PAIR.unpack(at)
                if expires_at_ms > now_ms:
                    break
                key = stored[CHECKSUM_SIZE:]
                value = txn.get(key, db=self.db)
                if value is not None and record_offset(value[CHECKSUM_SIZE:]) == offset:
                    txn.delete(key, db=self.db)
                    statistics.add(-1, -(len(key) + len(value) - CHECKSUM_SIZE))
                    count += 1
                cursor.delete()
                found = bool(cursor.key())
        if count:
            write_statistics(txn, self.environment, statistics)
        return count
