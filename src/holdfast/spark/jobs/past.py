"""The retained set as it was: from intervals where they reach, by replay of history otherwise, with the same answer."""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from holdfast.errors import UsageError
from holdfast.spark.delta import Table, absolute, is_table
from holdfast.spark.fold import holding, matching
from holdfast.spark.options import micros
from holdfast.spark.ranges import History
from holdfast.spark.replay import fold_history
from holdfast.spark.tables import INTERVALS_TABLE


class Past(NamedTuple):
    rows: DataFrame
    how: str  # "intervals" or "replay"


def retained_at(
    spark: SparkSession,
    history: History,
    tables: str | None,
    as_of: int | datetime | None,
    topic_filter: str | None = None,
    *,
    replay: bool = False,
) -> Past:
    """What a new subscriber would have been sent after this offset, at this moment, or now."""
    at = _clock(history, as_of)
    spans = None if replay or tables is None else _intervals(tables)
    if spans is not None and _covers(spans, history, as_of):
        moment = as_of if as_of is not None else datetime.now(UTC)
        if isinstance(moment, int):
            files = spans.reaching("offset", "to_offset", moment)
        else:
            files = spans.reaching("valid_from", "valid_to", moment)
        rows = matching(spans.frame(spark, files), topic_filter)
        return Past(holding(rows, as_of, at=at if isinstance(as_of, int) else None), "intervals")
    _check_reach(history, as_of)
    found = fold_history(spark, history, as_of, topic_filter, at=at if isinstance(as_of, int) else None)
    return Past(found, "replay")


def _intervals(root: str) -> Table | None:
    path = f"{absolute(root)}/{INTERVALS_TABLE.name}"
    return Table(path, INTERVALS_TABLE) if is_table(path) else None


def _clock(history: History, as_of: int | datetime | None) -> datetime:
    """When expiry is judged: the moment itself, or the time of the last row up to the offset."""
    if isinstance(as_of, int):
        if as_of >= history.end:
            raise UsageError(f"offset {as_of} is not in history yet: it ends at {history.end - 1}")
        return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=history.time_at(as_of) or 0)
    return as_of or datetime.now(UTC)


def _covers(spans: Table, history: History, as_of: int | datetime | None) -> bool:
    """Whether the intervals have all of history up to then, and begin early enough."""
    if as_of is None:
        return spans.applied >= history.end
    if isinstance(as_of, int):
        return spans.complete_from <= as_of < spans.applied
    # what the log says of whole files is enough, but for a moment close to where the intervals begin or end
    after = micros(as_of)
    least = max((file.last + 1 for file in history.files if file.last_us <= after), default=history.start)
    most = min((file.first for file in history.files if file.first_us > after), default=history.end)
    if spans.applied >= most and least > spans.complete_from:
        return True
    first_after = history.offset_at(as_of + timedelta(microseconds=1))
    return spans.applied >= first_after > spans.complete_from


def _check_reach(history: History, as_of: int | datetime | None) -> None:
    if not history.mark or as_of is None:
        return
    offset = as_of if isinstance(as_of, int) else history.offset_at(as_of + timedelta(microseconds=1)) - 1
    if offset < history.mark - 1:
        since = history.time_at(history.mark)
        reach = datetime.fromtimestamp((since or 0) / 1_000_000, UTC).isoformat(timespec="seconds")
        raise UsageError(
            f"history reaches back to offset {history.mark} ({reach}) and no further: retention has passed what came "
            "before"
        )
