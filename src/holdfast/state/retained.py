"""The retained set on disk: look up, walk by topic filter, load as a whole, purge what has expired.

Reads see what has been applied. A broker that keeps no messages in memory puts `Overlay` in front, which holds what has
been accepted and is not applied yet.
"""

from collections.abc import Iterator
from functools import partial
from itertools import islice

import google_crc32c
from lmdb import Transaction

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
from holdfast.state.formats import (
    CHECKSUM_SIZE,
    KEY_MAX,
    LONG_PREFIX,
    PAIR,
    is_long_key,
    key_topic,
    topic_key,
    unseal,
)
from holdfast.state.scan import AFTER_DOLLAR, Walk, next_candidate, seek


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
        """None when the value is damaged: the topic then reads as not retained."""
        try:
            value = unseal(key, stored)
            if is_long_key(key):
                return decode_publish(value, self.publishers)
            return decode_without_topic(value, key_topic(key), self.publishers)
        except (StoreError, ValueError):
            self.damaged += 1
            return None

    def all(self, stretch: int = 50_000) -> Iterator[list[Message]]:
        """Every message, in key order, in lists. For loading at the start: nothing may be applied meanwhile."""
        key = b""
        while True:
            rows = self.environment.read(partial(self.stretch, key=key, count=stretch))
            if not rows:
                return
            yield self.decode_all(rows)
            key = rows[-1][0] + b"\0"

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
        """Every message that will expire, without its payload. For the start: nothing may be applied meanwhile."""
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

    def stretch(self, txn: "Transaction[bytes]", key: bytes, count: int) -> list[tuple[bytes, bytes]]:
        with txn.cursor(self.db) as cursor:
            if not seek(cursor, key):
                return []
            return list(islice(cursor.iternext(), count))

    def next(self, walk: Walk, count: int, visits: int) -> list[Message]:
        """Up to `count` more messages of a walk, after looking at no more than `visits` keys. Check `walk.ended`."""
        return self.environment.read(lambda txn: self.advance(txn, walk, count, visits))

    def advance(self, txn: "Transaction[bytes]", walk: Walk, count: int, visits: int) -> list[Message]:
        if walk.takes_all and len(walk.prefix) < LONG_PREFIX:
            return self.advance_through(txn, walk, min(count, visits))
        found: list[Message] = []
        levels = walk.levels
        with txn.cursor(self.db) as cursor:
            more = seek(cursor, walk.key)
            while more:
                key = cursor.key()
                if walk.outside(key):
                    more = False
                    break
                if len(found) >= count or visits <= 0:
                    walk.key = key
                    return found
                visits -= 1
                long = is_long_key(key)
                topic = publish_topic(cursor.value()[CHECKSUM_SIZE:]) if long else key_topic(key)
                if matches(levels, topic.split(b"/")):
                    message = self.decode(key, cursor.value())
                    if message is not None:
                        found.append(message)
                    more = cursor.next()
                    continue
                candidate = None if long else next_candidate(levels, key)
                more = cursor.next() if candidate is None else cursor.set_range(candidate)
        walk.ended = True
        return found

    def advance_through(self, txn: "Transaction[bytes]", walk: Walk, count: int) -> list[Message]:
        """The same for a filter that takes everything from its prefix on."""
        if walk.anywhere and not walk.hidden and walk.key[:1] == b"$":
            walk.key = AFTER_DOLLAR  # a wildcard in the first level does not take these [MQTT-4.7.2-1]
        rows = self.stretch(txn, walk.key, count + 1)
        if len(rows) <= count:
            walk.ended = True
        else:
            walk.key = rows.pop()[0]
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
        """Delete up to `most` messages that have expired; how many there were."""
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
