"""The past as the table tells it: every question is answered from its newest version.

A moment that was asked for is kept for a while, so that moving about in the tree of last Tuesday reads the table once.
Answers are plain values, because a broker asks these questions of another process (`past_process`). Arrow is loaded
with the first question.
"""

import time
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from holdfast.errors import StoreError
from holdfast.history.messages import message_of
from holdfast.service.messages import leaf_of, row_of

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.history.reader import HistoryReader

MOMENTS_KEPT = 4
MOMENT_FRESH_S = 300.0
# A moment this long ago has all its rows in the table, however late that is.
SETTLED_MS = 10_000
PROTOCOL = "api"

Row = dict[str, Any]


@dataclass(frozen=True)
class Moment:
    """A time, or just after the publish `offset` when one is given, and the topics of interest.

    Expiry is judged at that time, or at the time of the last publish up to that offset.
    """

    at_ms: int
    offset: int = 0
    topic_filter: str = "#"


class RetainedAt:
    """The retained set of a past moment: rows in topic order."""

    def __init__(self, rows: "pa.Table") -> None:
        self.rows = rows
        self.topics: list[str] = rows["topic"].to_pylist()
        self.made_at_s = time.monotonic()

    def row(self, number: int) -> dict[str, Any]:
        found: dict[str, Any] = self.rows.slice(number, 1).to_pylist()[0]
        return found

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


def wall_clock_ms() -> int:
    return int(time.time() * 1000)


class Past:
    """Threads may ask at the same time. Questions raise StoreError when the table cannot be read. `live_from` is None
    in their answers before there is a table.
    """

    def __init__(self, folder: Path, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        self.folder = folder
        self.now_ms = now_ms
        self.lock = Lock()
        self.moments: OrderedDict[Moment, RetainedAt] = OrderedDict()

    def reader(self) -> "HistoryReader | None":
        """A reader of its own for each question: threads do not share one. None before there is a table."""
        if not (self.folder / "_delta_log").is_dir():
            return None
        try:
            from holdfast.history.reader import HistoryReader

            return HistoryReader(self.folder)
        except ImportError as error:
            raise StoreError(f"the history cannot be read: install holdfast[history] ({error})") from None
        except StoreError as error:
            raise StoreError(f"the history cannot be read now: {error}") from None

    def of_topic(self, topic: str, before: int, limit: int) -> dict[str, Any]:
        """What happened to a topic, newest first: rows below the offset `before`, of all when that is 0."""
        reader = self.reader()
        if reader is None:
            return {"topic": topic, "complete_from": 0, "live_from": None, "upto": 0, "rows": [], "next": None}
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

    def span(self) -> dict[str, object]:
        """How far back the history reaches."""
        uri = str(self.folder.absolute())
        reader = self.reader()
        if reader is None:
            nothing: dict[str, object] = {"uri": uri, "from_ms": None, "upto_ms": None}
            return {**nothing, "rows": 0, "bytes": 0, "complete_from": 0, "live_from": None, "upto": 0}
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

    def removed_by(self, operation: str) -> list[Row]:
        """What one delete took away: for each topic that it cleared, the row that had set it."""
        reader = self.reader()
        return [] if reader is None else rows_removed_by(reader, operation)

    def find_at(self, moment: Moment, topic: str) -> Row | None:
        then = self.at(moment)
        return None if then is None else then.find(topic)

    def page_at(self, moment: Moment, after: str, limit: int) -> tuple[list[Row], str | None, int]:
        """Up to `limit` rows behind a topic, the topic behind which the next page begins, and how many there are."""
        then = self.at(moment)
        return ([], None, 0) if then is None else (*then.page(after, limit), len(then.topics))

    def children_at(self, moment: Moment, prefix: str | None, after: str, limit: int) -> dict[str, object]:
        """One level of the topic tree as it was."""
        then = self.at(moment)
        if then is None:
            return {"prefix": prefix, "total": 0, "sorted": True, "children": [], "next": None, "version": 0}
        return then.children(prefix, after, limit)

    def at(self, moment: Moment) -> RetainedAt | None:
        """What a new subscriber would have been sent; None before there is a table."""
        with self.lock:
            known = self.moments.get(moment)
            if known is not None and known.made_at_s + MOMENT_FRESH_S > time.monotonic():
                self.moments.move_to_end(moment)
                return known
        reader = self.reader()
        if reader is None:
            return None
        offset = moment.offset
        if offset:
            rows = reader.retained_upto(offset, time_of(reader, offset) or 0, moment.topic_filter)
        else:
            rows = reader.retained_at(moment.at_ms, moment.topic_filter)
        found = RetainedAt(rows)
        if reader.last >= offset if offset else moment.at_ms < self.now_ms() - SETTLED_MS:
            with self.lock:
                self.moments[moment] = found
                while len(self.moments) > MOMENTS_KEPT:
                    self.moments.popitem(last=False)
        return found


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
