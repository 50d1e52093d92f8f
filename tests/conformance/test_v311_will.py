"""3.1.1: the will, and DISCONNECT that calls it off."""

from collections.abc import Callable

import pytest

import wire
from broker_process import Unique
from wire import Publish, Will, WireClient

Connect = Callable[..., WireClient]


@pytest.fixture
def watcher(connect: Connect, unique: Unique) -> WireClient:
    client = connect()
    client.subscribe(unique.topic("will"), qos=2)
    return client


def cut(client: WireClient) -> None:
    client.cut()


def reset(client: WireClient) -> None:
    client.reset()


def send_nonsense(client: WireClient) -> None:
    client.send(b"\xf0\x00")
    client.expect_closed()


def connect_twice(client: WireClient) -> None:
    client.send(wire.connect("other"))
    client.expect_closed()


@pytest.mark.clause("3.1.1", "MQTT-3.1.2-8")
@pytest.mark.parametrize("end", [cut, reset, send_nonsense, connect_twice])
def test_will_is_published_when_the_connection_ends_without_disconnect(
    end: Callable[[WireClient], None], connect: Connect, watcher: WireClient, unique: Unique
) -> None:
    client = connect(will=Will(unique.topic("will"), b"gone"))
    watcher.expect_no_message()
    end(client)
    watcher.expect(Publish, topic=unique.topic("will"), payload=b"gone", qos=0, retain=False)


@pytest.mark.clause("3.1.1", "MQTT-3.1.2-8", "MQTT-3.1.4-2")
def test_will_is_published_when_another_connection_takes_over(
    connect: Connect, watcher: WireClient, unique: Unique
) -> None:
    connect(unique.client("taken"), will=Will(unique.topic("will"), b"taken over"))
    connect(unique.client("taken"))
    watcher.expect(Publish, payload=b"taken over")


@pytest.mark.clause("3.1.1", "MQTT-3.1.2-9")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_will_is_published_with_its_qos(qos: int, connect: Connect, watcher: WireClient, unique: Unique) -> None:
    connect(will=Will(unique.topic("will"), b"gone", qos=qos)).cut()
    assert [message.qos for message in watcher.messages(1)] == [qos]


@pytest.mark.clause("3.1.1", "MQTT-3.1.2-9")
def test_will_message_may_be_empty(connect: Connect, watcher: WireClient, unique: Unique) -> None:
    connect(will=Will(unique.topic("will"), b"")).cut()
    watcher.expect(Publish, payload=b"")


@pytest.mark.clause("3.1.1", "MQTT-3.14.4-3", "MQTT-3.1.2-10", "MQTT-3.1.2-8")
def test_disconnect_throws_the_will_away(connect: Connect, watcher: WireClient, unique: Unique) -> None:
    connect(will=Will(unique.topic("will"), b"gone", retain=True)).disconnect()
    watcher.expect_no_message()
    watcher.subscribe(unique.topic("will"))
    watcher.expect_no_message()


@pytest.mark.clause("3.1.1", "MQTT-3.1.2-10")
@pytest.mark.parametrize("clean", [True, False])
def test_published_will_is_gone(clean: bool, connect: Connect, watcher: WireClient, unique: Unique) -> None:
    name = unique.client("again")
    connect(name, clean=clean, will=Will(unique.topic("will"), b"gone")).cut()
    watcher.expect(Publish, payload=b"gone")
    connect(name, clean=clean).cut()
    connect(name, clean=clean).disconnect()
    watcher.expect_no_message()


@pytest.mark.clause("3.1.1", "MQTT-3.1.2-10")
def test_will_called_off_does_not_come_with_the_next_connection(
    connect: Connect, watcher: WireClient, unique: Unique
) -> None:
    name = unique.client("off")
    connect(name, clean=False, will=Will(unique.topic("will"), b"gone")).disconnect()
    connect(name, clean=False).cut()
    connect(name, clean=False).disconnect()
    watcher.expect_no_message()


@pytest.mark.clause("3.1.1", "MQTT-3.1.2-12")
def test_without_will_flag_nothing_is_published(connect: Connect, unique: Unique) -> None:
    watcher = connect()
    watcher.subscribe(f"{unique}/#")
    name = unique.client("quiet")
    connect(name).cut()
    connect(name).disconnect()
    watcher.expect_no_message()


@pytest.mark.clause("3.1.1", "MQTT-3.1.2-16")
def test_will_without_retain_leaves_the_store_alone(connect: Connect, watcher: WireClient, unique: Unique) -> None:
    connect().publish(unique.topic("will"), b"online", retain=True)
    watcher.expect(Publish, payload=b"online", retain=False)
    connect(will=Will(unique.topic("will"), b"offline")).cut()
    watcher.expect(Publish, payload=b"offline", retain=False)
    late = connect()
    late.subscribe(unique.topic("will"))
    late.expect(Publish, payload=b"online", retain=True)


@pytest.mark.clause("3.1.1", "MQTT-3.1.2-17")
def test_will_with_retain_is_kept(connect: Connect, watcher: WireClient, unique: Unique) -> None:
    connect(will=Will(unique.topic("will"), b"offline", qos=1, retain=True)).cut()
    watcher.expect(Publish, payload=b"offline", retain=False)
    late = connect()
    late.subscribe(unique.topic("will"), qos=1)
    late.expect(Publish, payload=b"offline", retain=True, qos=1)
