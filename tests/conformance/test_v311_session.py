"""3.1.1: what a session keeps, for how long, and what a new connection gets of it."""

from collections.abc import Callable

import pytest

import wire
from broker_process import Unique
from wire import Publish, WireClient

Connect = Callable[..., WireClient]


@pytest.mark.clause("3.1.1", "MQTT-3.1.2-4", "MQTT-3.2.2-2", "MQTT-3.2.2-3", "MQTT-4.1.0-1", "MQTT-3.1.3-2")
def test_session_without_clean_session_outlives_its_connection(connect: Connect, unique: Unique) -> None:
    name = unique.client("keep")
    first = connect(name, clean=False)
    assert first.connack is not None
    assert not first.connack.session_present
    first.subscribe(unique.topic(), qos=1)
    first.disconnect()
    again = connect(name, clean=False)
    assert again.connack is not None
    assert again.connack.session_present
    connect().publish(unique.topic(), b"still subscribed", qos=1)
    again.expect(Publish, payload=b"still subscribed", qos=1, dup=False)


@pytest.mark.clause("3.1.1", "MQTT-3.1.2-4")
def test_session_survives_a_lost_connection_too(connect: Connect, unique: Unique) -> None:
    name = unique.client("lost")
    first = connect(name, clean=False)
    first.subscribe(unique.topic(), qos=1)
    first.reset()
    connect().publish(unique.topic(), b"meanwhile", qos=1)
    again = connect(name, clean=False)
    assert again.connack is not None
    assert again.connack.session_present
    again.expect(Publish, payload=b"meanwhile")


@pytest.mark.clause("3.1.1", "MQTT-3.1.2-5", "MQTT-4.5.0-1", "MQTT-4.6.0-6")
def test_qos_1_and_2_messages_wait_for_an_absent_client(connect: Connect, unique: Unique) -> None:
    name = unique.client("away")
    away = connect(name, clean=False)
    away.subscribe((unique.topic("1"), 1), (unique.topic("2"), 2))
    away.disconnect()
    publisher = connect()
    for number in range(1, 6):
        publisher.publish(unique.topic("1"), b"%d" % number, qos=1)
        publisher.publish(unique.topic("2"), b"%d" % number, qos=2)
    back = connect(name, clean=False)
    got = back.messages(10)
    for level in (1, 2):
        mine = [message for message in got if message.topic == unique.topic(str(level))]
        assert [message.payload for message in mine] == [b"1", b"2", b"3", b"4", b"5"]
        assert {message.qos for message in mine} == {level}
        assert not any(message.dup or message.retain for message in mine)
    back.expect_no_message()


@pytest.mark.clause("3.1.1", "MQTT-3.1.2-6", "MQTT-3.2.2-1", "MQTT-3.1.4-3")
def test_clean_session_throws_the_old_session_away(connect: Connect, unique: Unique) -> None:
    name = unique.client("fresh")
    old = connect(name, clean=False)
    old.subscribe(unique.topic(), qos=1)
    old.disconnect()
    publisher = connect()
    publisher.publish(unique.topic(), b"queued", qos=1)
    fresh = connect(name, clean=True)
    assert fresh.connack is not None
    assert not fresh.connack.session_present
    publisher.publish(unique.topic(), b"unsubscribed", qos=1)
    fresh.expect_no_message()


@pytest.mark.clause("3.1.1", "MQTT-3.1.2-6", "MQTT-3.2.2-3")
def test_clean_session_leaves_nothing_behind(connect: Connect, unique: Unique) -> None:
    name = unique.client("short")
    short = connect(name, clean=True)
    short.subscribe(unique.topic(), qos=1)
    short.disconnect()
    publisher = connect()
    publisher.publish(unique.topic(), b"nobody there", qos=1)
    back = connect(name, clean=False)
    assert back.connack is not None
    assert not back.connack.session_present
    publisher.publish(unique.topic(), b"not subscribed", qos=1)
    back.expect_no_message()


@pytest.mark.clause("3.1.1", "MQTT-3.1.2-6")
def test_unfinished_messages_end_with_a_clean_session(connect: Connect, unique: Unique) -> None:
    name = unique.client("open")
    first = connect(name, clean=False)
    first.subscribe(unique.topic(), qos=2)
    connect().publish(unique.topic(), b"unfinished", qos=2)
    first.expect(Publish, payload=b"unfinished")
    first.cut()
    connect(name, clean=True).expect_no_message()
    connect(name, clean=False).expect_no_message()


@pytest.mark.clause("3.1.1", "MQTT-3.1.2-7")
@pytest.mark.parametrize("end", ["disconnect", "cut", "reset"])
def test_retained_message_outlives_the_session_that_published_it(end: str, connect: Connect, unique: Unique) -> None:
    name = unique.client("writer")
    writer = connect(name, clean=True)
    writer.publish(unique.topic(), b"kept", qos=1, retain=True)
    getattr(writer, end)()
    connect(name, clean=True).disconnect()
    reader = connect()
    reader.subscribe(unique.topic())
    reader.expect(Publish, payload=b"kept", retain=True)


@pytest.mark.clause("3.1.1", "MQTT-4.1.0-1", "MQTT-4.3.3-2")
def test_half_received_qos_2_message_is_session_state(connect: Connect, unique: Unique) -> None:
    watcher = connect()
    watcher.subscribe(unique.topic())
    name = unique.client("half")
    sender = connect(name, clean=False)
    sender.send(wire.publish(unique.topic(), b"once", qos=2, packet_id=77))
    sender.expect(wire.PubRec, packet_id=77)
    sender.cut()
    back = connect(name, clean=False)
    back.send(wire.publish(unique.topic(), b"once", qos=2, packet_id=77, dup=True))
    back.expect(wire.PubRec, packet_id=77)
    back.send(wire.pubrel(77))
    back.expect(wire.PubComp, packet_id=77)
    watcher.expect(Publish, payload=b"once")
    watcher.expect_no_message()


@pytest.mark.clause("3.1.1", "MQTT-4.1.0-2")
def test_session_lasts_while_its_client_is_connected(connect: Connect, unique: Unique) -> None:
    steady = connect(clean=True)
    steady.subscribe(unique.topic(), qos=1)
    for number in range(3):
        visitor = connect(unique.client("visitor"), clean=True)
        visitor.publish(unique.topic(), b"%d" % number, qos=1)
        visitor.disconnect()
    assert [message.payload for message in steady.messages(3)] == [b"0", b"1", b"2"]


@pytest.mark.clause("3.1.1", "MQTT-3.1.2-4")
def test_takeover_hands_the_session_to_the_newer_connection(connect: Connect, unique: Unique) -> None:
    name = unique.client("mover")
    older = connect(name, clean=False)
    older.subscribe(unique.topic(), qos=1)
    newer = connect(name, clean=False)
    assert newer.connack is not None
    assert newer.connack.session_present
    older.expect_closed()
    connect().publish(unique.topic(), b"moved", qos=1)
    newer.expect(Publish, payload=b"moved")
