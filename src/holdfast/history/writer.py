"""Publishes to rows, exactly once.

Each commit carries the offset it brings the table to, in the same atomic step as the rows. After a crash the table
itself says where to go on in the journal, so nothing is written twice and nothing is left out. Runs wherever it does
not disturb: it blocks, and knows no event loop.
"""

import fcntl
import os
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from holdfast.broker.records import Columns
from holdfast.errors import StoreError
from holdfast.history.repair import sync_files, take_back_torn_commits
from holdfast.history.rows import batch_of
from holdfast.history.schema import LIVE_APP_ID, WRITER_APP_ID, arrow_schema
from holdfast.history.table import WRITING, create, exists, first_line, last_offset, live_from, load

LOCK_NAME = "history.lock"
CLOCK_SLACK_S = 5.0  # file times may lag behind the clock that the caller reads


class HistoryWriter:
    """The only writer of a table: a lock beside the folder sees to that, also across a restart of the broker.

    Invariant: `last` is the offset in the table's newest commit.
    """

    def __init__(self, folder: Path, quarantine: Path, kept_from: int = 0) -> None:
        """Opens or creates the table, without what was torn at its end and is still in the journal.

        The journal has offsets from `kept_from` on. Raises StoreError while another writer has the table.
        """
        self.folder = folder
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self.lock = os.open(folder.parent / LOCK_NAME, flags, 0o600)
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.repaired = take_back_torn_commits(folder, quarantine, kept_from)
            self.table: DeltaTable = load(folder) if exists(folder) else begin(folder)
        except BlockingIOError:
            os.close(self.lock)
            raise StoreError(f"history table in {folder} is in use by another writer") from None
        except Exception:
            os.close(self.lock)
            raise
        self.last = last_offset(self.table)
        self.synced_at_s = 0.0

    def mark_live(self, offset: int | None) -> None:
        """Says in the table from which offset on publishes without RETAIN are recorded, 0 being that they are not.

        A table that says that they are, or that they are not, is left alone when this is still so; with None always.
        """
        if offset is None or (live_from(self.table) > 0) == (offset > 0):
            return
        marked = CommitProperties(app_transactions=[Transaction(LIVE_APP_ID, offset, None)])
        try:
            self.table.create_write_transaction([], "append", arrow_schema(), commit_properties=marked)
            self.table.update_incremental()
        except Exception as error:
            raise StoreError(f"history cannot be written: {first_line(error)}") from error

    def append(self, records: list[bytes], upto: int) -> int:
        """Commits the rows among the records and returns how many. The journal is then in the table up to offset
        `upto`.

        Without rows nothing is committed. Raises StoreError when the table cannot be written: nothing has changed then.
        """
        columns = Columns()
        columns.add_all(records, self.last)
        if not len(columns):
            return 0
        self.commit(batch_of(columns), max(upto, columns.offsets[-1]))
        return len(columns)

    def commit(self, batch: pa.RecordBatch, upto: int) -> None:
        try:
            write_deltalake(
                self.table,
                batch,
                mode="append",
                writer_properties=WRITING,
                commit_properties=CommitProperties(app_transactions=[Transaction(WRITER_APP_ID, upto, None)]),
            )
        except Exception as error:
            raise StoreError(f"history cannot be written: {first_line(error)}") from error
        self.last = upto

    def reload(self) -> None:
        """Opens the table anew. Call after an erasure, which takes away the log that the open one has read."""
        self.table = load(self.folder)

    def sync(self, now_s: float) -> None:
        """Makes every commit so far survive a power cut. Only then may the journal forget the rows."""
        try:
            sync_files(self.folder, self.synced_at_s)
        except OSError as error:
            raise StoreError(f"history cannot be synced: {error.strerror or error}") from error
        self.synced_at_s = now_s - CLOCK_SLACK_S

    def close(self) -> None:
        os.close(self.lock)


def begin(folder: Path) -> DeltaTable:
    """Creates the table. Raises StoreError when it cannot be written."""
    try:
        return create(folder)
    except Exception as error:
        raise StoreError(f"history cannot be written: {first_line(error)}") from error
