"""The retained set without messages in memory: the disk, with what is not applied yet in front."""

import random
from pathlib import Path

import pytest

from holdfast.broker.message import CLEARED
from holdfast.state.store import StateStore
from holdfast.storage.disk_index import OVERHEAD_BYTES, RetainedView, VersionedWalk
from log_records import message, retained


def drain(view: RetainedView, walk: VersionedWalk) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    while not walk.ended:
        for m in view.next(walk, 3, 4):
            assert m.topic not in found, "each topic at most once"
            found[m.topic] = m.payload
    return found


def test_what_is_accepted_is_seen_before_it_is_applied(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    store.apply([retained("a", b"old", 1), retained("b", b"old", 2)])
    view = RetainedView(store.retained)
    view.set(message("a", b"new", 3))
    view.clear(b"b", 4)
    view.set(message("c", b"new", 5))
    assert view.get(b"a").payload == b"new"  # type: ignore[union-attr]
    assert view.get(b"b") is None
    assert drain(view, view.walk(b"#", 5)) == {b"a": b"new", b"c": b"new"}


def test_memory_is_given_back_once_applied(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    view = RetainedView(store.retained)
    view.set(message("a", b"1", 1))
    view.set(message("b", b"2", 2))
    view.set(message("a", b"3", 3))
    store.apply([retained("a", b"1", 1), retained("b", b"2", 2)])
    view.on_applied(2)
    assert list(view.pending) == [b"a"]
    assert view.get(b"a").payload == b"3"  # type: ignore[union-attr]
    store.apply([retained("a", b"3", 3)])
    view.on_applied(3)
    assert view.pending == {}
    assert view.get(b"a").payload == b"3"  # type: ignore[union-attr]


def test_publishers_wait_while_too_much_is_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.storage.disk_index.PENDING_BYTES", 5 * (OVERHEAD_BYTES + 100))
    view = RetainedView(StateStore(tmp_path).retained)
    for offset in range(1, 11):
        view.set(message("same", bytes(90), offset))
    assert not view.is_full()
    for offset in range(11, 16):
        view.set(message(f"t/{offset}", bytes(90), offset))
    view.clear(b"gone", 16)
    assert view.is_full()
    view.on_applied(12)
    assert not view.is_full()
    view.on_applied(16)
    assert view.size == 0


@pytest.mark.parametrize("seed", range(30))
def test_a_snapshot_is_the_set_at_its_version_less_what_changed_since(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    store = StateStore(tmp_path)
    view = RetainedView(store.retained)
    model: dict[bytes, tuple[int, bytes]] = {}
    log: list[bytes] = []
    offset = 0

    def change() -> None:
        nonlocal offset
        offset += 1
        topic = f"t/{chance.randint(0, 30)}"
        if chance.random() < 0.3:
            view.clear(topic.encode(), offset)
            log.append(retained(topic, b"", offset, outcome=CLEARED))
            model.pop(topic.encode(), None)
        else:
            payload = b"%d" % offset
            view.set(message(topic, payload, offset))
            log.append(retained(topic, payload, offset))
            model[topic.encode()] = (offset, payload)

    def apply_some() -> None:
        count = chance.randint(0, len(log))
        if count:
            view.on_applied(store.apply(log[:count]))
            del log[:count]

    for _ in range(chance.randint(5, 80)):
        change()
    apply_some()
    version = offset
    at_start = dict(model)
    walk = view.walk(b"t/#", version)
    found: dict[bytes, bytes] = {}
    while not walk.ended:
        for m in view.next(walk, chance.randint(1, 5), chance.randint(1, 8)):
            assert m.topic not in found
            found[m.topic] = m.payload
        if chance.random() < 0.5:
            change()
        if chance.random() < 0.3:
            apply_some()
    unchanged = {topic: payload for topic, (at, payload) in model.items() if at <= version}
    assert unchanged.items() <= found.items(), "everything that did not change is there"
    assert found.items() <= {topic: payload for topic, (_, payload) in at_start.items()}.items()


def test_topics_that_begin_with_a_dollar_come_only_when_they_are_asked_for(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    store.apply([retained(topic, b"1", offset) for offset, topic in enumerate(("!", "$a/b", "$z", "a", "b"), 1)])
    view = RetainedView(store.retained)
    view.set(message("$new", b"1", 6))
    assert set(drain(view, view.walk(b"#", 6))) == {b"!", b"a", b"b"}
    assert set(drain(view, view.walk(b"#", 6, hidden=True))) == {b"!", b"$a/b", b"$z", b"$new", b"a", b"b"}
