"""What in the retained set is worth a look: left behind, misused, too much, or about to go. A function of the set.

What a ghost, a command topic and a discovery is stands in `holdfast.rules.hygiene`; here it is said with columns.
"""

from datetime import datetime, timedelta
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from holdfast.rules import hygiene as rules
from holdfast.spark import payload
from holdfast.spark.fold import moment_literal, not_expired

HYGIENE_SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("topic", pa.string()),
        ("messages", pa.int64()),
        ("bytes", pa.int64()),
        ("since", pa.timestamp("us", tz="UTC")),
        ("detail", pa.string()),
    ]
)
# Listed for people: whoever needs all of them asks the retained set itself.
LISTED = 1000
SUBTREES = 25


def hygiene(retained: DataFrame, now: datetime, days: float = 30, expiring_hours: float = 24) -> DataFrame:
    """Ghosts, discovery without state, retained commands, the biggest subtrees, and what expires soon."""
    held = retained.where(not_expired(now)).select(
        "topic",
        "timestamp",
        "client_id",
        "protocol",
        "expires_at",
        F.when(is_discovery(F.col("topic")), F.col("payload")).alias("config"),
        (F.octet_length("topic") + F.octet_length("payload")).cast("long").alias("bytes"),
    )
    seen = held.where(~F.col("topic").startswith(rules.HIDDEN))
    parts = [
        _ghosts(seen, now - timedelta(days=days)),
        _lost_discovery(seen, held),
        _commands(seen),
        _subtrees(seen),
        _expiring(seen, now + timedelta(hours=expiring_hours)),
    ]
    return reduce(DataFrame.unionByName, parts)


def is_command(topic: Column) -> Column:
    """`rules.is_command`, hidden topics aside."""
    levels = F.split(F.lower(topic), "/")
    named = F.arrays_overlap(levels, F.array(*map(F.lit, rules.COMMAND_LEVELS)))
    last = (F.size(levels) > 1) & (F.element_at(levels, -1) == rules.COMMAND_LAST)
    sparkplug = (F.get(levels, F.lit(0)) == rules.SPARKPLUG_FIRST) & F.get(levels, F.lit(2)).isin(
        *rules.SPARKPLUG_THIRD
    )
    return F.coalesce(named | last | sparkplug, F.lit(False))


def is_discovery(topic: Column) -> Column:
    """`rules.is_discovery`."""
    levels = F.split(topic, "/")
    first, last = F.get(levels, F.lit(0)), F.element_at(levels, -1)
    deep = F.size(levels).isin(*rules.DISCOVERY_LEVELS)
    return deep & (first == rules.DISCOVERY_FIRST) & (last == rules.DISCOVERY_LAST)


def state_topic(config: Column) -> Column:
    """`rules.state_topic` of a payload; null when it names none."""
    parsed = payload.json(config)
    topic = F.coalesce(*(F.nullif(_text_at(parsed, key), F.lit("")) for key in rules.STATE_TOPIC_KEYS))
    base = _text_at(parsed, rules.BASE_TOPIC_KEY)
    return (
        F.when(base.isNull(), topic)
        .when(topic.startswith("~"), F.concat(base, F.substr(topic, F.lit(2))))
        .when(topic.endswith("~"), F.concat(F.substr(topic, F.lit(1), F.length(topic) - 1), base))
        .otherwise(topic)
    )


def _text_at(parsed: Column, key: str) -> Column:
    """The text under a key of a JSON object; null when there is none, or something that is no text."""
    path = f"$['{key}']"
    kind = F.schema_of_variant(F.try_variant_get(parsed, path, "variant"))
    return F.when(kind == "STRING", F.try_variant_get(parsed, path, "string"))


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
    """Stale messages whose publisher has gone or has no name. Sessions are not known here."""
    stale = F.col("timestamp") < moment_literal(before)
    client_id = F.coalesce("client_id", F.lit(""))
    named = (
        (client_id != "")
        & (F.coalesce("protocol", F.lit("")) != rules.API_PROTOCOL)
        & ~client_id.rlike(rules.ASSIGNED_PATTERN)
    )
    publishers = held.withColumn("publisher", F.when(named, F.col("client_id")))
    there = publishers.where(~stale).select("publisher").distinct()
    old = publishers.where(stale).join(there, "publisher", "left_anti")
    detail = F.concat(F.lit("last writer "), F.coalesce(F.nullif("client_id", F.lit("")), F.lit("unknown")))
    return _listed(old, "ghost", detail, F.col("since"))


def _lost_discovery(seen: DataFrame, held: DataFrame) -> DataFrame:
    """Home Assistant configurations that name a state topic on which nothing is retained."""
    configs = seen.where(F.col("config").isNotNull())
    named = configs.withColumn("state", state_topic(F.col("config"))).where(F.col("state").isNotNull())
    topics = held.select(F.col("topic").alias("state"))
    return _listed(
        named.join(topics, "state", "left_anti"), "discovery", F.concat(F.lit("no state on "), "state"), F.col("topic")
    )


def _commands(held: DataFrame) -> DataFrame:
    found = held.where(is_command(F.col("topic")))
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
    soon = held.where(F.col("expires_at") < moment_literal(before))
    detail = F.concat(F.lit("expires "), F.date_format("expires_at", "yyyy-MM-dd HH:mm:ss"), F.lit(" UTC"))
    return _listed(soon, "expiring", detail, F.col("detail"))
