"""Questions to the past: what happened to a topic, what was retained at a moment, what one delete took away."""

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from holdfast.broker.message import Message
from holdfast.errors import NotFound
from holdfast.history.messages import message_of
from holdfast.service.past import Moment, Past, Row
from holdfast.service.source import RetainedSource

PORTION = 2000  # rows that come from another process at once, between which the event loop goes on

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

    async def of_topic(self, topic: str, before: int, limit: int) -> dict[str, Any]:
        """What happened to a topic, newest first: rows below the offset `before`, of all when that is 0."""
        found = await self.ask(Past.of_topic, topic, before, limit)
        return self.with_live(found)

    async def span(self) -> dict[str, object]:
        """How far back the history reaches."""
        return self.with_live(await self.ask(Past.span))

    def with_live(self, found: dict[str, Any]) -> dict[str, Any]:
        """An answer that says whether live messages are recorded also before there is a table."""
        if found["live_from"] is None:
            found["live_from"] = int(self.source.records_live)
        return found

    async def find_at(self, moment: Moment, topic: str) -> Row | None:
        """The row of a topic in the retained set of a moment."""
        await self.source.in_history(moment.offset)
        return await self.ask(Past.find_at, moment, topic)

    async def page_at(self, moment: Moment, after: str, limit: int) -> tuple[list[Row], str | None, int]:
        """Up to `limit` rows of a moment behind a topic, the topic behind which the next page begins, and how many
        there are in all.
        """
        await self.source.in_history(moment.offset)
        return await self.ask(Past.page_at, moment, after, limit)

    async def children_at(self, moment: Moment, prefix: str | None, after: str, limit: int) -> dict[str, object]:
        """One level of the topic tree as it was."""
        await self.source.in_history(moment.offset)
        return await self.ask(Past.children_at, moment, prefix, after, limit)

    async def rows_at(self, moment: Moment) -> list[Row]:
        """What a new subscriber would have been sent at a moment, in topic order."""
        found: list[Row] = []
        after: str | None = ""
        while after is not None:
            rows, after, _ = await self.page_at(moment, after, PORTION)
            found += rows
        return found

    async def removed_by(self, operation: str) -> list[Message]:
        """What one delete took away: for each topic that it cleared, the message that had been set."""
        await self.source.in_history(self.source.version)
        return [message_of(row) for row in await self.ask(Past.removed_by, operation)]
