"""`spark.read.format("mqtt")`: the retained set of any broker, complete or an error.

Where the broker can say that a snapshot is complete (Holdfast does, when asked at CONNECT), its word and its count are
what ends the read. Elsewhere nothing on the wire marks the end; then a quiet period after the last message does, and
how long that is is an option.
"""

import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

import paho.mqtt.client as paho
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from holdfast.errors import ProtocolError
from holdfast.spark.mqtt.link import LINK_OPTIONS, Link, LinkOptions
from holdfast.spark.mqtt.rows import batch_of, row_of
from holdfast.spark.options import Options
from holdfast.spark.topics import TopicFilter

RETAINED_OPTIONS = (*LINK_OPTIONS, "quietPeriod", "timeout")
END_TOPIC = "$holdfast/snapshot/end"
ASKING = (("holdfast-snapshot", "mark"), ("holdfast-retained-meta", "on"))
BATCH_ROWS = 4096


class Snapshot:
    """The messages of one retained set as they come in, and whether they are all."""

    def __init__(self, topic_filter: str, version: int) -> None:
        self.topic_filter, self.version = topic_filter, version
        self.rows: list[dict[str, Any]] = []
        self.received = 0
        self.last_at = time.monotonic()
        self.end: dict[str, Any] | None = None

    def add(self, message: paho.MQTTMessage) -> None:
        if message.topic == END_TOPIC:
            end = json.loads(message.payload)
            if end.get("filter") == self.topic_filter:
                self.end = end
        elif message.retain:  # a live message on the same subscription has RETAIN 0 [5: MQTT-3.3.1-12]
            self.last_at = time.monotonic()
            self.received += 1
            self.rows.append(row_of(message, self.version))

    def complete(self) -> bool:
        """By the broker's word. Its mark is QoS 0 and may overtake messages whose QoS 2 exchange is still going on."""
        return self.end is not None and self.received >= self.end["count"]

    def take(self) -> list[dict[str, Any]]:
        rows, self.rows = self.rows, []
        return rows


class RetainedReader(DataSourceReader):
    def __init__(self, options: Options, columns: list[str]) -> None:
        self.columns = columns
        self.link = LinkOptions(options)
        self.topic_filter = TopicFilter(options.text("topic", "filter", "subscribe") or "#").text
        # QoS 0 by default: other brokers count a snapshot of QoS 1 against a queue limit and silently drop the rest
        self.qos = options.number("QoS", default=0, most=2) or 0
        self.quiet = options.seconds("quietPeriod", default=2.0)
        self.timeout = options.seconds("timeout", default=600.0)

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for rows, _end in read_snapshot(self.link, self.topic_filter, self.qos, self.quiet, self.timeout):
            if rows:
                yield batch_of(rows, self.columns)


def read_snapshot(
    options: LinkOptions, topic_filter: str, qos: int, quiet: float, timeout: float
) -> Iterator[tuple[list[dict[str, Any]], dict[str, Any] | None]]:
    """Rows as they come; with the last of them what the broker said at the end, None from one that says nothing."""
    link = Link(options, user_properties=ASKING)
    snapshot = Snapshot(topic_filter, link.version)
    link.on_message = snapshot.add
    try:
        link.subscribe(topic_filter, qos)
        snapshot.last_at = time.monotonic()
        deadline = snapshot.last_at + timeout
        while not snapshot.complete() and time.monotonic() - snapshot.last_at < quiet:
            if time.monotonic() > deadline:
                raise ProtocolError(
                    f"the retained set of {topic_filter!r} at {options.address} was not complete after {timeout:g} s "
                    f"and {snapshot.received} messages; raise option 'timeout'",
                    0x88,
                )
            link.turn(min(0.1, quiet / 2))
            if len(snapshot.rows) >= BATCH_ROWS:
                yield snapshot.take(), None
        if snapshot.end is not None and snapshot.end["count"] != snapshot.received:
            raise ProtocolError(
                f"expected {snapshot.end['count']} retained messages of {topic_filter!r} from {options.address}, "
                f"got {snapshot.received}"
            )
        yield snapshot.take(), snapshot.end
    finally:
        link.close()
