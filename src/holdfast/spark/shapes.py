"""The tables of the pipeline by name."""

from holdfast.spark.delta import Shape
from holdfast.spark.hygiene import HYGIENE_SHAPE
from holdfast.spark.tables import DEVICES_SHAPE, INTERVALS_SHAPE, RETAINED_SHAPE, TRAFFIC_SHAPE
from holdfast.spark.topic_stats import TOPIC_STATS_SHAPE

SHAPES: dict[str, Shape] = {
    "retained": RETAINED_SHAPE,
    "retained_intervals": INTERVALS_SHAPE,
    "topic_stats": TOPIC_STATS_SHAPE,
    "device_stats": DEVICES_SHAPE,
    "traffic": TRAFFIC_SHAPE,
    "hygiene": HYGIENE_SHAPE,
}
