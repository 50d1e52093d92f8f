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
from deltalake.exceptions import CommitFailedError

from holdfast.broker.records import Columns
from holdfast.errors import StoreError
from holdfast.history.place import At, place_of
from holdfast.history.repair import sync_files, take_back_torn_commits
from holdfast.history.rows import batch_of
from holdfast.history.schema import HOLDER_APP_ID, LIVE_APP_ID, OWNER_APP_ID, WRITER_APP_ID, arrow_schema
from holdfast.history.table import WRITING, create, exists, first_line, last_offset, live_from, load

LOCK_NAME = "history.lock"
CLOCK_SLACK_S = 5.0  # file times may lag behind the clock that the caller reads


class Overtaken(StoreError):
    """Another writer had a commit of that number first."""


class HistoryWriter:
    """The only writer of a table: a lock in the data folder sees to that, also across a restart of the broker. A second
    broker that was pointed at the same object store is found out by the store, which takes one commit of a number.

    Invariant: `last` is the offset in the table's newest commit.
    """

    def __init__(self, at: At, quarantine: Path, kept_from: int = 0, holder: int = 0) -> None:
        """Opens or creates the table, without what was torn at its end and is still in the journal.

        The journal has offsets from `kept_from` on; the quarantine lies in the data folder. `holder` is the number of
        a writer that shares the table with others. Raises StoreError while another writer has the table.
        """
        self.holder = holder
        self.at = at
        self.owner = place_of(at).owner
        data = quarantine.parent
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self.lock = os.open(data / LOCK_NAME, flags, 0o600)
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.repaired = take_back_torn_commits(at, quarantine, kept_from)
            self.table: DeltaTable = open_or_begin(at)
            self.check_owner()
        except BlockingIOError:
            os.close(self.lock)
            raise StoreError(f"history table in {at} is in use by another writer") from None
        except Exception:
            os.close(self.lock)
            raise
        self.last = last_offset(self.table)
        self.synced_at_s = 0.0

    def check_owner(self) -> None:
        """Raises StoreError when the table is another broker's: offsets of two would be taken for those of one."""
        found = self.table.transaction_version(OWNER_APP_ID)
        if self.owner and found not in (None, self.owner):
            raise StoreError(
                f"history table in {self.at} is written by a broker with another data folder: give each broker a "
                "history.path of its own, and an empty one to a data folder that is new"
            )

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
        said = [Transaction(WRITER_APP_ID, upto, None)]
        if self.owner:
            said.append(Transaction(OWNER_APP_ID, self.owner, None))
        if self.holder:
            said.append(Transaction(HOLDER_APP_ID, self.holder, None))
        try:
            write_deltalake(
                self.table,
                batch,
                mode="append",
                writer_properties=WRITING,
                # Once: a store may have taken a commit whose answer was lost, and then the same rows would come again
                # as the next one. Who opens the table anew sees how far it has come.
                commit_properties=CommitProperties(app_transactions=said, max_commit_retries=0),
            )
        except CommitFailedError:
            raise Overtaken(
                f"history table in {self.at} was written to at the same time: it is opened anew, and rows that it does "
                "not have yet are written then"
            ) from None
        except Exception as error:
            raise StoreError(f"history cannot be written: {first_line(error)}") from error
        self.last = upto

    def reload(self) -> None:
        """Opens the table anew. Call after an erasure, which takes away the log that the open one has read."""
        self.table = load(self.at)
        self.last = last_offset(self.table)

    def written_by(self) -> int:
        """The number of the writer that wrote last, of those that share the table; 0 when none has."""
        return self.table.transaction_version(HOLDER_APP_ID) or 0

    def sync(self, now_s: float) -> None:
        """Makes every commit so far survive a power cut. Only then may the journal forget the rows."""
        try:
            sync_files(self.at, self.synced_at_s)
        except OSError as error:
            raise StoreError(f"history cannot be synced: {error.strerror or error}") from error
        self.synced_at_s = now_s - CLOCK_SLACK_S

    def close(self) -> None:
        if self.lock >= 0:
            os.close(self.lock)
        self.lock = -1


def open_or_begin(at: At) -> DeltaTable:
    """Opens the table, or creates it where there is none. Raises StoreError when it cannot be read or written."""
    try:
        is_there = exists(at)
    except Exception as error:
        raise StoreError(f"history table in {at} cannot be opened: {first_line(error)}") from error
    if is_there:
        return load(at)
    try:
        return create(at)
    except Exception as error:
        raise StoreError(f"history cannot be written: {first_line(error)}") from error
