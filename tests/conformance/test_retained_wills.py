"""Matrix section N: wills and the retained store."""

from collections.abc import Callable

import pytest

from stage import BOTH, ONLY_5, OURS, Copy, P, Stage, Will
from wire import ConnAck, connect

pytestmark = pytest.mark.told_clock

CLEAN_START = 0x02
WILL_RETAIN = 0x20


def eventually(stage: Stage, version: int, expected: dict[str, bytes], seconds: float = 3.0) -> None:
    """A connection's end is noticed a moment later than it happens."""
    deadline = stage.now() + seconds
    while (found := stage.stored(version)) != expected:
        assert stage.now() < deadline, f"expected {expected}, got {found}"
        stage.pass_time(0.02)


@BOTH
@pytest.mark.matrix("N1")
@pytest.mark.clause("3.1.1", "MQTT-3.1.2-17")
@pytest.mark.clause("5.0", "MQTT-3.1.2-15")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_retained_will_is_kept(stage: Stage, version: int, qos: int) -> None:
    live, late = stage.client(version), stage.client(version)
    live.subscribe("w", qos=2)
    stage.client(version, will=Will("w", b"dead", qos=qos, retain=True)).cut()
    live.receives(Copy("w", "dead", qos=qos, retain=False))
    late.subscribe("w", qos=2)
    late.receives(Copy("w", "dead", qos=qos, retain=True))


@BOTH
@pytest.mark.matrix("N2")
@pytest.mark.clause("3.1.1", "MQTT-3.1.2-16")
@pytest.mark.clause("5.0", "MQTT-3.1.2-14")
def test_plain_will_leaves_the_store_alone(stage: Stage, version: int) -> None:
    publisher, live = stage.client(version), stage.client(version)
    publisher.publish("w", "alive", retain=True)
    live.subscribe("w")
    live.receives(Copy("w", "alive", retain=True))
    stage.client(version, will=Will("w", b"dead")).cut()
    live.receives(Copy("w", "dead", retain=False))
    assert stage.stored(version) == {"w": b"alive"}


@BOTH
@pytest.mark.matrix("N3")
@pytest.mark.clause("3.1.1", "MQTT-3.1.2-15")
@pytest.mark.clause("5.0", "MQTT-3.1.2-13")
def test_will_retain_without_a_will_is_malformed(stage: Stage, version: int) -> None:
    with stage.broker.client(version) as wire:
        wire.send(connect(stage.unique.client(), version=version, flags=CLEAN_START | WILL_RETAIN))
        answers = wire.drain_until_closed()
    if version == 5:
        assert all(isinstance(packet, ConnAck) and packet.code in (0x81, 0x82) for packet in answers)
    else:
        assert answers == []


@BOTH
@pytest.mark.matrix("N4")
@pytest.mark.clause("3.1.1", "MQTT-3.3.1-10", "MQTT-3.3.1-11")
@pytest.mark.clause("5.0", "MQTT-3.3.1-6", "MQTT-3.3.1-7")
def test_empty_retained_will_deletes(stage: Stage, version: int) -> None:
    publisher, live = stage.client(version), stage.client(version)
    publisher.publish("w", "alive", retain=True)
    live.subscribe("w")
    live.receives(Copy("w", "alive", retain=True))
    stage.client(version, will=Will("w", b"", retain=True)).cut()
    live.receives(Copy("w", "", retain=False))
    assert stage.stored(version) == {}


@BOTH
@pytest.mark.matrix("N5")
@pytest.mark.clause("3.1.1", "MQTT-3.14.4-3")
@pytest.mark.clause("5.0", "MQTT-3.14.4-3")
def test_normal_disconnect_publishes_no_will(stage: Stage, version: int) -> None:
    publisher = stage.client(version)
    publisher.publish("w", "alive", retain=True)
    stage.client(version, will=Will("w", b"dead", retain=True)).disconnect()
    assert stage.stored(version) == {"w": b"alive"}


@ONLY_5
@pytest.mark.matrix("N5")
def test_disconnect_with_will_message_publishes_it(stage: Stage, version: int) -> None:
    stage.client(version).publish("w", "alive", retain=True)
    stage.client(version, will=Will("w", b"dead", retain=True)).disconnect(0x04)
    eventually(stage, version, {"w": b"dead"})


@ONLY_5
@OURS
@pytest.mark.matrix("N6")
@pytest.mark.clause("5.0", "MQTT-3.1.2-8", "MQTT-3.1.3-9")
def test_delayed_will_waits_and_a_reconnect_in_time_cancels_it(stage: Stage, version: int) -> None:
    publisher = stage.client(version)
    for topic in ("w", "cancelled", "ended"):
        publisher.publish(topic, "alive", retain=True)
    delay = [(P.WILL_DELAY, 1)]
    stage.client(version, "p", keep=True, will=Will("w", b"dead", retain=True, properties=delay)).cut()
    stage.client(version, "c", keep=True, will=Will("cancelled", b"dead", retain=True, properties=delay)).cut()
    # With the session ending at once, the will does not wait for its delay.
    stage.client(version, "e", will=Will("ended", b"dead", retain=True, properties=delay)).cut()
    back = stage.client(version, "c", keep=True)
    eventually(stage, version, {"w": b"alive", "cancelled": b"alive", "ended": b"dead"}, 0.5)
    stage.pass_time(1.2)
    assert stage.stored(version) == {"w": b"dead", "cancelled": b"alive", "ended": b"dead"}
    back.disconnect()


@ONLY_5
@OURS
@pytest.mark.matrix("N7")
@pytest.mark.clause("5.0", "MQTT-3.3.2-5")
def test_interval_of_a_will_counts_from_its_publication(stage: Stage, version: int) -> None:
    will = Will("w", b"dead", retain=True, properties=[(P.WILL_DELAY, 1), (P.MESSAGE_EXPIRY, 1)])
    stage.client(version, "p", keep=True, will=will).cut()
    stage.pass_time(1.4)  # later than the interval would have ended, had it begun with the connection
    late = stage.client(version)
    late.subscribe("w")
    (copy,) = late.receives(Copy("w", "dead", retain=True))
    assert copy.prop(P.MESSAGE_EXPIRY) == 1
    stage.pass_time(1.0)
    assert stage.stored(version) == {}


@BOTH
@pytest.mark.matrix("N8")
def test_birth_and_death_messages_alternate(stage: Stage, version: int) -> None:
    for _ in range(2):
        device = stage.client(version, "device", will=Will("state", b"offline", qos=1, retain=True))
        device.publish("state", "online", qos=1, retain=True)
        assert stage.stored(version) == {"state": b"online"}
        device.cut()
        eventually(stage, version, {"state": b"offline"})
    device = stage.client(version, "device", will=Will("state", b"offline", qos=1, retain=True))
    device.publish("state", "online", qos=1, retain=True)
    device.disconnect()
    assert stage.stored(version) == {"state": b"online"}


@BOTH
@pytest.mark.matrix("N1")
def test_retained_will_over_the_limit_is_delivered_and_not_kept(staged: Callable[..., Stage], version: int) -> None:
    stage = staged(retainer__max_payload_size=3)
    live = stage.client(version)
    live.subscribe("w")
    stage.client(version, will=Will("w", b"dead", retain=True)).cut()
    live.receives(Copy("w", "dead", retain=False))
    assert stage.stored(version) == {}
