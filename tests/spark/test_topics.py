"""The same filter, asked in Python, in Arrow and in Spark, says the same as a naive matcher written for this test."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from holdfast.errors import UsageError
from holdfast.spark.topics import TopicFilter, TopicTemplate, literal

LEVELS = ("", "a", "b", "$x", "größe", "a.b", "new\nline")
FILTERS = [
    "#", "+", "a", "/", "/#", "+/+", "a/#", "a/+", "+/a", "$x/#", "$x/+", "a/+/b", "a/+/#", "+/#", "a.b", "+/+/+",
    "größe/#",
]  # fmt: skip


def naive(topic_filter: str, topic: str) -> bool:
    if topic[0:1] == "$" and topic_filter[0] in "+#":
        return False
    mine, theirs = topic_filter.split("/"), topic.split("/")
    while mine and theirs and mine[0] != "#":
        if mine[0] not in ("+", theirs[0]):
            return False
        mine, theirs = mine[1:], theirs[1:]
    return mine == ["#"] or (not mine and not theirs)


def all_topics() -> list[str]:
    topics = [one for one in LEVELS if one]
    topics += [f"{one}/{two}" for one in LEVELS for two in LEVELS]
    return topics + [f"{one}/{two}/{three}" for one in LEVELS for two in LEVELS for three in ("", "b")]


@pytest.mark.parametrize("text", FILTERS)
def test_filter_agrees_with_a_naive_matcher_in_python_and_arrow(text: str) -> None:
    topics = all_topics()
    expected = [naive(text, topic) for topic in topics]
    topic_filter = TopicFilter(text)
    assert [topic_filter.matches(topic) for topic in topics] == expected
    assert topic_filter.mask(pa.array(topics)).to_pylist() == expected


@given(st.lists(st.sampled_from([*LEVELS, "+"]), min_size=1, max_size=4), st.booleans(), st.sampled_from(all_topics()))
def test_random_filters_agree_with_a_naive_matcher(levels: list[str], subtree: bool, topic: str) -> None:
    text = "/".join([*levels, "#"] if subtree else levels)
    if not text:
        return
    assert TopicFilter(text).matches(topic) == naive(text, topic)
    assert TopicFilter(text).mask(pa.array([topic])).to_pylist() == [naive(text, topic)]


def test_filter_agrees_with_a_naive_matcher_in_spark(spark: SparkSession) -> None:
    topics = all_topics()
    frame = spark.createDataFrame([(topic,) for topic in topics], "topic string")
    frame = frame.select(
        "topic",
        *(TopicFilter(text).column(F.col("topic")).alias(f"f{i}") for i, text in enumerate(FILTERS)),
        *(F.expr(TopicFilter(text).sql()).alias(f"sql{i}") for i, text in enumerate(FILTERS)),
    )
    for row in frame.collect():
        for i, text in enumerate(FILTERS):
            assert row[f"f{i}"] == row[f"sql{i}"] == naive(text, row.topic), (text, row.topic)


def test_a_text_is_the_same_in_sql(spark: SparkSession) -> None:
    for text in ("it's", "a\\b", "\\'", "new\nline", "größe"):
        [row] = spark.range(1).select(F.expr(literal(text)).alias("text")).collect()
        assert row.text == text


@pytest.mark.parametrize("text", ["", "a/#/b", "a#", "a/b+", "$share/g/a"])
def test_a_bad_filter_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected"):
        TopicFilter(text)


def test_a_template_names_levels(spark: SparkSession) -> None:
    template = TopicTemplate("site/{site}/line/{line}/{device}/#")
    assert template.filter.text == "site/+/line/+/+/#"
    assert (template.prefix, template.stem) == ("site/+/line/+/+", "site/")
    frame = spark.createDataFrame([("site/4/line/2/dev7/temp",)], "topic string")
    [row] = frame.select(*(column.alias(name) for name, column in template.fields(F.col("topic")).items())).collect()
    assert row.asDict() == {"site": "4", "line": "2", "device": "dev7"}


@pytest.mark.parametrize("text", ["site/device/#", "a/{b}/{b}", "a/{b c}/#"])
def test_a_bad_template_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected"):
        TopicTemplate(text)
