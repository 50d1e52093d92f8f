"""MQTT 5.0 section 3.1: who may connect, which CONNECTs are refused, client ids, keep alive, takeover."""

import string

import pytest

import wire
from broker_process import Server, Unique
from v5_client import KEEP, Connect5, Open5, expect_dropped, expect_refused
from wire import ConnAck, P, Publish, Will

METHOD = (P.AUTH_METHOD, "NO-SUCH-METHOD")

NOT_CONNECT = {
    "PUBLISH": wire.publish("t", b"1", version=5),
    "SUBSCRIBE": wire.subscribe(1, [("t", 0)], version=5),
    "PINGREQ": wire.pingreq(),
    "PUBACK": wire.puback(1),
    "DISCONNECT": wire.disconnect(0x00),
    "AUTH": wire.auth(0x18, [METHOD]),
}


@pytest.mark.clause("5.0", "MQTT-3.1.0-1", "MQTT-3.14.0-1")
@pytest.mark.parametrize("packet", NOT_CONNECT.values(), ids=NOT_CONNECT.keys())
def test_a_connection_that_does_not_begin_with_connect_is_closed_in_silence(open5: Open5, packet: bytes) -> None:
    client = open5()
    client.send(packet)
    client.expect_closed()


@pytest.mark.clause("5.0", "MQTT-3.1.0-2", "MQTT-3.2.0-2")
def test_a_second_connect_is_a_protocol_error_and_gets_no_connack(connect5: Connect5, unique: Unique) -> None:
    client = connect5(unique.client())
    client.send(wire.connect(unique.client(), version=5))
    expect_dropped(client, 0x82)


def codes_before_the_close(client: wire.WireClient) -> list[int]:
    """What CONNACKs said. 0x01 is how 3.1.1 puts 0x84, right for a client whose version nobody knows."""
    packets = client.drain_until_closed()
    assert all(isinstance(packet, ConnAck) for packet in packets), packets
    return [packet.code for packet in packets if isinstance(packet, ConnAck)]


@pytest.mark.clause("5.0", "MQTT-3.1.2-1")
@pytest.mark.parametrize("name", ["MQTX", "mqtt", "MQIsdp", "MQT", "MQTTT", ""])
def test_a_foreign_protocol_name_is_refused(open5: Open5, unique: Unique, name: str) -> None:
    client = open5()
    client.send(wire.connect(unique.client(), version=5, protocol_name=name))
    assert codes_before_the_close(client) in ([], [0x84], [0x01])


@pytest.mark.clause("5.0", "MQTT-3.1.2-2")
@pytest.mark.parametrize("level", [0, 2, 6, 0x7F, 0xFF])
def test_an_unknown_protocol_version_is_refused(open5: Open5, unique: Unique, level: int) -> None:
    client = open5()
    client.send(wire.connect(unique.client(), version=5, level=level))
    assert codes_before_the_close(client) in ([], [0x84], [0x01])


WRONG_CONNECT_FLAGS = [
    pytest.param(0x03, id="reserved flag", marks=pytest.mark.clause("5.0", "MQTT-3.1.2-3")),
    pytest.param(0x0A, id="Will QoS without a will", marks=pytest.mark.clause("5.0", "MQTT-3.1.2-11")),
    pytest.param(0x12, id="Will QoS 2 without a will", marks=pytest.mark.clause("5.0", "MQTT-3.1.2-11")),
    pytest.param(0x22, id="Will Retain without a will", marks=pytest.mark.clause("5.0", "MQTT-3.1.2-13")),
]


@pytest.mark.clause("5.0", "MQTT-3.1.4-1")
@pytest.mark.parametrize("flags", WRONG_CONNECT_FLAGS)
def test_wrong_connect_flags_are_a_malformed_packet(open5: Open5, unique: Unique, flags: int) -> None:
    client = open5()
    client.send(wire.connect(unique.client(), version=5, flags=flags))
    expect_refused(client, 0x81)


@pytest.mark.clause("5.0", "MQTT-3.1.2-12", "MQTT-3.1.4-1")
def test_will_qos_3_is_a_malformed_packet(open5: Open5, unique: Unique) -> None:
    client = open5()
    client.send(wire.connect(unique.client(), version=5, will=Will("w"), flags=0x1E))
    expect_refused(client, 0x81)


NAME, PASSWORD, WILL = wire.text("user"), wire.binary(b"secret"), b"\x00" + wire.text("w") + wire.binary(b"bye")

# Connect flags, then what follows the client id.
WRONG_PAYLOAD = [
    pytest.param(0x06, b"", id="no will", marks=pytest.mark.clause("5.0", "MQTT-3.1.2-9")),
    pytest.param(0x06, b"\x00", id="no will topic", marks=pytest.mark.clause("5.0", "MQTT-3.1.2-9")),
    pytest.param(0x06, b"\x00" + wire.text("w"), id="no will payload", marks=pytest.mark.clause("5.0", "MQTT-3.1.2-9")),
    pytest.param(0x02, WILL, id="will without its flag", marks=pytest.mark.clause("5.0", "MQTT-3.1.2-9")),
    pytest.param(0x02, NAME, id="user name without its flag", marks=pytest.mark.clause("5.0", "MQTT-3.1.2-16")),
    pytest.param(0x82, b"", id="no user name", marks=pytest.mark.clause("5.0", "MQTT-3.1.2-17")),
    pytest.param(0x82, b"\x00\x09user", id="short user name", marks=pytest.mark.clause("5.0", "MQTT-3.1.2-17")),
    pytest.param(0x82, NAME + PASSWORD, id="password without flag", marks=pytest.mark.clause("5.0", "MQTT-3.1.2-18")),
    pytest.param(0xC2, NAME, id="no password", marks=pytest.mark.clause("5.0", "MQTT-3.1.2-19")),
    pytest.param(0xC6, NAME + PASSWORD + WILL, id="will last", marks=pytest.mark.clause("5.0", "MQTT-3.1.3-1")),
]


@pytest.mark.clause("5.0", "MQTT-3.1.4-1")
@pytest.mark.parametrize(("flags", "rest"), WRONG_PAYLOAD)
def test_a_payload_that_does_not_fit_the_connect_flags_is_malformed(
    open5: Open5, unique: Unique, flags: int, rest: bytes
) -> None:
    client = open5()
    body = wire.text("MQTT") + bytes([5, flags]) + wire.u16(60) + b"\x00" + wire.text(unique.client()) + rest
    client.send(wire.frame(0x10, body))
    expect_refused(client, 0x81)


@pytest.mark.clause("5.0", "MQTT-3.1.3-1", "MQTT-3.1.2-9", "MQTT-3.1.2-17", "MQTT-3.1.2-19", "MQTT-3.1.4-5")
def test_a_connect_with_every_field_is_read_in_order(connect5: Connect5, unique: Unique) -> None:
    watcher = connect5()
    topic = unique.topic("will")
    watcher.subscribe(topic, qos=1)
    client = connect5(
        unique.client("full"),
        will=Will(topic, b"gone", qos=1, properties=[(P.CONTENT_TYPE, "text/plain"), (P.WILL_DELAY, 0)]),
        username="user",
        password=b"secret",
        properties=[(P.RECEIVE_MAXIMUM, 10), (P.USER_PROPERTY, ("a", "b")), (P.MAXIMUM_PACKET_SIZE, 1000)],
    )
    client.ping()
    client.cut()
    watcher.expect(Publish, topic=topic, payload=b"gone", qos=1, properties=[(P.CONTENT_TYPE, "text/plain")])


@pytest.mark.clause("5.0", "MQTT-3.1.2-19")
def test_a_password_may_come_without_a_user_name(connect5: Connect5) -> None:
    connect5(password=b"token").ping()


@pytest.mark.clause("5.0", "MQTT-3.1.3-3", "MQTT-3.1.4-1")
@pytest.mark.parametrize("payload", [b"", b"\x00", b"\x00\x05abc"], ids=["absent", "half a length", "cut short"])
def test_a_connect_without_a_whole_client_id_is_malformed(open5: Open5, payload: bytes) -> None:
    client = open5()
    client.send(wire.frame(0x10, wire.text("MQTT") + bytes([5, 2]) + wire.u16(60) + b"\x00" + payload))
    expect_refused(client, 0x81)


BAD_TEXT = [
    pytest.param({"client_id": b"c\xff"}, id="client id", marks=pytest.mark.clause("5.0", "MQTT-3.1.3-4")),
    pytest.param({"will": Will(b"w\xff")}, id="will topic", marks=pytest.mark.clause("5.0", "MQTT-3.1.3-11")),
    pytest.param({"username": b"u\xed\xa0\x80"}, id="user name", marks=pytest.mark.clause("5.0", "MQTT-3.1.3-12")),
    pytest.param({"client_id": b"c\x00"}, id="null in client id", marks=pytest.mark.clause("5.0", "MQTT-3.1.3-4")),
    pytest.param({"will": Will(b"w\x00")}, id="null in will topic", marks=pytest.mark.clause("5.0", "MQTT-3.1.3-11")),
    pytest.param({"username": b"u\x00"}, id="null in user name", marks=pytest.mark.clause("5.0", "MQTT-3.1.3-12")),
]


@pytest.mark.clause("5.0", "MQTT-1.5.4-1", "MQTT-3.1.4-1")
@pytest.mark.parametrize("fields", BAD_TEXT)
def test_ill_formed_text_in_connect_is_refused(open5: Open5, unique: Unique, fields: dict[str, object]) -> None:
    client = open5()
    client.send(wire.connect(**{"client_id": unique.client(), "version": 5, **fields}))  # type: ignore[arg-type]
    expect_refused(client, 0x81)


BAD_PROPERTIES = {
    "Receive Maximum 0": (0x82, [(P.RECEIVE_MAXIMUM, 0)]),
    "Receive Maximum twice": (0x82, [(P.RECEIVE_MAXIMUM, 5), (P.RECEIVE_MAXIMUM, 5)]),
    "Maximum Packet Size 0": (0x82, [(P.MAXIMUM_PACKET_SIZE, 0)]),
    "Session Expiry Interval twice": (0x82, [(P.SESSION_EXPIRY, 5), (P.SESSION_EXPIRY, 5)]),
    "Request Problem Information 2": (0x82, [(P.REQUEST_PROBLEM_INFO, 2)]),
    "Request Response Information 2": (0x82, [(P.REQUEST_RESPONSE_INFO, 2)]),
    "Authentication Data without a method": (0x82, [(P.AUTH_DATA, b"x")]),
    "a property of PUBLISH": (0x81, [(P.TOPIC_ALIAS, 1)]),
    "a property of the will": (0x81, [(P.WILL_DELAY, 1)]),
    "a property of CONNACK": (0x81, [(P.RETAIN_AVAILABLE, 1)]),
    "an unknown property": (0x81, [(0x7F, b"\x00")]),
}


@pytest.mark.clause("5.0", "MQTT-3.1.4-1", "MQTT-3.2.2-7", "MQTT-3.2.2-8", "MQTT-4.13.1-1")
@pytest.mark.parametrize(("code", "properties"), BAD_PROPERTIES.values(), ids=BAD_PROPERTIES.keys())
def test_a_connect_with_forbidden_properties_is_refused(
    open5: Open5, unique: Unique, code: int, properties: list[wire.Property]
) -> None:
    client = open5()
    client.send(wire.connect(unique.client(), version=5, properties=properties))
    expect_refused(client, code)


@pytest.mark.clause("5.0", "MQTT-3.1.4-1")
def test_a_property_length_beyond_the_packet_is_malformed(open5: Open5, unique: Unique) -> None:
    client = open5()
    client.send(wire.frame(0x10, wire.text("MQTT") + bytes([5, 2]) + wire.u16(60) + b"\x40" + wire.text("c")))
    expect_refused(client, 0x81)


@pytest.mark.clause("5.0", "MQTT-3.1.4-6", "MQTT-3.1.2-30", "MQTT-4.12.0-1")
def test_nothing_behind_a_refused_connect_is_processed(connect5: Connect5, open5: Open5, unique: Unique) -> None:
    watcher = connect5()
    topic = unique.topic()
    watcher.subscribe(topic)
    client = open5()
    hello = wire.connect(unique.client("refused"), version=5, properties=[METHOD])
    client.send(hello + wire.publish(topic, b"sneaked in", version=5, retain=True) + wire.pingreq())
    expect_refused(client, 0x8C)
    watcher.expect_no_message()
    watcher.subscribe(topic)
    watcher.expect_no_message()


# Client ids

ALLOWED = string.digits + string.ascii_letters


@pytest.mark.clause("5.0", "MQTT-3.1.3-5", "MQTT-3.1.4-5")
@pytest.mark.parametrize("client_id", ["7", "z", ALLOWED[:23], ALLOWED[23:46], ALLOWED[-23:]])
def test_every_short_client_id_of_letters_and_digits_is_accepted(open5: Open5, client_id: str) -> None:
    client = open5()
    answer = client.connect(client_id)
    assert answer.prop(P.ASSIGNED_CLIENT_ID) is None
    client.ping()


@pytest.mark.clause("5.0", "MQTT-3.1.3-6", "MQTT-3.1.3-7", "MQTT-3.2.2-16")
def test_an_empty_client_id_is_given_a_unique_one(open5: Open5) -> None:
    clients = [open5() for _ in range(5)]
    assigned = [client.connect("").prop(P.ASSIGNED_CLIENT_ID) for client in clients]
    assert all(assigned), f"expected five assigned client identifiers, got {assigned}"
    assert len(set(assigned)) == 5, f"expected five different ones, got {assigned}"
    for client in clients:
        client.ping()


@pytest.mark.clause("5.0", "MQTT-3.1.3-7")
def test_the_assigned_client_id_is_the_one_the_session_goes_by(open5: Open5, unique: Unique) -> None:
    client = open5()
    assigned = client.connect("", clean=False, properties=KEEP).prop(P.ASSIGNED_CLIENT_ID)
    client.subscribe(unique.topic(), qos=1)
    client.disconnect()
    again = open5()
    assert again.connect(assigned, clean=False, properties=KEEP).session_present


@pytest.mark.clause("5.0", "MQTT-3.1.3-2")
def test_each_client_id_has_its_own_session(connect5: Connect5, unique: Unique) -> None:
    one, other = unique.client("one"), unique.client("other")
    for name in (one, other):
        client = connect5(name, clean=False, properties=KEEP)
        client.subscribe(unique.topic(name), qos=1)
        client.disconnect()
    publisher = connect5()
    publisher.publish(unique.topic(one), b"for one", qos=1)
    publisher.publish(unique.topic(other), b"for other", qos=1)
    for name, payload in ((one, b"for one"), (other, b"for other")):
        client = connect5(name, clean=False, properties=KEEP)
        client.expect(Publish, topic=unique.topic(name), payload=payload)
        client.expect_no_message()


# Takeover and keep alive


@pytest.mark.clause("5.0", "MQTT-3.1.4-3", "MQTT-3.14.2-2", "MQTT-3.14.4-1", "MQTT-3.14.4-2")
def test_the_older_of_two_clients_with_one_id_is_told_so_and_closed(connect5: Connect5, unique: Unique) -> None:
    older = connect5(unique.client(), clean=False, properties=KEEP)
    newer = connect5(unique.client(), clean=False, properties=KEEP)
    said = older.expect_disconnect(0x8E)
    assert said.prop(P.SESSION_EXPIRY) is None
    newer.ping()


@pytest.mark.told_clock
@pytest.mark.clause("5.0", "MQTT-3.1.2-22", "MQTT-3.2.2-22", "MQTT-3.1.2-8")
def test_a_silent_client_is_closed_after_one_and_a_half_keep_alives(
    connect5: Connect5, unique: Unique, server: Server
) -> None:
    """It ends like a failed connection: the will goes out."""
    watcher = connect5()
    watcher.subscribe(unique.topic("will"))
    client = connect5(unique.client("silent"), keep_alive=1, will=Will(unique.topic("will"), b"silent"))
    assert client.connack is not None
    assert client.connack.prop(P.SERVER_KEEP_ALIVE) is None
    server.pass_time(1.0)
    client.ping()
    since = server.now()
    expect_dropped(client, 0x8D)
    waited = server.now() - since
    assert 1.45 <= waited <= 3.5, f"expected the close 1.5 s after the last packet, got it after {waited:.2f} s"
    watcher.expect(Publish, payload=b"silent")


@pytest.mark.told_clock
@pytest.mark.clause("5.0", "MQTT-3.1.2-22")
def test_with_keep_alive_0_silence_is_no_reason_to_close(connect5: Connect5) -> None:
    client = connect5(keep_alive=0)
    client.expect_nothing(2.0)
    client.ping()
