"""The Delta table that the history is: where it lies, how it is made, and what its files say about themselves."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, WriterProperties

from holdfast.errors import StoreError
from holdfast.history.schema import (
    ERASED_APP_ID,
    FORMAT_APP_ID,
    FORMAT_VERSION,
    LIVE_APP_ID,
    RETENTION_APP_ID,
    WRITER_APP_ID,
    arrow_schema,
)

# A commit a second leaves many small log files; a checkpoint sums them up, and old ones go after an hour.
CONFIGURATION = {
    "delta.checkpointInterval": "100",
    "delta.logRetentionDuration": "interval 1 hours",
    "delta.deletedFileRetentionDuration": "interval 1 hours",
}
# Row groups are what readers share a file out by: small enough for every core to have some.
WRITING = WriterProperties(compression="ZSTD", max_row_group_size=250_000)


@dataclass(frozen=True)
class DataFile:
    size: int
    rows: int
    first: int  # lowest offset
    last: int  # highest offset
    newest_us: int  # highest timestamp, microseconds since the epoch


def exists(folder: Path) -> bool:
    return DeltaTable.is_deltatable(str(folder))


def create(folder: Path) -> DeltaTable:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return DeltaTable.create(
        str(folder),
        arrow_schema(),
        mode="ignore",
        name="holdfast history",
        description="what was published, one row each, in offset order",
        configuration=CONFIGURATION,
        commit_properties=CommitProperties(app_transactions=[Transaction(FORMAT_APP_ID, FORMAT_VERSION, None)]),
    )


def load(folder: Path) -> DeltaTable:
    """Returns the table as it is now. Raises StoreError when there is none, or when it cannot be read."""
    try:
        table = open_again(folder)
    except Exception as error:  # the library's own tree of errors has no root that is public
        raise StoreError(f"history table in {folder} cannot be opened: {first_line(error)}") from error
    found = table.transaction_version(FORMAT_APP_ID) or 1
    if found > FORMAT_VERSION:
        raise StoreError(f"history table in {folder} has format {found}, this version reads up to {FORMAT_VERSION}")
    return table


def open_again(folder: Path) -> DeltaTable:
    """Opens the table, twice where an erasure has just taken away the part of the log that was being read."""
    try:
        return DeltaTable(str(folder))
    except Exception:
        return DeltaTable(str(folder))


def last_offset(table: DeltaTable) -> int:
    """Returns the offset up to which the journal is in the table."""
    return table.transaction_version(WRITER_APP_ID) or 0


def complete_from(table: DeltaTable) -> int:
    """Returns the first offset from which on every row is still there; before it, only what was retained then."""
    return table.transaction_version(RETENTION_APP_ID) or 0


def live_from(table: DeltaTable) -> int:
    """Returns the offset from which on publishes without RETAIN are rows too; 0 when they are not recorded now."""
    found = table.transaction_version(LIVE_APP_ID)
    return 1 if found is None else found


def erasures_finished(table: DeltaTable) -> int:
    """Returns the number of the last erasure that is finished."""
    return table.transaction_version(ERASED_APP_ID) or 0


def data_files(table: DeltaTable) -> list[DataFile]:
    """Returns the files of the table in offset order."""
    actions = pa.table(table.get_add_actions(flatten=True))
    if actions.num_rows == 0:
        return []
    newest = actions["max.timestamp"].cast(pa.int64())
    columns = zip(
        actions["size_bytes"].to_pylist(),
        actions["num_records"].to_pylist(),
        actions["min.offset"].to_pylist(),
        actions["max.offset"].to_pylist(),
        newest.to_pylist(),
        strict=True,
    )
    return sorted((DataFile(*row) for row in columns), key=lambda file: file.first)


def first_line(error: Exception) -> str:
    return (str(error).strip() or repr(error)).splitlines()[0]
