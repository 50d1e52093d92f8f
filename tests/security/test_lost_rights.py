"""What outlives a right (CVE-2018-12546 and its kin): retained messages, wills, queues, subscriptions, groups."""

from collections.abc import Callable

import pytest

import wire
from guarded import USERS, Guarded
from v5_client import KEEP
from wire import Publish

Start = Callable[..., Guarded]

EVERYTHING = "".join(f"user {user}\ntopic readwrite #\n" for user in USERS)
NO_GUEST = "".join(f"user {user}\ntopic readwrite #\n" for user in USERS if user != "guest")


def only(user: str, line: str) -> str:
    """Everyone may do everything, but this user only what the line says."""
    return "".join(f"user {name}\ntopic readwrite #\n" for name in USERS if name != user) + f"user {user}\n{line}\n"


def test_a_retained_message_is_not_sent_once_its_publisher_has_lost_the_right(guarded: Start) -> None:
    site = guarded(EVERYTHING)
    site.enter("guest").publish("a/left", b"behind", qos=1, retain=True)
    site.enter("bob").publish("a/good", b"kept", qos=1, retain=True)
    before = site.enter("owner")
    before.subscribe("a/#")
    assert {message.payload for message in before.messages(2)} == {b"behind", b"kept"}
    site.change(NO_GUEST)
    after = site.enter("owner")
    after.subscribe("a/#")
    after.expect(Publish, payload=b"kept")
    after.expect_no_message()
    after.subscribe("a/left")
    after.expect_no_message()


def test_it_is_sent_again_when_the_right_is_given_back(guarded: Start) -> None:
    site = guarded(EVERYTHING)
    site.enter("guest").publish("a", b"1", qos=1, retain=True)
    site.change(only("guest", "topic read #"))
    reader = site.enter("owner")
    reader.subscribe("a")
    reader.expect_no_message()
    site.change(EVERYTHING)
    reader.subscribe("a")
    reader.expect(Publish, payload=b"1", retain=True)


def test_the_check_of_the_source_can_be_turned_off(guarded: Start) -> None:
    site = guarded(EVERYTHING, "check_retain_source = false\n")
    site.enter("guest").publish("a", b"1", qos=1, retain=True)
    site.change(NO_GUEST)
    reader = site.enter("owner")
    reader.subscribe("a")
    reader.expect(Publish, payload=b"1", retain=True)


def test_a_source_that_lost_its_right_stays_lost_after_a_restart(guarded: Start) -> None:
    site = guarded(EVERYTHING)
    site.enter("guest").publish("a", b"1", qos=1, retain=True)
    site.stop()
    again = Guarded(site.folder, NO_GUEST)
    reader = again.enter("owner")
    reader.subscribe("a")
    reader.expect_no_message()
    again.stop()


def test_a_will_is_not_sent_once_the_right_is_lost(guarded: Start) -> None:
    site = guarded(EVERYTHING)
    watcher = site.enter("owner")
    watcher.subscribe("will/#")
    doomed = site.enter("guest", will=wire.Will("will/guest", b"gone", retain=True))
    other = site.enter("bob", will=wire.Will("will/bob", b"gone"))
    site.change(NO_GUEST)
    doomed.reset()
    other.reset()
    watcher.expect(Publish, topic="will/bob")
    watcher.expect_no_message()
    watcher.subscribe("will/guest")
    watcher.expect_no_message()


@pytest.mark.parametrize("topic", ["private/x", "$SYS/broker/version", "$holdfast/x"])
def test_a_will_that_may_not_be_published_is_refused_with_its_connect(guarded: Start, topic: str) -> None:
    site = guarded(only("guest", "topic readwrite open/#"))
    client = site.open(5)
    client.send(wire.connect("g", version=5, username="guest", password=b"guest's", will=wire.Will(topic, b"x")))
    assert client.expect(wire.ConnAck).code == 0x87
    client.expect_closed()


def test_the_right_to_retain_is_asked_of_a_will_too(guarded: Start) -> None:
    rules = """
[[access]]
permission = "allow"
action = ["publish", "subscribe", "receive"]
filter = "#"
"""
    site = guarded(None, rules)
    site.enter("guest", will=wire.Will("w", b"live"))
    client = site.open(5)
    client.send(
        wire.connect("g", version=5, username="guest", password=b"guest's", will=wire.Will("w", b"x", retain=True))
    )
    assert client.expect(wire.ConnAck).code == 0x87


def test_the_will_of_a_refused_login_is_never_published(guarded: Start) -> None:
    site = guarded(EVERYTHING)
    watcher = site.enter("owner")
    watcher.subscribe("#")
    for password in (b"wrong", None):
        client = site.open(5)
        client.send(
            wire.connect("x", version=5, username="guest", password=password, will=wire.Will("w", b"dead", retain=True))
        )
        assert client.expect(wire.ConnAck).code >= 0x80
        client.expect_closed()
    watcher.expect_no_message()


def test_new_rules_apply_at_once_to_existing_subscriptions_and_drop_no_connection(guarded: Start) -> None:
    site = guarded(EVERYTHING)
    reader, writer = site.enter("guest"), site.enter("owner")
    reader.subscribe("a/#", qos=1)
    writer.publish("a/1", b"1", qos=1)
    reader.messages(1)
    site.change(only("guest", "topic read b/#"))
    writer.publish("a/1", b"2", qos=1)
    writer.publish("a/1", b"2", qos=0)
    reader.expect_no_message()
    site.change(EVERYTHING)
    writer.publish("a/1", b"3", qos=1)
    reader.expect(Publish, payload=b"3")


def test_what_waits_for_an_absent_client_is_not_sent_once_the_right_is_lost(guarded: Start) -> None:
    site = guarded(EVERYTHING)
    reader = site.enter("guest", "reader", clean=False, properties=KEEP)
    reader.subscribe("a/#", "b/#", qos=1)
    reader.disconnect()
    writer = site.enter("owner")
    for topic in ("a/1", "b/1", "a/2"):
        writer.publish(topic, topic.encode(), qos=1)
    site.change(only("guest", "topic read b/#"))
    back = site.enter("guest", "reader", clean=False, properties=KEEP)
    back.expect(Publish, topic="b/1")
    back.expect_no_message()


def test_what_was_under_way_is_not_sent_again_once_the_right_is_lost(guarded: Start) -> None:
    site = guarded(EVERYTHING)
    reader = site.enter("guest", "reader", clean=False, properties=KEEP)
    reader.subscribe("a/#", qos=2)
    site.enter("owner").publish("a/1", b"1", qos=2)
    reader.expect(Publish, topic="a/1")
    reader.reset()
    site.change(only("guest", "topic read b/#"))
    site.enter("guest", "reader", clean=False, properties=KEEP).expect_no_message()


def test_a_shared_subscription_is_no_way_around_a_rule(guarded: Start) -> None:
    site = guarded(only("guest", "topic read open/#"))
    spy, member, writer = site.enter("guest"), site.enter("bob"), site.enter("owner")
    spy.subscribe("$share/g/#", qos=1)
    member.subscribe("$share/g/#", qos=1)
    for number in range(6):
        writer.publish("closed", str(number).encode(), qos=1)
    assert [message.payload for message in member.messages(6)] == [str(number).encode() for number in range(6)]
    spy.expect_no_message()
    alone = site.enter("guest")
    alone.subscribe("$share/alone/#", qos=1)
    writer.publish("closed", b"x", qos=1)
    writer.publish("open/1", b"x", qos=1)
    alone.expect(Publish, topic="open/1")
    alone.expect_no_message()


def test_deletions_are_not_told_to_who_may_not_read_the_topic(guarded: Start) -> None:
    """A client that asks what changed must not learn the names of topics that it has no right to."""
    site = guarded(EVERYTHING)
    writer = site.enter("owner")
    writer.publish("a/1", b"1", qos=1, retain=True)
    writer.publish("a/1", b"", qos=1, retain=True)
    for allowed, line in ((1, "topic read a/#"), (0, "topic read b/#")):
        site.change(only("guest", line))
        reader = site.enter("guest", properties=[])
        reader.subscribe("#", properties=[(wire.P.USER_PROPERTY, ("holdfast-since", "0"))])
        reader.ping()
        topics = [packet.topic for packet in reader.barrier() if isinstance(packet, Publish)]
        assert topics.count("a/1") == allowed


def test_what_was_published_through_the_api_is_asked_about_in_the_same_way(guarded: Start) -> None:
    """By users, for whom the rules are asked; not by administrators, who may do everything."""
    pytest.importorskip("httpx", reason="httpx is not installed")
    from http_api import LISTEN, Api

    site = guarded(EVERYTHING, '[api]\nadmins = ["bob"]\n', listen=LISTEN)
    for user in ("guest", "bob"):
        with Api(site.broker, auth=(user, USERS[user])) as api:
            api.set(f"a/{user}", "left")
    site.enter("guest").publish("a/mqtt", b"left", qos=1, retain=True)
    site.change(only("owner", "topic read a/#").replace("user guest\ntopic readwrite #\n", "").replace("bob", "nobody"))
    reader = site.enter("owner")
    reader.subscribe("a/#")
    reader.expect(Publish, topic="a/bob")
    reader.expect_no_message()
    with Api(site.broker, auth=("owner", USERS["owner"])) as api:
        assert api.topics(filter="a/#") == ["a/bob"]
        for topic, status in (("a/bob", 200), ("a/guest", 404), ("a/mqtt", 404)):
            for place in ("/api/v1/retained/message", "/api/v1/retained/message/payload"):
                assert api.get(place, params={"topic": topic}).status_code == status
    with Api(site.broker, auth=("bob", USERS["bob"])) as api:
        assert set(api.topics(filter="a/#")) == {"a/bob", "a/guest", "a/mqtt"}
