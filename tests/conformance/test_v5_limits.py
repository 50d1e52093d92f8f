"""MQTT 5.0 section 3.2.2.3: what a broker with lower capabilities announces, and how it holds clients to it."""

from collections.abc import Iterator

import pytest

import wire
from broker_process import BrokerProcess, Unique
from v5_client import Connect5, Open5, broker_with, expect_dropped, expect_refused
from wire import ConnAck, P, Publish, SubAck, Will, WireClient

PACKET_SIZE = 5000
RECEIVE_MAXIMUM = 4


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    yield from broker_with(
        tmp_path_factory.mktemp("limited"),
        limits__max_qos=1,
        limits__max_packet_size=PACKET_SIZE,
        limits__topic_alias_maximum=0,
        limits__receive_maximum=RECEIVE_MAXIMUM,
        limits__keep_alive_max=40,
        limits__session_expiry_max=50,
        limits__max_client_id_length=30,
        retainer__enable=False,
        response_information="answers/",
    )


@pytest.fixture
def enter(limited: BrokerProcess, connect5: Connect5) -> Connect5:
    """A client connected to the limited broker."""

    def start(client_id: str | None = None, **fields: object) -> WireClient:
        return connect5(client_id, port=limited.port, **fields)

    return start


def told(client: WireClient) -> ConnAck:
    assert client.connack is not None
    return client.connack


@pytest.mark.clause("5.0", "MQTT-3.2.2-9")
def test_connack_announces_every_capability_that_is_not_the_default(enter: Connect5) -> None:
    connack = told(enter(keep_alive=60, properties=[(P.SESSION_EXPIRY, 100)]))
    assert connack.prop(P.MAXIMUM_QOS) == 1
    assert connack.prop(P.MAXIMUM_PACKET_SIZE) == PACKET_SIZE
    assert connack.prop(P.RECEIVE_MAXIMUM) == RECEIVE_MAXIMUM
    assert connack.prop(P.RETAIN_AVAILABLE) == 0
    assert not connack.prop(P.TOPIC_ALIAS_MAXIMUM)
    assert connack.prop(P.SERVER_KEEP_ALIVE) == 40
    assert connack.prop(P.SESSION_EXPIRY) == 50


@pytest.mark.clause("5.0", "MQTT-3.2.2-9", "MQTT-3.2.2-22")
def test_connack_of_a_broker_without_limits_announces_none(connect5: Connect5) -> None:
    connack = told(connect5(keep_alive=60, properties=[(P.SESSION_EXPIRY, 100)]))
    assert connack.prop(P.MAXIMUM_QOS) is None
    assert connack.prop(P.RETAIN_AVAILABLE) in (None, 1)
    assert connack.prop(P.SERVER_KEEP_ALIVE) is None
    assert connack.prop(P.SESSION_EXPIRY) in (None, 100)
    for available in (P.WILDCARD_AVAILABLE, P.SUBSCRIPTION_ID_AVAILABLE, P.SHARED_AVAILABLE):
        assert connack.prop(available) in (None, 1)


@pytest.mark.clause("5.0", "MQTT-3.2.2-10", "MQTT-3.8.4-7", "MQTT-3.8.4-8")
def test_subscribing_above_the_maximum_qos_is_granted_at_the_maximum(enter: Connect5, unique: Unique) -> None:
    client = enter()
    client.send(wire.subscribe(1, [(unique.topic(), 2), (unique.topic("one"), 1)], version=5))
    client.expect(SubAck, packet_id=1, codes=[1, 1])
    client.publish(unique.topic(), b"1", qos=1)
    client.expect(Publish, payload=b"1", qos=1)


@pytest.mark.clause("5.0", "MQTT-3.2.2-11")
def test_publishing_above_the_maximum_qos_is_refused(enter: Connect5, unique: Unique) -> None:
    client = enter()
    client.send(wire.publish(unique.topic(), b"1", qos=2, packet_id=1, version=5))
    expect_dropped(client, 0x9B)


@pytest.mark.clause("5.0", "MQTT-3.2.2-12", "MQTT-3.2.2-7")
def test_a_will_above_the_maximum_qos_is_refused(open5: Open5, limited: BrokerProcess, unique: Unique) -> None:
    client = open5(port=limited.port)
    client.send(wire.connect(unique.client(), version=5, will=Will("w", qos=2)))
    expect_refused(client, 0x9B)


@pytest.mark.clause("5.0", "MQTT-3.2.2-13", "MQTT-3.2.2-7")
def test_a_retained_will_without_retained_support_is_refused(
    open5: Open5, limited: BrokerProcess, unique: Unique
) -> None:
    client = open5(port=limited.port)
    client.send(wire.connect(unique.client(), version=5, will=Will("w", qos=1, retain=True)))
    expect_refused(client, 0x9A)


@pytest.mark.clause("5.0", "MQTT-3.2.2-14")
@pytest.mark.parametrize("qos", [0, 1])
def test_a_retained_publish_without_retained_support_is_refused(enter: Connect5, unique: Unique, qos: int) -> None:
    watcher, client = enter(), enter()
    watcher.subscribe(unique.topic())
    client.send(wire.publish(unique.topic(), b"1", qos=qos, packet_id=1 if qos else None, retain=True, version=5))
    expect_dropped(client, 0x9A)
    watcher.expect_no_message()


@pytest.mark.clause("5.0", "MQTT-3.2.2-15")
def test_a_packet_above_the_brokers_maximum_is_refused(enter: Connect5, unique: Unique) -> None:
    client = enter()
    client.subscribe(unique.topic())
    overhead = len(wire.publish(unique.topic(), b"x" * 1000, version=5)) - 1000
    client.send(wire.publish(unique.topic(), b"x" * (PACKET_SIZE - overhead), version=5))
    assert len(client.expect(Publish).raw) == PACKET_SIZE
    client.send(wire.publish(unique.topic(), b"x" * (PACKET_SIZE - overhead + 1), version=5))
    expect_dropped(client, 0x95)


@pytest.mark.clause("5.0", "MQTT-3.2.2-15")
def test_a_packet_that_only_announces_too_many_bytes_is_refused_at_once(enter: Connect5) -> None:
    client = enter()
    client.send(b"\x30\xff\xff\xff\x7f")
    expect_dropped(client, 0x95)


@pytest.mark.clause("5.0", "MQTT-3.2.2-18", "MQTT-3.3.2-9")
def test_any_alias_is_refused_when_the_broker_takes_none(enter: Connect5, unique: Unique) -> None:
    client = enter()
    client.send(wire.publish(unique.topic(), b"1", version=5, properties=[(P.TOPIC_ALIAS, 1)]))
    expect_dropped(client, 0x94)


@pytest.mark.clause("5.0", "MQTT-3.1.3-8", "MQTT-3.2.2-7")
def test_a_client_id_that_is_too_long_is_refused(open5: Open5, limited: BrokerProcess, enter: Connect5) -> None:
    enter("x" * 30).ping()
    client = open5(port=limited.port)
    client.send(wire.connect("x" * 31, version=5))
    expect_refused(client, 0x85)


@pytest.mark.clause("5.0", "MQTT-3.1.2-28")
@pytest.mark.parametrize("asked", [[], [(P.REQUEST_RESPONSE_INFO, 0)]], ids=["not asked", "asked for none"])
def test_response_information_is_not_sent_unasked(enter: Connect5, asked: list[wire.Property]) -> None:
    assert told(enter(properties=asked)).prop(P.RESPONSE_INFO) is None


@pytest.mark.clause("5.0", "MQTT-3.1.2-28")
def test_response_information_is_sent_when_asked_for(enter: Connect5) -> None:
    answer = told(enter(properties=[(P.REQUEST_RESPONSE_INFO, 1)])).prop(P.RESPONSE_INFO)
    assert answer is not None
    assert answer.startswith("answers/")


@pytest.mark.clause("5.0", "MQTT-3.2.2-19", "MQTT-3.2.2-20", "MQTT-3.1.2-24")
@pytest.mark.parametrize("size", [5, 8, 20, 40])
def test_a_refusing_connack_fits_the_client(open5: Open5, limited: BrokerProcess, size: int) -> None:
    """Whatever it would like to explain: reason strings and user properties give way."""
    client = open5(port=limited.port)
    client.send(wire.connect("x" * 31, version=5, properties=[(P.MAXIMUM_PACKET_SIZE, size)]))
    answer = expect_refused(client, 0x85)
    assert answer is not None
    assert len(answer.raw) <= size


@pytest.mark.clause("5.0", "MQTT-3.1.2-24")
@pytest.mark.parametrize("size", [1, 4, 5, 10])
def test_a_client_that_cannot_be_told_the_limits_is_not_let_in(
    open5: Open5, limited: BrokerProcess, unique: Unique, size: int
) -> None:
    """All that CONNACK has to announce takes more than 10 bytes; a bare refusal takes 5."""
    client = open5(port=limited.port)
    client.send(wire.connect(unique.client(), version=5, properties=[(P.MAXIMUM_PACKET_SIZE, size)]))
    for packet in client.drain_until_closed():
        assert len(packet.raw) <= size
        assert isinstance(packet, ConnAck)
        assert packet.code >= 0x80
