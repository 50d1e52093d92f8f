"""3.1.1: CONNECT and CONNACK."""

from collections.abc import Callable
from typing import Any

import pytest

import wire
from broker_process import Server, Unique
from wire import ConnAck, Publish, Will, WireClient

Connect = Callable[..., WireClient]

ACCEPTED = b"\x20\x02\x00\x00"


@pytest.mark.clause("3.1.1", "MQTT-3.1.4-4", "MQTT-3.2.2-1", "MQTT-3.2.0-1")
def test_good_connect_is_answered_with_return_code_0(open_client: Connect, unique: Unique) -> None:
    client = open_client()
    client.send(wire.connect(unique.client()))
    client.expect(ACCEPTED)


@pytest.mark.clause("3.1.1", "MQTT-3.1.0-1")
@pytest.mark.parametrize(
    "packet",
    [
        pytest.param(wire.publish("first", b"1"), id="PUBLISH"),
        pytest.param(wire.publish("first", b"1", qos=1, packet_id=1), id="PUBLISH QoS 1"),
        pytest.param(wire.puback(1), id="PUBACK"),
        pytest.param(wire.pubrec(1), id="PUBREC"),
        pytest.param(wire.pubrel(1), id="PUBREL"),
        pytest.param(wire.pubcomp(1), id="PUBCOMP"),
        pytest.param(wire.subscribe(1, [("first", 0)]), id="SUBSCRIBE"),
        pytest.param(wire.unsubscribe(1, ["first"]), id="UNSUBSCRIBE"),
        pytest.param(wire.pingreq(), id="PINGREQ"),
        pytest.param(wire.disconnect(), id="DISCONNECT"),
    ],
)
def test_any_other_first_packet_closes_unanswered(packet: bytes, open_client: Connect) -> None:
    client = open_client()
    client.send(packet)
    client.expect_closed()


@pytest.mark.clause("3.1.1", "MQTT-3.1.0-1")
def test_packet_before_connect_has_no_effect(open_client: Connect, connect: Connect, unique: Unique) -> None:
    watcher = connect()
    watcher.subscribe(unique.topic())
    client = open_client()
    client.send(wire.publish(unique.topic(), b"early") + wire.connect(unique.client()))
    client.expect_closed()
    watcher.expect_no_message()


@pytest.mark.clause("3.1.1", "MQTT-3.1.0-2", "MQTT-4.8.0-1")
def test_second_connect_closes_the_connection(connect: Connect, unique: Unique) -> None:
    client = connect(unique.client("twice"))
    client.send(wire.connect(unique.client("twice")))
    client.expect_closed()


@pytest.mark.clause("3.1.1", "MQTT-3.1.2-1")
@pytest.mark.parametrize("name", ["MQTTX", "mqtt", "MQT", "", "HTTP", "MQTT\u00e9"])
def test_wrong_protocol_name_is_not_served(name: str, open_client: Connect, unique: Unique) -> None:
    client = open_client()
    client.send(wire.connect(unique.client(), protocol_name=name))
    answers = client.drain_until_closed()
    assert not any(isinstance(packet, ConnAck) and packet.code == 0 for packet in answers), answers


@pytest.mark.clause("3.1.1", "MQTT-3.1.2-2", "MQTT-3.2.2-4", "MQTT-3.2.2-5")
@pytest.mark.parametrize("level", [0, 1, 2, 6, 127])
def test_unknown_protocol_level_gets_return_code_1_and_close(level: int, open_client: Connect, unique: Unique) -> None:
    client = open_client()
    client.send(wire.connect(unique.client(), level=level))
    client.expect(b"\x20\x02\x00\x01")
    client.expect_closed()


# Connect flags: user name 0x80, password 0x40, will retain 0x20, will QoS 0x18, will 0x04, clean session 0x02.
BROKEN: list[tuple[str, list[str], dict[str, Any]]] = [
    ("reserved flag", ["MQTT-3.1.2-3"], {"flags": 0x03}),
    ("will QoS 1 without will", ["MQTT-3.1.2-11", "MQTT-3.1.2-13"], {"flags": 0x0A}),
    ("will QoS 2 without will", ["MQTT-3.1.2-11", "MQTT-3.1.2-13"], {"flags": 0x12}),
    ("will retain without will", ["MQTT-3.1.2-11", "MQTT-3.1.2-15"], {"flags": 0x22}),
    ("will fields without will flag", ["MQTT-3.1.2-11"], {"flags": 0x02, "will": Will("a", b"b")}),
    ("will QoS 3", ["MQTT-3.1.2-14"], {"flags": 0x1E, "will": Will("a", b"b")}),
    ("will flag without will fields", ["MQTT-3.1.2-9"], {"flags": 0x06}),
    ("user name without its flag", ["MQTT-3.1.2-18"], {"flags": 0x02, "username": "u"}),
    ("user name flag without user name", ["MQTT-3.1.2-19"], {"flags": 0x82}),
    ("password without its flag", ["MQTT-3.1.2-20"], {"flags": 0x82, "username": "u", "password": b"p"}),
    ("password flag without password", ["MQTT-3.1.2-21"], {"flags": 0xC2, "username": "u"}),
    ("password without user name", ["MQTT-3.1.2-22"], {"flags": 0x42, "password": b"p"}),
]


@pytest.mark.clause("3.1.1", "MQTT-3.1.4-1", "MQTT-3.2.2-6")
@pytest.mark.parametrize(
    ("packet", "clauses"),
    [
        pytest.param(wire.connect("bad", **fields), clauses, id=name, marks=pytest.mark.clause("3.1.1", *clauses))
        for name, clauses, fields in BROKEN
    ],
)
def test_connect_that_breaks_the_format_closes_without_connack(
    packet: bytes, clauses: list[str], open_client: Connect
) -> None:
    client = open_client()
    client.send(packet)
    client.expect_closed()


@pytest.mark.clause("3.1.1", "MQTT-3.1.4-1", "MQTT-3.2.2-6", "MQTT-3.1.3-3")
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\x00\x04MQTT", id="name only"),
        pytest.param(b"\x00\x04MQTT\x04", id="no flags"),
        pytest.param(b"\x00\x04MQTT\x04\x02\x00", id="half a keep alive"),
        pytest.param(b"\x00\x04MQTT\x04\x02\x00\x3c", id="no client id"),
        pytest.param(b"\x00\x04MQTT\x04\x02\x00\x3c\x00\x05ab", id="client id cut short"),
        pytest.param(b"\x00\x04MQTT\x04\x02\x00\x3c\x00\x02abX", id="a byte too many"),
    ],
)
def test_connect_of_the_wrong_length_closes_without_connack(body: bytes, open_client: Connect) -> None:
    client = open_client()
    client.send(wire.frame(0x10, body))
    client.expect_closed()


@pytest.mark.clause("3.1.1", "MQTT-3.1.3-1", "MQTT-3.1.2-9", "MQTT-3.1.2-19", "MQTT-3.1.2-21")
def test_connect_with_every_field_is_read_in_order(connect: Connect, unique: Unique) -> None:
    watcher = connect()
    watcher.subscribe(unique.topic("will"), qos=2)
    full = connect(
        unique.client("full"),
        username="user",
        password=b"\x00\xff",
        will=Will(unique.topic("will"), b"\x00last", qos=1),
    )
    full.cut()
    watcher.expect(Publish, topic=unique.topic("will"), payload=b"\x00last", qos=1)


@pytest.mark.clause("3.1.1", "MQTT-3.1.3-5")
@pytest.mark.parametrize(
    "client_id",
    [
        "a",
        "7",
        "abcdefghijklmnopqrstuvw",
        "xyzABCDEFGHIJKLMNOPQRST",
        "UVWXYZ0123456789",
        "00000000000000000000000",
    ],
)
def test_every_short_alphanumeric_client_id_is_accepted(client_id: str, open_client: Connect) -> None:
    client = open_client()
    client.send(wire.connect(client_id))
    client.expect(ACCEPTED)
    client.ping()


@pytest.mark.clause("3.1.1", "MQTT-3.1.3-6")
def test_empty_client_ids_are_given_ids_of_their_own(connect: Connect, unique: Unique) -> None:
    first, second = connect(""), connect("")
    for client in (first, second):
        client.subscribe(unique.topic())
    connect().publish(unique.topic(), b"both")
    first.expect(Publish, payload=b"both")
    second.expect(Publish, payload=b"both")


@pytest.mark.clause(
    "3.1.1", "MQTT-3.1.3-7", "MQTT-3.1.3-8", "MQTT-3.1.3-9", "MQTT-3.2.2-4", "MQTT-3.2.2-5", "MQTT-3.2.0-1"
)
def test_empty_client_id_without_clean_session_gets_return_code_2_and_close(open_client: Connect) -> None:
    client = open_client()
    client.send(wire.connect("", clean=False))
    client.expect(b"\x20\x02\x00\x02")
    client.expect_closed()


@pytest.mark.clause("3.1.1", "MQTT-3.1.4-5")
def test_nothing_behind_a_refused_connect_is_processed(open_client: Connect, connect: Connect, unique: Unique) -> None:
    watcher = connect()
    watcher.subscribe(unique.topic(), qos=1)
    client = open_client()
    client.send(
        wire.connect("", clean=False)
        + wire.subscribe(1, [(unique.topic(), 0)])
        + wire.publish(unique.topic(), b"refused", qos=1, packet_id=2, retain=True)
        + wire.pingreq()
    )
    client.expect(ConnAck, code=2)
    client.expect_closed()
    watcher.expect_no_message()
    late = connect()
    late.subscribe(unique.topic())
    late.expect_no_message()


@pytest.mark.clause("3.1.1", "MQTT-3.1.4-2", "MQTT-3.1.3-2")
def test_same_client_id_again_closes_the_older_connection(connect: Connect, unique: Unique) -> None:
    older = connect(unique.client("same"))
    newer = connect(unique.client("same"))
    older.expect_closed()
    newer.ping()


@pytest.mark.clause("3.1.1", "MQTT-3.1.4-2")
def test_client_ids_that_differ_in_case_are_different(connect: Connect, unique: Unique) -> None:
    lower, upper = connect(unique.client("x")), connect(unique.client("X"))
    lower.ping()
    upper.ping()


@pytest.mark.clause("3.1.1", "MQTT-3.2.0-1", "MQTT-3.2.2-2")
def test_connack_comes_before_what_a_stored_session_holds(
    connect: Connect, open_client: Connect, unique: Unique
) -> None:
    name = unique.client("stored")
    connect(name, clean=False).subscribe(unique.topic(), qos=1)
    connect(name, clean=False).disconnect()
    connect().publish(unique.topic(), b"waiting", qos=1)
    back = open_client()
    back.send(wire.connect(name, clean=False))
    back.expect(b"\x20\x02\x01\x00")
    back.expect(Publish, payload=b"waiting")


@pytest.mark.told_clock
@pytest.mark.clause("3.1.1", "MQTT-3.1.2-24")
def test_silent_client_is_cut_off_after_one_and_a_half_keep_alives(
    connect: Connect, unique: Unique, server: Server
) -> None:
    watcher = connect()
    watcher.subscribe(unique.topic("will"))
    alive = connect(keep_alive=1)
    silent = connect(keep_alive=1, will=Will(unique.topic("will"), b"silent"))
    started = server.now()
    while server.now() - started < 1.2:
        alive.ping()
        silent.expect_nothing(0.3)
    # PUBLISH counts as a sign of life too, PINGREQ is not the only one.
    alive.send_publish(unique.topic(), b"x")
    silent.expect_closed(timeout=4)
    passed = server.now() - started
    assert 1.4 <= passed <= 4, f"expected the end near 1.5 s, got {passed:.2f} s"
    watcher.expect(Publish, payload=b"silent")
    alive.ping()


@pytest.mark.told_clock
@pytest.mark.clause("3.1.1", "MQTT-3.1.2-24")
def test_keep_alive_0_means_no_limit(connect: Connect) -> None:
    client = connect(keep_alive=0)
    client.expect_nothing(2.5)
    client.ping()


@pytest.mark.clause("3.1.1", "MQTT-3.12.4-1")
def test_pingreq_is_answered_with_pingresp(connect: Connect) -> None:
    client = connect()
    client.send(wire.pingreq() * 3)
    for _ in range(3):
        client.expect(b"\xd0\x00")
    client.expect_no_message()


@pytest.mark.clause("3.1.1", "MQTT-3.14.4-2")
def test_what_follows_disconnect_is_ignored(connect: Connect, unique: Unique) -> None:
    watcher, leaver = connect(), connect()
    watcher.subscribe(unique.topic())
    leaver.send(wire.disconnect() + wire.publish(unique.topic(), b"late") + wire.pingreq())
    leaver.expect_closed()
    watcher.expect_no_message()


@pytest.mark.clause("3.1.1", "MQTT-7.0.0-2", "MQTT-7.1.1-1")
def test_plain_tcp_carries_any_split_of_the_stream_in_order(connect: Connect, unique: Unique) -> None:
    subscriber, publisher = connect(), connect()
    subscriber.subscribe(unique.topic(), qos=1)
    stream = b"".join(
        wire.publish(unique.topic(), bytes([number]) * number, qos=number % 2, packet_id=number if number % 2 else None)
        for number in range(1, 60)
    )
    for start in range(0, len(stream), 7):
        publisher.send(stream[start : start + 7])
    got = subscriber.messages(59)
    for qos in (0, 1):
        expected = [bytes([number]) * number for number in range(1, 60) if number % 2 == qos]
        assert [message.payload for message in got if message.qos == qos] == expected
