"""What in the retained set is worth a look: left behind, misused, too much, or about to go. A function of the set."""

from datetime import datetime, timedelta
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from holdfast.spark import payload
from holdfast.spark.delta import Shape
from holdfast.spark.fold import moment_literal, not_expired

HYGIENE_SHAPE = Shape(
    (
        ("kind", "string"),
        ("topic", "string"),
        ("messages", "long"),
        ("bytes", "long"),
        ("since", "timestamp"),
        ("detail", "string"),
    ),
    key="kind",
)
# Listed for people: whoever needs all of them asks the retained set itself.
LISTED = 1000
SUBTREES = 25
# A retained command fires again at every reconnect: Tasmota, Sparkplug, Home Assistant and the names people choose.
COMMANDS = r"(?s)(\Acmnd/|/set\z|\Aspbv1\.0/[^/]*/[nd]cmd/|(\A|/)(cmd|cmnd|command|commands)(/|\z))"
DISCOVERY = r"(?s)\Ahomeassistant/[^/]+/.*/config\z"


def hygiene(retained: DataFrame, now: datetime, days: float = 30, expiring_hours: float = 24) -> DataFrame:
    """Ghosts, discovery without state, retained commands, the biggest subtrees, and what expires soon."""
    return reduce(DataFrame.unionByName, hygiene_parts(retained, now, days, expiring_hours))


def hygiene_parts(retained: DataFrame, now: datetime, days: float = 30, expiring_hours: float = 24) -> list[DataFrame]:
    """The same, kind by kind."""
    held = retained.where(not_expired(now)).select(
        "topic",
        "timestamp",
        "client_id",
        "expires_at",
        F.when(F.col("topic").rlike(DISCOVERY), F.col("payload")).alias("config"),
        (F.length("topic") + F.length("payload")).cast("long").alias("bytes"),
    )
    return [
        _ghosts(held, now - timedelta(days=days)),
        _lost_discovery(held),
        _commands(held),
        _subtrees(held),
        _expiring(held, now + timedelta(hours=expiring_hours)),
    ]


def _listed(rows: DataFrame, kind: str, detail: Column, order: Column, limit: int = LISTED) -> DataFrame:
    return (
        rows.select(
            F.lit(kind).alias("kind"),
            "topic",
            (F.col("messages") if "messages" in rows.columns else F.lit(1)).cast("long").alias("messages"),
            "bytes",
            F.col("timestamp").alias("since"),
            detail.alias("detail"),
        )
        .orderBy(order)
        .limit(limit)
    )


def _ghosts(held: DataFrame, before: datetime) -> DataFrame:
    """Not written for long, by a publisher that has not written anything retained for as long."""
    gone = held.groupBy("client_id").agg(F.max("timestamp").alias("newest"))
    gone = gone.where(F.col("newest") < moment_literal(before))
    old = held.join(gone, held["client_id"].eqNullSafe(gone["client_id"]), "left_semi")
    detail = F.concat(F.lit("last writer "), F.coalesce(F.nullif("client_id", F.lit("")), F.lit("unknown")))
    return _listed(old, "ghost", detail, F.col("since"))


def _lost_discovery(held: DataFrame) -> DataFrame:
    """Home Assistant configurations that name a state topic on which nothing is retained."""
    configs = held.where(F.col("config").isNotNull())
    parsed = payload.json(F.col("config"))
    state = F.coalesce(
        F.try_variant_get(parsed, "$.state_topic", "string"), F.try_variant_get(parsed, "$.stat_t", "string")
    )
    base = F.coalesce(F.try_variant_get(parsed, "$['~']", "string"), F.lit(""))
    state = F.when(state.startswith("~"), F.concat(base, F.substr(state, F.lit(2)))).otherwise(state)
    named = configs.withColumn("state", state).where(F.col("state").isNotNull())
    topics = held.select(F.col("topic").alias("state"))
    return _listed(
        named.join(topics, "state", "left_anti"), "discovery", F.concat(F.lit("no state on "), "state"), F.col("topic")
    )


def _commands(held: DataFrame) -> DataFrame:
    found = held.where(F.lower("topic").rlike(COMMANDS))
    return _listed(found, "command", F.lit("is sent again to every device that reconnects"), F.col("topic"))


def _subtrees(held: DataFrame) -> DataFrame:
    """The heaviest prefixes of one to three levels."""
    levels = F.split("topic", "/")
    depths = F.sequence(F.lit(1), F.least(F.size(levels), F.lit(3)))
    prefixes = F.transform(depths, lambda depth: F.array_join(F.slice(levels, 1, depth), "/"))
    sums = (
        held.select(F.explode(prefixes).alias("prefix"), "bytes", "timestamp")
        .groupBy("prefix")
        .agg(F.count("*").alias("messages"), F.sum("bytes").alias("bytes"), F.max("timestamp").alias("timestamp"))
        .where(F.col("messages") > 1)
        .withColumn("topic", F.concat("prefix", F.lit("/#")))
    )
    detail = F.concat(F.format_number("messages", 0), F.lit(" retained messages"))
    return _listed(sums, "subtree", detail, F.desc("bytes"), SUBTREES)


def _expiring(held: DataFrame, before: datetime) -> DataFrame:
    soon = held.where(F.col("expires_at") <= moment_literal(before))
    detail = F.concat(F.lit("expires "), F.date_format("expires_at", "yyyy-MM-dd HH:mm:ss"), F.lit(" UTC"))
    return _listed(soon, "expiring", detail, F.col("detail"))
