"""The retained set of a past moment: pages and levels of the tree, from rows that are in memory or are read again."""

import pickle
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from holdfast.broker.access import PUBLISH, RECEIVE, RETAIN, SUBSCRIBE, Access, Rule
from holdfast.history.messages import message_of
from holdfast.history.reader import HistoryReader
from holdfast.history.writer import HistoryWriter
from holdfast.protocol.mqtt.properties import Properties
from holdfast.service import history as module
from holdfast.service.caller import OPERATOR, Caller
from holdfast.service.history import HistoryService
from holdfast.service.live import LiveSource
from holdfast.service.messages import encode_forwarded
from holdfast.service.past import MOMENT_BYTES, MOMENTS_KEPT, PAGE_BYTES, Moment, Past
from in_process import InProcess, with_broker
from log_records import ALICE, NOW_MS, retained

TOPICS = ["a", "a/b", "a/b/c", "a/d", "a0", "b/x/y"]
THEN = Moment(NOW_MS + 1000)

T = TypeVar("T")
Ask = Callable[[Callable[[HistoryService], Awaitable[Any]]], Any]


class Here(LiveSource):
    """Asks the past in this process, so that a test can say how large a moment may be."""

    def __init__(self, world: InProcess, past: Past) -> None:
        super().__init__(world.handle, history=past.place)
        self.here = past

    async def ask(self, question: Callable[..., T], *given: Any, **named: Any) -> T:
        return question(self.here, *given, **named)


def table_of(folder: Path, *records: bytes) -> Path:
    writer = HistoryWriter(folder / "history", folder / "quarantine")
    writer.append(list(records), len(records))
    writer.close()
    return folder / "history"


@pytest.fixture(params=[MOMENT_BYTES, 0], ids=["in memory", "read again"])
def past(request: pytest.FixtureRequest, tmp_path: Path) -> Past:
    """A table in which each of TOPICS was set once, in this order."""
    table = table_of(tmp_path, *(retained(topic, b"1", offset) for offset, topic in enumerate(TOPICS, 1)))
    return Past(table, moment_bytes=request.param)


@pytest.fixture
def ask(past: Past) -> Ask:
    def run(question: Callable[[HistoryService], Awaitable[T]]) -> T:
        async def act(world: InProcess) -> T:
            return await question(HistoryService(Here(world, past)))

        return with_broker(act)

    return run


def bob_who_receives(world: InProcess, topic_filter: bytes, from_alice: bytes = b"#") -> Caller:
    receives = Rule(True, RECEIVE | SUBSCRIBE, topic_filter, "bob", None)
    retains = Rule(True, PUBLISH | RETAIN, from_alice, "alice", None)
    world.broker.set_access(Access([receives, retains], False))
    return Caller("bob", False, world.broker)


async def walk(history: HistoryService, limit: int, caller: Caller) -> tuple[list[list[str]], list[str | None]]:
    """The topics of each page of THEN, and where each page ends."""
    pages: list[list[str]] = []
    ends: list[str | None] = []
    after: str | None = ""
    while after is not None:
        rows, after, _ = await history.page_at(THEN, after, limit, caller)
        pages.append([row["topic"] for row in rows])
        ends.append(after)
    return pages, ends


def test_a_moment_over_its_bytes_is_kept_without_payloads(past: Past, request: pytest.FixtureRequest) -> None:
    then = past.at(THEN)
    assert then is not None
    assert then.topics == TOPICS
    assert then.whole is ("payload" in then.rows.column_names)
    assert then.whole is ("in memory" in request.node.name)


def test_a_topic_is_found_or_not(ask: Ask) -> None:
    async def offsets(history: HistoryService) -> list[int | None]:
        rows = [await history.find_at(THEN, topic, OPERATOR) for topic in ("a/b", "b/x/y", "a/c", "z")]
        return [None if row is None else row["offset"] for row in rows]

    async def with_the_moment_at_hand(history: HistoryService) -> list[int | None]:
        await history.page_at(THEN, "", 1, OPERATOR)
        return await offsets(history)

    assert ask(offsets) == [2, 6, None, None]
    assert ask(with_the_moment_at_hand) == [2, 6, None, None]


def test_pages_follow_each_other_and_end(ask: Ask) -> None:
    pages, ends = ask(lambda history: walk(history, 2, OPERATOR))
    assert [topic for page in pages for topic in page] == TOPICS
    assert ends == ["a/b", "a/d", None]


def test_a_page_behind_the_end_is_empty(ask: Ask) -> None:
    assert ask(lambda history: history.page_at(THEN, "zzz", 2, OPERATOR)) == ([], None, len(TOPICS))


def test_a_user_is_shown_what_the_rules_give_and_not_told_how_much_there_is(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOKED_AT_MOST", 2)

    async def act(world: InProcess) -> None:
        history = HistoryService(Here(world, past))
        bob = bob_who_receives(world, b"a/#")
        assert (await history.page_at(THEN, "", 100, bob))[2] is None
        pages, ends = await walk(history, 100, bob)
        assert pages == [["a", "a/b"], ["a/b/c", "a/d"], []]
        assert ends == ["a/b", "a/d", None]
        assert [one.topic.decode() async for portion in history.messages_at(THEN, bob) for one in portion] == [
            "a",
            "a/b",
            "a/b/c",
            "a/d",
        ]
        assert await history.find_at(THEN, "a/d", bob) is not None
        assert await history.find_at(THEN, "a0", bob) is None
        bob = bob_who_receives(world, b"#", from_alice=b"a/b/#")
        assert [one.topic.decode() async for portion in history.messages_at(THEN, bob) for one in portion] == [
            "a/b",
            "a/b/c",
        ]
        assert await history.find_at(THEN, "a/d", bob) is None, "its publisher may not retain it any more"

    with_broker(act)


@pytest.mark.parametrize("sees_all", [True, False], ids=["sees all", "by rules"])
@pytest.mark.parametrize("moment_bytes", [MOMENT_BYTES, 0], ids=["in memory", "read again"])
def test_a_page_ends_when_it_has_enough_bytes(tmp_path: Path, sees_all: bool, moment_bytes: int) -> None:
    size, count = PAGE_BYTES // 50, 300
    records = (retained(f"t/{n:03}", b"x" * size, n) for n in range(1, count + 1))
    past = Past(table_of(tmp_path, *records), moment_bytes=moment_bytes)

    async def act(world: InProcess) -> list[list[str]]:
        caller = OPERATOR if sees_all else bob_who_receives(world, b"#")
        pages, _ = await walk(HistoryService(Here(world, past)), 1000, caller)
        return pages

    pages = with_broker(act)
    assert [topic for page in pages for topic in page] == [f"t/{n:03}" for n in range(1, count + 1)]
    assert max(map(len, pages)) <= 51


def test_who_goes_on_sees_the_moment_that_they_began_with(tmp_path: Path) -> None:
    now = [THEN.at_ms]
    past = Past(table_of(tmp_path, retained("a", b"1", 1), retained("c", b"1", 2)), lambda: now[0])
    assert past.page_at(THEN, "", 1)[1:] == ("a", 2)
    writer = HistoryWriter(past.place, tmp_path / "quarantine")
    writer.append([retained("b", b"1", 3)], 3)
    writer.close()
    assert [row["topic"] for row in past.page_at(THEN, "a", 9)[0]] == ["c"]
    assert [row["topic"] for row in past.page_at(THEN, "", 9)[0]] == ["a", "b", "c"]


def names(level: dict[str, Any]) -> list[tuple[str, int, bool, int | None]]:
    return [
        (one["name"], one["count"], one["leaf"], None if one["message"] is None else one["message"]["version"])
        for one in level["children"]
    ]


def level(ask: Ask, prefix: str | None, after: str = "", limit: int = 10) -> dict[str, Any]:
    found: dict[str, Any] = ask(lambda history: history.children_at(THEN, prefix, after, limit))
    return found


def test_a_level_of_the_tree_counts_what_is_below(ask: Ask) -> None:
    assert names(level(ask, None)) == [("a", 4, False, 1), ("a0", 1, True, 5), ("b", 1, False, None)]
    assert names(level(ask, "a")) == [("b", 2, False, 2), ("d", 1, True, 4)]
    assert names(level(ask, "b/x")) == [("y", 1, True, 6)]


def test_a_level_of_the_tree_comes_in_pages(ask: Ask) -> None:
    first = level(ask, None, limit=2)
    assert (first["total"], first["next"]) == (3, "a0")
    last = level(ask, None, "a0", 2)
    assert (names(last), last["next"]) == ([("b", 1, False, None)], None)


def test_messages_are_as_they_were(ask: Ask) -> None:
    first = ask(lambda history: anext(history.messages_at(THEN, OPERATOR)))[0]
    assert (first.topic, first.payload, first.qos, first.offset, first.expires_at_ms) == (b"a", b"1", 1, 1, 0)
    assert first.publisher.origin == ALICE.origin


def test_what_rights_are_asked_about_is_known_without_the_payload(past: Past) -> None:
    sketches, more = past.sketches_at(THEN, "", 1)
    [row], _ = past.rows([sketches[0].offset])
    sketch, whole = sketches[0].message(), message_of(row)
    assert more
    assert sketch.topic == whole.topic
    assert sketch.publisher.origin == whole.publisher.origin


LARGE = PAGE_BYTES // 50


@pytest.mark.parametrize("moment_bytes", [MOMENT_BYTES, 0], ids=["in memory", "read again"])
def test_a_moment_is_restored_in_portions_of_bounded_bytes(tmp_path: Path, moment_bytes: int) -> None:
    records = (retained(f"t/{n:03}", b"x" * LARGE, n) for n in range(1, 301))
    past = Past(table_of(tmp_path, *records), moment_bytes=moment_bytes)

    async def act(world: InProcess) -> list[list[str]]:
        history = HistoryService(Here(world, past))
        return [[one.topic.decode() for one in portion] async for portion in history.messages_at(THEN, OPERATOR)]

    portions = with_broker(act)
    assert [topic for portion in portions for topic in portion] == [f"t/{n:03}" for n in range(1, 301)]
    assert max(map(len, portions)) <= 51


def test_the_rows_of_a_topic_come_in_pages_of_bounded_bytes(tmp_path: Path) -> None:
    past = Past(table_of(tmp_path, *(retained("t", b"x" * LARGE, n) for n in range(1, 121))))
    offsets: list[int] = []
    before: int | None = 0
    while before is not None:
        page = past.of_topic("t", before, 1000)
        assert 0 < len(page["rows"]) <= 51
        offsets += [row["offset"] for row in page["rows"]]
        before = page["next"]
    assert offsets == list(range(120, 0, -1))


def test_properties_count_as_bytes_too(tmp_path: Path) -> None:
    properties = Properties()
    properties.user_properties = [("k", "v" * 60_000)] * 10
    encoded = encode_forwarded(properties)
    past = Past(table_of(tmp_path, *(retained("t", b"x", n, properties=encoded) for n in range(1, 31))))
    assert len(past.of_topic("t", 0, 1000)["rows"]) == PAGE_BYTES // 600_000 + 1


def test_small_rows_do_not_bring_all_the_large_ones_behind_them_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [1] * 150 + [LARGE] * 300
    past = Past(table_of(tmp_path, *(retained(f"t/{n:03}", b"x" * size, n) for n, size in enumerate(sizes, 1))))
    read: list[int] = []
    rows_within = HistoryReader.rows_within

    def noting(self: HistoryReader, offsets: Any, most_bytes: int | None) -> Any:
        rows = rows_within(self, offsets, most_bytes)
        read.append(0 if rows is None else rows.nbytes)
        return rows

    monkeypatch.setattr(HistoryReader, "rows_within", noting)
    rows, answered = past.rows(list(range(1, len(sizes) + 1)))
    assert answered == len(rows)
    assert 150 < answered < 250
    assert max(read) <= PAGE_BYTES, "no more is decoded than fits into the answer"


def test_who_may_see_nothing_costs_the_broker_bounded_bytes_a_page(tmp_path: Path) -> None:
    """However long the topics are that one is not to see, and however many moments are asked for."""
    count = 3000
    records = (retained(f"{n:04}/" + "x" * 4000, b"x" * 100, n) for n in range(1, count + 1))
    past = Past(table_of(tmp_path, *records), moment_bytes=0)
    answers: list[int] = []

    class Weighing(Here):
        async def ask(self, question: Callable[..., T], *given: Any, **named: Any) -> T:
            assert question is not Past.rows, "no payload is read for who may see none"
            answer = await super().ask(question, *given, **named)
            answers.append(len(pickle.dumps(answer)))
            return answer

    async def act(world: InProcess) -> None:
        history = HistoryService(Weighing(world, past))
        bob = bob_who_receives(world, b"nothing/of/this")
        for moment in (Moment(NOW_MS + 10_000 + later) for later in range(2 * MOMENTS_KEPT)):
            after: str | None = ""
            while after is not None:
                rows, after, total = await history.page_at(moment, after, 1000, bob)
                assert (rows, total) == ([], None)

    with_broker(act)
    assert len(answers) > 2 * MOMENTS_KEPT * 2, "expected several pages for each"
    assert max(answers) < 2 * PAGE_BYTES
    assert len(past.moments) == MOMENTS_KEPT
