"""Keys, values and tables of LMDB: how an entry is stored, and a table with the changes of one batch in front of it.

Every value carries a checksum of its key and itself in front, since LMDB has none: a flipped bit costs one entry, which
is noticed, and not the answer.

A retained message is stored under its topic with `/` as a zero byte, which no topic contains: then keys sort as the
tree of levels does, and everything below a level is one range of keys. LMDB limits keys to 511 bytes; a longer topic is
cut, and completed by a hash after a byte that never occurs in UTF-8.

A batch of records is folded in memory and written at its end, in key order. A message that was queued and acknowledged
within one batch therefore never reaches a page, which is the usual life of a message for a connected client.
"""

import struct

import google_crc32c
from lmdb import Transaction, _Database

from holdfast.errors import StoreError

FORMAT = 1

KEY_MAX = 511
LONG_MARK = b"\xff"
LONG_PREFIX = KEY_MAX - 33

NUMBER = struct.Struct(">Q")  # big-endian in keys, so that they sort as numbers
PAIR = struct.Struct(">QQ")
PACKET_ID = struct.Struct(">QH")
REFERENCES = struct.Struct("<I")
STATISTICS = struct.Struct("<QQQ")
# message offset, flags, packet id, stage, number of subscription ids; then those, four bytes each
QUEUED = struct.Struct("<QBHBB")
SUBSCRIPTION_ID = struct.Struct("<I")

CHECKSUM_SIZE = 4


def seal(key: bytes, value: bytes) -> bytes:
    """Returns a value as it is stored."""
    checksum: int = google_crc32c.value(key + value)
    return checksum.to_bytes(4, "little") + value


def unseal(key: bytes, stored: bytes) -> bytes:
    """Returns the value that was stored. Raises StoreError when it is damaged."""
    value = stored[CHECKSUM_SIZE:]
    if google_crc32c.value(key + value).to_bytes(4, "little") != stored[:CHECKSUM_SIZE]:
        raise StoreError(f"stored value of {len(stored)} bytes under key {key[:40]!r} fails its checksum")
    return value


def long_name(text: bytes) -> bytes:
    """Returns what stands in a key for a name that is too long for one."""
    from hashlib import sha256  # half a megabyte, and most brokers have no such name

    return sha256(text).digest()


def topic_key(topic: bytes) -> bytes:
    key = topic.replace(b"/", b"\0")
    if len(key) > LONG_PREFIX:
        return key[:LONG_PREFIX] + LONG_MARK + long_name(topic)
    return key


def key_topic(key: bytes) -> bytes:
    """Returns the topic of a key that is not a long one."""
    return key.replace(b"\0", b"/")


def is_long_key(key: bytes) -> bool:
    return len(key) == KEY_MAX and key[LONG_PREFIX : LONG_PREFIX + 1] == LONG_MARK


def filter_key(session_id: int, topic_filter: bytes) -> bytes:
    """Returns the key of a subscription; the filter itself is in the value when it does not fit."""
    name = topic_filter if len(topic_filter) <= 480 else long_name(topic_filter)
    return NUMBER.pack(session_id) + name


class Table:
    """One table as this batch sees it. Values go in and come out without their checksum."""

    def __init__(self, txn: "Transaction[bytes]", db: _Database) -> None:
        self.txn = txn
        self.db = db
        self.changes: dict[bytes, bytes | None] = {}
        self.new: set[bytes] = set()  # keys that are in `changes` and were never written

    def get(self, key: bytes) -> bytes | None:
        if key in self.changes:
            return self.changes[key]
        stored = self.txn.get(key, db=self.db)
        if stored is None:
            return None
        try:
            return unseal(key, stored)
        except StoreError:
            return None  # a check of the table finds and reports it; here it must not stop the fold

    def put(self, key: bytes, value: bytes) -> None:
        self.changes[key] = value

    def put_new(self, key: bytes, value: bytes) -> None:
        """Puts a value under a key that cannot have been used before."""
        self.changes[key] = value
        self.new.add(key)

    def delete(self, key: bytes) -> None:
        if key in self.new:
            self.new.discard(key)
            del self.changes[key]
        else:
            self.changes[key] = None

    def delete_prefix(self, prefix: bytes) -> list[bytes]:
        """Deletes every key that starts with `prefix`, and returns the values that were there."""
        self.flush()
        values: list[bytes] = []
        with self.txn.cursor(self.db) as cursor:
            found = cursor.set_range(prefix)
            while found and cursor.key().startswith(prefix):
                values.append(cursor.value()[CHECKSUM_SIZE:])
                cursor.delete()
                found = bool(cursor.key())
        return values

    def flush(self) -> None:
        for key in sorted(self.changes):
            value = self.changes[key]
            if value is None:
                self.txn.delete(key, db=self.db)
            else:
                self.txn.put(key, seal(key, value), db=self.db)
        self.changes.clear()
        self.new.clear()
