"""The data files of the pipeline's tables: how executors write them, how rows lie in them, and what is said of them."""

import json
import time
import uuid
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.transaction import AddAction
from pyspark.sql import Row

from holdfast.history.schema import log_bound
from holdfast.spark.delta import CLOSED, OPEN
from holdfast.spark.derived import DerivedTable
from holdfast.spark.store import filesystem_of

REPORT_SCHEMA = "path string, size long, rows long, stats string"
# Where a reader asks for one moment, a row group is what it reads or leaves.
GROUP_ROWS = 20_000
# Columns whose values come again and again. A dictionary of the others only costs: twice the time to read them.
REPEATED = ("client_id", "username", "protocol", "content_type", "response_topic", "qos", "payload_format", "outcome")


def add_action(report: Row) -> AddAction:
    """What an executor reported of a file that it wrote, as the log will say it."""
    return AddAction(report.path, report.size, {}, int(time.time() * 1000), True, report.stats)


def write_leaves(
    rows: pa.Table, root: str, value: DerivedTable, file_rows: int, cuts: Sequence[Any] = (), prefix: str = ""
) -> Iterator[pa.RecordBatch]:
    """Write rows, sorted by key, as files of at most so many that never reach across a value in `cuts`."""
    keys = rows[value.sorted_by]
    places = {bisect_left(range(len(keys)), cut, key=lambda row: keys[row].as_py()) for cut in cuts}
    start = 0
    for stop in sorted(places | {rows.num_rows}):
        while start < stop:
            end = min(stop, start + file_rows)
            yield write_file(rows.slice(start, end - start), root, value, prefix)
            start = end


def write_file(table: pa.Table, root: str, value: DerivedTable, prefix: str = "") -> pa.RecordBatch:
    """Write one file of a table, under a name that nobody else uses, and report it.

    Rows that end lie by time in their files, others by key.
    """
    if prefix == CLOSED and value.ended:
        table = by_life(table, value.ended)
    elif prefix == OPEN:
        table = table.take(np.argsort(table["offset"].to_numpy()))
    name = f"{prefix}{uuid.uuid4().hex}.parquet"
    path, filesystem = f"{root}/{name}", filesystem_of(root)
    pq.write_table(
        table,
        path,
        filesystem=filesystem,
        compression="zstd",
        row_group_size=GROUP_ROWS if prefix else None,
        use_dictionary=[column for column in table.column_names if column in REPEATED],
    )
    report = {
        "path": [name],
        "size": [filesystem.get_file_info(path).size],
        "rows": [table.num_rows],
        "stats": [statistics(table, value.sorted_by)],
    }
    return pa.RecordBatch.from_pydict(report)


def read_file(root: str, name: str, value: DerivedTable) -> pa.Table:
    """The rows of one file, in the columns and types of its table."""
    table = pq.read_table(f"{root}/{name}", filesystem=filesystem_of(root), use_threads=False)
    return table.select(value.schema.names).cast(value.schema)


def by_life(table: pa.Table, ended: str) -> pa.Table:
    """Rows that ended, those of like duration together and by their beginning among them.

    Whoever asks for one moment then finds the few row groups that reach across it. Sorted by beginning alone, one row
    that lasted long would make its whole group reach across everything.
    """
    begin, end = table["offset"].to_numpy(), table[ended].to_numpy()
    duration = np.log2(np.maximum(end - begin, 1)).astype(np.int8)
    return table.take(pa.array(np.lexsort((begin, duration))))


def statistics(table: pa.Table, key: str) -> str:
    """What Delta readers skip files by: exact bounds for the key, for numbers and for times."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for field in table.schema:
        if not (field.name == key or pa.types.is_integer(field.type) or pa.types.is_timestamp(field.type)):
            continue
        bounds = pc.min_max(table[field.name])
        nulls[field.name] = table[field.name].null_count
        if bounds["min"].as_py() is not None:
            low[field.name] = log_bound(bounds["min"].as_py(), up=False)
            high[field.name] = log_bound(bounds["max"].as_py(), up=True)
    return json.dumps({"numRecords": table.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls})
