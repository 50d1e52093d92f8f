"""What a run of topics holds after a batch: held rows and the batch's rows in, the rows that take their place out.

Functions of Arrow tables, for executors: they keep the tables that are sorted by topic. A batch has at least one row.
Held rows of topics that it does not name stay as they are. Topics are ranked once, as numbers, because everything after
that (which topics changed, in which order, which row is a topic's last) is arithmetic on whole columns.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.history.schema import OUTCOME_CLEARED, OUTCOME_SET, arrow_schema
from holdfast.spark.derived import Batch
from holdfast.spark.fold import RETAINED_COLUMNS

Numbers = np.ndarray[tuple[int], np.dtype[Any]]

# The column `kind` of a batch: the outcome as a number.
LIVE, SET, CLEARED, REFUSED = range(4)
KIND: Final = (
    f"cast(CASE WHEN outcome = '{OUTCOME_SET}' THEN {SET} WHEN outcome = '{OUTCOME_CLEARED}' THEN {CLEARED} "
    f"WHEN startswith(outcome, 'refused') THEN {REFUSED} ELSE {LIVE} END AS byte)"
)
CHANGED: Final = f"outcome IN ('{OUTCOME_SET}', '{OUTCOME_CLEARED}')"
RETAINED: Final = list(RETAINED_COLUMNS)
RETAINED_SCHEMA: Final = pa.schema([arrow_schema().field(name) for name in RETAINED])
_TIME: Final = pa.timestamp("us", tz="UTC")
INTERVALS_SCHEMA: Final = pa.schema(
    [*RETAINED_SCHEMA, ("valid_from", _TIME), ("valid_to", _TIME), ("to_offset", pa.int64())]
)


class Ranks(NamedTuple):
    """The topics of held rows and of a batch, each by its place in the order of all of them."""

    held: Numbers
    batch: Numbers
    topics: int

    def changed(self) -> Numbers:
        """Of each held row: whether the batch names its topic."""
        named = np.zeros(self.topics, bool)
        named[self.batch] = True
        return named[self.held]


def rank(held: pa.Table, batch: pa.Table) -> Ranks:
    topics = pa.chunked_array([*held["topic"].chunks, *batch["topic"].chunks], pa.string())
    encoded = topics.combine_chunks().dictionary_encode()
    places = np.empty(len(encoded.dictionary), np.int64)
    places[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(encoded.dictionary))
    codes = places[encoded.indices.to_numpy()]
    return Ranks(codes[: held.num_rows], codes[held.num_rows :], len(places))


def retained_after(held: pa.Table, changes: pa.Table, batch: Batch) -> pa.Table:
    """The retained set: of each topic the last change decides, and what had expired by then is gone."""
    ranks = rank(held, changes)
    order = np.lexsort((changes["offset"].to_numpy(), ranks.batch))
    codes = ranks.batch[order]
    decisive = order[lasts(codes)]
    new = decisive[changes["kind"].to_numpy()[decisive] == SET]
    stays = np.flatnonzero(~ranks.changed())
    rows = pa.concat_tables([held.take(stays), changes.select(RETAINED).take(new)])
    expires = rows["expires_at"].cast(pa.int64())
    alive = pc.or_kleene(pc.is_null(expires), pc.greater(expires, batch.at_us)).to_numpy()
    places = np.r_[ranks.held[stays], ranks.batch[new]]
    order = np.argsort(places, kind="stable")
    return rows.take(order[alive[order]])


def intervals_after(held: pa.Table, changes: pa.Table, _batch: Batch) -> pa.Table:
    """The intervals that still hold, by topic, and after them those that the batch ended.

    An interval reaches from its row to the topic's next change or to its expiry; `to_offset` is the row that ended it.
    """
    ranks = rank(held, changes)
    ended = ranks.changed()
    over = np.flatnonzero(ended)
    as_set = held.take(over).select(RETAINED).append_column("kind", pa.array(np.full(len(over), SET, np.int8)))
    rows = pa.concat_tables([as_set, changes.select([*RETAINED, "kind"])]).combine_chunks()
    codes = np.r_[ranks.held[over], ranks.batch]
    order = np.lexsort((rows["offset"].to_numpy(), codes))
    codes = codes[order]
    last = lasts(codes)
    offset, at = (rows[name].cast(pa.int64()).to_numpy()[order] for name in ("offset", "timestamp"))
    sets = np.flatnonzero(rows["kind"].to_numpy()[order] == SET)
    following = np.minimum(sets + 1, len(order) - 1)
    spans = rows.take(order[sets])
    next_at, expires_at = pa.array(at[following], mask=last[sets]), spans["expires_at"].cast(pa.int64())
    spans = (
        spans.select(RETAINED)
        .append_column("valid_from", spans["timestamp"])
        .append_column("valid_to", pc.min_element_wise(next_at, expires_at))
        .append_column("to_offset", pa.array(offset[following], mask=last[sets]))
    ).cast(INTERVALS_SCHEMA)
    holds = last[sets]
    stays = np.flatnonzero(~ended)
    still = pa.concat_tables([held.take(stays), spans.filter(holds)])
    places = np.r_[ranks.held[stays], codes[sets[holds]]]
    return pa.concat_tables([still.take(np.argsort(places, kind="stable")), spans.filter(~holds)])


def lasts(codes: Numbers) -> Numbers:
    """Returns for each of the sorted numbers whether it is the last one of its value."""
    found: Numbers = np.r_[codes[1:] != codes[:-1], True]
    return found


def firsts(codes: Numbers) -> Numbers:
    """Returns for each of the sorted numbers whether it is the first one of its value."""
    found: Numbers = np.r_[True, codes[1:] != codes[:-1]]
    return found
