"""Which publishes become rows of the history, and which are not even written to the log."""

from __future__ import annotations

from typing import Any

import pytest

import wire
from core_broker import CoreBroker
from core_driver import ListLog
from holdfast.broker.message import OUTCOMES, Publisher
from holdfast.broker.records import PUBLISH, Columns
from sn_world import World as SensorWorld
from wire import Will

LIMITED: dict[str, Any] = {
    "retainer__max_payload_size": 4,
    "retainer__policy": [
        {"filter": "cmnd/#", "action": "drop-flag"},
        {"filter": "closed/#", "action": "refuse"},
        {"filter": "few/#", "max_messages": 1},
    ],
}


class RecordingBroker(CoreBroker):
    """A broker whose history has the topics under these filters."""

    def __init__(self, records_live: bool, filters: tuple[str, ...] = ("#",), **settings: Any) -> None:
        super().__init__(**settings)
        self.log = ListLog(history_filters=[name.encode() for name in filters], records_live=records_live)
        self.world.broker.use_log(self.log)

    def rows(self) -> list[tuple[str, str]]:
        return rows_of(self.log)


def rows_of(log: ListLog) -> list[tuple[str, str]]:
    """Topic and outcome of each row, in order."""
    columns = Columns()
    columns.add_all(log.records, 0)
    pairs = zip(columns.topics, columns.outcomes, strict=True)
    return [(topic.decode(), OUTCOMES[outcome]) for topic, outcome in pairs]


def publish_everything(broker: RecordingBroker, qos: int, version: int) -> None:
    client = broker.join("writer", version)
    for number, (topic, payload, retain) in enumerate(
        [
            ("a", b"1", False),
            ("a", b"1", True),
            ("a", b"too large", True),
            ("cmnd/a", b"1", True),
            ("closed/a", b"1", True),
            ("few/1", b"1", True),
            ("few/2", b"1", True),
            ("a", b"", True),
            ("a", b"2", False),
        ],
        start=1,
    ):
        packet_id = number if qos else None
        client.send(wire.publish(topic, payload, qos=qos, retain=retain, packet_id=packet_id, version=version))


WITH_RETAIN = [
    ("a", "set"),
    ("a", "refused_size"),
    ("cmnd/a", "refused_policy"),
    ("closed/a", "refused_policy"),
    ("few/1", "set"),
    ("few/2", "refused_budget"),
    ("a", "cleared"),
]


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_every_publish_with_retain_is_a_row_whatever_became_of_it(qos: int, version: int) -> None:
    broker = RecordingBroker(False, **LIMITED)
    publish_everything(broker, qos, version)
    assert broker.rows() == WITH_RETAIN


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_publishes_without_retain_are_rows_where_all_are_recorded(qos: int) -> None:
    broker = RecordingBroker(True, **LIMITED)
    publish_everything(broker, qos, 4)
    assert broker.rows() == [("a", "live"), *WITH_RETAIN, ("a", "live")]


@pytest.mark.parametrize("records_live", [False, True])
def test_the_filter_narrows_both_kinds(records_live: bool) -> None:
    broker = RecordingBroker(records_live, ("few/+",), **LIMITED)
    publish_everything(broker, 1, 4)
    broker.join("other").publish("few/9", b"1")
    expected = [("few/1", "set"), ("few/2", "refused_budget")]
    assert broker.rows() == ([*expected, ("few/9", "live")] if records_live else expected)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1])
def test_a_live_publish_that_nobody_absent_waits_for_leaves_nothing_in_the_log(qos: int, version: int) -> None:
    broker = RecordingBroker(False)
    broker.join("reader", version).subscribe("a", qos=qos)
    writer = broker.join("writer", version)
    for number in range(1, 4):
        writer.send(wire.publish("a", b"1", qos=qos, packet_id=number if qos else None, version=version))
    assert broker.log.records == []


def test_a_live_publish_that_waits_for_a_session_is_kept_and_is_no_row() -> None:
    broker = RecordingBroker(False)
    broker.join("absent", keep=True).subscribe("a", qos=1)
    broker.join("writer").publish("a", b"1", qos=1)
    assert [record[1] for record in broker.log.records].count(PUBLISH) == 1
    assert broker.rows() == []


@pytest.mark.parametrize(("records_live", "rows"), [(False, []), (True, [("gone", "live")])])
def test_a_will_without_retain_is_a_live_publish(records_live: bool, rows: list[tuple[str, str]]) -> None:
    broker = RecordingBroker(records_live)
    client = broker.join("me", will=Will("gone", b"1"))
    client.cut()
    assert broker.rows() == rows


def test_a_will_with_retain_is_a_row() -> None:
    broker = RecordingBroker(False)
    client = broker.join("me", will=Will("gone", b"1", retain=True))
    client.cut()
    assert broker.rows() == [("gone", "set")]


@pytest.mark.parametrize("retain", [False, True])
def test_what_an_operator_publishes_is_recorded_like_any_other(retain: bool) -> None:
    broker = RecordingBroker(False)
    world = broker.world
    world.carry_out(world.broker.publish(Publisher("api-1", "", "api"), b"a", b"1", 1, retain, world.now_ms))
    assert broker.rows() == ([("a", "set")] if retain else [])


@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("connected", [False, True])
def test_what_a_sensor_publishes_is_recorded_like_any_other(connected: bool, retain: bool) -> None:
    log = ListLog(history_filters=[b"#"], records_live=False)
    world = SensorWorld(log=log, open_filters=[b"#"], open_retain=True)
    if connected:
        world.play("c1", "08 04 04 01 00 3C 63 31 -> 03 05 00")
    flags = (0x22 if connected else 0x62) | (0x10 if retain else 0)  # QoS 1 or -1, a topic of two letters
    world.send("c1", bytes([8, 0x0C, flags]) + b"ab" + bytes([0, 1]) + b"1")
    assert rows_of(log) == ([("ab", "set")] if retain else [])
    assert retain or log.records == []
