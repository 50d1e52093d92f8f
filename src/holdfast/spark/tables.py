"""The tables of the pipeline: six values. A seventh is one more entry here."""

from functools import partial
from typing import Final

from holdfast.spark.counts import DEVICES_SCHEMA, TRAFFIC_SCHEMA, devices_after, traffic_after
from holdfast.spark.derived import DerivedTable
from holdfast.spark.hygiene import HYGIENE_SCHEMA, hygiene
from holdfast.spark.succession import (
    CHANGED,
    INTERVALS_SCHEMA,
    KIND,
    RETAINED,
    RETAINED_SCHEMA,
    intervals_after,
    retained_after,
)
from holdfast.spark.topic_stats import PUBLISHER_BIT, TOPIC_STATS_SCHEMA, topic_stats_after
from holdfast.spark.topics import TopicTemplate, literal

DEFAULT_TEMPLATE: Final = "site/{site}/line/{line}/{device}/#"
_CHANGES: Final = {**{name: f"`{name}`" for name in RETAINED}, "kind": KIND}
_SUMS: Final = {"messages": "count(*)", "bytes": "cast(sum(length(payload)) AS long)"}

RETAINED_TABLE: Final = DerivedTable(
    "retained", RETAINED_SCHEMA, ("topic",), retained_after, takes=_CHANGES, where=CHANGED, eager=True
)
INTERVALS_TABLE: Final = DerivedTable(
    "retained_intervals",
    INTERVALS_SCHEMA,
    ("topic", "offset"),
    intervals_after,
    takes=_CHANGES,
    where=CHANGED,
    ended="to_offset",
)
TOPIC_STATS_TABLE: Final = DerivedTable(
    "topic_stats",
    TOPIC_STATS_SCHEMA,
    ("topic",),
    topic_stats_after,
    takes={
        **{name: f"`{name}`" for name in ("topic", "offset", "timestamp")},
        "kind": KIND,
        "size": "length(payload)",
        "bit": PUBLISHER_BIT,
    },
)
TRAFFIC_TABLE: Final = DerivedTable(
    "traffic",
    TRAFFIC_SCHEMA,
    ("minute", "outcome", "protocol"),
    traffic_after,
    takes={"minute": "date_trunc('MINUTE', timestamp)", "outcome": "outcome", "protocol": "protocol"},
    groups=_SUMS,
)
HYGIENE_TABLE: Final = DerivedTable("hygiene", HYGIENE_SCHEMA, ("kind", "topic"), hygiene, of="retained")


def device_stats(template: TopicTemplate) -> DerivedTable:
    """Each device's hours. A device is the named levels of a topic, joined.

    Messages are counted by the levels that decide, as they stand; what they are is asked once for each of them.
    """
    depth = template.prefix.count("/") + 1
    return DerivedTable(
        "device_stats",
        DEVICES_SCHEMA,
        ("hour", "device"),
        partial(devices_after, template=template),
        takes={
            "hour": "date_trunc('HOUR', timestamp)",
            "prefix": f"substring_index(topic, '/', {depth})" if template.filter.subtree else "topic",
        },
        where=f"startswith(topic, {literal(template.stem)})",
        groups={
            **_SUMS,
            "sets": "count_if(outcome = 'set')",
            "refused": "count_if(startswith(outcome, 'refused'))",
            "first_seen": "min(timestamp)",
            "last_seen": "max(timestamp)",
        },
        rule=template.text,
    )


def pipeline_tables(template: str = DEFAULT_TEMPLATE) -> tuple[DerivedTable, ...]:
    """The tables, with this template of a device's topics."""
    return (
        RETAINED_TABLE,
        INTERVALS_TABLE,
        TOPIC_STATS_TABLE,
        device_stats(TopicTemplate(template)),
        TRAFFIC_TABLE,
        HYGIENE_TABLE,
    )


TABLES: Final = {table.name: table for table in pipeline_tables()}
# Those that follow history row by row, rather than another table.
FOLLOWING: Final = tuple(name for name, table in TABLES.items() if not table.of)
