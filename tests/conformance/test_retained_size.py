"""Matrix section L: the receiver's Maximum Packet Size, and a broker that does not retain at all."""

from collections.abc import Callable

import pytest

from stage import ONLY_5, ONLY_311, OURS, Copy, P, Stage, Will
from wire import ConnAck, connect, publish

pytestmark = pytest.mark.told_clock

OFF = {"retainer__enable": False}


@ONLY_5
@pytest.mark.matrix("L1")
@pytest.mark.clause("5.0", "MQTT-3.1.2-24", "MQTT-3.1.2-25")
def test_copy_above_the_maximum_packet_size_is_skipped_for_that_receiver_only(stage: Stage, version: int) -> None:
    publisher = stage.client(version)
    publisher.publish("big", "x" * 2000, qos=1, retain=True)
    publisher.publish("small", "1", qos=1, retain=True)
    narrow = stage.client(version, properties=[(P.MAXIMUM_PACKET_SIZE, 500)])
    narrow.subscribe("#", qos=1)
    narrow.receives(Copy("small", "1", qos=1, retain=True))
    publisher.publish("next", "2", qos=1, retain=True)
    narrow.receives(Copy("next", "2", qos=1))
    assert stage.stored(version)["big"] == b"x" * 2000


@ONLY_5
@OURS
@pytest.mark.matrix("L2")
@pytest.mark.clause("5.0", "MQTT-3.1.2-24")
@pytest.mark.parametrize("qos", [0, 1])
def test_copy_of_exactly_the_maximum_is_sent(stage: Stage, version: int, qos: int) -> None:
    publisher, wide = stage.client(version), stage.client(version)
    publisher.publish("a", "x" * 300, qos=qos, retain=True, properties=[(P.CONTENT_TYPE, "t"), (P.MESSAGE_EXPIRY, 99)])
    wide.subscribe("a", qos=qos, sid=9)
    (copy,) = wide.take(1)
    size = len(copy.packet.raw)
    for allowed, expected in ((size, 1), (size - 1, 0)):
        narrow = stage.client(version, properties=[(P.MAXIMUM_PACKET_SIZE, allowed)])
        narrow.subscribe("a", qos=qos, sid=9)
        assert len(narrow.rest()) == expected, f"packet of {size} bytes, maximum {allowed}"


@ONLY_5
@OURS
@pytest.mark.matrix("L3")
@pytest.mark.clause("5.0", "MQTT-3.1.2-25")
def test_skipped_copy_takes_no_window_slot(stage: Stage, version: int) -> None:
    publisher = stage.client(version)
    for number in range(10):
        publisher.publish(f"big{number}", "x" * 2000, qos=1, retain=True)
        publisher.publish(f"small{number}", "1", qos=1, retain=True)
    narrow = stage.client(version, properties=[(P.MAXIMUM_PACKET_SIZE, 500), (P.RECEIVE_MAXIMUM, 1)])
    narrow.subscribe("#", qos=1)
    narrow.receives(*(Copy(f"small{number}", "1", qos=1, retain=True) for number in range(10)))


@ONLY_5
@pytest.mark.matrix("L4")
def test_broker_announces_that_it_retains(stage: Stage, version: int) -> None:
    connack = stage.client(version).wire.connack
    assert connack is not None
    assert connack.prop(P.RETAIN_AVAILABLE) in (None, 1)


@ONLY_5
@pytest.mark.matrix("L5")
@pytest.mark.clause("5.0", "MQTT-3.2.2-13")
def test_switched_off_is_announced_and_refuses_a_retained_will(staged: Callable[..., Stage], version: int) -> None:
    stage = staged(**OFF)
    connack = stage.client(version).wire.connack
    assert connack is not None
    assert connack.prop(P.RETAIN_AVAILABLE) == 0
    with stage.broker.client(version) as wire:
        wire.send(connect("w", version=version, will=Will("w", b"dead", retain=True)))
        wire.expect(ConnAck, code=0x9A)
        wire.expect_closed()


@ONLY_5
@pytest.mark.matrix("L6")
@pytest.mark.clause("5.0", "MQTT-3.2.2-14")
@pytest.mark.parametrize("payload", ["1", ""])
def test_switched_off_refuses_a_retained_publish(staged: Callable[..., Stage], version: int, payload: str) -> None:
    stage = staged(**OFF)
    publisher, live = stage.client(version), stage.client(version)
    live.subscribe("a")
    publisher.wire.send(publish(publisher.full("a"), payload, retain=True, version=version))
    publisher.wire.expect_disconnect(0x9A)
    live.receives()
    assert stage.stored(version) == {}


@ONLY_311
@pytest.mark.matrix("L7")
def test_switched_off_treats_a_311_retained_publish_as_plain(staged: Callable[..., Stage], version: int) -> None:
    stage = staged(**OFF)
    publisher, live, late = stage.client(version), stage.client(version), stage.client(version)
    live.subscribe("a", qos=1)
    publisher.publish("a", "1", qos=1, retain=True)
    live.receives(Copy("a", "1", qos=1, retain=False))
    late.subscribe("a")
    late.receives()


@ONLY_5
@pytest.mark.matrix("L8")
def test_switched_off_keeps_subscription_options_legal(staged: Callable[..., Stage], version: int) -> None:
    stage = staged(**OFF)
    publisher, subscriber = stage.client(version), stage.client(version)
    for handling in (0, 1, 2):
        assert subscriber.subscribe("a", rh=handling, rap=True) == [0]
    subscriber.receives()
    publisher.publish("a", "1")
    subscriber.receives(Copy("a", "1", retain=False))
