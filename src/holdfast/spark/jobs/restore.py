"""Put a past retained set back: what was there then and is different or gone now, through the sink.

What is put back, and for how long, follows `holdfast.rules.restore`, always with `replace`. One row a topic, so
parallel tasks cannot reorder. What is already as it was is left alone, which also makes a second run after a failure do
only the rest.
"""

from datetime import datetime
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from holdfast.spark.fold import not_expired

# What makes two messages the same.
PROPERTIES = ("content_type", "response_topic", "correlation_data", "payload_format", "user_properties")
CONTENT = ("payload", "qos", *PROPERTIES)
CLEAR = "clear"
SET = "set"


class Restore(NamedTuple):
    """`rows` are publishes with an `action`; the counts say what they will do."""

    rows: DataFrame
    sets: int
    clears: int
    same: int


def plan_restore(past: DataFrame, present: DataFrame, now: datetime, *, clear_others: bool = False) -> Restore:
    """What has to be published to turn the present set into the past one."""
    was, have = past.where(not_expired(now)).alias("was"), present.alias("have")
    both = was.join(have, F.col("was.topic") == F.col("have.topic"), "full_outer")
    same = F.lit(True)
    for name in CONTENT:
        same = same & alike(name)
    action = F.when(F.col("was.topic").isNull(), F.lit(CLEAR)).when(same, F.lit("same")).otherwise(F.lit(SET))
    rows = both.select(
        action.alias("action"),
        F.coalesce("was.topic", "have.topic").alias("topic"),
        F.coalesce("was.payload", F.lit(b"").cast("binary")).alias("payload"),
        F.coalesce("was.qos", F.lit(1).cast("byte")).alias("qos"),
        F.lit(True).alias("retain"),
        *(F.col(f"was.{name}").alias(name) for name in ("expires_at", *PROPERTIES)),
    )
    if not clear_others:
        rows = rows.where(F.col("action") != CLEAR)
    rows = rows.persist()
    counts = {row["action"]: row["count"] for row in rows.groupBy("action").count().collect()}
    changes = rows.where(F.col("action") != "same")
    return Restore(changes, counts.get(SET, 0), counts.get(CLEAR, 0), counts.get("same", 0))


def alike(name: str) -> Column:
    """Whether past and present agree in a column. No user properties are as good as an empty list of them."""
    was, have = F.col(f"was.{name}"), F.col(f"have.{name}")
    if name == "user_properties":
        return F.coalesce(was, F.array()).eqNullSafe(F.coalesce(have, F.array()))
    return was.eqNullSafe(have)


def put_back(restore: Restore, options: dict[str, str]) -> None:
    """A message comes back as it was: without a mark that tells batches apart, unless that is asked for."""
    options = {"batchProperty": "false", **options}
    restore.rows.drop("action").repartition(4, "topic").write.format("mqtt").options(**options).mode("append").save()
