"""Matrix section H: QoS of the copies, packet ids and the send window."""

from collections.abc import Callable

import pytest

from stage import BOTH, ONLY_5, OURS, Copy, P, Stage

pytestmark = pytest.mark.told_clock


@BOTH
@pytest.mark.matrix("H1")
@pytest.mark.clause("3.1.1", "MQTT-3.8.4-6")
@pytest.mark.clause("5.0", "MQTT-3.8.4-8")
@pytest.mark.parametrize("stored", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_copy_has_the_lower_of_stored_and_granted_qos(stage: Stage, version: int, stored: int, granted: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version)
    publisher.publish("a", "1", qos=stored, retain=True)
    assert subscriber.subscribe("a", qos=granted) == [granted]
    subscriber.receives(Copy("a", "1", qos=min(stored, granted), retain=True))


@BOTH
@pytest.mark.matrix("H2")
@pytest.mark.clause("3.1.1", "MQTT-3.8.4-5")
@pytest.mark.clause("5.0", "MQTT-3.8.4-7")
def test_granted_qos_may_be_lower_than_asked(staged: Callable[..., Stage], version: int) -> None:
    stage = staged(limits__max_qos=1)
    publisher, subscriber = stage.client(version), stage.client(version)
    publisher.publish("a", "1", qos=1, retain=True)
    assert subscriber.subscribe("a", qos=2) == [1]
    subscriber.receives(Copy("a", "1", qos=1, retain=True))


@ONLY_5
@OURS
@pytest.mark.matrix("H3", "H5")
@pytest.mark.clause("5.0", "MQTT-3.3.4-9", "MQTT-4.9.0-2", "MQTT-2.2.1-4")
@pytest.mark.parametrize("qos", [1, 2])
def test_flood_stays_within_the_receive_maximum(stage: Stage, version: int, qos: int) -> None:
    publisher = stage.client(version)
    for number in range(100):
        publisher.publish(f"a/{number}", str(number), qos=qos, retain=True)
    subscriber = stage.client(version, properties=[(P.RECEIVE_MAXIMUM, 5)])
    subscriber.subscribe("a/#", qos=qos)
    unacknowledged = subscriber.take(6, 0.2, ack=False)
    assert len(unacknowledged) == 5
    seen = {copy.topic for copy in unacknowledged}
    while unacknowledged:
        ids = [copy.packet.packet_id for copy in unacknowledged]
        assert len(set(ids)) == len(ids)
        assert 0 not in ids
        for copy in unacknowledged[: 1 + len(seen) % 4]:
            unacknowledged.remove(copy)
            subscriber.wire.ack(copy.packet)
        arrived = [subscriber.copy(packet, ack=False) for packet in subscriber.wire.barrier()]
        arrived += subscriber.take(1, 0.05, ack=False) if not arrived and len(seen) < 100 else []
        unacknowledged += arrived
        assert len(unacknowledged) <= 5, "more copies in flight than the Receive Maximum"
        assert seen.isdisjoint(copy.topic for copy in arrived), "a copy came twice"
        seen.update(copy.topic for copy in arrived)
    assert seen == {f"a/{number}" for number in range(100)}


@ONLY_5
@pytest.mark.matrix("H4")
@pytest.mark.clause("5.0", "MQTT-3.3.4-10")
def test_full_window_holds_back_nothing_but_publish(stage: Stage, version: int) -> None:
    publisher = stage.client(version)
    for number in range(10):
        publisher.publish(f"a/{number}", "1", qos=1, retain=True)
    subscriber = stage.client(version, properties=[(P.RECEIVE_MAXIMUM, 1)])
    subscriber.subscribe("a/#", qos=1)
    assert len(subscriber.take(2, 0.1, ack=False)) == 1
    subscriber.wire.ping()
    assert subscriber.subscribe("other", qos=1) == [1]
    subscriber.publish("elsewhere", "x", qos=2)
    subscriber.unsubscribe("other")
    subscriber.wire.expect_no_message()


@BOTH
@pytest.mark.matrix("H5")
@pytest.mark.clause("3.1.1", "MQTT-2.3.1-4")
@pytest.mark.clause("5.0", "MQTT-2.2.1-4")
def test_each_copy_in_flight_has_a_packet_id_of_its_own(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version)
    for number in range(20):
        publisher.publish(f"a/{number}", "1", qos=1 + number % 2, retain=True)
    subscriber.subscribe("a/#", qos=2)
    ids = [copy.packet.packet_id for copy in subscriber.take(20, ack=False)]
    assert len(ids) == 20
    assert len(set(ids)) == 20
    assert 0 not in ids


@ONLY_5
@pytest.mark.matrix("H6")
@pytest.mark.clause("5.0", "MQTT-4.4.0-2")
def test_copy_the_client_refuses_is_not_repeated_and_stays_stored(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version, "s", keep=True)
    publisher.publish("a", "1", qos=1, retain=True)
    subscriber.subscribe("a", qos=1)
    (copy,) = subscriber.take(1, ack=False)
    subscriber.refuse(copy, 0x80)
    subscriber.receives()
    subscriber.disconnect()
    subscriber = stage.client(version, "s", keep=True)
    subscriber.receives()
    assert stage.stored(version) == {"a": b"1"}
