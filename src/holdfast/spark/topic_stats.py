"""One row a topic: how much, how big, by how many, how regularly, and when last. Kept exactly, batch after batch.

Everything here can be merged: sums, extremes, a small set of publishers as bits, and for each of minute, hour and day
the latest period's count and the busiest period's. A period that a batch boundary cuts in two is counted whole, because
a batch says what its first and its last period held.

The statistics of a batch are computed in Arrow and numpy over whole partitions, sorted by topic: gaps need the order,
and four levels of SQL aggregates over as many groups as rows cost ten times as much.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from holdfast.history.schema import OUTCOME_CLEARED, OUTCOME_SET
from holdfast.spark.delta import Shape

PERIODS = {"minute": 60_000_000, "hour": 3_600_000_000, "day": 86_400_000_000}
SUMS = ("messages", "bytes", "sets", "clears", "refused")
TOPIC_STATS_SHAPE = Shape(
    (
        ("topic", "string"),
        *((name, "long") for name in SUMS),
        ("smallest", "int"),
        ("largest", "int"),
        ("publishers", "long"),
        ("publisher_bits", "long"),
        ("first_seen", "timestamp"),
        ("last_seen", "timestamp"),
        ("mean_gap_us", "long"),
        ("longest_gap_us", "long"),
        *((period, "timestamp") for period in PERIODS),
        *((f"per_{period}", "long") for period in PERIODS),
        *((f"peak_per_{period}", "long") for period in PERIODS),
    ),
    key="topic",
)
_BATCH_COLUMNS = (
    ("topic", "string"),
    *((name, "long") for name in SUMS),
    ("smallest", "int"),
    ("largest", "int"),
    ("publisher_bits", "long"),
    ("first_seen", "long"),
    ("last_seen", "long"),
    ("longest_gap_us", "long"),
    *((f"{which}_{period}", "long") for period in PERIODS for which in ("first", "last")),
    *((f"{which}_{period}", "long") for period in PERIODS for which in ("first_per", "per", "peak_per")),
)
_TIMES = ("first_seen", "last_seen", *(f"{which}_{period}" for period in PERIODS for which in ("first", "last")))
_KINDS = {OUTCOME_SET: 1, OUTCOME_CLEARED: 2}


def topic_stats(batch: DataFrame) -> DataFrame:
    """The statistics of a batch alone, with its first period of each kind beside its last one."""
    kind = F.when(F.col("outcome").startswith("refused"), F.lit(3))
    for outcome, number in _KINDS.items():
        kind = kind.when(F.col("outcome") == outcome, F.lit(number))
    narrow = batch.select(
        "topic",
        "offset",
        F.unix_micros("timestamp").alias("at"),
        F.length("payload").alias("size"),
        kind.otherwise(F.lit(0)).cast("byte").alias("kind"),
        F.expr("shiftleft(1L, cast(pmod(xxhash64(client_id), 64) AS INT))").alias("bit"),
    ).repartition("topic")
    found = narrow.mapInArrow(_summarise, ", ".join(f"{name} {kind}" for name, kind in _BATCH_COLUMNS))
    return found.withColumns({name: F.timestamp_micros(name) for name in _TIMES})


def _summarise(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All rows of a topic are in this partition: sort by topic and offset, and reduce each run."""
    received = list(batches)
    table = pa.Table.from_batches(received) if received else None
    if table is None or not table.num_rows:
        return
    topics = table["topic"].combine_chunks().dictionary_encode()
    codes = topics.indices.to_numpy()
    order = np.lexsort((table["offset"].to_numpy(), codes))
    codes = codes[order]
    at, size, kind, bit = (table[name].to_numpy()[order] for name in ("at", "size", "kind", "bit"))
    starts = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]])
    ends = np.r_[starts[1:], len(codes)]
    gaps = np.r_[np.int64(0), np.diff(at)]
    gaps[starts] = -1
    columns = {
        "topic": topics.dictionary.take(pa.array(codes[starts])),
        "messages": ends - starts,
        "bytes": np.add.reduceat(size.astype(np.int64), starts),
        "sets": np.add.reduceat((kind == 1).astype(np.int64), starts),
        "clears": np.add.reduceat((kind == 2).astype(np.int64), starts),
        "refused": np.add.reduceat((kind == 3).astype(np.int64), starts),
        "smallest": np.minimum.reduceat(size, starts),
        "largest": np.maximum.reduceat(size, starts),
        "publisher_bits": np.bitwise_or.reduceat(bit, starts),
        "first_seen": at[starts],
        "last_seen": at[ends - 1],
        "longest_gap_us": _or_null(np.maximum.reduceat(gaps, starts)),
    }
    for period, width in PERIODS.items():
        columns |= _periods(period, width, codes, at)
    types = {"long": pa.int64(), "int": pa.int32(), "string": pa.string()}
    arrays = [pa.array(columns[name]).cast(types[kind]) for name, kind in _BATCH_COLUMNS]
    yield pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in _BATCH_COLUMNS])


def _or_null(gaps: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> pa.Array:
    """A topic with one message has no gap."""
    return pa.array(gaps, mask=gaps < 0)


def _periods(
    period: str,
    width: int,
    codes: "np.ndarray[tuple[int], np.dtype[np.int32]]",
    at: "np.ndarray[tuple[int], np.dtype[np.int64]]",
) -> dict[str, "np.ndarray[tuple[int], np.dtype[np.int64]]"]:
    """Messages of each topic's first, last and busiest minute, hour or day. The clock never goes back: runs do it."""
    slot = at // width
    starts = np.flatnonzero(np.r_[True, (codes[1:] != codes[:-1]) | (slot[1:] != slot[:-1])])
    counts = np.diff(np.r_[starts, len(codes)])
    run_codes = codes[starts]
    firsts = np.flatnonzero(np.r_[True, run_codes[1:] != run_codes[:-1]])
    lasts = np.r_[firsts[1:], len(run_codes)] - 1
    return {
        f"first_{period}": slot[starts[firsts]] * width,
        f"last_{period}": slot[starts[lasts]] * width,
        f"first_per_{period}": counts[firsts],
        f"per_{period}": counts[lasts],
        f"peak_per_{period}": np.maximum.reduceat(counts, firsts),
    }


def topic_stats_after(old: DataFrame, new: DataFrame) -> DataFrame:
    """Statistics kept so far, with those of the next batch added."""
    was, now = old.alias("was"), new.alias("now")
    both = was.join(now, F.col("was.topic") == F.col("now.topic"), "full_outer")
    between = F.unix_micros("now.first_seen") - F.unix_micros("was.last_seen")
    bits = F.coalesce("was.publisher_bits", F.lit(0)).bitwiseOR(F.coalesce("now.publisher_bits", F.lit(0)))
    columns = {
        "topic": F.coalesce("now.topic", "was.topic"),
        **{name: F.coalesce(f"was.{name}", F.lit(0)) + F.coalesce(f"now.{name}", F.lit(0)) for name in SUMS},
        "smallest": F.least("was.smallest", "now.smallest"),
        "largest": F.greatest("was.largest", "now.largest"),
        "publisher_bits": bits,
        "publishers": _estimate(bits),
        "first_seen": F.coalesce("was.first_seen", "now.first_seen"),
        "last_seen": F.coalesce("now.last_seen", "was.last_seen"),
        "longest_gap_us": F.greatest("was.longest_gap_us", "now.longest_gap_us", between),
    }
    # the gaps of a topic add up to the time from its first message to its last
    columns["mean_gap_us"] = F.when(
        columns["messages"] > 1,
        (F.unix_micros(columns["last_seen"]) - F.unix_micros(columns["first_seen"])) / (columns["messages"] - 1),
    ).cast("long")
    for period in PERIODS:
        columns[period] = F.coalesce(f"now.last_{period}", f"was.{period}")
        columns[f"per_{period}"] = _latest(period)
        columns[f"peak_per_{period}"] = F.greatest(f"was.peak_per_{period}", f"now.peak_per_{period}", _seam(period))
    return both.select(*(columns[name].alias(name) for name, _ in TOPIC_STATS_SHAPE.columns))


def _estimate(bits: Column) -> Column:
    """Linear counting: how many publishers most likely left these bits. Exact for one; 64 set bits mean many."""
    free = F.greatest(F.lit(64) - F.bit_count(bits), F.lit(1))
    return F.round(F.log(F.lit(64) / free) * 64).cast("long")


def _seam(period: str) -> Column:
    """The count of the period that the batch boundary cut in two; null when it cut none."""
    same = F.col(f"was.{period}") == F.col(f"now.first_{period}")
    return F.when(same, F.col(f"was.per_{period}") + F.col(f"now.first_per_{period}"))


def _latest(period: str) -> Column:
    one = F.col(f"now.first_{period}") == F.col(f"now.last_{period}")
    return F.coalesce(F.when(one, _seam(period)), f"now.per_{period}", f"was.per_{period}")
