"""The retained set of a past moment: pages and levels of the tree, from rows that a table would have given."""

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.history.messages import message_of
from holdfast.history.schema import arrow_schema
from holdfast.service.past import RetainedAt

AT = datetime(2026, 3, 1, tzinfo=UTC)


def row(topic: str, offset: int) -> dict[str, Any]:
    known = {"offset": offset, "timestamp": AT, "topic": topic, "payload": b"1", "qos": 1, "retain": True}
    return {**dict.fromkeys(arrow_schema().names), **known, "client_id": "c", "protocol": "5.0", "outcome": "set"}


@pytest.fixture
def then() -> RetainedAt:
    import pyarrow as pa

    topics = ["a", "a/b", "a/b/c", "a/d", "a0", "b/x/y"]
    rows = [row(topic, offset) for offset, topic in enumerate(topics, 1)]
    return RetainedAt(pa.Table.from_pylist(rows, arrow_schema()))


def test_a_topic_is_found_or_not(then: RetainedAt) -> None:
    found = then.find("a/b")
    assert found is not None
    assert found["offset"] == 2
    assert then.find("a/c") is None
    assert then.find("z") is None


def test_pages_follow_each_other_and_end(then: RetainedAt) -> None:
    topics, after = [], ""
    for _ in range(4):
        rows, following = then.page(after, 2)
        topics += [one["topic"] for one in rows]
        if following is None:
            break
        after = following
    assert topics == then.topics


def test_a_page_behind_the_end_is_empty(then: RetainedAt) -> None:
    assert then.page("zzz", 2) == ([], None)


def names(level: dict[str, Any]) -> list[tuple[str, int, bool, int | None]]:
    return [
        (one["name"], one["count"], one["leaf"], None if one["message"] is None else one["message"]["version"])
        for one in level["children"]
    ]


def test_a_level_of_the_tree_counts_what_is_below(then: RetainedAt) -> None:
    assert names(then.children(None, "", 10)) == [("a", 4, False, 1), ("a0", 1, True, 5), ("b", 1, False, None)]
    assert names(then.children("a", "", 10)) == [("b", 2, False, 2), ("d", 1, True, 4)]
    assert names(then.children("b/x", "", 10)) == [("y", 1, True, 6)]


def test_a_level_of_the_tree_comes_in_pages(then: RetainedAt) -> None:
    first = then.children(None, "", 2)
    assert (first["total"], first["next"]) == (3, "a0")
    last = then.children(None, "a0", 2)
    assert (names(last), last["next"]) == ([("b", 1, False, None)], None)


def test_a_row_is_the_message_that_it_is_about(then: RetainedAt) -> None:
    first = message_of(then.row(0))
    assert (first.topic, first.payload, first.qos, first.offset, first.expires_at_ms) == (b"a", b"1", 1, 1, 0)
    assert (first.publisher.client_id, first.publisher.username) == ("c", "")
