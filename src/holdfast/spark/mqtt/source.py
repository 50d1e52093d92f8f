"""The data source `mqtt`: retained sets as a batch, rows as publishes.

Its stream is `holdfast_mqtt_stream`, which adds itself to this class; `pyspark_mqtt` registers both as one.
"""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from holdfast.errors import UsageError
from holdfast.history.schema import COLUMNS
from holdfast.spark.options import Options


class MqttSource(DataSource):
    """paho and Arrow are loaded when a reader or a writer is made: registering must work without them."""

    @classmethod
    def name(cls) -> str:
        return "mqtt"

    def schema(self) -> str:
        return ", ".join(f"{name} {kind}" for name, kind in COLUMNS)

    def _columns(self, schema: StructType) -> list[str]:
        known = dict(COLUMNS)
        for name in schema.names:
            if name not in known:
                raise UsageError(f"format 'mqtt' has no column {name!r}; it has {', '.join(known)}")
        return list(schema.names)

    def reader(self, schema: StructType) -> DataSourceReader:
        from holdfast.spark.mqtt.retained import RETAINED_OPTIONS, RetainedReader

        return RetainedReader(Options(self.options, RETAINED_OPTIONS, self.name()), self._columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from holdfast.spark.mqtt.sink import SINK_OPTIONS, BatchWriter, Publishing

        return BatchWriter(Publishing(Options(self.options, SINK_OPTIONS, self.name()), schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from holdfast.spark.mqtt.sink import SINK_OPTIONS, Publishing, StreamWriter

        return StreamWriter(Publishing(Options(self.options, SINK_OPTIONS, self.name()), schema))
