"""MQTT 5.0 sections 3.1.2.4, 3.1.2.11.2, 3.2.2.1, 4.1, 4.4 and 4.5: sessions and what is kept in them."""

import pytest

import wire
from broker_process import Server, Unique
from v5_client import KEEP, Connect5, Open5, expect_dropped, expect_refused
from wire import ConnAck, P, PubComp, Publish, PubRec, PubRel, WireClient


def subscribed_and_gone(connect5: Connect5, unique: Unique, **fields: object) -> None:
    """Leave a session with one QoS 2 subscription behind."""
    client = connect5(unique.client(), properties=KEEP, **fields)
    client.subscribe(unique.topic(), qos=2)
    client.disconnect()


def session_present(client: WireClient) -> bool:
    assert client.connack is not None
    return client.connack.session_present


@pytest.mark.clause("5.0", "MQTT-3.1.2-4", "MQTT-3.1.4-4", "MQTT-3.2.2-2", "MQTT-4.1.0-2")
def test_clean_start_discards_the_session(connect5: Connect5, unique: Unique) -> None:
    subscribed_and_gone(connect5, unique)
    publisher = connect5()
    publisher.publish(unique.topic(), b"queued", qos=1)
    client = connect5(unique.client(), clean=True, properties=KEEP)
    assert not session_present(client)
    publisher.publish(unique.topic(), b"live", qos=1)
    client.expect_no_message()


@pytest.mark.clause("5.0", "MQTT-3.1.2-5", "MQTT-3.1.2-23", "MQTT-3.1.4-4", "MQTT-3.2.2-3", "MQTT-4.5.0-1")
def test_without_clean_start_the_session_goes_on(connect5: Connect5, unique: Unique) -> None:
    subscribed_and_gone(connect5, unique)
    publisher = connect5()
    publisher.publish(unique.topic(), b"while away", qos=1)
    client = connect5(unique.client(), clean=False, properties=KEEP)
    assert session_present(client)
    client.messages(1)
    publisher.publish(unique.topic(), b"while here", qos=1)
    client.expect(Publish, topic=unique.topic(), payload=b"while here")


@pytest.mark.clause("5.0", "MQTT-3.1.2-6", "MQTT-3.1.4-4", "MQTT-3.2.2-3")
def test_without_clean_start_and_without_a_session_a_new_one_begins(connect5: Connect5, unique: Unique) -> None:
    client = connect5(unique.client(), clean=False, properties=KEEP)
    assert not session_present(client)
    client.disconnect()
    assert session_present(connect5(unique.client(), clean=False, properties=KEEP))


@pytest.mark.clause("5.0", "MQTT-3.2.2-2", "MQTT-3.2.2-3", "MQTT-3.2.2-1", "MQTT-3.1.4-5")
@pytest.mark.parametrize(("clean", "flags"), [(True, 0), (False, 1)], ids=["clean start", "resumed"])
def test_connack_says_with_one_bit_whether_there_was_a_session(
    connect5: Connect5, open5: Open5, unique: Unique, clean: bool, flags: int
) -> None:
    subscribed_and_gone(connect5, unique)
    client = open5()
    answer = client.connect(unique.client(), clean=clean, properties=KEEP)
    assert answer.raw[0] == 0x20
    assert answer.raw[2] == flags
    assert answer.raw[3] == 0x00


@pytest.mark.clause("5.0", "MQTT-3.2.2-6", "MQTT-3.2.2-7", "MQTT-4.12.0-4")
def test_a_refusal_says_session_present_0_even_when_there_is_a_session(
    connect5: Connect5, open5: Open5, unique: Unique
) -> None:
    subscribed_and_gone(connect5, unique)
    client = open5()
    client.send(wire.connect(unique.client(), version=5, clean=False, properties=[(P.AUTH_METHOD, "unknown")]))
    expect_refused(client, 0x8C)
    assert session_present(connect5(unique.client(), clean=False, properties=KEEP)), "the refusal ended the session"


@pytest.mark.clause("5.0", "MQTT-3.2.0-1", "MQTT-4.4.0-1")
def test_connack_comes_before_the_messages_of_a_resumed_session(
    connect5: Connect5, open5: Open5, unique: Unique
) -> None:
    subscribed_and_gone(connect5, unique)
    publisher = connect5()
    for number in range(3):
        publisher.publish(unique.topic(), str(number), qos=1)
    client = open5()
    client.send(wire.connect(unique.client(), version=5, clean=False, properties=KEEP) + wire.pingreq())
    client.expect(ConnAck, code=0, session_present=True)


@pytest.mark.clause("5.0", "MQTT-3.2.0-1", "MQTT-3.2.0-2")
def test_connack_comes_first_when_packets_follow_connect_at_once(open5: Open5, unique: Unique) -> None:
    client = open5()
    topic = unique.topic()
    client.send(
        wire.connect(unique.client(), version=5)
        + wire.subscribe(1, [(topic, 0)], version=5)
        + wire.publish(topic, b"1", version=5)
        + wire.pingreq()
    )
    kinds = [type(client.recv()).__name__ for _ in range(4)]
    assert kinds == ["ConnAck", "SubAck", "Publish", "PingResp"]


@pytest.mark.clause("5.0", "MQTT-3.1.2-23")
@pytest.mark.parametrize("ending", ["disconnect", "cut", "reset"])
def test_a_session_with_an_expiry_interval_outlives_its_connection(
    connect5: Connect5, unique: Unique, ending: str
) -> None:
    client = connect5(unique.client(), properties=KEEP)
    client.subscribe(unique.topic(), qos=1)
    getattr(client, ending)()
    assert session_present(connect5(unique.client(), clean=False, properties=KEEP))


@pytest.mark.clause("5.0", "MQTT-4.1.0-2")
@pytest.mark.parametrize("properties", [[], [(P.SESSION_EXPIRY, 0)]], ids=["absent", "0"])
def test_a_session_without_an_expiry_interval_ends_with_its_connection(
    connect5: Connect5, unique: Unique, properties: list[wire.Property]
) -> None:
    client = connect5(unique.client(), clean=False, properties=properties)
    client.subscribe(unique.topic(), qos=1)
    client.disconnect()
    assert not session_present(connect5(unique.client(), clean=False))


@pytest.mark.told_clock
@pytest.mark.clause("5.0", "MQTT-4.1.0-2")
def test_a_session_is_discarded_once_its_expiry_interval_has_passed(
    connect5: Connect5, unique: Unique, server: Server
) -> None:
    for name in ("short", "long"):
        client = connect5(unique.client(name), properties=[(P.SESSION_EXPIRY, 1 if name == "short" else 30)])
        client.subscribe(unique.topic(), qos=1)
        client.disconnect()
    server.pass_time(1.3)
    assert not session_present(connect5(unique.client("short"), clean=False))
    assert session_present(connect5(unique.client("long"), clean=False))


@pytest.mark.clause("5.0", "MQTT-3.1.2-23", "MQTT-4.1.0-2")
@pytest.mark.parametrize(("at_end", "kept"), [(0, False), (60, True)], ids=["to 0", "to 60"])
def test_disconnect_may_change_the_expiry_interval(connect5: Connect5, unique: Unique, at_end: int, kept: bool) -> None:
    client = connect5(unique.client(), properties=[(P.SESSION_EXPIRY, 10)])
    client.disconnect(0x00, [(P.SESSION_EXPIRY, at_end)])
    assert session_present(connect5(unique.client(), clean=False)) is kept


@pytest.mark.clause("5.0", "MQTT-4.13.1-1")
def test_disconnect_may_not_raise_an_expiry_interval_of_0(connect5: Connect5) -> None:
    client = connect5()
    client.send(wire.disconnect(0x00, [(P.SESSION_EXPIRY, 5)]))
    expect_dropped(client, 0x82)


@pytest.mark.told_clock
@pytest.mark.clause("5.0", "MQTT-4.1.0-1")
def test_session_state_is_kept_while_the_connection_is_open(connect5: Connect5, unique: Unique) -> None:
    """Even with an expiry interval of 0: a subscription, an open message each way, and the aliases stay."""
    client, other = connect5(properties=[(P.SESSION_EXPIRY, 0)]), connect5()
    topic = unique.topic()
    client.subscribe(topic, qos=2)
    other.publish(topic, b"in", qos=2)
    message = client.expect(Publish, payload=b"in")
    client.send(wire.publish(unique.topic("out"), b"out", qos=2, packet_id=9, version=5))
    client.expect(PubRec, packet_id=9)
    client.expect_nothing(1.2)
    assert message.packet_id is not None
    client.send(wire.pubrec(message.packet_id))
    client.expect(PubRel, packet_id=message.packet_id, reason=0)
    client.send(wire.pubrel(9))
    client.expect(PubComp, packet_id=9, reason=0)
    other.publish(topic, b"again")
    client.expect(Publish, payload=b"again")


@pytest.mark.clause("5.0", "MQTT-4.5.0-1")
def test_a_message_reaches_every_matching_session_present_or_absent(connect5: Connect5, unique: Unique) -> None:
    topic = unique.topic("a/b")
    filters = [topic, unique.topic("+/b"), unique.topic("#")]
    here = [connect5(unique.client(f"here{n}")) for n in range(3)]
    for client, topic_filter in zip(here, filters, strict=True):
        client.subscribe(topic_filter, qos=1)
    for n, topic_filter in enumerate(filters):
        client = connect5(unique.client(f"away{n}"), properties=KEEP)
        client.subscribe(topic_filter, qos=1)
        client.disconnect()
    connect5().publish(topic, b"1", qos=1)
    for client in here:
        client.expect(Publish, topic=topic, payload=b"1", qos=1)
    for n in range(3):
        connect5(unique.client(f"away{n}"), clean=False).expect(Publish, topic=topic, payload=b"1", qos=1)


# Resending


@pytest.mark.clause("5.0", "MQTT-4.4.0-1", "MQTT-3.3.1-1", "MQTT-4.3.2-3", "MQTT-4.3.3-3")
@pytest.mark.parametrize("qos", [1, 2])
def test_unacknowledged_messages_are_resent_on_resume_with_dup_and_the_same_identifiers(
    connect5: Connect5, unique: Unique, qos: int
) -> None:
    client, publisher = connect5(unique.client(), properties=KEEP), connect5()
    client.subscribe(unique.topic(), qos=qos)
    for number in range(3):
        publisher.publish(unique.topic(), str(number), qos=qos)
    first = client.messages(3, ack=False)
    assert [message.dup for message in first] == [False] * 3
    client.cut()
    again = connect5(unique.client(), clean=False, properties=KEEP)
    second = again.messages(3)
    assert [(m.packet_id, m.payload) for m in second] == [(m.packet_id, m.payload) for m in first]
    assert [message.dup for message in second] == [True] * 3


@pytest.mark.told_clock
@pytest.mark.clause("5.0", "MQTT-4.4.0-1")
@pytest.mark.parametrize("qos", [1, 2])
def test_nothing_is_resent_while_the_connection_lasts(connect5: Connect5, unique: Unique, qos: int) -> None:
    client = connect5()
    client.subscribe(unique.topic(), qos=qos)
    client.publish(unique.topic(), b"1", qos=qos)
    client.expect(Publish, payload=b"1", dup=False)
    client.expect_nothing(1.2)


@pytest.mark.clause("5.0", "MQTT-4.4.0-1", "MQTT-4.3.3-5", "MQTT-4.3.3-6", "MQTT-4.3.3-4")
def test_an_unanswered_pubrel_is_resent_on_resume_instead_of_the_publish(connect5: Connect5, unique: Unique) -> None:
    client, publisher = connect5(unique.client(), properties=KEEP), connect5()
    client.subscribe(unique.topic(), qos=2)
    publisher.publish(unique.topic(), b"1", qos=2)
    identifier = client.expect(Publish, qos=2).packet_id
    assert identifier is not None
    client.send(wire.pubrec(identifier))
    client.expect(PubRel, packet_id=identifier)
    client.cut()
    again = connect5(unique.client(), clean=False, properties=KEEP)
    again.expect(PubRel, packet_id=identifier, reason=0)
    again.send(wire.pubcomp(identifier))
    again.expect_no_message()
    again.disconnect()
    connect5(unique.client(), clean=False, properties=KEEP).expect_no_message()


@pytest.mark.clause("5.0", "MQTT-4.4.0-2", "MQTT-4.3.2-3", "MQTT-4.3.3-3")
@pytest.mark.parametrize("reason", [0x00, 0x10, 0x80, 0x83, 0x87, 0x97])
def test_an_acknowledged_message_is_not_resent_even_when_the_answer_is_an_error(
    connect5: Connect5, unique: Unique, reason: int
) -> None:
    client, publisher = connect5(unique.client(), properties=KEEP), connect5()
    client.subscribe(unique.topic(), qos=2)
    publisher.publish(unique.topic(), b"1", qos=1)
    publisher.publish(unique.topic(), b"2", qos=2)
    one, two = client.messages(2, ack=False)
    assert one.packet_id is not None
    assert two.packet_id is not None
    client.send(wire.puback(one.packet_id, reason) + wire.pubrec(two.packet_id, reason))
    if reason < 0x80:
        client.expect(PubRel, packet_id=two.packet_id)
        client.send(wire.pubcomp(two.packet_id))
    client.expect_no_message()
    client.disconnect()
    again = connect5(unique.client(), clean=False, properties=KEEP)
    assert session_present(again)
    again.expect_no_message()


@pytest.mark.clause("5.0", "MQTT-4.3.3-10", "MQTT-4.1.0-1")
def test_the_open_identifiers_of_a_publisher_survive_with_its_session(connect5: Connect5, unique: Unique) -> None:
    """A QoS 2 message whose PUBREC was lost is sent again on resume and still delivered once."""
    watcher = connect5()
    watcher.subscribe(unique.topic(), qos=2)
    client = connect5(unique.client(), properties=KEEP)
    client.send(wire.publish(unique.topic(), b"once", qos=2, packet_id=77, version=5))
    client.expect(PubRec, packet_id=77)
    client.cut()
    again = connect5(unique.client(), clean=False, properties=KEEP)
    again.send(wire.publish(unique.topic(), b"once", qos=2, dup=True, packet_id=77, version=5))
    again.expect(PubRec, packet_id=77)
    again.send(wire.pubrel(77))
    again.expect(PubComp, packet_id=77, reason=0)
    watcher.messages(1)
    watcher.expect_no_message()
