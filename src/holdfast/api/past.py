"""Questions to the history, asked in a thread: they read files, and may read many.

A moment that was asked for is kept for a while, so that moving about in the tree of last Tuesday reads the table once.
"""

import asyncio
import time
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.api.desk import Desk
from holdfast.api.message import preview_of
from holdfast.api.problem import Problem
from holdfast.api.rows import ms, removed_by, whole_row
from holdfast.broker.message import Message

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.history.reader import HistoryReader

MOMENTS_KEPT = 4
MOMENT_FRESH_S = 300.0
WAIT_S = 15.0
WAIT_STEP_S = 0.1

Answer = TypeVar("Answer")


class Moment:
    """The retained set of a past moment: rows in topic order."""

    def __init__(self, rows: "pa.Table", complete: bool) -> None:
        self.rows = rows
        self.topics: list[str] = rows["topic"].to_pylist()
        self.complete = complete
        self.made_at_s = time.monotonic()

    def row(self, number: int) -> dict[str, Any]:
        found: dict[str, Any] = self.rows.slice(number, 1).to_pylist()[0]
        return found

    def find(self, topic: str) -> dict[str, Any] | None:
        number = bisect_left(self.topics, topic)
        return self.row(number) if number < len(self.topics) and self.topics[number] == topic else None

    def children(self, prefix: str | None, after: str, limit: int) -> dict[str, object]:
        """As `Tree.children` answers for today."""
        start, end, base = 0, len(self.topics), ""
        if prefix is not None:
            base = prefix + "/"
            start = bisect_left(self.topics, base)
            end = bisect_left(self.topics, prefix + "0")  # the character behind the slash
        found: dict[str, dict[str, Any]] = {}
        for number in range(start, end):
            name, slash, _ = self.topics[number][len(base) :].partition("/")
            one = found.setdefault(
                name, {"name": name, "path": base + name, "leaf": True, "count": 0, "bytes": None, "message": None}
            )
            one["count"] += 1
            if slash:
                one["leaf"] = False
            else:
                one["number"] = number
        names = sorted(name for name in found if name > after) if after else sorted(found)
        page = [found[name] for name in names[:limit]]
        for one in page:
            number = one.pop("number", None)
            if number is not None:
                row = self.row(number)
                one["message"] = {
                    "version": row["offset"],
                    "size": len(row["payload"]),
                    "qos": row["qos"],
                    "stored_at_ms": ms(row["timestamp"]),
                    "expires_at_ms": None if row["expires_at"] is None else ms(row["expires_at"]),
                    "preview": preview_of(row["payload"]),
                }
        for one in found.values():
            one.pop("number", None)
        return {
            "prefix": prefix,
            "total": len(found),
            "sorted": True,
            "children": page,
            "next": page[-1]["name"] if len(names) > limit else None,
            "version": 0,
        }


class Past:
    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.pool = ThreadPoolExecutor(2, thread_name_prefix="holdfast-history")
        self.moments: OrderedDict[tuple[int, int, str], Moment] = OrderedDict()

    def stop(self) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)

    async def ask(self, question: "Callable[[HistoryReader], Answer]", nothing: Callable[[], Answer]) -> Answer:
        """The answer to a question, from the newest version of the table; `nothing` before there is a table."""
        folder = self.desk.history
        if folder is None:
            raise Problem(404, "there is no history here: it is off, or nothing is kept on disk")

        def answer() -> Answer:
            from holdfast.errors import StoreError
            from holdfast.history.reader import HistoryReader

            if not (folder / "_delta_log").is_dir():
                return nothing()
            try:
                # A reader of its own for each question: threads do not share one.
                reader = HistoryReader(folder)
            except (ImportError, StoreError) as error:
                raise Problem(503, f"the history cannot be read now: {error}") from None
            return question(reader)

        return await asyncio.get_running_loop().run_in_executor(self.pool, answer)

    async def of_topic(self, topic: str, before: int, limit: int) -> dict[str, object]:
        """What happened to a topic, newest first."""

        def question(reader: "HistoryReader") -> dict[str, object]:
            rows = reader.of_topic(topic, most=limit + 1, before=before).to_pylist()
            rows.reverse()
            return {
                "topic": topic,
                "complete_from": reader.complete_from,
                "upto": reader.last,
                "rows": [whole_row(row) for row in rows[:limit]],
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
            oldest = None
            if files:
                import pyarrow.compute as pc

                first = reader.table.to_pyarrow_dataset().filter(pc.field("offset") <= files[0].first)
                rows = first.to_table(columns=["timestamp"])["timestamp"]
                oldest = ms(rows[0].as_py()) if len(rows) else None
            return {
                "uri": uri,
                "from_ms": oldest,
                "upto_ms": files[-1].newest_us // 1000 if files else None,
                "rows": sum(file.rows for file in files),
                "bytes": sum(file.size for file in files),
                "complete_from": reader.complete_from,
                "upto": reader.last,
            }

        uri = str(self.desk.history.absolute()) if self.desk.history is not None else ""
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

    async def at(self, at_ms: int, offset: int, topic_filter: str) -> Moment:
        """The retained set as of a time, or of an offset when one is given."""
        key = (at_ms, offset, topic_filter)
        known = self.moments.get(key)
        if known is not None and known.made_at_s + MOMENT_FRESH_S > time.monotonic():
            self.moments.move_to_end(key)
            return known

        def question(reader: "HistoryReader") -> Moment:
            if offset:
                rows = reader.retained_upto(offset, at_ms, topic_filter)
                return Moment(rows, reader.last >= offset)
            return Moment(reader.retained_at(at_ms, topic_filter), True)

        if offset:
            await self.wait_for(offset)
        moment = await self.ask(question, no_moment)
        settled = at_ms < self.desk.now_ms() - 10_000 or (moment.complete and offset)
        if settled:
            self.moments[key] = moment
            while len(self.moments) > MOMENTS_KEPT:
                self.moments.popitem(last=False)
        return moment

    async def wait_for(self, offset: int) -> None:
        """Until the table has taken in the publish with that offset, or it takes too long."""
        deadline = time.monotonic() + WAIT_S
        # Offsets beyond the last record belong to nothing that the table could have: $SYS is not in it.
        offset = min(offset, self.desk.journal.durable if self.desk.journal is not None else 0)
        while self.desk.reached.get("history", 0) < offset and time.monotonic() < deadline:
            await asyncio.sleep(WAIT_STEP_S)

    async def removed_by(self, operation: str) -> list[dict[str, Any]]:
        """What one delete through the API took away: for each topic, the row that had set it."""
        await self.wait_for(self.desk.broker.log.position)

        return await self.ask(lambda reader: removed_by(reader, operation), list)


def no_moment() -> Moment:
    from holdfast.history.schema import arrow_schema

    return Moment(arrow_schema().empty_table(), False)


def properties_of_row(row: dict[str, Any]) -> bytes:
    from holdfast.history.rows import forwarded

    return forwarded(row)


def row_of(message: Message) -> dict[str, Any]:
    """A message in memory, in the few columns that bringing it back needs."""
    return {
        "topic": message.topic.decode(),
        "payload": message.payload,
        "qos": message.qos,
        "properties": message.properties,
        "expires_at_ms": message.expires_at_ms if message.interval_given else 0,
        "offset": message.offset,
    }
