"""History in a few numbers."""

from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from holdfast.spark.fold import fold


def summarise(history: DataFrame, now: datetime) -> dict[str, Any]:
    whole = history.agg(
        F.count("*").alias("messages"),
        F.coalesce(F.sum(F.length("payload")), F.lit(0)).alias("bytes"),
        F.count_distinct("topic").alias("topics"),
        F.count_distinct("client_id").alias("publishers"),
        F.unix_micros(F.min("timestamp")).alias("first"),
        F.unix_micros(F.max("timestamp")).alias("last"),
    ).first()
    held = (
        fold(history, at=now)
        .agg(F.count("*").alias("n"), F.coalesce(F.sum(F.length("payload") + F.length("topic")), F.lit(0)).alias("b"))
        .first()
    )
    assert whole is not None
    assert held is not None
    outcomes = history.groupBy("outcome").count().orderBy("outcome").collect()
    return {
        **{name: int(whole[name]) for name in ("messages", "bytes", "topics", "publishers")},
        "first": _iso(whole["first"]),
        "last": _iso(whole["last"]),
        "retained": int(held.n),
        "retained_bytes": int(held.b),
        "outcomes": {row.outcome: row["count"] for row in outcomes},
    }


def _iso(micros: int | None) -> str | None:
    return None if micros is None else datetime.fromtimestamp(micros / 1_000_000, UTC).isoformat()
