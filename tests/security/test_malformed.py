"""Bytes made to break a parser: properties that lie about their length, topics without end, names with wildcards."""

import random
from collections.abc import Callable

import pytest

import wire
from broker_process import BrokerProcess, Unique
from guarded import Guarded
from wire import ConnAck, P, Publish, WireClient, binary, frame, text, u16, varint

ALIVE = 5


def still_works(broker: BrokerProcess, unique: Unique) -> None:
    with WireClient(broker.port, ALIVE) as client:
        client.connect(unique.client("alive"))
        client.subscribe(unique.topic())
        client.publish(unique.topic(), b"1")
        client.expect(Publish, payload=b"1")


def connect_body(properties: bytes) -> bytes:
    return text("MQTT") + b"\x05\x02\x00\x3c" + properties + text("c")


LIES = {
    "length beyond the packet": varint(200) + b"\x26",
    "length of four bytes": b"\xff\xff\xff\x7f",
    "length of five bytes": b"\xff\xff\xff\xff\x01",
    "user property cut short": varint(3) + b"\x26\x00\x05",
    "user property with half a pair": varint(6) + b"\x26" + text("abc"),
    "binary that is longer than it is": varint(5) + b"\x16\xff\xff\x00\x00",
    "same property twice": varint(10) + b"\x11\x00\x00\x00\x01\x11\x00\x00\x00\x02",
    "unknown identifier": varint(2) + b"\x7e\x00",
    "identifier of four bytes": varint(5) + b"\xff\xff\xff\x7f\x00",
    "receive maximum of 0": varint(3) + b"\x21\x00\x00",
    "text that is no UTF-8": varint(8) + b"\x26\x00\x02\xff\xfe" + text("v"),
    "text with a zero": varint(7) + b"\x26\x00\x01\x00" + text("v"),
    "authentication data without a method": varint(4) + b"\x16" + binary(b"x"),
}


@pytest.mark.parametrize("name", LIES)
@pytest.mark.parametrize("packet", ["CONNECT", "PUBLISH", "SUBSCRIBE", "DISCONNECT", "AUTH", "will"])
def test_properties_that_lie_end_the_connection_and_nothing_else(
    broker: BrokerProcess, unique: Unique, name: str, packet: str
) -> None:
    lie = LIES[name]
    with WireClient(broker.port, 5) as client:
        if packet == "CONNECT":
            client.send(frame(0x10, connect_body(lie)))
        elif packet == "will":
            body = text("MQTT") + b"\x05\x06\x00\x3c\x00" + text("c") + lie + text("t") + binary(b"x")
            client.send(frame(0x10, body))
        else:
            client.connect(unique.client("c"))
            bodies = {
                "PUBLISH": (0x32, text("t") + u16(1) + lie + b"payload"),
                "SUBSCRIBE": (0x82, u16(1) + lie + text("t") + b"\x00"),
                "DISCONNECT": (0xE0, b"\x00" + lie),
                "AUTH": (0xF0, b"\x18" + lie),
            }
            client.send(frame(*bodies[packet]))
        for answer in client.drain_until_closed():
            assert getattr(answer, "code", getattr(answer, "reason", 0x80)) >= 0x80
    still_works(broker, unique)


def test_random_damage_to_good_packets_never_ends_the_broker(broker: BrokerProcess, unique: Unique) -> None:
    chance = random.Random(20171118)
    properties = [(P.USER_PROPERTY, ("key", "value")), (P.MESSAGE_EXPIRY, 60), (P.CONTENT_TYPE, "a/b")]
    good = [
        wire.publish("t", b"x" * 40, qos=1, packet_id=1, version=5, properties=properties),
        wire.subscribe(1, [("a/#", 1), ("b/+", 2)], version=5, properties=[(P.SUBSCRIPTION_ID, 7)]),
        wire.connect("c", version=5, will=wire.Will("w", b"x", properties=properties), username="u", password=b"p"),
    ]
    for number in range(300):
        with WireClient(broker.port, 5) as client:
            packet = bytearray(chance.choice(good))
            if packet[0] != 0x10:
                client.connect(unique.client(f"d{number % 7}"))
            for _ in range(chance.randint(1, 4)):
                packet[chance.randrange(1, len(packet))] = chance.randrange(256)
            client.send(bytes(packet))
    still_works(broker, unique)
    assert "Traceback" not in broker.output


@pytest.mark.parametrize("levels", [129, 10_000, 65_000])
@pytest.mark.parametrize(
    "packet", ["PUBLISH", "retained PUBLISH", "SUBSCRIBE", "shared SUBSCRIBE", "UNSUBSCRIBE", "will"]
)
def test_very_deep_topics_are_refused_and_harm_nobody(
    broker: BrokerProcess, unique: Unique, levels: int, packet: str
) -> None:
    """CVE-2019-11779: a subscription of slashes overran the stack of a recursive broker."""
    deep = "/" * (levels - 1)
    with WireClient(broker.port, 5) as client:
        if packet == "will":
            client.send(wire.connect(unique.client(), version=5, will=wire.Will(deep, b"x")))
            assert client.expect(ConnAck).code == 0x90
        else:
            client.connect(unique.client())
            if "PUBLISH" in packet:
                client.send(wire.publish(deep, b"x", qos=1, packet_id=1, retain="retained" in packet, version=5))
                client.expect_disconnect(0x90)
            elif packet == "UNSUBSCRIBE":
                client.unsubscribe(deep)
            else:
                share = "$share/g/" if "shared" in packet else ""
                wanted = f"{share}{deep}"[:65535]
                assert client.subscribe(wanted, check=False).codes == [0x8F]
    still_works(broker, unique)


def test_a_topic_of_the_most_levels_allowed_works_with_wildcards(broker: BrokerProcess, unique: Unique) -> None:
    topic = unique.topic("/".join("x" * 1 for _ in range(126)))
    assert topic.count("/") == 126
    with WireClient(broker.port, 5) as client:
        client.connect(unique.client())
        client.subscribe("/".join(["+"] * 127), f"{unique}/#")
        client.publish(topic, b"1", qos=1)
        client.expect(Publish, topic=topic)


NAMES = ["+", "#", "ann/secret", "+/+", "a+", "%u", "ann#"]


@pytest.mark.parametrize("name", NAMES)
def test_a_client_id_with_wildcards_does_not_widen_a_pattern(guarded: Callable[..., Guarded], name: str) -> None:
    """CVE-2017-7650: with the client id `#` a pattern meant to give each client its own topics gave it all."""
    site = guarded("user owner\ntopic readwrite #\npattern read home/%c/in\npattern readwrite user/%u/#\n")
    spy = site.enter("guest", name)
    spy.subscribe("#", "home/+/in", f"home/{name}/in" if name not in ("a+", "ann#") else "home/#", check=False)
    writer = site.enter("owner")
    for topic in ("home/ann/in", "home/ann/secret/in", "home/a/in", "user/ann/x"):
        writer.publish(topic, b"secret", qos=1)
        assert spy.publish(topic, b"x", qos=1, check=False).reason == 0x87  # type: ignore[union-attr]
    spy.expect_no_message()
    writer.publish("user/guest/x", b"mine", qos=1)
    spy.expect(Publish, topic="user/guest/x")
