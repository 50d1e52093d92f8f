"""What is told of clients: a few lines of each, and a count of what was left out."""

import logging
from collections.abc import Iterator

import pytest

from holdfast.broker.ports import Peer
from holdfast.broker.seen import CONNECTED, LOGIN_FAILED, PUBLISH_DENIED, Seen
from holdfast.broker.session import Connection
from holdfast.net import sightings
from holdfast.net.sightings import BURST, LINES_PER_TICK, REMEMBERED_MOST, TELL_AFTER_S, Sightings


class From(Peer):
    def __init__(self, address: str) -> None:
        self.address = address

    def remote_address(self) -> str:
        return self.address


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def left_out(self) -> int:
        return sum(getattr(record, "left_out", 0) for record in self.records)


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler = Lines()
    before = sightings.log.level
    sightings.log.addHandler(handler)
    sightings.log.setLevel(logging.INFO)
    yield handler
    sightings.log.setLevel(before)
    sightings.log.removeHandler(handler)


def seen(event: str, client_id: str, address: str = "192.0.2.1:1000") -> Seen:
    return Seen(event, Connection(From(address), 0), client_id, "ann", {"topic": b"t"})


def test_a_line_says_who_and_from_where(lines: Lines) -> None:
    Sightings().write([seen(PUBLISH_DENIED, "c1")], 0, 0.0)
    (record,) = lines.records
    assert record.getMessage() == "publish denied"
    fields = record.__dict__
    assert [fields[name] for name in ("client_id", "username", "address", "topic")] == [
        "c1",
        "ann",
        "192.0.2.1:1000",
        b"t",
    ]


def test_a_client_that_repeats_itself_gets_a_few_lines_and_a_count(lines: Lines) -> None:
    writer = Sightings()
    writer.write([seen(PUBLISH_DENIED, "loud") for _ in range(BURST + 30)], 0, 0.0)
    assert len(lines.records) == BURST
    writer.write([seen(PUBLISH_DENIED, "other")], 0, 0.0)
    assert len(lines.records) == BURST + 1, "others are told of all the same"
    writer.write([seen(PUBLISH_DENIED, "loud")], 0, 2.0)
    assert lines.left_out() == 30
    writer.on_tick(3.0)
    assert lines.left_out() == 30, "told once"


def test_what_was_left_out_is_told_also_when_nothing_follows(lines: Lines) -> None:
    writer = Sightings()
    writer.write([seen(CONNECTED, "loud") for _ in range(BURST + 5)], 7, 0.0)
    writer.on_tick(TELL_AFTER_S / 2)
    assert lines.left_out() == 7, "of which nobody knows whose they are"
    writer.on_tick(TELL_AFTER_S)
    assert lines.left_out() == 12
    assert not writer.owing


def test_who_fails_to_log_in_counts_by_address_whatever_it_calls_itself(lines: Lines) -> None:
    writer = Sightings()
    for number in range(BURST + 5):
        address = f"[2001:db8::{number:x}]:{1000 + number}"
        writer.write([seen(LOGIN_FAILED, f"name {number}", address)], 0, 0.0)
    assert len(lines.records) == BURST


def test_many_clients_cannot_flood_the_lines_nor_the_memory(lines: Lines) -> None:
    writer = Sightings()
    events = REMEMBERED_MOST * 2 + 5
    for number in range(events):
        writer.write([seen(CONNECTED, f"c{number}")], 0, 0.0)
    assert len(writer.shares) <= REMEMBERED_MOST
    assert len(lines.records) == LINES_PER_TICK
    now = 0.0
    while writer.owing or writer.left_out:
        now += TELL_AFTER_S
        writer.on_tick(now)
    told = [record for record in lines.records if not hasattr(record, "left_out")]
    assert len(told) + lines.left_out() == events


def test_nothing_is_kept_where_nothing_is_written(lines: Lines) -> None:
    sightings.log.setLevel(logging.WARNING)
    writer = Sightings()
    writer.write([seen(CONNECTED, "c") for _ in range(50)], 5, 0.0)
    writer.on_tick(100.0)
    assert lines.records == []
    assert not writer.shares


def test_what_is_denied_over_http_is_told_and_kept_and_counts_for_its_address(lines: Lines) -> None:
    told = Sightings()
    for number in range(BURST + 5):
        told.deny("API login failed", "ann", "192.0.2.1", "", 0.0, number)
    told.deny("API request denied", "bob", "192.0.2.2", "user 'bob' may not do this", 0.0, 9)
    assert len(lines.records) == BURST + 1
    fields = lines.records[-1].__dict__
    assert [fields[name] for name in ("username", "address", "reason")] == [
        "bob",
        "192.0.2.2",
        "user 'bob' may not do this",
    ]
    told.on_tick(TELL_AFTER_S)
    assert lines.left_out() == 5
    assert [(one.event, one.host, one.count) for one in told.denials.newest_first()] == [
        ("API request denied", "192.0.2.2", 1),
        ("API login failed", "192.0.2.1", BURST + 5),
    ]
