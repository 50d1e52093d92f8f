"""Erasing from the pipeline's tables while no run keeps them, wherever they stand.

A run follows erasures by itself, after it has come past them. Here history is asked which of the rows that a selector
finds are in force, so that tables that are far behind lose theirs too.
"""

from contextlib import ExitStack
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from holdfast.errors import UsageError
from holdfast.history.erase import find
from holdfast.history.erased import Selector
from holdfast.history.place import At
from holdfast.history.reader import records
from holdfast.history.table import erasures_finished, last_offset, load
from holdfast.spark.delta import Table, absolute, is_table
from holdfast.spark.erase import Mask, count, erase, selected
from holdfast.spark.keeper import Lock
from holdfast.spark.tables import TABLES


def count_in_tables(root: str, history: At, selector: Selector, now_ms: int) -> dict[str, int]:
    """How many rows of each table would go, were they erased from history now."""
    source = load(history)
    goes = mask(source, selector, last_offset(source), now_ms)
    return {name: count(table, goes) for name, table in open_tables(root).items()}


def follow_history(root: str, history: At, name: str, selector: Selector, now_ms: int) -> dict[str, int] | None:
    """Erases from the tables what has been erased from history, the erasure of that name last, and returns how many
    rows went from each; None where a run is at work, which follows by itself.

    Raises UsageError where a run is at work that has no way to know: nothing was erased from history.
    """
    tables = open_tables(root)
    if not tables:
        return {}
    source = load(history)
    done = min(table.erased for table in tables.values())
    known = [erasure for _, erasure in records(source)]
    wanted = [(one.selector, one.upto, one.at_ms) for one in known if one.number > done]
    told = any(one.name == name for one in known)
    if not told:
        wanted.append((selector, last_offset(source), now_ms))
    with ExitStack() as stack:
        try:
            stack.callback(Lock(absolute(root)).release)
        except UsageError as error:
            if told:
                return None
            raise UsageError(f"{error}, and erase again: there is nothing in history that would tell it") from None
        gone = dict.fromkeys(tables, 0)
        for chosen, upto, at_ms in wanted:
            goes = mask(source, chosen, upto, at_ms)
            for each, table in tables.items():
                gone[each] += erase(table, goes)
        for table in tables.values():
            table.forget(erasures_finished(source))
    return gone


def open_tables(root: str) -> dict[str, Table]:
    paths = {name: f"{absolute(root)}/{name}" for name in TABLES}
    # by whatever rule their rows were made
    values = {name: replace(value, rule="") for name, value in TABLES.items()}
    return {name: Table(path, values[name]) for name, path in paths.items() if is_table(path)}


def mask(history: DeltaTable, selector: Selector, upto: int, at_ms: int) -> Mask:
    """All that a selector finds in a table, except what has the offsets of rows in force."""
    in_force = find(history, selector, upto, at_ms).in_force

    def goes(rows: pa.Table) -> pa.ChunkedArray:
        found = selected(rows, selector)
        if "offset" not in rows.column_names:
            return found
        stays = pc.or_(pc.greater(rows["offset"], upto), pc.is_in(rows["offset"], in_force))
        return pc.and_(found, pc.invert(stays))

    return goes
