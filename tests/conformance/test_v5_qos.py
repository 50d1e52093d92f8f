"""MQTT 5.0 sections 4.3 and 4.6: the QoS handshakes seen from both ends, and the order of messages."""

import pytest

import wire
from broker_process import Server, Unique
from v5_client import KEEP, Connect5
from wire import P, PubAck, PubComp, Publish, PubRec, PubRel


@pytest.mark.clause("5.0", "MQTT-4.3.1-1", "MQTT-3.3.1-2")
@pytest.mark.parametrize("published", [0, 1, 2])
def test_a_message_sent_at_qos_0_has_dup_0_and_wants_no_answer(
    connect5: Connect5, unique: Unique, published: int
) -> None:
    client = connect5()
    client.subscribe(unique.topic(), qos=0)
    client.publish(unique.topic(), b"1", qos=published)
    message = client.expect(Publish, payload=b"1")
    assert message.raw[0] == 0x30
    client.expect_no_message()


@pytest.mark.clause("5.0", "MQTT-4.3.2-1", "MQTT-4.3.2-2", "MQTT-4.3.3-1", "MQTT-4.3.3-2")
@pytest.mark.parametrize(("qos", "first_byte"), [(1, 0x32), (2, 0x34)])
def test_a_new_message_goes_out_with_its_qos_a_fresh_identifier_and_dup_0(
    connect5: Connect5, unique: Unique, qos: int, first_byte: int
) -> None:
    client = connect5()
    client.subscribe(unique.topic(), qos=qos)
    for number in range(5):
        client.publish(unique.topic(), str(number), qos=qos)
    messages = client.messages(5, ack=False)
    assert {message.raw[0] for message in messages} == {first_byte}
    assert len({message.packet_id for message in messages}) == 5


# QoS 1, the broker receives


@pytest.mark.clause("5.0", "MQTT-4.3.2-4")
def test_puback_means_that_the_broker_owns_the_message(connect5: Connect5, unique: Unique) -> None:
    """After PUBACK the publisher may vanish, and an absent subscriber still gets the message."""
    absent = connect5(unique.client(), properties=KEEP)
    absent.subscribe(unique.topic(), qos=1)
    absent.disconnect()
    publisher = connect5()
    publisher.send(wire.publish(unique.topic(), b"1", qos=1, packet_id=500, version=5))
    publisher.expect(PubAck, packet_id=500, reason=0)
    publisher.reset()
    connect5(unique.client(), clean=False).expect(Publish, payload=b"1", qos=1)


@pytest.mark.clause("5.0", "MQTT-4.3.2-5")
@pytest.mark.parametrize("dup", [False, True])
def test_after_puback_the_same_identifier_is_a_new_message_whatever_dup_says(
    connect5: Connect5, unique: Unique, dup: bool
) -> None:
    subscriber, publisher = connect5(), connect5()
    subscriber.subscribe(unique.topic(), qos=1)
    for flag in (False, dup):
        publisher.send(wire.publish(unique.topic(), b"same", qos=1, packet_id=7, dup=flag, version=5))
        publisher.expect(PubAck, packet_id=7)
    assert [message.payload for message in subscriber.messages(2)] == [b"same", b"same"]


# QoS 2, the broker receives


@pytest.mark.clause("5.0", "MQTT-4.3.3-8", "MQTT-4.3.3-10")
def test_a_repeated_qos_2_publish_is_answered_again_and_delivered_once(connect5: Connect5, unique: Unique) -> None:
    subscriber, publisher = connect5(), connect5()
    subscriber.subscribe(unique.topic(), qos=1)
    for dup in (False, True, True):
        publisher.send(wire.publish(unique.topic(), b"once", qos=2, packet_id=3, dup=dup, version=5))
        publisher.expect(PubRec, packet_id=3)
    publisher.send(wire.pubrel(3))
    publisher.expect(PubComp, packet_id=3, reason=0)
    subscriber.messages(1)
    subscriber.expect_no_message()


@pytest.mark.clause("5.0", "MQTT-4.3.3-11")
@pytest.mark.parametrize("form", [wire.pubrel(4), wire.pubrel(4, 0x00), wire.pubrel(4, 0x00, [])], ids=len)
def test_pubrel_is_answered_with_pubcomp(connect5: Connect5, unique: Unique, form: bytes) -> None:
    client = connect5()
    client.send(wire.publish(unique.topic(), b"1", qos=2, packet_id=4, version=5))
    client.expect(PubRec, packet_id=4)
    client.send(form)
    client.expect(PubComp, packet_id=4, reason=0)


@pytest.mark.clause("5.0", "MQTT-4.3.3-12")
def test_after_pubcomp_the_same_identifier_is_a_new_message(connect5: Connect5, unique: Unique) -> None:
    subscriber, publisher = connect5(), connect5()
    subscriber.subscribe(unique.topic(), qos=1)
    for _ in range(3):
        publisher.publish(unique.topic(), b"same", qos=2, packet_id=8)
    assert [message.payload for message in subscriber.messages(3)] == [b"same"] * 3
    subscriber.expect_no_message()


@pytest.mark.told_clock
@pytest.mark.clause("5.0", "MQTT-4.3.3-13")
def test_the_handshake_of_an_expired_message_is_finished(connect5: Connect5, unique: Unique, server: Server) -> None:
    """In both directions: one message on its way to a subscriber, one on its way in."""
    publisher, subscriber = connect5(), connect5()
    expiry = [(P.MESSAGE_EXPIRY, 1)]
    subscriber.subscribe(unique.topic("out"), qos=2)
    publisher.publish(unique.topic("out"), b"1", qos=2, properties=expiry)
    message = subscriber.expect(Publish, payload=b"1")
    publisher.send(wire.publish(unique.topic("in"), b"2", qos=2, packet_id=600, version=5, properties=expiry))
    publisher.expect(PubRec, packet_id=600)
    server.pass_time(1.2)
    publisher.send(wire.pubrel(600))
    publisher.expect(PubComp, packet_id=600, reason=0)
    assert message.packet_id is not None
    subscriber.send(wire.pubrec(message.packet_id))
    subscriber.expect(PubRel, packet_id=message.packet_id, reason=0)
    subscriber.send(wire.pubcomp(message.packet_id))
    subscriber.expect_no_message()


# QoS 2, the broker sends


@pytest.mark.clause("5.0", "MQTT-4.3.3-4", "MQTT-4.3.3-5")
@pytest.mark.parametrize("reason", [0x00, 0x10])
def test_pubrec_below_0x80_is_answered_with_pubrel(connect5: Connect5, unique: Unique, reason: int) -> None:
    client = connect5()
    client.subscribe(unique.topic(), qos=2)
    client.publish(unique.topic(), b"1", qos=2)
    message = client.expect(Publish, qos=2)
    assert message.packet_id is not None
    client.send(wire.pubrec(message.packet_id, reason))
    client.expect(PubRel, packet_id=message.packet_id, reason=0)
    client.send(wire.pubcomp(message.packet_id))
    client.expect_no_message()


@pytest.mark.clause("5.0", "MQTT-4.4.0-2", "MQTT-4.3.3-4")
def test_pubrec_of_0x80_and_above_ends_the_delivery(connect5: Connect5, unique: Unique) -> None:
    client = connect5(properties=[(P.RECEIVE_MAXIMUM, 1)])
    client.subscribe(unique.topic(), qos=2)
    client.publish(unique.topic(), b"1", qos=2)
    client.publish(unique.topic(), b"2", qos=2)
    message = client.expect(Publish, payload=b"1")
    assert message.packet_id is not None
    client.send(wire.pubrec(message.packet_id, 0x80))
    # No PUBREL; and the place in the window is free for the next message.
    client.expect(Publish, payload=b"2")


@pytest.mark.clause("5.0", "MQTT-4.3.3-6")
def test_a_publish_is_not_sent_again_after_its_pubrel(connect5: Connect5, unique: Unique) -> None:
    client = connect5(unique.client(), properties=KEEP)
    client.subscribe(unique.topic(), qos=2)
    client.publish(unique.topic(), b"1", qos=2)
    message = client.expect(Publish, qos=2)
    assert message.packet_id is not None
    client.send(wire.pubrec(message.packet_id))
    client.expect(PubRel, packet_id=message.packet_id)
    for _ in range(2):
        client.cut()
        client = connect5(unique.client(), clean=False, properties=KEEP)
        client.expect(PubRel, packet_id=message.packet_id)
        client.expect_no_message()


@pytest.mark.told_clock
@pytest.mark.clause("5.0", "MQTT-4.3.3-7")
def test_a_message_whose_sending_has_begun_does_not_expire(connect5: Connect5, unique: Unique, server: Server) -> None:
    publisher, client = connect5(), connect5(unique.client(), properties=KEEP)
    client.subscribe(unique.topic(), qos=2)
    publisher.publish(unique.topic(), b"begun", qos=2, properties=[(P.MESSAGE_EXPIRY, 1)])
    begun = client.expect(Publish, payload=b"begun")
    client.cut()
    server.pass_time(1.2)
    again = connect5(unique.client(), clean=False, properties=KEEP)
    message = again.expect(Publish, payload=b"begun", dup=True, packet_id=begun.packet_id)
    again.ack(message)
    again.expect_no_message()


# Order


@pytest.mark.clause("5.0", "MQTT-4.6.0-5", "MQTT-4.6.0-6")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_of_one_client_on_one_topic_arrive_in_order(connect5: Connect5, unique: Unique, qos: int) -> None:
    publisher, subscriber = connect5(), connect5(properties=[(P.RECEIVE_MAXIMUM, 7)])
    subscriber.subscribe(unique.topic(), qos=qos)
    for number in range(100):
        publisher.publish(unique.topic(), str(number), qos=qos)
    got = [int(message.payload) for message in subscriber.messages(100)]
    assert got == list(range(100))


@pytest.mark.clause("5.0", "MQTT-4.6.0-5")
@pytest.mark.parametrize("qos", [1, 2])
def test_order_holds_across_a_resume_for_started_and_queued_messages(
    connect5: Connect5, unique: Unique, qos: int
) -> None:
    publisher = connect5()
    subscriber = connect5(unique.client(), properties=[*KEEP, (P.RECEIVE_MAXIMUM, 5)])
    subscriber.subscribe(unique.topic(), qos=qos)
    for number in range(20):
        publisher.publish(unique.topic(), str(number), qos=qos)
    subscriber.messages(5, ack=False)
    subscriber.disconnect()
    for number in range(20, 30):
        publisher.publish(unique.topic(), str(number), qos=qos)
    again = connect5(unique.client(), clean=False, properties=[*KEEP, (P.RECEIVE_MAXIMUM, 5)])
    assert [int(message.payload) for message in again.messages(30)] == list(range(30))


@pytest.mark.clause("5.0", "MQTT-4.6.0-5", "MQTT-4.6.0-6")
def test_acknowledgements_come_in_the_order_of_the_publishes(connect5: Connect5, unique: Unique) -> None:
    client = connect5()
    identifiers = [9, 3, 65535, 1, 400]
    client.send(b"".join(wire.publish(unique.topic(), b"1", qos=1, packet_id=i, version=5) for i in identifiers))
    assert [client.expect(PubAck).packet_id for _ in identifiers] == identifiers
    client.send(b"".join(wire.publish(unique.topic(), b"2", qos=2, packet_id=i, version=5) for i in identifiers))
    assert [client.expect(PubRec).packet_id for _ in identifiers] == identifiers
    client.send(b"".join(wire.pubrel(i) for i in identifiers))
    assert [client.expect(PubComp).packet_id for _ in identifiers] == identifiers


def test_what_is_published_at_qos_0_does_not_overtake_what_is_sent_again(connect5: Connect5, unique: Unique) -> None:
    publisher, client = connect5(), connect5(unique.client(), properties=KEEP)
    client.subscribe(unique.topic("a"), unique.topic("b"), qos=1)
    for payload in (b"1", b"2", b"3"):
        publisher.publish(unique.topic("a"), payload, qos=1)
    client.messages(3, ack=False)
    client.cut()
    narrow = connect5(unique.client(), clean=False, properties=[*KEEP, (P.RECEIVE_MAXIMUM, 1)])
    first = narrow.expect(Publish, payload=b"1", dup=True)
    publisher.publish(unique.topic("b"), b"elsewhere")
    publisher.publish(unique.topic("a"), b"later")
    narrow.expect(Publish, payload=b"elsewhere")
    narrow.expect_no_message()
    narrow.ack(first)
    assert [message.payload for message in narrow.messages(3)] == [b"2", b"3", b"later"]
    narrow.expect_no_message()
