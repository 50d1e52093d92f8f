"""What a node decides about itself, without a network: whose time it lives by, and where it sends its clients."""

import asyncio
from collections.abc import Iterator

import pytest

from core_driver import ListLog
from holdfast.broker.core import Broker
from holdfast.broker.pending import Member
from holdfast.broker.settings import Settings
from holdfast.broker.shared import SharedLog
from holdfast.cluster.connection import Connection
from holdfast.cluster.options import ConnectionOptions, StreamOptions
from holdfast.net.driver import Driver
from holdfast.node.cluster_node import ClusterNode
from holdfast.node.options import NodeOptions

LOG_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


class ToldClock:
    def __init__(self) -> None:
        self.ms = LOG_MS

    def time(self) -> float:
        return self.ms / 1000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ToldClock:
    told = ToldClock()
    monkeypatch.setattr("time.time", told.time)
    return told


@pytest.fixture
def node(clock: ToldClock) -> Iterator[ClusterNode]:
    loop = asyncio.new_event_loop()
    broker = Broker(Settings(), "a-")
    log = SharedLog(ListLog(), [])
    shared = broker.use_shared_log(log, "a")
    driver = Driver(broker, loop)
    driver.use_log(log)
    connection = Connection(ConnectionOptions(("nats://localhost:1",)), loop)
    yield ClusterNode(driver, shared, connection, NodeOptions("a", StreamOptions()))
    loop.close()


def come_back(node: ClusterNode, clock: ToldClock, log_ms: int, after_ms: int = 4) -> None:
    """An own entry leaves now, gets this time in the log, and is back a little later."""
    node.sent.append((1, clock.ms))
    clock.ms += after_ms
    node.learn_time(1, log_ms)


@pytest.mark.parametrize("hours", [-5, -1, 1, 5])
def test_a_clock_that_is_hours_off_is_corrected_with_the_first_entry(
    node: ClusterNode, clock: ToldClock, hours: int, caplog: pytest.LogCaptureFixture
) -> None:
    clock.ms = LOG_MS + hours * HOUR_MS
    node.driver.now_ms()
    come_back(node, clock, LOG_MS)
    assert abs(node.driver.now_ms() - LOG_MS) < 200
    clock.ms += 10_000
    assert abs(node.driver.now_ms() - LOG_MS - 10_000) < 200  # and it goes on
    assert [record.getMessage() for record in caplog.records] == [
        "the clock of this machine differs from that of the log servers, whose time is used: check NTP"
    ]
    come_back(node, clock, LOG_MS + 10_000)
    assert len(caplog.records) == 1


def test_a_clock_that_is_right_is_left_alone(node: ClusterNode, clock: ToldClock) -> None:
    come_back(node, clock, LOG_MS + 2)
    assert node.driver.skew_ms == 0


def test_an_entry_that_was_long_under_way_says_little_about_the_clock(node: ClusterNode, clock: ToldClock) -> None:
    come_back(node, clock, LOG_MS + 20_000, after_ms=30_000)
    assert node.driver.skew_ms == 0


@pytest.mark.parametrize(("address", "reason"), [("", 0x8B), ("b.example.org:1883", 0x9C)])
def test_clients_are_sent_to_another_node_where_its_address_is_known(
    node: ClusterNode, monkeypatch: pytest.MonkeyPatch, address: str, reason: int
) -> None:
    other = node.shared.members["b"] = Member("b")
    other.up, other.address = True, address
    sent: list[tuple[int, str, str]] = []
    monkeypatch.setattr(node.driver, "send_all_away", lambda *told: sent.append(told))
    node.send_all_away("no quorum")
    assert sent == [(reason, "no quorum", address)]
