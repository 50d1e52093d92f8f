"""History in a few numbers, and what other limits would have made of it.

The second is one pass over the retained publishes in order, because limits depend on order. It decides again what the
broker decided then, with its rules: a payload over the limit is not stored; at the limit of messages a topic that is
there may be replaced and a new one is not stored; expiry makes room. What a policy or a budget refused stays refused.
"""

import heapq
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from holdfast.spark.fold import fold

OUT = "kind string, topic string, number long"
MANY = 1000


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


class Limits(NamedTuple):
    """0 means no limit, as in the broker's settings."""

    max_retained_messages: int = 0
    max_payload_size: int = 0
    expiry_interval_s: int = 0


class Outcome(NamedTuple):
    retained: int
    bytes: int
    peak: int
    refused: dict[str, int]
    topics: list[tuple[str, int]]


class Pass:
    """The retained set by size only, under some limits. Mirrors the broker's order of checks."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.held: dict[str, tuple[int, int]] = {}
        self.expiring: list[tuple[int, str]] = []
        self.bytes = 0
        self.peak = 0
        self.refused: Counter[str] = Counter()
        self.topics: Counter[str] = Counter()

    def apply(self, topic: str, at_us: int, size: int, expires_us: int | None, outcome: str) -> None:
        self.expire(at_us)
        if outcome in ("refused_policy", "refused_budget"):
            self._refuse(outcome, topic)
        elif size == 0:
            self._drop(topic)
        elif 0 < self.limits.max_payload_size < size:
            self._refuse("refused_size", topic)
        elif topic not in self.held and 0 < self.limits.max_retained_messages <= len(self.held):
            self._refuse("refused_count", topic)
        else:
            if expires_us is None and self.limits.expiry_interval_s:
                expires_us = at_us + self.limits.expiry_interval_s * 1_000_000
            self._drop(topic)
            self.held[topic] = (size + len(topic.encode()), expires_us or 0)
            self.bytes += self.held[topic][0]
            if expires_us:
                heapq.heappush(self.expiring, (expires_us, topic))
            self.peak = max(self.peak, len(self.held))

    def expire(self, at_us: int) -> None:
        while self.expiring and self.expiring[0][0] <= at_us:
            until, topic = heapq.heappop(self.expiring)
            if topic in self.held and self.held[topic][1] == until:
                self._drop(topic)

    def _drop(self, topic: str) -> None:
        gone = self.held.pop(topic, None)
        if gone is not None:
            self.bytes -= gone[0]

    def _refuse(self, why: str, topic: str) -> None:
        self.refused[why] += 1
        self.topics[topic] += 1

    def rows(self) -> Iterator[tuple[str, str, int]]:
        yield "retained", "", len(self.held)
        yield "bytes", "", self.bytes
        yield "peak", "", self.peak
        for why, number in self.refused.items():
            yield why, "", number
        for topic, number in self.topics.most_common(MANY):
            yield "topic", topic, number


class _Task:
    def __init__(self, limits: Limits, now_us: int) -> None:
        self.limits, self.now_us = limits, now_us

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        state = Pass(self.limits)
        for batch in batches:
            columns = [batch.column(name).to_pylist() for name in ("topic", "at", "size", "until", "outcome")]
            for values in zip(*columns, strict=True):
                state.apply(*values)
        state.expire(self.now_us)
        kinds, topics, numbers = zip(*state.rows(), strict=True)
        yield pa.RecordBatch.from_pydict(
            {"kind": pa.array(kinds), "topic": pa.array(topics), "number": pa.array(numbers, pa.int64())}
        )


def what_if(history: DataFrame, limits: Limits, now_us: int) -> Outcome:
    """How many topics would be retained at the end, and which publishes refused, under these limits."""
    rows = (
        history.where("retain")
        .select(
            "offset",
            "topic",
            F.unix_micros("timestamp").alias("at"),
            F.length("payload").alias("size"),
            F.unix_micros("expires_at").alias("until"),
            "outcome",
        )
        .repartition(1)
        .sortWithinPartitions("offset")
    )
    found: list[Any] = rows.mapInArrow(_Task(limits, now_us), OUT).collect()
    numbers = {row.kind: row.number for row in found if row.kind != "topic"}
    return Outcome(
        numbers.get("retained", 0),
        numbers.get("bytes", 0),
        numbers.get("peak", 0),
        {kind: number for kind, number in numbers.items() if kind.startswith("refused")},
        [(row.topic, row.number) for row in found if row.kind == "topic"],
    )
