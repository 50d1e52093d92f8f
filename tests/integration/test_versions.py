"""MQTT 3.1, 3.1.1 and 5.0 on one port."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import wire
from broker_process import Unique
from wire import P, Publish, Will, WireClient

Connect = Callable[..., WireClient]
OpenClient = Callable[..., WireClient]

VERSIONS = (3, 4, 5)


def test_mqtt_31_is_accepted(open_client: OpenClient, unique: Unique) -> None:
    client = open_client(3)
    client.send(wire.connect(unique.client(), version=3))
    client.expect(b"\x20\x02\x00\x00")
    client.send(wire.subscribe(1, [(unique.topic(), 2)]))
    client.expect(b"\x90\x03\x00\x01\x02")


@pytest.mark.parametrize("reader", VERSIONS)
@pytest.mark.parametrize("writer", VERSIONS)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_every_version_reads_every_other(qos: int, writer: int, reader: int, connect: Connect, unique: Unique) -> None:
    source, sink = connect(version=writer), connect(version=reader)
    sink.subscribe(unique.topic("#"), qos=2)
    source.publish(unique.topic("live"), b"live", qos=qos)
    (message,) = sink.messages(1)
    assert (message.topic, message.payload, message.qos) == (unique.topic("live"), b"live", qos)
    source.publish(unique.topic("kept"), b"kept", qos=qos, retain=True)
    assert [message.retain for message in sink.messages(1)] == [False]
    late = connect(version=reader)
    late.subscribe(unique.topic("kept"), qos=2)
    (message,) = late.messages(1)
    assert (message.payload, message.qos, message.retain) == (b"kept", qos, True)


@pytest.mark.parametrize("reader", VERSIONS)
@pytest.mark.parametrize("writer", VERSIONS)
def test_will_crosses_versions(writer: int, reader: int, connect: Connect, unique: Unique) -> None:
    watcher = connect(version=reader)
    watcher.subscribe(unique.topic("will"), qos=1)
    connect(version=writer, will=Will(unique.topic("will"), b"gone", qos=1)).cut()
    assert [(message.payload, message.qos) for message in watcher.messages(1)] == [(b"gone", 1)]


def test_properties_are_left_out_for_older_clients(connect: Connect, unique: Unique) -> None:
    old, new = connect(version=4), connect(version=5)
    for client in (old, new):
        client.subscribe(unique.topic())
    connect(version=5).publish(
        unique.topic(), b"x", properties=[(P.CONTENT_TYPE, "text/plain"), (P.USER_PROPERTY, ("a", "b"))]
    )
    old.expect(wire.publish(unique.topic(), b"x"))
    new.expect(Publish, properties=[(P.CONTENT_TYPE, "text/plain"), (P.USER_PROPERTY, ("a", "b"))])


@pytest.mark.parametrize("clean", [True, False])
def test_session_of_311_can_be_taken_over_by_5(clean: bool, connect: Connect, unique: Unique) -> None:
    older = connect(unique.client("same"), version=4, clean=False)
    older.subscribe(unique.topic(), qos=1)
    newer = connect(unique.client("same"), version=5, clean=clean)
    older.expect_closed()
    assert newer.connack is not None
    assert newer.connack.session_present is not clean
    connect().publish(unique.topic(), b"x", qos=1)
    if clean:
        newer.expect_no_message()
    else:
        newer.expect(Publish, payload=b"x", qos=1)
