"""Spark finds data sources in top-level modules named `pyspark_<name>`: this one makes `format("mqtt")` work."""

from holdfast_mqtt_stream import MqttStreamSource as DefaultSource

__all__ = ["DefaultSource"]
