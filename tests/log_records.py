"""Records for tests of everything that folds the log, in few words."""

from collections.abc import Iterator
from pathlib import Path

from holdfast.broker.message import LIVE, SET, Message, Publisher, topic_field
from holdfast.broker.records import encode_publish
from holdfast.journal.reader import EVERYTHING, Reader

ALICE = Publisher("alice-1", "alice", "5.0")
NOW_MS = 1_700_000_000_000


def message(
    topic: str,
    payload: bytes = b"payload",
    offset: int = 1,
    qos: int = 1,
    retain: bool = True,
    expires_at_ms: int = 0,
    properties: bytes = b"",
    publisher: Publisher = ALICE,
    at_ms: int = 0,
) -> Message:
    return Message(
        topic_field(topic.encode()),
        payload,
        qos,
        retain,
        properties,
        publisher,
        offset,
        at_ms or NOW_MS + offset,
        expires_at_ms,
        expires_at_ms != 0,
    )


def retained(
    topic: str, payload: bytes, offset: int, outcome: int = SET, history: bool = True, **more: object
) -> bytes:
    """The record of a retained publish."""
    return encode_publish(message(topic, payload, offset, **more), outcome, history, False)  # type: ignore[arg-type]


def live(topic: str, payload: bytes, offset: int, kept: bool = False, **more: object) -> bytes:
    """The record of a publish that is not retained."""
    return encode_publish(message(topic, payload, offset, retain=False, **more), LIVE, True, kept)  # type: ignore[arg-type]


def read_from(folder: Path, after: int = 0, limit: int = EVERYTHING) -> Iterator[bytes]:
    """Yields all records after the offset `after`; damage is passed over in silence."""
    reader = Reader(folder, after)
    try:
        while records := reader.read(limit):
            yield from records
    finally:
        reader.close()
