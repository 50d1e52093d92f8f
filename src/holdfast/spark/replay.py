"""The fold of a history table: the answer of `fold`, faster because it knows the files.

Most of a fold is to find the last change of each topic among all rows. Arrow does that several times faster than the
JVM: each task reads topics and offsets of its part of the table and hands on one row for each topic, and Spark has only
those to bring together. The rows themselves are then read by Spark's own Parquet reader.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from holdfast.errors import StoreError
from holdfast.history.schema import arrow_schema
from holdfast.spark.failure import explain
from holdfast.spark.fold import CHANGES, fold, matching
from holdfast.spark.keeper import history_frame
from holdfast.spark.ranges import History, Piece, read_piece
from holdfast.spark.topics import TopicFilter

# Many rows to a task: the more of a topic's changes are in one, the fewer leave it. About so much is in memory then.
TASK_ROWS = 5_000_000
TASK_BYTES = 1 << 30
BATCH_ROWS = 65_536


def fold_history(
    spark: SparkSession,
    history: History,
    as_of: int | datetime | None = None,
    topic_filter: str | None = None,
    *,
    at: datetime | None = None,
) -> DataFrame:
    """The retained set after this offset, at this moment, or now; see `fold`."""
    end = history.end
    if isinstance(as_of, int):
        end = min(end, as_of + 1)
    elif as_of is not None:
        end = history.offset_at(as_of + timedelta(microseconds=1))
    rows = matching(history_frame(spark, history, 0, end), topic_filter)
    return fold(rows, as_of, at=at, last=last_offsets(spark, history, end, topic_filter))


def last_offsets(spark: SparkSession, history: History, end: int, topic_filter: str | None = None) -> DataFrame:
    """For each topic that changed before this offset, the offset of its last change."""
    rows = min(TASK_ROWS, max(1, history.count(0, end) // spark_tasks(spark)), TASK_BYTES // history.width(0, end))
    pieces = history.plan(0, end, max(1000, rows))
    if not pieces:
        return spark.createDataFrame([], "offset long")
    task = _LastChanges(history.location, pieces, topic_filter)
    numbers = spark.range(0, len(pieces), 1, len(pieces))
    found = numbers.mapInArrow(task, "topic string, offset long")
    return found.groupBy("topic").agg(F.max("offset").alias("offset")).select("offset")


def spark_tasks(spark: SparkSession) -> int:
    """How many tasks a shuffle has in this session, which is made for where it runs."""
    return int(spark.conf.get("spark.sql.shuffle.partitions") or 1)


class _LastChanges:
    """Runs in an executor: takes numbers of pieces, gives the last change of each topic in each of them."""

    def __init__(self, location: str, pieces: list[Piece], topic_filter: str | None) -> None:
        self.location, self.pieces, self.topic_filter = location, pieces, topic_filter

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self._of(self.pieces[number])

    def _of(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([arrow_schema().field(name) for name in ("topic", "offset", "outcome")])
        wanted = None if self.topic_filter is None else TopicFilter(self.topic_filter)
        changes = pa.array(CHANGES)
        found: list[pa.RecordBatch] = []
        for path in piece.files:
            try:
                for rows in read_piece(piece._replace(files=(path,)), self.location, schema, wanted, True):
                    found.append(rows.filter(pc.is_in(rows.column("outcome"), changes)).select(["topic", "offset"]))
            except StoreError as error:
                if "is damaged" in str(error):
                    raise StoreError(explain(path, "it cannot be read")) from None
                raise
        if found:
            last = pa.Table.from_batches(found).group_by("topic", use_threads=False).aggregate([("offset", "max")])
            yield from last.rename_columns(["topic", "offset"]).to_batches(max_chunksize=BATCH_ROWS)
