"""What the sink does with a broker's answers: reasons, windows, passwords. Brokers that refuse, and one by script."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from holdfast.protocol.mqtt.packets import ConnAck, Publish
from holdfast.protocol.mqtt.properties import Properties
from holdfast.spark.failure import reason
from holdfast.spark.mqtt.retained import read_snapshot
from holdfast.spark.mqtt.sink import SINK_OPTIONS, Publishing
from holdfast.spark.options import Options
from password_file import write_password_file
from scripted_server import ScriptedServer, Visit
from spark.brokers import LIMIT_S, Holdfast, Mosquitto, link_options, retained_rows

DENYING = """
[[access]]
permission = "deny"
action = "publish"
filter = "secret/#"
[[access]]
permission = "allow"
action = "all"
filter = "#"
"""


@pytest.fixture(scope="module", params=["holdfast", "mosquitto"])
def denying(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Holdfast | Mosquitto]:
    """A broker that lets everybody publish anything but `secret/#`."""
    folder = tmp_path_factory.mktemp("denying")
    running: Holdfast | Mosquitto
    if request.param == "holdfast":
        running = Holdfast(folder, DENYING)
    else:
        rules = folder / "acl"
        rules.write_text("topic deny secret/#\ntopic readwrite #\n")
        rules.chmod(0o700)
        # without a limit of queued messages this mosquitto closes the connection after each refusal
        extra = f"allow_anonymous true\nacl_file {rules}\nmax_queued_messages 100000\n"
        running = Mosquitto(folder, extra)
    yield running
    running.stop()


def test_a_row_that_the_broker_refuses_fails_the_batch_with_topic_and_reason(
    spark: SparkSession, denying: Holdfast | Mosquitto
) -> None:
    frame = spark.createDataFrame([("fine/1", "x"), ("secret/1", "y")], "topic string, payload string")
    with pytest.raises(PySparkException) as caught:
        frame.write.format("mqtt").options(host="127.0.0.1", port=denying.port).mode("append").save()
    assert "refused a message on 'secret/1': Not authorized" in reason(caught.value)


def test_refused_rows_go_to_the_dead_letters_with_the_brokers_reason(
    spark: SparkSession, denying: Holdfast | Mosquitto, tmp_path: Path
) -> None:
    rows = [(f"{'secret' if n % 3 == 0 else 'open'}/{n}", bytearray(b"%d" % n), True) for n in range(30)]
    frame = spark.createDataFrame(rows, "topic string, payload binary, retain boolean").repartition(2, "topic")
    options = {"host": "127.0.0.1", "port": str(denying.port), "deadLetterPath": str(tmp_path / "letters")}
    frame.write.format("mqtt").options(**options).mode("append").save()
    letters = spark.read.parquet(str(tmp_path / "letters")).collect()
    assert {letter.topic: bytes(letter.payload) for letter in letters} == {
        f"secret/{n}": b"%d" % n for n in range(0, 30, 3)
    }
    assert {letter.reason for letter in letters} == {"Not authorized"}
    kept = retained_rows(link_options(denying.port), "open/#", 20)
    assert {row["topic"] for row in kept} == {f"open/{n}" for n in range(30) if n % 3}


def publishing(port: int, **options: str) -> Publishing:
    schema = StructType().add("topic", "string").add("payload", "binary")
    given = {"host": "127.0.0.1", "port": str(port), **options}
    return Publishing(Options(given, SINK_OPTIONS, "mqtt"), schema)


def rows(count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"topic": [f"t/{n}" for n in range(count)], "payload": [b"x"] * count})


@pytest.mark.parametrize(("window", "allowed", "expected"), [(7, 65535, 7), (1000, 3, 3)])
def test_no_more_than_a_window_is_ever_unanswered(window: int, allowed: int, expected: int) -> None:
    """The smaller of the option and of what the broker allows [5: MQTT-3.3.4-7]."""
    most = 0

    async def script(visit: Visit) -> None:
        nonlocal most
        properties = Properties()
        properties.receive_maximum = allowed
        await visit.accept(ConnAck(False, 0, properties))
        waiting: list[int] = []
        taken = 0
        while taken < 40:
            full = len(waiting) >= expected
            try:
                packet = await asyncio.wait_for(visit.next(), 0.1 if full else LIMIT_S)
                assert isinstance(packet, Publish)
                waiting.append(packet.packet_id)
                taken += 1
                most = max(most, len(waiting))
            except TimeoutError:  # nothing beyond the window: answer some
                for _ in range(expected // 2 + 1):
                    visit.send_raw(b"\x40\x02" + waiting.pop(0).to_bytes(2, "big"))
        for packet_id in waiting:
            visit.send_raw(b"\x40\x02" + packet_id.to_bytes(2, "big"))
        assert await visit.next() is not None

    async def story() -> int:
        async with ScriptedServer(script) as server:
            done = await asyncio.to_thread(publishing(server.port, window=str(window)).publish, iter([rows(40)]))
            return done.written.rows

    assert asyncio.run(story()) == 40
    assert most == expected


def test_a_broker_that_goes_away_fails_the_batch() -> None:
    async def script(visit: Visit) -> None:
        await visit.accept()
        await visit.next()

    async def story() -> None:
        async with ScriptedServer(script) as server:
            await asyncio.to_thread(publishing(server.port, protocolVersion="3.1.1").publish, iter([rows(5)]))

    with pytest.raises(Exception, match=r"the connection to 127\.0\.0\.1:\d+ was lost"):
        asyncio.run(story())


def test_half_a_retained_set_is_an_error() -> None:
    """A broker that dies while it sends: what came before is not handed out as if it were all."""

    async def script(visit: Visit) -> None:
        await visit.accept()
        await visit.next()
        visit.send_raw(b"\x90\x03\x00\x01\x00")
        for number in range(10):
            visit.send(Publish(b"t/%d" % number, b"x", 0, True))

    async def story() -> None:
        async with ScriptedServer(script) as server:
            options = link_options(server.port, protocolVersion="3.1.1")
            await asyncio.to_thread(lambda: list(read_snapshot(options, "#", 0, LIMIT_S, LIMIT_S)))

    with pytest.raises(Exception, match="was lost"):
        asyncio.run(story())


def test_a_wrong_password_is_one_sentence_for_source_and_sink(spark: SparkSession, tmp_path: Path) -> None:
    passwords = write_password_file(tmp_path / "passwords", {"ada": "right"})
    running = Holdfast(tmp_path / "data", f'[auth]\npassword_file = "{passwords}"\n')
    options = {"host": "127.0.0.1", "port": str(running.port), "username": "ada"}
    try:
        frame = spark.createDataFrame([("t", "x")], "topic string, payload string")
        frame.write.format("mqtt").options(**options, password="right", retain="true").mode("append").save()
        assert spark.read.format("mqtt").options(**options, password="right").load().count() == 1
        with pytest.raises(PySparkException) as caught:
            spark.read.format("mqtt").options(**options, password="wrong").load().collect()
        assert "refused the connection: Bad user name or password" in reason(caught.value)
        with pytest.raises(PySparkException) as caught:
            frame.write.format("mqtt").options(**options, password="wrong").mode("append").save()
        assert "refused the connection: Bad user name or password" in reason(caught.value)
    finally:
        running.stop()
