"""MQTT 5.0 sections 3.1.2.5 to 3.1.2.7 and 3.1.3.2: when a will is published, when not, and how."""

import pytest

import wire
from broker_process import Server, Unique
from v5_client import KEEP, Connect5
from wire import P, Publish, Will, WireClient


def watcher_of(connect5: Connect5, topic: str) -> WireClient:
    watcher = connect5()
    watcher.subscribe(topic, qos=2, retain_as_published=True)
    return watcher


def delayed(topic: str, delay: int) -> Will:
    return Will(topic, b"dead", properties=[(P.WILL_DELAY, delay)])


def end_by_cut(client: WireClient) -> None:
    client.cut()


def end_by_reset(client: WireClient) -> None:
    client.reset()


def end_with_will(client: WireClient) -> None:
    client.disconnect(0x04)


def end_with_error(client: WireClient) -> None:
    client.disconnect(0x80)


def end_by_protocol_error(client: WireClient) -> None:
    client.send(wire.subscribe(1, [], version=5))


def end_by_malformed_packet(client: WireClient) -> None:
    client.send(wire.pubrel(1, first_byte=0x60))


ENDINGS = [end_by_cut, end_by_reset, end_with_will, end_with_error, end_by_protocol_error, end_by_malformed_packet]


@pytest.mark.clause("5.0", "MQTT-3.1.2-7", "MQTT-3.1.2-8")
@pytest.mark.parametrize("end", ENDINGS, ids=lambda end: end.__name__)
def test_the_will_is_published_on_every_end_but_a_normal_one(connect5: Connect5, unique: Unique, end: object) -> None:
    topic = unique.topic()
    watcher = watcher_of(connect5, topic)
    client = connect5(will=Will(topic, b"dead", qos=1))
    assert callable(end)
    end(client)
    watcher.expect(Publish, topic=topic, payload=b"dead", qos=1, retain=False)


@pytest.mark.clause("5.0", "MQTT-3.1.2-8", "MQTT-3.1.4-3")
def test_the_will_is_published_when_another_client_takes_the_id(connect5: Connect5, unique: Unique) -> None:
    topic = unique.topic()
    watcher = watcher_of(connect5, topic)
    connect5(unique.client(), properties=KEEP, will=Will(topic, b"dead"))
    connect5(unique.client(), clean=False, properties=KEEP)
    watcher.expect(Publish, topic=topic, payload=b"dead")


@pytest.mark.clause("5.0", "MQTT-3.14.4-3", "MQTT-3.1.2-8", "MQTT-3.1.2-10")
@pytest.mark.parametrize("reason", [None, 0x00], ids=["without a reason", "0x00"])
def test_a_normal_disconnect_discards_the_will(connect5: Connect5, unique: Unique, reason: int | None) -> None:
    topic = unique.topic()
    watcher = watcher_of(connect5, topic)
    client = connect5(unique.client(), properties=KEEP, will=Will(topic, b"dead"))
    client.disconnect(reason)
    watcher.expect_no_message()
    # Nor does it come back when the session goes on and its connection is lost.
    again = connect5(unique.client(), clean=False, properties=KEEP)
    again.disconnect(0x04)
    watcher.expect_no_message()


@pytest.mark.clause("5.0", "MQTT-3.1.2-10")
def test_a_published_will_is_gone(connect5: Connect5, unique: Unique) -> None:
    topic = unique.topic()
    watcher = watcher_of(connect5, topic)
    connect5(unique.client(), properties=KEEP, will=Will(topic, b"dead")).cut()
    watcher.expect(Publish, payload=b"dead")
    connect5(unique.client(), clean=False, properties=KEEP).disconnect(0x04)
    watcher.expect_no_message()


@pytest.mark.clause("5.0", "MQTT-3.1.2-14")
def test_without_will_retain_the_will_is_an_ordinary_message(connect5: Connect5, unique: Unique) -> None:
    topic = unique.topic()
    watcher = watcher_of(connect5, topic)
    watcher.publish(topic, b"alive", retain=True)
    watcher.expect(Publish, payload=b"alive", retain=True)
    connect5(will=Will(topic, b"dead", retain=False)).cut()
    watcher.expect(Publish, payload=b"dead", retain=False)
    later = connect5()
    later.subscribe(topic)
    later.expect(Publish, payload=b"alive", retain=True)


@pytest.mark.clause("5.0", "MQTT-3.1.2-15")
def test_with_will_retain_the_will_is_retained(connect5: Connect5, unique: Unique) -> None:
    topic = unique.topic()
    watcher = watcher_of(connect5, topic)
    connect5(will=Will(topic, b"dead", qos=1, retain=True)).cut()
    watcher.expect(Publish, payload=b"dead", retain=True)
    later = connect5()
    later.subscribe(topic, qos=1)
    later.expect(Publish, topic=topic, payload=b"dead", qos=1, retain=True)


@pytest.mark.clause("5.0", "MQTT-3.1.3-10", "MQTT-3.1.2-9")
def test_the_properties_of_a_will_arrive_unaltered_and_in_order(connect5: Connect5, unique: Unique) -> None:
    pairs = [("b", "2"), ("a", "1"), ("b", "2"), ("", ""), ("é", "ü")]
    properties = [
        (P.PAYLOAD_FORMAT, 1),
        (P.CONTENT_TYPE, "text/plain"),
        (P.RESPONSE_TOPIC, "answer/here"),
        (P.CORRELATION_DATA, b"\x00\xff\x00"),
        *((P.USER_PROPERTY, pair) for pair in pairs),
    ]
    topic = unique.topic()
    watcher = watcher_of(connect5, topic)
    connect5(will=Will(topic, b"dead", properties=properties)).cut()
    message = watcher.expect(Publish, payload=b"dead")
    assert message.props(P.USER_PROPERTY) == pairs
    assert sorted(message.properties, key=str) == sorted(properties, key=str)


# Will delay


@pytest.mark.told_clock
@pytest.mark.clause("5.0", "MQTT-3.1.2-8", "MQTT-3.1.2-7")
def test_a_delayed_will_waits_for_its_delay(connect5: Connect5, unique: Unique, server: Server) -> None:
    topic = unique.topic()
    watcher = watcher_of(connect5, topic)
    client = connect5(properties=KEEP, will=delayed(topic, 1))
    since = server.now()
    client.cut()
    watcher.expect(Publish, payload=b"dead")
    waited = server.now() - since
    assert waited >= 0.99, f"expected the will after its delay of 1 s, got it after {waited:.2f} s"


@pytest.mark.told_clock
@pytest.mark.clause("5.0", "MQTT-3.1.2-8")
@pytest.mark.parametrize("expiry", [0, 1])
def test_a_delayed_will_does_not_wait_longer_than_the_session_lives(
    connect5: Connect5, unique: Unique, expiry: int
) -> None:
    topic = unique.topic()
    watcher = watcher_of(connect5, topic)
    connect5(properties=[(P.SESSION_EXPIRY, expiry)], will=delayed(topic, 60)).cut()
    watcher.expect(Publish, payload=b"dead")


@pytest.mark.clause("5.0", "MQTT-3.1.2-8")
def test_a_delayed_will_is_published_when_clean_start_ends_the_session(connect5: Connect5, unique: Unique) -> None:
    topic = unique.topic()
    watcher = watcher_of(connect5, topic)
    connect5(unique.client(), properties=KEEP, will=delayed(topic, 60)).disconnect(0x04)
    watcher.expect_no_message()
    connect5(unique.client(), clean=True)
    watcher.expect(Publish, payload=b"dead")


@pytest.mark.told_clock
@pytest.mark.clause("5.0", "MQTT-3.1.3-9", "MQTT-3.1.2-8")
def test_a_client_that_is_back_in_time_calls_its_will_off(connect5: Connect5, unique: Unique) -> None:
    topic = unique.topic()
    watcher = watcher_of(connect5, topic)
    connect5(unique.client(), properties=KEEP, will=delayed(topic, 1)).disconnect(0x04)
    connect5(unique.client(), clean=False, properties=KEEP)
    watcher.expect_nothing(1.5)


@pytest.mark.told_clock
@pytest.mark.clause("5.0", "MQTT-3.1.3-9")
def test_taking_over_the_session_calls_a_delayed_will_off(connect5: Connect5, unique: Unique) -> None:
    topic = unique.topic()
    watcher = watcher_of(connect5, topic)
    connect5(unique.client(), properties=KEEP, will=delayed(topic, 1))
    connect5(unique.client(), clean=False, properties=KEEP)
    watcher.expect_nothing(1.5)
