"""How the work of many snapshots is shared out: in portions, in turn, so that nobody gets far ahead."""

import wire
from holdfast.broker.core import Broker
from holdfast.broker.message import Publisher
from holdfast.broker.ports import Peer
from holdfast.broker.settings import Settings

NOW_MS = 1_700_000_000_000
MESSAGES = 30_000
READERS = 8


class Ear(Peer):
    def write(self, data: bytes) -> None:
        pass

    def close(self, reason: str) -> None:
        raise AssertionError(reason)


def test_snapshots_advance_side_by_side_whoever_asked_first() -> None:
    broker = Broker(Settings(), "x")
    publisher = Publisher("p", "", "5.0")
    for number in range(MESSAGES):
        broker.publish(publisher, b"t/%05d" % number, b"x" * 20, 0, True, NOW_MS)
    frame = len(wire.publish("t/00000", b"x" * 20, retain=True, version=4))
    connections = [broker.open(Ear(), NOW_MS) for _ in range(READERS)]
    sent = [0] * READERS
    for number, connection in enumerate(connections):
        broker.receive(connection, wire.connect(f"r{number}", version=4), NOW_MS)
        broker.receive(connection, wire.subscribe(1, [("t/#", 0)], version=4), NOW_MS)
        sent[number] += len(connection.take())
    portions = 0
    while broker.has_work():
        broker.work(NOW_MS)
        portions += 1
        for number, connection in enumerate(connections):
            sent[number] += len(connection.take())
        ahead = (max(sent) - min(sent)) / frame
        assert ahead < MESSAGES / 10, f"after {portions} portions one is {ahead:.0f} messages ahead of another"
    assert portions > READERS
    assert min(sent) >= MESSAGES * frame
