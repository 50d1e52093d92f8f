"""A foreign broker as a stream: `spark.readStream.format("mqtt")`.

Holdfast keeps a log and needs none of this. A broker that keeps none is received from once, into a spool on the
driver's disk, and Spark reads the spool. A package of its own, because a second durable log is no part of the product.
"""

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import StructType

from holdfast.spark.mqtt.source import MqttSource
from holdfast.spark.options import Options


class MqttStreamSource(MqttSource):
    """The data source `mqtt` with its stream; what it reads and writes as a batch is the parent's."""

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from holdfast_mqtt_stream.stream import STREAM_OPTIONS, SpoolReader

        return SpoolReader(Options(self.options, STREAM_OPTIONS, self.name()), self._columns(schema))
