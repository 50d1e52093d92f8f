"""A disk that takes nothing more, under the real broker: refused, not lost, and over when there is room again.

The system is told to let the process write no file any further, which every write then reports as it would a full disk.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest

from broker_process import BrokerProcess
from wire import Disconnect, P, PubAck, Publish, WireClient

QUOTA_EXCEEDED = 0x97
WITHIN_S = 120.0


@contextmanager
def full_disk(process: psutil.Process) -> Iterator[None]:
    limits = process.rlimit(psutil.RLIMIT_FSIZE)
    process.rlimit(psutil.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        process.rlimit(psutil.RLIMIT_FSIZE, limits)


def follower(broker: BrokerProcess, name: str) -> psutil.Process:
    def find() -> psutil.Process | None:
        for child in psutil.Process(broker.pid).children():
            if f"follower_main {name}" in " ".join(child.cmdline()):
                return child
        return None

    return until(find)


def until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError(f"did not come about within {WITHIN_S} s")


def publish_until_accepted(broker: BrokerProcess, topic: str, payload: bytes) -> None:
    def accepted() -> bool:
        with WireClient(broker.port, 5) as client:
            client.connect("again")
            client.send_publish(topic, payload, qos=1, retain=True)
            answer = client.recv()
            return isinstance(answer, PubAck) and answer.reason < 0x80

    until(accepted)


def retained(broker: BrokerProcess, topic_filter: str) -> dict[str, bytes]:
    with WireClient(broker.port, 4) as client:
        client.connect("reader")
        client.subscribe(topic_filter)
        return {p.topic: p.payload for p in client.everything() if isinstance(p, Publish)}


def test_publishes_are_refused_while_the_disk_is_full_and_accepted_again_after(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker(history__enable=True)
    with WireClient(broker.port, 5) as client:
        client.connect("five")
        assert client.publish("full/before", b"kept", qos=1, retain=True) is not None
    with full_disk(psutil.Process(broker.pid)):
        with WireClient(broker.port, 5) as five:
            five.connect("five")
            five.send_publish("full/five", b"refused", qos=1, retain=True)
            answer = five.recv()
            assert isinstance(answer, PubAck | Disconnect)
            assert answer.reason == QUOTA_EXCEEDED
        with WireClient(broker.port, 4) as four:
            four.connect("four")
            four.send_publish("full/four", b"refused", qos=1, retain=True)
            assert not any(isinstance(p, PubAck) for p in four.drain_until_closed())
        with WireClient(broker.port, 4) as plain:
            plain.connect("plain")
            plain.subscribe("full/live")
            plain.publish("full/live", b"works", qos=0)
            assert [p.payload for p in plain.barrier() if isinstance(p, Publish)] == [b"works"]
            assert retained(broker, "full/before") == {"full/before": b"kept"}
    publish_until_accepted(broker, "full/after", b"room again")
    assert retained(broker, "full/after") == {"full/after": b"room again"}
    broker.kill()
    again = start_broker(data=broker_folder(broker), history__enable=True)
    found = retained(again, "full/#")
    assert found["full/before"] == b"kept"
    assert found["full/after"] == b"room again"


def broker_folder(broker: BrokerProcess) -> Any:
    from pathlib import Path

    return Path(broker.command[broker.command.index("--data") + 1])


@pytest.mark.parametrize("name", ["state", "history"])
def test_a_follower_whose_disk_is_full_holds_up_nobody_and_catches_up(
    start_broker: Callable[..., BrokerProcess], name: str
) -> None:
    broker = start_broker(history__flush_interval="200ms")
    folder = broker_folder(broker)
    with WireClient(broker.port, 5) as client:
        client.connect("writer", properties=[(P.SESSION_EXPIRY, 0)])
        client.publish("follow/0", b"first", qos=1, retain=True)
        process = follower(broker, name)
        if name == "history":
            until(lambda: (folder / "history" / "_delta_log").is_dir())
        with full_disk(process):
            for number in range(1, 200):
                client.publish(f"follow/{number}", bytes(2000), qos=1, retain=True)
            broker.wait_output("cannot be written", timeout=WITHIN_S)
        until(lambda: "caught up" in broker.output)
    assert broker.stop() == 0
    again = start_broker(data=folder, history__enable=True)
    assert len(retained(again, "follow/#")) == 200
    again.stop()
    from deltalake import DeltaTable

    rows = DeltaTable(str(folder / "history")).to_pyarrow_table()
    assert sorted(set(rows["offset"].to_pylist())) == sorted(rows["offset"].to_pylist())
    assert rows.num_rows == 200
