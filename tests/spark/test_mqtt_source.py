"""MQTT through Spark: a retained set as a batch, live messages as a stream, rows as publishes."""

import time
from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import holdfast.spark
from holdfast.spark.failure import reason
from holdfast.spark.fold import fold
from holdfast.spark.mqtt.sink import by_topic
from spark.brokers import (
    LIMIT_S,
    Holdfast,
    Mosquitto,
    link_options,
    publisher,
    read_whole,
    retained_rows,
    wait_for,
)
from spark.streams import start_stream

BROKERS: dict[str, type[Mosquitto | Holdfast]] = {"mosquitto": Mosquitto, "holdfast": Holdfast}


@pytest.fixture(scope="module", params=BROKERS)
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto | Holdfast]:
    running = BROKERS[request.param](tmp_path_factory.mktemp("broker"))
    yield running
    running.stop()


def url(broker: Mosquitto | Holdfast) -> str:
    return f"tcp://127.0.0.1:{broker.port}"


def retained(broker: Mosquitto | Holdfast, topic_filter: str, count: int) -> dict[str, bytes]:
    """Read without Spark, so that the two sides of a test are not the same code."""
    rows = retained_rows(link_options(broker.port), topic_filter, count)
    assert len({row["topic"] for row in rows}) == len(rows)
    return {row["topic"]: row["payload"] for row in rows}


def test_the_retained_set_is_a_batch_with_its_properties(spark: SparkSession, broker: Mosquitto | Holdfast) -> None:
    properties = Properties(PacketTypes.PUBLISH)
    properties.ContentType = "application/json"
    properties.UserProperty = [("unit", "C")]
    properties.MessageExpiryInterval = 1000
    with publisher(broker.port) as publish:
        for number in range(200):
            publish(f"batch/{number}", str(number), retain=True)
        publish("batch/7", b'{"v": 1}', retain=True, properties=properties)
    found = read_batch(spark, 200, brokerUrl=url(broker), topic="batch/#")
    rows = {row.topic: row for row in found}
    assert len(rows) == len(found) == 200
    assert {row.outcome for row in rows.values()} == {"set"}
    seven = rows["batch/7"]
    assert (bytes(seven.payload), seven.content_type) == (b'{"v": 1}', "application/json")
    assert [(pair.key, pair.value) for pair in seven.user_properties] == [("unit", "C")]
    assert 900 < seven.expires_at.timestamp() - time.time() < 1001


def read_batch(spark: SparkSession, count: int, **options: str) -> list[Row]:
    frame = spark.read.format("mqtt").options(**options)
    return read_whole(lambda quiet_s: frame.option("quietPeriod", quiet_s).load().collect(), count)


def drain(frame: DataFrame, checkpoint: Path, out: Path) -> StreamingQuery:
    writer = (
        frame.select("offset", "topic", F.col("payload").cast("string").alias("text"))
        .writeStream.format("parquet")
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="200 milliseconds")
    )
    return start_stream(lambda: writer.start(str(out)))


def test_a_stream_goes_on_where_it_stopped(spark: SparkSession, broker: Mosquitto | Holdfast, tmp_path: Path) -> None:
    """A restart of the query in the middle: what the broker kept comes, once; what the spool had is not read again."""
    options = {
        "brokerUrl": url(broker),
        "topic": "live/#",
        "clientId": "spark-stream",
        "localStorage": str(tmp_path / "spool"),
        "QoS": "1",
    }
    out = tmp_path / "out"

    def texts() -> list[str]:
        return sorted(row.text for row in spark.read.parquet(str(out)).collect()) if list(out.glob("*.parquet")) else []

    query = drain(spark.readStream.format("mqtt").options(**options).load(), tmp_path / "checkpoint", out)
    with publisher(broker.port) as publish:
        for number in range(300):
            publish(f"live/{number % 7}", f"{number:04d}")
    wait_for(lambda: len(texts()) == 300, "300 rows")
    query.stop()
    with publisher(broker.port) as publish:
        for number in range(300, 400):
            publish(f"live/{number % 7}", f"{number:04d}")
    query = drain(spark.readStream.format("mqtt").options(**options).load(), tmp_path / "checkpoint", out)
    with publisher(broker.port) as publish:
        publish("live/0", "the end")  # behind it nothing is on its way
    wait_for(lambda: "the end" in texts(), "the rest")
    query.stop()
    assert texts() == [*(f"{number:04d}" for number in range(400)), "the end"]


def test_shared_readers_get_each_message_once(
    spark: SparkSession, broker: Mosquitto | Holdfast, tmp_path: Path
) -> None:
    options = {
        "brokerUrl": url(broker),
        "topic": "shared/#",
        "clientId": "spark-shared",
        "spool": str(tmp_path / "spool"),
    }
    out = tmp_path / "out"
    frame = spark.readStream.format("mqtt").options(**options, readers="3").load()
    query = drain(frame, tmp_path / "checkpoint", out)
    with publisher(broker.port) as publish:
        for number in range(300):
            publish(f"shared/{number}", f"{number:04d}")
    wait_for(lambda: bool(list(out.glob("*.parquet"))) and spark.read.parquet(str(out)).count() >= 300, "300 rows")
    query.stop()
    rows = spark.read.parquet(str(out)).collect()
    assert sorted(row.text for row in rows) == [f"{number:04d}" for number in range(300)]
    folders = [folder for folder in (tmp_path / "spool").iterdir() if list(folder.glob("*.arrow"))]
    assert len(folders) == 3, "one reader got everything"


def test_options_by_kafkas_names_reach_batch_and_sink(spark: SparkSession, broker: Mosquitto | Holdfast) -> None:
    options = {"kafka.bootstrap.servers": f"127.0.0.1:{broker.port}"}
    rows = spark.createDataFrame([("one",)], "payload string")
    rows.write.format("mqtt").options(**options, topic="kafka/1", retain="true").mode("append").save()
    found = read_batch(spark, 1, **options, subscribe="kafka/#")
    assert [(row.topic, bytes(row.payload)) for row in found] == [("kafka/1", b"one")]


def test_one_reader_shares_with_the_others_of_its_group(
    spark: SparkSession, broker: Mosquitto | Holdfast, tmp_path: Path
) -> None:
    """Another member of the group is a client of its own; each message goes to one of the two. In Kafka's words."""
    heard: list[str] = []
    member = paho.Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
    member.on_message = lambda _client, _data, message: heard.append(message.payload.decode())
    member.connect("127.0.0.1", broker.port)
    member.subscribe("$share/archive/group/#", 1)
    member.loop_start()
    options = {
        "kafka.bootstrap.servers": f"127.0.0.1:{broker.port}",
        "subscribe": "group/#",
        "kafka.group.id": "archive",
        "clientId": "spark-group",
        "spool": str(tmp_path / "spool"),
    }
    out = tmp_path / "out"
    query = drain(spark.readStream.format("mqtt").options(**options).load(), tmp_path / "checkpoint", out)
    with publisher(broker.port) as publish:
        for number in range(100):
            publish(f"group/{number}", f"{number:03d}")

    def texts() -> list[str]:
        return [row.text for row in spark.read.parquet(str(out)).collect()] if list(out.glob("*.parquet")) else []

    wait_for(lambda: len(texts()) + len(heard) >= 100, "100 messages")
    query.stop()
    member.disconnect()
    member.loop_stop()
    assert sorted(texts() + heard) == [f"{number:03d}" for number in range(100)]
    assert texts()
    assert heard


def test_by_topic_lays_each_topic_into_one_task_in_order(spark: SparkSession) -> None:
    def laid(frame: DataFrame) -> list[list[tuple[str, int]]]:
        return [part for part in frame.rdd.map(lambda row: (row.topic, row.offset)).glom().collect() if part]

    frame = updates(spark, "lay/", rows=400, topics=10).select("topic", "offset")
    found = laid(holdfast.spark.by_topic(frame, partitions=3))
    assert 1 < len(found) <= 3
    where = {topic: index for index, part in enumerate(found) for topic, _ in part}
    assert all(where[topic] == index for index, part in enumerate(found) for topic, _ in part)
    assert all([offset for _, offset in part] == sorted(offset for _, offset in part) for part in found)
    backwards = laid(holdfast.spark.by_topic(frame.withColumn("turn", -F.col("offset")), "turn", 2))
    assert all([offset for _, offset in part] == sorted((at for _, at in part), reverse=True) for part in backwards)
    with pytest.raises(AttributeError, match="no attribute 'by_topics'"):
        holdfast.spark.by_topics  # noqa: B018


def updates(spark: SparkSession, prefix: str, rows: int, topics: int) -> DataFrame:
    return spark.range(rows, numPartitions=8).select(
        F.col("id").alias("offset"),
        F.concat(F.lit(prefix), (F.col("id") % topics).cast("string")).alias("topic"),
        F.col("id").cast("string").alias("payload"),
        F.lit(True).alias("retain"),
    )


def test_the_sink_keeps_each_topics_order(spark: SparkSession, broker: Mosquitto | Holdfast) -> None:
    frame = by_topic(updates(spark, "order/", rows=2000, topics=50))
    frame.write.format("mqtt").options(brokerUrl=url(broker)).mode("append").save()
    assert retained(broker, "order/#", 50) == {f"order/{n}": str(1950 + n).encode() for n in range(50)}


def test_a_topic_in_two_tasks_is_failed_and_not_left_to_chance(
    spark: SparkSession, broker: Mosquitto | Holdfast
) -> None:
    frame = updates(spark, "chance/", rows=400, topics=10)
    with pytest.raises(PySparkException) as caught:
        frame.write.format("mqtt").options(brokerUrl=url(broker)).mode("append").save()
    assert "the same topic was written by two tasks" in reason(caught.value)
    frame.write.format("mqtt").options(brokerUrl=url(broker), order="any").mode("append").save()


def test_rows_travel_with_their_properties(spark: SparkSession, broker: Mosquitto | Holdfast) -> None:
    row = (
        "full/1", bytearray(b"\x00\x01"), 2, True, "image/png", "answers",
        bytearray(b"id"), 0, 600, [{"key": "a", "value": "b"}],
    )  # fmt: skip
    schema = (
        "topic string, payload binary, qos int, retain boolean, content_type string, response_topic string, "
        "correlation_data binary, payload_format int, message_expiry_interval int, "
        "user_properties array<struct<key:string,value:string>>"
    )
    spark.createDataFrame([row], schema).write.format("mqtt").options(brokerUrl=url(broker)).mode("append").save()
    [got] = retained_rows(link_options(broker.port), "full/#", 1, qos=2)
    assert (got["payload"], got["qos"], got["content_type"]) == (b"\x00\x01", 2, "image/png")
    assert (got["response_topic"], got["correlation_data"], got["payload_format"]) == ("answers", b"id", 0)
    assert {"key": "a", "value": "b"} in got["user_properties"]
    assert got["expires_at"] is not None


def test_a_refused_row_fails_the_batch_or_goes_to_the_dead_letters(
    spark: SparkSession, broker: Mosquitto | Holdfast, tmp_path: Path
) -> None:
    rows = [("fine/1", "x"), ("not/+/allowed", "y"), ("fine/2", "z")]
    frame = spark.createDataFrame(rows, "topic string, payload string").coalesce(1)
    with pytest.raises(PySparkException) as caught:
        frame.write.format("mqtt").options(brokerUrl=url(broker)).mode("append").save()
    assert "refused a message on 'not/+/allowed'" in reason(caught.value)
    letters = tmp_path / "letters"
    options = {"brokerUrl": url(broker), "deadLetterPath": str(letters), "retain": "true"}
    frame.write.format("mqtt").options(**options).mode("append").save()
    [letter] = spark.read.parquet(str(letters)).collect()
    assert (letter.topic, letter.payload) == ("not/+/allowed", "y")
    assert letter.reason
    assert retained(broker, "fine/#", 2) == {"fine/1": b"x", "fine/2": b"z"}


def test_a_stream_folded_per_batch_leaves_every_topic_right(
    spark: SparkSession, broker: Mosquitto | Holdfast, tmp_path: Path
) -> None:
    from spark.publishes import oracle, publishes, write_history

    rows = [row for row in publishes(3000, topics=80, seed=5) if not row["topic"].startswith("$")]
    for row in rows:
        row["topic"], row["expires_at"] = "mirror/" + row["topic"], None
    history = write_history(tmp_path / "history", rows, files=6)

    def mirror(frame: DataFrame, _batch: int) -> None:
        from holdfast.spark.fold import last_changes

        sets = last_changes(frame).withColumn("retain", F.lit(True))
        cleared = F.when(F.col("outcome") == "cleared", F.lit(b"").cast("binary")).otherwise(F.col("payload"))
        sets.withColumn("payload", cleared).drop("expires_at", "payload_format").write.format("mqtt").options(
            brokerUrl=url(broker)
        ).mode("append").save()

    stream = spark.readStream.format("holdfast").option("maxOffsetsPerTrigger", 700).load(history)
    writer = stream.writeStream.foreachBatch(mirror).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = start_stream(writer.trigger(availableNow=True).start)
    assert query.awaitTermination(LIMIT_S)
    assert query.exception() is None
    wanted = {topic: row["payload"] for topic, row in oracle(rows).items()}
    assert retained(broker, "mirror/#", len(wanted)) == wanted
    assert fold(spark.read.format("holdfast").load(history)).count() == len(wanted)


def test_a_batch_that_was_committed_is_not_sent_again(
    spark: SparkSession, broker: Mosquitto | Holdfast, tmp_path: Path
) -> None:
    """Spark may run a stream's last batch again after a crash; the sink knows it by the query's own name for it."""
    source = tmp_path / "in"
    spark.createDataFrame([("once/1", "x")], "topic string, payload string").write.parquet(str(source))
    heard: list[bytes] = []

    listener = paho.Client(CallbackAPIVersion.VERSION2)
    listener.on_message = lambda _c, _u, message: heard.append(bytes(message.payload))
    listener.connect("127.0.0.1", broker.port)
    listener.subscribe("once/#", 1)
    listener.loop_start()

    def run() -> None:
        query = (
            spark.readStream.schema("topic string, payload string")
            .parquet(str(source))
            .writeStream.format("mqtt")
            .options(brokerUrl=url(broker), commitPath=str(tmp_path / "commits"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(LIMIT_S)
        assert query.exception() is None

    run()
    for commit in (tmp_path / "checkpoint" / "commits").iterdir():
        commit.unlink()  # as if the driver had died before it noted the batch
    run()
    listener.publish("once/2", b"the end", qos=1)
    wait_for(lambda: b"the end" in heard, "what was published last")
    listener.disconnect()
    listener.loop_stop()
    assert heard == [b"x", b"the end"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"brokerUrl": "tcp://127.0.0.1:1"}, "is the broker running?"),
        ({"brokerUrl": "ftp://x"}, "expected tcp, mqtt, ssl"),
        ({"brokerURI": "tcp://x"}, "the nearest known one is 'brokerUrl'"),
        ({"QoS": "3"}, "expected a whole number from 0 to 2, got '3'"),
    ],
)
def test_bad_options_are_one_sentence(spark: SparkSession, options: dict[str, str], message: str) -> None:
    with pytest.raises(PySparkException) as caught:
        spark.read.format("mqtt").options(**options).load().collect()
    assert message in reason(caught.value)


def test_a_stream_says_what_it_needs(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.readStream.format("mqtt").option("topic", "a").load()
    query = start_stream(frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start)
    with pytest.raises(PySparkException, match="needs option 'clientId'"):
        query.awaitTermination(LIMIT_S)
