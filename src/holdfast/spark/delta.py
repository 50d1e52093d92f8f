"""Delta tables that Spark's executors write and one driver commits.

Executors write Parquet files under names nobody else uses and report them; the driver commits the list, the files they
replace, and the offset up to which history is in the table, all in one Delta transaction. Whatever happens before that
commit leaves only files that no reader knows. Whatever happens after it is a new batch: the offset in the table says
where to go on, so no other checkpoint exists that could disagree.
"""

import threading
import time
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction
from pyarrow.fs import FileSelector, FileType
from pyspark.sql import DataFrame, SparkSession

from holdfast.errors import StoreError, UsageError
from holdfast.history.forget import forget_versions
from holdfast.history.layout import layout_of
from holdfast.history.place import Place, open_again
from holdfast.history.storage_options import is_remote, redacted, storage_options
from holdfast.spark.derived import DerivedTable
from holdfast.spark.store import filesystem_of, parquet_frame
from holdfast.spark.tables import TABLES

APP_ID = "holdfast-pipeline"
MARK_APP_ID = "holdfast-pipeline-mark"
FROM_APP_ID = "holdfast-pipeline-from"
MADE_APP_ID = "holdfast-pipeline-made-by"
ERASED_APP_ID = "holdfast-pipeline-erased"
# What the files of a table with rows that ended are called: a batch rewrites open ones and adds closed ones.
OPEN, CLOSED = "open-", "closed-"
CONFIGURATION = {
    "delta.checkpointInterval": "50",
    "delta.logRetentionDuration": "interval 1 days",
    "delta.deletedFileRetentionDuration": "interval 1 hours",
}


class DataFile(NamedTuple):
    path: str
    rows: int
    size: int
    low: Any
    high: Any

    @property
    def closed(self) -> bool:
        """Whether its rows have all ended."""
        return self.path.startswith(CLOSED)


class Table:
    """One table of the pipeline: its files, how far it has come, and the only way to change it."""

    def __init__(self, root: str, value: DerivedTable) -> None:
        self.root, self.value = root, value
        self._rule = zlib.crc32(value.rule.encode())
        # who changes it holds this from its look at the files until its commit
        self.lock = threading.RLock()
        self._unreferenced: dict[str, float] = {}
        try:
            told = storage_options(root)
            if not DeltaTable.is_deltatable(root, told):
                DeltaTable.create(
                    root,
                    schema=Schema.from_arrow(value.schema),
                    mode="ignore",
                    configuration=CONFIGURATION,
                    storage_options=told,
                )
            self._delta = DeltaTable(root, storage_options=told)
        except (DeltaError, OSError) as error:
            raise not_opened(root, error) from None
        found = pa.schema(self._delta.schema().to_arrow())
        if found.names != value.schema.names:
            raise UsageError(
                f"the table at {root} has columns {found.names}, expected {value.schema.names}: it was made by another "
                "version; remove that folder and the pipeline makes the table anew from history"
            )
        self._read_log()
        if value.rule and self._delta.transaction_version(MADE_APP_ID) not in (None, self._rule):
            raise UsageError(
                f"the table at {root} was made by another rule than {value.rule!r}; remove that folder and the "
                "pipeline makes the table anew from history"
            )

    def _read_log(self) -> None:
        key = self.value.sorted_by
        self._actions: list[dict[str, Any]] = pa.table(self._delta.get_add_actions(flatten=True)).to_pylist()
        self.files = [
            DataFile(row["path"], row["num_records"], row["size_bytes"], row.get(f"min.{key}"), row.get(f"max.{key}"))
            for row in self._actions
        ]
        # the next offset to fold; offsets start at 0 or 1, and either way nothing comes before 0
        self.applied = self._delta.transaction_version(APP_ID) or 0
        # the retention mark of history when its rows were last read: what was gone by then was known to be
        self.mark = self._delta.transaction_version(MARK_APP_ID) or 0
        # the number of the last erasure that it has followed
        self.erased = self._delta.transaction_version(ERASED_APP_ID) or 0
        # the mark of its first batch: of what happened before, only what was retained then is in the table
        self.complete_from = self._delta.transaction_version(FROM_APP_ID) or 0

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def delta(self) -> DeltaTable:
        return self._delta

    @property
    def version(self) -> int:
        return int(self._delta.version())

    def frame(self, spark: SparkSession, files: Iterable[DataFile] | None = None) -> DataFrame:
        """The rows of these files, or of all, through Spark's own Parquet reader."""
        paths = [f"{self.root}/{file.path}" for file in (self.files if files is None else files)]
        if not paths:
            return spark.createDataFrame([], self.value.ddl)
        return parquet_frame(spark, self.root, paths, self.value.ddl, self.value.schema)

    def closed(self) -> list[DataFile]:
        """The files that no batch touches again, in the order of the time at which their rows ended or came."""
        column = f"max.{self.value.ended or 'offset'}"
        found = [
            (row.get(column) or 0, file) for file, row in zip(self.files, self._actions, strict=True) if file.closed
        ]
        return [file for _, file in sorted(found, key=lambda pair: pair[0])]

    def reaching(self, start: str, end: str, moment: Any) -> list[DataFile]:
        """Files that may have a row with `start <= moment` and `end` later than it or null."""
        found = []
        for file, row in zip(self.files, self._actions, strict=True):
            first, last, open_ended = row[f"min.{start}"], row[f"max.{end}"], row[f"null_count.{end}"] != 0
            if (first is None or first <= moment) and (open_ended or last is None or last >= moment):
                found.append(file)
        return found

    def commit(
        self,
        added: list[AddAction],
        removed: Iterable[DataFile],
        applied: int | None,
        mark: int = 0,
        said: Sequence[Transaction] = (),
    ) -> None:
        """Make the new files the table's, in one step that either happened or did not. `said` is noted with it.

        Without an offset the rows stay what they were and only lie in other files.
        """
        now = int(time.time() * 1000)
        moved = applied is not None
        for action in added:
            action.data_change = moved
        gone = [RemoveAction(file.path, moved, now, file.size) for file in removed]
        noted = list(said)
        if applied is not None:
            noted += [
                Transaction(APP_ID, applied),
                Transaction(MARK_APP_ID, mark),
                Transaction(MADE_APP_ID, self._rule),
            ]
            if not self.applied:
                noted.append(Transaction(FROM_APP_ID, mark))
        properties = CommitProperties(app_transactions=noted, max_commit_retries=0)
        try:
            self._delta.create_write_transaction(
                [*added, *gone], "append", self._delta.schema(), commit_properties=properties
            )
        except CommitFailedError as error:
            raise UsageError(
                f"another run committed to {self.root} at the same time; this batch was not applied ({error})"
            ) from None
        except (DeltaError, OSError) as error:
            raise StoreError(f"the table at {self.root} cannot be written: {redacted(str(error))}") from None
        self._delta.update_incremental()
        self._read_log()

    def sweep(self, keep_seconds: float) -> int:
        """Delete files that no version since `keep_seconds` ago has used, and leftovers of killed runs."""
        filesystem = filesystem_of(self.root)
        used = {file.path for file in self.files}
        now = time.monotonic()
        seen: dict[str, float] = {}
        swept = 0
        for info in filesystem.get_file_info(FileSelector(self.root)):
            if not info.is_file or not info.base_name.endswith(".parquet") or info.base_name in used:
                continue
            seen[info.base_name] = self._unreferenced.get(info.base_name, now)
            if now - seen[info.base_name] > keep_seconds:
                filesystem.delete_file(info.path)
                del seen[info.base_name]
                swept += 1
        self._unreferenced = seen
        return swept

    def forget(self, erased: int) -> None:
        """Delete all but the newest version, from the disk too, and note the number of the last erasure that it has
        followed, where that is not 0.
        """
        said = [Transaction(ERASED_APP_ID, erased)] if erased else []
        try:
            forget_versions(self._delta, Place(self.root), said)
            self._delta = DeltaTable(self.root, storage_options=storage_options(self.root))
        except (DeltaError, OSError) as error:
            raise StoreError(f"the table at {self.root} cannot be written: {redacted(str(error))}") from None
        self._read_log()

    def tidy(self) -> None:
        """What an idle moment is for: remove files replaced over an hour ago and fold the log into a checkpoint."""
        self._delta.vacuum(retention_hours=1, dry_run=False, enforce_retention_duration=False)
        self._delta.create_checkpoint()
        self._delta.cleanup_metadata()
        self._delta.update_incremental()


def is_table(root: str) -> bool:
    """Whether there is a table in a folder or at an address. Raises StoreError where its store does not say."""
    if not is_remote(root) and not Path(root).is_dir():
        return False
    try:
        return Place(root).exists()
    except (DeltaError, OSError) as error:
        raise not_opened(root, error) from None


def layouts(root: str) -> dict[str, dict[str, Any]]:
    """How each table in a folder or at an address lies there, whoever declared it, by name: the pipeline's own first,
    in their order; nothing where there is no such place. Starts no Spark. Raises StoreError where one cannot be read.
    """
    root = absolute(root)
    try:
        found = Place(root).filesystem().get_file_info(FileSelector("", allow_not_found=True))
    except (DeltaError, OSError) as error:
        raise StoreError(f"the tables at {root} cannot be listed: {redacted(str(error))}") from None
    folders = [one.base_name for one in found if one.type == FileType.Directory]
    names = [name for name in folders if name.isidentifier() and is_table(f"{root}/{name}")]
    own = list(TABLES)
    names.sort(key=lambda name: (own.index(name) if name in own else len(own), name))
    return {name: _layout(f"{root}/{name}") for name in names}


def _layout(root: str) -> dict[str, Any]:
    place = Place(root)
    try:
        return layout_of(open_again(place), place)
    except (DeltaError, OSError) as error:
        raise not_opened(root, error) from None


def not_opened(root: str, error: Exception) -> StoreError:
    return StoreError(f"the table at {root} cannot be opened: {redacted(str(error))}")


def absolute(path: str) -> str:
    """An address of a store as it is; a folder, also one given as a URL, by its whole path."""
    folder = Place(path).folder
    return path.rstrip("/") if folder is None else str(folder.absolute())
