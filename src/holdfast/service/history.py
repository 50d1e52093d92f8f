"""Questions to the past: what happened to a topic, what was retained at a moment, what one delete took away.

A moment that was asked for is kept for a while, so that moving about in the tree of last Tuesday reads the table once.
One that is large is kept without its payloads: whoever asks for a page costs a page, and not all that was retained.
"""

import asyncio
import time
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.broker.message import Message, Publisher, topic_field
from holdfast.errors import NotFound, StoreError
from holdfast.service.caller import OPERATOR, Caller
from holdfast.service.messages import leaf_of, row_of
from holdfast.service.source import RetainedSource

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.history.reader import HistoryReader

MOMENTS_KEPT = 4
# A moment with more bytes than this is kept as what finds its rows.
MOMENT_BYTES = 32 << 20
# A page of the past: bytes of payload, and rows looked at for one who may see few of them.
PAGE_BYTES = 4 << 20
LOOKED_AT_MOST = 5000
ROWS_AT_ONCE = 100
MOMENT_FRESH_S = 300.0
# A moment this long ago has all its rows in the table, however late that is.
SETTLED_MS = 10_000
PROTOCOL = "api"

T = TypeVar("T")


class RetainedAt:
    """The retained set of a past moment, in topic order. `complete` says whether the table reached that far. `rows` are
    `whole`, or only what finds them: then the rest is read when it is shown.
    """

    def __init__(self, rows: "pa.Table", complete: bool, whole: bool = True) -> None:
        self.rows = rows
        self.complete = complete
        self.whole = whole
        self.names = rows["topic"]
        self.made_at_s = time.monotonic()

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @property
    def topics(self) -> list[str]:
        found: list[str] = self.names.to_pylist()
        return found

    def topic(self, number: int) -> str:
        found: str = self.names[number].as_py()
        return found

    def first_at(self, topic: str) -> int:
        """The number of the first row whose topic is this one or comes behind it."""
        return bisect_left(range(len(self)), topic, key=self.topic)

    def first_behind(self, topic: str) -> int:
        return bisect_right(range(len(self)), topic, key=self.topic) if topic else 0

    def find(self, topic: str) -> int | None:
        number = self.first_at(topic)
        return number if number < len(self) and self.topic(number) == topic else None

    def offsets(self, numbers: Sequence[int]) -> list[int]:
        return [self.rows["offset"][number].as_py() for number in numbers]

    def sketch(self, number: int) -> Message:
        """A message as far as rights are asked about it: topic and publisher."""
        row = self.rows.select(["topic", "client_id", "username", "protocol"]).slice(number, 1).to_pylist()[0]
        publisher = Publisher(row["client_id"] or "", row["username"] or "", row["protocol"])
        return Message(topic_field(row["topic"].encode()), b"", 0, True, b"", publisher, 0, 0, 0, False)

    def level(self, prefix: str | None, after: str, limit: int) -> tuple[dict[str, Any], dict[str, int]]:
        """One level of the topic tree as it was, and the rows of those of its children that were topics themselves."""
        start, end, base = 0, len(self), ""
        if prefix is not None:
            base = prefix + "/"
            start = self.first_at(base)
            end = self.first_at(prefix + "0")  # the character behind the slash
        found: dict[str, dict[str, Any]] = {}
        messages: dict[str, int] = {}
        for number, topic in enumerate(self.names.slice(start, end - start).to_pylist(), start):
            name, slash, _ = topic[len(base) :].partition("/")
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
        level = {
            "prefix": prefix,
            "total": len(found),
            "sorted": True,
            "children": [found[name] for name in page],
            "next": page[-1] if len(names) > limit else None,
            "version": 0,
        }
        return level, {name: messages[name] for name in page if name in messages}


class HistoryService:
    def __init__(self, source: RetainedSource, moment_bytes: int = MOMENT_BYTES) -> None:
        self.source = source
        self.moment_bytes = moment_bytes
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

    async def of_topic(self, topic: str, before: int, limit: int, caller: Caller = OPERATOR) -> dict[str, Any]:
        """What happened to a topic, newest first: rows below the offset `before`, of all when that is 0."""

        def question(reader: "HistoryReader") -> dict[str, Any]:
            rows = reader.of_topic(topic, most=limit + 1, before=before).to_pylist()
            rows.reverse()
            return {
                "topic": topic,
                "complete_from": reader.complete_from,
                "upto": reader.last,
                "rows": [row_of(row, caller) for row in rows[:limit]],
                "next": rows[limit - 1]["offset"] if len(rows) > limit else None,
            }

        return await self.ask(
            question, lambda: {"topic": topic, "complete_from": 0, "upto": 0, "rows": [], "next": None}
        )

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
            import pyarrow.compute as pc

            from holdfast.history.reader import moment

            if offset:
                upto, expiry_ms = pc.field("offset") <= offset, time_of(reader, offset) or 0
            else:
                upto, expiry_ms = pc.field("timestamp") <= moment(at_ms), at_ms
            rows, whole = reader.retained_within(upto, expiry_ms, topic_filter, self.moment_bytes)
            return RetainedAt(rows, not offset or reader.last >= offset, whole)

        if offset:
            await self.source.in_history(offset)
        found = await self.ask(question, nothing_retained)
        settled = found.complete if offset else at_ms < self.source.now_ms() - SETTLED_MS
        if settled and has_wildcard(topic_filter):
            self.moments[key] = found
            while len(self.moments) > MOMENTS_KEPT:
                self.moments.popitem(last=False)
        return found

    async def rows(self, then: RetainedAt, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Rows of a moment in the order asked for, less those that retention has taken since."""
        if then.whole:
            return [then.rows.slice(number, 1).to_pylist()[0] for number in numbers]
        offsets = then.offsets(numbers)

        def question(reader: "HistoryReader") -> list[dict[str, Any]]:
            import pyarrow as pa

            found = {row["offset"]: row for row in reader.rows(pa.array(offsets, pa.int64())).to_pylist()}
            return [found[offset] for offset in offsets if offset in found]

        return await self.ask(question, list)

    async def page_at(
        self, then: RetainedAt, after: str, limit: int, caller: Caller
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Up to `limit` rows behind a topic that the caller may see, and the topic behind which the next page begins:
        one that the caller may not see, perhaps. A page is bounded in work and bytes too, and may be empty.
        """
        number = then.first_behind(after)
        end = min(len(then), number + LOOKED_AT_MOST)
        rows: list[dict[str, Any]] = []
        size = 0
        portion = ROWS_AT_ONCE
        while number < end and len(rows) < limit and size < PAGE_BYTES:
            wanted: list[int] = []
            while number < end and len(wanted) < min(portion, limit - len(rows)):
                if caller.sees_all or caller.may_see(then.sketch(number)):
                    wanted.append(number)
                number += 1
            found = await self.rows(then, wanted)
            rows += found
            size += sum(len(row["payload"]) for row in found)
            portion = limit if size < PAGE_BYTES // 100 else ROWS_AT_ONCE
            await asyncio.sleep(0)
        return rows, then.topic(number - 1) if 0 < number < len(then) else None

    async def one_at(self, at_ms: int, offset: int, topic: str, caller: Caller) -> dict[str, Any] | None:
        """The row of one topic, if the caller may see it."""
        # The whole moment may be at hand already.
        topic_filter = "#" if (at_ms, offset, "#") in self.moments else topic
        then = await self.at(at_ms, offset, topic_filter)
        number = then.find(topic)
        if number is None or not caller.may_see(then.sketch(number)):
            return None
        found = await self.rows(then, [number])
        return found[0] if found else None

    async def tree_at(self, at_ms: int, prefix: str | None, after: str, limit: int) -> dict[str, Any]:
        """One level of the topic tree as it was."""
        then = await self.at(at_ms, 0, "#")
        level, messages = then.level(prefix, after, limit)
        rows = {row["topic"]: row for row in await self.rows(then, list(messages.values()))}
        for child in level["children"]:
            if child["path"] in rows:
                child["message"] = leaf_of(message_of(rows[child["path"]]))
        return level

    async def seen_at(self, at_ms: int, offset: int, topic_filter: str, caller: Caller) -> list[Message]:
        """All that was retained and the caller may see."""
        then = await self.at(at_ms, offset, topic_filter)
        numbers: list[int] = []
        for number in range(len(then)):
            if caller.sees_all or caller.may_see(then.sketch(number)):
                numbers.append(number)
            if number % ROWS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return [message_of(row) for row in await self.rows(then, numbers)]

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


def has_wildcard(topic_filter: str) -> bool:
    return "#" in topic_filter or "+" in topic_filter


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
