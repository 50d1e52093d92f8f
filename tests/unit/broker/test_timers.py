"""What clients that come and go leave behind in the heap of things that are due."""

import gc
import weakref
from typing import Any

import pytest

import wire
from core_driver import carry_out
from holdfast.broker.core import Broker
from holdfast.broker.ports import Peer
from holdfast.broker.settings import Settings
from holdfast.protocol.mqtt.connection import CLOSED
from wire import P

NOW_MS = 1_700_000_000_000


class Ear(Peer):
    def write(self, data: bytes) -> None:
        pass

    def close(self, reason: str) -> None:
        pass


def visit(broker: Broker, client_id: str, now_ms: int, **fields: Any) -> Ear:
    peer = Ear()
    connection = broker.open(peer, now_ms)
    carry_out(broker.receive(connection, wire.connect(client_id, version=5, keep_alive=65535, **fields), now_ms))
    carry_out(broker.receive(connection, wire.disconnect(), now_ms))
    return peer


LONG = [(P.SESSION_EXPIRY, 0xFFFFFFFE)]
CASES: dict[str, dict[str, Any]] = {
    "short sessions": {},
    "long sessions started afresh": {"properties": LONG},
    "one long session resumed": {"properties": LONG, "clean": False},
    "one with a will that waits": {
        "properties": LONG,
        "clean": False,
        "will": wire.Will("w", b"x", properties=[(P.WILL_DELAY, 0xFFFFFFF)]),
    },
}


@pytest.mark.parametrize("name", CASES)
def test_clients_that_come_and_go_leave_nothing_behind(name: str) -> None:
    broker = Broker(Settings(), "x")
    peers = []
    for number in range(5000):
        peers.append(weakref.ref(visit(broker, "same", NOW_MS + number, **CASES[name])))
        if number % 100 == 0:
            carry_out(broker.tick(NOW_MS + number))
    carry_out(broker.tick(NOW_MS + 5000))
    gc.collect()
    assert len(broker.timers.heap) < 1500
    assert sum(peer() is not None for peer in peers) < 1500


def test_sweeping_keeps_what_is_due() -> None:
    broker = Broker(Settings(), "x")
    stays = broker.open(Ear(), NOW_MS)
    carry_out(broker.receive(stays, wire.connect("stays", version=5, keep_alive=10), NOW_MS))
    leaves = broker.open(Ear(), NOW_MS)
    hello = wire.connect("leaves", version=5, properties=[(P.SESSION_EXPIRY, 30)])
    carry_out(broker.receive(leaves, hello, NOW_MS))
    carry_out(broker.lost(leaves, NOW_MS))
    silent = broker.open(Ear(), NOW_MS)
    for number in range(2000):
        visit(broker, f"v{number}", NOW_MS + 1)
    carry_out(broker.tick(NOW_MS + 2))
    assert len(broker.timers.heap) < 1500
    carry_out(broker.tick(NOW_MS + 14_000))
    assert (silent.state == CLOSED, stays.state == CLOSED) == (True, False)
    carry_out(broker.tick(NOW_MS + 15_000))
    assert (silent.state == CLOSED, stays.state == CLOSED) == (True, True)
    assert "leaves" in broker.sessions
    carry_out(broker.tick(NOW_MS + 30_000))
    assert "leaves" not in broker.sessions
