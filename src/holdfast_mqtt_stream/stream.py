"""`spark.readStream.format("mqtt")`: live messages of any broker, received once into a spool and read from there.

The position of a stream is an offset into the spool of each reader, so Spark can read a range again after a failure.
The spool is emptied behind what Spark has committed. With several readers they share one subscription.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from holdfast.errors import UsageError
from holdfast.spark.mqtt.connection import BROKER_OPTIONS, BrokerOptions
from holdfast.spark.options import Options
from holdfast.spark.topics import TopicFilter
from holdfast_mqtt_stream.receiver import Receiver
from holdfast_mqtt_stream.spool import list_files, read_rows

STREAM_OPTIONS = (
    *BROKER_OPTIONS,
    "spool",
    "localStorage",
    "readers",
    "shareName",
    "groupId",
    "kafka.group.id",
    "sessionExpiryInterval",
    "maxOffsetsPerTrigger",
    "spoolLimit",
)
FILES_PER_PARTITION = 64
WEEK_S = 7 * 24 * 3600

Position = dict[str, int]


class Spooled(InputPartition):
    """Spool files as Spark ships them."""

    def __init__(self, files: list[tuple[str, int, int]]) -> None:
        super().__init__(None)
        self.files = files


class SpoolReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Options, columns: list[str]) -> None:
        self.columns = columns
        self.broker = BrokerOptions(options)
        self.topic_filter = TopicFilter(options.required("topic", "filter", "subscribe")).text
        # at most QoS 1: the client acknowledges QoS 2 before the message is ours; the ledger removes doubles instead
        self.qos = min(options.number("QoS", default=1, most=2) or 0, 1)
        self.clean = options.flag("cleanSession", default=False)
        self.client_id = options.text("clientId") or ""
        if not self.client_id:
            raise UsageError(
                "format 'mqtt' as a stream needs option 'clientId': the broker keeps messages under that name"
            )
        self.spool = Path(options.required("spool", "localStorage")).absolute()
        self.readers = options.number("readers", default=1, least=1, most=256) or 1
        # queries of the same share, here or elsewhere, divide the messages among them, as a Kafka group does
        self.share = options.text("shareName", "groupId", "kafka.group.id") or (
            self.client_id if self.readers > 1 else ""
        )
        self.expiry = options.number("sessionExpiryInterval", default=WEEK_S, most=0xFFFFFFFF) or 0
        self.limit = options.number("maxOffsetsPerTrigger", least=1)
        self.spool_limit = options.number("spoolLimit", default=5_000_000, least=1) or 1
        self._receivers: list[Receiver] = []
        self._target: Position | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_receivers": [], "_target": None}

    def _started(self) -> list[Receiver]:
        if not self._receivers:
            several = self.readers > 1
            for number in range(self.readers):
                self._receivers.append(
                    Receiver(
                        self.broker,
                        self.spool / str(number),
                        client_id=f"{self.client_id}-{number}" if several else self.client_id,
                        topic_filter=f"$share/{self.share}/{self.topic_filter}" if self.share else self.topic_filter,
                        qos=self.qos,
                        clean=self.clean,
                        session_expiry_s=self.expiry,
                        spool_limit=self.spool_limit,
                    )
                )
            for receiver in self._receivers:
                receiver.wait_until_ready()
        for receiver in self._receivers:
            receiver.check()
        return self._receivers

    def _ends(self) -> Position:
        ends = {str(number): receiver.end for number, receiver in enumerate(self._started())}
        return ends if self._target is None else {key: min(end, self._target[key]) for key, end in ends.items()}

    def initialOffset(self) -> Position:
        return {str(number): receiver.spool.start for number, receiver in enumerate(self._started())}

    def latestOffset(self, start: Position, limit: ReadLimit) -> Position:
        ends = self._ends()
        if isinstance(limit, ReadMaxRows):
            share = max(1, limit.max_rows // len(ends))
            ends = {key: min(end, start.get(key, 0) + share) for key, end in ends.items()}
        elif not isinstance(limit, ReadAllAvailable):
            raise UsageError(f"expected a limit in rows, got {limit!r}")
        return {key: max(ends.get(key, 0), start.get(key, 0)) for key in {*ends, *start}}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self.limit is None else ReadMaxRows(self.limit)

    def reportLatestOffset(self) -> Position | None:
        return self._ends()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ends()

    def partitions(self, start: Position, end: Position) -> Sequence[InputPartition]:
        found: list[InputPartition] = []
        for key, stop in end.items():
            begin = start.get(key, 0)
            files = [file for file in list_files(self.spool / key) if file.start < stop and file.end > begin]
            spans = [(file.path, max(begin, file.start), min(stop, file.end)) for file in files]
            for at in range(0, len(spans), FILES_PER_PARTITION):
                found.append(Spooled(spans[at : at + FILES_PER_PARTITION]))
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Spooled):
            return
        for path, start, end in partition.files:
            batch = read_rows(path, start, end, self.columns)
            if batch is not None and batch.num_rows:
                yield batch

    def commit(self, end: Position) -> None:
        for number, receiver in enumerate(self._receivers):
            receiver.release(end.get(str(number), 0))

    def stop(self) -> None:
        receivers, self._receivers = self._receivers, []
        for receiver in receivers:
            receiver.stop()
