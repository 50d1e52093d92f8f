"""The fold: from publishes to the retained set, for now, for an offset, or for a moment. Functions of DataFrames only.

Per topic the last row whose outcome is `set` or `cleared` decides, and expiry is a condition at read time. The broker's
verdict on limits and policies is in the rows, so nothing is decided here a second time.
"""

from datetime import datetime

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from holdfast.history.schema import COLUMNS, OUTCOME_CLEARED, OUTCOME_SET
from holdfast.spark.options import micros
from holdfast.spark.topics import TopicFilter

CHANGES = (OUTCOME_SET, OUTCOME_CLEARED)
RETAINED_COLUMNS = tuple(name for name, _ in COLUMNS if name not in ("retain", "outcome"))


def matching(rows: DataFrame, topic_filter: str | None) -> DataFrame:
    """Rows whose topic an MQTT topic filter covers."""
    return rows if topic_filter is None else rows.where(TopicFilter(topic_filter).column(F.col("topic")))


def up_to(history: DataFrame, as_of: int | datetime | None) -> DataFrame:
    """Rows accepted by this offset or moment, both included."""
    if as_of is None:
        return history
    return history.where(
        F.col("offset") <= as_of if isinstance(as_of, int) else F.col("timestamp") <= moment_literal(as_of)
    )


def changes(history: DataFrame) -> DataFrame:
    """Rows that changed the retained set."""
    return history.where(is_change())


def is_change() -> Column:
    return F.col("outcome").isin(*CHANGES)


def last_changes(history: DataFrame, last: DataFrame | None = None) -> DataFrame:
    """For each topic that changed, the row that decides. `last` has their offsets, where these are known.

    Finding the offsets first moves eight bytes a topic through the shuffle instead of whole rows, and beat `max_by`
    and a window on every size that was measured.
    """
    rows = changes(history)
    if last is None:
        last = rows.groupBy("topic").agg(F.max("offset").alias("offset")).select("offset")
    return rows.join(last, "offset", "left_semi")


def fold(
    history: DataFrame,
    as_of: int | datetime | None = None,
    *,
    at: datetime | None = None,
    last: DataFrame | None = None,
) -> DataFrame:
    """The retained set after this offset, at this moment, or now.

    `at` is the moment at which expiry is judged, when that is not what `as_of` says: by default the moment itself, the
    time of the last row up to an offset, or now. `last`: see `last_changes`; of the rows up to `as_of`.
    """
    rows = up_to(history, as_of)
    held = last_changes(rows, last).where(F.col("outcome") == OUTCOME_SET).select(*RETAINED_COLUMNS)
    if at is None and isinstance(as_of, int):
        clock = rows.agg(F.max("timestamp").alias("at"))
        alive = F.col("expires_at").isNull() | (F.col("expires_at") > F.col("at"))
        return held.crossJoin(F.broadcast(clock)).where(alive).drop("at")
    return held.where(not_expired(at or (as_of if isinstance(as_of, datetime) else None)))


def not_expired(at: datetime | None = None) -> Column:
    """Whether a row's message is still to be sent at this moment, or now."""
    moment = F.current_timestamp() if at is None else moment_literal(at)
    return F.col("expires_at").isNull() | (F.col("expires_at") > moment)


def intervals(history: DataFrame) -> DataFrame:
    """Each retained value with the time it held: from its row to the topic's next change, or to its expiry.

    `to_offset` is the row that ended it, null while it holds; `valid_to` is null when nothing will end it.
    """
    by_topic = Window.partitionBy("topic").orderBy("offset")
    rows = changes(history).select(
        *RETAINED_COLUMNS,
        "outcome",
        F.lead("offset").over(by_topic).alias("to_offset"),
        F.lead("timestamp").over(by_topic).alias("next_at"),
    )
    return rows.where(F.col("outcome") == OUTCOME_SET).select(
        *RETAINED_COLUMNS,
        F.col("timestamp").alias("valid_from"),
        F.least("next_at", "expires_at").alias("valid_to"),
        "to_offset",
    )


def holding(spans: DataFrame, as_of: int | datetime | None = None, *, at: datetime | None = None) -> DataFrame:
    """The retained set from intervals: the same answer as `fold` gives from the rows they were made of.

    For an offset, `at` must say the time of the last row up to it: intervals alone do not know the rows in between.
    """
    if isinstance(as_of, int):
        if at is None:
            raise ValueError("expected `at`, the time of the last row up to the offset, got none")
        found = (F.col("offset") <= as_of) & (F.col("to_offset").isNull() | (F.col("to_offset") > as_of))
        return spans.where(found & not_expired(at)).select(*RETAINED_COLUMNS)
    moment = F.current_timestamp() if as_of is None else moment_literal(as_of)
    found = (F.col("valid_from") <= moment) & (F.col("valid_to").isNull() | (F.col("valid_to") > moment))
    return spans.where(found & not_expired(at) if at else found).select(*RETAINED_COLUMNS)


def moment_literal(moment: datetime) -> Column:
    """A moment as a column, by its microseconds: a datetime literal would go through the driver's own time zone."""
    return F.timestamp_micros(F.lit(micros(moment)))
