"""Spark finds data sources in top-level modules named `pyspark_<name>`: this one makes `format("holdfast")` work."""

from holdfast.spark.source import HoldfastSource as DefaultSource

__all__ = ["DefaultSource"]
