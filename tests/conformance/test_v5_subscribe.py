"""MQTT 5.0 sections 3.8 to 3.11: SUBSCRIBE and UNSUBSCRIBE, their options, and their answers."""

import threading
from collections.abc import Callable

import pytest

import wire
from broker_process import Unique
from v5_client import KEEP, SUBACK_CODES, UNSUBACK_CODES, Connect5, expect_dropped, tight_limit
from wire import P, Publish, PubRel, SubAck, UnsubAck, WireClient, options

# Requests that are no requests


@pytest.mark.clause("5.0", "MQTT-3.8.1-1")
@pytest.mark.parametrize("first_byte", [0x80, 0x81, 0x83, 0x8A, 0x8F])
def test_subscribe_with_other_flags_than_0010_is_malformed(connect5: Connect5, first_byte: int) -> None:
    client = connect5()
    client.send(wire.subscribe(1, [("t", 0)], version=5, first_byte=first_byte))
    expect_dropped(client, 0x81)


@pytest.mark.clause("5.0", "MQTT-3.10.1-1")
@pytest.mark.parametrize("first_byte", [0xA0, 0xA1, 0xA3, 0xAA, 0xAF])
def test_unsubscribe_with_other_flags_than_0010_is_malformed(connect5: Connect5, first_byte: int) -> None:
    client = connect5()
    client.send(wire.unsubscribe(1, ["t"], version=5, first_byte=first_byte))
    expect_dropped(client, 0x81)


@pytest.mark.clause("5.0", "MQTT-3.8.3-2")
def test_subscribe_without_a_filter_is_a_protocol_error(connect5: Connect5) -> None:
    client = connect5()
    client.send(wire.subscribe(1, [], version=5))
    expect_dropped(client, 0x82)


@pytest.mark.clause("5.0", "MQTT-3.10.3-2")
def test_unsubscribe_without_a_filter_is_a_protocol_error(connect5: Connect5) -> None:
    client = connect5()
    client.send(wire.unsubscribe(1, [], version=5))
    expect_dropped(client, 0x82)


@pytest.mark.clause("5.0", "MQTT-3.8.3-1", "MQTT-3.8.3-2")
@pytest.mark.parametrize("payload", [b"\x00", b"\x00\x01", b"\x00\x01t", b"\x00\x05t\x00"])
def test_a_filter_that_is_cut_short_is_malformed(connect5: Connect5, payload: bytes) -> None:
    client = connect5()
    client.send(wire.frame(0x82, wire.u16(1) + b"\x00" + payload))
    expect_dropped(client, 0x81)


@pytest.mark.clause("5.0", "MQTT-3.10.3-1", "MQTT-3.10.3-2")
@pytest.mark.parametrize("payload", [b"\x00", b"\x00\x01", b"\x00\x05t"])
def test_a_filter_to_unsubscribe_that_is_cut_short_is_malformed(connect5: Connect5, payload: bytes) -> None:
    client = connect5()
    client.send(wire.frame(0xA2, wire.u16(1) + b"\x00" + payload))
    expect_dropped(client, 0x81)


@pytest.mark.clause("5.0", "MQTT-3.8.3-5")
@pytest.mark.parametrize("option", [0x40, 0x80, 0xC0, 0x41, 0xFF], ids=hex)
def test_reserved_subscription_options_are_malformed(connect5: Connect5, option: int) -> None:
    client = connect5()
    client.send(wire.subscribe(1, [("good", 0), ("bad", option)], version=5))
    expect_dropped(client, 0x81)


@pytest.mark.clause("5.0", "MQTT-3.8.3-5", "MQTT-4.13.1-1")
def test_asking_for_qos_3_is_a_protocol_error(connect5: Connect5) -> None:
    client = connect5()
    client.send(wire.subscribe(1, [("t", 0x03)], version=5))
    expect_dropped(client, 0x82)


@pytest.mark.clause("5.0", "MQTT-3.8.3-4")
def test_no_local_on_a_shared_subscription_is_a_protocol_error(connect5: Connect5, unique: Unique) -> None:
    client = connect5()
    client.send(wire.subscribe(1, [(f"$share/g/{unique.topic()}", options(no_local=True))], version=5))
    expect_dropped(client, 0x82)


BAD_PROPERTIES = {
    "Subscription Identifier 0": (0x82, [(P.SUBSCRIPTION_ID, 0)]),
    "Subscription Identifier twice": (0x82, [(P.SUBSCRIPTION_ID, 1), (P.SUBSCRIPTION_ID, 2)]),
    "a property of PUBLISH": (0x81, [(P.CONTENT_TYPE, "t")]),
    "an unknown property": (0x81, [(0x7F, b"")]),
}


@pytest.mark.clause("5.0", "MQTT-4.13.1-1")
@pytest.mark.parametrize(("reason", "properties"), BAD_PROPERTIES.values(), ids=BAD_PROPERTIES.keys())
def test_subscribe_with_forbidden_properties_is_refused(
    connect5: Connect5, reason: int, properties: list[wire.Property]
) -> None:
    client = connect5()
    client.send(wire.subscribe(1, [("t", 0)], version=5, properties=properties))
    expect_dropped(client, reason)


# No Local


@pytest.mark.clause("5.0", "MQTT-3.8.3-3")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_with_no_local_a_client_does_not_hear_itself(connect5: Connect5, unique: Unique, qos: int) -> None:
    client, other = connect5(), connect5()
    client.subscribe(unique.topic(), qos=2, no_local=True)
    other.subscribe(unique.topic(), qos=2)
    client.publish(unique.topic(), b"mine", qos=qos)
    other.expect(Publish, payload=b"mine")
    client.expect_no_message()
    other.publish(unique.topic(), b"theirs", qos=qos)
    client.expect(Publish, payload=b"theirs")


@pytest.mark.clause("5.0", "MQTT-3.8.3-3")
def test_no_local_goes_by_client_id_and_not_by_connection(connect5: Connect5, unique: Unique) -> None:
    """Its own message, published just before it left, is not waiting for it when it is back."""
    client = connect5(unique.client(), properties=KEEP)
    client.subscribe(unique.topic(), qos=1, no_local=True)
    client.publish(unique.topic(), b"mine", qos=1)
    client.disconnect()
    again = connect5(unique.client(), clean=False, properties=KEEP)
    again.publish(unique.topic(), b"mine again", qos=1)
    again.expect_no_message()


@pytest.mark.clause("5.0", "MQTT-3.8.3-3")
def test_without_no_local_a_client_hears_itself(connect5: Connect5, unique: Unique) -> None:
    client = connect5()
    client.subscribe(unique.topic(), no_local=False)
    client.publish(unique.topic(), b"mine")
    client.expect(Publish, payload=b"mine")


# Answers to SUBSCRIBE


@pytest.mark.clause("5.0", "MQTT-3.8.4-1", "MQTT-3.8.4-7", "MQTT-3.9.3-2")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_suback_grants_the_qos_asked_for(connect5: Connect5, unique: Unique, qos: int) -> None:
    client = connect5()
    client.send(wire.subscribe(10, [(unique.topic(), qos)], version=5))
    client.expect(bytes.fromhex("90 04 00 0a 00") + bytes([qos]))


@pytest.mark.clause("5.0", "MQTT-3.8.4-5", "MQTT-3.8.4-6", "MQTT-3.9.3-1")
def test_many_filters_get_one_suback_with_a_code_each_in_their_order(connect5: Connect5, unique: Unique) -> None:
    client = connect5()
    wanted = [2, 0, 1, 1, 0, 2, 2]
    filters = [(unique.topic(str(index)), qos) for index, qos in enumerate(wanted)]
    client.send(wire.subscribe(5, filters, version=5))
    client.expect(SubAck, packet_id=5, codes=wanted)
    client.expect_no_message()
    for index, qos in enumerate(wanted):
        client.publish(unique.topic(str(index)), b"1", qos=2)
        client.expect(Publish, topic=unique.topic(str(index)), qos=qos)


@pytest.mark.clause("5.0", "MQTT-3.8.4-5")
def test_the_filters_of_one_subscribe_act_one_after_another(connect5: Connect5, unique: Unique) -> None:
    """The same filter twice: the later options win, as with two SUBSCRIBEs."""
    client = connect5()
    client.send(wire.subscribe(5, [(unique.topic(), 0), (unique.topic(), 2)], version=5))
    client.expect(SubAck, packet_id=5, codes=[0, 2])
    client.publish(unique.topic(), b"1", qos=2)
    client.expect(Publish, qos=2)
    client.expect_no_message()


@pytest.mark.clause("5.0", "MQTT-3.8.4-3")
def test_an_identical_filter_replaces_the_subscription(connect5: Connect5, unique: Unique) -> None:
    client = connect5()
    client.subscribe(unique.topic("+"), qos=2, retain_as_published=True)
    client.subscribe(unique.topic("+"), qos=0)
    client.publish(unique.topic("a"), b"1", qos=2, retain=True)
    client.expect(Publish, payload=b"1", qos=0, retain=False)
    client.expect_no_message()


@pytest.mark.clause("5.0", "MQTT-3.8.4-3")
def test_filters_that_match_the_same_topics_are_still_different_subscriptions(
    connect5: Connect5, unique: Unique
) -> None:
    client = connect5()
    client.subscribe(unique.topic("a"), qos=1)
    client.subscribe(unique.topic("+"), qos=0)
    client.unsubscribe(unique.topic("+"))
    client.publish(unique.topic("a"), b"1", qos=1)
    client.expect(Publish, payload=b"1", qos=1)


@pytest.mark.clause("5.0", "MQTT-3.8.4-4", "MQTT-3.8.4-3")
def test_replacing_a_subscription_loses_no_live_message(connect5: Connect5, unique: Unique) -> None:
    publisher, subscriber = connect5(), connect5()
    subscriber.subscribe(unique.topic(), qos=1)
    count = 300

    def stream() -> None:
        for number in range(count):
            publisher.publish(unique.topic(), str(number), qos=1)

    thread = threading.Thread(target=stream)
    thread.start()
    for _ in range(20):
        subscriber.subscribe(unique.topic(), qos=1)
    numbers = [int(message.payload) for message in subscriber.messages(count)]
    thread.join()
    assert numbers == list(range(count))


@pytest.mark.clause("5.0", "MQTT-3.8.4-8", "MQTT-3.8.4-7")
@pytest.mark.parametrize("granted", [0, 1, 2])
@pytest.mark.parametrize("published", [0, 1, 2])
def test_delivery_qos_is_the_lower_of_published_and_granted(
    connect5: Connect5, unique: Unique, granted: int, published: int
) -> None:
    client = connect5()
    client.subscribe(unique.topic(), qos=granted)
    client.publish(unique.topic(), b"1", qos=published)
    client.expect(Publish, payload=b"1", qos=min(granted, published))


# UNSUBSCRIBE


@pytest.mark.clause("5.0", "MQTT-3.10.4-1", "MQTT-3.10.4-2", "MQTT-3.10.4-4", "MQTT-3.11.3-2")
def test_unsubscribe_ends_the_subscription_with_exactly_that_filter(connect5: Connect5, unique: Unique) -> None:
    client = connect5()
    for topic_filter in ("a", "a/#", "A", "+/b"):
        client.subscribe(unique.topic(topic_filter))
    near_misses = ["a/+", "a/", "/a", "+", "#", "a/b", "B"]
    answer = client.unsubscribe(*(unique.topic(name) for name in near_misses))
    assert answer.codes == [0x11] * len(near_misses)
    assert client.unsubscribe(unique.topic("a/#")).codes == [0x00]
    client.publish(unique.topic("a/c"), b"gone")
    client.expect_no_message()
    for topic in ("a", "A", "x/b"):
        client.publish(unique.topic(topic), b"still here")
        client.expect(Publish, topic=unique.topic(topic))


@pytest.mark.clause("5.0", "MQTT-3.10.4-2")
def test_after_unsuback_no_new_message_comes(connect5: Connect5, unique: Unique) -> None:
    client, publisher = connect5(), connect5()
    client.subscribe(unique.topic(), qos=2)
    publisher.publish(unique.topic(), b"before", qos=2)
    client.messages(1)
    client.unsubscribe(unique.topic())
    for qos in (0, 1, 2):
        publisher.publish(unique.topic(), b"after", qos=qos)
    client.expect_no_message()


@pytest.mark.clause("5.0", "MQTT-3.10.4-3")
def test_deliveries_that_have_begun_are_finished_after_unsubscribe(connect5: Connect5, unique: Unique) -> None:
    client, publisher = connect5(unique.client(), properties=KEEP), connect5()
    client.subscribe(unique.topic(), qos=2)
    publisher.publish(unique.topic(), b"1", qos=1)
    publisher.publish(unique.topic(), b"2", qos=2)
    one, two = client.messages(2, ack=False)
    assert two.packet_id is not None
    client.unsubscribe(unique.topic())
    client.cut()
    again = connect5(unique.client(), clean=False, properties=KEEP)
    again.expect(Publish, payload=b"1", dup=True, packet_id=one.packet_id)
    again.expect(Publish, payload=b"2", dup=True, packet_id=two.packet_id)
    again.send(wire.pubrec(two.packet_id))
    again.expect(PubRel, packet_id=two.packet_id, reason=0)


@pytest.mark.clause("5.0", "MQTT-3.10.4-4", "MQTT-3.10.4-5", "MQTT-3.11.3-2")
def test_unsubscribing_what_was_never_subscribed_is_answered_with_0x11(connect5: Connect5, unique: Unique) -> None:
    client = connect5()
    client.send(wire.unsubscribe(77, [unique.topic()], version=5))
    client.expect(UnsubAck, packet_id=77, codes=[0x11])


@pytest.mark.clause("5.0", "MQTT-3.10.4-6", "MQTT-3.11.3-1", "MQTT-3.11.3-2")
def test_many_filters_get_one_unsuback_with_a_code_each_in_their_order(connect5: Connect5, unique: Unique) -> None:
    client = connect5()
    client.subscribe(unique.topic("a"), unique.topic("b"))
    names = ["x", "a", "y", "b", "a"]
    client.send(wire.unsubscribe(6, [unique.topic(name) for name in names], version=5))
    client.expect(UnsubAck, packet_id=6, codes=[0x11, 0x00, 0x11, 0x00, 0x11])
    client.expect_no_message()


# Explanations

Request = Callable[[str], bytes]

EXPLAINED = [
    pytest.param(
        lambda topic: wire.subscribe(9, [("$share//" + topic, 0)], version=5),
        SUBACK_CODES,
        marks=pytest.mark.clause("5.0", "MQTT-3.9.2-1", "MQTT-3.9.2-2", "MQTT-3.9.3-2"),
        id="SUBACK",
    ),
    pytest.param(
        lambda topic: wire.subscribe(9, [(topic, 1)], version=5),
        SUBACK_CODES,
        marks=pytest.mark.clause("5.0", "MQTT-3.9.2-1", "MQTT-3.9.2-2", "MQTT-3.9.3-2"),
        id="SUBACK of success",
    ),
    pytest.param(
        lambda topic: wire.unsubscribe(9, [topic], version=5),
        UNSUBACK_CODES,
        marks=pytest.mark.clause("5.0", "MQTT-3.11.2-1", "MQTT-3.11.2-2", "MQTT-3.11.3-2"),
        id="UNSUBACK",
    ),
]


def answered(client: WireClient, request: bytes) -> SubAck | UnsubAck | wire.Disconnect:
    client.send(request)
    got = client.recv()
    assert isinstance(got, SubAck | UnsubAck | wire.Disconnect), got
    return got


@pytest.mark.parametrize(("request_for", "codes"), EXPLAINED)
def test_an_answer_gives_up_its_explanation_before_it_outgrows_the_client(
    connect5: Connect5, unique: Unique, request_for: Request, codes: frozenset[int]
) -> None:
    request = request_for(unique.topic())
    client = connect5()
    full = answered(client, request)
    limit = tight_limit(client, full)
    short = answered(connect5(properties=[(P.MAXIMUM_PACKET_SIZE, limit)]), request)
    assert len(short.raw) <= limit
    assert type(short) is type(full)
    if isinstance(full, SubAck | UnsubAck) and isinstance(short, SubAck | UnsubAck):
        assert set(full.codes) <= codes
        assert short.codes == full.codes
