"""Keeping the table fit: old rows gone, dead files deleted. Files are joined in `compaction`.

Retention never breaks the fold. Of the rows it drops, those that were still in force stay: for each topic the row that
set what was retained at that moment. So the retained set of any later moment can still be computed, and only the past
before that moment is forgotten. What says that something was erased stays too: tables that were made of the rows may
not have followed yet.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from holdfast.errors import StoreError
from holdfast.history.reader import last_verdicts, records
from holdfast.history.schema import OUTCOME_SET, RETENTION_APP_ID
from holdfast.history.table import WRITING, DataFile, complete_from, data_files, first_line, keeping

ROWS_AT_ONCE = 2_000_000  # a table that was kept for ever may have more that is too old than memory can hold
WORTH_DROPPING = 0.1  # of the old rows: dropping fewer is not worth writing the rest again


@dataclass(frozen=True)
class Limits:
    """Zero means no limit."""

    age_s: int = 0
    size: int = 0


def retain(table: DeltaTable, limits: Limits, now_ms: int, at_once: int = ROWS_AT_ONCE) -> int:
    """Drops what the limits say is too old or too much, and returns how many rows went away."""
    files = data_files(table)
    return sum(drop(table, bound, now_ms) for bound in portions(files, drop_before(files, limits, now_ms), at_once))


def portions(files: list[DataFile], bound: int, at_once: int) -> Iterator[int]:
    """Yields offsets that lead up to `bound`, about so many rows apart."""
    rows = reached = 0
    for file in files:
        rows += file.rows
        reached = max(reached, file.last + 1)
        if rows >= at_once and reached < bound:
            yield reached
            rows = 0
    yield bound


def drop(table: DeltaTable, bound: int, now_ms: int) -> int:
    """Drops the rows before offset `bound` that are not in force there, and returns how many that were."""
    if bound <= complete_from(table):
        return 0
    old = table.to_pyarrow_dataset().filter(pc.field("offset") < bound)
    rows: int = old.count_rows()
    held = in_force(old.to_table(columns=["offset", "topic", "outcome", "expires_at"]), now_ms)
    erasures = pa.array([offset for offset, _ in records(table) if offset < bound], pa.int64())
    kept = pa.concat_arrays([held, erasures])
    if rows - len(kept) < max(1, rows * WORTH_DROPPING):
        return 0
    content = old.filter(pc.field("offset").isin(kept)).to_table().sort_by("offset")
    try:
        write_deltalake(
            table,
            content,
            mode="overwrite",
            predicate=f"offset < {bound}",
            writer_properties=WRITING,
            commit_properties=CommitProperties(app_transactions=[Transaction(RETENTION_APP_ID, bound, None)]),
        )
    except Exception as error:
        raise StoreError(f"old history cannot be dropped: {first_line(error)}") from error
    return rows - len(kept)


def drop_before(files: list[DataFile], limits: Limits, now_ms: int) -> int:
    """Returns the offset before which rows may go: all of them lie in files that are too old or too many."""
    excess = sum(file.size for file in files) - limits.size if limits.size else 0
    horizon_us = (now_ms - limits.age_s * 1000) * 1000 if limits.age_s else 0
    keep: list[int] = []
    for file in files:
        if file.newest_us < horizon_us or excess > 0:
            excess -= file.size
        else:
            keep.append(file.first)
    if keep:
        return min(keep)
    return files[-1].last + 1 if files else 0


def in_force(rows: pa.Table, now_ms: int) -> pa.Array:
    """Returns the offsets of the rows that say what is retained after all of these."""
    last = last_verdicts(rows)
    alive = pc.or_kleene(
        pc.is_null(last["expires_at"]),
        pc.greater(last["expires_at"], pa.scalar(now_ms * 1000, pa.timestamp("us", tz="UTC"))),
    )
    keep = pc.and_(pc.equal(last["outcome"], OUTCOME_SET), alive)
    return last.filter(keep)["offset"].combine_chunks()


def keep_replaced(table: DeltaTable, seconds: int) -> None:
    """Has the table keep what was replaced for so long. Says so in the table where it says something else."""
    wanted = keeping(seconds)
    if wanted.items() <= table.metadata().configuration.items():
        return
    try:
        table.alter.set_table_properties(wanted)
    except Exception as error:
        raise StoreError(f"history cannot be written: {first_line(error)}") from error


def vacuum(table: DeltaTable, keep_hours: int | None = None) -> int:
    """Deletes files that were replaced longer ago than that, or than the table itself says, and returns how many.

    Files of commits that never came about are among them.
    """
    try:
        return len(table.vacuum(keep_hours, dry_run=False, enforce_retention_duration=False, full=True))
    except Exception as error:
        raise StoreError(f"history cannot be vacuumed: {first_line(error)}") from error
