"""Sessions in LMDB: what a broker takes up again is what it left."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.broker.records import encode_stored_message
from holdfast.broker.session import FOREVER
from holdfast.broker.session_records import (
    RELEASING,
    UNACKNOWLEDGED,
    WAITING,
    QueuedRecord,
    SessionRecord,
    SubscriptionRecord,
    WillRecord,
    encode_done,
    encode_queued,
    encode_received,
    encode_released,
    encode_sent,
    encode_session,
    encode_session_ended,
    encode_subscribed,
    encode_unsubscribed,
    encode_will,
    encode_will_cleared,
)
from holdfast.state.sessions import QueuedValue
from holdfast.state.store import StateStore
from log_records import live, message
from seeds import thinned


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    opened = StateStore(tmp_path / "state", map_size=1 << 20)
    yield opened
    opened.close()


def session(session_id: int, offset: int = 0, client_id: str = "c", **more: int) -> bytes:
    record = SessionRecord(
        session_id,
        client_id,
        "owner",
        5,
        more.get("expiry", FOREVER),
        more.get("connected", 10),
        more.get("disconnected", 0),
    )
    return encode_session(offset or session_id, record)


def queued(offset: int, message_offset: int, *places: tuple[int, int]) -> bytes:
    return encode_queued(offset, message_offset, [QueuedRecord(s, q, message_offset, 1, False, []) for s, q in places])


def waiting(store: StateStore) -> dict[int, list[int]]:
    return {s.record.session_id: [entry.seq for entry in s.queue] for s in store.sessions.all()}


def references(store: StateStore) -> int:
    return store.environment.read(lambda txn: txn.stat(store.environment.db["refs"])["entries"])


def test_a_session_comes_back_with_all_its_parts(store: StateStore) -> None:
    will = WillRecord(1, b"will/topic", b"gone", 1, True, 30, 60, b"\x01\x01")
    store.apply(
        [
            session(1, client_id="ünï", expiry=3600, connected=5),
            encode_subscribed(2, SubscriptionRecord(1, b"a/#", 0b101101, 7)),
            encode_subscribed(3, SubscriptionRecord(1, b"$share/g/b", 1, 0)),
            encode_will(4, will),
            encode_received(5, 1, 100),
            encode_received(6, 1, 65535),
            live("a/x", b"m", 7, kept=True),
            encode_queued(8, 7, [QueuedRecord(1, 1, 7, 2, True, [7, 9])]),
            encode_sent(9, 1, 1, 321, UNACKNOWLEDGED),
        ]
    )
    (found,) = store.sessions.all()
    record = found.record
    assert (record.session_id, record.client_id, record.owner, record.version) == (1, "ünï", "owner", 5)
    assert (record.expiry_interval_s, record.connected_at_ms, record.disconnected_at_ms) == (3600, 5, 0)
    filters = {s.topic_filter: (s.options, s.subscription_id) for s in found.subscriptions}
    assert filters == {b"a/#": (0b101101, 7), b"$share/g/b": (1, 0)}
    assert found.will is not None
    for name in ("topic", "payload", "qos", "retain", "delay_interval_s", "message_expiry_s", "properties"):
        assert getattr(found.will, name) == getattr(will, name), name
    assert found.unreleased == [100, 65535]
    assert found.queue == [QueuedValue(1, 7, 2, True, (7, 9), 321, UNACKNOWLEDGED)]
    assert store.sessions.messages()[7].payload == b"m"


def test_later_records_replace_and_take_away(store: StateStore) -> None:
    store.apply(
        [
            session(1),
            encode_subscribed(2, SubscriptionRecord(1, b"a", 0, 0)),
            encode_subscribed(3, SubscriptionRecord(1, b"a", 2, 5)),
            encode_subscribed(4, SubscriptionRecord(1, b"b", 1, 0)),
            encode_unsubscribed(5, 1, b"b"),
            encode_will(6, WillRecord(1, b"w", b"", 0, False, 0, -1, b"")),
            encode_received(7, 1, 3),
        ]
    )
    store.apply([encode_released(8, 1, 3), encode_will_cleared(9, 1), session(1, 10, disconnected=99)])
    (found,) = store.sessions.all()
    assert [(s.topic_filter, s.options) for s in found.subscriptions] == [(b"a", 2)]
    assert found.will is None
    assert found.unreleased == []
    assert found.record.disconnected_at_ms == 99


def test_a_filter_longer_than_a_key_is_kept(store: StateStore) -> None:
    long = b"f" * 60000
    store.apply([session(1), encode_subscribed(2, SubscriptionRecord(1, long, 1, 0))])
    assert store.sessions.all()[0].subscriptions[0].topic_filter == long
    store.apply([encode_unsubscribed(3, 1, long)])
    assert store.sessions.all()[0].subscriptions == []


def test_a_message_is_stored_once_however_many_sessions_wait(store: StateStore) -> None:
    store.apply([session(i) for i in range(1, 101)])
    store.apply([live("t", bytes(5000), 200, kept=True), queued(201, 200, *((i, 1) for i in range(1, 101)))])
    assert list(store.sessions.messages()) == [200]
    store.apply([encode_done(300 + i, i, [1]) for i in range(1, 100)])
    assert list(store.sessions.messages()) == [200], "one session still waits"
    store.apply([encode_done(400, 100, [1])])
    assert store.sessions.messages() == {}
    assert references(store) == 0


def test_a_queue_keeps_its_order_and_how_far_each_has_come(store: StateStore) -> None:
    store.apply([session(1), *(live("t", b"%d" % i, 10 + i, kept=True) for i in range(5))])
    store.apply([queued(20 + i, 10 + i, (1, i + 1)) for i in range(5)])
    store.apply(
        [encode_sent(30, 1, 2, 77, UNACKNOWLEDGED), encode_sent(31, 1, 2, 77, RELEASING), encode_done(32, 1, [1])]
    )
    (found,) = store.sessions.all()
    assert [(e.seq, e.packet_id, e.stage) for e in found.queue] == [
        (2, 77, RELEASING),
        (3, 0, WAITING),
        (4, 0, WAITING),
        (5, 0, WAITING),
    ]


def test_an_ended_session_leaves_nothing_behind(store: StateStore) -> None:
    parts = [
        encode_subscribed(3, SubscriptionRecord(1, b"a", 0, 0)),
        encode_will(4, WillRecord(1, b"w", b"", 0, False, 0, -1, b"")),
        encode_received(5, 1, 3),
        live("t", b"shared", 6, kept=True),
        queued(7, 6, (1, 1), (2, 1)),
        live("t", b"alone", 8, kept=True),
        queued(9, 8, (1, 2)),
    ]
    store.apply([session(1), session(2), *parts])
    store.apply([encode_session_ended(10, 1)])
    assert waiting(store) == {2: [1]}
    assert list(store.sessions.messages()) == [6]
    for table in ("sessions", "subscriptions", "wills", "received", "queue", "refs"):
        count = store.environment.read(lambda txn, t=table: txn.stat(store.environment.db[t])["entries"])  # type: ignore[misc]
        assert count == (1 if table in ("sessions", "queue", "refs") else 0), table


def test_a_session_that_ends_in_the_batch_it_began_in_leaves_nothing(store: StateStore) -> None:
    store.apply([session(1), live("t", b"x", 2, kept=True), queued(3, 2, (1, 1)), encode_session_ended(4, 1)])
    assert store.sessions.all() == []
    assert store.sessions.messages() == {}
    assert references(store) == 0


def test_a_retained_message_can_be_waited_for_although_it_was_published_long_ago(store: StateStore) -> None:
    old = message("t", b"retained", 3)
    store.apply([session(10), encode_stored_message(11, old), queued(12, 3, (10, 1))])
    store.apply([encode_stored_message(13, old), queued(14, 3, (10, 2))])
    assert store.sessions.message(3) is not None
    store.apply([encode_done(15, 10, [1])])
    assert list(store.sessions.messages()) == [3]
    store.apply([encode_done(16, 10, [2])])
    assert store.sessions.messages() == {}


def test_a_message_whose_queueing_was_cut_off_is_swept(store: StateStore) -> None:
    store.apply([session(1), live("t", b"orphan", 2, kept=True), live("t", b"waited for", 3, kept=True)])
    store.apply([queued(4, 3, (1, 1))])
    assert store.sessions.sweep() == 1
    assert list(store.sessions.messages()) == [3]


def test_records_about_what_is_gone_change_nothing(store: StateStore) -> None:
    store.apply([session(1), encode_done(2, 1, [5]), encode_sent(3, 9, 9, 9, 1), encode_session_ended(4, 77)])
    assert waiting(store) == {1: []}


@pytest.mark.parametrize("seed", thinned(range(10), 5))
def test_any_order_of_queueing_and_finishing_gives_what_a_model_gives(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    store = StateStore(tmp_path, map_size=1 << 20)
    queues: dict[int, dict[int, int]] = {}  # session to seq to message offset
    seqs: dict[int, int] = {}
    offset = 0
    for _ in range(25):
        records: list[bytes] = []
        for _ in range(chance.randint(1, 60)):
            offset += 1
            action = chance.random()
            if action < 0.1 or not queues:
                records.append(session(offset))
                queues[offset], seqs[offset] = {}, 0
            elif action < 0.15:
                ended = chance.choice(list(queues))
                records.append(encode_session_ended(offset, ended))
                del queues[ended]
            elif action < 0.6:
                records.append(live("t", b"%d" % offset, offset, kept=True))
                published = offset
                offset += 1
                places: list[tuple[int, int]] = []
                for receiver in chance.sample(list(queues), chance.randint(1, len(queues))):
                    seqs[receiver] += 1
                    queues[receiver][seqs[receiver]] = published
                    places.append((receiver, seqs[receiver]))
                records.append(queued(offset, published, *places))
            else:
                owner = chance.choice(list(queues))
                done = chance.sample(list(queues[owner]), min(len(queues[owner]), chance.randint(0, 3)))
                records.append(encode_done(offset, owner, done))
                for seq in done:
                    del queues[owner][seq]
        store.apply(records)
        if chance.random() < 0.3:
            store.close()
            store = StateStore(tmp_path, map_size=1 << 20)
        assert waiting(store) == {owner: sorted(queue) for owner, queue in queues.items()}
        needed = {published for queue in queues.values() for published in queue.values()}
        messages = store.sessions.messages()
        assert set(messages) == needed
        assert all(m.payload == b"%d" % at for at, m in messages.items())
        assert references(store) == len(needed)
