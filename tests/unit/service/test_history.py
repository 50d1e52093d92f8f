"""The retained set of a past moment: pages and levels of the tree, from rows that are in memory or are read again."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from holdfast.history.writer import HistoryWriter
from holdfast.service.caller import OPERATOR
from holdfast.service.history import MOMENT_BYTES, PAGE_BYTES, HistoryService, RetainedAt
from holdfast.service.live import LiveSource
from in_process import InProcess, with_broker
from log_records import NOW_MS, retained

TOPICS = ["a", "a/b", "a/b/c", "a/d", "a0", "b/x/y"]
AT_MS = NOW_MS + 1000

T = TypeVar("T")
Ask = Callable[[Callable[[HistoryService], Awaitable[Any]]], Any]


@pytest.fixture(params=[MOMENT_BYTES, 0], ids=["in memory", "read again"])
def ask(request: pytest.FixtureRequest, tmp_path: Path) -> Ask:
    """Runs a question to a table in which each of TOPICS was set once, in this order."""
    folder = tmp_path / "history"
    writer = HistoryWriter(folder, tmp_path / "quarantine")
    writer.append([retained(topic, b"1", offset) for offset, topic in enumerate(TOPICS, 1)], len(TOPICS))
    writer.close()

    def run(question: Callable[[HistoryService], Awaitable[T]]) -> T:
        async def act(world: InProcess) -> T:
            source = LiveSource(world.handle, history=folder)
            try:
                return await question(HistoryService(source, request.param))
            finally:
                source.close()

        return with_broker(act)

    return run


def test_a_moment_over_its_bytes_is_kept_without_payloads(ask: Ask, request: pytest.FixtureRequest) -> None:
    then = ask(lambda history: history.at(AT_MS, 0, "#"))
    assert then.topics == TOPICS
    assert then.whole is ("payload" in then.rows.column_names)
    assert then.whole is ("in memory" in request.node.name)


def test_a_topic_is_found_or_not(ask: Ask) -> None:
    async def offsets(history: HistoryService) -> list[int | None]:
        rows = [await history.one_at(AT_MS, 0, topic, OPERATOR) for topic in ("a/b", "b/x/y", "a/c", "z")]
        return [None if row is None else row["offset"] for row in rows]

    assert ask(offsets) == [2, 6, None, None]


def test_pages_follow_each_other_and_end(ask: Ask) -> None:
    async def pages(history: HistoryService) -> tuple[list[str], list[str | None]]:
        then = await history.at(AT_MS, 0, "#")
        topics: list[str] = []
        ends: list[str | None] = [""]
        while ends[-1] is not None:
            rows, following = await history.page_at(then, ends[-1], 2, OPERATOR)
            topics += [one["topic"] for one in rows]
            ends.append(following)
        return topics, ends

    assert ask(pages) == (TOPICS, ["", "a/b", "a/d", None])


def test_a_page_behind_the_end_is_empty(ask: Ask) -> None:
    async def last(history: HistoryService) -> object:
        return await history.page_at(await history.at(AT_MS, 0, "#"), "zzz", 2, OPERATOR)

    assert ask(last) == ([], None)


def test_a_page_ends_when_it_has_enough_bytes(tmp_path: Path) -> None:
    folder = tmp_path / "history"
    writer = HistoryWriter(folder, tmp_path / "quarantine")
    size, count = PAGE_BYTES // 50, 300
    writer.append([retained(f"t/{n:03}", b"x" * size, n) for n in range(1, count + 1)], count)
    writer.close()

    async def act(world: InProcess) -> list[int]:
        source = LiveSource(world.handle, history=folder)
        history = HistoryService(source)
        then = await history.at(AT_MS, 0, "#")
        lengths: list[int] = []
        after: str | None = ""
        while after is not None:
            rows, after = await history.page_at(then, after, 1000, OPERATOR)
            lengths.append(len(rows))
        source.close()
        return lengths

    lengths = with_broker(act)
    assert sum(lengths) == count
    assert max(lengths) <= 100


def names(level: dict[str, Any]) -> list[tuple[str, int, bool, int | None]]:
    return [
        (one["name"], one["count"], one["leaf"], None if one["message"] is None else one["message"]["version"])
        for one in level["children"]
    ]


def level(ask: Ask, prefix: str | None, after: str = "", limit: int = 10) -> dict[str, Any]:
    found: dict[str, Any] = ask(lambda history: history.tree_at(AT_MS, prefix, after, limit))
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
    first = ask(lambda history: history.seen_at(AT_MS, 0, "#", OPERATOR))[0]
    assert (first.topic, first.payload, first.offset, first.expires_at_ms) == (b"a", b"1", 1, 0)


def test_what_rights_are_asked_about_is_known_without_the_payload(ask: Ask) -> None:
    then: RetainedAt = ask(lambda history: history.at(AT_MS, 0, "#"))
    whole = ask(lambda history: history.seen_at(AT_MS, 0, "#", OPERATOR))[0]
    sketch = then.sketch(0)
    assert sketch.topic == whole.topic
    assert sketch.publisher.origin == whole.publisher.origin
