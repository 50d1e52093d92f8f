"""The numbers behind the report, and what it says first: a few sentences for people who do not know MQTT.

Both are plain Python values, from small answers of the pipeline's tables.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from holdfast.spark.fold import moment_literal, not_expired
from holdfast.spark.keeper import Keeper

LISTED = 20
DEVICES = 30
DEVICE_HOURS = 48
KINDS = {
    "live": "passing messages",
    "set": "remembered values set",
    "cleared": "remembered values cleared",
    "refused": "refused",
}
AGES = (
    ("under a minute", timedelta(minutes=1)),
    ("under an hour", timedelta(hours=1)),
    ("under a day", timedelta(days=1)),
    ("under a week", timedelta(days=7)),
    ("under 30 days", timedelta(days=30)),
    ("older", timedelta.max),
)
CHANGES = ((1, "once"), (10, "2 to 10 times"), (100, "11 to 100"), (1000, "101 to 1,000"), (1 << 62, "more often"))
AHEAD = (
    ("within an hour", timedelta(hours=1)),
    ("within a day", timedelta(days=1)),
    ("within 2 days", timedelta(days=2)),
    ("within a week", timedelta(days=7)),
    ("within 30 days", timedelta(days=30)),
    ("later", timedelta.max),
)
GOOD, LOOK, PLAIN = "good", "look", "plain"
REASONS = {
    "size": "message too large",
    "count": "too many remembered topics",
    "budget": "storage budget used up",
    "policy": "forbidden by a policy",
}


@dataclass
class ReportData:
    """Everything the page shows. Times are UTC."""

    made_at: datetime
    offset: int
    messages: int = 0
    bytes: int = 0
    first: datetime | None = None
    last: datetime | None = None
    topics: int = 0
    retained: int = 0
    retained_bytes: int = 0
    never_expire: int = 0
    period: str = "minute"
    traffic: dict[str, list[tuple[datetime, int]]] = field(default_factory=dict)
    protocols: list[tuple[str, int]] = field(default_factory=list)
    busiest: list[tuple[str, int]] = field(default_factory=list)
    biggest: list[tuple[str, int]] = field(default_factory=list)
    quiet: list[tuple[str, datetime, float]] = field(default_factory=list)
    quiet_listed: bool = False  # there are more than are listed
    staleness: list[tuple[str, int]] = field(default_factory=list)
    churn: list[tuple[str, int]] = field(default_factory=list)
    expiry: list[tuple[str, int]] = field(default_factory=list)
    refusals: list[tuple[str, int]] = field(default_factory=list)
    device_hours: list[datetime] = field(default_factory=list)
    devices: list[tuple[str, list[int]]] = field(default_factory=list)
    hygiene: list[dict[str, Any]] = field(default_factory=list)
    records_live: bool = True  # messages that nobody is to remember are recorded too


def collect(keeper: Keeper, now: datetime) -> ReportData:
    frames = {name: table.frame(keeper.spark) for name, table in keeper.tables.items()}
    data = ReportData(now, keeper.tables["retained"].applied - 1, records_live=keeper.history.live_from > 0)
    _overall(data, frames)
    if data.messages:
        _traffic(data, frames["traffic"])
        _topics(data, frames["topic_stats"], now)
        _devices(data, frames["device_stats"])
    _retained(data, frames["retained"].where(not_expired(now)), now)
    listed = frames["hygiene"].orderBy("kind", F.desc("bytes")).collect()
    data.hygiene = [row.asDict() for row in listed]
    return data


def _overall(data: ReportData, frames: dict[str, DataFrame]) -> None:
    sums = frames["traffic"].agg(
        F.sum("messages").alias("messages"),
        F.sum("bytes").alias("bytes"),
        F.unix_micros(F.min("minute")).alias("first"),
        F.unix_micros(F.max("minute")).alias("last"),
    )
    row = sums.first()
    if row is not None and row.messages:
        data.messages, data.bytes = row.messages, row.bytes
        data.first, data.last = _moment(row["first"]), _moment(row["last"])
    data.topics = frames["topic_stats"].count()


def _moment(micros: int) -> datetime:
    return datetime.fromtimestamp(micros / 1_000_000, UTC)


def _traffic(data: ReportData, traffic: DataFrame) -> None:
    assert data.first is not None
    assert data.last is not None
    span = data.last - data.first
    data.period = "minute" if span <= timedelta(hours=6) else "hour" if span <= timedelta(days=30) else "day"
    kind = F.when(F.col("outcome").startswith("refused"), F.lit("refused")).otherwise(F.col("outcome"))
    rows = (
        traffic.groupBy(F.unix_micros(F.date_trunc(data.period, "minute")).alias("at"), kind.alias("kind"))
        .agg(F.sum("messages").alias("messages"))
        .orderBy("at")
        .collect()
    )
    for row in rows:
        data.traffic.setdefault(row.kind, []).append((_moment(row["at"]), row.messages))
    by_protocol = traffic.groupBy("protocol").agg(F.sum("messages").alias("messages")).orderBy(F.desc("messages"))
    data.protocols = [(row.protocol or "unknown", row.messages) for row in by_protocol.collect()]
    refused = traffic.where(F.col("outcome").startswith("refused")).groupBy("outcome").agg(F.sum("messages").alias("n"))
    data.refusals = [(row.outcome.removeprefix("refused_"), row.n) for row in refused.orderBy(F.desc("n")).collect()]


def _topics(data: ReportData, stats: DataFrame, now: datetime) -> None:
    data.busiest = [(row.topic, row.messages) for row in stats.orderBy(F.desc("messages")).limit(LISTED).collect()]
    data.biggest = [(row.topic, row.bytes) for row in stats.orderBy(F.desc("bytes")).limit(LISTED).collect()]
    silence = F.lit(int(now.timestamp() * 1_000_000)) - F.unix_micros("last_seen")
    overdue = stats.where((F.col("messages") >= 10) & (silence > 10 * F.col("mean_gap_us") + 60_000_000))
    rows = overdue.select("topic", F.unix_micros("last_seen").alias("seen"), "mean_gap_us").orderBy(F.desc("messages"))
    found_quiet = [(row.topic, _moment(row.seen), row.mean_gap_us / 1e6) for row in rows.limit(LISTED + 1).collect()]
    data.quiet, data.quiet_listed = found_quiet[:LISTED], len(found_quiet) > LISTED
    bucket: Column = F.lit(len(CHANGES) - 1)
    for index in range(len(CHANGES) - 2, -1, -1):
        bucket = F.when(F.col("sets") <= CHANGES[index][0], F.lit(index)).otherwise(bucket)
    counts = stats.where("sets > 0").groupBy(bucket.alias("bucket")).count().collect()
    found = {row.bucket: row["count"] for row in counts}
    data.churn = [(label, found.get(index, 0)) for index, (_, label) in enumerate(CHANGES)]


def _retained(data: ReportData, held: DataFrame, now: datetime) -> None:
    age = F.lit(int(now.timestamp() * 1_000_000)) - F.unix_micros("timestamp")
    left = F.unix_micros("expires_at") - F.lit(int(now.timestamp() * 1_000_000))
    rows = (
        held.groupBy(_bucket(age, AGES).alias("age"), _bucket(left, AHEAD).alias("ahead"))
        .agg(F.count("*").alias("n"), F.sum(F.length("payload") + F.length("topic")).alias("bytes"))
        .collect()
    )
    data.retained = sum(row.n for row in rows)
    data.retained_bytes = sum(row.bytes for row in rows)
    data.never_expire = sum(row.n for row in rows if row.ahead is None)
    data.staleness = [(label, sum(r.n for r in rows if r.age == index)) for index, (label, _) in enumerate(AGES)]
    data.expiry = [(label, sum(r.n for r in rows if r.ahead == index)) for index, (label, _) in enumerate(AHEAD)]


def _bucket(micros: Column, buckets: tuple[tuple[str, timedelta], ...]) -> Column:
    found: Column = F.lit(len(buckets) - 1)
    for index in range(len(buckets) - 2, -1, -1):
        found = F.when(micros < F.lit(buckets[index][1] // timedelta(microseconds=1)), F.lit(index)).otherwise(found)
    return F.when(micros.isNotNull(), found)


def _devices(data: ReportData, stats: DataFrame) -> None:
    assert data.last is not None
    end = data.last.replace(minute=0, second=0, microsecond=0)
    begin = data.first.replace(minute=0, second=0, microsecond=0) if data.first else end
    hours = min(DEVICE_HOURS, (end - begin) // timedelta(hours=1) + 1)
    since = end - timedelta(hours=hours - 1)
    recent = stats.where(F.col("hour") >= moment_literal(since))
    top = recent.groupBy("device").agg(F.sum("messages").alias("n")).orderBy(F.desc("n"), "device").limit(DEVICES)
    names = [row.device for row in top.collect()]
    if not names:
        return
    rows = recent.where(F.col("device").isin(names)).select("device", F.unix_micros("hour").alias("at"), "messages")
    cells = {(row.device, _moment(row["at"])): row.messages for row in rows.collect()}
    data.device_hours = [since + timedelta(hours=number) for number in range(hours)]
    data.devices = [(name, [cells.get((name, hour), 0) for hour in data.device_hours]) for name in names]


class Finding(NamedTuple):
    """One sentence; `severity` says whether it is good to know, worth a look, or neither.

    `anchor` is where to read on.
    """

    severity: str
    text: str
    anchor: str


def findings(data: ReportData) -> list[Finding]:
    if not data.messages:
        return [Finding(PLAIN, "No messages have been recorded yet.", "traffic"), *_not_recorded(data)]
    return [
        _rate(data),
        *_not_recorded(data),
        _refused(data),
        _quiet(data),
        *_hygiene(data),
        *_soon(data),
        *_share(data),
    ]


def _rate(data: ReportData) -> Finding:
    assert data.first is not None
    assert data.last is not None
    minutes = max(1.0, (data.last - data.first) / timedelta(minutes=1) + 1)
    rate = data.messages / minutes
    pace = f"{rate:,.0f} a minute" if rate >= 2 else f"{rate * 60:,.0f} an hour"
    return Finding(
        PLAIN,
        f"{data.messages:,} messages arrived on {data.topics:,} topics, {pace} on average; "
        f"{data.retained:,} values are remembered now.",
        "traffic",
    )


def _not_recorded(data: ReportData) -> list[Finding]:
    if data.records_live:
        return []
    text = "Only messages that are to be remembered are recorded; passing messages are not counted (history.record)."
    return [Finding(PLAIN, text, "traffic")]


def _refused(data: ReportData) -> Finding:
    total = sum(number for _, number in data.refusals)
    if not total:
        return Finding(
            GOOD, "Nothing was refused: no limit or rule has stopped a value from being remembered.", "refused"
        )
    why, most = max(data.refusals, key=lambda pair: pair[1])
    share = f"{100 * total / data.messages:.1f} %" if total * 1000 >= data.messages else "less than 0.1 %"
    return Finding(
        LOOK,
        f"{total:,} values were not remembered ({share} of all messages), {most:,} of them because: "
        f"{REASONS.get(why, why)}.",
        "refused",
    )


def _quiet(data: ReportData) -> Finding:
    if not data.quiet:
        return Finding(GOOD, "Every topic that speaks regularly is still speaking.", "quiet")
    many = "at least " if data.quiet_listed else ""
    number = len(data.quiet)
    said = "topic that used to speak regularly has" if number == 1 else "topics that used to speak regularly have"
    return Finding(LOOK, f"{many.capitalize()}{number:,} {said} gone quiet.", "quiet")


def _hygiene(data: ReportData) -> list[Finding]:
    counts = {kind: sum(row["kind"] == kind for row in data.hygiene) for kind in ("ghost", "command", "discovery")}
    found = []
    if counts["ghost"]:
        found.append(
            Finding(LOOK, f"{counts['ghost']:,} remembered values look left behind by writers that are gone.", "ghost")
        )
    if counts["command"]:
        found.append(
            Finding(
                LOOK,
                f"{counts['command']:,} remembered messages look like commands: they run again at each reconnect.",
                "command",
            )
        )
    if counts["discovery"]:
        found.append(Finding(LOOK, f"{counts['discovery']:,} announced devices have no value to show.", "discovery"))
    return found or [Finding(GOOD, "No leftovers and no remembered commands were found.", "ghost")]


def _soon(data: ReportData) -> list[Finding]:
    soon = sum(number for _, number in data.expiry[:2])
    if not soon:
        return []
    return [Finding(PLAIN, f"{soon:,} remembered values will disappear by themselves within a day.", "expiry")]


def _share(data: ReportData) -> list[Finding]:
    if not data.busiest:
        return []
    topic, most = data.busiest[0]
    share = 100 * most / data.messages
    if share < 10 or data.topics < 5:
        return []
    return [Finding(LOOK, f"One topic, {topic}, sends {share:.0f} % of all messages.", "busiest")]


def describe(data: ReportData) -> dict[str, Any]:
    """The numbers of the page for other programs."""
    return {
        "offset": data.offset,
        "messages": data.messages,
        "bytes": data.bytes,
        "topics": data.topics,
        "retained": data.retained,
        "retained_bytes": data.retained_bytes,
        "refused": dict(data.refusals),
        "protocols": dict(data.protocols),
        "busiest": dict(data.busiest),
        "first": data.first.isoformat() if data.first else None,
        "last": data.last.isoformat() if data.last else None,
    }
