"""A search through retained messages: what it finds, and how much of them it looks at before others have their turn."""

import pytest

from holdfast.broker.message import NEVER, Message, topic_field
from holdfast.broker.ports import TopicCursor
from holdfast.broker.session import NO_ONE
from holdfast.broker.views import Query, Search, collect

VISITS = 2000
SIZE = 1 << 20


class Listed(TopicCursor):
    def __init__(self, payloads: list[bytes]) -> None:
        super().__init__()
        self.payloads = payloads
        self.looked_at = 0

    def next(self, visits: int) -> Message | None:
        if self.looked_at == len(self.payloads):
            self.ended = True
            return None
        self.visited = 1
        self.looked_at += 1
        payload = self.payloads[self.looked_at - 1]
        return Message(topic_field(b"t"), payload, 0, True, b"", NO_ONE, 1, 0, NEVER, False)


@pytest.mark.parametrize(("text", "most"), [("needle", 4), ("nädel", 1)])
def test_a_search_looks_at_so_many_bytes_and_lets_others_go_on(text: str, most: int) -> None:
    """Not at so many messages, however large they are: that would hold everybody up for minutes."""
    query = Query()
    query.search = Search(text, False)
    cursor = Listed([*[b"x" * SIZE] * 20, text.upper().encode()])
    found: list[Message] = []
    while not cursor.ended:
        before = cursor.looked_at
        found += collect(cursor, query, 0, most=VISITS, visits=VISITS)
        assert cursor.looked_at - before <= most
    assert [one.payload for one in found] == [text.upper().encode()]


@pytest.mark.parametrize(
    ("text", "payload", "expected"),
    [
        ("Über", "grüße ÜBERALL", True),
        ("straße", "Am STRASSENRAND", True),
        ("ß", "plain", False),
        ("ü", "plain", False),
        ("k", "\u212a", False),
        ("\u212a", "Key", True),
    ],
)
def test_letters_of_any_alphabet_are_found_large_and_small(text: str, payload: str, expected: bool) -> None:
    assert Search(text, False).is_in(payload.encode()) is expected
