"""Who may publish, retain, subscribe and receive: asked at every step, and anew when the rules change."""

from collections.abc import Callable
from typing import Any

import pytest

from core_broker import CoreBroker, CoreClient
from wire import P

Start = Callable[..., CoreBroker]
Rule = dict[str, Any]

ANYTHING: Rule = {"permission": "allow", "action": "all", "filter": "#"}


def deny(action: str | list[str], topic_filter: str, **fields: Any) -> Rule:
    return {"permission": "deny", "action": action, "filter": topic_filter, **fields}


def allow(action: str | list[str], topic_filter: str, **fields: Any) -> Rule:
    return {"permission": "allow", "action": action, "filter": topic_filter, **fields}


def published(client: CoreClient, topic: str, **fields: Any) -> bool:
    """Whether a publish at QoS 1 is accepted."""
    answer = client.publish(topic, b"1", check=False, **{"qos": 1, **fields})
    assert answer is not None
    return answer.reason < 0x80


@pytest.mark.parametrize(
    ("rules", "may"),
    [
        ([ANYTHING], True),
        ([deny("publish", "a"), ANYTHING], False),
        ([ANYTHING, deny("publish", "a")], True),
        ([deny("publish", "b"), ANYTHING], True),
        ([deny("all", "#", user="bob"), ANYTHING], True),
        ([deny("all", "#", user="ann"), ANYTHING], False),
        ([deny("all", "#", client_id="client"), ANYTHING], False),
        ([deny("publish", "a", qos=[0]), ANYTHING], True),
        ([deny("publish", "a", qos=[1, 2]), ANYTHING], False),
        ([deny("subscribe", "a"), ANYTHING], True),
        ([deny("retain", "a"), ANYTHING], True),
    ],
    ids=str,
)
def test_the_first_rule_that_is_about_a_publish_decides(start: Start, rules: list[Rule], may: bool) -> None:
    client = start(access=rules).join("client", username="ann")
    assert published(client, "a") is may


@pytest.mark.parametrize(("otherwise", "may"), [("allow", True), ("deny", False)])
def test_what_no_rule_is_about_is_as_configured(start: Start, otherwise: str, may: bool) -> None:
    client = start(access=[deny("publish", "a")], auth__no_match=otherwise).join("client")
    assert published(client, "b") is may


@pytest.mark.parametrize(("retain", "may"), [(False, True), (True, False)])
def test_the_right_to_retain_is_asked_in_addition(start: Start, retain: bool, may: bool) -> None:
    broker = start(access=[deny("retain", "a"), ANYTHING])
    assert published(broker.join("client"), "a", retain=retain) is may
    assert broker.world.stored(["a"]) == {}


@pytest.mark.parametrize(
    ("client_id", "username", "topic", "may"),
    [
        ("c1", "ann", "of/c1", True),
        ("c1", "ann", "of/c2", False),
        ("c1", "ann", "by/ann/x", True),
        ("c1", "ann", "by/bob/x", False),
        ("+", "ann", "of/c1", False),
        ("c1", "#", "by/ann/x", False),
        ("a/b", "ann", "of/a/b", False),
    ],
)
def test_a_pattern_stands_for_the_name_and_never_for_more(
    start: Start, client_id: str, username: str, topic: str, may: bool
) -> None:
    rules = [allow("all", "of/%c"), allow("all", "by/%u/#")]
    client = start(access=rules, auth__no_match="deny").join(client_id, username=username)
    assert published(client, topic) is may


@pytest.mark.parametrize(
    ("topic_filter", "code"), [("a/b", 0), ("a/+", 0), ("a/#", 0), ("#", 0x87), ("+/b", 0x87), ("b", 0x87)]
)
def test_a_subscription_must_lie_within_what_is_allowed(start: Start, topic_filter: str, code: int) -> None:
    client = start(access=[allow("all", "a/#")], auth__no_match="deny").join("client")
    assert client.subscribe(topic_filter, check=False).codes == [code]


@pytest.mark.parametrize("action", ["receive", "subscribe"])
def test_a_wide_subscription_does_not_bring_what_is_denied(start: Start, action: str) -> None:
    broker = start(access=[deny(action, "secret/#"), ANYTHING])
    client, writer = broker.join("client"), broker.join("writer")
    writer.publish("secret/old", b"1", retain=True)
    writer.publish("open/old", b"1", retain=True)
    client.subscribe("#")
    writer.publish("secret/new", b"1")
    writer.publish("open/new", b"1")
    assert [topic for topic, *_ in client.copies()] == ["open/old", "open/new"]


def test_a_shared_group_is_no_way_around_a_rule(start: Start) -> None:
    broker = start(access=[deny("receive", "a", user="bob"), ANYTHING])
    ann, bob = broker.join("ann", username="ann"), broker.join("bob", username="bob")
    for member in (ann, bob):
        member.subscribe("$share/g/a")
    writer = broker.join("writer")
    for number in range(3):
        writer.publish("a", str(number))
    assert (ann.payloads(), bob.payloads()) == (["0", "1", "2"], [])


# When the rules change


def test_new_rules_hold_for_the_next_publish(start: Start) -> None:
    broker = start(access=[ANYTHING])
    client = broker.join("client")
    assert published(client, "a")
    broker.set_rules([deny("publish", "a"), ANYTHING])
    assert not published(client, "a")
    broker.set_rules([ANYTHING])
    assert published(client, "a")


def test_new_rules_hold_for_subscriptions_that_exist(start: Start) -> None:
    broker = start(access=[ANYTHING])
    client, writer = broker.join("client"), broker.join("writer")
    client.subscribe("a")
    writer.publish("a", b"1")
    broker.set_rules([deny("receive", "a"), ANYTHING])
    writer.publish("a", b"2")
    assert client.payloads() == ["1"]


def test_what_waits_is_not_sent_when_the_right_is_gone(start: Start) -> None:
    broker = start(access=[ANYTHING])
    client, writer = broker.join("client", keep=True), broker.join("writer")
    client.subscribe("#", qos=1)
    client.cut()
    writer.publish("secret", b"1", qos=1)
    writer.publish("open", b"1", qos=1)
    broker.set_rules([deny("receive", "secret"), ANYTHING])
    assert [topic for topic, *_ in broker.join("client", keep=True).copies()] == ["open"]


def test_what_was_under_way_is_not_sent_again_when_the_right_is_gone(start: Start) -> None:
    broker = start(access=[ANYTHING])
    client, writer = broker.join("client", keep=True), broker.join("writer")
    client.subscribe("#", qos=1)
    writer.publish("secret", b"1", qos=1)
    client.cut()
    broker.set_rules([deny("receive", "secret"), ANYTHING])
    back = broker.join("client", keep=True, properties=[(P.RECEIVE_MAXIMUM, 1)])
    writer.publish("open", b"1", qos=1)
    assert [topic for topic, *_ in back.copies()] == ["open"], "and its place in the window is free"


@pytest.mark.parametrize(("checked", "shown"), [(True, []), (False, ["a"])])
def test_what_was_retained_is_shown_while_its_publisher_might_still_put_it_there(
    start: Start, checked: bool, shown: list[str]
) -> None:
    broker = start(access=[ANYTHING], auth__check_retain_source=checked)
    broker.join("writer", username="eve").publish("a", b"1", retain=True)
    broker.set_rules([deny("publish", "a", user="eve"), ANYTHING])
    client = broker.join("client")
    client.subscribe("a")
    assert [topic for topic, *_ in client.copies()] == shown


def test_no_topic_can_be_taken_for_a_retained_one_with_another_name(start: Start) -> None:
    """A topic of 0x7272 bytes: its length is spelt `rr` in front of it, and `r` was what marked a retained publish."""
    broker = start(access=[allow("all", "%u/#")])
    mallory = broker.join("c", username="qadmin")
    own = "qadmin/" + "x" * (0x7272 - 7)
    forbidden = own[1:]
    assert not published(mallory, forbidden, retain=True)
    broker.set_rules([allow("all", "%u/#")])  # what was remembered is forgotten
    assert published(mallory, own)
    assert not published(mallory, forbidden, retain=True)


def test_a_route_does_not_outlive_the_certificate_that_it_was_made_for(start: Start) -> None:
    """Also one that was made while the client was away, when it counts as one that will show a certificate."""
    rule = {**allow("all", "secure/#"), "certificate": True}
    broker = start(access=[rule, allow("all", "open/#"), {**allow("publish", "#"), "user": "writer"}])
    writer = broker.join("w", username="writer")
    properties = [(P.SESSION_EXPIRY, 600)]

    def alice(identity: str) -> CoreClient:
        client = broker.client(5)
        client.link.connection = broker.world.broker.open(client.link.peer, broker.world.now_ms, identity)
        client.connect("a", username="alice", clean=False, properties=properties, keep_alive=0)
        return client

    certified = alice("alice")
    certified.subscribe("secure/door")
    writer.publish("secure/door", b"1")
    assert [message.payload for message in certified.messages(1)] == [b"1"]
    plain = alice("")
    writer.publish("secure/door", b"2")
    assert plain.arrived() == []
    plain.cut()
    writer.publish("secure/door", b"3")  # the route of an absent client
    again = alice("")
    writer.publish("secure/door", b"4")
    assert again.arrived() == []
