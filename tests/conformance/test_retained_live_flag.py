"""Matrix section D: the RETAIN flag of copies that an established subscription gets, and of redelivered ones."""

import pytest

from stage import BOTH, ONLY_5, OURS, Copy, Stage

pytestmark = pytest.mark.told_clock


@BOTH
@pytest.mark.matrix("D1")
@pytest.mark.clause("3.1.1", "MQTT-3.3.1-9")
@pytest.mark.clause("5.0", "MQTT-3.3.1-12")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_live_copy_has_retain_0_whatever_was_published(stage: Stage, version: int, qos: int) -> None:
    publisher, live = stage.client(version), stage.client(version)
    live.subscribe("a", qos=qos)
    publisher.publish("a", "1", qos=qos, retain=True)
    publisher.publish("a", "2", qos=qos, retain=False)
    live.receives(Copy("a", "1", qos=qos, retain=False), Copy("a", "2", qos=qos, retain=False))


@ONLY_5
@pytest.mark.matrix("D2")
@pytest.mark.clause("5.0", "MQTT-3.3.1-13")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_retain_as_published_passes_the_flag_on(stage: Stage, version: int, qos: int) -> None:
    publisher, live = stage.client(version), stage.client(version)
    live.subscribe("a", qos=qos, rap=True)
    publisher.publish("a", "1", qos=qos, retain=True)
    publisher.publish("a", "2", qos=qos, retain=False)
    live.receives(Copy("a", "1", qos=qos, retain=True), Copy("a", "2", qos=qos, retain=False))


@BOTH
@pytest.mark.matrix("D3")
@pytest.mark.clause("3.1.1", "MQTT-3.1.2-5", "MQTT-3.3.1-9")
@pytest.mark.clause("5.0", "MQTT-4.5.0-1", "MQTT-3.3.1-12")
def test_copy_queued_for_an_absent_client_has_retain_0(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version, "s", keep=True)
    subscriber.subscribe("a", qos=1)
    subscriber.disconnect()
    publisher.publish("a", "1", qos=1, retain=True)
    subscriber = stage.client(version, "s", keep=True)
    subscriber.receives(Copy("a", "1", qos=1, retain=False))


@ONLY_5
@pytest.mark.matrix("D3")
@pytest.mark.clause("5.0", "MQTT-3.3.1-13")
def test_copy_queued_for_an_absent_client_keeps_retain_1_as_published(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version, "s", keep=True)
    subscriber.subscribe("a", qos=1, rap=True)
    subscriber.disconnect()
    publisher.publish("a", "1", qos=1, retain=True)
    subscriber = stage.client(version, "s", keep=True)
    subscriber.receives(Copy("a", "1", qos=1, retain=True))


@BOTH
@pytest.mark.matrix("D4")
@pytest.mark.clause("3.1.1", "MQTT-3.3.1-6")
@pytest.mark.clause("5.0", "MQTT-3.3.1-9")
def test_resuming_a_session_sends_no_retained_messages(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version, "s", keep=True)
    publisher.publish("a", "1", qos=1, retain=True)
    subscriber.subscribe("a", qos=1)
    subscriber.receives(Copy("a", "1", qos=1, retain=True))
    subscriber.disconnect()
    subscriber = stage.client(version, "s", keep=True)
    assert subscriber.wire.connack is not None
    assert subscriber.wire.connack.session_present
    subscriber.receives()


@BOTH
@OURS
@pytest.mark.matrix("D5")
@pytest.mark.clause("3.1.1", "MQTT-3.3.5-1")
@pytest.mark.clause("5.0", "MQTT-3.3.4-2")
def test_one_copy_for_overlapping_filters_keeps_a_flag_that_any_asks_for(stage: Stage, version: int) -> None:
    publisher, live = stage.client(version), stage.client(version)
    live.subscribe("a/#", qos=0, rap=False)
    live.subscribe("a/b", qos=1, rap=version == 5)
    publisher.publish("a/b", "1", qos=1, retain=True)
    live.receives(Copy("a/b", "1", qos=1, retain=version == 5))


@ONLY_5
@OURS
@pytest.mark.matrix("D5")
@pytest.mark.clause("5.0", "MQTT-3.3.4-2")
def test_flag_is_kept_also_when_the_weaker_subscription_asks_for_it(stage: Stage, version: int) -> None:
    publisher, live = stage.client(version), stage.client(version)
    live.subscribe("a/#", qos=2, rap=False)
    live.subscribe("a/b", qos=0, rap=True)
    publisher.publish("a/b", "1", qos=2, retain=True)
    live.receives(Copy("a/b", "1", qos=2, retain=True))


@BOTH
@pytest.mark.matrix("D6")
@pytest.mark.clause("3.1.1", "MQTT-4.4.0-1", "MQTT-3.3.1-1")
@pytest.mark.clause("5.0", "MQTT-4.4.0-1", "MQTT-3.3.1-1")
@pytest.mark.parametrize("qos", [1, 2])
def test_redelivered_copy_keeps_retain_and_packet_id_and_gains_dup(stage: Stage, version: int, qos: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version, "s", keep=True)
    publisher.publish("a", "1", qos=qos, retain=True)
    subscriber.subscribe("a", qos=qos)
    (first,) = subscriber.take(1, ack=False)
    assert (first.retain, first.packet.dup) == (True, False)
    subscriber.cut()
    subscriber = stage.client(version, "s", keep=True)
    (again,) = subscriber.receives(Copy("a", "1", qos=qos, retain=True))
    assert again.packet.packet_id == first.packet.packet_id
    assert again.packet.dup is True
