"""The past as the table tells it: every question is answered from its newest version.

A moment that was asked for is kept for a while, so that moving about in the tree of last Tuesday reads the table once.
One that is large is kept without its payloads: whoever asks for a page costs a page, and not all that was retained.

Answers are plain values and bounded, because a broker asks these questions of another process (`past_process`). Rights
are not asked about here: who has to ask gets sketches first, and then the rows of those that may be shown. Arrow is
loaded with the first question.
"""

import time
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from holdfast.broker.message import Message, Publisher, topic_field
from holdfast.broker.views import Search
from holdfast.errors import StoreError
from holdfast.history.messages import message_of
from holdfast.history.place import At, place_of
from holdfast.service.messages import leaf_of

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.history.reader import HistoryReader

MOMENTS_KEPT = 4
# A moment with more bytes than this is kept as what finds its rows.
MOMENT_BYTES = 32 << 20
# An answer ends with the row that brings it to this many bytes.
PAGE_BYTES = 4 << 20
ROWS_AT_ONCE = 100
MOMENT_FRESH_S = 300.0
# A moment this long ago has all its rows in the table, however late that is.
SETTLED_MS = 10_000
PROTOCOL = "api"

ATTEMPTS = 5
# Arrow and the library of the table each have words of their own for a file that is not there.
GONE = ("not found", "no such file")

Row = dict[str, Any]
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Moment:
    """A time, or just after the publish `offset` when one is given, and the topics of interest.

    Expiry is judged at that time, or at the time of the last publish up to that offset. An empty filter is about all
    topics, those too that begin with a dollar sign. `search` is looked for in topics and payloads, with `publishers` in
    client ids and user names too.
    """

    at_ms: int
    offset: int = 0
    topic_filter: str = "#"
    search: str = ""
    publishers: bool = False

    @property
    def is_of_one_topic(self) -> bool:
        return bool(self.topic_filter) and not has_wildcard(self.topic_filter)


class Sketch(NamedTuple):
    """A retained message as far as rights are asked about it, and the offset of its row."""

    offset: int
    topic: str
    client_id: str
    username: str
    protocol: str

    def message(self) -> Message:
        publisher = Publisher(self.client_id, self.username, self.protocol)
        return Message(topic_field(self.topic.encode()), b"", 0, True, b"", publisher, self.offset, 0, 0, False)


class RetainedAt:
    """The retained set of a past moment, in topic order. `rows` are `whole`, or only what finds them: then the rest is
    read when it is shown. `settled` says that nothing can be added to the moment any more.
    """

    def __init__(self, rows: "pa.Table", whole: bool, settled: bool) -> None:
        self.rows = rows
        self.whole = whole
        self.settled = settled
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
        """The offset of the row of a topic."""
        number = self.first_at(topic)
        return self.offsets(number, 1)[0] if number < len(self) and self.topic(number) == topic else None

    def offsets(self, start: int, count: int) -> list[int]:
        found: list[int] = self.rows["offset"].slice(start, count).to_pylist()
        return found

    def sketches(self, after: str, limit: int) -> tuple[list[Sketch], bool]:
        """Up to `limit` sketches behind a topic, and whether there are more."""
        start = self.first_behind(after)
        end = min(len(self), start + limit)
        columns = self.rows.select(list(Sketch._fields))
        found: list[Sketch] = []
        size = 0
        while start < end and size < PAGE_BYTES:
            portion = columns.slice(start, min(ROWS_AT_ONCE, end - start))
            found += [
                Sketch(row["offset"], row["topic"], row["client_id"] or "", row["username"] or "", row["protocol"])
                for row in portion.to_pylist()
            ]
            size += portion.nbytes
            start += portion.num_rows
        return found, start < len(self)

    def below(self, prefix: str | None) -> tuple[int, int]:
        """The numbers of the rows below a place: the first, and the one behind the last."""
        if prefix is None:
            return 0, len(self)
        return self.first_at(prefix + "/"), self.first_at(prefix + "0")  # the character behind the slash

    def level(self, prefix: str | None, after: str, limit: int) -> tuple[dict[str, Any], list[int]]:
        """One level of the topic tree as it was, and the offsets of those of its children that were topics."""
        start, end = self.below(prefix)
        level, numbers = level_of(prefix, self.names.slice(start, end - start).to_pylist(), after, limit)
        return level, [self.offsets(start + number, 1)[0] for number in numbers]

    def usage(self, prefix: str | None) -> tuple[int, int | None]:
        """Messages at and below a place, and their bytes where the rows are whole."""
        import pyarrow.compute as pc

        start, end = self.below(prefix)
        parts = [self.rows.slice(start, end - start)]
        own = -1 if prefix is None else self.first_at(prefix)
        if 0 <= own < len(self) and self.topic(own) == prefix:
            parts.append(self.rows.slice(own, 1))
        count = sum(part.num_rows for part in parts)
        if not self.whole:
            return count, None
        return count, sum(pc.sum(pc.binary_length(part["payload"])).as_py() or 0 for part in parts)


def level_of(prefix: str | None, topics: list[str], after: str, limit: int) -> tuple[dict[str, Any], list[int]]:
    """One level of the tree that these topics, all below its place, make; and the numbers of those of them that are the
    children themselves.
    """
    base = "" if prefix is None else prefix + "/"
    found: dict[str, dict[str, Any]] = {}
    messages: dict[str, int] = {}
    for number, topic in enumerate(topics):
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
    return level, [messages[name] for name in page if name in messages]


def has_wildcard(topic_filter: str) -> bool:
    return "#" in topic_filter or "+" in topic_filter


def wall_clock_ms() -> int:
    return int(time.time() * 1000)


def answered(past: "Past", question: Callable[Concatenate["Past", P], T], *given: P.args, **named: P.kwargs) -> T:
    """The answer, from the table as it is then when files of the one that was asked are being deleted meanwhile."""
    for _ in range(ATTEMPTS - 1):
        try:
            return question(past, *given, **named)
        except Exception as error:
            if not any(words in str(error).lower() for words in GONE):
                raise
    return question(past, *given, **named)


class Past:
    """Threads may ask at the same time. Questions raise StoreError when the table cannot be read. `live_from` is None
    in their answers before there is a table.
    """

    def __init__(
        self,
        at: At,
        now_ms: Callable[[], int] = wall_clock_ms,
        moment_bytes: int = MOMENT_BYTES,
        requests: Path | None = None,
    ) -> None:
        """`requests` is the folder of what operators have asked to be erased; beside the table where not given."""
        self.place = place_of(at)
        folder = self.place.folder
        self.requests = folder.parent / "erasures" if requests is None and folder is not None else requests
        self.now_ms = now_ms
        self.moment_bytes = moment_bytes
        self.lock = Lock()
        self.moments: OrderedDict[Moment, RetainedAt] = OrderedDict()
        self.erasures = 0  # when the last one was asked for or done, as the folder of requests says

    def reader(self) -> "HistoryReader | None":
        """A reader of its own for each question: threads do not share one. None before there is a table."""
        folder = self.place.folder
        if folder is not None and not (folder / "_delta_log").is_dir():
            return None
        try:
            from holdfast.history.reader import HistoryReader
            from holdfast.history.table import exists

            if folder is None and not exists(self.place):
                return None
            return HistoryReader(self.place)
        except ImportError as error:
            raise StoreError(f"the history cannot be read: `pip install 'holdfast-mqtt[history]'` ({error})") from None
        except StoreError as error:
            raise StoreError(f"the history cannot be read now: {error}") from None

    def of_topic(self, topic: str, before: int, limit: int, to_ms: int = 0) -> dict[str, Any]:
        """What happened to a topic, newest first: up to `limit` rows below the offset `before` and up to the time
        `to_ms`, of all when these are 0, fewer where they are large.
        """
        reader = self.reader()
        if reader is None:
            return {"topic": topic, "complete_from": 0, "live_from": None, "upto": 0, "rows": [], "next": None}
        found = reader.of_topic(topic, to_ms=to_ms, most=limit + 1, before=before, columns=["offset"])
        offsets = found["offset"].to_pylist()
        offsets.reverse()
        rows, answered = bounded(self.each(offsets[:limit], None))
        return {
            "topic": topic,
            "complete_from": reader.complete_from,
            "live_from": reader.live_from,
            "upto": reader.last,
            "rows": rows,
            "next": offsets[answered - 1] if answered < len(offsets) else None,
        }

    def span(self) -> dict[str, object]:
        """How far back the history reaches."""
        folder = self.place.folder
        uri = self.place.uri if folder is None else str(folder.absolute())
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

    def undoing(self, operation: str) -> "Undoing":
        """What brings back the topics that an operation changed."""
        reader = self.reader()
        return Undoing([], [], []) if reader is None else undoing(reader, operation)

    def find_at(self, moment: Moment, topic: str) -> Row | None:
        # The whole moment may be at hand already.
        known = self.kept(replace(moment, topic_filter=""))
        if known is None and not topic.startswith("$"):
            known = self.kept(replace(moment, topic_filter="#"))
        then = known if known is not None and known.settled else self.at(replace(moment, topic_filter=topic))
        offset = None if then is None else then.find(topic)
        return None if offset is None else next(self.each([offset], then))

    def page_at(self, moment: Moment, after: str, limit: int) -> tuple[list[Row], str | None, int]:
        """Up to `limit` rows behind a topic, fewer where they are large, the topic behind which the next page begins,
        and how many there are in all.
        """
        then = self.at(moment, going_on=after != "")
        if then is None:
            return [], None, 0
        start = then.first_behind(after)
        rows, answered = bounded(self.each(then.offsets(start, limit), then))
        end = start + answered
        return rows, then.topic(end - 1) if answered and end < len(then) else None, len(then)

    def sketches_at(self, moment: Moment, after: str, limit: int) -> tuple[list[Sketch], bool]:
        """Up to `limit` sketches behind a topic, fewer where they are large, and whether there are more."""
        then = self.at(moment, going_on=after != "")
        return ([], False) if then is None else then.sketches(after, limit)

    def rows(self, offsets: list[int], moment: Moment | None = None) -> tuple[list[Row], int]:
        """The rows with these offsets, less those that retention has taken since, and how many of the offsets that
        answers for: the rest has to be asked for again. `moment` is where the offsets come from.
        """
        known = None if moment is None else self.kept(moment)
        return bounded(self.each(offsets, known if known is not None and known.settled else None))

    def children_at(self, moment: Moment, prefix: str | None, after: str, limit: int) -> dict[str, Any]:
        """One level of the topic tree as it was."""
        then = self.at(moment, going_on=after != "")
        if then is None:
            return level_of(prefix, [], after, limit)[0]
        level, offsets = then.level(prefix, after, limit)
        leaves = {row["topic"]: leaf_of(message_of(row)) for row in self.each(offsets, then) if row is not None}
        for child in level["children"]:
            child["message"] = leaves.get(child["path"])
        return level

    def usage_at(self, moment: Moment, prefix: str | None) -> tuple[int, int | None]:
        """Messages at and below a place as they were, and their bytes where these are known without reading them."""
        then = self.at(moment)
        return (0, 0) if then is None else then.usage(prefix)

    def each(self, offsets: list[int], then: RetainedAt | None) -> Iterator[Row | None]:
        """The rows with these offsets, in this order; None for one that retention has taken since. They come from a
        moment that is whole, else from the table: few at first, more when those were small, and fewer when together
        they are too large, so that no more bytes are in memory than are shown.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        whole = then.rows if then is not None and then.whole else None
        reader = self.reader() if whole is None else None
        start, portion = 0, ROWS_AT_ONCE
        while start < len(offsets):
            wanted = offsets[start : start + portion]
            numbers = pa.array(wanted, pa.int64())
            found: dict[int, Row] = {}
            if whole is not None:
                found = by_offset(whole.filter(pc.is_in(whole["offset"], numbers)))
            elif reader is not None:
                rows = reader.rows_within(numbers, PAGE_BYTES if len(wanted) > 1 else None)
                if rows is None:
                    portion = max(1, len(wanted) // 8)
                    continue
                found = by_offset(rows)
            yield from map(found.get, wanted)
            start += len(wanted)
            if sum(map(size_of, found.values())) < PAGE_BYTES // 100:
                portion = len(offsets)

    def forget_erased(self) -> None:
        """What was read before rows were erased may have them still."""
        requests = self.requests
        changed = requests.stat().st_mtime_ns if requests is not None and requests.is_dir() else 0
        if changed != self.erasures:
            self.moments.clear()
            self.erasures = changed

    def kept(self, moment: Moment) -> RetainedAt | None:
        with self.lock:
            self.forget_erased()
            known = self.moments.get(moment)
            if known is None or known.made_at_s + MOMENT_FRESH_S <= time.monotonic():
                return None
            self.moments.move_to_end(moment)
            return known

    def at(self, moment: Moment, going_on: bool = False) -> RetainedAt | None:
        """What a new subscriber would have been sent; None before there is a table. One that is not settled is read
        again, unless somebody is `going_on` who has begun with it.
        """
        known = self.kept(moment)
        if known is not None and (known.settled or going_on):
            return known
        reader = self.reader()
        if reader is None:
            return None
        import pyarrow.compute as pc

        from holdfast.history.reader import moment as timestamp

        offset, at_ms = moment.offset, moment.at_ms
        if offset:
            upto, expiry_ms = pc.field("offset") <= offset, time_of(reader, offset) or 0
            settled = reader.last >= offset
        else:
            upto, expiry_ms = pc.field("timestamp") <= timestamp(at_ms), at_ms
            settled = at_ms < self.now_ms() - SETTLED_MS
        rows, whole = reader.retained_within(upto, expiry_ms, moment.topic_filter, self.moment_bytes)
        if moment.search:
            rows = searched(reader, rows, whole, moment)
        found = RetainedAt(rows, whole, settled)
        if not moment.is_of_one_topic:
            with self.lock:
                self.forget_erased()
                self.moments[moment] = found
                self.moments.move_to_end(moment)
                while len(self.moments) > MOMENTS_KEPT:
                    self.moments.popitem(last=False)
        return found


def size_of(row: Row) -> int:
    """About how many bytes a row is, whatever its publisher made large."""
    texts = [row["topic"], row["client_id"], row["username"], row["content_type"], row["response_topic"]]
    size = sum(len(text) for text in texts if text) + len(row["payload"]) + len(row["correlation_data"] or b"")
    return size + sum(len(one["key"]) + len(one["value"]) for one in row["user_properties"] or ())


def by_offset(rows: "pa.Table") -> dict[int, Row]:
    return {row["offset"]: row for row in rows.to_pylist()}


def bounded(rows: Iterator[Row | None]) -> tuple[list[Row], int]:
    """Rows up to PAGE_BYTES, and how many were looked at for that: at least one, where there is one."""
    found: list[Row] = []
    looked = size = 0
    for row in rows:
        looked += 1
        if row is not None:
            found.append(row)
            size += size_of(row)
        if size >= PAGE_BYTES:
            break
    return found, looked


class Undoing(NamedTuple):
    """What an operation changed: offsets of the rows that were in force before, of the topics that it cleared and of
    those that it set, and the topics that it set where there was nothing.
    """

    cleared: list[int]
    replaced: list[int]
    new: list[str]


def undoing(reader: "HistoryReader", operation: str) -> Undoing:
    import pyarrow.compute as pc

    from holdfast.history.reader import last_verdicts
    from holdfast.history.schema import OUTCOME_CLEARED, OUTCOME_SET

    data = reader.table.to_pyarrow_dataset()
    columns = ["offset", "topic", "outcome"]
    verdict = pc.field("outcome").isin([OUTCOME_SET, OUTCOME_CLEARED])
    mine = (pc.field("client_id") == operation) & (pc.field("protocol") == PROTOCOL)
    own = data.to_table(columns=columns, filter=mine & verdict)
    if own.num_rows == 0:
        return Undoing([], [], [])
    first = pc.min(own["offset"]).as_py()
    last = last_verdicts(own)
    ended = dict(zip(last["topic"].to_pylist(), last["outcome"].to_pylist(), strict=True))
    wanted = pc.field("topic").isin(last["topic"].combine_chunks()) & (pc.field("offset") < first)
    rows = last_verdicts(data.to_table(columns=columns, filter=wanted & verdict))
    before = rows.filter(pc.equal(rows["outcome"], OUTCOME_SET))
    found = Undoing([], [], [])
    for topic, offset in zip(before["topic"].to_pylist(), before["offset"].to_pylist(), strict=True):
        (found.cleared if ended.pop(topic) == OUTCOME_CLEARED else found.replaced).append(offset)
    found.new.extend(topic for topic, outcome in ended.items() if outcome == OUTCOME_SET)
    return found


def searched(reader: "HistoryReader", rows: "pa.Table", whole: bool, moment: Moment) -> "pa.Table":
    """Those of the rows that have the text of the search in them. Payloads that are not at hand are read for it, a few
    at a time.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    def has_text(column: "pa.ChunkedArray | pa.Array") -> "pa.ChunkedArray | pa.Array":
        return pc.fill_null(pc.match_substring(column, moment.search, ignore_case=True), False)

    search = Search(moment.search, False)

    def has_payload(column: "pa.ChunkedArray | pa.Array") -> "pa.ChunkedArray | pa.Array":
        if search.is_ascii:
            return has_text(column)
        return pa.array(
            [search.is_in(one) for one in column.to_pylist()], pa.bool_()
        )  # Arrow knows no letters in bytes

    found = has_text(rows["topic"])
    if moment.publishers:
        found = pc.or_(found, pc.or_(has_text(rows["client_id"]), has_text(rows["username"])))
    if whole:
        return rows.filter(pc.or_(found, has_payload(rows["payload"])))
    offsets = rows["offset"].combine_chunks()
    inside: list[int] = []
    scanner = reader.table.to_pyarrow_dataset().scanner(
        columns=["offset", "payload"],
        filter=pc.field("offset").isin(offsets),
        batch_size=ROWS_AT_ONCE,
        batch_readahead=2,
    )
    for batch in scanner.to_batches():
        inside += batch["offset"].filter(has_payload(batch["payload"])).to_pylist()
    return rows.filter(pc.or_(found, pc.is_in(rows["offset"], pa.array(inside, pa.int64()))))


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
