"""Keys and values of the LMDB tables.

Every value carries a checksum of its key and itself in front, since LMDB has none: a flipped bit costs one entry, which
is noticed, and not the answer.

A retained message is stored under its topic with `/` as a zero byte, which no topic contains: then keys sort as the
tree of levels does, and everything below a level is one stretch of keys. LMDB limits keys to 511 bytes; a longer topic
is cut, and completed by a hash behind a byte that never occurs in UTF-8.
"""

import struct
from hashlib import sha256

import google_crc32c

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
    """A value as it is stored."""
    checksum: int = google_crc32c.value(key + value)
    return checksum.to_bytes(4, "little") + value


def unseal(key: bytes, stored: bytes) -> bytes:
    """The value that was stored; raises when it is not what was."""
    value = stored[CHECKSUM_SIZE:]
    if google_crc32c.value(key + value).to_bytes(4, "little") != stored[:CHECKSUM_SIZE]:
        raise StoreError(f"stored value of {len(stored)} bytes under key {key[:40]!r} fails its checksum")
    return value


def topic_key(topic: bytes) -> bytes:
    key = topic.replace(b"/", b"\0")
    if len(key) > LONG_PREFIX:
        return key[:LONG_PREFIX] + LONG_MARK + sha256(topic).digest()
    return key


def key_topic(key: bytes) -> bytes:
    """The topic of a key that is not a long one."""
    return key.replace(b"\0", b"/")


def is_long_key(key: bytes) -> bool:
    return len(key) == KEY_MAX and key[LONG_PREFIX : LONG_PREFIX + 1] == LONG_MARK


def filter_key(session_id: int, topic_filter: bytes) -> bytes:
    """The key of a subscription; the filter itself is in the value when it does not fit."""
    name = topic_filter if len(topic_filter) <= 480 else sha256(topic_filter).digest()
    return NUMBER.pack(session_id) + name
