"""The retained index against a dictionary, and cursors that walk it while it changes under them."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.index import Index
from holdfast.broker.message import Message, topic_field
from holdfast.broker.session import NO_ONE
from holdfast.broker.topics import matches
from seeds import thinned

LEVELS = st.sampled_from(["", "a", "b", "c", "d", "$s"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(lambda topic: topic != "")
FILTERS = st.sampled_from(["#", "+", "a/#", "+/#", "+/+", "a/+/#", "a/+/b", "a", "a/b", "$s/#", "$s/+", "+/b/#", "b/#"])
CHANGES = st.lists(st.tuples(st.booleans(), TOPICS), max_size=60)


def message(topic: str, offset: int) -> Message:
    return Message(topic_field(topic.encode()), b"x", 0, True, b"", NO_ONE, offset, 0, 0, False)


class Twin:
    """The index and the dictionary it must agree with."""

    def __init__(self) -> None:
        self.index = Index()
        self.kept: dict[str, Message] = {}
        self.offset = 0

    def change(self, sets: bool, topic: str) -> None:
        self.offset += 1
        if sets:
            new = message(topic, self.offset)
            assert self.index.put(new, topic.encode().split(b"/")) is self.kept.get(topic)
            self.kept[topic] = new
        else:
            assert self.index.remove(topic.encode(), self.offset) is self.kept.pop(topic, None)


def expected(kept: dict[str, Message], topic_filter: str) -> set[str]:
    levels = topic_filter.encode().split(b"/")
    return {topic for topic in kept if matches(levels, topic.encode().split(b"/"))}


@given(CHANGES, st.lists(TOPICS, max_size=20), st.lists(FILTERS, max_size=6))
def test_index_holds_what_a_dictionary_would(
    changes: list[tuple[bool, str]], asked: list[str], filters: list[str]
) -> None:
    twin = Twin()
    for sets, topic in changes:
        twin.change(sets, topic)
    for topic in asked:
        assert twin.index.get(topic.encode()) is twin.kept.get(topic)
    for topic_filter in filters:
        cursor = twin.index.cursor(topic_filter.encode(), twin.offset)
        found = []
        while not cursor.ended:
            if (one := cursor.next(3)) is not None:
                found.append(one.topic.decode())
        assert len(found) == len(set(found))
        assert set(found) == expected(twin.kept, topic_filter)
        twin.index.release(cursor)
    for topic in list(twin.kept):
        twin.change(False, topic)
    assert not twin.index.root.children
    assert not twin.index.dollar.children


@given(CHANGES, FILTERS, st.lists(st.one_of(st.just(None), st.tuples(st.booleans(), TOPICS)), max_size=120))
def test_cursor_meets_everything_that_stays_once_whatever_else_changes(
    before: list[tuple[bool, str]], topic_filter: str, steps: list[tuple[bool, str] | None]
) -> None:
    twin = Twin()
    for sets, topic in before:
        twin.change(sets, topic)
    version = twin.offset
    start = dict(twin.kept)
    cursor = twin.index.cursor(topic_filter.encode(), version)
    met: list[str] = []

    def take() -> None:
        one = cursor.next(2)
        if one is not None and one.offset <= version:
            met.append(one.topic.decode())

    for step in steps:
        if step is None:
            take()
        else:
            twin.change(*step)
        unchanged = {t for t in expected(start, topic_filter) if twin.kept.get(t) is start[t]}
        for topic in unchanged:
            assert cursor.passed(topic.encode().split(b"/")) == (topic in met), topic
    while not cursor.ended:
        take()
    assert len(met) == len(set(met)), "a topic came twice"
    unchanged = {t for t in expected(start, topic_filter) if twin.kept.get(t) is start[t]}
    assert unchanged <= set(met)
    assert set(met) <= expected(start, topic_filter)


def test_compacting_a_large_node_moves_no_cursor() -> None:
    twin = Twin()
    for number in range(1000):
        twin.change(True, f"a/{number}")
    cursor = twin.index.cursor(b"a/+", twin.offset)
    version = twin.offset
    met = [cursor.next(10) for _ in range(400)]
    for number in range(0, 1000, 2):
        twin.change(False, f"a/{number}")
    for number in range(1, 900, 2):
        twin.change(False, f"a/{number}")
    rest = []
    while not cursor.ended:
        one = cursor.next(10)
        if one is not None:
            rest.append(one)
    assert {one.topic for one in rest} == {f"a/{number}".encode() for number in range(901, 1000, 2)}
    assert len(met) == 400
    assert all(one is not None and one.offset <= version for one in met)


def test_compacting_the_list_of_everything_moves_no_cursor() -> None:
    twin = Twin()
    for number in range(12_000):
        twin.change(True, f"t{number % 7}/{number}")
    cursors = [twin.index.cursor(b"#", twin.offset) for _ in range(3)]
    met: list[list[bytes]] = [[], [], []]
    for place, count in enumerate((0, 5000, 11_999)):
        while len(met[place]) < count:
            one = cursors[place].next(10)
            assert one is not None
            met[place].append(one.topic)
    for number in range(12_000):
        if number % 10:
            twin.change(False, f"t{number % 7}/{number}")
    assert len(twin.index.order) < 12_000, "nothing was compacted"
    left = {f"t{number % 7}/{number}".encode() for number in range(0, 12_000, 10)}
    for place, cursor in enumerate(cursors):
        rest: list[bytes] = []
        while not cursor.ended:
            one = cursor.next(10)
            if one is not None:
                rest.append(one.topic)
        assert len(rest) == len(set(rest))
        assert set(rest) == left - set(met[place])


@pytest.mark.parametrize("seed", thinned(range(4), 4))
def test_cursors_walk_on_while_the_list_of_everything_is_compacted_bit_by_bit(seed: int) -> None:
    rng = random.Random(seed)
    twin = Twin()
    for number in range(9_000):
        twin.change(True, f"t/{number}")
    version = twin.offset
    start = dict(twin.kept)
    cursors = [twin.index.cursor(b"#", version) for _ in range(4)]
    met: list[set[str]] = [set() for _ in cursors]
    leaving = rng.sample(sorted(start), 8_000)
    compacting = 0
    while leaving:
        for _ in range(rng.randrange(1, 40)):
            if leaving:
                twin.change(False, leaving.pop())
                compacting += twin.index.compacted >= 0
        if rng.random() < 0.3:
            twin.change(True, f"new/{rng.randrange(500)}")
        for cursor, found in zip(cursors, met, strict=True):
            for _ in range(rng.randrange(8)):
                one = cursor.next(rng.randrange(1, 30))
                if one is not None and one.offset <= version:
                    assert one.topic.decode() not in found
                    found.add(one.topic.decode())
            for topic in rng.sample(sorted(start), 3):
                if twin.kept.get(topic) is start[topic]:
                    assert cursor.passed(topic.encode().split(b"/")) == (topic in found), topic
    assert compacting > 100
    stayed = {topic for topic in start if twin.kept.get(topic) is start[topic]}
    for cursor, found in zip(cursors, met, strict=True):
        while not cursor.ended:
            one = cursor.next(50)
            if one is not None and one.offset <= version:
                assert one.topic.decode() not in found
                found.add(one.topic.decode())
        assert stayed <= found
