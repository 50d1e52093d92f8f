"""What happened, as bytes: the records that the core asks the log to keep and that every fold reads back.

A record starts with its own format version, its kind and its offset; the rest depends on the kind. It carries no length
and no checksum: those belong to the storage. All integers are little-endian, texts are UTF-8.

Fields may be added at the end of a fixed part together with a new version number; they never move. The records about
sessions and their snapshots stand in `session_records.py`.
"""

import struct
from typing import Final, final

from librt.strings import read_i32_le, read_i64_le, write_i32_le, write_i64_le

from holdfast.broker.batch import LENGTH_SIZE, Batch
from holdfast.broker.message import CLEARED, NEVER, SET, Message, Publisher, topic_field
from holdfast.errors import StoreError

VERSION: Final = 1

# Kinds. 0 to 15 belong to the log itself.
PUBLISH: Final = 16
SESSION: Final = 17
SESSION_ENDED: Final = 18
SUBSCRIBED: Final = 19
UNSUBSCRIBED: Final = 20
QUEUED: Final = 21
SENT: Final = 22
DONE: Final = 23
RECEIVED: Final = 24
RELEASED: Final = 25
WILL: Final = 26
WILL_CLEARED: Final = 27
MESSAGE: Final = 28
SNAPSHOT: Final = 29
SNAPSHOT_ENDED: Final = 30
COPY: Final = 31
COPIED: Final = 32
MISSED: Final = 33
ATTACHED: Final = 34
POSITION: Final = 35
NODE: Final = 36
SETTINGS: Final = 37

# Flags of a publish, above the two bits of its QoS.
RETAIN: Final = 0x04
INTERVAL_GIVEN: Final = 0x08  # the publisher named the expiry itself
HISTORY: Final = 0x10  # becomes a row of the history table
KEPT: Final = 0x20  # some session waits for it: the message is stored until the last one is done
TOLD: Final = 0x40  # its publisher is told the reason, so what strict limits refuse was not delivered

HEAD: Final = struct.Struct("<BBQ")
HEAD_SIZE: Final = 10
# version, kind, offset, stored_at_ms, expires_at_ms, flags, outcome, lengths of topic, origin, properties
PUBLISH_HEAD: Final = struct.Struct("<BBQQQBBHII")
PUBLISH_SIZE: Final = 38
NUMBER: Final = struct.Struct("<Q")

NUL: Final = b"\x00"


def record_kind(record: bytes) -> int:
    return record[1]


def record_offset(record: bytes) -> int:
    return read_i64_le(record, 2)


def publisher_of(origin: bytes) -> Publisher:
    parts = origin.split(NUL)
    if len(parts) != 3:
        raise StoreError(f"publisher has {len(parts)} parts, expected 3")
    try:
        return Publisher(parts[1].decode(), parts[2].decode(), parts[0].decode())
    except UnicodeDecodeError as error:
        raise StoreError(f"publisher is not UTF-8: {error.reason}") from None


def encode_publish(message: Message, outcome: int, history: bool, kept: bool, told: bool = False) -> bytes:
    """Return the record of an accepted publish, which has the offset of the message."""
    batch = Batch()
    add_publish(batch, message, outcome, history, kept, told)
    return batch.take()[LENGTH_SIZE:]


def add_publish(batch: Batch, message: Message, outcome: int, history: bool, kept: bool, told: bool) -> None:
    """Add the record of a publish to a batch: what `PUBLISH_HEAD` says, and the texts behind it."""
    flags = message.qos
    if told:
        flags |= TOLD
    if message.retain:
        flags |= RETAIN
    if message.interval_given:
        flags |= INTERVAL_GIVEN
    if history:
        flags |= HISTORY
    if kept:
        flags |= KEPT
    topic = message.topic_field
    origin = message.publisher.origin
    properties = message.properties
    payload = message.payload
    size = PUBLISH_SIZE - 2 + len(topic) + len(origin) + len(properties) + len(payload)
    writer = batch.begin(message.offset, size)
    writer.append(VERSION)
    writer.append(PUBLISH)
    write_i64_le(writer, message.offset)
    write_i64_le(writer, message.stored_at_ms)
    write_i64_le(writer, message.expires_at_ms)
    writer.append(flags)
    writer.append(outcome)
    writer.append(topic[1])  # the length stands in front of the topic, the other way round
    writer.append(topic[0])
    write_i32_le(writer, len(origin))
    write_i32_le(writer, len(properties))
    writer.write(topic[2:])
    writer.write(origin)
    writer.write(properties)
    writer.write(payload)


@final
class Publishers:
    """Publishers by their bytes, so that the messages of one client share one object. Forgets all when too many."""

    def __init__(self, most: int = 100_000) -> None:
        self.most: Final = most
        self.known: dict[bytes, Publisher] = {}

    def of(self, origin: bytes) -> Publisher:
        publisher = self.known.get(origin)
        if publisher is None:
            if len(self.known) >= self.most:
                self.known.clear()
            publisher = publisher_of(origin)
            self.known[origin] = publisher
        return publisher


def decode_publish(record: bytes, publishers: Publishers) -> Message:
    return decode_parts(record, PUBLISH_SIZE, b"", publishers)


def decode_parts(record: bytes, position: int, topic: bytes, publishers: Publishers) -> Message:
    """Return the message in a record whose variable part starts at `position`; `topic` is given if it is not in it."""
    if len(record) < PUBLISH_SIZE:
        raise StoreError(f"message record has {len(record)} bytes, expected at least {PUBLISH_SIZE}")
    fields = PUBLISH_HEAD.unpack_from(record)
    offset: int = fields[2]
    stored_at_ms: int = fields[3]
    expires_at_ms: int = fields[4]
    flags: int = fields[5]
    topic_size: int = fields[7]
    origin_size: int = fields[8]
    properties_size: int = fields[9]
    if len(topic) == 0:
        topic = record[position : position + topic_size]
        position += topic_size
    origin = record[position : position + origin_size]
    position += origin_size
    properties = record[position : position + properties_size]
    position += properties_size
    if position > len(record):
        raise StoreError(f"message record has {len(record)} bytes, expected at least {position}")
    return Message(
        topic_field(topic),
        record[position:],
        flags & 3,
        flags & RETAIN != 0,
        properties,
        publishers.of(origin),
        offset,
        stored_at_ms,
        expires_at_ms,
        flags & INTERVAL_GIVEN != 0,
    )


def as_published(message: Message) -> Message:
    """Return a publish as it came in, from the record of how it was stored. A lifetime from the broker is left out."""
    if message.expires_at_ms != NEVER and not message.interval_given:
        return message.expiring(NEVER)
    return message


def publish_topic(record: bytes) -> bytes:
    size = record[28] | record[29] << 8
    return record[PUBLISH_SIZE : PUBLISH_SIZE + size]


def publish_outcome(record: bytes) -> int:
    return record[27]


def publish_expires_at_ms(record: bytes) -> int:
    expires_at_ms: int = NUMBER.unpack_from(record, 18)[0]
    return expires_at_ms


def without_topic(record: bytes) -> bytes:
    """Return a publish record with its topic cut out, for a store whose key is the topic."""
    size = record[28] | record[29] << 8
    return record[:PUBLISH_SIZE] + record[PUBLISH_SIZE + size :]


def decode_without_topic(record: bytes, topic: bytes, publishers: Publishers) -> Message:
    return decode_parts(record, PUBLISH_SIZE, topic, publishers)


def encode_stored_message(offset: int, message: Message) -> bytes:
    """Return the record of a message that sessions will wait for although its publish was not marked `kept`: one that
    was given to another member of a group. The message keeps its own offset, which QUEUED then names.
    """
    number: bytes = HEAD.pack(VERSION, MESSAGE, offset)
    return number + encode_publish(message, 0, False, True)


def stored_message(record: bytes) -> bytes:
    """Return the publish record inside a MESSAGE."""
    return record[HEAD_SIZE:]


@final
class Changes:
    """A batch of records in two parts: what publishes do to the retained set, and the rest.

    `retained` holds the last publish of each topic that set it, or None where the last one cleared it. `others` are the
    records that something else has to be done about, in order, publishes that some session waits for among them.
    """

    def __init__(self) -> None:
        self.retained: dict[bytes, bytes | None] = {}
        self.others: list[bytes] = []
        self.version = 0  # the offset of the last change of the retained set

    def add_all(self, records: list[bytes], after: int) -> int:
        """Add the records after offset `after`; returns the offset of the last one, or `after` if there are none."""
        for record in records:
            offset = int(read_i64_le(record, 2))
            if offset <= after:
                continue
            after = offset
            if record[1] != PUBLISH:
                self.others.append(record)
                continue
            outcome = record[27]
            if outcome == SET:
                self.retained[publish_topic(record)] = record
                self.version = offset
            elif outcome == CLEARED:
                self.retained[publish_topic(record)] = None
                self.version = offset
            if record[26] & KEPT != 0:
                self.others.append(record)
        return after


@final
class Columns:
    """Publishes as columns, for storage by column: one list each, filled straight from the records."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.stored_at_ms: list[int] = []
        self.expires_at_ms: list[int] = []
        self.qos: list[int] = []
        self.retains: list[bool] = []
        self.outcomes: list[int] = []
        self.topics: list[bytes] = []
        self.origins: dict[bytes, int] = {}  # each publisher once, numbered as they come
        self.origin_numbers: list[int] = []
        self.payloads: list[bytes] = []
        self.properties: dict[int, bytes] = {}  # by row, only where there are any

    def __len__(self) -> int:
        return len(self.offsets)

    def add_all(self, records: list[bytes], after: int) -> None:
        """Add the publishes in `records` that are marked for the history and come after offset `after`, in order."""
        for record in records:
            if record[1] == PUBLISH and record[26] & HISTORY != 0 and record_offset(record) > after:
                self.add(record)

    def add(self, record: bytes) -> None:
        """Field by field, as `PUBLISH_HEAD` says: unpacking it would make a tuple of each record."""
        flags = record[26]
        topic_size = record[28] | record[29] << 8
        origin_size = int(read_i32_le(record, 30))
        properties_size = int(read_i32_le(record, 34))
        position = PUBLISH_SIZE + topic_size
        if properties_size:
            start = position + origin_size
            self.properties[len(self.offsets)] = record[start : start + properties_size]
        self.offsets.append(int(read_i64_le(record, 2)))
        self.stored_at_ms.append(int(read_i64_le(record, 10)))
        self.expires_at_ms.append(int(read_i64_le(record, 18)))
        self.qos.append(flags & 3)
        self.retains.append(flags & RETAIN != 0)
        self.outcomes.append(record[27])
        self.topics.append(record[PUBLISH_SIZE:position])
        origin = record[position : position + origin_size]
        number = self.origins.get(origin, -1)
        if number < 0:
            number = len(self.origins)
            self.origins[origin] = number
        self.origin_numbers.append(number)
        self.payloads.append(record[position + origin_size + properties_size :])
