"""When retained messages changed, and by which operations: questions to the past for somebody who moves about in time.

A change is a row that set or cleared something. An operation is one call of the API that did: a delete, a publish, a
restore, an undo. Its name stands as client id in its rows.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from holdfast.service.past import PROTOCOL, Past

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from holdfast.history.reader import HistoryReader

NAME = re.compile(r"(api|user)-[0-9a-f]{12}")
COLUMNS = ["offset", "timestamp", "topic", "client_id", "username", "outcome"]


def change_counts(past: Past, from_ms: int, to_ms: int, topic: str, parts: int) -> list[int]:
    """How many changes there were in each of so many equal parts of a time, of one topic or, empty, of all."""
    counts = [0] * parts
    reader = past.reader()
    if reader is None or to_ms <= from_ms:
        return counts
    import pyarrow as pa
    import pyarrow.compute as pc

    from holdfast.history.reader import moment

    within = (pc.field("timestamp") >= moment(from_ms)) & (pc.field("timestamp") < moment(to_ms))
    width_us = (to_ms - from_ms) * 1000 / parts
    scanner = reader.table.to_pyarrow_dataset().scanner(columns=["timestamp"], filter=changes_of(topic) & within)
    for batch in scanner.to_batches():
        places = pc.floor(pc.divide(pc.subtract(batch["timestamp"].cast(pa.int64()), from_ms * 1000), width_us))
        for one in pc.value_counts(places.cast(pa.int64())).to_pylist():
            counts[min(one["values"], parts - 1)] += one["counts"]
    return counts


def changes_beside(past: Past, at_ms: int, topic: str) -> tuple[int | None, int | None]:
    """The last change before a moment and the first after it: each the first millisecond at which it can be seen."""
    reader = past.reader()
    if reader is None:
        return None, None
    import pyarrow as pa
    import pyarrow.compute as pc

    from holdfast.history.reader import moment

    def nearest(ranges: Iterator[tuple[int, int]], side: pc.Expression, newest: bool) -> int | None:
        data = reader.table.to_pyarrow_dataset()
        for low, high in ranges:
            within = (pc.field("offset") > low) & (pc.field("offset") <= high)
            found = data.to_table(columns=["timestamp"], filter=changes_of(topic) & side & within)["timestamp"]
            if len(found):
                at_us: int = (pc.max if newest else pc.min)(found.cast(pa.int64())).as_py()
                return -(-at_us // 1000)
        return None

    before = nearest(ranges_before(reader, at_ms), pc.field("timestamp") <= moment(at_ms - 1), True)
    after = nearest(ranges_after(reader, at_ms), pc.field("timestamp") > moment(at_ms), False)
    return before, after


def changes_of(topic: str) -> "pc.Expression":
    import pyarrow.compute as pc

    from holdfast.history.schema import OUTCOME_CLEARED, OUTCOME_SET

    changed = pc.field("outcome").isin([OUTCOME_SET, OUTCOME_CLEARED])
    return changed & (pc.field("topic") == topic) if topic else changed


def ranges_before(reader: "HistoryReader", at_ms: int) -> Iterator[tuple[int, int]]:
    """Ranges of offsets whose files may have rows before a moment, the newest first."""
    from holdfast.history.table import data_files

    behind = 0
    for file in data_files(reader.table):
        behind = file.last + 1
        if file.newest_us >= at_ms * 1000:
            break
    yield from reader.newest_first(behind)


def ranges_after(reader: "HistoryReader", at_ms: int) -> Iterator[tuple[int, int]]:
    """Ranges of offsets whose files may have rows after a moment, the oldest first, each over twice as many files."""
    from holdfast.history.table import data_files

    files = [file for file in data_files(reader.table) if file.newest_us > at_ms * 1000]
    start, step = 0, 1
    while start < len(files):
        some = files[start : start + step]
        yield min(file.first for file in some) - 1, max(file.last for file in some)
        start, step = start + step, step * 2


def operations(past: Past, username: str | None, before: int, limit: int) -> tuple[list[dict[str, Any]], int | None]:
    """The newest `limit` operations below the offset `before`, of all when that is 0, and `before` of the next page. Of
    one user's, or of everybody's when that is None.
    """
    reader = past.reader()
    if reader is None:
        return [], None
    import pyarrow.compute as pc

    wanted = changes_of("") & (pc.field("protocol") == PROTOCOL)
    if username is not None:
        wanted &= pc.field("username") == username
    if before:
        wanted &= pc.field("offset") < before
    found: dict[str, dict[str, Any]] = {}
    data = reader.table.to_pyarrow_dataset()
    for low, high in reader.newest_first(before):
        within = (pc.field("offset") > low) & (pc.field("offset") <= high)
        for batch in data.scanner(columns=COLUMNS, filter=wanted & within).to_batches():
            for row in batch.to_pylist():
                add(found, row)
        if len(found) > limit:
            break
    newest = sorted(found.values(), key=lambda one: -one["last"])
    page = newest[:limit]
    return page, page[-1]["first"] if len(newest) > limit else None


def add(found: dict[str, dict[str, Any]], row: dict[str, Any]) -> None:
    from holdfast.history.schema import OUTCOME_CLEARED

    name, offset = row["client_id"], row["offset"]
    if not NAME.fullmatch(name or ""):
        return
    one = found.get(name)
    at_ms = round(row["timestamp"].timestamp() * 1000)
    if one is None:
        one = {"operation": name, "username": row["username"] or "", "at_ms": at_ms, "set": 0, "cleared": 0}
        found[name] = one = {**one, "topic": row["topic"], "first": offset, "last": offset}
    one["cleared" if row["outcome"] == OUTCOME_CLEARED else "set"] += 1
    one["last"] = max(one["last"], offset)
    if offset < one["first"]:
        one.update(first=offset, topic=row["topic"], at_ms=at_ms)
