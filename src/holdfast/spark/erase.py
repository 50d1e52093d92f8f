"""Erasures in the pipeline's tables: what was erased from history leaves them too, and their older versions with it.

Payloads are in `retained` and `retained_intervals`. A value that still held when history was erased stays in both, as
it stays there. `topic_stats` has a row for each topic: it goes with the topic, while numbers of users and clients name
nobody. Everything here works on files, without a Spark session.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row

from holdfast.history.erased import Erasure, Selector
from holdfast.spark.delta import CLOSED, OPEN, Table
from holdfast.spark.files import add_action, read_file, write_file
from holdfast.spark.topics import TopicFilter

Mask = Callable[[pa.Table], pa.ChunkedArray]
PAYLOADS: Final = ("retained", "retained_intervals")
# `hygiene` is made anew of `retained` at every run; its older versions are not to outlive these.
FOLLOWED: Final = ("retained", "retained_intervals", "topic_stats", "hygiene")


def follow(tables: Mapping[str, Table], erasures: list[Erasure]) -> int:
    """Erases what was erased from history, in tables that have come past all of it; returns how many rows went."""
    gone = 0
    for erasure in erasures:
        gone += sum(erase(tables[name], by_now(name, erasure)) for name in tables)
    number = erasures[-1].number if erasures else 0
    for table in tables.values():
        table.forget(number)
    return gone


def by_now(name: str, erasure: Erasure) -> Mask:
    """Which rows of a table go, by what the table itself says of them."""
    at = pa.scalar(datetime.fromtimestamp(erasure.at_ms / 1000, UTC), pa.timestamp("us", tz="UTC"))

    def goes(rows: pa.Table) -> pa.ChunkedArray:
        found = selected(rows, name, erasure.selector)
        if name not in PAYLOADS:
            return found
        over = pc.fill_null(pc.less_equal(rows["expires_at"], at), False)
        if name == "retained_intervals":
            over = pc.or_(over, pc.fill_null(pc.less_equal(rows["to_offset"], erasure.upto), False))
        return pc.and_(found, pc.and_(pc.less_equal(rows["offset"], erasure.upto), over))

    return goes


def selected(rows: pa.Table, name: str, selector: Selector) -> pa.ChunkedArray:
    nothing = pa.chunked_array([pa.repeat(pa.scalar(False), rows.num_rows)], pa.bool_())
    if selector.column not in rows.column_names or name == "hygiene":
        return nothing
    if not selector.has_wildcard:
        return pc.fill_null(pc.equal(rows[selector.column], selector.value), False)
    chunks = [TopicFilter(selector.value).mask(chunk) for chunk in rows["topic"].chunks]
    return pa.chunked_array(chunks, pa.bool_()) if chunks else nothing


def count(table: Table, goes: Mask) -> int:
    found = (goes(_rows(table, file.path)) for file in table.files)
    return sum(int(pc.sum(mask).as_py() or 0) for mask in found)


def erase(table: Table, goes: Mask) -> int:
    """Writes the files that have such rows anew, in one commit, and returns how many rows went."""
    added, removed, gone = [], [], 0
    for file in table.files:
        rows = _rows(table, file.path)
        stays = pc.invert(goes(rows))
        kept = rows.filter(stays)
        if kept.num_rows == rows.num_rows:
            continue
        gone += rows.num_rows - kept.num_rows
        removed.append(file)
        if kept.num_rows:
            prefix = CLOSED if file.closed else OPEN if file.path.startswith(OPEN) else ""
            [report] = write_file(kept, table.root, table.shape, prefix).to_pylist()
            added.append(add_action(Row(**report)))
    if removed:
        table.commit(added, removed, None)
    return gone


def _rows(table: Table, path: str) -> pa.Table:
    return read_file(table.root, path, table.shape)
