"""Whether a record has all that its kind promises.

A checksum says that a record is the one that was written, not that it was written right. Every fold asks here first, so
that one bad record costs itself and does not stop the fold.
"""

from typing import Final

from librt.strings import read_i32_le

from holdfast.broker.node_records import NODE_NAME_MAX, NODE_SIZE, POSITION_SIZE
from holdfast.broker.records import (
    ATTACHED,
    COPIED,
    COPY,
    DONE,
    HEAD_SIZE,
    MESSAGE,
    MISSED,
    NODE,
    NUL,
    POSITION,
    PUBLISH,
    PUBLISH_SIZE,
    QUEUED,
    RECEIVED,
    RELEASED,
    SENT,
    SESSION,
    SESSION_ENDED,
    SNAPSHOT,
    SNAPSHOT_ENDED,
    SUBSCRIBED,
    UNSUBSCRIBED,
    WILL,
    WILL_CLEARED,
)
from holdfast.broker.session_records import (
    ATTACHED_SIZE,
    COPY_SIZE,
    ONE_SESSION_SIZE,
    ONE_SNAPSHOT_SIZE,
    PACKET_ID_HEAD,
    QUEUED_ENTRY_SIZE,
    QUEUED_HEAD,
    QUEUED_SIZE,
    SENT_HEAD,
    SESSION_HEAD,
    SESSION_SIZE,
    SUBSCRIBED_SIZE,
    WILL_HEAD,
    WILL_SIZE,
)

ZERO: Final = 0  # as a number: to look for bytes in bytes, Python raises an exception of its own first

# The fixed part of each kind but PUBLISH.
LEAST: Final[dict[int, int]] = {
    MESSAGE: HEAD_SIZE + PUBLISH_SIZE,
    SESSION: SESSION_SIZE,
    SESSION_ENDED: ONE_SESSION_SIZE,
    SUBSCRIBED: SUBSCRIBED_SIZE,
    UNSUBSCRIBED: ONE_SESSION_SIZE,
    QUEUED: QUEUED_SIZE,
    SENT: SENT_HEAD.size,
    DONE: ONE_SESSION_SIZE,
    RECEIVED: PACKET_ID_HEAD.size,
    RELEASED: PACKET_ID_HEAD.size,
    WILL: WILL_SIZE,
    WILL_CLEARED: ONE_SESSION_SIZE,
    SNAPSHOT: ONE_SNAPSHOT_SIZE,
    SNAPSHOT_ENDED: ONE_SNAPSHOT_SIZE,
    COPY: COPY_SIZE + PUBLISH_SIZE,
    COPIED: ONE_SNAPSHOT_SIZE,
    MISSED: ONE_SNAPSHOT_SIZE,
    ATTACHED: ATTACHED_SIZE,
    POSITION: POSITION_SIZE,
    NODE: NODE_SIZE,
}


def sound_only(records: list[bytes]) -> list[bytes]:
    """Return the records without those that are not whole, which is the same list when all are."""
    for record in records:
        if not is_whole(record):
            return [one for one in records if is_whole(one)]
    return records


def is_whole(record: bytes) -> bool:
    """Return whether a record has all that its kind promises; one of an unknown kind counts as whole."""
    kind = record[1]
    size = len(record)
    if kind == PUBLISH:  # first, for most of them are
        return size >= PUBLISH_SIZE and is_whole_message(record, 0)
    if size < LEAST.get(kind, HEAD_SIZE):
        return False
    if kind == MESSAGE:
        return record[HEAD_SIZE + 1] == PUBLISH and is_whole_message(record, HEAD_SIZE)
    if kind == QUEUED:
        return is_whole_queue(record)
    if kind == DONE:
        return (size - ONE_SESSION_SIZE) % 8 == 0
    if kind == COPY:
        start = COPY_SIZE + 4 * record[COPY_SIZE - 1]
        return size >= start + PUBLISH_SIZE and record[start + 1] == PUBLISH and is_whole_message(record, start)
    if kind == COPIED:
        return (size - ONE_SNAPSHOT_SIZE) % 8 == 0
    if kind == SESSION:
        session = SESSION_HEAD.unpack_from(record)
        client_size: int = session[8]
        owner_size: int = session[9]
        middle = SESSION_SIZE + client_size
        end = middle + owner_size
        return size >= end and is_text(record[SESSION_SIZE:middle]) and is_text(record[middle:end])
    if kind == ATTACHED:
        return is_name(record[ATTACHED_SIZE:])
    if kind == POSITION:
        return is_name(record[POSITION_SIZE:])
    if kind == NODE:
        texts = record[NODE_SIZE:].split(NUL)
        return len(texts) == 3 and is_name(texts[0]) and is_text(texts[1]) and is_text(texts[2])
    if kind == WILL:
        will = WILL_HEAD.unpack_from(record)
        topic_size: int = will[7]
        properties_size: int = will[8]
        return topic_size > 0 and size >= WILL_SIZE + topic_size + properties_size
    return True


def is_whole_message(record: bytes, start: int) -> bool:
    if record[start + HEAD_SIZE - 1] > 0x7F:  # the highest byte of its offset, which is no negative number
        return False
    topic_size = record[start + 28] | record[start + 29] << 8
    origin_size = int(read_i32_le(record, start + 30))
    properties_size = int(read_i32_le(record, start + 34))
    topic = start + PUBLISH_SIZE
    origin = topic + topic_size
    end = origin + origin_size
    if topic_size == 0 or origin_size < 0 or properties_size < 0 or end + properties_size > len(record):
        return False
    texts = record[topic:end]
    if texts.count(NUL) != 2 or ZERO in texts[:topic_size]:
        return False
    return texts.isascii() or (is_text(record[topic:origin]) and is_text(record[origin:end]))


def is_name(data: bytes) -> bool:
    """Return whether these bytes can be the name of a node; one that was passed over has none."""
    return len(data) <= NODE_NAME_MAX and is_text(data)


def is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def is_whole_queue(record: bytes) -> bool:
    count: int = QUEUED_HEAD.unpack_from(record)[4]
    size = len(record)
    position = QUEUED_SIZE
    for _ in range(count):
        if position + QUEUED_ENTRY_SIZE > size:
            return False
        position += QUEUED_ENTRY_SIZE + 4 * record[position + QUEUED_ENTRY_SIZE - 1]
    return position <= size
