"""What each table of the pipeline holds and how a batch of history changes it. Functions of DataFrames only.

`*_SHAPE` names the columns; `*_after(old, batch)` gives the rows that take the place of `old`. A merge must be exact
however history was cut into batches: that is what the tests compare.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from holdfast.history.schema import COLUMNS, OUTCOME_SET
from holdfast.spark.delta import Shape
from holdfast.spark.fold import RETAINED_COLUMNS
from holdfast.spark.topics import TopicTemplate

_TYPES = dict(COLUMNS)
RETAINED_SHAPE = Shape(tuple((name, _TYPES[name]) for name in RETAINED_COLUMNS), key="topic")
INTERVALS_SHAPE = Shape(
    (*RETAINED_SHAPE.columns, ("valid_from", "timestamp"), ("valid_to", "timestamp"), ("to_offset", "long")),
    key="topic",
    ended="to_offset",
)
TRAFFIC_SHAPE = Shape(
    (
        ("minute", "timestamp"),
        ("outcome", "string"),
        ("protocol", "string"),
        ("messages", "long"),
        ("bytes", "long"),
    ),
    key="minute",
)
DEVICES_SHAPE = Shape(
    (
        ("hour", "timestamp"),
        ("device", "string"),
        ("fields", "map<string,string>"),
        ("messages", "long"),
        ("bytes", "long"),
        ("sets", "long"),
        ("refused", "long"),
        ("first_seen", "timestamp"),
        ("last_seen", "timestamp"),
    ),
    key="hour",
)


def traffic(batch: DataFrame) -> DataFrame:
    """Messages and bytes of each minute, by outcome and protocol."""
    return batch.groupBy(F.date_trunc("minute", "timestamp").alias("minute"), "outcome", "protocol").agg(
        F.count("*").alias("messages"), F.sum(F.length("payload")).cast("long").alias("bytes")
    )


def traffic_after(old: DataFrame, new: DataFrame) -> DataFrame:
    return (
        old.unionByName(new)
        .groupBy("minute", "outcome", "protocol")
        .agg(F.sum("messages").alias("messages"), F.sum("bytes").alias("bytes"))
    )


def devices(batch: DataFrame, template: TopicTemplate) -> DataFrame:
    """What each message of a device of the template adds to its hour. A device is its named levels, joined."""
    rows = batch.where(template.filter.column(F.col("topic")))
    return rows.select(
        F.date_trunc("hour", "timestamp").alias("hour"),
        F.concat_ws("/", *template.fields(F.col("topic")).values()).alias("device"),
        F.lit(1).cast("long").alias("messages"),
        F.length("payload").cast("long").alias("bytes"),
        (F.col("outcome") == OUTCOME_SET).cast("long").alias("sets"),
        F.col("outcome").startswith("refused").cast("long").alias("refused"),
        F.col("timestamp").alias("first_seen"),
        F.col("timestamp").alias("last_seen"),
    )


def devices_after(old: DataFrame, new: DataFrame, template: TopicTemplate) -> DataFrame:
    merged = (
        old.drop("fields")
        .unionByName(new)
        .groupBy("hour", "device")
        .agg(
            *(F.sum(name).alias(name) for name in ("messages", "bytes", "sets", "refused")),
            F.min("first_seen").alias("first_seen"),
            F.max("last_seen").alias("last_seen"),
        )
    )
    return merged.withColumn("fields", _named(template))


def _named(template: TopicTemplate) -> Column:
    """A level holds no slash, so the device's own name gives its levels back."""
    levels = F.split("device", "/")
    return F.create_map(
        *(part for place, name in enumerate(template.names) for part in (F.lit(name), F.get(levels, F.lit(place))))
    )
