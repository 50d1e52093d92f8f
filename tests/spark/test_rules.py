"""The rules that Spark shares with the broker and the services: the same cases, said with columns."""

from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from holdfast.spark.hygiene import hygiene, is_discovery, state_topic
from holdfast.spark.jobs.restore import plan_restore
from holdfast.spark.tables import RETAINED_TABLE
from rule_cases import (
    COMMANDS,
    CONTENT,
    DISCOVERIES,
    GHOSTS,
    HELD,
    NO_COMMANDS,
    NO_DISCOVERIES,
    NOW_MS,
    RESTORES,
    STATE_TOPICS,
    Held,
)

NOW = datetime.fromtimestamp(NOW_MS / 1000, UTC)


def retained(spark: SparkSession, rows: list[dict[str, Any]]) -> Any:
    names = RETAINED_TABLE.schema.names
    return spark.createDataFrame([tuple(row.get(name) for name in names) for row in rows], RETAINED_TABLE.ddl)


def held(one: Held) -> dict[str, Any]:
    return {
        "offset": 1,
        "timestamp": NOW - timedelta(days=one.days),
        "topic": one.topic,
        "payload": b"1",
        "qos": 0,
        "client_id": one.client_id,
        "protocol": one.protocol,
    }


def test_ghosts_and_commands_are_those_of_the_rule(spark: SparkSession) -> None:
    rows = [held(one) for one in (*HELD, *(Held(topic, 0, "c") for topic in [*COMMANDS, *NO_COMMANDS]))]
    found = hygiene(retained(spark, rows), NOW).collect()
    assert {row.topic for row in found if row.kind == "ghost"} == GHOSTS
    assert {row.topic for row in found if row.kind == "command"} == set(COMMANDS)


def test_discovery_topics_are_those_of_the_rule(spark: SparkSession) -> None:
    topics = [*DISCOVERIES, *NO_DISCOVERIES]
    frame = spark.createDataFrame([(topic,) for topic in topics], "topic string")
    assert {row.topic for row in frame.where(is_discovery(F.col("topic"))).collect()} == set(DISCOVERIES)


def test_state_topics_are_those_of_the_rule(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(payload,) for payload, _ in STATE_TOPICS], "config binary")
    found = frame.select(F.coalesce(state_topic(F.col("config")), F.lit("")).alias("state")).collect()
    assert [row.state for row in found] == [expected for _, expected in STATE_TOPICS]


def test_a_discovery_may_name_a_hidden_state(spark: SparkSession) -> None:
    config = {**held(Held("homeassistant/sensor/a/config", 0, "c")), "payload": b'{"stat_t": "$hidden/1"}'}
    lost = hygiene(retained(spark, [config]), NOW).where("kind = 'discovery'").count()
    there = hygiene(retained(spark, [config, held(Held("$hidden/1", 0, "c"))]), NOW).where("kind = 'discovery'")
    assert (lost, there.count()) == (1, 0)


def test_a_restore_is_planned_by_the_rule(spark: SparkSession) -> None:
    past, present = [], []
    for case in RESTORES:
        expires_at = None if case.left_ms is None else NOW + timedelta(milliseconds=case.left_ms)
        row = {**held(Held(case.name, 1, "c")), **CONTENT}
        past.append({**row, "expires_at": expires_at})
        if case.present:
            present.append({**row, **case.changed})
    plan = plan_restore(retained(spark, past), retained(spark, present), NOW)
    assert {row.topic for row in plan.rows.collect()} == {one.name for one in RESTORES if one.replacing == "restored"}
    assert plan.same == sum(one.replacing == "present" for one in RESTORES)
