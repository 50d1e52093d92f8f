"""Matrix rows R10 to R12 and section S: end marker, metadata and delta, which a 5.0 client asks for."""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from stage import BOTH, ONLY_5, OURS, Actor, Copy, P, Stage, user
from wire import subscribe
from wire_properties import Property

MARKER = "$holdfast/snapshot/end"
MARK = user("holdfast-snapshot", "mark")
META = user("holdfast-retained-meta", "on")

pytestmark = [OURS, pytest.mark.told_clock]


def marker_of(copies: list[Copy]) -> dict[str, Any]:
    """The one end marker, which must be the last of the copies."""
    assert [copy.topic for copy in copies].count(MARKER) == 1, f"expected one marker in {copies}"
    last = copies[-1]
    assert last.topic == MARKER, f"expected the marker last in {copies}"
    assert (last.qos, last.retain) == (0, False)
    loaded = json.loads(last.payload)
    assert isinstance(loaded, dict)
    assert set(loaded) >= {"filter", "count", "version", "full"}
    return loaded


def collect(actor: Actor) -> list[Copy]:
    """Copies up to and including the end marker."""
    out: list[Copy] = []
    while not out or out[-1].topic != MARKER:
        more = actor.take(1)
        assert more, f"no end marker after {out}"
        out += more
    return out


@ONLY_5
@pytest.mark.matrix("R10")
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("count", [0, 1, 700])
def test_end_marker_follows_the_last_copy_and_tells_filter_count_and_version(
    stage: Stage, version: int, count: int, qos: int
) -> None:
    publisher, subscriber = stage.client(version), stage.client(version, properties=[MARK])
    publisher.fill({f"a/{number}": "1" for number in range(count)}, qos=qos)
    subscriber.subscribe("a/#", qos=qos)
    copies = collect(subscriber)
    marker = marker_of(copies)
    assert len(copies) == count + 1
    assert marker["filter"] == subscriber.full("a/#")
    assert marker["count"] == count
    assert marker["full"] is True
    assert isinstance(marker["version"], int)
    assert subscriber.rest() == []


@ONLY_5
@pytest.mark.matrix("R10")
@pytest.mark.parametrize(("asking", "told"), [([MARK], [("holdfast-snapshot", "mark")]), ([], []), ([META], [])])
def test_connack_tells_those_who_ask_that_ends_are_marked(
    stage: Stage, version: int, asking: list[Property], told: list[tuple[str, str]]
) -> None:
    connack = stage.client(version, properties=asking).wire.connack
    assert connack is not None
    assert connack.props(P.USER_PROPERTY) == told


@ONLY_5
@pytest.mark.matrix("R10")
@pytest.mark.parametrize(("limit", "told"), [(30, False), (100, True)])
def test_connack_says_nothing_of_marks_that_would_not_fit(stage: Stage, version: int, limit: int, told: bool) -> None:
    connack = stage.client(version, properties=[MARK, (P.MAXIMUM_PACKET_SIZE, limit)]).wire.connack
    assert connack is not None
    assert bool(connack.props(P.USER_PROPERTY)) is told


@ONLY_5
@pytest.mark.matrix("R10")
def test_version_grows_with_every_change_of_the_set(stage: Stage, version: int) -> None:
    publisher = stage.client(version)
    versions = []
    for payload in ("1", "2", ""):
        publisher.publish("a", payload, qos=1, retain=True)
        reader = stage.client(version, properties=[MARK])
        reader.subscribe("a")
        versions.append(marker_of(collect(reader))["version"])
    assert versions == sorted(set(versions))


@ONLY_5
@pytest.mark.matrix("R10")
def test_each_filter_of_a_subscribe_has_its_own_marker(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version, properties=[MARK])
    publisher.publish("a/b", "1", retain=True)
    subscriber.subscribe("a/b", "a/#", "none")
    markers = [json.loads(copy.payload) for copy in subscriber.rest() if copy.topic == MARKER]
    found = {marker["filter"]: marker["count"] for marker in markers}
    assert len(markers) == 3
    assert found == {subscriber.full("a/b"): 1, subscriber.full("a/#"): 1, subscriber.full("none"): 0}


@ONLY_5
@pytest.mark.matrix("R10")
def test_subscription_that_is_sent_no_snapshot_has_no_marker(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version, properties=[MARK])
    publisher.publish("a", "1", retain=True)
    subscriber.subscribe("a", rh=2)
    subscriber.subscribe("$share/g/a")
    subscriber.receives()


@BOTH
@pytest.mark.matrix("R11")
def test_without_asking_there_is_no_marker_and_no_metadata(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version)
    publisher.publish("a", "1", retain=True)
    subscriber.subscribe("a", MARKER)
    (copy,) = subscriber.receives(Copy("a", "1", retain=True))
    assert copy.packet.properties == []


@BOTH
@pytest.mark.matrix("R11")
def test_nobody_else_can_send_an_end_marker(stage: Stage, version: int) -> None:
    publisher = stage.client(version)
    subscriber = stage.client(5, properties=[MARK])
    subscriber.subscribe("$holdfast/#")
    marker_of(collect(subscriber))
    publisher.publish(MARKER, "fake", qos=1, check=False)
    publisher.publish(MARKER, "fake", qos=0, retain=True)
    subscriber.receives()


@ONLY_5
@pytest.mark.matrix("R12")
def test_copies_carry_offset_time_and_publisher_on_request(stage: Stage, version: int) -> None:
    begin = stage.now()
    publisher, subscriber = stage.client(version, "p"), stage.client(version, properties=[META])
    publisher.publish("a", "1", qos=1, retain=True, properties=[user("own", "kept")])
    publisher.publish("b", "2", qos=1, retain=True)
    subscriber.subscribe("+", qos=1)
    copies = {copy.topic: copy for copy in subscriber.take(2)}
    offsets = []
    for copy in copies.values():
        stored_at = datetime.fromisoformat(copy.user("hf-stored-at") or "")
        assert stored_at.tzinfo is not None, "ISO 8601 with its offset from UTC"
        assert begin - 1 <= stored_at.timestamp() <= stage.now() + 1
        assert copy.user("hf-publisher") == stage.unique.client("p")
        offsets.append(int(copy.user("hf-offset") or ""))
    assert copies["a"].user("own") == "kept"
    assert int(copies["a"].user("hf-offset") or "") < int(copies["b"].user("hf-offset") or "")
    assert len(set(offsets)) == 2


@ONLY_5
@pytest.mark.matrix("R12")
def test_live_copies_carry_no_metadata(stage: Stage, version: int) -> None:
    publisher, subscriber = stage.client(version), stage.client(version, properties=[META])
    subscriber.subscribe("a", rap=True)
    publisher.publish("a", "1", retain=True)
    (copy,) = subscriber.receives(Copy("a", "1", retain=True))
    assert copy.packet.properties == []


@ONLY_5
@pytest.mark.matrix("S1", "S2")
def test_delta_sends_what_changed_and_deletions_as_empty_messages(stage: Stage, version: int) -> None:
    publisher, reader = stage.client(version), stage.client(version, properties=[MARK])
    for topic in ("same", "changed", "deleted", "revived"):
        publisher.publish(topic, "1", qos=1, retain=True)
    reader.subscribe("#")
    known = marker_of(collect(reader))["version"]
    reader.unsubscribe("#")
    publisher.publish("changed", "2", qos=1, retain=True)
    publisher.publish("deleted", "", qos=1, retain=True)
    publisher.publish("revived", "", qos=1, retain=True)
    publisher.publish("revived", "2", qos=1, retain=True)
    publisher.publish("new", "1", qos=1, retain=True)
    publisher.publish("passing", "1", qos=1, retain=True)
    publisher.publish("passing", "", qos=1, retain=True)
    publisher.publish("same", "event", qos=1)
    reader.subscribe("#", since=known)
    copies = collect(reader)
    marker = marker_of(copies)
    sent = {copy.topic: copy.payload for copy in copies[:-1]}
    # A topic that came and went in between may be named as deleted: the reader never knew it.
    assert sent.pop("passing", b"") == b""
    assert sent == {"changed": b"2", "deleted": b"", "revived": b"2", "new": b"1"}
    assert all(copy.retain for copy in copies[:-1])
    assert marker["full"] is False
    assert marker["count"] == len(copies) - 1
    assert marker["version"] > known


@ONLY_5
@pytest.mark.matrix("S2")
def test_delta_names_a_message_that_expired_since(stage: Stage, version: int) -> None:
    publisher, reader = stage.client(version), stage.client(version, properties=[MARK])
    publisher.publish("a", "1", retain=True, properties=[(P.MESSAGE_EXPIRY, 1)])
    publisher.publish("b", "1", retain=True)
    reader.subscribe("#")
    known = marker_of(collect(reader))["version"]
    reader.unsubscribe("#")
    stage.pass_time(2.2)
    reader.subscribe("#", since=known)
    copies = collect(reader)
    assert [(copy.topic, copy.payload, copy.retain) for copy in copies[:-1]] == [("a", b"", True)]
    assert marker_of(copies)["full"] is False


@ONLY_5
@pytest.mark.matrix("S2")
def test_deletions_keep_to_the_filter_and_carry_its_identifier(stage: Stage, version: int) -> None:
    publisher, reader = stage.client(version), stage.client(version, properties=[MARK])
    for topic in ("a/1", "b/1"):
        publisher.publish(topic, "1", qos=1, retain=True)
    reader.subscribe("#")
    known = marker_of(collect(reader))["version"]
    for topic in ("a/1", "b/1"):
        publisher.publish(topic, "", qos=1, retain=True)
    reader.rest()
    reader.subscribe("a/#", since=known, sid=5)
    copies = collect(reader)
    assert [(copy.topic, copy.payload, copy.retain) for copy in copies[:-1]] == [("a/1", b"", True)]
    assert copies[0].prop(P.SUBSCRIPTION_ID) == 5


@ONLY_5
@pytest.mark.matrix("S3")
def test_offset_too_far_back_gives_the_whole_snapshot_and_says_so(staged: Callable[..., Stage], version: int) -> None:
    stage = staged(limits__delta_tombstones=3)
    publisher, reader = stage.client(version), stage.client(version, properties=[MARK])
    publisher.publish("kept", "1", qos=1, retain=True)
    reader.subscribe("#")
    known = marker_of(collect(reader))["version"]
    reader.unsubscribe("#")
    for number in range(10):
        publisher.publish(f"t{number}", "1", qos=1, retain=True)
        publisher.publish(f"t{number}", "", qos=1, retain=True)
    reader.subscribe("#", since=known)
    copies = collect(reader)
    marker = marker_of(copies)
    assert marker["full"] is True
    assert [(copy.topic, copy.payload) for copy in copies[:-1]] == [("kept", b"1")]


@ONLY_5
@pytest.mark.matrix("S3")
def test_offset_from_the_future_gives_the_whole_snapshot(stage: Stage, version: int) -> None:
    publisher, reader = stage.client(version), stage.client(version, properties=[MARK])
    publisher.publish("a", "1", qos=1, retain=True)
    reader.subscribe("#", since=10**15)
    copies = collect(reader)
    assert marker_of(copies)["full"] is True
    assert [(copy.topic, copy.payload) for copy in copies[:-1]] == [("a", b"1")]


@ONLY_5
@pytest.mark.matrix("S4")
def test_delta_with_nothing_new_is_the_marker_alone(stage: Stage, version: int) -> None:
    publisher, reader = stage.client(version), stage.client(version, properties=[MARK])
    publisher.publish("a", "1", qos=1, retain=True)
    reader.subscribe("#")
    known = marker_of(collect(reader))["version"]
    reader.subscribe("#", since=known)
    copies = collect(reader)
    assert len(copies) == 1
    marker = marker_of(copies)
    assert (marker["count"], marker["full"]) == (0, False)


@ONLY_5
@pytest.mark.matrix("S1")
@pytest.mark.parametrize("text", ["", "-1", "soon", "1.5", "9" * 40])
def test_offset_that_is_no_number_is_a_protocol_error(stage: Stage, version: int, text: str) -> None:
    reader = stage.client(version)
    properties = [user("holdfast-since", text)]
    reader.wire.send(subscribe(1, [(reader.full("#"), 0)], version=version, properties=properties))
    reader.wire.expect_disconnect(0x82)
