"""Questions to the past: what happened to a topic, what was retained at a moment, what one delete took away.

`Past` answers them, in another process where a broker asks. Rights are asked here, where the broker is: of sketches,
before the payloads of those that may be shown are read.
"""

import asyncio
from array import array
from collections.abc import AsyncIterator, Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from holdfast.broker.message import Message
from holdfast.errors import NotFound
from holdfast.history.messages import message_of
from holdfast.service.caller import OPERATOR, Caller
from holdfast.service.changes import change_counts, changes_beside, operations
from holdfast.service.messages import leaf_of, row_of
from holdfast.service.past import Moment, Past, Row, Sketch, Undoing, level_of
from holdfast.service.source import RetainedSource

PORTION = 2000  # rows that come from another process at once, between which the event loop goes on
LOOKED_AT_MOST = 5000  # rows, on one page, for one who may see few of them
JUDGED_AT_ONCE = 100

P = ParamSpec("P")
T = TypeVar("T")


class HistoryService:
    """All of these raise NotFound where no history is kept, StoreError when it cannot be read."""

    def __init__(self, source: RetainedSource) -> None:
        self.source = source

    async def ask(self, question: Callable[Concatenate[Past, P], T], *given: P.args, **named: P.kwargs) -> T:
        if self.source.history is None:
            raise NotFound("there is no history here: it is off, or nothing is kept on disk")
        return await self.source.ask(question, *given, **named)

    async def of_topic(
        self, topic: str, before: int, limit: int, caller: Caller = OPERATOR, to_ms: int = 0
    ) -> dict[str, Any]:
        """What happened to a topic, newest first: rows below the offset `before` and up to the time `to_ms`, of all
        when these are 0.
        """
        found = await self.ask(Past.of_topic, topic, before, limit, to_ms)
        return self.with_live({**found, "rows": [row_of(row, caller) for row in found["rows"]]})

    async def span(self) -> dict[str, object]:
        """How far back the history reaches."""
        return self.with_live(await self.ask(Past.span))

    def with_live(self, found: dict[str, Any]) -> dict[str, Any]:
        """An answer that says whether live messages are recorded also before there is a table."""
        if found["live_from"] is None:
            found["live_from"] = int(self.source.records_live)
        return found

    async def find_at(self, moment: Moment, topic: str, caller: Caller) -> Row | None:
        """The row of a topic in the retained set of a moment, if the caller may see it."""
        await self.source.in_history(moment.offset)
        row = await self.ask(Past.find_at, moment, topic)
        return row if row is not None and caller.may_see(message_of(row)) else None

    async def page_at(
        self, moment: Moment, after: str, limit: int, caller: Caller
    ) -> tuple[list[Row], str | None, int | None]:
        """Up to `limit` rows behind a topic that the caller may see, the topic behind which the next page begins, one
        that the caller may not see, perhaps, and how many there are in all, for one who sees all. A page is bounded in
        work and bytes too, and may be empty.
        """
        await self.source.in_history(moment.offset)
        if caller.sees_all:
            return await self.ask(Past.page_at, moment, after, limit)
        sketches, more = await self.ask(Past.sketches_at, moment, after, LOOKED_AT_MOST)
        seen, looked = await seen_of(sketches, limit, caller)
        rows, answered = await self.ask(Past.rows, [one.offset for one in seen], moment) if seen else ([], 0)
        if answered < len(seen):
            return rows, seen[answered - 1].topic, None
        return rows, sketches[looked - 1].topic if more or looked < len(sketches) else None, None

    async def children_at(
        self, moment: Moment, prefix: str | None, after: str, limit: int, caller: Caller = OPERATOR
    ) -> dict[str, Any]:
        """One level of the topic tree as it was, as far as the caller may see it."""
        await self.source.in_history(moment.offset)
        if caller.sees_all:
            return await self.ask(Past.children_at, moment, prefix, after, limit)
        base = "" if prefix is None else prefix + "/"
        seen = [one async for one in self.sketches_at(moment, caller) if one.topic.startswith(base)]
        level, numbers = level_of(prefix, [one.topic for one in seen], after, limit)
        leaves: dict[str, dict[str, object]] = {}
        async for portion in self.messages(array("q", (seen[number].offset for number in numbers)), moment):
            leaves.update((one.topic.decode(), leaf_of(one)) for one in portion)
        for child in level["children"]:
            child["message"] = leaves.get(child["path"])
        return level

    async def usage_at(self, moment: Moment, prefix: str | None, caller: Caller) -> tuple[int, int | None]:
        """Messages at and below a place as they were, as far as the caller may see them, and their bytes if known."""
        if caller.sees_all:
            return await self.ask(Past.usage_at, moment, prefix)
        base = None if prefix is None else prefix + "/"
        seen = [one.topic async for one in self.sketches_at(moment, caller)]
        return sum(base is None or topic == prefix or topic.startswith(base) for topic in seen), None

    async def change_counts(self, from_ms: int, to_ms: int, topic: str, parts: int) -> list[int]:
        """How many changes there were in each part of a time, of one topic or, empty, of all."""
        return await self.ask(change_counts, from_ms, to_ms, topic, parts)

    async def changes_beside(self, at_ms: int, topic: str) -> tuple[int | None, int | None]:
        """The last change before a moment and the first after it, of one topic or, empty, of all."""
        return await self.ask(changes_beside, at_ms, topic)

    async def operations(self, before: int, limit: int, caller: Caller) -> tuple[list[dict[str, Any]], int | None]:
        """What was done through the API, newest first: by everybody for administrators, else by the caller."""
        await self.source.in_history(self.source.version)
        return await self.ask(operations, None if caller.admin else caller.name, before, limit)

    async def messages_at(self, moment: Moment, caller: Caller) -> AsyncIterator[list[Message]]:
        """All that a new subscriber would have been sent at a moment and the caller may see, portion by portion."""
        await self.source.in_history(moment.offset)
        offsets = array("q")
        async for one in self.sketches_at(moment, caller):
            offsets.append(one.offset)
        async for portion in self.messages(offsets, moment):
            yield portion

    async def sketches_at(self, moment: Moment, caller: Caller) -> AsyncIterator[Sketch]:
        """All of a moment that the caller may see, in topic order."""
        after, more = "", True
        while more:
            sketches, more = await self.ask(Past.sketches_at, moment, after, LOOKED_AT_MOST)
            seen, _ = await seen_of(sketches, len(sketches), caller)
            for one in seen:
                yield one
            after = sketches[-1].topic if sketches else ""

    async def undoing(self, operation: str) -> Undoing:
        """What brings back the topics that an operation changed."""
        await self.source.in_history(self.source.version)
        return await self.ask(Past.undoing, operation)

    async def messages(self, offsets: "array[int]", moment: Moment | None = None) -> AsyncIterator[list[Message]]:
        """Messages in the order of the table, which is read once from beginning to end that way. Only their offsets are
        in memory all at once, and of the messages one portion, which is bounded in bytes.
        """
        wanted = array("q", sorted(offsets))
        start = 0
        while start < len(wanted):
            rows, answered = await self.ask(Past.rows, wanted[start : start + PORTION].tolist(), moment)
            yield [message_of(row) for row in rows]
            start += answered


async def seen_of(sketches: list[Sketch], limit: int, caller: Caller) -> tuple[list[Sketch], int]:
    """Those that the caller may see, up to `limit`, and how many were looked at for that."""
    seen: list[Sketch] = []
    for looked, sketch in enumerate(sketches, 1):
        if caller.sees_all or caller.may_see(sketch.message()):
            seen.append(sketch)
            if len(seen) == limit:
                return seen, looked
        if looked % JUDGED_AT_ONCE == 0:
            await asyncio.sleep(0)
    return seen, len(sketches)
