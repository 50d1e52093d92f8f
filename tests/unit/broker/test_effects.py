"""What a call into the broker asks for: nobody can forget it, it is kept before it is told, and in order."""

import pytest

import wire
from core_driver import carry_out
from holdfast.broker.batch import Batch, split
from holdfast.broker.core import Broker
from holdfast.broker.effects import Release
from holdfast.broker.log import Flushed, Log
from holdfast.broker.ports import Authenticator, Peer
from holdfast.broker.session import Connection
from holdfast.broker.settings import Settings
from holdfast.errors import StoreError, UsageError

NOW_MS = 1_700_000_000_000
PUBACK = bytes.fromhex("40020001")


class Ear(Peer):
    def __init__(self) -> None:
        self.heard = b""
        self.closed = ""

    def write(self, data: bytes) -> None:
        self.heard += data

    def close(self, reason: str) -> None:
        self.closed = reason


class SlowLog(Log):
    """Is durable when told to be."""

    def __init__(self, waits_to_deliver: bool = False) -> None:
        super().__init__(waits=True, waits_to_deliver=waits_to_deliver, keeps_state=True, history_filters=[])
        self.batches: list[list[bytes]] = []

    def append(self, records: Batch, waited_for: bool) -> int:
        self.batches.append(split(records.take()))
        return self.position

    def flush(self, done: Flushed) -> None:
        done(None)


class Stage:
    def __init__(self, waits_to_deliver: bool = False) -> None:
        self.log = SlowLog(waits_to_deliver)
        self.broker = Broker(Settings(), "x")
        self.broker.use_log(self.log)
        self.release = Release(self.log, self.broker.counters)

    def join(self, name: str) -> tuple[Connection, Ear]:
        ear = Ear()
        connection = self.broker.open(ear, NOW_MS)
        self.send(connection, wire.connect(name, version=4))
        ear.heard = b""
        return connection, ear

    def send(self, connection: Connection, data: bytes) -> None:
        self.release.carry_out(self.broker.receive(connection, data, NOW_MS))


def retained(topic: str, packet_id: int = 1) -> bytes:
    return wire.publish(topic, b"1", qos=1, retain=True, packet_id=packet_id, version=4)


def test_effects_that_are_forgotten_stop_the_next_call() -> None:
    broker = Broker(Settings(), "x")
    connection = broker.open(Ear(), NOW_MS)
    effects = broker.receive(connection, wire.connect("a", version=4), NOW_MS)
    with pytest.raises(UsageError, match="were not carried out"):
        broker.tick(NOW_MS)
    carry_out(effects)
    carry_out(broker.tick(NOW_MS))


def test_what_a_call_that_broke_off_has_left_is_carried_out_with_the_next() -> None:
    class Broken(Authenticator):
        def begin(self, ticket: int, client_id: str, username: str | None, password: bytes | None, peer: Peer) -> None:
            raise RuntimeError("a defect")

    stage = Stage()
    connection, ear = stage.join("a")
    stage.broker.authenticator = Broken()
    other = stage.broker.open(Ear(), NOW_MS)
    with pytest.raises(RuntimeError):
        stage.broker.receive(other, wire.connect("b", version=4), NOW_MS)
    stage.send(connection, bytes.fromhex("c000"))
    assert ear.heard == bytes.fromhex("d000")


def test_an_acknowledgement_waits_until_its_record_is_durable() -> None:
    stage = Stage()
    connection, ear = stage.join("a")
    stage.send(connection, retained("t"))
    assert ear.heard == b""
    assert [len(batch) for batch in stage.log.batches] == [1]
    assert stage.release.on_durable(stage.log.position, None) == []
    assert ear.heard == PUBACK


def test_what_follows_an_acknowledgement_that_waits_does_not_overtake_it() -> None:
    stage = Stage()
    connection, ear = stage.join("a")
    stage.send(connection, retained("t"))
    stage.send(connection, bytes.fromhex("c000"))
    assert ear.heard == b""
    stage.release.on_durable(stage.log.position, None)
    assert ear.heard == PUBACK + bytes.fromhex("d000")


def test_others_do_not_wait_unless_deliveries_do() -> None:
    for waits_to_deliver in (False, True):
        stage = Stage(waits_to_deliver)
        publisher, _ = stage.join("publisher")
        subscriber, ear = stage.join("subscriber")
        stage.send(subscriber, wire.subscribe(1, [("t", 0)], version=4))
        ear.heard = b""
        stage.send(publisher, retained("t"))
        assert (ear.heard == b"") is waits_to_deliver
        stage.release.on_durable(stage.log.position, None)
        assert ear.heard.endswith(b"t1")


def test_batches_are_let_go_one_after_the_other() -> None:
    stage = Stage()
    connection, ear = stage.join("a")
    stage.send(connection, retained("t", 1))
    first = stage.log.position
    stage.send(connection, retained("t", 2))
    stage.release.on_durable(first, None)
    assert ear.heard == PUBACK
    stage.release.on_durable(stage.log.position, None)
    assert ear.heard == PUBACK + bytes.fromhex("40020002")


def test_a_connection_is_closed_after_what_it_waits_for() -> None:
    stage = Stage()
    connection, ear = stage.join("a")
    stage.send(connection, retained("t"))
    stage.send(connection, wire.disconnect())
    assert ear.closed == ""
    stage.release.on_durable(stage.log.position, None)
    assert (ear.heard, ear.closed) == (PUBACK, "client disconnected")
    assert stage.release.closing == set()


def test_who_was_to_be_told_of_what_is_lost_is_named_and_not_told() -> None:
    stage = Stage()
    connection, ear = stage.join("a")
    stage.send(connection, retained("t"))
    refused = stage.release.on_durable(stage.log.position, StoreError("no space"))
    assert (refused, ear.heard) == ([connection], b"")
    stage.release.carry_out(stage.broker.on_not_durable(refused, NOW_MS))
    assert ear.closed == "the message cannot be stored now"


def test_a_new_subscriber_is_not_shown_what_is_not_on_disk_where_delivery_waits_for_it() -> None:
    stage = Stage(waits_to_deliver=True)
    publisher, _ = stage.join("publisher")
    subscriber, ear = stage.join("subscriber")
    stage.send(publisher, retained("t"))
    stage.send(subscriber, wire.subscribe(1, [("t", 0)], version=4))
    assert ear.heard == b""
    stage.release.on_durable(stage.log.position, None)
    assert ear.heard.endswith(b"t1")
