"""`df.write.format("mqtt")` and `writeStream`: rows as publishes, at least once, in order for each topic.

Each task has one connection, sends its rows in the order they come, keeps a window of QoS 1 publishes in flight and
reads every reason code. Tasks run side by side, so a topic must be in one task only: `by_topic` sees to that, and a
batch in which two tasks wrote the same topic is failed rather than left with a value that chance decided.
"""

import hashlib
import json
import os
import time
import uuid
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import paho.mqtt.client as paho
import pyarrow as pa
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from holdfast.errors import ProtocolError, UsageError
from holdfast.rules.restore import seconds_left
from holdfast.spark.mqtt.connection import BROKER_OPTIONS, BrokerOptions, PahoConnection
from holdfast.spark.options import Options

SINK_OPTIONS = (
    *BROKER_OPTIONS,
    "retain",
    "window",
    "deadLetterPath",
    "commitPath",
    "order",
    "batchProperty",
    "checkpointLocation",
)
COLUMNS = {
    "topic": ("string",),
    "payload": ("binary", "string"),
    "qos": ("tinyint", "smallint", "int", "bigint"),
    "retain": ("boolean",),
    "content_type": ("string",),
    "response_topic": ("string",),
    "correlation_data": ("binary",),
    "payload_format": ("tinyint", "smallint", "int", "bigint"),
    "expires_at": ("timestamp",),
    "message_expiry_interval": ("int", "bigint"),
    "user_properties": ("array<struct<key:string,value:string>>", "map<string,string>"),
}
LEAST_WAIT_S = 30.0


def by_topic(rows: DataFrame, order: str = "offset", partitions: int | None = None) -> DataFrame:
    """Rows laid out so that the sink keeps each topic's order: all of a topic in one task, sorted."""
    laid = rows.repartition(partitions, "topic") if partitions else rows.repartition("topic")
    return laid.sortWithinPartitions(order) if order in rows.columns else laid


class Written(NamedTuple):
    """What one task has to say: its batch, how many rows, how many refused, and its topics as eight bytes each."""

    batch: str
    rows: int
    refused: int
    topics: bytes


class Done(WriterCommitMessage):
    def __init__(self, written: Written) -> None:
        self.written = written


class Publishing:
    """The options of a sink, checked against the columns. Picklable: the work happens in executors."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self.broker = BrokerOptions(options)
        self.columns = self._check(schema)
        self.topic = options.text("topic")
        if self.topic is None and "topic" not in self.columns:
            raise UsageError("format 'mqtt' needs a column 'topic', or option 'topic' for all rows")
        if "payload" not in self.columns:
            raise UsageError(f"format 'mqtt' needs a column 'payload', got {', '.join(schema.names)}")
        self.qos = options.number("QoS", default=1, most=2)
        self.retain = options.flag("retain", default=False)
        self.window = options.number("window", default=1000, least=1, most=65535) or 1
        self.dead_letters = options.text("deadLetterPath")
        self.commits = options.text("commitPath")
        order = options.text("order") or "topic"
        if order not in ("topic", "any"):
            raise UsageError(f"option 'order': expected topic or any, got {order!r}")
        self.ordered = order == "topic"
        self.batch_property = options.flag("batchProperty", default=True)
        # names this write where there is no stream to name it
        self.name = uuid.uuid4().hex

    def _check(self, schema: StructType) -> list[str]:
        found = []
        for field in schema.fields:
            kinds = COLUMNS.get(field.name)
            kind = field.dataType.simpleString()
            if kinds is None:
                continue  # columns that MQTT has no place for, such as offset, are for the reader of the frame
            if kind not in kinds:
                raise UsageError(f"column {field.name!r} for format 'mqtt': expected {' or '.join(kinds)}, got {kind}")
            found.append(field.name)
        return found

    def publish(self, batches: Iterator[pa.RecordBatch]) -> Done:
        batch_id = _batch_of_this_task(self.name)
        if self.commits is not None and (Path(self.commits) / batch_id).exists():
            for _ in batches:
                pass
            return Done(Written(batch_id, 0, 0, b""))
        outgoing = _Outgoing(self, batch_id)
        try:
            for batch in batches:
                outgoing.send(batch.to_pylist())
            return Done(outgoing.finish())
        finally:
            outgoing.close()

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        written = [message.written for message in messages if isinstance(message, Done)]
        if self.ordered:
            _check_disjoint([task.topics for task in written])
        if self.commits is not None and written:
            batch = written[0].batch
            folder = Path(self.commits)
            folder.mkdir(parents=True, exist_ok=True)
            note = {"rows": sum(task.rows for task in written), "refused": sum(task.refused for task in written)}
            part = folder / f".{batch}.{uuid.uuid4().hex}"
            part.write_text(json.dumps(note))
            os.replace(part, folder / batch)


def _batch_of_this_task(name: str) -> str:
    """The same for every attempt at a batch: the query's name for itself and the batch number."""
    context = TaskContext.get()
    number = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
    query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
    return f"{query or name}-{number}" if number is not None else name


def _check_disjoint(topics: list[bytes]) -> None:
    seen: set[bytes] = set()
    for packed in topics:
        mine = {packed[at : at + 8] for at in range(0, len(packed), 8)}
        if not seen.isdisjoint(mine):
            raise UsageError(
                "the same topic was written by two tasks, so which of its messages came last was chance: lay the rows "
                "out with holdfast.spark.by_topic(df), fold them first, or set option order=any if it does not matter"
            )
        seen |= mine


class _Outgoing:
    """One task's connection: rows go out up to the window, answers come in, refusals are kept with their rows."""

    def __init__(self, plan: Publishing, batch_id: str) -> None:
        self.plan, self.batch_id = plan, batch_id
        self.connection = PahoConnection(plan.broker, window=plan.window)
        self.connection.on_published = self._answered
        self.waiting: dict[int, dict[str, Any]] = {}
        self.refused: deque[tuple[dict[str, Any], str]] = deque()
        self.rows = 0
        self.turned_down = 0
        self.topics: set[bytes] = set()
        self.letters: list[dict[str, Any]] = []

    def send(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            self._send(row)
        self._handle_refused()

    def _send(self, row: dict[str, Any]) -> None:
        topic = row.get("topic") or self.plan.topic or ""
        payload = row["payload"]
        data = payload.encode() if isinstance(payload, str) else bytes(payload or b"")
        qos = row.get("qos") if row.get("qos") is not None else self.plan.qos
        retain = row.get("retain") if row.get("retain") is not None else self.plan.retain
        self.rows += 1
        self.topics.add(hashlib.blake2b(topic.encode(), digest_size=8).digest())
        try:
            info = self.connection.client.publish(topic, data, int(qos or 0), bool(retain), self._properties(row))
        except (ValueError, TypeError) as error:
            self.refused.append((row, str(error)))
            self._handle_refused()
            return
        if qos:
            self.waiting[info.mid] = row
        while len(self.waiting) >= self.connection.window:
            self.connection.poll(1.0)
            self._handle_refused()

    def _properties(self, row: dict[str, Any]) -> Properties | None:
        if self.connection.version != paho.MQTTv5:
            return None
        found = Properties(PacketTypes.PUBLISH)
        if row.get("content_type") is not None:
            found.ContentType = row["content_type"]
        if row.get("response_topic") is not None:
            found.ResponseTopic = row["response_topic"]
        if row.get("correlation_data") is not None:
            found.CorrelationData = bytes(row["correlation_data"])
        if row.get("payload_format") is not None:
            found.PayloadFormatIndicator = int(row["payload_format"])
        expiry = row.get("message_expiry_interval")
        if expiry is None and row.get("expires_at") is not None:
            expiry = seconds_left(round(row["expires_at"].timestamp() * 1000), round(time.time() * 1000))
        if expiry is not None:
            found.MessageExpiryInterval = int(expiry)
        pairs = row.get("user_properties") or []
        named = [(pair["key"], pair["value"]) if isinstance(pair, dict) else tuple(pair) for pair in pairs]
        if self.plan.batch_property:
            named.append(("batch", self.batch_id))
        if named:
            found.UserProperty = named
        return found

    def _answered(self, mid: int, reason: ReasonCode) -> None:
        row = self.waiting.pop(mid, None)  # none: a QoS 0 message has gone out
        if row is not None and reason.is_failure:
            self.refused.append((row, str(reason)))

    def _handle_refused(self) -> None:
        """Fails the batch for a refused row, or puts the row aside where the user asked for that."""
        while self.refused:
            row, why = self.refused.popleft()
            topic = row.get("topic") or self.plan.topic
            if self.plan.dead_letters is None:
                raise ProtocolError(
                    f"the broker at {self.plan.broker.address} refused a message on {topic!r}: {why}", 0x80
                )
            self.turned_down += 1
            self.letters.append({**row, "topic": topic, "reason": why})

    def finish(self) -> Written:
        deadline = time.monotonic() + max(LEAST_WAIT_S, self.plan.broker.timeout)
        while self.waiting or self.connection.client.want_write():
            if time.monotonic() > deadline:
                raise ProtocolError(
                    f"{len(self.waiting)} messages were not acknowledged by {self.plan.broker.address}", 0x88
                )
            before = len(self.waiting)
            self.connection.poll(0.2)
            if len(self.waiting) < before:
                deadline = time.monotonic() + max(LEAST_WAIT_S, self.plan.broker.timeout)
        self._handle_refused()
        if self.letters:
            self._keep_letters()
        return Written(self.batch_id, self.rows, self.turned_down, b"".join(self.topics))

    def _keep_letters(self) -> None:
        import pyarrow.parquet as pq

        folder = Path(str(self.plan.dead_letters))
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(self.letters), folder / f"{self.batch_id}-{uuid.uuid4().hex}.parquet")

    def close(self) -> None:
        self.connection.close()


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, plan: Publishing) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._plan.publish(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._plan.commit(messages)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, plan: Publishing) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._plan.publish(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._plan.commit(messages)
