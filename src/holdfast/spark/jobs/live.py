"""The retained set of a running broker as of one offset, although the broker goes on changing.

A snapshot is the set at one version, less the topics that changed before their turn: those reach the reader as live
messages. So the reader asks again, on a new connection, for what changed since that version (`holdfast-since`), until
an answer comes in which nothing changed meanwhile. Each answer is smaller than the one before.
"""

import json
import time
from typing import Any, NamedTuple

import paho.mqtt.client as paho
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from holdfast.errors import ProtocolError
from holdfast.history.schema import arrow_schema
from holdfast.spark.mqtt.connection import BrokerOptions, PahoConnection, batch_of, row_of
from holdfast.spark.mqtt.retained import ASKING, END_TOPIC, changed_since

PASSES = 20
LONGEST_S = 120.0
BATCH_ROWS = 4096


class Live(NamedTuple):
    rows: DataFrame
    version: int | None
    begun_s: float
    ended_s: float
    messages: int


class _Pass:
    """One answer: retained copies as rows, deletions, and topics that changed before their turn."""

    def __init__(self, version: int) -> None:
        self.protocol = version
        self.rows: list[dict[str, Any]] = []
        self.batches: list[pa.RecordBatch] = []
        self.deleted: set[str] = set()
        self.overtaken: set[str] = set()
        self.end: dict[str, Any] | None = None
        self.received = 0
        self.marks = False  # such a broker says when it has sent all, however long that takes
        self.last_at = time.monotonic()

    def add(self, message: paho.MQTTMessage) -> None:
        if self.complete():
            return  # what comes after the end changed after the version that the end names
        if message.topic == END_TOPIC:
            self.end = json.loads(message.payload)
            return
        self.last_at = time.monotonic()
        if not message.retain:
            self.overtaken.add(message.topic)
            return
        self.received += 1
        if message.payload:
            row = row_of(message, self.protocol)
            self.marks = self.marks or row["offset"] is not None
            self.rows.append(row)
            self.gather(BATCH_ROWS)
        else:
            self.deleted.add(message.topic)

    def gather(self, above: int) -> None:
        """Rows into Arrow, where a million of them fit."""
        if len(self.rows) > above:
            self.batches.append(batch_of(self.rows, arrow_schema().names))
            self.rows = []

    def complete(self) -> bool:
        return self.end is not None and self.received >= self.end["count"]


def read_live(spark: SparkSession, options: BrokerOptions, topic_filter: str, quiet_s: float = 3.0) -> Live:
    begun = time.time()
    names = arrow_schema().names
    whole: list[pa.RecordBatch] = []
    patch: dict[str, dict[str, Any] | None] = {}
    since: int | None = None
    for _ in range(PASSES):
        answer = _ask(options, topic_filter, since, quiet_s)
        if since is None or answer.end is None or answer.end["full"]:
            whole, patch = answer.batches, {}
        else:
            patch |= {row["topic"]: row for batch in answer.batches for row in batch.to_pylist()}
            patch |= dict.fromkeys(answer.deleted, None)
        since = None if answer.end is None else int(answer.end["version"])
        if since is None or not answer.overtaken:
            break
    else:
        raise ProtocolError(f"{len(answer.overtaken)} topics changed each of {PASSES} times that the set was read")
    table = pa.Table.from_batches(whole, schema=arrow_schema())
    rows = spark.createDataFrame(table)
    if patch:
        changed = spark.createDataFrame([(topic,) for topic in patch], "topic string")
        newer = pa.Table.from_batches([batch_of([row for row in patch.values() if row], names)])
        rows = rows.join(F.broadcast(changed), "topic", "left_anti").select(*names)
        rows = rows.union(spark.createDataFrame(newer).select(*names))
    return Live(rows, since, begun, time.time(), table.num_rows + len(patch))


def _ask(options: BrokerOptions, topic_filter: str, since: int | None, quiet_s: float) -> _Pass:
    connection = PahoConnection(options, user_properties=ASKING)
    answer = _Pass(connection.version)
    connection.on_message = answer.add
    try:
        connection.subscribe(topic_filter, 2, properties=None if since is None else changed_since(since))
        answer.last_at = time.monotonic()
        while not answer.complete() and time.monotonic() - answer.last_at < (LONGEST_S if answer.marks else quiet_s):
            connection.poll(0.1)
        if answer.marks and not answer.complete():
            raise ProtocolError(
                f"the retained set of {options.address} was not complete {LONGEST_S:g} s after its last message", 0x88
            )
        if answer.end is not None and answer.end["count"] != answer.received:
            raise ProtocolError(
                f"expected {answer.end['count']} retained messages from {options.address}, got {answer.received}"
            )
        answer.gather(0)
        return answer
    finally:
        connection.close()
