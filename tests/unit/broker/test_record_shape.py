"""Records that have a sound checksum and still lack something: told apart, and left out without stopping the fold."""

from pathlib import Path

import pytest

from holdfast.broker.message import SET
from holdfast.broker.record_shape import is_whole, sound_only
from holdfast.broker.records import (
    PUBLISH,
    Columns,
    Publishers,
    decode_publish,
    encode_publish,
    encode_stored_message,
)
from holdfast.broker.session_records import (
    CopiedRecord,
    QueuedRecord,
    SessionRecord,
    SubscriptionRecord,
    WillRecord,
    encode_copied,
    encode_copy,
    encode_done,
    encode_missed,
    encode_queued,
    encode_received,
    encode_released,
    encode_sent,
    encode_session,
    encode_session_ended,
    encode_snapshot,
    encode_snapshot_ended,
    encode_subscribed,
    encode_unsubscribed,
    encode_will,
    encode_will_cleared,
)
from holdfast.errors import StoreError
from holdfast.state.store import StateStore
from log_records import message

RECORDS: dict[str, bytes] = {
    "publish": encode_publish(message("a/b", b"x", 1), SET, True, True),
    "session": encode_session(1, SessionRecord(1, "client", "owner", 5, 60, 1, 0)),
    "session_ended": encode_session_ended(1, 1),
    "subscribed": encode_subscribed(1, SubscriptionRecord(1, b"a/#", 1, 7)),
    "unsubscribed": encode_unsubscribed(1, 1, b"a/#"),
    "queued": encode_queued(1, 1, [QueuedRecord(1, 1, 1, 1, True, [7, 8]), QueuedRecord(2, 1, 1, 1, False, [])]),
    "sent": encode_sent(1, 1, 1, 5, 1),
    "done": encode_done(1, 1, [1, 2]),
    "received": encode_received(1, 1, 9),
    "released": encode_released(1, 1, 9),
    "will": encode_will(1, WillRecord(1, b"w", b"gone", 1, True, 5, -1, b"\x01\x01")),
    "will_cleared": encode_will_cleared(1, 1),
    "message": encode_stored_message(1, message("q", b"y", 1)),
    "snapshot": encode_snapshot(1, 1, 1, b"a/#"),
    "snapshot_ended": encode_snapshot_ended(1, 1, 1),
    "copy": encode_copy(1, 1, 1, 1, 1, [7, 8], message("a/b", b"x", 1)),
    "copied": encode_copied(1, CopiedRecord(1, 1)),
    "missed": encode_missed(1, 1, 1, b"a/b"),
}


@pytest.mark.parametrize("kind", RECORDS)
def test_what_the_broker_writes_is_whole(kind: str) -> None:
    assert is_whole(RECORDS[kind])


@pytest.mark.parametrize("kind", RECORDS)
def test_a_record_cut_anywhere_is_told_or_folded_but_never_stops_the_fold(kind: str, tmp_path: Path) -> None:
    record = RECORDS[kind]
    store = StateStore(tmp_path)
    for size in range(10, len(record)):
        cut = record[:size]
        sound = sound_only([cut])
        store.apply(sound)
        Columns().add_all(sound, 0)
    store.sessions.all()
    store.sessions.messages()
    store.close()
    assert not is_whole(record[:12])


@pytest.mark.parametrize("size", range(10, len(RECORDS["publish"]) - 1))
def test_a_publish_without_all_of_its_fields_is_damage(size: int) -> None:
    cut = RECORDS["publish"][:size]
    assert cut[1] == PUBLISH
    assert not is_whole(cut)
    with pytest.raises(StoreError):
        decode_publish(cut, Publishers())


@pytest.mark.parametrize(("good", "bad"), [(b"alice-1", b"alice-\xff"), (b"5.0\0", b"5.00"), (b"a/b", b"a\xffb")])
def test_a_publish_whose_texts_are_none_is_damage(good: bytes, bad: bytes) -> None:
    assert not is_whole(RECORDS["publish"].replace(good, bad))
