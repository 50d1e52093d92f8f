"""History as a batch and as a stream: which rows come, from which offsets, and what is refused."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from holdfast.errors import StoreError, UsageError
from holdfast.history.schema import FORMAT_APP_ID, LIVE_APP_ID, RETENTION_APP_ID, arrow_schema
from holdfast.spark.failure import reason
from holdfast.spark.options import micros
from holdfast.spark.ranges import History, Piece, read_piece
from holdfast.spark.scan import read_history
from spark.brokers import LIMIT_S
from spark.publishes import START, Row, publishes, write_history
from spark.streams import start_stream

ROWS = publishes(3_000, topics=60, seed=1)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_history(tmp_path_factory.mktemp("source") / "history", ROWS, files=7)


def read(spark: SparkSession, path: str, **options: str | int | bool) -> DataFrame:
    return spark.read.format("holdfast").options(**options).load(path)


Read = Callable[..., DataFrame]
by_both = pytest.mark.parametrize("read", [read, read_history], ids=["source", "scan"])


def offsets(frame: DataFrame) -> list[int]:
    return sorted(row.offset for row in frame.select("offset").collect())


def failure(frame: DataFrame) -> str:
    with pytest.raises(PySparkException) as caught:
        frame.collect()
    return reason(caught.value)


@by_both
def test_every_column_of_every_row_comes_back(spark: SparkSession, history: str, read: Read) -> None:
    found = sorted(
        (row.asDict(recursive=True) for row in read(spark, history).collect()), key=lambda row: row["offset"]
    )
    assert [normal(row) for row in found] == ROWS


def test_a_column_that_is_empty_in_a_part_of_a_file_keeps_its_values_in_the_rest(tmp_path: Path) -> None:
    """What has no value in a whole file is not decoded; here one of two row groups has some."""
    columns = {"offset": [1, 2, 3, 4], "username": [None, None, "ada", None], "content_type": [None] * 4}
    schema = pa.schema([arrow_schema().field(name) for name in columns])
    pq.write_table(pa.table(columns, schema=schema), tmp_path / "two.parquet", row_group_size=2)
    piece = Piece(0, 5, (str(tmp_path / "two.parquet"),))
    read = pa.Table.from_batches(read_piece(piece, str(tmp_path), schema, None, fail_on_loss=True))
    assert read.to_pydict() == columns


def normal(row: Row) -> Row:
    row = dict(row)
    for name in ("timestamp", "expires_at"):
        if row[name] is not None:
            row[name] = row[name].astimezone(START.tzinfo)
    for name in ("payload", "correlation_data"):
        row[name] = None if row[name] is None else bytes(row[name])
    return row


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("earliest", "latest", range(1, 3001)),
        ("100", "200", range(100, 200)),
        ("2990", "9999", range(2990, 3001)),
        ("latest", "latest", range(0)),
        ("50", "50", range(0)),
    ],
)
@by_both
def test_offsets_choose_the_rows(
    spark: SparkSession, history: str, read: Read, start: str, end: str, expected: range
) -> None:
    assert offsets(read(spark, history, startingOffsets=start, endingOffsets=end)) == list(expected)


@by_both
def test_times_choose_the_rows(spark: SparkSession, history: str, read: Read) -> None:
    begin, finish = ROWS[700]["timestamp"], ROWS[2100]["timestamp"]
    frame = read(spark, history, startingOffsets=begin.isoformat(), endingOffsets=finish.isoformat())
    assert offsets(frame) == [row["offset"] for row in ROWS if begin <= row["timestamp"] < finish]


@pytest.mark.parametrize("topic_filter", ["#", "site/+/line/1/#", "site/2/line/2/dev2/+", "$internal/#", "none/#"])
@by_both
def test_filter_is_the_mqtt_topic_filter(spark: SparkSession, history: str, read: Read, topic_filter: str) -> None:
    from holdfast.spark.topics import TopicFilter

    expected = [row["offset"] for row in ROWS if TopicFilter(topic_filter).matches(row["topic"])]
    assert offsets(read(spark, history, filter=topic_filter)) == expected


def test_a_scan_is_spark_s_own_and_opens_the_files_of_the_range_only(spark: SparkSession, history: str) -> None:
    files = History(history).files
    some = read_history(spark, history, startingOffsets=files[2].first, endingOffsets=files[4].first)
    assert sorted(some.inputFiles()) == sorted(f"file://{file.path}" for file in files[2:4])
    assert "Filter" not in some._jdf.queryExecution().optimizedPlan().toString()


def test_a_scan_says_what_is_wrong_before_spark_reads(spark: SparkSession, tmp_path: Path) -> None:
    path = write_history(tmp_path / "data" / "history", ROWS[:100], files=2)
    with pytest.raises(UsageError, match=r"option 'rowsPerPartition' .* is not known"):
        read_history(spark, path, rowsPerPartition=10)
    damaged = Path(History(path).files[0].path)
    damaged.write_bytes(damaged.read_bytes()[:100])
    with pytest.raises(StoreError, match=r"is damaged \(it has 100 bytes, .*holdfast doctor"):
        read_history(spark, path)


def test_partitions_are_disjoint_ranges_and_share_the_work(spark: SparkSession, history: str) -> None:
    frame = read(spark, history, rowsPerPartition=500)
    assert frame.rdd.getNumPartitions() >= 5
    assert offsets(frame) == list(range(1, 3001))


def test_a_narrower_schema_prunes_columns(spark: SparkSession, history: str) -> None:
    frame = spark.read.format("holdfast").schema("topic string, offset long").load(history)
    assert frame.columns == ["topic", "offset"]
    assert offsets(frame) == list(range(1, 3001))


def test_a_filtered_count_does_not_stick_to_the_frame(spark: SparkSession, history: str) -> None:
    frame = read(spark, history)
    assert frame.where("offset % 2 = 0").count() == 1500
    assert frame.count() == 3000


def test_files_out_of_order_still_give_each_row_once(spark: SparkSession, tmp_path: Path) -> None:
    path = write_history(tmp_path / "history", ROWS[:1000], files=9)
    DeltaTable(path).optimize.compact()
    DeltaTable(path).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert offsets(read(spark, path, startingOffsets=300, endingOffsets=700, rowsPerPartition=100)) == list(
        range(300, 700)
    )


def test_reading_survives_compaction_and_vacuum_after_planning(spark: SparkSession, tmp_path: Path) -> None:
    path = write_history(tmp_path / "history", ROWS[:1000], files=20)
    planned = read(spark, path, rowsPerPartition=100).select("offset").rdd
    assert planned.getNumPartitions() == 10  # from here on the plan names the old files
    DeltaTable(path).optimize.compact()
    removed = DeltaTable(path).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert len(removed) == 20
    assert sorted(row.offset for row in planned.collect()) == list(range(1, 1001))


class Drain:
    """Runs a stream to its end and keeps the offsets of every batch."""

    def __init__(self, spark: SparkSession, checkpoint: Path) -> None:
        self.spark, self.checkpoint = spark, checkpoint
        self.batches: list[list[int]] = []

    def run(self, path: str, **options: str | int | bool) -> list[list[int]]:
        self.batches = []
        frame = self.spark.readStream.format("holdfast").options(**options).load(path)
        writer = frame.writeStream.foreachBatch(self._keep).option("checkpointLocation", str(self.checkpoint))
        query = start_stream(writer.trigger(availableNow=True).start)
        assert query.awaitTermination(LIMIT_S)
        return self.batches

    def _keep(self, frame: DataFrame, _batch: int) -> None:
        found = offsets(frame)
        if found:  # Spark runs one empty batch to note where a stream starts
            self.batches.append(found)


def test_a_stream_reads_everything_once_in_limited_batches(spark: SparkSession, tmp_path: Path) -> None:
    path = write_history(tmp_path / "history", ROWS[:1000], files=3)
    drain = Drain(spark, tmp_path / "checkpoint")
    batches = drain.run(path, maxOffsetsPerTrigger=300)
    assert [len(batch) for batch in batches] == [300, 300, 300, 100]
    assert sorted(offset for batch in batches for offset in batch) == list(range(1, 1001))
    assert drain.run(path, maxOffsetsPerTrigger=300) == []
    write_history(tmp_path / "history", ROWS[1000:1100])
    assert drain.run(path, maxOffsetsPerTrigger=300) == [list(range(1001, 1101))]


def after_a_crash(rows: list[Row]) -> list[Row]:
    """The same rows as a broker that was killed in between would have numbered them."""
    half = len(rows) // 2
    return [{**row, "offset": row["offset"] + (1 << 24 if at >= half else 0)} for at, row in enumerate(rows)]


def test_a_limited_stream_steps_over_the_offsets_that_a_crash_leaves_out(spark: SparkSession, tmp_path: Path) -> None:
    rows = after_a_crash(ROWS[:200])
    path = write_history(tmp_path / "history", rows, files=2)
    batches = Drain(spark, tmp_path / "checkpoint").run(path, maxOffsetsPerTrigger=60)
    assert [len(batch) for batch in batches] == [60, 40, 60, 40]
    assert [offset for batch in batches for offset in batch] == [row["offset"] for row in rows]


def test_a_stream_may_start_at_latest_and_end_at_an_offset(spark: SparkSession, tmp_path: Path) -> None:
    path = write_history(tmp_path / "history", ROWS[:100])
    drain = Drain(spark, tmp_path / "checkpoint")
    assert drain.run(path, startingOffsets="latest", endingOffsets=150) == []
    write_history(tmp_path / "history", ROWS[100:200])
    assert drain.run(path, startingOffsets="latest", endingOffsets=150) == [list(range(101, 150))]


def mark(path: str, app: str, version: int) -> None:
    table = DeltaTable(path)
    properties = CommitProperties(app_transactions=[Transaction(app, version)])
    table.create_write_transaction([], "append", table.schema(), commit_properties=properties)


def drop_below(path: str, offset: int) -> None:
    """What retention does: remove rows, and say from which offset on the table is complete."""
    DeltaTable(path).delete(f"offset < {offset}")
    mark(path, RETENTION_APP_ID, offset)


def test_offsets_that_retention_passed_are_an_error_unless_asked_otherwise(spark: SparkSession, tmp_path: Path) -> None:
    path = write_history(tmp_path / "history", ROWS[:1000], files=4)
    drain = Drain(spark, tmp_path / "checkpoint")
    drain.run(path, endingOffsets=100)
    drop_below(path, 500)
    assert "no longer has offsets 10 to 499" in failure(read(spark, path, startingOffsets=10))
    assert offsets(read(spark, path, startingOffsets=10, failOnDataLoss=False)) == list(range(500, 1001))
    assert offsets(read(spark, path)) == list(range(500, 1001))
    with pytest.raises(PySparkException, match="no longer has offsets 100 to 499"):
        drain.run(path)
    assert drain.run(path, failOnDataLoss=False) == [list(range(500, 1001))]


def test_offsets_that_never_had_a_row_are_no_loss(spark: SparkSession, tmp_path: Path) -> None:
    path = write_history(tmp_path / "history", [row for row in ROWS[:500] if row["offset"] > 50])
    drop_below(path, 20)
    assert offsets(read(spark, path, startingOffsets=30)) == list(range(51, 501))


def test_rows_that_retention_left_in_force_are_read_from_earliest_on(spark: SparkSession, tmp_path: Path) -> None:
    path = write_history(
        tmp_path / "history", [row for row in ROWS[:500] if row["offset"] in (3, 77) or row["offset"] >= 200]
    )
    mark(path, RETENTION_APP_ID, 200)
    everything = [3, 77, *range(200, 501)]
    assert offsets(read(spark, path)) == everything
    drain = Drain(spark, tmp_path / "checkpoint")
    batches = drain.run(path, maxOffsetsPerTrigger=50)
    assert [offset for batch in batches for offset in batch] == everything
    drain = Drain(spark, tmp_path / "other")
    drain.run(path, endingOffsets=100)
    mark(path, RETENTION_APP_ID, 300)
    with pytest.raises(PySparkException, match="no longer has offsets 100 to 299"):
        drain.run(path)


def test_live_messages_of_a_broker_that_does_not_record_them_are_an_error_that_says_so(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = write_history(tmp_path / "history", ROWS[:300])
    assert offsets(read(spark, path, record="all")) == list(range(1, 301)), "a table that does not say has them"
    drain = Drain(spark, tmp_path / "checkpoint")
    drain.run(path, record="all")
    mark(path, LIVE_APP_ID, 0)
    assert offsets(read(spark, path)) == list(range(1, 301)), "who does not ask for them is not stopped"
    message = failure(read(spark, path, record="all", failOnDataLoss=False))
    assert "has no messages without RETAIN: its broker does not record them" in message
    assert 'history.record = "all"' in message
    with pytest.raises(PySparkException, match="has no messages without RETAIN"):
        drain.run(path, record="all")
    write_history(tmp_path / "history", ROWS[300:400])
    mark(path, LIVE_APP_ID, 401)
    write_history(tmp_path / "history", ROWS[400:500])
    assert "only from offset 401 on: set startingOffsets to 401" in failure(read(spark, path, record="all"))
    assert offsets(read(spark, path, record="all", startingOffsets=401)) == list(range(401, 501))
    assert offsets(read(spark, path, record="all", failOnDataLoss=False)) == list(range(1, 501))
    with pytest.raises(PySparkException, match="only from offset 401 on"):
        drain.run(path, record="all")
    rest = drain.run(path, record="all", failOnDataLoss=False)
    assert [offset for batch in rest for offset in batch] == list(range(301, 501))
    assert "option 'record': expected retained or all, got 'some'" in failure(read(spark, path, record="some"))


def test_a_stream_of_all_messages_may_begin_before_there_are_any(spark: SparkSession, tmp_path: Path) -> None:
    path = write_history(tmp_path / "history", ROWS[:100])
    mark(path, LIVE_APP_ID, 151)
    drain = Drain(spark, tmp_path / "checkpoint")
    assert drain.run(path, record="all", startingOffsets="latest") == []
    write_history(tmp_path / "history", ROWS[150:200])
    rest = drain.run(path, record="all")
    assert [offset for batch in rest for offset in batch] == list(range(151, 201))


def test_missing_history_says_what_was_expected(spark: SparkSession, tmp_path: Path) -> None:
    assert "there is no history table at" in failure(read(spark, str(tmp_path / "nothing")))


def test_a_truncated_file_is_named(spark: SparkSession, tmp_path: Path) -> None:
    path = write_history(tmp_path / "history", ROWS[:1000])
    [file] = DeltaTable(path).file_uris()
    Path(file).write_bytes(Path(file).read_bytes()[:-100])
    message = failure(read(spark, path))
    assert "is damaged" in message
    assert Path(file).name in message


def test_a_newer_format_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = write_history(tmp_path / "history", ROWS[:10])
    mark(path, FORMAT_APP_ID, 99)
    assert "has format 99, expected at most 1" in failure(read(spark, path))


def test_a_changed_schema_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    from holdfast.history.schema import arrow_schema

    table = pa.Table.from_pylist(ROWS[:10], schema=arrow_schema())
    write_deltalake(tmp_path / "without", table.drop_columns(["outcome"]))
    assert "has no column 'outcome'" in failure(read(spark, str(tmp_path / "without")))
    write_deltalake(tmp_path / "retyped", table.set_column(0, "offset", table["offset"].cast(pa.string())))
    assert "expected column 'offset' to be int64, got string" in failure(read(spark, str(tmp_path / "retyped")))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOfsets": "1"}, "the nearest known one is 'startingOffsets'"),
        ({"startingOffsets": "yesterday"}, "expected an offset such as 120000 or a time"),
        ({"maxOffsetsPerTrigger": "0"}, "expected a whole number of at least 1, got '0'"),
        ({"failOnDataLoss": "maybe"}, "expected true or false, got 'maybe'"),
        ({"filter": "a/#/b"}, "expected `+` alone in its level"),
    ],
)
def test_a_bad_option_is_refused(spark: SparkSession, history: str, options: dict[str, str], message: str) -> None:
    assert message in failure(read(spark, history, **options))


def test_an_unknown_column_is_refused(spark: SparkSession, history: str) -> None:
    assert "history has no column 'nope'" in failure(spark.read.format("holdfast").schema("nope long").load(history))


@contextmanager
def answering(found: dict[str, str]) -> Iterator[str]:
    """An API that says this about its history to whoever has the key."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path == "/api/v1/history/span"
            allowed = self.headers.get("Authorization") == "Basic a2V5OnNlY3JldA=="
            self.send_response((200 if allowed else 401) if known else 404)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode() if known else b"{}")

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://key:secret@127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def api(history: str) -> Iterator[str]:
    with answering({"uri": history}) as address:
        yield address


def test_a_broker_address_names_its_table(spark: SparkSession, api: str) -> None:
    assert offsets(read(spark, api, startingOffsets=2500)) == list(range(2500, 3001))
    assert "401" in failure(read(spark, api.replace("secret", "guess")))


def test_a_wrong_broker_address_is_one_sentence(spark: SparkSession) -> None:
    message = failure(read(spark, "http://127.0.0.1:1"))
    assert "could not ask http://127.0.0.1:1/api/v1/history/span" in message
    assert "is the broker running?" in message


def test_time_ranges_are_exact_to_the_microsecond(spark: SparkSession, tmp_path: Path) -> None:
    path = write_history(tmp_path / "history", ROWS[:500], files=5)
    moment = ROWS[123]["timestamp"] + timedelta(microseconds=1)
    expected = [row["offset"] for row in ROWS[:500] if row["timestamp"] >= moment]
    assert offsets(read(spark, path, startingOffsets=moment.isoformat())) == expected


def test_kafkas_names_mean_the_same(spark: SparkSession, tmp_path: Path) -> None:
    path = write_history(tmp_path / "history", ROWS[:500], files=2)
    begin, finish = ROWS[100]["timestamp"], ROWS[400]["timestamp"]
    wanted = [
        row["offset"]
        for row in ROWS[:500]
        if millis(begin) * 1000 <= micros(row["timestamp"]) < millis(finish) * 1000
        and row["topic"].startswith("site/2/")
    ]
    options: dict[str, str | int] = {
        "startingTimestamp": millis(begin),
        "endingTimestamp": millis(finish),
        "subscribe": "site/2/#",
    }
    assert offsets(read(spark, path, **options)) == wanted
    assert wanted
    assert offsets(read(spark, path, startingTimestamp=finish.isoformat())) == [
        row["offset"] for row in ROWS[:500] if row["timestamp"] >= finish
    ]


def millis(moment: datetime) -> int:
    return micros(moment) // 1000


def test_an_address_that_names_no_table_is_one_sentence(spark: SparkSession) -> None:
    """What the API tells those who are no administrators."""
    with answering({"uri": ""}) as address:
        assert "tells administrators only" in failure(read(spark, address))
