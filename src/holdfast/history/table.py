"""The Delta table that the history is: where it lies, how it is made, and what its files say about themselves."""

import re
from dataclasses import dataclass

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, WriterProperties

from holdfast.errors import StoreError
from holdfast.history.place import At, open_again, place_of
from holdfast.history.schema import (
    ERASED_APP_ID,
    FORMAT_APP_ID,
    FORMAT_VERSION,
    LIVE_APP_ID,
    RETENTION_APP_ID,
    WRITER_APP_ID,
    arrow_schema,
)
from holdfast.history.storage_options import redacted

# A commit a second leaves many small log files; a checkpoint sums them up, and old ones go.
CHECKPOINTS = {"delta.checkpointInterval": "100"}
KEEP_REPLACED_S = 300
COLOUR = re.compile("\x1b\\[[0-9;]*m")
CAUSE = "↳"
# Row groups are what readers share a file out by: small enough for every core to have some.
WRITING = WriterProperties(compression="ZSTD", max_row_group_size=250_000)


@dataclass(frozen=True)
class DataFile:
    path: str  # within the table
    size: int
    rows: int
    first: int  # lowest offset
    last: int  # highest offset
    newest_us: int  # highest timestamp, microseconds since the epoch


def keeping(seconds: int) -> dict[str, str]:
    """How long a table keeps files that others have replaced, and what its log says of them, for those who read it."""
    said = f"interval {seconds} seconds"
    return {"delta.logRetentionDuration": said, "delta.deletedFileRetentionDuration": said}


def exists(at: At) -> bool:
    return place_of(at).exists()


def create(at: At) -> DeltaTable:
    place = place_of(at)
    if place.folder is not None:
        place.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return DeltaTable.create(
        place.uri,
        arrow_schema(),
        mode="ignore",
        name="holdfast history",
        description="what was published, one row each, in offset order",
        configuration=CHECKPOINTS | keeping(KEEP_REPLACED_S),
        storage_options=place.options,
        commit_properties=CommitProperties(app_transactions=[Transaction(FORMAT_APP_ID, FORMAT_VERSION, None)]),
    )


def load(at: At) -> DeltaTable:
    """Returns the table as it is now. Raises StoreError when there is none, or when it cannot be read."""
    try:
        table = open_again(at)
    except Exception as error:  # the library's own tree of errors has no root that is public
        raise StoreError(f"history table in {at} cannot be opened: {first_line(error)}") from error
    found = table.transaction_version(FORMAT_APP_ID) or 1
    if found > FORMAT_VERSION:
        raise StoreError(f"history table in {at} has format {found}, this version reads up to {FORMAT_VERSION}")
    return table


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
        actions["path"].to_pylist(),
        actions["size_bytes"].to_pylist(),
        actions["num_records"].to_pylist(),
        actions["min.offset"].to_pylist(),
        actions["max.offset"].to_pylist(),
        newest.to_pylist(),
        strict=True,
    )
    return sorted((DataFile(*row) for row in columns), key=lambda file: file.first)


def first_line(error: Exception) -> str:
    """What an error of the libraries says, in one line, without credentials. Those of stores come as a chain of causes,
    in colours, a line each.
    """
    lines = COLOUR.sub("", str(error).strip() or repr(error)).splitlines()
    causes = [line.strip().removeprefix(CAUSE).strip() for line in lines[1:] if line.strip().startswith(CAUSE)]
    return redacted(": ".join([lines[0], *causes]))
