"""MQTT 5.0 sections 3.4 to 3.7: reason codes of PUBACK, PUBREC, PUBREL, PUBCOMP, and how large they may grow."""

from collections.abc import Callable

import pytest

import wire
from broker_process import Unique
from v5_client import (
    PUBACK_CODES,
    PUBCOMP_CODES,
    PUBREC_CODES,
    PUBREL_CODES,
    Connect5,
    expect_dropped,
    tight_limit,
)
from wire import Acknowledgement, P, PubAck, PubComp, Publish, PubRec, PubRel, WireClient


@pytest.mark.clause("5.0", "MQTT-3.4.2-1", "MQTT-3.5.2-1")
@pytest.mark.parametrize(("qos", "kind"), [(1, PubAck), (2, PubRec)])
def test_a_publish_is_acknowledged_with_success_or_no_matching_subscribers(
    connect5: Connect5, unique: Unique, qos: int, kind: type[Acknowledgement]
) -> None:
    client, subscriber = connect5(), connect5()
    subscriber.subscribe(unique.topic("heard"))
    client.send_publish(unique.topic("heard"), b"1", qos=qos)
    assert client.expect(kind).reason == 0x00
    client.send_publish(unique.topic("unheard"), b"1", qos=qos)
    assert client.expect(kind).reason == 0x10


# A code of another packet, and one that no packet has.
WRONG_CODES = [
    pytest.param(wire.puback(1, 0x92), marks=pytest.mark.clause("5.0", "MQTT-3.4.2-1"), id="PUBACK 0x92"),
    pytest.param(wire.puback(1, 0x05), marks=pytest.mark.clause("5.0", "MQTT-3.4.2-1"), id="PUBACK 0x05"),
    pytest.param(wire.pubrec(1, 0x92), marks=pytest.mark.clause("5.0", "MQTT-3.5.2-1"), id="PUBREC 0x92"),
    pytest.param(wire.pubrec(1, 0xFF), marks=pytest.mark.clause("5.0", "MQTT-3.5.2-1"), id="PUBREC 0xFF"),
    pytest.param(wire.pubrel(1, 0x10), marks=pytest.mark.clause("5.0", "MQTT-3.6.2-1"), id="PUBREL 0x10"),
    pytest.param(wire.pubrel(1, 0x80), marks=pytest.mark.clause("5.0", "MQTT-3.6.2-1"), id="PUBREL 0x80"),
    pytest.param(wire.pubcomp(1, 0x10), marks=pytest.mark.clause("5.0", "MQTT-3.7.2-1"), id="PUBCOMP 0x10"),
    pytest.param(wire.pubcomp(1, 0x80), marks=pytest.mark.clause("5.0", "MQTT-3.7.2-1"), id="PUBCOMP 0x80"),
]


@pytest.mark.parametrize("packet", WRONG_CODES)
def test_an_acknowledgement_with_a_reason_code_it_may_not_have_is_refused(connect5: Connect5, packet: bytes) -> None:
    client = connect5()
    client.send(packet)
    expect_dropped(client, 0x81, 0x82)


@pytest.mark.clause("5.0", "MQTT-3.6.2-1")
def test_a_pubrec_for_an_unknown_identifier_is_answered_with_0x92(connect5: Connect5) -> None:
    client = connect5()
    client.send(wire.pubrec(1234))
    client.expect(PubRel, packet_id=1234, reason=0x92)
    client.ping()


@pytest.mark.clause("5.0", "MQTT-4.3.3-4", "MQTT-4.4.0-2")
@pytest.mark.parametrize("reason", [0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99], ids=hex)
def test_a_pubrec_that_refuses_an_unknown_identifier_is_answered_by_nothing(connect5: Connect5, reason: int) -> None:
    client = connect5()
    client.send(wire.pubrec(1234, reason))
    client.expect_no_message()
    client.ping()


@pytest.mark.clause("5.0", "MQTT-4.3.3-4", "MQTT-4.4.0-2")
def test_a_pubrec_that_refuses_a_qos_1_message_is_answered_by_nothing(connect5: Connect5, unique: Unique) -> None:
    client = connect5()
    client.subscribe(unique.topic(), qos=1)
    client.publish(unique.topic(), b"1", qos=1)
    message = client.expect(Publish, qos=1)
    assert message.packet_id is not None
    client.send(wire.pubrec(message.packet_id, 0x80))
    client.expect_no_message()
    client.send(wire.puback(message.packet_id))
    client.ping()


@pytest.mark.clause("5.0", "MQTT-3.7.2-1", "MQTT-4.3.3-11")
def test_a_pubrel_for_an_unknown_identifier_is_answered_with_0x92(connect5: Connect5) -> None:
    client = connect5()
    client.send(wire.pubrel(1234))
    client.expect(PubComp, packet_id=1234, reason=0x92)
    client.ping()


@pytest.mark.clause("5.0", "MQTT-3.6.1-1")
@pytest.mark.parametrize("first_byte", [0x60, 0x61, 0x63, 0x66, 0x6A, 0x6F])
def test_pubrel_with_other_flags_than_0010_is_malformed(connect5: Connect5, unique: Unique, first_byte: int) -> None:
    client = connect5()
    client.send(wire.publish(unique.topic(), b"1", qos=2, packet_id=1, version=5))
    client.expect(PubRec)
    client.send(wire.pubrel(1, first_byte=first_byte))
    expect_dropped(client, 0x81)


@pytest.mark.clause("5.0", "MQTT-3.6.1-1")
def test_pubrel_is_sent_with_flags_0010(connect5: Connect5, unique: Unique) -> None:
    client = connect5()
    client.subscribe(unique.topic(), qos=2)
    client.publish(unique.topic(), b"1", qos=2)
    identifier = client.expect(Publish).packet_id
    assert identifier is not None
    client.send(wire.pubrec(identifier))
    assert client.expect(PubRel).raw[0] == 0x62


# Requests whose answer has a reason worth explaining.
ANSWERS = [
    pytest.param(
        lambda topic: wire.publish(topic, b"1", qos=1, packet_id=5, version=5),
        PUBACK_CODES,
        marks=pytest.mark.clause("5.0", "MQTT-3.4.2-2", "MQTT-3.4.2-3"),
        id="PUBACK",
    ),
    pytest.param(
        lambda topic: wire.publish(topic, b"1", qos=2, packet_id=5, version=5),
        PUBREC_CODES,
        marks=pytest.mark.clause("5.0", "MQTT-3.5.2-2", "MQTT-3.5.2-3"),
        id="PUBREC",
    ),
    pytest.param(
        lambda topic: wire.pubrec(5),
        PUBREL_CODES,
        marks=pytest.mark.clause("5.0", "MQTT-3.6.2-2", "MQTT-3.6.2-3"),
        id="PUBREL",
    ),
    pytest.param(
        lambda topic: wire.pubrel(5),
        PUBCOMP_CODES,
        marks=pytest.mark.clause("5.0", "MQTT-3.7.2-2", "MQTT-3.7.2-3"),
        id="PUBCOMP",
    ),
]


def answer(client: WireClient, request: bytes) -> Acknowledgement:
    client.send(request)
    got = client.recv()
    assert isinstance(got, Acknowledgement), got
    return got


@pytest.mark.parametrize(("request_for", "codes"), ANSWERS)
def test_an_acknowledgement_gives_up_its_explanation_before_it_outgrows_the_client(
    connect5: Connect5, unique: Unique, request_for: Callable[[str], bytes], codes: frozenset[int]
) -> None:
    request = request_for(unique.topic())
    client = connect5()
    full = answer(client, request)
    assert full.reason in codes
    limit = tight_limit(client, full)
    short = answer(connect5(properties=[(P.MAXIMUM_PACKET_SIZE, limit)]), request)
    assert len(short.raw) <= limit
    assert (type(short), short.packet_id, short.reason) == (type(full), full.packet_id, full.reason)
