"""3.1.1: the handshakes of QoS 1 and 2, what is sent again, and order."""

from collections.abc import Callable

import pytest

import wire
from broker_process import Unique
from wire import PubAck, PubComp, Publish, PubRec, PubRel, WireClient

Connect = Callable[..., WireClient]


@pytest.mark.clause("3.1.1", "MQTT-4.3.2-1")
def test_qos_1_delivery_waits_for_puback(connect: Connect, unique: Unique) -> None:
    name = unique.client("slow")
    client = connect(name, clean=False)
    client.subscribe(unique.topic(), qos=1)
    publisher = connect()
    publisher.publish(unique.topic(), b"kept open", qos=1)
    publisher.publish(unique.topic(), b"acknowledged", qos=1)
    first, second = client.messages(2, ack=False)
    assert not first.dup
    assert not second.dup
    client.ack(second)
    client.ping()
    client.cut()
    back = connect(name, clean=False)
    back.expect(Publish, payload=b"kept open", packet_id=first.packet_id, dup=True)
    back.ack(first)
    back.expect_no_message()
    back.cut()
    connect(name, clean=False).expect_no_message()


@pytest.mark.told_clock
@pytest.mark.clause("3.1.1", "MQTT-4.3.2-1", "MQTT-4.4.0-1")
def test_nothing_is_sent_again_on_a_living_connection(connect: Connect, unique: Unique) -> None:
    client = connect()
    client.subscribe(unique.topic(), qos=2)
    publisher = connect()
    publisher.publish(unique.topic(), b"1", qos=1)
    publisher.publish(unique.topic(), b"2", qos=2)
    client.messages(2, ack=False)
    client.expect_nothing(0.5)


@pytest.mark.clause("3.1.1", "MQTT-4.3.2-2")
def test_same_identifier_after_puback_is_a_new_message(connect: Connect, unique: Unique) -> None:
    client, publisher = connect(), connect()
    client.subscribe(unique.topic())
    for dup in (False, True):
        publisher.send(wire.publish(unique.topic(), b"x", qos=1, packet_id=5, dup=dup))
        publisher.expect(PubAck, packet_id=5)
    assert len([packet for packet in client.barrier() if isinstance(packet, Publish)]) == 2


@pytest.mark.clause("3.1.1", "MQTT-4.3.3-1")
def test_qos_2_delivery_goes_publish_pubrec_pubrel_pubcomp(connect: Connect, unique: Unique) -> None:
    client = connect()
    client.subscribe(unique.topic(), qos=2)
    connect().publish(unique.topic(), b"x", qos=2)
    message = client.expect(Publish, qos=2, dup=False)
    assert message.packet_id
    named = message.packet_id.to_bytes(2, "big")
    client.send(b"\x50\x02" + named)
    client.expect(b"\x62\x02" + named)
    client.send(b"\x70\x02" + named)
    client.expect_no_message()


@pytest.mark.clause("3.1.1", "MQTT-4.3.3-1", "MQTT-4.4.0-1")
def test_after_pubrel_the_publish_is_not_sent_again(connect: Connect, unique: Unique) -> None:
    name = unique.client("released")
    client = connect(name, clean=False)
    client.subscribe(unique.topic(), qos=2)
    connect().publish(unique.topic(), b"x", qos=2)
    message = client.expect(Publish, qos=2)
    assert message.packet_id
    client.send(wire.pubrec(message.packet_id))
    client.expect(PubRel, packet_id=message.packet_id)
    client.cut()
    back = connect(name, clean=False)
    back.expect(b"\x62\x02" + message.packet_id.to_bytes(2, "big"))
    back.expect_no_message()
    back.send(wire.pubcomp(message.packet_id))
    back.ping()
    back.cut()
    connect(name, clean=False).expect_no_message()


@pytest.mark.clause("3.1.1", "MQTT-4.3.3-2")
def test_same_identifier_after_pubcomp_is_a_new_message(connect: Connect, unique: Unique) -> None:
    client, publisher = connect(), connect()
    client.subscribe(unique.topic())
    for _ in range(2):
        publisher.publish(unique.topic(), b"x", qos=2, packet_id=5)
    assert len([packet for packet in client.barrier() if isinstance(packet, Publish)]) == 2


@pytest.mark.clause("3.1.1", "MQTT-4.3.3-2")
def test_repeated_pubrel_is_answered_again(connect: Connect, unique: Unique) -> None:
    client = connect()
    client.send(wire.publish(unique.topic(), b"x", qos=2, packet_id=6))
    client.expect(PubRec, packet_id=6)
    for _ in range(2):
        client.send(wire.pubrel(6))
        client.expect(PubComp, packet_id=6)


@pytest.mark.clause("3.1.1", "MQTT-4.4.0-1", "MQTT-4.6.0-1", "MQTT-3.3.1-1")
def test_resumed_session_sends_all_unfinished_messages_in_order(connect: Connect, unique: Unique) -> None:
    name = unique.client("resume")
    client = connect(name, clean=False)
    client.subscribe(unique.topic(), qos=2)
    publisher = connect()
    for number in range(8):
        publisher.publish(unique.topic(), b"%d" % number, qos=1 + number % 2)
    sent = client.messages(8, ack=False)
    client.cut()
    back = connect(name, clean=False)
    again = back.messages(8)
    assert [message.packet_id for message in again] == [message.packet_id for message in sent]
    assert [message.payload for message in again] == [b"%d" % number for number in range(8)]
    assert all(message.dup for message in again)
    back.expect_no_message()


@pytest.mark.clause("3.1.1", "MQTT-4.4.0-1")
def test_messages_never_sent_come_without_dup_behind_those_sent_again(connect: Connect, unique: Unique) -> None:
    name = unique.client("both")
    client = connect(name, clean=False)
    client.subscribe(unique.topic(), qos=1)
    publisher = connect()
    publisher.publish(unique.topic(), b"sent", qos=1)
    client.messages(1, ack=False)
    client.disconnect()
    publisher.publish(unique.topic(), b"queued", qos=1)
    back = connect(name, clean=False)
    got = [(message.payload, message.dup) for message in back.messages(2)]
    assert got == [(b"sent", True), (b"queued", False)]


@pytest.mark.clause("3.1.1", "MQTT-4.6.0-2")
def test_pubacks_come_in_the_order_of_the_publishes(connect: Connect, unique: Unique) -> None:
    client = connect()
    ids = [9, 3, 500, 1, 65535, 42, 7, 8]
    client.send(b"".join(wire.publish(unique.topic(), b"x", qos=1, packet_id=packet_id) for packet_id in ids))
    assert [client.expect(PubAck).packet_id for _ in ids] == ids


@pytest.mark.clause("3.1.1", "MQTT-4.6.0-3")
def test_pubrecs_come_in_the_order_of_the_publishes(connect: Connect, unique: Unique) -> None:
    client = connect()
    ids = [9, 3, 500, 1, 65535, 42, 7, 8]
    client.send(b"".join(wire.publish(unique.topic(), b"x", qos=2, packet_id=packet_id) for packet_id in ids))
    assert [client.expect(PubRec).packet_id for _ in ids] == ids


@pytest.mark.clause("3.1.1", "MQTT-4.6.0-4")
@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [4, 2, 0, 1, 3]])
def test_pubrels_come_in_the_order_of_the_pubrecs(order: list[int], connect: Connect, unique: Unique) -> None:
    client = connect()
    client.subscribe(unique.topic(), qos=2)
    publisher = connect()
    for number in range(5):
        publisher.publish(unique.topic(), b"%d" % number, qos=2)
    messages = client.messages(5, ack=False)
    ids = [messages[index].packet_id or 0 for index in order]
    client.send(b"".join(wire.pubrec(packet_id) for packet_id in ids))
    assert [client.expect(PubRel).packet_id for _ in ids] == ids


@pytest.mark.clause("3.1.1", "MQTT-4.6.0-5", "MQTT-4.6.0-6")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_of_one_client_and_topic_keep_their_order(qos: int, connect: Connect, unique: Unique) -> None:
    client, publisher = connect(), connect()
    client.subscribe(unique.topic(), qos=qos)
    numbers = range(1, 19)
    publisher.send(
        b"".join(
            wire.publish(unique.topic(), b"%d" % number, qos=qos, packet_id=number if qos else None)
            for number in numbers
        )
    )
    if qos == 2:
        for number in numbers:
            publisher.expect(PubRec, packet_id=number)
        publisher.send(b"".join(wire.pubrel(number) for number in numbers))
    assert [int(message.payload) for message in client.messages(len(numbers))] == list(numbers)
