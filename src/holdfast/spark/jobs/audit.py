"""Proof that two folds agree: Spark's over history and the broker's in memory, or Spark's and a table's.

Both sides are taken as of the same offset. Expiry is compared within the seconds that the wire rounds to; a topic that
expires while we look is on neither side wrong.
"""

import time
from datetime import UTC, datetime
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from holdfast.errors import UsageError
from holdfast.spark.fold import moment_literal, not_expired
from holdfast.spark.jobs.live import Live, read_live
from holdfast.spark.mqtt.connection import BrokerOptions
from holdfast.spark.ranges import History
from holdfast.spark.replay import fold_history

SLACK_S = 2.0
# The broker says how many whole seconds are left, and it may take a while until that is read.
EXPIRY_SLACK_S = 5.0
# Several times the interval at which history is committed.
STILL_S = 5.0
COMPARED = ("payload", "qos", "content_type", "response_topic", "correlation_data", "payload_format", "user_properties")


class Audit(NamedTuple):
    """`differences` has topic, problem, expected and got; `version` is the offset that was compared."""

    differences: DataFrame
    version: int
    topics: int
    older: int


def audit_live(
    spark: SparkSession, history: History, options: BrokerOptions, topic_filter: str = "#", wait_s: float = 60.0
) -> Audit:
    """Compare the fold of history with what the running broker sends to a new subscriber."""
    live = read_live(spark, options, topic_filter)
    history.refresh()
    version = live.version if live.version is not None else history.covered
    newest = live.rows.agg(F.max("offset").alias("newest")).first()
    wait_for(history, version, wait_s, newest.newest or 0 if newest is not None else 0)
    early = datetime.fromtimestamp(live.begun_s - SLACK_S, UTC)
    wanted = fold_history(spark, history, version, topic_filter, at=early)
    return _compare(wanted, live.rows, live, version, history.start)


def wait_for(history: History, offset: int, wait_s: float, newest: int = 0) -> None:
    """History is written behind the acknowledgement; give it the time it needs.

    Not every offset has a row: a connection that comes or goes takes one too, and so does a message without RETAIN
    where those are not recorded. So history is also
    current when it has the newest retained message there is and has had nothing to add for a while. With nothing
    retained there is no such message, and the while is longer.
    """
    still_s = STILL_S if newest else wait_s / 2
    deadline = time.monotonic() + wait_s
    moved_at, before = time.monotonic(), history.covered
    while history.covered < offset:
        now = time.monotonic()
        if history.covered != before:
            moved_at, before = now, history.covered
        if history.covered >= newest and now - moved_at > still_s:
            return
        if now > deadline:
            raise UsageError(
                f"the broker is at offset {offset}, but history at {history.location} only at {history.covered} after "
                f"{wait_s:g} s: is it that broker's history, with history.filter = '#'?"
            )
        time.sleep(0.2)
        history.refresh()


def _compare(wanted: DataFrame, got: DataFrame, live: Live, version: int, history_start: int) -> Audit:
    late = datetime.fromtimestamp(live.ended_s + SLACK_S, UTC)
    want = wanted.alias("want")
    have = got.alias("have")
    both = want.join(have, F.col("want.topic") == F.col("have.topic"), "full_outer")
    fleeting = F.col("want.expires_at") <= moment_literal(late)
    older = F.col("want.topic").isNull() & (F.col("have.offset") < history_start)
    found = both.select(
        F.coalesce("want.topic", "have.topic").alias("topic"),
        F.filter(F.array(*_problems(fleeting, older)), lambda problem: problem.isNotNull()).alias("problems"),
        older.alias("older"),
    ).persist()
    counts = found.agg(F.count("*").alias("topics"), F.count_if("older").alias("older")).first()
    assert counts is not None
    differences = found.where(F.size("problems") > 0).select("topic", F.inline("problems"))
    return Audit(differences, version, int(counts.topics), int(counts.older))


def _problems(fleeting: Column, older: Column) -> list[Column]:
    """Each a struct of problem, expected and got where the sides differ, null where they agree."""
    both = F.col("want.topic").isNotNull() & F.col("have.topic").isNotNull()
    found = [
        F.when(
            F.col("have.topic").isNull() & ~F.coalesce(fleeting, F.lit(False)), _said("missing", "want.offset", None)
        ),
        F.when(
            F.col("want.topic").isNull() & ~F.coalesce(older, F.lit(False)), _said("unexpected", None, "have.offset")
        ),
        F.when(
            both & F.col("have.offset").isNotNull() & (F.col("want.offset") != F.col("have.offset")),
            _said("offset", "want.offset", "have.offset"),
        ),
    ]
    for name in COMPARED:
        mine, theirs = F.col(f"want.{name}"), F.col(f"have.{name}")
        if name == "user_properties":
            mine, theirs = (F.coalesce(side, F.array().cast(USER_PROPERTIES)) for side in (mine, theirs))
        elif name == "payload_format":  # absent and 0 mean the same on the wire
            mine, theirs = F.coalesce(mine, F.lit(0)), F.coalesce(theirs, F.lit(0))
        found.append(F.when(both & ~mine.eqNullSafe(theirs), _said(name, f"want.{name}", f"have.{name}")))
    apart = F.abs(F.unix_micros("want.expires_at") - F.unix_micros("have.expires_at")) > EXPIRY_SLACK_S * 1_000_000
    uneven = F.col("want.expires_at").isNull() != F.col("have.expires_at").isNull()
    found.append(
        F.when(both & (F.coalesce(apart, F.lit(False)) | uneven), _said("expiry", "want.expires_at", "have.expires_at"))
    )
    return found


USER_PROPERTIES = "array<struct<key:string,value:string>>"


def _said(problem: str, expected: str | None, got: str | None) -> Column:
    return F.struct(F.lit(problem).alias("problem"), _shown(expected).alias("expected"), _shown(got).alias("got"))


def _shown(name: str | None) -> Column:
    if name is None:
        return F.lit(None).cast("string")
    value = F.col(name)
    if name.endswith("user_properties"):
        return F.to_json(value)
    if name.endswith(("payload", "correlation_data")):
        return F.coalesce(F.try_validate_utf8(value.cast("string")), F.hex(value))
    return value.cast("string")


def audit_table(spark: SparkSession, history: History, table: DataFrame, applied: int) -> Audit:
    """Compare the fold of history with the pipeline's own `retained` table, as of what the table has applied."""
    version = applied - 1
    now = datetime.now(UTC)
    wanted = fold_history(spark, history, version, at=now)
    live = Live(table, version, now.timestamp(), now.timestamp() - SLACK_S - 1, 0)
    return _compare(wanted, table.where(not_expired(now)), live, version, history.start)
