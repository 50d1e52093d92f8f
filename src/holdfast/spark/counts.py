"""Counts by time: all traffic by the minute, each device by the hour. Spark adds up a batch, a step adds that up.

Functions of Arrow tables.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.spark.derived import Batch
from holdfast.spark.topics import TopicFilter, TopicTemplate

_TIME: Final = pa.timestamp("us", tz="UTC")
TRAFFIC_SCHEMA: Final = pa.schema(
    [
        ("minute", _TIME),
        ("outcome", pa.string()),
        ("protocol", pa.string()),
        ("messages", pa.int64()),
        ("bytes", pa.int64()),
    ]
)
DEVICES_SCHEMA: Final = pa.schema(
    [
        ("hour", _TIME),
        ("device", pa.string()),
        ("fields", pa.map_(pa.string(), pa.string())),
        ("messages", pa.int64()),
        ("bytes", pa.int64()),
        ("sets", pa.int64()),
        ("refused", pa.int64()),
        ("first_seen", _TIME),
        ("last_seen", _TIME),
    ]
)
SUMMED: Final = ("messages", "bytes", "sets", "refused")


def traffic_after(held: pa.Table, counts: pa.Table, _batch: Batch) -> pa.Table:
    return added(held, counts, ("minute", "outcome", "protocol")).select(TRAFFIC_SCHEMA.names)


def devices_after(held: pa.Table, counts: pa.Table, _batch: Batch, *, template: TopicTemplate) -> pa.Table:
    """`counts` are by `prefix`, the levels that decide: some are of topics that the template does not mean."""
    mine = counts.filter(TopicFilter(template.prefix).mask(counts["prefix"].combine_chunks()))
    levels = pc.split_pattern(mine["prefix"].combine_chunks(), "/")
    device = pc.binary_join_element_wise(*(pc.list_element(levels, at) for at in template.places.values()), "/")
    found = added(held, mine.append_column("device", device).drop_columns(["prefix"]), ("hour", "device"))
    return found.append_column("fields", _named(found["device"].combine_chunks(), template.names))


def _named(devices: pa.Array, names: Sequence[str]) -> pa.MapArray:
    """A level holds no slash: a device's own name gives its levels back."""
    places = pa.array(np.arange(len(devices) + 1) * len(names), pa.int32())
    keys = pa.array(names).take(pa.array(np.tile(np.arange(len(names)), len(devices))))
    return pa.MapArray.from_arrays(places, keys, pc.split_pattern(devices, "/").flatten())


def added(held: pa.Table, counts: pa.Table, key: Sequence[str]) -> pa.Table:
    """One row for each key, with sums, the first and the last time that it was seen."""
    names = [name for name in counts.column_names if name not in key]
    how = {name: "sum" if name in SUMMED else "min" if name == "first_seen" else "max" for name in names}
    both = pa.concat_tables([held.select([*key, *names]), counts.select([*key, *names])])
    # with threads the order of the rows is left to chance
    found = both.group_by(list(key), use_threads=False).aggregate(list(how.items()))
    return found.rename_columns([*key, *names])
