"""The retained set in LMDB: it is what a dictionary says it should be, after any batches and restarts."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.broker.message import CLEARED, REFUSED_SIZE
from holdfast.broker.topics import matches
from holdfast.state.retained import Walk
from holdfast.state.store import StateStore
from holdfast.state.tables import KEY_MAX, topic_key
from log_records import NOW_MS, live, message, retained
from seeds import EFFORT, thinned

SMALL = 1 << 20


def contents(store: StateStore) -> dict[bytes, bytes]:
    return {m.topic: m.payload for batch in store.retained.all(7) for m in batch}


def walk(store: StateStore, topic_filter: str, count: int = 3, visits: int = 5) -> list[bytes]:
    found: list[bytes] = []
    position = Walk(topic_filter.encode())
    while not position.ended:
        found += [m.topic for m in store.retained.next(position, count, visits)]
    return found


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    opened = StateStore(tmp_path / "state", map_size=SMALL)
    yield opened
    opened.close()


def test_a_set_is_found_with_everything_it_had(store: StateStore) -> None:
    sent = message("a/b", b"21.5", 7, qos=2, expires_at_ms=NOW_MS + 5000, properties=b"\x01\x01")
    store.apply([retained("a/b", b"21.5", 7, qos=2, expires_at_ms=NOW_MS + 5000, properties=b"\x01\x01")])
    found = store.retained.get(b"a/b")
    assert found is not None
    for name in ("topic_field", "payload", "qos", "retain", "properties", "offset", "stored_at_ms", "expires_at_ms"):
        assert getattr(found, name) == getattr(sent, name), name
    assert found.interval_given
    assert (found.publisher.client_id, found.publisher.username, found.publisher.protocol) == (
        "alice-1",
        "alice",
        "5.0",
    )


def test_only_set_and_cleared_change_the_set(store: StateStore) -> None:
    store.apply([retained("a", b"1", 1), live("a", b"2", 2), retained("a", b"3", 3, outcome=REFUSED_SIZE)])
    assert contents(store) == {b"a": b"1"}
    store.apply([retained("a", b"", 4, outcome=CLEARED)])
    assert contents(store) == {}
    assert store.retained.get(b"a") is None


def test_the_same_records_may_come_again(store: StateStore) -> None:
    records = [retained("a", b"1", 1), retained("a", b"", 2, outcome=CLEARED), retained("b", b"3", 3)]
    assert store.apply(records) == 3
    assert store.apply(records) == 3
    assert contents(store) == {b"b": b"3"}
    assert store.retained.statistics().count == 1


def test_the_applied_offset_survives_with_what_it_stands_for(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    store.apply([retained("a", b"1", 5)], upto=9)
    store.close()
    again = StateStore(tmp_path)
    assert again.applied == 9
    assert contents(again) == {b"a": b"1"}


def test_topics_longer_than_a_key_are_kept_apart(store: StateStore) -> None:
    stem = "x" * (KEY_MAX - 10)
    topics = [f"{stem}/{i}/{'y' * 300}" for i in range(5)] + ["z" * 65535, "é" * 30000]
    store.apply([retained(topic, str(i).encode(), i + 1) for i, topic in enumerate(topics)])
    assert contents(store) == {topic.encode(): str(i).encode() for i, topic in enumerate(topics)}
    assert sorted(walk(store, f"{stem}/#")) == sorted(t.encode() for t in topics[:5])
    assert walk(store, f"{stem}/3/+") == [topics[3].encode()]
    assert store.retained.get(topics[5].encode()) is not None
    assert all(len(topic_key(t.encode())) <= KEY_MAX for t in topics)


def test_the_map_grows_by_itself(store: StateStore) -> None:
    for start in range(0, 3000, 500):
        store.apply([retained(f"t/{i}", bytes(2000), i + 1) for i in range(start, start + 500)])
    assert store.retained.statistics().count == 3000
    assert store.environment.env.info()["map_size"] > 4 * SMALL


def test_a_value_with_a_flipped_bit_is_left_out_and_counted(store: StateStore) -> None:
    store.apply([retained("a", b"1", 1), retained("b", b"2", 2)])
    db = store.environment.db["retained"]
    with store.environment.env.begin(write=True) as txn:
        stored = bytearray(txn.get(b"a", db=db) or b"")
        stored[-1] ^= 4
        txn.put(b"a", bytes(stored), db=db)
    assert contents(store) == {b"b": b"2"}
    assert store.retained.get(b"a") is None
    assert store.retained.damaged == 2


def test_what_has_expired_is_purged_and_what_replaced_it_stays(store: StateStore) -> None:
    store.apply(
        [
            retained("gone", b"1", 1, expires_at_ms=NOW_MS + 10),
            retained("later", b"2", 2, expires_at_ms=NOW_MS + 5000),
            retained("never", b"3", 3),
            retained("renewed", b"4", 4, expires_at_ms=NOW_MS + 10),
            retained("renewed", b"5", 5, expires_at_ms=NOW_MS + 5000),
            retained("kept", b"6", 6, expires_at_ms=NOW_MS + 10),
        ]
    )
    store.apply([retained("kept", b"7", 7)])
    assert store.retained.purge(NOW_MS + 10) == 1
    assert contents(store) == {b"later": b"2", b"never": b"3", b"renewed": b"5", b"kept": b"7"}
    assert store.retained.statistics().count == 4
    assert store.retained.purge(NOW_MS + 5000) == 2
    assert set(contents(store)) == {b"never", b"kept"}


LEVEL = st.sampled_from(["a", "b", "ab", "a-", "", "$x", "a\x01", "é", "zz"])
TOPIC = st.lists(LEVEL, min_size=1, max_size=4).map("/".join).filter(bool)
FILTER_LEVEL = st.one_of(LEVEL, st.just("+"))
FILTER = st.tuples(st.lists(FILTER_LEVEL, min_size=1, max_size=4), st.booleans()).map(
    lambda parts: "/".join([*parts[0], "#"] if parts[1] else parts[0])
)


@settings(max_examples=40 * EFFORT)
@given(st.lists(TOPIC, max_size=25, unique=True), st.lists(st.one_of(FILTER, st.just("#")), min_size=1, max_size=6))
def test_a_walk_finds_exactly_what_a_naive_matcher_does(
    tmp_path_factory: pytest.TempPathFactory, topics: list[str], filters: list[str]
) -> None:
    store = StateStore(tmp_path_factory.mktemp("state"), map_size=SMALL)
    store.apply([retained(topic, b"x", i + 1) for i, topic in enumerate(topics)])
    for topic_filter in filters:
        levels = topic_filter.encode().split(b"/")
        expected = sorted(t.encode() for t in topics if matches(levels, t.encode().split(b"/")))
        found = walk(store, topic_filter)
        assert sorted(found) == expected, topic_filter
    store.close()


def test_a_walk_jumps_over_what_cannot_match(store: StateStore) -> None:
    store.apply([retained(f"site/{i:03}/line/{j}", b"x", i * 100 + j + 1) for i in range(50) for j in range(60)])
    position = Walk(b"site/+/line/7")
    found = store.retained.next(position, 1000, visits=300)
    assert position.ended, "3000 keys, of which no more than 300 were looked at"
    assert len(found) == 50


@pytest.mark.parametrize("seed", thinned(range(8), 4))
def test_any_history_of_batches_and_restarts_gives_what_a_dictionary_gives(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    store = StateStore(tmp_path, map_size=SMALL)
    model: dict[bytes, bytes] = {}
    offset = 0
    for _ in range(30):
        records: list[bytes] = []
        for _ in range(chance.randint(0, 40)):
            offset += chance.randint(1, 3)
            topic = f"t/{chance.randint(0, 15)}/{'long' * 200 if chance.random() < 0.1 else chance.randint(0, 3)}"
            if chance.random() < 0.3:
                records.append(retained(topic, b"", offset, outcome=CLEARED))
                model.pop(topic.encode(), None)
            else:
                payload = chance.randbytes(chance.randint(1, 300))
                expires = NOW_MS + offset if chance.random() < 0.3 else 0
                records.append(retained(topic, payload, offset, expires_at_ms=expires))
                model[topic.encode()] = payload
        store.apply(records)
        if chance.random() < 0.3:
            store.close()
            store = StateStore(tmp_path, map_size=SMALL)
        assert contents(store) == model
        statistics = store.retained.statistics()
        assert statistics.count == len(model)
        assert (statistics.size == 0) == (not model)


def test_memory_of_pages_that_were_read_is_given_back(tmp_path: Path) -> None:
    import psutil

    process = psutil.Process()
    store = StateStore(tmp_path)
    store.apply([retained(f"t/{i}", bytes(3000), i + 1) for i in range(10_000)])
    assert len(contents(store)) == 10_000
    before = process.memory_info().shared
    assert store.environment.trim() > 0
    assert process.memory_info().shared < before - 20_000_000
    assert store.retained.get(b"t/77") is not None
