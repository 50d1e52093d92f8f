"""3.1.1: text fields. Each place where text may stand is tried with each way of getting UTF-8 wrong."""

from collections.abc import Callable

import pytest

from wire import Publish, Will, WireClient, connect, publish, subscribe, unsubscribe

Connect = Callable[..., WireClient]
Place = Callable[[bytes], bytes]


def in_client_id(bad: bytes) -> bytes:
    return connect(bad)


def in_will_topic(bad: bytes) -> bytes:
    return connect("bad", will=Will(bad, b"x"))


def in_user_name(bad: bytes) -> bytes:
    return connect("bad", username=bad)


def in_topic_name(bad: bytes) -> bytes:
    return publish(bad, b"x")


def in_subscribe(bad: bytes) -> bytes:
    return subscribe(1, [(bad, 0)])


def in_unsubscribe(bad: bytes) -> bytes:
    return unsubscribe(1, [bad])


ILL_FORMED = [
    pytest.param(b"a\xc3", id="cut short"),
    pytest.param(b"\x80a", id="stray continuation"),
    pytest.param(b"\xc0\xaf", id="overlong"),
    pytest.param(b"\xed\xa0\x80", id="surrogate"),
    pytest.param(b"\xed\xa0\xbd\xed\xb8\x80", id="surrogate pair"),
    pytest.param(b"\xf4\x90\x80\x80", id="above U+10FFFF"),
    pytest.param(b"\xff", id="never a UTF-8 byte"),
]
NULL = [pytest.param(b"a\0b", id="null inside"), pytest.param(b"\0", id="null alone")]

IN_CONNECT = [
    pytest.param(in_client_id, marks=pytest.mark.clause("3.1.1", "MQTT-3.1.3-4")),
    pytest.param(in_will_topic, marks=pytest.mark.clause("3.1.1", "MQTT-3.1.3-10")),
    pytest.param(in_user_name, marks=pytest.mark.clause("3.1.1", "MQTT-3.1.3-11")),
]
AFTER_CONNECT = [
    pytest.param(in_topic_name, marks=pytest.mark.clause("3.1.1", "MQTT-3.3.2-1")),
    pytest.param(in_subscribe, marks=pytest.mark.clause("3.1.1", "MQTT-3.8.3-1")),
    pytest.param(in_unsubscribe, marks=pytest.mark.clause("3.1.1", "MQTT-3.10.3-1")),
]


@pytest.mark.clause("3.1.1", "MQTT-1.5.3-1", "MQTT-3.1.4-1")
@pytest.mark.parametrize("bad", ILL_FORMED)
@pytest.mark.parametrize("place", IN_CONNECT)
def test_ill_formed_text_in_connect_closes_without_connack(place: Place, bad: bytes, open_client: Connect) -> None:
    client = open_client()
    client.send(place(bad))
    client.expect_closed()


@pytest.mark.clause("3.1.1", "MQTT-1.5.3-2")
@pytest.mark.parametrize("bad", NULL)
@pytest.mark.parametrize("place", [in_client_id, in_will_topic, in_user_name])
def test_null_in_connect_closes_without_connack(place: Place, bad: bytes, open_client: Connect) -> None:
    client = open_client()
    client.send(place(bad))
    client.expect_closed()


@pytest.mark.clause("3.1.1", "MQTT-1.5.3-1", "MQTT-4.8.0-1")
@pytest.mark.parametrize("bad", ILL_FORMED)
@pytest.mark.parametrize("place", AFTER_CONNECT)
def test_ill_formed_text_closes_the_connection(place: Place, bad: bytes, connect: Connect) -> None:
    client = connect()
    client.send(place(bad))
    client.expect_closed()


@pytest.mark.clause("3.1.1", "MQTT-1.5.3-2", "MQTT-4.7.3-2")
@pytest.mark.parametrize("bad", NULL)
@pytest.mark.parametrize("place", [in_topic_name, in_subscribe, in_unsubscribe])
def test_null_in_names_and_filters_closes_the_connection(place: Place, bad: bytes, connect: Connect) -> None:
    client = connect()
    client.send(place(bad))
    client.expect_closed()


@pytest.mark.clause("3.1.1", "MQTT-1.5.3-3")
def test_byte_order_mark_is_a_character_of_the_topic(connect: Connect, unique: object) -> None:
    marked, plain = f"\ufeff{unique}", f"{unique}"
    with_mark, without = connect(), connect()
    with_mark.subscribe(marked)
    without.subscribe(plain)
    connect().publish(marked, b"1")
    message = with_mark.expect(Publish, topic=marked, payload=b"1")
    assert message.raw[4:7] == b"\xef\xbb\xbf"
    without.expect_no_message()


@pytest.mark.clause("3.1.1", "MQTT-3.3.2-1", "MQTT-4.7.3-4")
@pytest.mark.parametrize("name", ["é", "日本語", "😀/漢字", "a b", "ÅA\u030a"])
def test_any_well_formed_text_is_passed_on_byte_for_byte(name: str, connect: Connect, unique: object) -> None:
    topic = f"{unique}/{name}"
    subscriber = connect()
    subscriber.subscribe(topic)
    connect().publish(topic, b"1")
    message = subscriber.expect(Publish)
    assert message.raw[4 : 4 + len(topic.encode())] == topic.encode()
