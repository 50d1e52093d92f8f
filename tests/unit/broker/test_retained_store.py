"""What is kept for a topic, and the verdict on every publish that wants to be kept: limits, policies, expiry, sums.

A message is as large as its topic, payload and properties together; topics here have one letter.
"""

from collections.abc import Callable
from typing import Any

import pytest

from core_broker import CoreBroker, CoreClient
from holdfast.broker.message import NEVER, REFUSED_BUDGET, REFUSED_SIZE, SET, Message, Publisher, topic_field
from wire import P, Publish

Start = Callable[..., CoreBroker]
TOPICS = "abcdefg"

QUOTA_EXCEEDED = 0x97
NOT_AUTHORIZED = 0x87


def put(client: CoreClient, *messages: str, **fields: Any) -> list[int]:
    """Publish messages such as `a=1` with RETAIN at QoS 1; the reasons they are acknowledged with."""
    reasons = []
    for message in messages:
        topic, _, payload = message.partition("=")
        answer = client.publish(topic, payload, qos=1, retain=True, check=False, **fields)
        assert answer is not None
        reasons.append(answer.reason)
    return reasons


def kept(broker: CoreBroker, topics: str | list[str] = TOPICS) -> dict[str, str]:
    return {topic: payload.decode() for topic, payload in broker.world.stored(topics).items()}


def lives(seconds: int) -> list[tuple[int, int]]:
    return [(P.MESSAGE_EXPIRY, seconds)]


# Setting and clearing


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (["a=1"], {"a": "1"}),
        (["a=1", "a=2"], {"a": "2"}),
        (["a=1", "b=1"], {"a": "1", "b": "1"}),
        (["a=1", "a="], {}),
        (["a="], {}),
        (["a=1", "a=", "a=2"], {"a": "2"}),
        (["a=1", "b="], {"a": "1"}),
    ],
)
def test_the_last_message_of_a_topic_is_kept_and_an_empty_one_clears(
    broker: CoreBroker, steps: list[str], expected: dict[str, str]
) -> None:
    put(broker.join("writer"), *steps)
    assert kept(broker) == expected


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("payload", [b"2", b""])
def test_a_publish_without_retain_leaves_the_store_alone(broker: CoreBroker, qos: int, payload: bytes) -> None:
    writer = broker.join("writer")
    put(writer, "a=1")
    writer.publish("a", payload, qos=qos)
    assert kept(broker) == {"a": "1"}


def test_count_and_size_are_those_of_what_is_kept(broker: CoreBroker) -> None:
    writer = broker.join("writer")
    put(writer, "a=123", "b=1", "a=12345", "c=1", "c=")
    assert broker.world.sums() == (2, len("a12345") + len("b1"))
    put(writer, "a=", "b=")
    assert broker.world.sums() == (0, 0)


# Limits

LIMITED = [
    pytest.param({"max_payload_size": 3}, ["a=123", "b=1234"], {"a": "123"}, id="payload"),
    pytest.param({"max_payload_size": 3}, ["a=1", "a=1234"], {"a": "1"}, id="payload of a topic that is kept"),
    pytest.param({"max_payload_size": 0}, ["a=" + "x" * 99], {"a": "x" * 99}, id="payload without limit"),
    pytest.param({"max_retained_messages": 2}, ["a=1", "b=1", "c=1"], {"a": "1", "b": "1"}, id="messages"),
    pytest.param(
        {"max_retained_messages": 2}, ["a=1", "b=1", "a=2"], {"a": "2", "b": "1"}, id="replacing at the limit"
    ),
    pytest.param({"max_retained_messages": 1}, ["a=1", "a=", "b=1"], {"b": "1"}, id="clearing makes room"),
    pytest.param({"max_bytes": 6}, ["a=12", "b=12", "c=1"], {"a": "12", "b": "12"}, id="bytes"),
    pytest.param({"max_bytes": 6}, ["a=12", "b=12", "a=1", "c="], {"a": "1", "b": "12"}, id="less at the byte limit"),
    pytest.param({"max_bytes": 6}, ["a=12", "b=12", "a=123"], {"a": "12", "b": "12"}, id="more at the byte limit"),
    pytest.param({"max_bytes": 6}, ["a=12", "b=12", "a=34"], {"a": "34", "b": "12"}, id="as much at the byte limit"),
    pytest.param({"max_messages_per_user": 1}, ["a=1", "b=1"], {"a": "1"}, id="messages of one user"),
    pytest.param({"max_bytes_per_user": 4}, ["a=1", "b=1", "c=1"], {"a": "1", "b": "1"}, id="bytes of one user"),
]


@pytest.mark.parametrize(("limits", "steps", "expected"), LIMITED)
def test_what_is_over_a_limit_is_not_kept_and_what_was_there_stays(
    start: Start, limits: dict[str, Any], steps: list[str], expected: dict[str, str]
) -> None:
    broker = start(**{f"retainer__{key}": value for key, value in limits.items()})
    reasons = put(broker.join("writer"), *steps)
    assert kept(broker) == expected
    assert set(reasons) == {0x10}, "it is accepted all the same, and nobody listens"


@pytest.mark.parametrize(("limits", "steps", "expected"), LIMITED)
def test_what_is_over_a_limit_is_delivered_live(
    start: Start, limits: dict[str, Any], steps: list[str], expected: dict[str, str]
) -> None:
    broker = start(**{f"retainer__{key}": value for key, value in limits.items()})
    reader = broker.join("reader")
    reader.subscribe("#")
    put(broker.join("writer"), *steps)
    assert [f"{topic}={payload}" for topic, payload, *_ in reader.copies()] == steps


def test_the_limit_of_one_user_is_not_that_of_another(start: Start) -> None:
    broker = start(retainer__max_messages_per_user=1)
    ann, bob = broker.join("ann", username="ann"), broker.join("bob", username="bob")
    put(ann, "a=1", "b=1")
    put(bob, "c=1", "d=1")
    assert kept(broker) == {"a": "1", "c": "1"}


def test_a_topic_counts_for_the_user_who_wrote_it_last(start: Start) -> None:
    broker = start(retainer__max_messages_per_user=1)
    ann, bob = broker.join("ann", username="ann"), broker.join("bob", username="bob")
    put(ann, "a=1")
    put(bob, "a=2", "b=1")
    put(ann, "c=1")
    assert kept(broker) == {"a": "2", "c": "1"}


@pytest.mark.parametrize("limit", [{"max_messages_per_user": 1}, {"max_bytes_per_user": 3}], ids=str)
def test_who_has_no_more_room_cannot_take_the_topic_of_another(start: Start, limit: dict[str, int]) -> None:
    broker = start(**{f"retainer__{key}": value for key, value in limit.items()})
    ann, bob = broker.join("ann", username="ann"), broker.join("bob", username="bob")
    put(ann, "a=1")
    put(bob, "b=1", "a=2", "b=2")
    assert kept(broker) == {"a": "1", "b": "2"}


@pytest.mark.parametrize(
    ("version", "steps", "reasons", "expected"),
    [
        (5, ["a=1", "b=1"], [0x10, QUOTA_EXCEEDED], {"a": "1"}),
        (5, ["a=1", "a=1234"], [0x10, QUOTA_EXCEEDED], {}),
        (4, ["a=1", "b=1"], [0, 0], {"a": "1"}),
        (4, ["a=1", "a=1234"], [0, 0], {}),
    ],
)
def test_strict_limits_tell_the_publisher_and_keep_nothing_older(
    start: Start, version: int, steps: list[str], reasons: list[int], expected: dict[str, str]
) -> None:
    broker = start(retainer__strict=True, retainer__max_retained_messages=1, retainer__max_payload_size=3)
    assert put(broker.join("writer", version), *steps) == reasons
    assert kept(broker) == expected


@pytest.mark.parametrize(("version", "heard"), [(5, []), (4, ["1234"])])
def test_under_strict_limits_who_is_told_no_is_not_delivered(start: Start, version: int, heard: list[str]) -> None:
    broker = start(retainer__strict=True, retainer__max_payload_size=3)
    reader = broker.join("reader")
    reader.subscribe("a")
    put(broker.join("writer", version), "a=1234")
    assert reader.payloads() == heard


# Policies


def policy(topic_filter: str, **fields: Any) -> dict[str, Any]:
    return {"filter": topic_filter, **fields}


@pytest.mark.parametrize(
    ("policies", "steps", "expected"),
    [
        ([policy("a", action="drop-flag")], ["a=1", "b=1"], ["b"]),
        ([policy("a", action="refuse")], ["a=1", "b=1"], ["b"]),
        ([policy("a"), policy("#", action="refuse")], ["a=1", "b=1"], ["a"]),
        ([policy("#", action="refuse"), policy("a")], ["a=1", "b=1"], []),
        ([policy("+", max_messages=1)], ["a=1", "b=1", "x/y=1"], ["a", "x/y"]),
        ([policy("+", max_bytes=4)], ["a=1", "b=1", "c=1"], ["a", "b"]),
        ([policy("a", action="refuse", users=["bob"])], ["a=1"], ["a"]),
        ([policy("a", action="refuse", users=["ann"])], ["a=1"], []),
    ],
)
def test_the_first_policy_that_matches_topic_and_user_decides(
    start: Start, policies: list[dict[str, Any]], steps: list[str], expected: list[str]
) -> None:
    broker = start(retainer__policy=policies)
    put(broker.join("writer", username="ann"), *steps)
    assert sorted(kept(broker, ["a", "b", "c", "x/y"])) == expected


def test_a_dropped_flag_leaves_an_ordinary_message(start: Start) -> None:
    broker = start(retainer__policy=[policy("a", action="drop-flag")])
    reader = broker.join("reader")
    reader.subscribe("a", qos=1, retain_as_published=True)
    assert put(broker.join("writer"), "a=1") == [0]
    assert reader.copies() == [("a", "1", 1, False)]


def test_a_refusing_policy_tells_the_publisher_and_delivers_nothing(start: Start) -> None:
    broker = start(retainer__policy=[policy("a", action="refuse")])
    reader = broker.join("reader")
    reader.subscribe("a")
    assert put(broker.join("writer"), "a=1") == [NOT_AUTHORIZED]
    assert reader.copies() == []


def test_a_policy_may_say_how_long_its_topics_live(start: Start) -> None:
    broker = start(retainer__policy=[policy("a", ttl=5)], retainer__expiry_interval=20)
    writer = broker.join("writer")
    put(writer, "a=1", "b=1")
    put(writer, "c=1", properties=lives(30))
    found = []
    elapsed = 0
    for second in (4, 5, 19, 20, 29, 30):
        broker.pass_time(second - elapsed)
        elapsed = second
        found.append("".join(sorted(kept(broker))))
    assert found == ["abc", "bc", "bc", "c", "c", ""]


# Expiry


@pytest.mark.parametrize(("waited", "found"), [(9.999, True), (10, False)])
def test_a_message_is_gone_to_the_millisecond(broker: CoreBroker, waited: float, found: bool) -> None:
    put(broker.join("writer"), "a=1", properties=lives(10))
    broker.pass_time(waited)
    reader = broker.join("reader")
    reader.subscribe("a")
    assert bool(reader.copies()) is found


def test_expired_messages_leave_the_sums(broker: CoreBroker) -> None:
    writer = broker.join("writer")
    put(writer, "a=123", "b=123", properties=lives(10))
    put(writer, "c=12")
    broker.pass_time(10.2)
    assert broker.world.sums() == (1, 3)
    assert not broker.world.holds("a")


@pytest.mark.parametrize(
    "limits",
    [{"max_retained_messages": 1}, {"max_bytes": 2}, {"max_messages_per_user": 1}],
    ids=lambda limit: str(limit),
)
def test_what_has_expired_makes_room_before_it_is_swept(start: Start, limits: dict[str, int]) -> None:
    broker = start(**{f"retainer__{key}": value for key, value in limits.items()})
    writer = broker.join("writer")
    put(writer, "a=1", properties=lives(10))
    broker.world.advance(10_000)
    put(writer, "b=1")
    assert kept(broker) == {"b": "1"}


@pytest.mark.parametrize(
    ("limits", "outcome"),
    [
        ({"max_bytes": 2}, REFUSED_BUDGET),
        ({"max_messages_per_user": 1}, REFUSED_BUDGET),
        ({"max_payload_size": 1}, REFUSED_SIZE),
        ({"max_retained_messages": 1}, SET),
    ],
    ids=lambda value: str(value),
)
def test_asking_for_the_verdict_changes_nothing(start: Start, limits: dict[str, int], outcome: int) -> None:
    """Not even where what has expired stands in the way, which a publish would remove."""
    broker = start(**{f"retainer__{key}": value for key, value in limits.items()})
    put(broker.join("writer"), "a=1", properties=lives(10))
    broker.world.advance(10_000)
    store, now_ms = broker.world.broker.retained, broker.world.now_ms
    asked = Message(topic_field(b"b"), b"12", 1, True, b"", Publisher("writer", "", "5.0"), 0, now_ms, NEVER, False)
    before = broker.world.sums(), store.expired, list(store.refused), store.version
    assert store.judge(asked, None, now_ms) == outcome
    assert (broker.world.sums(), store.expired, list(store.refused), store.version) == before
    assert store.index.get(b"a") is not None


def test_an_interval_of_0_replaces_and_is_gone(broker: CoreBroker) -> None:
    writer = broker.join("writer")
    put(writer, "a=1")
    put(writer, "a=2", properties=lives(0))
    assert kept(broker) == {}
    assert broker.world.sums() == (0, 0)


def test_a_replacement_begins_a_life_of_its_own(broker: CoreBroker) -> None:
    writer = broker.join("writer")
    put(writer, "a=1", properties=lives(10))
    put(writer, "b=1", properties=lives(10))
    broker.pass_time(9)
    put(writer, "a=2", properties=lives(10))
    put(writer, "b=2")
    broker.pass_time(9)
    assert kept(broker) == {"a": "2", "b": "2"}
    broker.pass_time(3600)
    assert kept(broker) == {"b": "2"}


@pytest.mark.parametrize(("given", "shown"), [(lives(100), 91), ([], None)], ids=["publisher's", "default"])
def test_only_a_publishers_own_interval_is_shown_to_readers(
    start: Start, given: list[tuple[int, int]], shown: int | None
) -> None:
    broker = start(retainer__expiry_interval=100)
    put(broker.join("writer"), "a=1", properties=given)
    broker.pass_time(9)
    reader = broker.join("reader")
    reader.subscribe("a")
    (message,) = reader.arrived()
    assert isinstance(message, Publish)
    assert message.prop(P.MESSAGE_EXPIRY) == shown


def test_many_messages_that_expire_at_once_all_leave(broker: CoreBroker) -> None:
    writer = broker.join("writer")
    for number in range(3000):
        writer.send_publish(f"t/{number}", b"1", retain=True, properties=lives(10))
    assert broker.world.sums()[0] == 3000
    broker.pass_time(10.1)
    assert broker.world.sums() == (0, 0)
