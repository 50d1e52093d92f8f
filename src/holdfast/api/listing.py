"""Pages of the retained set. A walk is held between two pages and moves with the set, so that a topic which stays is
listed exactly once, whatever changes around it.

A page is bounded in time as well as in length: over a million topics a rare match may come on a later page, and the
pages before it may be empty. `next` says whether there is more.
"""

import asyncio
import secrets
import time
from dataclasses import dataclass, field

from holdfast.api.desk import Desk
from holdfast.api.guard import Caller
from holdfast.api.problem import Problem
from holdfast.broker.message import Message
from holdfast.broker.ports import TopicCursor
from holdfast.broker.topics import is_valid_filter
from holdfast.broker.views import Query, collect

WALKS_MOST = 200
WALK_KEPT_S = 300.0
PAGE_S = 0.025
# Places looked at before the event loop has its turn.
PORTION = 2000


@dataclass
class Walk:
    cursor: TopicCursor
    query: Query
    caller: Caller
    number: int = 0
    last: list[Message] = field(default_factory=list)
    used_at_s: float = 0.0


class Walks:
    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.index = desk.broker.retained.index
        self.walks: dict[str, Walk] = {}

    async def first(
        self, topic_filter: str, query: Query, caller: Caller, limit: int, most_bytes: int = 0
    ) -> tuple[list[Message], str | None]:
        """The first page, and the token of the next."""
        cursor = cursor_of(self.desk, topic_filter, query)
        self.sweep()
        walk = Walk(cursor, query, caller)
        name = secrets.token_urlsafe(12)
        self.walks[name] = walk
        return await self.page(name, walk, limit, most_bytes)

    async def next(
        self, token: str, caller: Caller, limit: int, most_bytes: int = 0
    ) -> tuple[list[Message], str | None]:
        """The page after; asking for the same one again gives it again."""
        name, _, number = token.rpartition(".")
        walk = self.walks.get(name)
        if walk is None or walk.caller != caller or number not in (str(walk.number), str(walk.number - 1)):
            raise Problem(410, "the cursor is used up or too old, expected one from the page before: start again")
        if number == str(walk.number - 1):
            return walk.last, None if walk.cursor.ended else f"{name}.{walk.number}"
        return await self.page(name, walk, limit, most_bytes)

    async def page(self, name: str, walk: Walk, limit: int, most_bytes: int) -> tuple[list[Message], str | None]:
        walk.used_at_s = time.monotonic()
        walk.number += 1
        deadline = walk.used_at_s + PAGE_S
        found: list[Message] = []
        size = 0
        while not walk.cursor.ended and len(found) < limit and (not found or time.monotonic() < deadline):
            most = limit - len(found) if most_bytes == 0 else 1
            portion = collect(walk.cursor, walk.query, self.desk.now_ms(), most, PORTION)
            size += sum(len(message.payload) for message in portion)
            found += portion if walk.caller.sees_all else [m for m in portion if walk.caller.may_see(m)]
            if time.monotonic() >= deadline or 0 < most_bytes <= size:
                break
            if most_bytes == 0 or len(found) % 50 == 0:
                await asyncio.sleep(0)
        walk.last = found
        if walk.cursor.ended:
            if walk.number == 1:
                self.index.release(self.walks.pop(name).cursor)
            # Else it is kept for a while, in case the answer is lost on its way and asked for again.
            return found, None
        return found, f"{name}.{walk.number}"

    def sweep(self) -> None:
        now = time.monotonic()
        old = [name for name, walk in self.walks.items() if walk.used_at_s + WALK_KEPT_S < now]
        if len(self.walks) - len(old) >= WALKS_MOST:
            oldest = sorted(self.walks, key=lambda name: self.walks[name].used_at_s)
            old = oldest[: len(self.walks) - WALKS_MOST // 2]
        for name in old:
            self.index.release(self.walks.pop(name).cursor)


def cursor_of(desk: Desk, topic_filter: str, query: Query) -> TopicCursor:
    """No wildcard reaches topics that begin with `$`: hidden ones are asked for beside `#`, and only there."""
    check_filter(topic_filter)
    if not query.hidden:
        return desk.broker.retained.index.cursor(topic_filter.encode(), desk.broker.log.position)
    if topic_filter != "#":
        raise Problem(400, f"hidden topics go with the filter '#' only, got {topic_filter!r}")
    return desk.broker.retained.index.everything()


async def every(desk: Desk, topic_filter: str, query: Query, caller: Caller, most: int = 0) -> list[Message]:
    """All that match, or the first `most`, gathered in portions between which the event loop goes on."""
    index = desk.broker.retained.index
    cursor = cursor_of(desk, topic_filter, query)
    found: list[Message] = []
    try:
        while not cursor.ended and (most == 0 or len(found) < most):
            portion = collect(cursor, query, desk.now_ms(), PORTION if most == 0 else most - len(found), PORTION)
            found += portion if caller.sees_all else [m for m in portion if caller.may_see(m)]
            await asyncio.sleep(0)
    finally:
        index.release(cursor)
    return found


def check_filter(topic_filter: str) -> None:
    try:
        good = is_valid_filter(topic_filter.encode(), 65535) and "\0" not in topic_filter
    except UnicodeEncodeError:
        good = False
    if not good:
        raise Problem(
            400, f"filter {topic_filter!r} is not a topic filter, expected `#` last and alone, `+` alone in its level"
        )
