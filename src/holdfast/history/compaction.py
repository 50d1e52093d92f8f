"""Few large files instead of many small ones, with rows laid by time and topic.

Commits are small because readers want to see rows soon. So files are joined soon after, newest first, in such a way
that a row is written again only as often as its file doubles: a table of any age has a handful of small files at its
end and files of the wanted size before them. Rows stay what they were, and the log says so (`dataChange` is false), so
that whoever streams the table is given nothing twice.

Within a file rows lie in blocks by offset, and by topic within a block: who looks for a stretch of time leaves other
blocks alone, who looks for a topic reads a small part of each.
"""

import json
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as fs
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from holdfast.errors import StoreError
from holdfast.history.layout import Gain
from holdfast.history.place import At, place_of
from holdfast.history.repair import sync_path
from holdfast.history.schema import arrow_schema, log_bound
from holdfast.history.table import DataFile, data_files, first_line

FILE_BYTES: Final = 64 << 20
# Files below this are joined whatever they are joined with: to write them again costs next to nothing.
SMALL_BYTES: Final = 1 << 20
ENOUGH_FILES: Final = 8
BLOCK_ROWS: Final = 250_000
BLOCK_BYTES: Final = 64 << 20
# A tenth of a block: what one topic's reader has to decode of it.
GROUP_ROWS: Final = 25_000
BATCH_BYTES: Final = 16 << 20
# Columns whose values come again and again.
REPEATED: Final = (
    "topic",
    "client_id",
    "username",
    "protocol",
    "content_type",
    "response_topic",
    "qos",
    "payload_format",
    "outcome",
)


def worth_joining(files: Sequence[DataFile], target: int = FILE_BYTES, settled: bool = False) -> list[DataFile]:
    """The files, in offset order, that should be one: those at the end first, then what lies between files that have
    their size. Empty when nothing is worth its while. `settled` says that no rows come for now: then two are enough.
    """
    runs: list[list[DataFile]] = [[]]
    for file in files:
        if file.size >= target // 2:
            runs.append([])
        else:
            runs[-1].append(file)
    found = newest_of(runs[-1], target)
    if len(found) >= (2 if settled else ENOUGH_FILES) or sum(file.size for file in found) > target // 2:
        return found if len(found) > 1 else []
    for run in reversed(runs[:-1]):  # nothing is ever added to these
        found = newest_of(run, target, whole=True)
        if len(found) > 1:
            return found
    return []


def newest_of(run: Sequence[DataFile], target: int, whole: bool = False) -> list[DataFile]:
    """The newest files of a run that fit into one, up to one that is larger than all that would be joined to it."""
    found: list[DataFile] = []
    size = 0
    for file in reversed(run):
        if size + file.size > target or (found and not whole and file.size > max(SMALL_BYTES, size)):
            break
        found.insert(0, file)
        size += file.size
    return found


def compact(table: DeltaTable, at: At, target: int = FILE_BYTES, settled: bool = True) -> int:
    """Joins all that is worth joining, and returns how many files went away."""
    gone = 0
    while files := worth_joining(data_files(table), target, settled):
        for gain in join(table, at, files):
            if gain is not None:
                gone += gain.files - gain.files_after
    return gone


def join(table: DeltaTable, at: At, files: Sequence[DataFile]) -> Iterator[Gain | None]:
    """Makes one file of several. Yields None after each block of rows, when others may commit too, and in the end what
    was gained. Left in the middle, or failing, it leaves a file that no reader knows. Raises StoreError.
    """
    try:
        yield from _join(table, at, files)
    except StoreError:
        raise
    except Exception as error:
        raise StoreError(f"history cannot be compacted: {first_line(error)}") from error


def _join(table: DeltaTable, at: At, files: Sequence[DataFile]) -> Iterator[Gain | None]:
    place = place_of(at)
    filesystem = place.filesystem()
    name = f"joined-{uuid.uuid4().hex}.parquet"
    statistics = Statistics()
    columns = [column for column in REPEATED if column in arrow_schema().names]
    with pq.ParquetWriter(
        name,
        arrow_schema(),
        filesystem=filesystem,
        compression="zstd",
        use_dictionary=columns,
        write_page_index=True,
    ) as writer:
        for block in blocks_of(filesystem, [file.path for file in files]):
            ordered = block.take(pc.sort_indices(block, [("topic", "ascending"), ("offset", "ascending")]))
            writer.write_table(ordered, row_group_size=GROUP_ROWS)
            statistics.add(ordered)
            yield None
    size = filesystem.get_file_info(name).size
    if place.folder is not None:
        sync_path(str(place.folder / name))  # what it replaces may be all there is of its rows
        sync_path(str(place.folder))
    expected = sum(file.rows for file in files)
    if statistics.rows != expected:
        filesystem.delete_file(name)
        raise StoreError(f"history cannot be compacted: {statistics.rows} rows were read, expected {expected}")
    if not {file.path for file in files} <= {file.path for file in data_files(table)}:
        filesystem.delete_file(name)  # an erasure or retention has replaced them meanwhile
        return
    now_ms = int(time.time() * 1000)
    gain = Gain(len(files), sum(file.size for file in files), 1, size, now_ms)
    table.create_write_transaction(
        [
            AddAction(name, size, {}, now_ms, False, statistics.to_json()),
            *(RemoveAction(file.path, False, now_ms, file.size) for file in files),
        ],
        "append",
        table.schema(),
        commit_properties=CommitProperties(app_transactions=gain.transactions(), max_commit_retries=0),
    )
    table.update_incremental()
    yield gain


def blocks_of(filesystem: fs.FileSystem, names: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of these files in their order, so many at a time."""
    waiting: list[pa.Table] = []
    rows = size = 0
    for name in names:
        with pq.ParquetFile(name, filesystem=filesystem) as file:
            width = max(1, sum(file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups)))
            at_once = max(64, min(BLOCK_ROWS, BATCH_BYTES * file.metadata.num_rows // width))
            for batch in file.iter_batches(at_once):
                part = pa.Table.from_batches([batch]).select(arrow_schema().names).cast(arrow_schema())
                waiting.append(part)
                rows, size = rows + part.num_rows, size + part.nbytes
                if rows >= BLOCK_ROWS or size >= BLOCK_BYTES:
                    yield pa.concat_tables(waiting)
                    waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.concat_tables(waiting)


class Statistics:
    """What readers leave files out by: bounds of every column that can have some, gathered block by block. To leave
    one out because it is long would hide the file: Arrow takes a bound that is not there for one that nothing meets.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.low: dict[str, Any] = {}
        self.high: dict[str, Any] = {}
        kinds = {field.name: field.type for field in arrow_schema()}
        self.nulls = {
            name: 0 for name, kind in kinds.items() if not (pa.types.is_binary(kind) or pa.types.is_nested(kind))
        }

    def add(self, rows: pa.Table) -> None:
        self.rows += rows.num_rows
        for name in self.nulls:
            bounds = pc.min_max(rows[name])
            low, high = bounds["min"].as_py(), bounds["max"].as_py()
            self.nulls[name] += rows[name].null_count
            if low is not None:
                self.low[name] = low if name not in self.low else min(self.low[name], low)
                self.high[name] = high if name not in self.high else max(self.high[name], high)

    def to_json(self) -> str:
        return json.dumps(
            {
                "numRecords": self.rows,
                "minValues": {name: log_bound(self.low[name], up=False) for name in self.low},
                "maxValues": {name: log_bound(self.high[name], up=True) for name in self.low},
                "nullCount": self.nulls,
            }
        )
