"""Frames: how a record lies in a segment file, and the walk over many of them.

    marker (2) | length of the record (4) | CRC32C of the record (4) | record: version (1), kind (1), offset (8), ...

Records that come together share a frame, and so a checksum: a BATCH has them behind its head, each with its length in
front. A wrong length shows in the checksum, which then covers other bytes than it was made of. The marker lets
a reader find the next record after a damaged one: its first byte never occurs in UTF-8 text. Nothing here knows what a
record means beyond its offset, and nothing does I/O. This module is compiled with the hot set, so the checksum, which
comes from a library, is handed in.
"""

import struct
from collections.abc import Callable
from typing import Final, final

from librt.strings import read_i32_le, read_i64_le

from holdfast.broker.batch import LENGTH_SIZE, Batch

MARKER: Final = b"\xf5\x48"
FRAME_HEAD: Final = struct.Struct("<2sII")
FRAME_SIZE: Final = 10
OFFSET: Final = struct.Struct("<Q")
RECORD_HEAD: Final = struct.Struct("<BBQ")
RECORD_MIN: Final = 10
BATCH_HEAD: Final = 24  # of a batch, up to the end of its first record's offset
RECORD_MAX: Final = 1 << 29  # the largest MQTT packet has 256 MiB; more than twice that is damage

# Kinds of records that the journal writes for itself, all below those of its users. Their offset is that of the record
# before them.
OWN: Final = 16
OWN_SIZE: Final = 18
RESERVED: Final = 1  # offsets below the one in the body may have been given out
CLOSED: Final = 2  # the journal was closed in order: the next offset is the one in the body
TOGETHER: Final = 3  # so many bytes behind it count only if all of them are there
BATCH: Final = 4  # records follow in the same frame, each with its length in front; its offset is that of the last

# How much of a batch shares a frame at most, unless it came in one piece: what one flipped bit can cost.
FRAME_BYTES: Final = 1 << 16

# How a scan ended.
MORE: Final = 0  # at the end of the data, or in the middle of a frame
LIMIT: Final = 1  # in front of a record that is past the limit
BAD: Final = 2  # in front of bytes that are not a frame
EMPTY: Final = 3  # in front of zeros: space that was set aside and not written yet

BROKEN: Final = -1

Checksum = Callable[[bytes], int]


@final
class Chunk:
    """Records that were appended together, packed as in `broker/batch.py`; `first` and `last` are their outermost
    offsets. It may have no records at all.
    """

    def __init__(self, data: bytes, count: int, first: int, last: int) -> None:
        self.data: Final = data
        self.count: Final = count
        self.first: Final = first
        self.last: Final = last


def chunk_of(records: list[bytes]) -> Chunk:
    """Pack records, whose offsets are to grow from one to the next."""
    batch = Batch()
    for record in records:
        batch.add(record)
    first, last, count = batch.first, batch.last, batch.count
    return Chunk(batch.take(), count, first, last)


def frame_all(records: list[bytes], checksum: Checksum) -> bytes:
    """The records as they are written, one after another, each in a frame of its own."""
    parts: list[bytes] = []
    for record in records:
        head: bytes = FRAME_HEAD.pack(MARKER, len(record), checksum(record))
        parts.append(head)
        parts.append(record)
    return b"".join(parts)


def frame_together(own: list[bytes], chunks: list[Chunk], after: int, checksum: Checksum) -> bytes:
    """Records of the journal's own and then chunks as they are written, behind the offset `after`, so that none of them
    may be taken for true without the others.
    """
    records = own + frames_of(chunks)
    if len(records) < 2:
        return frame_all(records, checksum)
    return frame_all([own_record(TOGETHER, after, framed_size(records)), *records], checksum)


def frames_of(chunks: list[Chunk]) -> list[bytes]:
    """What goes into one frame each: a single record as it is, more of them as a BATCH."""
    frames: list[bytes] = []
    parts: list[bytes] = []
    count = 0
    size = 0
    last = 0
    for chunk in chunks:
        if count > 0 and size + len(chunk.data) > FRAME_BYTES:
            frames.append(batch_frame(parts, count, last))
            parts = []
            count = 0
            size = 0
        if chunk.count > 0:
            parts.append(chunk.data)
            count += chunk.count
            size += len(chunk.data)
            last = chunk.last
    if count > 0:
        frames.append(batch_frame(parts, count, last))
    return frames


def batch_frame(parts: list[bytes], count: int, last: int) -> bytes:
    if count == 1:
        return parts[0][LENGTH_SIZE:]
    head: bytes = RECORD_HEAD.pack(1, BATCH, last)
    return b"".join([head, *parts])


def framed_size(records: list[bytes]) -> int:
    size = 0
    for record in records:
        size += FRAME_SIZE + len(record)
    return size


def own_record(kind: int, offset: int, number: int) -> bytes:
    """A record of the journal's own; `number` is its whole body."""
    head: bytes = struct.pack("<BBQQ", 1, kind, offset, number)
    return head


def own_number(record: bytes) -> int:
    number: int = OFFSET.unpack_from(record, RECORD_MIN)[0]
    return number


def offset_of(record: bytes) -> int:
    return read_i64_le(record, 2)


@final
class Scan:
    """What `scan` found: the records, where it stopped, and why."""

    def __init__(self, last: int) -> None:
        self.records: list[bytes] = []
        self.position = 0
        self.ended = MORE
        self.last = last  # the offset of the last record passed
        self.reserved = 0  # the highest number of a RESERVED
        self.closed = -1  # the number of a CLOSED that nothing followed, 0 if something did, -1 if nothing was found
        self.together_at = -1  # where the last records begin that were written together, -1 if none do
        self.together_end = 0
        self.together_after = 0  # the offset in front of them


def scan(data: bytes, position: int, after: int, limit: int, checksum: Checksum) -> Scan:
    """The whole frames of `data` from `position` on, as far as their offsets are above `after` and at most `limit`.

    Offsets only grow in a journal, so a record whose offset does not is a copy of one that is known and is left out.
    """
    found = Scan(after)
    records = found.records
    end = len(data)
    last = after
    while True:
        start = position + FRAME_SIZE
        if start > end:
            found.ended = BAD if position < end and not may_be_frame(data, position, end) else MORE
            break
        head = FRAME_HEAD.unpack_from(data, position)
        marker: bytes = head[0]
        if marker != MARKER:
            found.ended = EMPTY if marker == b"\x00\x00" and is_zero(data, position, end) else BAD
            break
        length: int = head[1]
        if length < RECORD_MIN or length > RECORD_MAX:
            found.ended = BAD
            break
        stop = start + length
        if stop > end:
            found.ended = MORE
            break
        record = data[start:stop]
        wanted: int = head[2]
        if checksum(record) != wanted:
            found.ended = BAD
            break
        offset = int(read_i64_le(record, 2))
        kind = record[1]
        if kind == BATCH:
            passed = take_batch(records, record, last, limit)
            if passed == BROKEN:
                found.ended = BAD
                break
            last = passed
            found.closed = 0
            if offset > limit:
                found.ended = LIMIT
                break
            position = stop
            continue
        if offset > limit:
            found.ended = LIMIT
            break
        if kind < OWN and length < OWN_SIZE:
            found.ended = BAD
            break
        if kind == TOGETHER:
            found.together_at = position
            found.together_end = stop + own_number(record)
            found.together_after = offset
        position = stop
        if kind < OWN:
            last = max(last, offset)  # what it came after is behind us, even if it could not be read
            if kind == RESERVED:
                found.reserved = max(found.reserved, own_number(record))
                found.closed = 0
            elif kind == CLOSED:
                found.closed = own_number(record)
        elif offset > last:
            records.append(record)
            last = offset
            found.closed = 0
    found.position = position
    found.last = last
    return found


def take_batch(records: list[bytes], batch: bytes, last: int, limit: int) -> int:
    """Add the records of a batch with offsets above `last` and at most `limit`; returns the last offset passed, or
    BROKEN when the batch is not made of records.
    """
    before = len(records)
    position = RECORD_MIN
    end = len(batch)
    while position < end:
        start = position + LENGTH_SIZE
        if start + RECORD_MIN > end:
            break
        length = int(read_i32_le(batch, position))
        position = start + length
        if length < RECORD_MIN or position > end or batch[start + 1] < OWN:
            break
        offset = int(read_i64_le(batch, start + 2))
        if last < offset <= limit:
            records.append(batch[start:position])
            last = offset
    else:
        return last
    del records[before:]
    return BROKEN


def first_offset(record: bytes) -> int:
    """The lowest offset that a record, or the first one of a batch, may have."""
    if record[1] == BATCH and len(record) >= BATCH_HEAD:
        return read_i64_le(record, RECORD_MIN + LENGTH_SIZE + 2)
    offset = int(read_i64_le(record, 2))
    return offset + 1 if record[1] < OWN else offset


def may_be_frame(data: bytes, position: int, end: int) -> bool:
    """Whether fewer bytes than a frame head could be the beginning of one, or of empty space."""
    return MARKER.startswith(data[position : min(end, position + 2)]) or is_zero(data, position, end)


def is_zero(data: bytes, position: int, end: int) -> bool:
    return data.count(0, position, end) == end - position


def find_frame(data: bytes, position: int, after: int, checksum: Checksum) -> int:
    """Where the next whole and sound frame with an offset above `after` starts, from `position` on; -1 if nowhere."""
    end = len(data)
    while True:
        position = data.find(MARKER, position)
        if position < 0 or position + FRAME_SIZE + RECORD_MIN > end:
            return -1
        head = FRAME_HEAD.unpack_from(data, position)
        length: int = head[1]
        start = position + FRAME_SIZE
        if RECORD_MIN <= length <= end - start:
            record = data[start : start + length]
            wanted: int = head[2]
            if checksum(record) == wanted:
                if offset_of(record) > after:
                    return position
        position += 1
