"""The jobs: the past, the audit, the way back, other limits, the report. On tables made of random publishes."""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from holdfast.errors import UsageError
from holdfast.history.schema import RETENTION_APP_ID
from holdfast.service.past import Moment, Past
from holdfast.spark.fold import fold
from holdfast.spark.jobs.audit import audit_table, wait_for
from holdfast.spark.jobs.output import plain, write_jsonl, write_parquet
from holdfast.spark.jobs.page import build_page
from holdfast.spark.jobs.past import retained_at
from holdfast.spark.jobs.report import collect, describe
from holdfast.spark.jobs.restore import plan_restore
from holdfast.spark.jobs.run import Runner
from holdfast.spark.jobs.stats import Limits, Pass, summarise, what_if
from holdfast.spark.keeper import Keeper, history_frame
from holdfast.spark.ranges import History
from spark.publishes import START, oracle, publishes, write_history
from spark.test_fold import as_set, expected, normal

ROWS = publishes(4_000, topics=120, seed=31)
EVIL = "</script><script>alert(1)</script>"


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history, and tables that have come to offset 3000 of 4000."""
    root = tmp_path_factory.mktemp("jobs")
    ROWS[17]["topic"] = EVIL
    ROWS[17]["outcome"] = "set"
    write_history(root / "history", ROWS[:3000], files=2)
    keeper = Keeper(spark, str(root / "history"), str(root / "tables"))
    Runner(keeper, max_offsets=2000).once()
    keeper.close()
    write_history(root / "history", ROWS[3000:])
    return root


def history_of(folder: Path) -> History:
    return History(str(folder / "history"))


@pytest.mark.parametrize(
    ("as_of", "how"),
    [
        (2500, "intervals"),
        (2999, "intervals"),
        (3500, "replay"),
        (ROWS[1000]["timestamp"], "intervals"),
        (None, "replay"),
    ],
)
def test_intervals_and_replay_give_the_same_past(
    spark: SparkSession, folder: Path, as_of: int | datetime | None, how: str
) -> None:
    past = retained_at(spark, history_of(folder), str(folder / "tables"), as_of)
    assert past.how == how
    replayed = retained_at(spark, history_of(folder), str(folder / "tables"), as_of, replay=True)
    when = {"offset": as_of} if isinstance(as_of, int) else {"moment": as_of or datetime.now(UTC)}
    assert as_set(past.rows) == expected(ROWS, **when)
    assert as_set(replayed.rows) == expected(ROWS, **when)


def test_the_past_by_filter(spark: SparkSession, folder: Path) -> None:
    rows = retained_at(spark, history_of(folder), str(folder / "tables"), 2500, "site/2/#").rows
    assert set(as_set(rows)) == {topic for topic in expected(ROWS, offset=2500) if topic.startswith("site/2/")}


@pytest.mark.parametrize("offset", [500, 2500, 3999])
def test_the_broker_says_of_an_offset_what_spark_says(spark: SparkSession, folder: Path, offset: int) -> None:
    """What `retained at @OFFSET` and the API show, with what had expired by then left out on both sides."""
    rows, _, count = Past(folder / "history").page_at(Moment(0, offset), "", len(ROWS))
    shown = {row["topic"]: normal(row) for row in rows}
    assert len(shown) == count < len(oracle([{**row, "expires_at": None} for row in ROWS], offset=offset))
    assert shown == as_set(retained_at(spark, history_of(folder), None, offset, "#").rows)


def test_an_offset_that_is_not_there_yet_is_refused(spark: SparkSession, folder: Path) -> None:
    with pytest.raises(UsageError, match="offset 9999 is not in history yet: it ends at 4000"):
        retained_at(spark, history_of(folder), None, 9999)


def test_a_past_that_retention_has_passed_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = write_history(tmp_path / "history", ROWS[500:1000])
    delta = DeltaTable(path)
    mark = CommitProperties(app_transactions=[Transaction(RETENTION_APP_ID, 501)])
    delta.create_write_transaction([], "append", delta.schema(), commit_properties=mark)
    with pytest.raises(UsageError, match="history reaches back to offset 501"):
        retained_at(spark, History(path), None, 300)
    assert retained_at(spark, History(path), None, 900).rows.count() >= 0


def test_the_table_agrees_with_a_fold_of_history(spark: SparkSession, folder: Path) -> None:
    keeper = Keeper(spark, str(folder / "history"), str(folder / "tables"))
    table = keeper.tables["retained"]
    result = audit_table(spark, keeper.history, table.frame(spark), table.applied)
    assert (result.version, result.differences.collect()) == (3000, [])
    keeper.close()


def test_an_audit_names_what_differs(spark: SparkSession, folder: Path) -> None:
    history = history_of(folder)
    now = datetime.now(UTC)
    truth = fold(history_frame(spark, history), 4000, at=now)
    topics = [row.topic for row in truth.select("topic").orderBy("topic").collect()]
    lost, changed, weaker, invented = topics[0], topics[1], topics[2], "never/published"
    wrong = (
        truth.where(F.col("topic") != lost)
        .withColumn(
            "payload", F.when(F.col("topic") == changed, F.lit(b"?").cast("binary")).otherwise(F.col("payload"))
        )
        .withColumn(
            "qos", F.when(F.col("topic") == weaker, ((F.col("qos") + 1) % 3).cast("byte")).otherwise(F.col("qos"))
        )
    )
    extra = truth.where(F.col("topic") == topics[3]).withColumn("topic", F.lit(invented))
    found = audit_table(spark, history, wrong.unionByName(extra), 4001).differences.collect()
    assert {(row.topic, row.problem) for row in found} == {
        (lost, "missing"), (changed, "payload"), (weaker, "qos"), (invented, "unexpected"),
    }  # fmt: skip


def test_restoring_publishes_only_what_differs(spark: SparkSession, folder: Path) -> None:
    rows = history_frame(spark, history_of(folder))
    now = datetime.now(UTC)
    then, current = oracle(ROWS, offset=1500), oracle(ROWS, offset=4000)
    alive = {topic: row for topic, row in then.items() if row["expires_at"] is None}
    present = {topic: row for topic, row in current.items() if row["expires_at"] is None}
    plan = plan_restore(fold(rows, 1500), fold(rows, at=now), now)
    changed = {topic for topic, row in alive.items() if present.get(topic, {}).get("offset") != row["offset"]}
    found = {row.topic: bytes(row.payload) for row in plan.rows.collect()}
    same_content = changed - found.keys()
    assert found.keys() <= changed
    for topic in same_content:  # set again since, to the very same message
        assert present[topic]["payload"] == alive[topic]["payload"]
    assert all(found[topic] == alive[topic]["payload"] for topic in found)
    assert plan.clears == 0
    whole = plan_restore(fold(rows, 1500), fold(rows, at=now), now, clear_others=True)
    assert {row.topic for row in whole.rows.where("action = 'clear'").collect()} == present.keys() - alive.keys()


@pytest.mark.parametrize("apart_s", [0.4, 10.0])
def test_another_expiry_is_no_difference(spark: SparkSession, folder: Path, apart_s: float) -> None:
    now = ROWS[-1]["timestamp"]
    one = fold(history_frame(spark, history_of(folder))).limit(1).drop("expires_at")
    past = one.withColumn("expires_at", F.lit(now + timedelta(seconds=60)))
    present = one.withColumn("expires_at", F.lit(now + timedelta(seconds=60 + apart_s)))
    plan = plan_restore(past, present, now)
    assert (plan.sets, plan.same) == (0, 1)


def plain_what_if(limits: Limits, now: datetime) -> tuple[int, Counter[str]]:
    """Said again without a heap: look at everything each time."""
    held: dict[str, datetime | None] = {}
    refused: Counter[str] = Counter()
    for row in (row for row in ROWS if row["retain"]):
        at = row["timestamp"]
        held = {topic: until for topic, until in held.items() if until is None or until > at}
        until = row["expires_at"]
        if until is None and limits.expiry_interval_s:
            until = at + timedelta(seconds=limits.expiry_interval_s)
        if row["outcome"] in ("refused_policy", "refused_budget"):
            refused[row["outcome"]] += 1
        elif not row["payload"]:
            held.pop(row["topic"], None)
        elif limits.max_payload_size and len(row["payload"]) > limits.max_payload_size:
            refused["refused_size"] += 1
        elif row["topic"] not in held and limits.max_retained_messages and len(held) >= limits.max_retained_messages:
            refused["refused_count"] += 1
        else:
            held[row["topic"]] = until
    return len({topic for topic, until in held.items() if until is None or until > now}), refused


@pytest.mark.parametrize("limits", [Limits(), Limits(20), Limits(0, 12), Limits(30, 50, 2)])
def test_what_other_limits_would_have_done(spark: SparkSession, folder: Path, limits: Limits) -> None:
    now = ROWS[-1]["timestamp"] + timedelta(seconds=1)
    found = what_if(history_frame(spark, history_of(folder)), limits, int(now.timestamp() * 1_000_000))
    retained, refused = plain_what_if(limits, now)
    assert (found.retained, found.refused) == (retained, dict(refused))
    if limits.max_retained_messages:
        assert found.peak <= limits.max_retained_messages
        assert found.topics


def test_a_replaced_topic_is_not_expired_by_its_old_date() -> None:
    state = Pass(Limits())
    state.apply("a", 0, 5, 100, "set")
    state.apply("a", 50, 5, None, "set")
    state.expire(1000)
    assert list(state.held) == ["a"]


def test_numbers_of_history(spark: SparkSession, folder: Path) -> None:
    found = summarise(history_frame(spark, history_of(folder)), datetime.now(UTC))
    assert found["messages"] == 4000
    assert found["topics"] == len({row["topic"] for row in ROWS})
    assert found["outcomes"] == dict(Counter(row["outcome"] for row in ROWS))
    assert found["retained"] == len(expected(ROWS, moment=datetime.now(UTC)))


class Page(HTMLParser):
    """What a browser would fetch, and the elements it would see."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        named = [value for name, value in attrs if name in ("src", "href") and value]
        self.fetched += [value for value in named if not value.startswith("#")]


def test_the_report_is_one_page_that_asks_nobody_and_trusts_no_topic(spark: SparkSession, folder: Path) -> None:
    keeper = Keeper(spark, str(folder / "history"), str(folder / "tables"))
    Runner(keeper).once()
    data = collect(keeper, datetime.now(UTC))
    keeper.close()
    assert (data.messages, data.offset) == (4000, 4000)
    assert data.topics == len({row["topic"] for row in ROWS})
    assert sum(number for points in data.traffic.values() for _, number in points) == 4000
    assert dict(data.refusals).keys() == {"size", "count", "budget", "policy"}
    assert data.devices
    page = build_page(data)
    assert EVIL not in page
    seen = Page()
    seen.feed(page)
    assert seen.fetched == []
    figures = page.count("Plotly.newPlot(")
    assert figures >= 7
    assert seen.scripts == figures + 2
    assert describe(data)["messages"] == 4000


def test_the_report_of_nothing_is_still_a_page(spark: SparkSession, tmp_path: Path) -> None:
    from deltalake import DeltaTable as Delta

    from holdfast.history.schema import arrow_schema

    Delta.create(tmp_path / "history", arrow_schema())
    keeper = Keeper(spark, str(tmp_path / "history"), str(tmp_path / "tables"))
    Runner(keeper).once()
    data = collect(keeper, START)
    keeper.close()
    assert data.messages == 0
    assert "Nothing to show." in build_page(data)


def test_sets_are_written_whole(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    rows = retained_at(spark, history_of(folder), None, 2000).rows
    wanted = expected(ROWS, offset=2000)
    assert write_jsonl(rows, tmp_path / "set.jsonl") == len(wanted)
    lines = [json.loads(line) for line in (tmp_path / "set.jsonl").read_text().splitlines()]
    assert {line["topic"] for line in lines} == wanted.keys()
    assert write_parquet(rows, tmp_path / "set.parquet") == len(wanted)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_bytes_that_are_not_text_are_said_in_base64() -> None:
    assert plain({"payload": bytearray(b"\xff"), "topic": "t"}) == {
        "payload": "/w==",
        "payload_encoding": "base64",
        "topic": "t",
    }


def test_an_audit_of_an_empty_set_waits_no_longer_than_history_moves(tmp_path: Path) -> None:
    """Offsets of messages that are not recorded never come."""
    history = History(write_history(tmp_path / "history", ROWS[:100]))
    wait_for(history, 5000, wait_s=1.0)
    with pytest.raises(UsageError, match=r"the broker is at offset 5000, but history .* only at 100"):
        wait_for(history, 5000, wait_s=0.5, newest=4000)
