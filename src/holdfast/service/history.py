"""Questions to the past: what happened to a topic, what was retained at a moment, what one delete took away.

A moment that was asked for is kept for a while, so that moving about in the tree of last Tuesday reads the table once.
"""

import time
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.broker.message import Message
from holdfast.errors import NotFound, StoreError
from holdfast.service.messages import leaf_of, row_of
from holdfast.service.source import RetainedSource

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.history.reader import HistoryReader

MOMENTS_KEPT = 4
MOMENT_FRESH_S = 300.0
# A moment this long ago has all its rows in the table, however late that is.
SETTLED_MS = 10_000
PROTOCOL = "api"

T = TypeVar("T")


class RetainedAt:
    """The retained set of a past moment: rows in topic order. `complete` says whether the table reached that far."""

    def __init__(self, rows: "pa.Table", complete: bool) -> None:
        self.rows = rows
        self.topics: list[str] = rows["topic"].to_pylist()
        self.complete = complete
        self.made_at_s = time.monotonic()

    def row(self, number: int) -> dict[str, Any]:
        found: dict[str, Any] = self.rows.slice(number, 1).to_pylist()[0]
        return found

    def messages(self) -> list[Message]:
        return [message_of(row) for row in self.rows.to_pylist()]

    def find(self, topic: str) -> dict[str, Any] | None:
        number = bisect_left(self.topics, topic)
        return self.row(number) if number < len(self.topics) and self.topics[number] == topic else None

    def page(self, after: str, limit: int) -> tuple[list[dict[str, Any]], str | None]:
        """Up to `limit` rows behind a topic, and the topic behind which the next page begins."""
        start = bisect_right(self.topics, after) if after else 0
        rows = [self.row(number) for number in range(start, min(start + limit, len(self.topics)))]
        return rows, rows[-1]["topic"] if start + limit < len(self.topics) else None

    def children(self, prefix: str | None, after: str, limit: int) -> dict[str, object]:
        """One level of the topic tree as it was."""
        start, end, base = 0, len(self.topics), ""
        if prefix is not None:
            base = prefix + "/"
            start = bisect_left(self.topics, base)
            end = bisect_left(self.topics, prefix + "0")  # the character behind the slash
        found: dict[str, dict[str, Any]] = {}
        messages: dict[str, int] = {}
        for number in range(start, end):
            name, slash, _ = self.topics[number][len(base) :].partition("/")
            one = found.setdefault(
                name, {"name": name, "path": base + name, "leaf": True, "count": 0, "bytes": None, "message": None}
            )
            one["count"] += 1
            if slash:
                one["leaf"] = False
            else:
                messages[name] = number
        names = sorted(name for name in found if not after or name > after)
        page = names[:limit]
        for name in page:
            if name in messages:
                found[name]["message"] = leaf_of(message_of(self.row(messages[name])))
        return {
            "prefix": prefix,
            "total": len(found),
            "sorted": True,
            "children": [found[name] for name in page],
            "next": page[-1] if len(names) > limit else None,
            "version": 0,
        }


class HistoryService:
    def __init__(self, source: RetainedSource) -> None:
        self.source = source
        self.moments: OrderedDict[tuple[int, int, str], RetainedAt] = OrderedDict()

    async def ask(self, question: "Callable[[HistoryReader], T]", nothing: Callable[[], T]) -> T:
        """The answer to a question, from the newest version of the table; `nothing` before there is a table.

        Raises NotFound where no history is kept, StoreError when it cannot be read.
        """
        folder = self.source.history
        if folder is None:
            raise NotFound("there is no history here: it is off, or nothing is kept on disk")

        def answer() -> T:
            if not (folder / "_delta_log").is_dir():
                return nothing()
            try:
                from holdfast.history.reader import HistoryReader

                self.source.reads_history = True
                # A reader of its own for each question: threads do not share one.
                reader = HistoryReader(folder)
            except ImportError as error:
                raise StoreError(f"the history cannot be read: install holdfast[history] ({error})") from None
            except StoreError as error:
                raise StoreError(f"the history cannot be read now: {error}") from None
            return question(reader)

        return await self.source.read(answer)

    async def of_topic(self, topic: str, before: int, limit: int) -> dict[str, Any]:
        """What happened to a topic, newest first: rows below the offset `before`, of all when that is 0."""

        def question(reader: "HistoryReader") -> dict[str, Any]:
            rows = reader.of_topic(topic, most=limit + 1, before=before).to_pylist()
            rows.reverse()
            return {
                "topic": topic,
                "complete_from": reader.complete_from,
                "live_from": reader.live_from,
                "upto": reader.last,
                "rows": [row_of(row) for row in rows[:limit]],
                "next": rows[limit - 1]["offset"] if len(rows) > limit else None,
            }

        nothing = {"topic": topic, "complete_from": 0, "live_from": int(self.source.records_live), "upto": 0}
        return await self.ask(question, lambda: {**nothing, "rows": [], "next": None})

    async def span(self) -> dict[str, object]:
        """How far back the history reaches."""

        def question(reader: "HistoryReader") -> dict[str, object]:
            from holdfast.history.table import data_files

            files = data_files(reader.table)
            return {
                "uri": uri,
                "from_ms": time_of(reader, files[0].first) if files else None,
                "upto_ms": files[-1].newest_us // 1000 if files else None,
                "rows": sum(file.rows for file in files),
                "bytes": sum(file.size for file in files),
                "complete_from": reader.complete_from,
                "live_from": reader.live_from,
                "upto": reader.last,
            }

        uri = str(self.source.history.absolute()) if self.source.history is not None else ""
        nothing: dict[str, object] = {
            "uri": uri,
            "from_ms": None,
            "upto_ms": None,
            "rows": 0,
            "bytes": 0,
            "complete_from": 0,
            "live_from": int(self.source.records_live),
            "upto": 0,
        }
        return await self.ask(question, lambda: nothing)

    async def at(self, at_ms: int, offset: int, topic_filter: str) -> RetainedAt:
        """What a new subscriber would have been sent at a time, or just after the publish `offset` when one is given.

        Expiry is judged at that time, or at the time of the last publish up to that offset.
        """
        key = (at_ms, offset, topic_filter)
        known = self.moments.get(key)
        if known is not None and known.made_at_s + MOMENT_FRESH_S > time.monotonic():
            self.moments.move_to_end(key)
            return known

        def question(reader: "HistoryReader") -> RetainedAt:
            if offset:
                rows = reader.retained_upto(offset, time_of(reader, offset) or 0, topic_filter)
                return RetainedAt(rows, reader.last >= offset)
            return RetainedAt(reader.retained_at(at_ms, topic_filter), True)

        if offset:
            await self.source.in_history(offset)
        found = await self.ask(question, nothing_retained)
        settled = found.complete if offset else at_ms < self.source.now_ms() - SETTLED_MS
        if settled:
            self.moments[key] = found
            while len(self.moments) > MOMENTS_KEPT:
                self.moments.popitem(last=False)
        return found

    async def removed_by(self, operation: str) -> list[Message]:
        """What one delete took away: for each topic that it cleared, the message that had been set."""
        await self.source.in_history(self.source.version)

        def question(reader: "HistoryReader") -> list[Message]:
            return [message_of(row) for row in rows_removed_by(reader, operation)]

        return await self.ask(question, list)


def rows_removed_by(reader: "HistoryReader", operation: str) -> list[dict[str, Any]]:
    import pyarrow.compute as pc

    from holdfast.history.reader import last_verdicts
    from holdfast.history.schema import OUTCOME_CLEARED, OUTCOME_SET

    data = reader.table.to_pyarrow_dataset()
    mine = (pc.field("client_id") == operation) & (pc.field("protocol") == PROTOCOL)
    cleared = data.to_table(columns=["offset", "topic"], filter=mine & (pc.field("outcome") == OUTCOME_CLEARED))
    if cleared.num_rows == 0:
        return []
    first = pc.min(cleared["offset"]).as_py()
    wanted = pc.field("topic").isin(cleared["topic"].combine_chunks()) & (pc.field("offset") < first)
    verdict = pc.field("outcome").isin([OUTCOME_SET, OUTCOME_CLEARED])
    rows = last_verdicts(data.to_table(filter=wanted & verdict))
    found: list[dict[str, Any]] = rows.filter(pc.equal(rows["outcome"], OUTCOME_SET)).to_pylist()
    return found


def time_of(reader: "HistoryReader", offset: int) -> int | None:
    """When the last publish up to an offset was accepted, in milliseconds; None when the table has none."""
    import pyarrow.compute as pc

    from holdfast.history.table import data_files

    earlier = [file.first for file in data_files(reader.table) if file.first <= offset]
    if not earlier:
        return None
    wanted = (pc.field("offset") >= max(earlier)) & (pc.field("offset") <= offset)
    newest = pc.max(reader.table.to_pyarrow_dataset().to_table(columns=["timestamp"], filter=wanted)["timestamp"])
    at = newest.as_py()
    return None if at is None else round(at.timestamp() * 1000)


def message_of(row: dict[str, Any]) -> Message:
    from holdfast.history.rows import message_of

    return message_of(row)


def nothing_retained() -> RetainedAt:
    from holdfast.history.schema import arrow_schema

    return RetainedAt(arrow_schema().empty_table(), False)
