"""How the work of many snapshots is shared out: in portions, in turn, so that nobody gets far ahead."""

import wire
from core_driver import carry_out
from holdfast.broker.core import Broker
from holdfast.broker.message import Publisher
from holdfast.broker.ports import Peer
from holdfast.broker.settings import Settings

NOW_MS = 1_700_000_000_000
MESSAGES = 30_000
READERS = 8


class Ear(Peer):
    def __init__(self) -> None:
        self.heard = 0

    def write(self, data: bytes) -> None:
        self.heard += len(data)

    def close(self, reason: str) -> None:
        raise AssertionError(reason)


def test_snapshots_advance_side_by_side_whoever_asked_first() -> None:
    broker = Broker(Settings(), "x")
    publisher = Publisher("p", "", "5.0")
    for number in range(MESSAGES):
        carry_out(broker.publish(publisher, b"t/%05d" % number, b"x" * 20, 0, True, NOW_MS))
    frame = len(wire.publish("t/00000", b"x" * 20, retain=True, version=4))
    readers = [Ear() for _ in range(READERS)]
    for number, reader in enumerate(readers):
        connection = broker.open(reader, NOW_MS)
        carry_out(broker.receive(connection, wire.connect(f"r{number}", version=4), NOW_MS))
        carry_out(broker.receive(connection, wire.subscribe(1, [("t/#", 0)], version=4), NOW_MS))
    portions = 0
    while broker.has_work():
        carry_out(broker.work(NOW_MS))
        portions += 1
        sent = [reader.heard for reader in readers]
        ahead = (max(sent) - min(sent)) / frame
        assert ahead < MESSAGES / 10, f"after {portions} portions one is {ahead:.0f} messages ahead of another"
    assert portions > READERS
    assert min(sent) >= MESSAGES * frame
