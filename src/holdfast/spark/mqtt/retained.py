"""`spark.read.format("mqtt")`: the retained set of any broker, complete or an error.

Where the broker can say that a snapshot is complete (Holdfast does, when asked at CONNECT), its word and its count are
what ends the read. A topic that changes before its turn is not in such a snapshot, its change comes as a live message
instead; so the reader asks again for what changed since, and in the end for single topics, until it knows of every one.
Elsewhere nothing on the wire marks the end; then a quiet period after the last message does, and how long that is is an
option.
"""

import json
import time
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import paho.mqtt.client as paho
import pyarrow as pa
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from pyspark.sql.datasource import DataSourceReader, InputPartition

from holdfast.errors import ProtocolError
from holdfast.spark.mqtt.connection import BROKER_OPTIONS, BrokerOptions, PahoConnection, batch_of, row_of
from holdfast.spark.options import Options
from holdfast.spark.topics import TopicFilter

RETAINED_OPTIONS = (*BROKER_OPTIONS, "quietPeriod", "timeout")
END_TOPIC = "$holdfast/snapshot/end"
ASKING = (("holdfast-snapshot", "mark"), ("holdfast-retained-meta", "on"))
BATCH_ROWS = 4096
PASSES = 20
# So few topics are asked for one by one.
FEW = 100


class ReceivedSnapshot:
    """The messages of one retained set as they come in, and whether they are all."""

    def __init__(self, topic_filter: str, version: int) -> None:
        self.topic_filter, self.version = topic_filter, version
        self.rows: list[dict[str, Any]] = []
        self.received = 0
        self.last_at = time.monotonic()
        self.end: dict[str, Any] | None = None
        self.changed: set[str] = set()
        # a broker that says where a copy comes from will also say when it has sent all of them
        self.marks = False

    def add(self, message: paho.MQTTMessage) -> None:
        if self.complete():
            return
        if message.topic == END_TOPIC:
            end = json.loads(message.payload)
            if end.get("filter") == self.topic_filter:
                self.end = end
        elif message.retain:
            self.last_at = time.monotonic()
            self.received += 1
            row = row_of(message, self.version)
            self.marks = self.marks or row["offset"] is not None
            self.rows.append(row)
        else:  # a live message on the same subscription has RETAIN 0 [5: MQTT-3.3.1-12]
            self.changed.add(message.topic)

    def complete(self) -> bool:
        """By the broker's word. Its mark is QoS 0 and may overtake messages whose QoS 2 exchange is still going on."""
        return self.end is not None and self.received >= self.end["count"]

    def waits(self, quiet: float) -> bool:
        """Whether there is more to come, as far as one can tell."""
        return not self.complete() and (self.marks or time.monotonic() - self.last_at < quiet)

    def pop_rows(self) -> list[dict[str, Any]]:
        rows, self.rows = self.rows, []
        return rows


class RetainedReader(DataSourceReader):
    def __init__(self, options: Options, columns: list[str]) -> None:
        self.columns = columns
        self.broker = BrokerOptions(options)
        self.topic_filter = TopicFilter(options.text("topic", "filter", "subscribe") or "#").text
        # QoS 0 by default: other brokers count a snapshot of QoS 1 against a queue limit and silently drop the rest
        self.qos = options.number("QoS", default=0, most=2) or 0
        self.quiet = options.seconds("quietPeriod", default=2.0)
        self.timeout = options.seconds("timeout", default=600.0)

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for rows, _end in read_snapshot(self.broker, self.topic_filter, self.qos, self.quiet, self.timeout):
            if rows:
                yield batch_of(rows, self.columns)


Rows = list[dict[str, Any]]


def read_snapshot(
    options: BrokerOptions, topic_filter: str, qos: int, quiet: float, timeout: float
) -> Iterator[tuple[Rows, dict[str, Any] | None]]:
    """Yields rows as they come; with the last of them what the broker said at the end, None if it says nothing."""
    reader = _Passes(options, qos, quiet, timeout)
    since: int | None = None
    for _ in range(PASSES):
        snapshot, rows = yield from reader.read(topic_filter, since)
        missing = snapshot.changed - reader.seen
        if snapshot.end is not None and since is not None and len(missing) <= FEW:
            # most likely they are not retained at all, and are published without end: each is asked for by itself
            for topic in sorted(missing):
                rows += yield from reader.read_one(topic)
            missing = set()
        if snapshot.end is None or not missing:
            yield rows, snapshot.end
            return
        yield rows, None
        since = int(snapshot.end["version"])
    raise ProtocolError(f"topics of {topic_filter!r} changed each of {PASSES} times that the retained set was read")


class _Passes:
    """One read of a retained set, in as many goes as it takes. Each topic is given out once."""

    def __init__(self, options: BrokerOptions, qos: int, quiet: float, timeout: float) -> None:
        self.options, self.qos, self.quiet, self.timeout = options, qos, quiet, timeout
        self.deadline = time.monotonic() + timeout
        self.seen: set[str] = set()

    def read(
        self, topic_filter: str, since: int | None
    ) -> Generator[tuple[Rows, None], None, tuple[ReceivedSnapshot, Rows]]:
        """Yields the retained set, or what has changed of it since; the last of its rows are returned."""
        connection = PahoConnection(self.options, user_properties=ASKING)
        snapshot = ReceivedSnapshot(topic_filter, connection.version)
        connection.on_message = snapshot.add
        try:
            connection.subscribe(topic_filter, self.qos, properties=None if since is None else changed_since(since))
            for rows in _arriving(connection, snapshot, self.quiet, self.deadline, self.timeout):
                yield _new(rows, self.seen), None
        finally:
            connection.close()
        return snapshot, _new(snapshot.pop_rows(), self.seen)

    def read_one(self, topic: str) -> Generator[tuple[Rows, None], None, Rows]:
        """Returns the retained message of one topic, if it has one."""
        for _ in range(PASSES):
            snapshot, rows = yield from self.read(topic, None)
            if rows or topic not in snapshot.changed:
                return rows
        raise ProtocolError(f"{topic!r} changed each of {PASSES} times that its retained message was asked for")


def changed_since(version: int) -> Properties:
    """Returns what asks a broker of ours for what has changed since this version of the retained set, deletions
    included.
    """
    asked = Properties(PacketTypes.SUBSCRIBE)
    asked.UserProperty = [("holdfast-since", str(version))]
    return asked


def _new(rows: list[dict[str, Any]], seen: set[str]) -> list[dict[str, Any]]:
    """Each topic once: what changed after it was read is another read's business. An empty payload is a deletion."""
    found = [row for row in rows if row["topic"] not in seen and row["payload"]]
    seen.update(row["topic"] for row in found)
    return found


def _arriving(
    connection: PahoConnection, snapshot: ReceivedSnapshot, quiet: float, deadline: float, timeout: float
) -> Iterator[list[dict[str, Any]]]:
    """Polls the connection until the snapshot is complete, handing out full batches on the way."""
    where = f"{snapshot.topic_filter!r} at {connection.options.address}"
    snapshot.last_at = time.monotonic()
    while snapshot.waits(quiet):
        if time.monotonic() > deadline:
            raise ProtocolError(
                f"the retained set of {where} was not complete after {timeout:g} s and {snapshot.received} messages; "
                "raise option 'timeout'",
                0x88,
            )
        connection.poll(min(0.1, quiet / 2))
        if len(snapshot.rows) >= BATCH_ROWS:
            yield snapshot.pop_rows()
    if snapshot.end is not None and snapshot.end["count"] != snapshot.received:
        raise ProtocolError(f"expected {snapshot.end['count']} retained messages of {where}, got {snapshot.received}")
