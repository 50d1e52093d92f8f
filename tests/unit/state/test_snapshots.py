"""Snapshots that have not ended are in the state, with what they have sent; those that have ended leave nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.broker.session_records import (
    CopiedRecord,
    SessionRecord,
    encode_copied,
    encode_copy,
    encode_done,
    encode_missed,
    encode_session,
    encode_session_ended,
    encode_snapshot,
    encode_snapshot_ended,
)
from holdfast.state.sessions import StoredSession, StoredSnapshot
from holdfast.state.store import StateStore
from log_records import NOW_MS, message, retained

SESSION = 3
BEGIN = [
    retained("a", b"1", 1, qos=1),
    retained("b", b"2", 2),
    encode_session(SESSION, SessionRecord(SESSION, "client", "", 5, 3600, NOW_MS, 0)),
    encode_snapshot(4, SESSION, 3, b"#"),
]
COPY_OF_A = encode_copy(5, SESSION, 4, 1, 1, [7], message("a", b"1", 1, qos=1))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    store = StateStore(tmp_path)
    yield store
    store.close()


def only_session(store: StateStore) -> StoredSession:
    (session,) = store.sessions.all()
    return session


def rows(store: StateStore, table: str) -> int:
    entries: int = store.environment.read(lambda txn: txn.stat(store.environment.db[table])["entries"])
    return entries


def copied(offset: int, *offsets: int) -> bytes:
    record = CopiedRecord(SESSION, 4)
    record.offsets += offsets
    return encode_copied(offset, record)


def test_a_snapshot_is_known_with_what_it_sent_and_what_it_missed(store: StateStore) -> None:
    for record in (*BEGIN, COPY_OF_A, copied(6, 2), encode_missed(7, SESSION, 4, b"c")):
        store.apply([record])
    session = only_session(store)
    assert session.snapshots == {4: StoredSnapshot(4, 3, b"#", {1, 2}, {b"c": 7})}
    (waiting,) = session.queue
    assert (waiting.seq, waiting.message_offset, waiting.qos, waiting.retain) == (1, 1, 1, True)
    assert waiting.subscription_ids == (7,)
    assert waiting.copy
    assert store.sessions.messages()[1].payload == b"1"


@pytest.mark.parametrize("together", [True, False], ids=["in one batch", "in several"])
def test_a_snapshot_that_has_ended_leaves_only_what_waits_for_an_answer(store: StateStore, together: bool) -> None:
    ending = [COPY_OF_A, copied(6, 2), encode_missed(7, SESSION, 4, b"c"), encode_snapshot_ended(8, SESSION, 4)]
    for batch in [[*BEGIN, *ending]] if together else [[record] for record in (*BEGIN, *ending)]:
        store.apply(batch)
    session = only_session(store)
    assert session.snapshots == {}
    assert len(session.queue) == 1
    assert rows(store, "snapshots") == 0
    store.apply([encode_done(9, SESSION, [1])])
    assert only_session(store).queue == []
    assert rows(store, "messages") == rows(store, "refs") == 0


@pytest.mark.parametrize("together", [True, False], ids=["in one batch", "in several"])
def test_a_session_that_ends_takes_its_snapshots_with_it(store: StateStore, together: bool) -> None:
    log = [*BEGIN, COPY_OF_A, copied(6, 2), encode_missed(7, SESSION, 4, b"c"), encode_session_ended(8, SESSION)]
    for batch in [log] if together else [[record] for record in log]:
        store.apply(batch)
    assert store.sessions.all() == []
    for table in ("snapshots", "queue", "messages", "refs"):
        assert rows(store, table) == 0, table


def test_a_message_that_two_snapshots_copied_stays_until_both_copies_are_done(store: StateStore) -> None:
    again = encode_copy(6, SESSION, 4, 2, 1, None, message("a", b"1", 1, qos=1))
    store.apply([*BEGIN, COPY_OF_A, again])
    store.apply([encode_done(7, SESSION, [1])])
    assert list(store.sessions.messages()) == [1]
    store.apply([encode_done(8, SESSION, [2]), encode_copy(9, SESSION, 4, 3, 1, None, message("a", b"1", 1, qos=1))])
    assert list(store.sessions.messages()) == [1]
    store.apply([encode_done(10, SESSION, [3])])
    assert rows(store, "messages") == rows(store, "refs") == 0


def test_what_is_said_of_a_snapshot_that_is_not_there_changes_nothing(store: StateStore) -> None:
    store.apply([*BEGIN[:3], copied(6, 2), encode_missed(7, SESSION, 4, b"c"), encode_snapshot_ended(8, SESSION, 4)])
    assert rows(store, "snapshots") == 0


def test_a_state_from_before_there_were_snapshots_can_be_looked_at(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    store.apply(BEGIN[:3])
    environment = store.environment
    with environment.env.begin(write=True) as txn:
        txn.drop(environment.db["snapshots"])
    store.close()
    before = StateStore(tmp_path, readonly=True)
    assert only_session(before).snapshots == {}
    before.close()
