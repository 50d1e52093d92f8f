"""Erasures in the pipeline's tables: what was erased from history leaves them too, and their older versions with it.

What goes follows from a table's columns. A row with `topic`, `client_id` or `username` goes with what it names; numbers
of users and clients name nobody. A row with an `offset` is a message: those after the erasure stay, and so does a value
that still held when history was erased, as it stays there. Everything here works on files, without a Spark session.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row

from holdfast.history.erased import Erasure, Selector
from holdfast.spark.delta import CLOSED, OPEN, Table
from holdfast.spark.derived import DerivedTable
from holdfast.spark.files import add_action, read_file, write_file
from holdfast.spark.topics import TopicFilter

Mask = Callable[[pa.Table], pa.ChunkedArray]


def follow(tables: Mapping[str, Table], erasures: list[Erasure]) -> int:
    """Erases what was erased from history, in tables that have come past all of it; returns how many rows went."""
    gone = 0
    for erasure in erasures:
        gone += sum(erase(table, by_now(table.value, erasure)) for table in tables.values())
    number = erasures[-1].number if erasures else 0
    for table in tables.values():
        table.forget(number)
    return gone


def by_now(value: DerivedTable, erasure: Erasure) -> Mask:
    """Which rows of a table go, by what the table itself says of them."""
    at = pa.scalar(datetime.fromtimestamp(erasure.at_ms / 1000, UTC), pa.timestamp("us", tz="UTC"))

    def goes(rows: pa.Table) -> pa.ChunkedArray:
        found = selected(rows, erasure.selector)
        if "offset" not in rows.column_names:
            return found
        found = pc.and_(found, pc.less_equal(rows["offset"], erasure.upto))
        if "expires_at" not in rows.column_names:
            return found
        over = pc.fill_null(pc.less_equal(rows["expires_at"], at), False)
        if value.ended:
            over = pc.or_(over, pc.fill_null(pc.less_equal(rows[value.ended], erasure.upto), False))
        return pc.and_(found, over)

    return goes


def selected(rows: pa.Table, selector: Selector) -> pa.ChunkedArray:
    nothing = pa.chunked_array([pa.repeat(pa.scalar(False), rows.num_rows)], pa.bool_())
    if selector.column not in rows.column_names:
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
            [report] = write_file(kept, table.root, table.value, prefix).to_pylist()
            added.append(add_action(Row(**report)))
    if removed:
        table.commit(added, removed, None)
    return gone


def _rows(table: Table, path: str) -> pa.Table:
    return read_file(table.root, path, table.value)
