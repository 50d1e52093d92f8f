"""Matrix sections A and B: what is kept, and what takes it away again."""

import os
from collections.abc import Callable

import pytest

from stage import BOTH, ONLY_5, Copy, P, Stage, user
from wire import Closed, PubComp, PubRec, pubrel

pytestmark = pytest.mark.told_clock

DENY_SOME = [
    {"permission": "deny", "action": "publish", "filter": "+/denied"},
    {"permission": "allow", "action": "all", "filter": ["#", "$SYS/#"]},
]


@BOTH
@pytest.mark.matrix("A1")
@pytest.mark.clause("3.1.1", "MQTT-3.3.1-5")
@pytest.mark.clause("5.0", "MQTT-3.3.1-5")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_retained_publish_is_kept_with_its_qos(stage: Stage, version: int, qos: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version)
    publisher.publish("a", "1", qos=qos, retain=True)
    subscriber.subscribe("a", qos=2)
    subscriber.receives(Copy("a", "1", qos=qos, retain=True))


@BOTH
@pytest.mark.matrix("A2")
@pytest.mark.clause("3.1.1", "MQTT-3.3.1-5", "MQTT-3.3.1-6")
@pytest.mark.clause("5.0", "MQTT-3.3.1-5")
def test_newest_retained_publish_replaces_the_older_one(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version)
    publisher.publish("a", "1", retain=True)
    publisher.publish("a", "2", retain=True)
    subscriber.subscribe("a")
    subscriber.receives(Copy("a", "2", retain=True))


@BOTH
@pytest.mark.matrix("A3")
@pytest.mark.clause("3.1.1", "MQTT-3.3.1-12")
@pytest.mark.clause("5.0", "MQTT-3.3.1-8")
def test_plain_publish_leaves_the_store_alone_even_when_empty(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version)
    publisher.publish("a", "1", retain=True)
    publisher.publish("a", "2")
    publisher.publish("a", "")
    publisher.publish("never", "2")
    subscriber.subscribe("#")
    subscriber.receives(Copy("a", "1", retain=True))


@BOTH
@pytest.mark.matrix("A4")
@pytest.mark.clause("3.1.1", "MQTT-3.1.2-7")
@pytest.mark.parametrize("ending", ["cut", "disconnect", "clean reconnect"])
def test_message_outlives_the_publishers_session(stage: Stage, version: int, ending: str) -> None:
    publisher = stage.client(version, "p")
    publisher.publish("a", "1", qos=1, retain=True)
    if ending == "cut":
        publisher.cut()
    else:
        publisher.disconnect()
    if ending == "clean reconnect":
        stage.client(version, "p", clean=True)
    assert stage.stored(version) == {"a": b"1"}


@ONLY_5
@pytest.mark.matrix("A4")
def test_message_outlives_an_expired_session(stage: Stage, version: int) -> None:
    publisher = stage.client(version, "p", clean=False, properties=[(P.SESSION_EXPIRY, 1)])
    publisher.publish("a", "1", qos=1, retain=True)
    publisher.cut()
    stage.pass_time(3)
    connack = stage.client(version, "p", clean=False).wire.connack
    assert connack is not None
    assert connack.session_present is False
    assert stage.stored(version) == {"a": b"1"}


@BOTH
@pytest.mark.matrix("A5")
@pytest.mark.clause("3.1.1", "MQTT-3.3.1-7")
def test_qos_0_retained_publish_replaces_and_is_kept(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version)
    publisher.publish("a", "old", qos=1, retain=True)
    publisher.publish("a", "new", qos=0, retain=True)
    subscriber.subscribe("a", qos=1)
    subscriber.receives(Copy("a", "new", qos=0, retain=True))


@BOTH
@pytest.mark.matrix("A6")
@pytest.mark.clause("3.1.1", "MQTT-4.3.3-2")
@pytest.mark.clause("5.0", "MQTT-4.3.3-10")
def test_repeated_qos_2_publish_stores_and_delivers_once(stage: Stage, version: int) -> None:
    publisher, live = stage.client(version), stage.client(version)
    live.subscribe("a", qos=2)
    topic = publisher.full("a")
    publisher.note("a", True)
    for dup in (False, True):
        publisher.wire.send_publish(topic, b"1", qos=2, packet_id=7, retain=True, dup=dup)
        publisher.wire.expect(PubRec, packet_id=7)
    publisher.wire.send(pubrel(7))
    publisher.wire.expect(PubComp, packet_id=7)
    live.receives(Copy("a", "1", qos=2))
    assert stage.stored(version) == {"a": b"1"}


@BOTH
@pytest.mark.matrix("A7")
@pytest.mark.clause("3.1.1", "MQTT-3.3.5-2")
def test_publish_denied_by_access_rules_stores_nothing(staged: Callable[..., Stage], version: int) -> None:
    stage = staged(access=DENY_SOME)
    publisher, live = stage.client(version), stage.client(version)
    publisher.publish("allowed", "1", qos=1, retain=True)
    live.subscribe("denied", qos=1)
    if version == 5:
        assert publisher.publish("denied", "x", qos=1, retain=True, check=False) == 0x87
    else:
        # 3.1.1 has no way to say no: an ordinary acknowledgement or the end of the connection.
        try:
            publisher.publish("denied", "x", qos=1, retain=True)
        except Closed:
            publisher = stage.client(version)
    live.receives()
    assert stage.stored(version) == {"allowed": b"1"}


@BOTH
@pytest.mark.matrix("A8")
@pytest.mark.clause("3.1.1", "MQTT-3.3.1-9")
@pytest.mark.clause("5.0", "MQTT-3.3.1-12")
def test_retained_publish_reaches_live_subscribers_too(stage: Stage, version: int) -> None:
    publisher, live = stage.client(version), stage.client(version)
    live.subscribe("a")
    publisher.publish("a", "1", retain=True)
    live.receives(Copy("a", "1", retain=False))
    assert stage.stored(version) == {"a": b"1"}


@BOTH
@pytest.mark.matrix("A9")
@pytest.mark.clause("3.1.1", "MQTT-3.3.1-5")
@pytest.mark.clause("5.0", "MQTT-3.3.1-5")
@pytest.mark.parametrize(
    "payload",
    [b"\x00", bytes(range(256)), os.urandom(1_000_000)],
    ids=["zero byte", "every byte", "1 MB"],
)
def test_payload_comes_back_byte_by_byte(stage: Stage, version: int, payload: bytes) -> None:
    stage.client(version).publish("a", payload, qos=1, retain=True)
    assert stage.stored(version) == {"a": payload}


@BOTH
@pytest.mark.matrix("B1")
@pytest.mark.clause("3.1.1", "MQTT-3.3.1-10")
@pytest.mark.clause("5.0", "MQTT-3.3.1-6")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_empty_retained_publish_removes_the_message(stage: Stage, version: int, qos: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version)
    publisher.publish("a", "1", qos=2, retain=True)
    publisher.publish("a", "", qos=qos, retain=True)
    subscriber.subscribe("a", qos=2)
    subscriber.receives()


@BOTH
@pytest.mark.matrix("B2")
@pytest.mark.clause("3.1.1", "MQTT-3.3.1-10", "MQTT-3.3.1-9")
@pytest.mark.clause("5.0", "MQTT-3.3.1-6", "MQTT-3.3.1-12")
def test_empty_retained_publish_reaches_live_subscribers(stage: Stage, version: int) -> None:
    publisher, live = stage.client(version), stage.client(version)
    publisher.publish("a", "1", retain=True)
    live.subscribe("a")
    live.receives(Copy("a", "1", retain=True))
    publisher.publish("a", "", retain=True)
    live.receives(Copy("a", "", retain=False))


@ONLY_5
@pytest.mark.matrix("B3")
@pytest.mark.clause("5.0", "MQTT-3.3.1-13")
def test_retain_as_published_keeps_the_flag_of_an_empty_publish(stage: Stage, version: int) -> None:
    publisher, live = stage.client(version), stage.client(version)
    live.subscribe("a", rap=True)
    publisher.publish("a", "", retain=True)
    live.receives(Copy("a", "", retain=True))


@BOTH
@pytest.mark.matrix("B4")
@pytest.mark.clause("3.1.1", "MQTT-3.3.1-11")
@pytest.mark.clause("5.0", "MQTT-3.3.1-7")
def test_empty_message_is_never_kept(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version)
    publisher.publish("a", "", qos=1, retain=True)
    subscriber.subscribe("#", qos=1)
    subscriber.receives()


@BOTH
@pytest.mark.matrix("B5")
def test_removing_what_is_not_there_succeeds(stage: Stage, version: int) -> None:
    publisher = stage.client(version)
    assert publisher.publish("nope", "", qos=1, retain=True) in (0x00, 0x10)
    assert publisher.publish("nope", "", qos=2, retain=True) in (0x00, 0x10)


@BOTH
@pytest.mark.matrix("B6")
@pytest.mark.clause("3.1.1", "MQTT-3.3.1-10")
@pytest.mark.clause("5.0", "MQTT-3.3.1-6")
def test_removal_touches_exactly_the_named_topic(stage: Stage, version: int) -> None:
    publisher = stage.client(version)
    for topic in ("a", "a/b", "A", "a/"):
        publisher.publish(topic, "1", retain=True)
    publisher.publish("a", "", retain=True)
    assert stage.stored(version) == {"a/b": b"1", "A": b"1", "a/": b"1"}


@ONLY_5
@pytest.mark.matrix("B7")
@pytest.mark.clause("5.0", "MQTT-3.3.1-6")
def test_empty_payload_with_properties_removes(stage: Stage, version: int) -> None:
    publisher = stage.client(version)
    publisher.publish("a", "1", retain=True)
    publisher.publish("a", "", retain=True, properties=[(P.CONTENT_TYPE, "text/plain"), user("k", "v")])
    assert stage.stored(version) == {}


@BOTH
@pytest.mark.matrix("B8")
def test_queued_copies_are_not_recalled_by_a_removal(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version, "s", keep=True)
    subscriber.subscribe("a", qos=1)
    subscriber.disconnect()
    publisher.publish("a", "1", qos=1, retain=True)
    publisher.publish("a", "", qos=1, retain=True)
    subscriber = stage.client(version, "s", keep=True)
    subscriber.receives(Copy("a", "1", qos=1), Copy("a", "", qos=1))
    subscriber.disconnect()
    stage.client(version, "s", clean=True)
