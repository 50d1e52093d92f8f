"""One row a topic: how much, how big, by how many, how regularly, and when last. Kept exactly, batch after batch.

Everything here can be merged: sums, extremes, a small set of publishers as bits, and for each of minute, hour and day
the latest period's count and the busiest period's. A period that a batch boundary cuts in two is counted whole, because
a batch says what its first and its last period held.

Functions of Arrow tables over whole runs of topics: gaps need the order, and four levels of SQL aggregates over as many
groups as rows cost ten times as much.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.spark.derived import Batch
from holdfast.spark.succession import CLEARED, REFUSED, SET, Numbers, firsts, lasts, rank

PERIODS = {"minute": 60_000_000, "hour": 3_600_000_000, "day": 86_400_000_000}
SUMS = ("messages", "bytes", "sets", "clears", "refused")
_TIME = pa.timestamp("us", tz="UTC")
TOPIC_STATS_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        *((name, pa.int64()) for name in SUMS),
        ("smallest", pa.int32()),
        ("largest", pa.int32()),
        ("publishers", pa.int64()),
        ("publisher_bits", pa.int64()),
        ("first_seen", _TIME),
        ("last_seen", _TIME),
        ("mean_gap_us", pa.int64()),
        ("longest_gap_us", pa.int64()),
        *((period, _TIME) for period in PERIODS),
        *((f"per_{period}", pa.int64()) for period in PERIODS),
        *((f"peak_per_{period}", pa.int64()) for period in PERIODS),
    ]
)
# One bit of 64, by who published. Spark adds it to a batch, because its hash made the bits of earlier tables.
PUBLISHER_BIT = "shiftleft(1L, cast(pmod(xxhash64(client_id), 64) AS INT))"


def topic_stats_after(held: pa.Table, rows: pa.Table, _batch: Batch) -> pa.Table:
    """Statistics kept so far, with those of a batch added; by topic."""
    ranks = rank(held, rows)
    order = np.lexsort((rows["offset"].to_numpy(), ranks.batch))
    codes = ranks.batch[order]
    starts = np.flatnonzero(firsts(codes))
    now = _of_batch(rows, order, codes, starts)
    named = codes[starts]
    # where each topic of the batch stands among the held rows; null when it is new
    place = np.full(ranks.topics, -1)
    place[ranks.held] = np.arange(held.num_rows)
    place = place[named]
    was = held.take(pa.array(place, mask=place < 0))
    merged = _merged(was, now, rows["topic"].take(order[starts]))
    stays = np.flatnonzero(~ranks.changed())
    found = pa.concat_tables([held.take(stays), merged])
    return found.take(np.argsort(np.r_[ranks.held[stays], named], kind="stable"))


def _of_batch(rows: pa.Table, order: Numbers, codes: Numbers, starts: Numbers) -> dict[str, pa.Array]:
    """The statistics of a batch alone, with its first period of each kind beside its last one. Times are numbers."""
    at = rows["timestamp"].cast(pa.int64()).to_numpy()[order]
    size, kind, bit = (rows[name].to_numpy()[order] for name in ("size", "kind", "bit"))
    ends = np.r_[starts[1:], len(codes)]
    gaps = np.r_[np.int64(0), np.diff(at)]
    gaps[starts] = -1
    longest = np.maximum.reduceat(gaps, starts)
    found: dict[str, Numbers] = {
        "messages": ends - starts,
        "bytes": np.add.reduceat(size.astype(np.int64), starts),
        "sets": np.add.reduceat((kind == SET).astype(np.int64), starts),
        "clears": np.add.reduceat((kind == CLEARED).astype(np.int64), starts),
        "refused": np.add.reduceat((kind == REFUSED).astype(np.int64), starts),
        "smallest": np.minimum.reduceat(size, starts),
        "largest": np.maximum.reduceat(size, starts),
        "publisher_bits": np.bitwise_or.reduceat(bit, starts),
        "first_seen": at[starts],
        "last_seen": at[ends - 1],
    }
    for period, width in PERIODS.items():
        found |= _periods(period, width, codes, at)
    # a topic with one message has no gap
    return {name: pa.array(values) for name, values in found.items()} | {
        "longest_gap_us": pa.array(longest, mask=longest < 0)
    }


def _periods(period: str, width: int, codes: Numbers, at: Numbers) -> dict[str, Numbers]:
    """Messages of each topic's first, last and busiest minute, hour or day. The clock never goes back: runs do it."""
    slot = at // width
    starts = np.flatnonzero(firsts(codes) | firsts(slot))
    counts = np.diff(np.r_[starts, len(codes)])
    first, last = (np.flatnonzero(ends(codes[starts])) for ends in (firsts, lasts))
    return {
        f"first_{period}": slot[starts[first]] * width,
        f"last_{period}": slot[starts[last]] * width,
        f"first_per_{period}": counts[first],
        f"per_{period}": counts[last],
        f"peak_per_{period}": np.maximum.reduceat(counts, first),
    }


def _merged(was: pa.Table, now: dict[str, pa.Array], topics: pa.ChunkedArray) -> pa.Table:
    """What was kept of the batch's topics, nulls for new ones, and what the batch says of them."""
    times = {name: was[name].cast(pa.int64()) for name in ("first_seen", "last_seen", *PERIODS)}
    columns = {name: pc.add(pc.coalesce(was[name], 0), now[name]) for name in SUMS}
    bits = pc.bit_wise_or(pc.coalesce(was["publisher_bits"], 0), now["publisher_bits"])
    first, last = pc.coalesce(times["first_seen"], now["first_seen"]), now["last_seen"]
    # the gaps of a topic add up to the time from its first message to its last
    gaps = pc.subtract(columns["messages"], 1).to_numpy()
    mean = (pc.subtract(last, first).to_numpy() / np.maximum(gaps, 1)).astype(np.int64)
    columns |= {
        "topic": topics,
        "smallest": pc.min_element_wise(was["smallest"], now["smallest"]),
        "largest": pc.max_element_wise(was["largest"], now["largest"]),
        "publisher_bits": bits,
        "publishers": _estimate(bits.to_numpy()),
        "first_seen": first,
        "last_seen": last,
        "mean_gap_us": pa.array(mean, mask=gaps < 1),
        "longest_gap_us": pc.max_element_wise(
            was["longest_gap_us"], now["longest_gap_us"], pc.subtract(now["first_seen"], times["last_seen"])
        ),
    }
    for period in PERIODS:
        # the period that the batch boundary cut in two
        cut = pc.equal(times[period], now[f"first_{period}"])
        seam = pc.if_else(cut, pc.add(was[f"per_{period}"], now[f"first_per_{period}"]), None)
        whole = pc.equal(now[f"first_{period}"], now[f"last_{period}"])
        columns[period] = now[f"last_{period}"]
        columns[f"per_{period}"] = pc.coalesce(pc.if_else(whole, seam, None), now[f"per_{period}"])
        columns[f"peak_per_{period}"] = pc.max_element_wise(was[f"peak_per_{period}"], now[f"peak_per_{period}"], seam)
    schema = TOPIC_STATS_SCHEMA
    return pa.table([columns[field.name].cast(field.type) for field in schema], schema=schema)


def _estimate(bits: Numbers) -> pa.Array:
    """Linear counting: how many publishers most likely left these bits. Exact for one; 64 set bits mean many."""
    free = np.maximum(64 - np.bitwise_count(bits.view(np.uint64)).astype(np.int64), 1)
    return pa.array(np.round(np.log(64 / free) * 64).astype(np.int64))
