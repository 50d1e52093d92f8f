"""MQTT 5.0 sections 3.1.2.11.5 and 3.3.2.3.4: topic aliases in both directions."""

import pytest

import wire
from broker_process import MOSQUITTO, Unique, under_test
from v5_client import KEEP, Connect5, expect_dropped, resolved
from wire import P, Publish, WireClient


def alias(number: int) -> list[wire.Property]:
    return [(P.TOPIC_ALIAS, number)]


def maximum(client: WireClient) -> int:
    """The Topic Alias Maximum that the broker announced."""
    assert client.connack is not None
    return client.connack.prop(P.TOPIC_ALIAS_MAXIMUM) or 0


@pytest.mark.clause("5.0", "MQTT-3.3.2-12", "MQTT-3.2.2-17")
def test_every_alias_up_to_the_announced_maximum_is_accepted(connect5: Connect5, unique: Unique) -> None:
    client = connect5()
    client.subscribe(unique.topic("#"))
    numbers = range(1, maximum(client) + 1)
    assert len(numbers) > 0, "expected the broker to accept aliases"
    for number in numbers:
        client.send_publish(unique.topic(str(number)), b"named", properties=alias(number))
    for number in reversed(numbers):
        client.send_publish("", b"by alias", properties=alias(number))
    named = [message.topic for message in client.messages(len(numbers))]
    by_alias = [message.topic for message in client.messages(len(numbers))]
    assert named == [unique.topic(str(number)) for number in numbers]
    assert by_alias == named[::-1]


@pytest.mark.clause("5.0", "MQTT-3.3.2-12")
def test_an_alias_can_be_given_to_another_topic(connect5: Connect5, unique: Unique) -> None:
    client = connect5()
    client.subscribe(unique.topic("#"))
    for topic in (unique.topic("one"), unique.topic("two")):
        client.publish(topic, b"named", properties=alias(1))
        client.publish("", b"by alias", qos=1, properties=alias(1))
        client.expect(Publish, topic=topic, payload=b"named")
        client.expect(Publish, topic=topic, payload=b"by alias")


@pytest.mark.clause("5.0", "MQTT-3.3.2-9", "MQTT-3.2.2-17")
def test_an_alias_above_the_announced_maximum_is_refused(connect5: Connect5, unique: Unique) -> None:
    client = connect5()
    client.send(wire.publish(unique.topic(), b"1", version=5, properties=alias(maximum(client) + 1)))
    expect_dropped(client, 0x94)


@pytest.mark.clause("5.0", "MQTT-3.3.2-8")
@pytest.mark.parametrize("topic", ["t", ""])
def test_alias_0_is_refused(connect5: Connect5, topic: str) -> None:
    client = connect5()
    client.send(wire.publish(topic, b"1", version=5, properties=alias(0)))
    expect_dropped(client, 0x94, 0x82)


@pytest.mark.clause("5.0", "MQTT-3.3.2-8", "MQTT-4.13.1-1")
def test_an_alias_that_was_never_given_a_topic_is_a_protocol_error(connect5: Connect5) -> None:
    client = connect5()
    client.send(wire.publish("", b"1", version=5, properties=alias(1)))
    expect_dropped(client, 0x82)


@pytest.mark.clause("5.0", "MQTT-3.3.2-7")
def test_a_publishers_aliases_do_not_outlive_the_connection(connect5: Connect5, unique: Unique) -> None:
    client = connect5(unique.client(), properties=KEEP)
    client.publish(unique.topic(), b"1", properties=alias(1))
    client.disconnect()
    again = connect5(unique.client(), clean=False, properties=KEEP)
    assert again.connack is not None
    assert again.connack.session_present
    again.send(wire.publish("", b"2", version=5, properties=alias(1)))
    expect_dropped(again, 0x82)


@pytest.mark.clause("5.0", "MQTT-3.3.2-7", "MQTT-3.1.2-27")
def test_a_publishers_alias_means_nothing_to_subscribers(connect5: Connect5, unique: Unique) -> None:
    publisher, plain, other = connect5(), connect5(), connect5(properties=[(P.TOPIC_ALIAS_MAXIMUM, 10)])
    for subscriber in (plain, other):
        subscriber.subscribe(unique.topic("a"))
    publisher.publish(unique.topic("a"), b"1", properties=alias(5))
    publisher.publish("", b"2", properties=alias(5))
    for message in plain.messages(2):
        assert message.topic == unique.topic("a")
        assert message.prop(P.TOPIC_ALIAS) is None
    assert resolved(other.messages(2)) == [unique.topic("a")] * 2


@pytest.mark.clause("5.0", "MQTT-3.1.2-27", "MQTT-3.3.2-11")
@pytest.mark.parametrize("properties", [[], [(P.TOPIC_ALIAS_MAXIMUM, 0)]], ids=["absent", "0"])
def test_a_client_without_an_alias_maximum_gets_no_aliases(
    connect5: Connect5, unique: Unique, properties: list[wire.Property]
) -> None:
    subscriber, publisher = connect5(properties=properties), connect5()
    subscriber.subscribe(unique.topic("#"), qos=1)
    for number in range(6):
        publisher.publish(unique.topic(str(number % 2)), b"1", qos=number % 2)
    for number, message in enumerate(subscriber.messages(6)):
        assert message.topic == unique.topic(str(number % 2))
        assert message.prop(P.TOPIC_ALIAS) is None


@pytest.mark.clause("5.0", "MQTT-3.1.2-26", "MQTT-3.3.2-11", "MQTT-3.3.2-8")
@pytest.mark.parametrize("limit", [1, 2, 10, 65535])
def test_aliases_sent_stay_within_the_clients_maximum_and_name_the_right_topics(
    connect5: Connect5, unique: Unique, limit: int
) -> None:
    subscriber, publisher = connect5(properties=[(P.TOPIC_ALIAS_MAXIMUM, limit)]), connect5()
    subscriber.subscribe(unique.topic("#"), qos=1)
    sent = [unique.topic(str(number % 5)) for number in range(25)]
    for number, topic in enumerate(sent):
        publisher.publish(topic, str(number), qos=number % 2)
    messages = subscriber.messages(25)
    used = {message.prop(P.TOPIC_ALIAS) for message in messages} - {None}
    assert used <= set(range(1, limit + 1))
    assert resolved(messages) == sent
    if under_test() != MOSQUITTO:  # which never uses aliases itself
        assert any(not message.topic for message in messages), "expected repeated topics to travel as aliases"


@pytest.mark.clause("5.0", "MQTT-3.3.2-7")
def test_aliases_sent_to_a_client_do_not_outlive_the_connection(connect5: Connect5, unique: Unique) -> None:
    properties = [*KEEP, (P.TOPIC_ALIAS_MAXIMUM, 5)]
    publisher = connect5()
    for connection in range(2):
        subscriber = connect5(unique.client(), clean=connection == 0, properties=properties)
        subscriber.subscribe(unique.topic("#"))
        for _ in range(3):
            publisher.publish(unique.topic("a"), b"1")
        first, *rest = subscriber.messages(3)
        assert first.topic == unique.topic("a")
        assert resolved([first, *rest]) == [unique.topic("a")] * 3
        subscriber.disconnect()


@pytest.mark.clause("5.0", "MQTT-3.3.2-7", "MQTT-4.4.0-1")
def test_a_resent_message_names_its_topic_again(connect5: Connect5, unique: Unique) -> None:
    """The alias it first went out with is unknown on the new connection."""
    properties = [*KEEP, (P.TOPIC_ALIAS_MAXIMUM, 5)]
    publisher, subscriber = connect5(), connect5(unique.client(), properties=properties)
    subscriber.subscribe(unique.topic("a"), qos=1)
    for number in range(3):
        publisher.publish(unique.topic("a"), str(number), qos=1)
    assert resolved(subscriber.messages(3, ack=False)) == [unique.topic("a")] * 3
    subscriber.cut()
    again = connect5(unique.client(), clean=False, properties=properties)
    messages = again.messages(3)
    assert resolved(messages) == [unique.topic("a")] * 3
    assert [message.payload for message in messages] == [b"0", b"1", b"2"]
