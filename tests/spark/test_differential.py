"""Three opinions on one history: the broker that wrote it, Spark's fold of it, and a ten-line fold in plain Python.

Random publishes go through the real broker over every protocol it speaks, with limits, policies and expiries on. While
they do, the broker's retained set is read as of some offsets; afterwards all three must agree on each of them.
"""

import random
import shutil
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from broker_process import BrokerProcess, start_holdfast
from holdfast.errors import UsageError
from holdfast.spark.fold import fold
from holdfast.spark.jobs.audit import audit_live
from holdfast.spark.jobs.live import Live, read_live
from holdfast.spark.keeper import Keeper
from holdfast.spark.ranges import History
from http_api import Api
from sn_client import SnClient
from spark.brokers import LIMIT_S, link_options, wait_for
from spark.publishes import Row
from spark.test_fold import as_set, normal
from wire import P, PingResp, WireClient, pingreq, publish

PUBLISHES = {"all": 200_000, "retained": 60_000}  # by what the broker records
CHUNK = 1000
TOPICS = 4000
END = "the/end"
CONFIG = """
[retainer]
max_retained_messages = 2500
max_payload_size = 120
[[retainer.policy]]
filter = "site/+/+/set"
action = "drop-flag"
[[retainer.policy]]
filter = "site/3/#"
max_messages = 150
"""


class Fleet:
    """Clients of every kind that publish whatever a seed says."""

    def __init__(self, broker: BrokerProcess, seed: int) -> None:
        self.broker = broker
        self.rng = random.Random(seed)
        self.wires = [WireClient(broker.port, version) for version in (4, 5)]
        for number, client in enumerate(self.wires):
            client.connect(f"fleet{number}")
        self.sensors = [SnClient(broker.ports["udp"], version, f"sensor{version}") for version in (1, 2)]
        for sensor in self.sensors:
            sensor.connect()
        self.api = Api(broker)
        self.topics = [f"site/{n % 7}/{n}/{'set' if n % 11 == 0 else 'temp'}" for n in range(TOPICS)]
        self.sent = 0
        self.to_retain = 0

    def publish_some(self, count: int) -> None:
        """A chunk from each TCP client, then a few from the slow ones; all handled on return."""
        for at in range(0, count, CHUNK):
            client = self.wires[at // CHUNK % 2]
            client.send(b"".join(self._frame(client) for _ in range(CHUNK)) + pingreq())
            client.expect(PingResp, timeout=LIMIT_S)
            self.sent += CHUNK
        for sensor in self.sensors:
            for _ in range(3):
                sensor.publish(self._topic(), self._payload(), qos=1, retain=True)
                self.sent += 1
                self.to_retain += 1
        self.api.set(self._topic(), "from the api")
        self.sent += 1
        self.to_retain += 1

    def end(self) -> None:
        """Behind this row history has no other."""
        [client, _] = self.wires
        client.send(publish(END, b"x", retain=True) + pingreq())
        client.expect(PingResp, timeout=LIMIT_S)
        self.sent += 1
        self.to_retain += 1

    def _topic(self) -> str:
        return self.topics[min(int(self.rng.expovariate(3 / TOPICS)), TOPICS - 1)]

    def _payload(self) -> bytes:
        draw = self.rng.random()
        return b"" if draw < 0.12 else b"%d" % self.rng.randrange(10**9) if draw < 0.95 else bytes(150)

    def _frame(self, client: WireClient) -> bytes:
        rng = self.rng
        properties: list[tuple[int, object]] = []
        if client.version == 5 and rng.random() < 0.3:
            properties.append((P.USER_PROPERTY, ("k", str(rng.randrange(9)))))
            if rng.random() < 0.5:
                properties.append((P.MESSAGE_EXPIRY, rng.choice((1, 3, 5000))))
            if rng.random() < 0.3:
                properties += [(P.CONTENT_TYPE, "text/plain"), (P.CORRELATION_DATA, b"\x01\x02")]
        retain = rng.random() < 0.85
        self.to_retain += retain
        return publish(self._topic(), self._payload(), retain=retain, properties=properties, version=client.version)

    def close(self) -> None:
        for client in self.wires:
            client.cut()
        for sensor in self.sensors:
            sensor.close()
        self.api.close()


@pytest.fixture(scope="module", params=PUBLISHES)
def record(request: pytest.FixtureRequest) -> str:
    """What the broker records: the fold needs no more than publishes with RETAIN."""
    return str(request.param)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, record: str) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("differential")
    (folder / "holdfast.toml").write_text(CONFIG)
    running = start_holdfast(
        folder / "data",
        {"history.record": record},
        listen=("tcp://127.0.0.1:0", "udp://127.0.0.1:0", "http://127.0.0.1:0"),
        args=("--config", str(folder / "holdfast.toml")),
    )
    yield running
    running.stop()


class Story:
    """What was published, and the sets that were read on the way."""

    def __init__(self, spark: SparkSession, broker: BrokerProcess, folder: Path, publishes: int) -> None:
        self.sets: list[Live] = []
        fleet = Fleet(broker, seed=99)
        while fleet.sent < publishes:
            fleet.publish_some(publishes // 10)
            if fleet.sent > (len(self.sets) + 1) * publishes // 4:
                live = read_live(spark, link_options(broker.port), "#")
                self.sets.append(live._replace(rows=live.rows.persist()))
        fleet.end()
        self.sent, self.to_retain = fleet.sent, fleet.to_retain
        fleet.close()
        self.history = History(str(folder / "history"))
        wait_for(lambda: ends(self.history), "all of history")


@pytest.fixture(scope="module")
def data(broker: BrokerProcess) -> Path:
    return Path(broker.command[broker.command.index("--data") + 1])


@pytest.fixture(scope="module")
def story(spark: SparkSession, broker: BrokerProcess, data: Path, record: str) -> Story:
    return Story(spark, broker, data, PUBLISHES[record])


@pytest.fixture(scope="module")
def rows(story: Story) -> list[Row]:
    """All of history, by deltalake alone, in offset order."""
    table = DeltaTable(story.history.location).to_pyarrow_table().sort_by("offset")
    found: list[Row] = table.to_pylist()
    return found


def ends(history: History) -> bool:
    history.refresh()
    return END in history.sample(history.end - CHUNK, history.end, CHUNK, ["topic"])["topic"].to_pylist()


def plain_fold(rows: list[Row], offset: int) -> dict[str, Row]:
    held: dict[str, Row] = {}
    for row in rows:
        if row["offset"] > offset:
            break
        if row["outcome"] == "set":
            held[row["topic"]] = row
        elif row["outcome"] == "cleared":
            held.pop(row["topic"], None)
    return held


def test_history_has_every_publish_once_in_order(story: Story, rows: list[Row], record: str) -> None:
    offsets = [row["offset"] for row in rows]
    assert len(rows) >= (story.sent if record == "all" else story.to_retain) > PUBLISHES[record] // 2
    assert offsets == sorted(set(offsets))
    times = [row["timestamp"] for row in rows]
    assert times == sorted(times)
    assert {row["protocol"] for row in rows} == {"3.1.1", "5.0", "SN1.2", "SN2.0", "api"}
    outcomes = {row["outcome"] for row in rows}
    assert {"set", "cleared", "refused_size", "refused_count"} <= outcomes
    assert ("live" in outcomes) == (record == "all") == any(not row["retain"] for row in rows)


def test_the_broker_spark_and_plain_python_agree_at_every_version_read(
    spark: SparkSession, story: Story, rows: list[Row]
) -> None:
    assert len(story.sets) >= 3
    history = spark.read.format("holdfast").load(story.history.location).cache()
    for live in story.sets:
        assert live.version is not None
        seen = as_set(live.rows)
        held = plain_fold(rows, live.version)
        late = live.ended_s + 2
        wanted = {topic for topic, row in held.items() if lives(row, late)}
        possible = {topic for topic, row in held.items() if lives(row, live.begun_s - 2)}
        assert wanted <= seen.keys() <= possible
        folded = as_set(fold(history, live.version))
        now_s = clock(rows, live.version)
        mine = {topic: normal(row) for topic, row in held.items() if lives(row, now_s)}
        assert folded == mine
        for topic in wanted:
            assert compared(seen[topic]) == compared(normal(held[topic])), topic
    history.unpersist()


def lives(row: Row, at_s: float) -> bool:
    return row["expires_at"] is None or row["expires_at"].timestamp() > at_s


def clock(rows: list[Row], offset: int) -> float:
    newest: datetime = max(row["timestamp"] for row in rows if row["offset"] <= offset)
    return newest.timestamp()


def compared(row: tuple[object, ...]) -> tuple[object, ...]:
    """Offset, topic, payload, QoS and user properties: what the wire carries exactly."""
    from holdfast.spark.fold import RETAINED_COLUMNS

    values = dict(zip(RETAINED_COLUMNS, row, strict=True))
    names = ("offset", "topic", "payload", "qos", "content_type", "correlation_data", "user_properties")
    return tuple(values[name] for name in names)


def test_an_audit_of_the_running_broker_finds_no_difference(
    spark: SparkSession, story: Story, broker: BrokerProcess
) -> None:
    story.history.refresh()
    result = audit_live(spark, story.history, link_options(broker.port))
    assert result.differences.collect() == []
    assert result.topics > 1000


def test_an_audit_against_the_history_of_another_time_says_so(
    spark: SparkSession, story: Story, broker: BrokerProcess, tmp_path: Path
) -> None:
    shutil.copytree(story.history.location, tmp_path / "copy")
    with WireClient(broker.port) as client:
        client.connect("later")
        client.send(publish("site/1/1/temp", b"changed since", retain=True) + pingreq())
        client.expect(PingResp, timeout=LIMIT_S)
    with pytest.raises(UsageError, match="is it that broker's history"):
        audit_live(spark, History(str(tmp_path / "copy")), link_options(broker.port), wait_s=1)


def test_an_audit_holds_while_the_broker_goes_on_changing(
    spark: SparkSession, story: Story, broker: BrokerProcess
) -> None:
    import threading

    stop = threading.Event()

    def go_on() -> None:
        with WireClient(broker.port) as client:
            client.connect("restless")
            number = 0
            while not stop.is_set():
                number += 1
                client.send(publish(f"site/1/{number % 300}/temp", b"%d" % number, retain=True))
                time.sleep(0.002)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        result = audit_live(spark, story.history, link_options(broker.port))
    finally:
        stop.set()
        thread.join()
    assert result.differences.collect() == []


def test_the_pipelines_tables_agree_with_the_broker(
    spark: SparkSession, story: Story, data: Path, rows: list[Row]
) -> None:
    keeper = Keeper(spark, story.history.location, str(data / "pipeline"))
    try:
        for name in ("retained", "traffic"):
            while keeper.advance(name, 90_000):
                pass
        assert total(keeper.tables["traffic"].frame(spark)) == keeper.history.rows
        held = as_set(keeper.tables["retained"].frame(spark))
        last = rows[-1]["offset"]
        if keeper.history.end == last + 1:
            alive = {
                t: normal(r) for t, r in plain_fold(rows, last).items() if lives(r, rows[-1]["timestamp"].timestamp())
            }
            assert held == alive
    finally:
        keeper.close()


def total(traffic: DataFrame) -> int:
    return sum(row.messages for row in traffic.select("messages").collect())
