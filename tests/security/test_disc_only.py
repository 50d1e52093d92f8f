"""Retained messages that stay on disk: what a subscriber can make the broker look at, or hold, at once. Counted in keys
and bytes, not in time.
"""

from pathlib import Path

import pytest

from core_driver import carry_out
from holdfast.broker.core import Broker
from holdfast.broker.message import Message
from holdfast.broker.ports import TopicCursor
from holdfast.broker.settings import Settings
from holdfast.broker.snapshot import VISITS_PER_STEP
from holdfast.broker.topics import matches
from holdfast.state.retained import WALK_BYTES
from holdfast.state.store import StateStore
from holdfast.storage import disk_index as module
from holdfast.storage.disk_index import DiskCursor, DiskIndex, RetainedView
from holdfast.storage.loading import use_disk
from log_records import message, retained
from sn_world import Wire
from wire_packets import connect, subscribe

NOW_MS = 1_700_000_000_000


class Counting(DiskIndex):
    looked = 0

    def cursor(self, topic_filter: bytes, version: int) -> TopicCursor:
        return CountingCursor(self, self.view.walk(topic_filter, version))


class CountingCursor(DiskCursor):
    def next(self, visits: int) -> Message | None:
        found = super().next(visits)
        assert isinstance(self.index, Counting)
        self.index.looked += self.visited
        return found


def test_no_step_of_a_snapshot_looks_at_more_than_its_portion(tmp_path: Path) -> None:
    """Where one topic in thousands matches, each match costs thousands of looks."""
    store = StateStore(tmp_path)
    count, every = 40_000, 4000
    names = (f"t/{n}/{'wanted' if n % every == 0 else 'other'}" for n in range(count))
    store.apply([retained(name, b"x", offset) for offset, name in enumerate(names, 1)])
    broker = Broker(Settings(), "auto-")
    use_disk(broker, store, NOW_MS)
    broker.log.position = count
    index = broker.retained.index = Counting(store.retained)
    wire = Wire()
    connection = broker.open(wire, NOW_MS)
    carry_out(broker.receive(connection, connect("c"), NOW_MS), broker.log)
    most = total = 0

    def count_step() -> None:
        nonlocal most, total
        most, total, index.looked = max(most, index.looked), total + index.looked, 0

    carry_out(broker.receive(connection, subscribe(1, [("+/+/wanted", 0)]), NOW_MS), broker.log)
    count_step()
    while broker.has_work():
        carry_out(broker.work(NOW_MS), broker.log)
        count_step()
    assert wire.data.count(b"/wanted") == count // every
    assert total >= count
    assert most <= VISITS_PER_STEP + count // every


def test_beginning_a_snapshot_looks_at_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for the disk may be hundreds of thousands of topics, and one SUBSCRIBE a thousand snapshots."""
    view = RetainedView(StateStore(tmp_path).retained)
    for offset in range(1, 10_001):
        view.set(message(f"t/{offset}", b"x", offset))
    looked = 0

    def counting(levels: list[bytes], topic: list[bytes]) -> bool:
        nonlocal looked
        looked += 1
        return matches(levels, topic)

    monkeypatch.setattr(module, "matches", counting)
    walks = [view.walk(b"t/+", 10_000) for _ in range(1000)]
    assert looked == 0
    assert len({id(walk.topics) for walk in walks}) == 1, "they share the list of what waits"
    found: set[bytes] = set()
    while not walks[0].ended:
        before = looked
        found |= {one.topic for one in view.next(walks[0], 256, 100)}
        assert looked - before <= 100
    assert len(found) == 10_000


@pytest.mark.parametrize("topic_filter", [b"#", b"t/+", b"t/#"])
@pytest.mark.parametrize("on_disk", [True, False])
def test_a_snapshot_holds_bounded_bytes_however_large_its_messages(
    tmp_path: Path, topic_filter: bytes, on_disk: bool
) -> None:
    store = StateStore(tmp_path)
    index = DiskIndex(store.retained)
    size, count = WALK_BYTES // 4, 50
    for offset in range(1, count + 1):
        if on_disk:
            store.apply([retained(f"t/{offset:02}", b"x" * size, offset)])
        else:
            index.view.set(message(f"t/{offset:02}", b"x" * size, offset))
    cursor = DiskCursor(index, index.view.walk(topic_filter, count))
    found = 0
    while not cursor.ended:
        found += cursor.next(8192) is not None
        assert sum(len(one.payload) for one in cursor.batch) <= WALK_BYTES
    assert found == count


def test_long_topics_are_all_there_after_a_start(tmp_path: Path) -> None:
    """A portion of the start may end at a key that is as long as keys can be."""
    store = StateStore(tmp_path)
    topics = [f"{n}/" + "x" * 600 for n in range(5)]
    store.apply([retained(topic, b"x", offset) for offset, topic in enumerate(topics, 1)])
    assert [one.topic.decode() for part in store.retained.all(size=1) for one in part] == topics


def test_a_start_reads_bounded_bytes_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.state import retained as state

    monkeypatch.setattr(state, "LOAD_BYTES", 10_000)
    store = StateStore(tmp_path)
    store.apply([retained(f"t/{n:03}", b"x" * 1000, n) for n in range(1, 101)])
    parts = [len(part) for part in store.retained.all()]
    assert sum(parts) == 100
    assert max(parts) <= 10
