"""A history table of any size for measuring, written by the broker's own writer: same schema, same files, same log.

Rows are what a plant would publish: topics of about 30 bytes, JSON of about 65, some live messages, some clears, some
with an expiry. All of it follows from the row's number, so that a table can be made longer later.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.history.schema import arrow_schema
from holdfast.history.writer import HistoryWriter

# As large as the files that compaction leaves behind.
COMMIT_ROWS = 1_000_000
FIRST_US = 1_767_225_600_000_000  # 2026-01-01
STEP_US = 500
CLIENTS = 2000


def topics_for(rows: int) -> int:
    """A million topics, fewer where there are few rows."""
    return min(1_000_000, max(1000, rows // 5))


def grow(folder: Path, rows: int, topics: int) -> None:
    """Append rows until the table has this many. Does nothing to one that is long enough."""
    writer = HistoryWriter(folder, folder.parent / "quarantine")
    try:
        names = topic_names(topics)
        while writer.last < rows:
            first = writer.last + 1
            count = min(COMMIT_ROWS, rows - writer.last)
            writer.commit(batch(first, count, names), first + count - 1)
    finally:
        writer.close()


def topic_names(count: int) -> pa.Array:
    """Five values of each device."""
    numbers = np.arange(count)
    device = numbers // 5
    return join("site/", device % 40, "/line/", device // 40 % 50, "/dev", device, "/value", numbers % 5)


def join(*parts: "str | np.ndarray[tuple[int], np.dtype[np.int64]]") -> pa.Array:
    """Text made of constants and numbers, row by row."""
    columns = [part if isinstance(part, str) else pa.array(part).cast(pa.string()) for part in parts]
    return pc.binary_join_element_wise(*columns, "")


def batch(first: int, count: int, names: pa.Array) -> pa.RecordBatch:
    rng = np.random.default_rng(first)
    offsets = np.arange(first, first + count)
    topics = rng.integers(0, len(names), count)
    draw = rng.random(count)
    live, cleared = draw < 0.1, (draw >= 0.1) & (draw < 0.12)
    values, levels = rng.integers(0, 100_000, count), rng.integers(0, 1000, count)
    payloads = join('{"value":', values, ',"unit":"kPa","seq":', offsets, ',"quality":"good","level":', levels, "}")
    payloads = pc.if_else(pa.array(cleared), pa.scalar(""), payloads).cast(pa.binary())
    moments = FIRST_US + offsets * STEP_US
    expiring = pa.array(rng.random(count) >= 0.05)
    clients = rng.integers(0, CLIENTS, count)
    kinds = np.where(live, 0, np.where(cleared, 2, 1)).astype(np.int8)
    found = {
        "offset": pa.array(offsets),
        "timestamp": pa.array(moments),
        "topic": names.take(pa.array(topics)),
        "payload": payloads,
        "qos": pa.array(np.full(count, 1, np.int8)),
        "retain": pa.array(~live),
        "client_id": join("client-", clients),
        "protocol": pa.array(["3.1.1", "5.0"]).take(pa.array(clients % 2)),
        "expires_at": pa.array(moments + 3_600_000_000 * (1 + clients), mask=expiring.to_numpy(zero_copy_only=False)),
        "outcome": pa.array(["live", "set", "cleared"]).take(pa.array(kinds)),
    }
    schema = arrow_schema()
    columns = [found[f.name].cast(f.type) if f.name in found else pa.nulls(count, f.type) for f in schema]
    return pa.record_batch(columns, schema=schema)
