"""A history table seen as one long range of offsets: what it holds, and how to cut it into pieces of work.

The table only grows at the end and loses rows only at the start, so a range of offsets names the same rows for ever, in
whatever files they lie today. Plans therefore name files as a hint: a reader that finds one gone (compacted and
vacuumed in the meantime) asks the table again. Files need not be sorted or disjoint; the range decides.
"""

import base64
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyarrow.fs import FileSystem, LocalFileSystem

from holdfast.errors import StoreError, UsageError
from holdfast.history.erased import Erasure, erasure_of
from holdfast.history.schema import (
    ERASED_APP_ID,
    ERASED_PROTOCOL,
    FORMAT_APP_ID,
    FORMAT_VERSION,
    LIVE_APP_ID,
    RETENTION_APP_ID,
    WRITER_APP_ID,
    arrow_schema,
)
from holdfast.spark.options import micros
from holdfast.spark.topics import TopicFilter

BATCH_BYTES = 16 << 20
# Small, so that Spark works on one batch while Python reads the next.
BATCH_ROWS = 32_768


class HistoryFile(NamedTuple):
    path: str
    rows: int
    first: int
    last: int
    first_us: int
    last_us: int
    size: int


class Piece(NamedTuple):
    """Rows with `start <= offset < end`, and the files that held them when the plan was made."""

    start: int
    end: int
    files: tuple[str, ...]


class Dropped(NamedTuple):
    """Offsets that were asked for and that retention has removed."""

    start: int
    end: int

    def explain(self, location: str) -> str:
        return (
            f"history at {location} no longer has offsets {self.start} to {self.end - 1}: retention has passed them; "
            "start from `earliest`, or set failOnDataLoss=false to go on without them"
        )


def locate(address: str) -> str:
    """The table's own address. A broker's HTTP address is asked where its history is."""
    if not address.startswith(("http://", "https://")):
        # executors may run in another folder than the driver that resolves this
        return address if "://" in address else str(Path(address).absolute())
    parts = urlsplit(address)
    place = parts._replace(netloc=parts.netloc.rpartition("@")[2], path=parts.path.rstrip("/") + "/api/v1/history/span")
    url = place.geturl()
    asked = urllib.request.Request(url)
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        asked.add_header("Authorization", "Basic " + base64.b64encode(pair.encode()).decode())
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:
            found = json.load(answer)
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise UsageError(f"could not ask {url} where the history table is: {error}; is the broker running?") from None
    if not isinstance(found, dict) or not isinstance(found.get("uri"), str):
        raise UsageError(f"expected {url} to answer with the table's `uri`, got {found!r}")
    if not found["uri"]:
        raise UsageError(
            f"{url} does not say where the history table is: the broker keeps none, or tells administrators only; "
            "name one in the address (http://user:password@host:port), or give the table's folder"
        )
    return str(found["uri"])


class History:
    """One version of a history table."""

    def __init__(self, address: str) -> None:
        self.location = locate(address)
        try:
            self._table = DeltaTable(self.location)
        except TableNotFoundError:
            raise UsageError(
                f"there is no history table at {self.location}: expected the folder of Delta files that "
                "`holdfast serve` writes under data/history while history.enable is true"
            ) from None
        except (DeltaError, OSError, ValueError) as error:
            raise StoreError(f"the history table at {self.location} cannot be opened: {error}") from None
        self.filesystem = filesystem_of(self.location)
        self._looking = threading.Lock()
        self._read_log()

    def refresh(self) -> None:
        """Look at the table again. Other threads may go on asking meanwhile."""
        with self._looking:
            self._refresh()

    def _refresh(self) -> None:
        before = self._table.version()
        try:
            try:
                self._table.update_incremental()
            except DeltaError:  # an erasure takes away the log that was read
                self._table = DeltaTable(self.location)
        except (DeltaError, OSError) as error:
            raise StoreError(f"the history table at {self.location} cannot be read again: {error}") from None
        if self._table.version() != before:
            self._read_log()

    def _read_log(self) -> None:
        self._check_format()
        actions = pa.table(self._table.get_add_actions(flatten=True))
        columns = {name: actions.column(name).to_pylist() for name in actions.column_names}
        paths = self._table.file_uris()
        names = columns.get("path", [])
        # file_uris and the log list files in the same order; the names prove it rather than trusting it
        by_name = {path.replace("\\", "/").rsplit("/", 1)[-1]: path for path in paths}
        files: list[HistoryFile] = []
        for index, name in enumerate(names):
            path = by_name[name.rsplit("/", 1)[-1]]
            rows, size = columns["num_records"][index], columns["size_bytes"][index]
            if rows == 0:
                continue
            bounds = [columns.get(key, [None] * len(names))[index] for key in _BOUNDS]
            if rows is None or None in bounds:
                files.append(self._from_footer(path, size))
            else:
                first, last, first_at, last_at = bounds
                # Delta rounds timestamps in statistics down to whole milliseconds
                files.append(HistoryFile(path, rows, first, last, micros(first_at), micros(last_at) + 999, size))
        # whole and in one step: who plans at this moment has the old list or the new one
        self.files = sorted(files, key=lambda file: (file.first, file.last))
        self.end = max((file.last + 1 for file in self.files), default=0)
        self.rows = sum(file.rows for file in self.files)
        # below this offset only those rows are left that were in force when retention passed; 0 when it never did
        self.mark = self._table.transaction_version(RETENTION_APP_ID) or 0
        # the number of the last erasure that is finished
        self.erased = self._table.transaction_version(ERASED_APP_ID) or 0
        # from this offset on publishes without RETAIN are rows too; 0 while they are not recorded
        live_from = self._table.transaction_version(LIVE_APP_ID)
        self.live_from = 1 if live_from is None else live_from
        self.start = self.files[0].first if self.files else self.end
        # through which offset the writer has brought the table, rows or not (`history.filter` leaves offsets out)
        self.covered = max(self.end - 1, self._table.transaction_version(WRITER_APP_ID) or -1)

    def _check_format(self) -> None:
        version = self._table.transaction_version(FORMAT_APP_ID) or 1
        if version > FORMAT_VERSION:
            raise UsageError(
                f"the history table at {self.location} has format {version}, expected at most {FORMAT_VERSION}: "
                "it was written by a newer Holdfast; update this one"
            )
        found = pa.schema(self._table.schema().to_arrow())
        for field in arrow_schema():
            index = found.get_field_index(field.name)
            if index < 0:
                raise UsageError(f"the history table at {self.location} has no column {field.name!r}")
            if not _same_type(found.field(index).type, field.type):
                raise UsageError(
                    f"the history table at {self.location}: expected column {field.name!r} to be {field.type}, "
                    f"got {found.field(index).type}"
                )

    def _from_footer(self, path: str, size: int) -> HistoryFile:
        with open_file(path, self.filesystem) as file:
            table = file.read(columns=["offset", "timestamp"])
        offsets, times = pc.min_max(table["offset"]), pc.min_max(table["timestamp"].cast(pa.int64()))
        return HistoryFile(
            path,
            table.num_rows,
            offsets["min"].as_py(),
            offsets["max"].as_py(),
            times["min"].as_py(),
            times["max"].as_py(),
            size,
        )

    def dropped(self, start: int, known: int = 0) -> Dropped | None:
        """What of `start` and later is gone. Without a mark from retention, the first row there is decides.

        Retention leaves the rows that are still in force, so a reader that started at `earliest` stands below the mark
        and has lost nothing: it passes the mark it `known` then, and only a later one is a loss.
        """
        if self.mark:
            return Dropped(start, self.mark) if start < self.mark > known else None
        if self.files and 1 < start < self.start and not known:
            return Dropped(start, self.start)
        return None

    def erasures(self, after: int) -> list[Erasure]:
        """What has been erased since the erasure of that number, in order."""
        if self.erased <= after:
            return []
        wanted = pc.field("protocol") == ERASED_PROTOCOL
        rows = self._table.to_pyarrow_dataset().to_table(columns=["user_properties"], filter=wanted)
        found = [erasure for row in rows.to_pylist() if (erasure := erasure_of(row)) is not None]
        return sorted((one for one in found if after < one.number <= self.erased), key=lambda one: one.number)

    def lacks_live(self, start: int) -> str:
        """Why publishes without RETAIN are missing from offset `start` on, in a sentence; empty when they are not."""
        if self.live_from == 0:
            return (
                f"history at {self.location} has no messages without RETAIN: its broker does not record them; set "
                'history.record = "all" there to have those that come from then on'
            )
        if max(start, 1) < self.live_from:
            return (
                f"history at {self.location} has messages without RETAIN only from offset {self.live_from} on: set "
                f"startingOffsets to {self.live_from}, or failOnDataLoss to false to go on without the earlier ones"
            )
        return ""

    def offset_at(self, moment: datetime) -> int:
        """Returns the first offset written at this moment or later; the end of the table when there is none."""
        wanted = micros(moment)
        found = self.end
        for file in self.files:
            if file.last_us < wanted or file.first >= found:
                continue
            if file.first_us >= wanted:
                found = file.first
                continue
            with open_file(file.path, self.filesystem) as opened:
                table = opened.read(columns=["offset", "timestamp"])
            later = table.filter(pc.greater_equal(table["timestamp"].cast(pa.int64()), wanted))
            if later.num_rows:
                found = min(found, pc.min(later["offset"]).as_py())
        return found

    def time_at(self, offset: int) -> int | None:
        """Returns the time of the last row at or before this offset, in microseconds; None when there is none."""
        best: int | None = None
        for file in reversed(self.files):  # the latest files first: they leave little to look for in the others
            if file.first > offset or (best is not None and file.last_us < best):
                continue
            with open_file(file.path, self.filesystem) as opened:
                table = opened.read(columns=["offset", "timestamp"])
            earlier = table.filter(pc.less_equal(table["offset"], offset))
            if earlier.num_rows:
                latest = pc.max(earlier["timestamp"].cast(pa.int64())).as_py()
                best = latest if best is None else max(best, latest)
        return best

    def sample(self, start: int, end: int, most: int, columns: Sequence[str] | None) -> pa.Table:
        """Some rows of a range from several places of it, or all of them when they are fewer than `most`.

        Rows of a large range are only near it: enough to see how its keys are spread.
        """
        wanted = arrow_schema() if columns is None else pa.schema([arrow_schema().field(name) for name in columns])
        files = self.holding(start, end)
        if self.count(start, end) <= most:
            piece = Piece(start, end, files)
            return pa.Table.from_batches(read_piece(piece, self.location, wanted, None, True), wanted)
        some = files[:: 1 + len(files) // 8]
        found = []
        for path in some:
            with open_file(path, self.filesystem) as opened:
                batches = opened.iter_batches(most // 8, row_groups=[0], columns=wanted.names, use_threads=False)
                found += [_shaped(batch, wanted) for batch in islice(batches, 1)]
        return pa.Table.from_batches(found, wanted)

    def width(self, start: int, end: int) -> int:
        """About how many bytes a row of this range has in memory; files are compressed."""
        files = self.between(start, end)
        return max(1, 4 * sum(file.size for file in files) // max(1, sum(file.rows for file in files)))

    def next_row(self, offset: int) -> int:
        """The first offset from here on that may have a row: a broker that was killed goes on millions later."""
        return min((max(offset, file.first) for file in self.files if file.last >= offset), default=offset)

    def after(self, start: int, rows: int) -> int:
        """Returns the offset after about this many rows from `start` on, or the end of the table."""
        for file in self.files:
            begin, whole = max(start, file.first), file.last + 1 - file.first
            if begin + rows * whole // file.rows <= file.last:
                return max(start + 1, begin + rows * whole // file.rows)
            rows -= file.rows * max(0, file.last + 1 - begin) // whole
        return self.end

    def count(self, start: int, end: int) -> int:
        """About how many rows a range has; exact where it cuts no file."""
        found = 0
        for file in self.files:
            inside = min(end, file.last + 1) - max(start, file.first)
            if inside > 0:
                found += file.rows * inside // (file.last + 1 - file.first)
        return found

    def between(self, start: int, end: int) -> list[HistoryFile]:
        """The files that may have a row of a range."""
        return [file for file in self.files if file.first < end and file.last >= start]

    def holding(self, start: int, end: int) -> tuple[str, ...]:
        return tuple(file.path for file in self.between(start, end))

    def plan(self, start: int, end: int, rows_per_piece: int) -> list[Piece]:
        """Cut `[start, end)` so that each piece has about this many rows and no row is in two pieces."""
        cuts = []
        gathered = 0
        for file in self.files:
            if file.first >= end or file.last < start:
                continue
            if gathered and gathered + file.rows > rows_per_piece:
                cuts.append(file.first)
                gathered = 0
            gathered += file.rows
            if file.rows > rows_per_piece * 3 // 2:
                inner, gathered = self._cuts_within(file, rows_per_piece)
                cuts += inner
        inside = sorted({cut for cut in cuts if start < cut < end})
        pieces = []
        for low, high in zip([start, *inside], [*inside, end], strict=True):
            files = self.holding(low, high)
            if files:
                pieces.append(Piece(low, high, files))
        return pieces

    def _cuts_within(self, file: HistoryFile, rows_per_piece: int) -> tuple[list[int], int]:
        """Cuts at row groups: a cut inside one would have it decoded twice."""
        cuts, gathered = [], 0
        try:
            with open_file(file.path, self.filesystem) as opened:
                for rows, low, _high, _size in _row_groups(opened):
                    if gathered >= rows_per_piece and low is not None:
                        cuts.append(low)
                        gathered = 0
                    gathered += rows
        except FileNotFoundError:  # its rows have moved since: whoever reads them finds them, in one piece
            return [], file.rows
        return cuts, gathered


_BOUNDS = ("min.offset", "max.offset", "min.timestamp", "max.timestamp")


def _same_type(found: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_list(wanted):
        return bool(pa.types.is_list(found) or pa.types.is_large_list(found))
    plain = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary(), pa.string_view(): pa.string()}
    plain[pa.binary_view()] = pa.binary()
    return bool(plain.get(found, found) == wanted)


def filesystem_of(location: str) -> FileSystem:
    remote = "://" in location and not location.startswith("file:")
    return FileSystem.from_uri(location)[0] if remote else LocalFileSystem()


def open_file(path: str, filesystem: FileSystem) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path, filesystem=filesystem, pre_buffer=False)
    except FileNotFoundError:
        raise
    except (pa.ArrowInvalid, OSError) as error:
        raise StoreError(f"history file {path} is damaged: expected a whole Parquet file, got: {error}") from None


def _row_groups(file: pq.ParquetFile) -> Iterator[tuple[int, int | None, int | None, int]]:
    """Rows, lowest and highest offset, and bytes of each row group."""
    column = file.schema_arrow.get_field_index("offset")
    for index in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(index)
        bounds = group.column(column).statistics if column == 0 else None
        low, high = (bounds.min, bounds.max) if bounds is not None and bounds.has_min_max else (None, None)
        yield group.num_rows, low, high, group.total_byte_size


def read_piece(
    piece: Piece, location: str, schema: pa.Schema, topic_filter: TopicFilter | None, fail_on_loss: bool
) -> Iterator[pa.RecordBatch]:
    """The rows of a piece, in the given columns. Runs in an executor; everything it needs came in as plain values."""
    opened = _open_all(piece, location, fail_on_loss)
    wanted = schema.names
    columns = list(dict.fromkeys([*wanted, "offset", *(["topic"] if topic_filter else [])]))
    for file in opened:
        with file:
            yield from _read_file(file, piece, columns, schema, topic_filter)


def _open_all(piece: Piece, location: str, fail_on_loss: bool) -> list[pq.ParquetFile]:
    """Open every file before the first row leaves: an open file can still be read after a vacuum removed its name."""
    filesystem = filesystem_of(location)
    files: Sequence[str] = piece.files
    for _ in range(5):
        try:
            return [open_file(path, filesystem) for path in files]
        except FileNotFoundError:
            history = History(location)
            gone = history.dropped(piece.start)
            if gone is not None and fail_on_loss:
                raise StoreError(gone.explain(location)) from None
            files = history.holding(piece.start, piece.end)
    raise StoreError(f"the files of history at {location} change faster than they can be opened; try again")


def _read_file(
    file: pq.ParquetFile, piece: Piece, columns: list[str], schema: pa.Schema, topic_filter: TopicFilter | None
) -> Iterator[pa.RecordBatch]:
    groups, whole, size, rows = [], True, 0, 0
    for index, (count, low, high, width) in enumerate(_row_groups(file)):
        if low is None or high is None:
            whole = False
        elif low >= piece.end or high < piece.start:
            continue
        elif low < piece.start or high >= piece.end:
            whole = False
        groups.append(index)
        size, rows = size + width, rows + count
    if not groups:
        return
    present = [name for name in columns if name not in _without_values(file, groups)]
    batch_rows = max(64, min(BATCH_ROWS, BATCH_BYTES * rows // max(size, 1)))
    try:
        for batch in file.iter_batches(batch_rows, row_groups=groups, columns=present, use_threads=False):
            if not whole:
                offsets = batch.column("offset")
                batch = batch.filter(pc.and_(pc.greater_equal(offsets, piece.start), pc.less(offsets, piece.end)))
            if topic_filter is not None:
                batch = batch.filter(topic_filter.mask(batch.column("topic")))
            if batch.num_rows:
                yield _shaped(batch, schema)
    except (pa.ArrowInvalid, OSError) as error:
        raise StoreError(f"a history file of offsets {piece.start} to {piece.end - 1} is damaged: {error}") from None


def _without_values(file: pq.ParquetFile, groups: list[int]) -> set[str]:
    """Columns with nothing but nulls, which need not be decoded: most publishes have no properties.

    Lists are left out, because an empty list is counted as if it were a null.
    """
    found: set[str] | None = None
    for index in groups:
        group = file.metadata.row_group(index)
        empty = set()
        for number in range(group.num_columns):
            column = group.column(number)
            bounds = column.statistics
            if bounds is not None and bounds.has_null_count and bounds.null_count == group.num_rows:
                empty.add(column.path_in_schema)
        found = empty if found is None else found & empty
    return {name for name in found or () if "." not in name}


def _shaped(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Spark checks the Arrow schema to the letter, and compaction or another writer may spell a type differently."""
    have = set(batch.schema.names)
    columns = [
        batch.column(field.name).cast(field.type) if field.name in have else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
