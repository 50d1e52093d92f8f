"""Spark finds data sources in top-level modules named `pyspark_<name>`: this one makes `format("mqtt")` work."""

from holdfast.spark.mqtt.source import MqttSource as DefaultSource

__all__ = ["DefaultSource"]
