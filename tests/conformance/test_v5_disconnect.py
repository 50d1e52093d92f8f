"""MQTT 5.0 sections 3.12 and 3.14: PINGREQ, DISCONNECT in both directions, and what comes after it: nothing."""

import pytest

import wire
from broker_process import Unique
from v5_client import CONNACK_CODES, DISCONNECT_CODES, KEEP, Connect5, Open5, expect_dropped, tight_limit
from wire import ConnAck, P, Publish, SubAck, Will

METHOD = (P.AUTH_METHOD, "NO-SUCH-METHOD")


@pytest.mark.clause("5.0", "MQTT-3.12.4-1")
def test_pingreq_is_answered_with_pingresp(connect5: Connect5) -> None:
    client = connect5()
    for count in (1, 3):
        client.send(wire.pingreq() * count)
        for _ in range(count):
            client.expect(bytes.fromhex("d0 00"))
    client.expect_no_message()


@pytest.mark.clause("5.0", "MQTT-3.12.4-1", "MQTT-4.13.1-1")
def test_a_pingreq_with_a_body_is_malformed(connect5: Connect5) -> None:
    client = connect5()
    client.send(bytes.fromhex("c0 01 00"))
    expect_dropped(client, 0x81)


# Errors before a successful CONNACK: none of them may be answered with DISCONNECT.
TOO_EARLY = {
    "PINGREQ first": wire.pingreq(),
    "a malformed packet first": wire.frame(0x36, b""),
    "CONNECT with a reserved flag": wire.connect("early", version=5, flags=0x03),
    "CONNECT with a property twice": wire.connect("early", version=5, properties=[(P.RECEIVE_MAXIMUM, 1)] * 2),
    "CONNECT with an unknown method": wire.connect("early", version=5, properties=[METHOD]),
    "CONNECT cut short": wire.frame(0x10, wire.text("MQTT") + bytes([5, 2])),
}


@pytest.mark.clause("5.0", "MQTT-3.14.0-1", "MQTT-3.2.2-8", "MQTT-4.13.2-1")
@pytest.mark.parametrize("packet", TOO_EARLY.values(), ids=TOO_EARLY.keys())
def test_no_disconnect_is_sent_before_a_successful_connack(open5: Open5, packet: bytes) -> None:
    client = open5()
    client.send(packet)
    packets = client.drain_until_closed()
    assert len(packets) <= 1
    for answer in packets:
        assert isinstance(answer, ConnAck), answer
        assert answer.code in CONNACK_CODES - {0x00}


@pytest.mark.clause("5.0", "MQTT-3.14.1-1")
@pytest.mark.parametrize("first_byte", [0xE1, 0xE2, 0xE4, 0xE8, 0xEF])
def test_disconnect_with_reserved_bits_is_malformed(connect5: Connect5, unique: Unique, first_byte: int) -> None:
    """It does not count as a normal end, so the will goes out."""
    watcher = connect5()
    watcher.subscribe(unique.topic())
    client = connect5(will=Will(unique.topic(), b"dead"))
    client.send(wire.disconnect(0x00, first_byte=first_byte))
    expect_dropped(client, 0x81)
    watcher.expect(Publish, payload=b"dead")


@pytest.mark.clause("5.0", "MQTT-3.14.2-1")
@pytest.mark.parametrize("reason", [0x01, 0x10, 0x7F, 0x92, 0xFF], ids=hex)
def test_a_disconnect_with_an_undefined_reason_is_no_normal_end(
    connect5: Connect5, unique: Unique, reason: int
) -> None:
    watcher = connect5()
    watcher.subscribe(unique.topic())
    client = connect5(will=Will(unique.topic(), b"dead"))
    client.send(wire.disconnect(reason))
    expect_dropped(client, 0x81, 0x82)
    watcher.expect(Publish, payload=b"dead")


ALLOWED = [0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99]


@pytest.mark.clause("5.0", "MQTT-3.14.2-1", "MQTT-3.14.4-2", "MQTT-4.13.2-1")
@pytest.mark.parametrize("reason", ALLOWED, ids=hex)
def test_a_disconnect_with_any_reason_of_a_client_closes_without_an_answer(connect5: Connect5, reason: int) -> None:
    client = connect5()
    client.send(wire.disconnect(reason, [(P.REASON_STRING, "enough"), (P.USER_PROPERTY, ("a", "b"))]))
    client.expect_closed()


@pytest.mark.clause("5.0", "MQTT-3.14.4-1")
def test_what_a_client_sends_behind_its_disconnect_is_not_processed(connect5: Connect5, unique: Unique) -> None:
    watcher, client = connect5(), connect5()
    watcher.subscribe(unique.topic())
    client.send(
        wire.publish(unique.topic(), b"before", version=5)
        + wire.disconnect(0x00)
        + wire.publish(unique.topic(), b"behind", version=5)
        + wire.pingreq()
    )
    client.expect_closed()
    watcher.expect(Publish, payload=b"before")
    watcher.expect_no_message()


# What makes the broker send DISCONNECT.
BROKER_DISCONNECTS = {
    "a malformed packet": wire.pubrel(1, first_byte=0x60),
    "a protocol error": wire.publish("", b"1", version=5),
    "an ill-formed topic": wire.publish(b"\xff", b"1", version=5),
    "an alias too high": wire.publish("t", b"1", version=5, properties=[(P.TOPIC_ALIAS, 65535)]),
    "a second CONNECT": wire.connect("second", version=5),
    "an unexpected AUTH": wire.auth(0x18, [METHOD]),
}


@pytest.mark.clause(
    "5.0", "MQTT-3.14.2-1", "MQTT-3.14.2-2", "MQTT-3.14.4-1", "MQTT-3.14.4-2", "MQTT-4.13.1-1", "MQTT-4.13.2-1"
)
@pytest.mark.parametrize("packet", BROKER_DISCONNECTS.values(), ids=BROKER_DISCONNECTS.keys())
def test_after_its_disconnect_the_broker_sends_nothing_and_closes(
    connect5: Connect5, unique: Unique, packet: bytes
) -> None:
    """Packets that came with the bad one are left unanswered, and the reason is one that DISCONNECT has."""
    client = connect5(properties=KEEP)
    client.send(packet + wire.pingreq() + wire.subscribe(2, [(unique.topic(), 0)], version=5) + wire.pingreq())
    said = expect_dropped(client, *(DISCONNECT_CODES - {0x00}))
    if said is not None:
        assert said.prop(P.SESSION_EXPIRY) is None


@pytest.mark.clause("5.0", "MQTT-3.14.4-1", "MQTT-4.13.1-1")
def test_packets_before_the_bad_one_are_still_answered(connect5: Connect5, unique: Unique) -> None:
    client = connect5()
    good = wire.subscribe(1, [(unique.topic(), 0)], version=5)
    client.send(good + wire.pubrel(1, first_byte=0x60) + good)
    client.expect(SubAck, packet_id=1)
    expect_dropped(client, 0x81)


@pytest.mark.clause("5.0", "MQTT-3.14.2-3", "MQTT-3.14.2-4")
@pytest.mark.parametrize("packet", BROKER_DISCONNECTS.values(), ids=BROKER_DISCONNECTS.keys())
def test_a_disconnect_gives_up_its_explanation_before_it_outgrows_the_client(connect5: Connect5, packet: bytes) -> None:
    client = connect5()
    client.send(packet)
    full = expect_dropped(client, *DISCONNECT_CODES)
    limit = tight_limit(client, full)
    client = connect5(properties=[(P.MAXIMUM_PACKET_SIZE, limit)])
    client.send(packet)
    short = expect_dropped(client, *DISCONNECT_CODES)
    if full is not None and short is not None:
        assert short.reason == full.reason
        assert len(short.raw) <= limit
