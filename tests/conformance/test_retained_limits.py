"""Matrix section M: how much is kept. Over a limit a publish is still delivered, and never dropped in silence."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from broker_process import BrokerProcess, Unique
from stage import BOTH, ONLY_5, ONLY_311, OURS, Actor, Copy, P, Stage

pytestmark = pytest.mark.told_clock

ACCEPTED = (0x00, 0x10)  # success, with or without anyone listening
QUOTA_EXCEEDED = 0x97


@BOTH
@pytest.mark.matrix("M1")
def test_at_the_message_limit_a_new_topic_is_delivered_and_not_kept(staged: Callable[..., Stage], version: int) -> None:
    stage = staged(retainer__max_retained_messages=2)
    publisher, live = stage.client(version), stage.client(version)
    live.subscribe("c", qos=1)
    for topic in ("a", "b"):
        assert publisher.publish(topic, "1", qos=1, retain=True) in ACCEPTED
    assert publisher.publish("c", "1", qos=1, retain=True) == 0
    assert publisher.publish("c", "2", qos=2, retain=True) == 0
    live.receives(Copy("c", "1", qos=1), Copy("c", "2", qos=1))
    assert stage.stored(version) == {"a": b"1", "b": b"1"}


@BOTH
@pytest.mark.matrix("M1")
def test_without_a_limit_there_is_room(staged: Callable[..., Stage], version: int) -> None:
    stage = staged(retainer__max_retained_messages=0)
    publisher = stage.client(version)
    for number in range(200):
        publisher.send_publish(f"t{number}", "1", retain=True)
    publisher.wire.ping()
    assert len(stage.stored(version)) == 200


@BOTH
@pytest.mark.matrix("M2")
def test_at_the_limit_replacing_works_and_deleting_makes_room(staged: Callable[..., Stage], version: int) -> None:
    stage = staged(retainer__max_retained_messages=2)
    publisher = stage.client(version)
    for topic in ("a", "b"):
        publisher.publish(topic, "1", qos=1, retain=True)
    publisher.publish("a", "2", qos=1, retain=True)
    publisher.publish("c", "1", qos=1, retain=True)
    assert stage.stored(version) == {"a": b"2", "b": b"1"}
    publisher.publish("b", "", qos=1, retain=True)
    publisher.publish("c", "1", qos=1, retain=True)
    publisher.publish("d", "1", qos=1, retain=True)
    assert stage.stored(version) == {"a": b"2", "c": b"1"}


@ONLY_5
@pytest.mark.matrix("M2")
def test_at_the_limit_expired_messages_make_room_before_anything_is_refused(
    staged: Callable[..., Stage], version: int
) -> None:
    stage = staged(retainer__max_retained_messages=2)
    publisher = stage.client(version)
    publisher.publish("a", "1", retain=True)
    publisher.publish("b", "1", retain=True, properties=[(P.MESSAGE_EXPIRY, 1)])
    stage.pass_time(1.2)
    publisher.publish("c", "1", retain=True)
    assert stage.stored(version) == {"a": b"1", "c": b"1"}


@BOTH
@pytest.mark.matrix("M3")
@pytest.mark.parametrize("limit", [10, "10B"])
def test_payload_above_the_limit_is_delivered_and_not_kept(
    staged: Callable[..., Stage], version: int, limit: int | str
) -> None:
    stage = staged(retainer__max_payload_size=limit)
    publisher, live = stage.client(version), stage.client(version)
    live.subscribe("#", qos=1)
    assert publisher.publish("fits", "x" * 10, qos=1, retain=True) in ACCEPTED
    assert publisher.publish("over", "x" * 11, qos=1, retain=True) in ACCEPTED
    live.receives(Copy("fits", "x" * 10, qos=1), Copy("over", "x" * 11, qos=1))
    assert stage.stored(version) == {"fits": b"x" * 10}


@BOTH
@pytest.mark.matrix("M3")
def test_payload_limit_0_is_no_limit(staged: Callable[..., Stage], version: int) -> None:
    stage = staged(retainer__max_payload_size=0)
    payload = b"x" * 1_500_000
    stage.client(version).publish("a", payload, qos=1, retain=True)
    assert stage.stored(version) == {"a": payload}


@BOTH
@OURS
@pytest.mark.matrix("M3")
@pytest.mark.parametrize(("size", "kept"), [(1024 * 1024, True), (1024 * 1024 + 1, False)])
def test_payload_limit_is_one_mebibyte_unless_set(stage: Stage, version: int, size: int, kept: bool) -> None:
    stage.client(version).publish("a", b"x" * size, qos=1, retain=True)
    assert ("a" in stage.stored(version)) == kept


@BOTH
@pytest.mark.matrix("M4")
def test_oversized_publish_leaves_the_older_message_alone(staged: Callable[..., Stage], version: int) -> None:
    stage = staged(retainer__max_payload_size=10)
    publisher = stage.client(version)
    publisher.publish("a", "1", qos=1, retain=True)
    publisher.publish("a", "x" * 11, qos=1, retain=True)
    assert stage.stored(version) == {"a": b"1"}


@BOTH
@pytest.mark.matrix("M4")
def test_oversized_publish_removes_the_older_message_in_strict_mode(staged: Callable[..., Stage], version: int) -> None:
    stage = staged(retainer__max_payload_size=10, retainer__strict=True)
    publisher = stage.client(version)
    publisher.publish("a", "1", qos=1, retain=True)
    publisher.publish("b", "1", qos=1, retain=True)
    publisher.publish("a", "x" * 11, qos=1, retain=True, check=False)
    assert stage.stored(version) == {"b": b"1"}


@ONLY_5
@pytest.mark.matrix("M7")
@pytest.mark.parametrize("qos", [1, 2])
def test_strict_mode_tells_a_publisher_that_its_message_is_not_kept(
    staged: Callable[..., Stage], version: int, qos: int
) -> None:
    stage = staged(retainer__max_retained_messages=1, retainer__max_payload_size=10, retainer__strict=True)
    publisher, live = stage.client(version), stage.client(version)
    live.subscribe("+", qos=2)
    assert publisher.publish("a", "1", qos=qos, retain=True, check=False) in ACCEPTED
    assert publisher.publish("b", "1", qos=qos, retain=True, check=False) == QUOTA_EXCEEDED
    assert publisher.publish("c", "x" * 11, qos=qos, retain=True, check=False) == QUOTA_EXCEEDED
    assert publisher.publish("a", "2", qos=qos, retain=True, check=False) in ACCEPTED
    assert publisher.publish("b", "3", qos=qos, retain=False, check=False) in ACCEPTED
    live.receives(Copy("a", "1", qos=qos), Copy("a", "2", qos=qos), Copy("b", "3", qos=qos))
    assert stage.stored(version) == {"a": b"2"}


@ONLY_311
@pytest.mark.matrix("M7")
def test_strict_mode_delivers_what_comes_from_311_which_cannot_be_told(
    staged: Callable[..., Stage], version: int
) -> None:
    stage = staged(retainer__max_retained_messages=1, retainer__strict=True)
    publisher, live = stage.client(version), stage.client(version)
    live.subscribe("b", qos=2)
    publisher.publish("a", "1", qos=1, retain=True)
    publisher.publish("b", "1", qos=1, retain=True)
    publisher.publish("b", "2", qos=2, retain=True)
    live.receives(Copy("b", "1", qos=1), Copy("b", "2", qos=2))
    assert stage.stored(version) == {"a": b"1"}


@ONLY_5
@pytest.mark.matrix("M8")
def test_message_that_is_not_kept_is_delivered_with_the_flag_as_published(
    staged: Callable[..., Stage], version: int
) -> None:
    stage = staged(retainer__max_retained_messages=1)
    publisher, live = stage.client(version), stage.client(version)
    live.subscribe("#", rap=True)
    publisher.publish("a", "1", retain=True)
    publisher.publish("c", "1", retain=True)
    live.receives(Copy("a", "1", retain=True), Copy("c", "1", retain=True))
    assert set(stage.stored(version)) == {"a"}


@BOTH
@pytest.mark.matrix("M9")
def test_lowering_the_limit_deletes_nothing(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path, unique: Unique, version: int
) -> None:
    config = tmp_path / "holdfast.toml"
    config.write_text("[retainer]\nmax_retained_messages = 5\n")
    broker = start_broker(args=["--config", str(config)])
    with Stage(broker, unique) as stage:
        publisher = stage.client(version)
        for topic in ("a", "b", "c"):
            publisher.publish(topic, "1", qos=1, retain=True)
        config.write_text("[retainer]\nmax_retained_messages = 2\n")
        broker.signal(signal.SIGHUP)
        wait_until_refused(publisher, stage, version)
        publisher.publish("a", "2", qos=1, retain=True)
        publisher.publish("new", "1", qos=1, retain=True)
        assert stage.stored(version) == {"a": b"2", "b": b"1", "c": b"1"}
        for topic in ("b", "c"):
            publisher.publish(topic, "", qos=1, retain=True)
        publisher.publish("new", "1", qos=1, retain=True)
        assert stage.stored(version) == {"a": b"2", "new": b"1"}


def wait_until_refused(publisher: Actor, stage: Stage, version: int) -> None:
    """The new limit is in force when a topic that would have fitted is no longer kept."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        publisher.publish("probe", "1", qos=1, retain=True)
        if "probe" not in stage.stored(version):
            return
        publisher.publish("probe", "", qos=1, retain=True)
    raise AssertionError("expected the lowered limit to take effect within a minute of SIGHUP")
