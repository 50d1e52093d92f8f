"""Receiving into the spool: nothing lost and nothing doubled, whatever stops in the middle. No Spark needed here."""

import itertools
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as paho
import pytest

from holdfast.errors import ProtocolError, UsageError
from holdfast.spark.mqtt.retained import read_snapshot
from holdfast_mqtt_stream.receiver import Receiver
from holdfast_mqtt_stream.spool import Spool, list_files, read_rows
from spark.brokers import LIMIT_S, Holdfast, Mosquitto, link_options, publisher, retained_rows, wait_for
from wire import PingResp, WireClient, pingreq, publish

BROKERS: dict[str, type[Mosquitto | Holdfast]] = {"mosquitto": Mosquitto, "holdfast": Holdfast}


@pytest.fixture(params=BROKERS)
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Mosquitto | Holdfast]:
    folder = tmp_path / "broker"
    folder.mkdir()
    running = BROKERS[request.param](folder)
    yield running
    running.stop()


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Mosquitto]:
    folder = tmp_path / "mosquitto"
    folder.mkdir()
    running = Mosquitto(folder)
    yield running
    running.stop()


def receiver(port: int, folder: Path, **changes: object) -> Receiver:
    settings = {
        "client_id": "spark",
        "topic_filter": "in/#",
        "qos": 1,
        "clean": False,
        "session_expiry_s": 3600,
        "spool_limit": 1_000_000,
        **changes,
    }
    return Receiver(link_options(port), folder, **settings)  # type: ignore[arg-type]


def payloads(folder: Path) -> list[str]:
    found = []
    for file in list_files(folder):
        batch = read_rows(file.path, file.start, file.end, ["offset", "payload"])
        assert batch is not None
        found += [(row["offset"], row["payload"].decode()) for row in batch.to_pylist()]
    assert [offset for offset, _ in found] == list(range(len(found)))
    return [payload for _, payload in found]


def test_messages_sent_while_away_arrive_once_and_in_order(broker: Mosquitto | Holdfast, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    receiving = receiver(broker.port, spool)
    receiving.wait_until_ready()
    with publisher(broker.port) as publish:
        for number in range(300):
            publish("in/a", str(number))
    wait_for(lambda: receiving.end == 300, "300 messages")
    receiving.stop()
    with publisher(broker.port) as publish:
        for number in range(300, 500):
            publish("in/a", str(number))
    receiving = receiver(broker.port, spool)
    wait_for(lambda: receiving.end == 500, "200 more messages")
    receiving.stop()
    assert payloads(spool) == [str(number) for number in range(500)]


def test_a_restarted_broker_is_found_again(broker: Mosquitto | Holdfast, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    receiving = receiver(broker.port, spool)
    receiving.wait_until_ready()
    with publisher(broker.port) as publish:
        publish("in/a", "before")
    wait_for(lambda: receiving.end == 1, "the first message")
    broker.stop()
    broker.start()
    with publisher(broker.port) as publish:
        publish("in/a", "after")
    wait_for(lambda: receiving.end == 2, "the message after the restart")
    receiving.stop()
    assert payloads(spool) == ["before", "after"]


KILLED = """
    import signal, sys
    sys.path.insert(0, {tests!r})
    from pathlib import Path
    from spark.test_mqtt_receiver import receiver
    receiving = receiver({port}, Path({spool!r}))
    receiving.wait_until_ready()
    print("ready", flush=True)
    signal.pause()
"""


def test_a_receiver_killed_at_any_moment_loses_and_doubles_nothing(
    broker: Mosquitto | Holdfast, tmp_path: Path
) -> None:
    """The publishes differ, so a lost or doubled one shows; some are killed mid-flush, between spool and ack."""
    spool = tmp_path / "spool"
    sent = 0
    code = textwrap.dedent(KILLED.format(tests=str(Path(__file__).parent.parent), port=broker.port, spool=str(spool)))
    for round_number in range(5):
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=os.environ.copy())
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        with publisher(broker.port) as publish:
            for _ in range(400):
                publish("in/a", str(sent))
                sent += 1
            time.sleep(0.02 * round_number)
            process.send_signal(signal.SIGKILL)
        process.wait(LIMIT_S)
        process.stdout.close()
    with publisher(broker.port) as publish:
        publish("in/a", "the end")  # behind it no double is on its way
    receiving = receiver(broker.port, spool)
    wait_for(lambda: receiving.end > sent, f"all {sent} messages and the end")
    receiving.stop()
    assert payloads(spool) == [*(str(number) for number in range(sent)), "the end"]


def test_two_receivers_on_one_spool_are_refused(mosquitto: Mosquitto, tmp_path: Path) -> None:
    receiving = receiver(mosquitto.port, tmp_path / "spool")
    with pytest.raises(UsageError, match="another query receives into"):
        Spool(tmp_path / "spool")
    receiving.stop()


def test_a_full_spool_stops_acknowledging(mosquitto: Mosquitto, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    receiving = receiver(mosquitto.port, spool, spool_limit=10)
    receiving.wait_until_ready()
    with publisher(mosquitto.port) as publish:
        for number in range(10):
            publish("in/a", str(number))
    wait_for(lambda: receiving.end == 10, "a full spool")
    with publisher(mosquitto.port) as publish:
        for number in range(10, 30):
            publish("in/a", str(number))
    time.sleep(0.3)  # in which the rest would come, if there were room
    assert receiving.end == 10

    def all_received() -> bool:
        receiving.release(receiving.end)
        return receiving.end == 30

    wait_for(all_received, "the rest")
    receiving.stop()


def test_a_wrong_password_is_said_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "broker"
    folder.mkdir()
    (folder / "passwords").write_text("")
    subprocess.run(["mosquitto_passwd", "-b", str(folder / "passwords"), "ada", "right"], check=True)
    os.chmod(folder / "passwords", 0o644)
    running = Mosquitto(folder, f"allow_anonymous false\npassword_file {folder}/passwords\n")
    try:
        good = link_options(running.port, username="ada", password="right")
        assert [rows for rows, _ in read_snapshot(good, "nothing/#", 0, 0.2, LIMIT_S)] == [[]]
        bad = link_options(running.port, username="ada", password="wrong")
        with pytest.raises(ProtocolError, match="refused the connection: Not authorized"):
            list(read_snapshot(bad, "#", 0, 0.2, LIMIT_S))
    finally:
        running.stop()


def test_nobody_listening_is_said_at_once() -> None:
    with pytest.raises(ProtocolError, match=r"could not connect to 127\.0\.0\.1:1: .*is the broker running\?"):
        list(read_snapshot(link_options(1), "#", 0, 0.2, LIMIT_S))


@pytest.mark.parametrize("version", [paho.MQTTv311, paho.MQTTv5])
def test_a_snapshot_is_the_retained_set(broker: Mosquitto | Holdfast, version: int) -> None:
    with publisher(broker.port, version) as publish:
        for number in range(2500):
            publish(f"set/{number % 2000}", str(number), retain=True)
        publish("set/5", b"", retain=True)
        publish("set/live", "not retained")
    options = link_options(broker.port, protocolVersion="5" if version == paho.MQTTv5 else "3.1.1")
    expected = {f"set/{n}": str(n + 2000 if n < 500 else n) for n in range(2000) if n != 5}
    rows = retained_rows(options, "set/#", len(expected))
    assert {row["topic"]: row["payload"].decode() for row in rows} == expected
    assert len(rows) == len(expected)


def test_holdfast_says_when_its_snapshot_ends(tmp_path: Path) -> None:
    running = Holdfast(tmp_path)
    try:
        with publisher(running.port) as publish:
            for number in range(50):
                publish(f"set/{number}", "x", retain=True)
        # a reader that waits for quiet would run into the limit
        *_, (rows, end) = read_snapshot(link_options(running.port), "set/#", 2, 10 * LIMIT_S, LIMIT_S)
        assert end is not None
        assert end["count"] == 50
        assert sorted(row["offset"] for row in rows) == list(range(rows[0]["offset"], rows[0]["offset"] + 50))
    finally:
        running.stop()


def test_topics_that_change_while_the_set_is_read_are_in_it(tmp_path: Path) -> None:
    """Holdfast leaves a topic that changes before its turn out of the snapshot and sends the change instead."""
    running = Holdfast(tmp_path)
    stop = threading.Event()

    def go_on() -> None:
        with WireClient(running.port) as client:
            client.connect("restless")
            for topic in itertools.cycle(range(19_999, 0, -7)):
                if stop.is_set():
                    break
                client.send(publish(f"set/{topic}", b"new", retain=True) + publish("set/never-retained", b"live"))
                time.sleep(0.0002)

    try:
        with WireClient(running.port) as client:
            client.connect("first")
            client.send(b"".join(publish(f"set/{n}", b"x" * 100, retain=True) for n in range(20_000)) + pingreq())
            client.expect(PingResp, timeout=LIMIT_S)
        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            rows = retained_rows(link_options(running.port), "set/#", 20_000)
        finally:
            stop.set()
            thread.join()
    finally:
        running.stop()
    assert sorted(row["topic"] for row in rows) == sorted(f"set/{n}" for n in range(20_000))
    assert {row["payload"] for row in rows} == {b"new", b"x" * 100}
