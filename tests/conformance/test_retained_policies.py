"""Matrix section T: policies about what may be kept, budgets, and the counters of what was not."""

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_process import Unique
from stage import BOTH, ONLY_5, ONLY_311, Actor, Copy, P, Stage, StageBuilder

pytestmark = pytest.mark.told_clock

NOT_AUTHORIZED, QUOTA_EXCEEDED = 0x87, 0x97
COUNTERS = "$SYS/broker/retained messages/"


def policy(topic_filter: str, **rest: Any) -> dict[str, Any]:
    """The topics of a test begin with a level of its own, which `+` stands for."""
    return {"filter": f"+/{topic_filter}", **rest}


@pytest.fixture
def password_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Users alice and bob with the password `secret`, made by mosquitto's own tool."""
    path = tmp_path_factory.getbasetemp() / "passwords"
    if not path.exists():
        path.touch(mode=0o600)
        for name in ("alice", "bob"):
            subprocess.run(["mosquitto_passwd", "-b", str(path), name, "secret"], check=True, capture_output=True)
    return path


def as_user(stage: Stage, version: int, name: str) -> Actor:
    return stage.client(version, username=name, password=b"secret")


@BOTH
@pytest.mark.matrix("T1")
def test_first_matching_policy_decides(staged: Callable[..., Stage], version: int) -> None:
    stage = staged(
        retainer__policy=[
            policy("a/keep/#", action="store"),
            policy("a/#", action="drop-flag"),
            policy("a/drop/really", action="store"),
        ]
    )
    publisher = stage.client(version)
    for topic in ("a/keep/1", "a/drop/really", "a/1", "b/1"):
        publisher.publish(topic, "1", qos=1, retain=True)
    assert set(stage.stored(version)) == {"a/keep/1", "b/1"}


@BOTH
@pytest.mark.matrix("T2")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_drop_flag_delivers_and_keeps_nothing(staged: Callable[..., Stage], version: int, qos: int) -> None:
    stage = staged(retainer__policy=[policy("cmd/#", action="drop-flag")])
    publisher, live = stage.client(version), stage.client(version)
    live.subscribe("#", qos=2)
    assert publisher.publish("cmd/open", "now", qos=qos, retain=True) == 0
    live.receives(Copy("cmd/open", "now", qos=qos, retain=False))
    assert stage.stored(version) == {}


@ONLY_5
@pytest.mark.matrix("T2")
def test_drop_flag_takes_the_flag_away_as_the_name_says(staged: Callable[..., Stage], version: int) -> None:
    stage = staged(retainer__policy=[policy("cmd/#", action="drop-flag")])
    publisher, live = stage.client(version), stage.client(version)
    live.subscribe("#", rap=True)
    publisher.publish("cmd/open", "now", retain=True)
    live.receives(Copy("cmd/open", "now", retain=False))


@BOTH
@pytest.mark.matrix("T2")
def test_empty_publish_still_deletes_under_drop_flag(staged: Callable[..., Stage], version: int) -> None:
    stage = staged(retainer__policy=[policy("cmd/#", action="drop-flag")])
    publisher, live = stage.client(version), stage.client(version)
    live.subscribe("#")
    publisher.publish("cmd/open", "", retain=True)
    live.receives(Copy("cmd/open", ""))


@ONLY_5
@pytest.mark.matrix("T3")
@pytest.mark.parametrize("qos", [1, 2])
def test_refuse_tells_a_5_0_publisher_and_neither_keeps_nor_delivers(
    staged: Callable[..., Stage], version: int, qos: int
) -> None:
    stage = staged(retainer__policy=[policy("no/#", action="refuse")])
    publisher, live = stage.client(version), stage.client(version)
    live.subscribe("#", qos=2)
    answer = publisher.publish("no/1", "1", qos=qos, retain=True, check=False)
    assert answer in (NOT_AUTHORIZED, QUOTA_EXCEEDED)
    live.receives()
    assert publisher.publish("no/1", "plain", qos=qos) == 0
    live.receives(Copy("no/1", "plain", qos=qos))
    assert stage.stored(version) == {}


@ONLY_311
@pytest.mark.matrix("T3")
def test_refuse_keeps_nothing_of_a_311_publisher(staged: Callable[..., Stage], version: int) -> None:
    stage = staged(retainer__policy=[policy("no/#", action="refuse")])
    publisher, live = stage.client(version), stage.client(version)
    live.subscribe("#", qos=1)
    publisher.publish("no/1", "1", qos=1, retain=True)
    live.receives()
    assert stage.stored(version) == {}


@BOTH
@pytest.mark.matrix("T4")
def test_ttl_is_the_default_life_of_its_topics(staged: Callable[..., Stage], version: int) -> None:
    stage = staged(retainer__policy=[policy("short/#", ttl="1s")], retainer__expiry_interval="1h")
    publisher = stage.client(version)
    publisher.publish("short/1", "1", retain=True)
    publisher.publish("other", "1", retain=True)
    if version == 5:
        publisher.publish("short/own", "1", retain=True, properties=[(P.MESSAGE_EXPIRY, 60)])
    assert "short/1" in stage.stored(version)
    stage.pass_time(1.2)
    expected = {"other", "short/own"} if version == 5 else {"other"}
    assert set(stage.stored(version)) == expected


@BOTH
@pytest.mark.matrix("T5")
def test_max_messages_bounds_a_subtree_and_leaves_the_rest_alone(staged: Callable[..., Stage], version: int) -> None:
    stage = staged(retainer__policy=[policy("few/#", max_messages=2)])
    publisher, live = stage.client(version), stage.client(version)
    live.subscribe("few/c")
    for topic in ("few/a", "few/b", "few/c", "many/a", "many/b", "many/c"):
        publisher.publish(topic, "1", qos=1, retain=True)
    live.receives(Copy("few/c", "1"))
    assert set(stage.stored(version)) == {"few/a", "few/b", "many/a", "many/b", "many/c"}
    publisher.publish("few/a", "2", qos=1, retain=True)
    publisher.publish("few/b", "", qos=1, retain=True)
    publisher.publish("few/c", "2", qos=1, retain=True)
    assert stage.stored(version, "few/#") == {"few/a": b"2", "few/c": b"2"}


@BOTH
@pytest.mark.matrix("T5")
def test_max_bytes_bounds_a_subtree(staged: Callable[..., Stage], version: int) -> None:
    stage = staged(retainer__policy=[policy("small/#", max_bytes="1KB")])
    publisher = stage.client(version)
    publisher.publish("small/a", "x" * 600, qos=1, retain=True)
    publisher.publish("small/b", "x" * 600, qos=1, retain=True)
    publisher.publish("large/b", "x" * 6000, qos=1, retain=True)
    assert set(stage.stored(version)) == {"small/a", "large/b"}
    publisher.publish("small/a", "x" * 10, qos=1, retain=True)
    publisher.publish("small/b", "x" * 600, qos=1, retain=True)
    assert set(stage.stored(version)) == {"small/a", "small/b", "large/b"}


@BOTH
@pytest.mark.matrix("T6")
def test_policy_for_some_users_leaves_others_alone(
    staged: Callable[..., Stage], version: int, password_file: Path
) -> None:
    stage = staged(
        auth__password_file=str(password_file),
        auth__allow_anonymous=True,
        retainer__policy=[policy("#", action="drop-flag", users=["alice"])],
    )
    as_user(stage, version, "alice").publish("a", "1", qos=1, retain=True)
    as_user(stage, version, "bob").publish("b", "1", qos=1, retain=True)
    stage.client(version).publish("c", "1", qos=1, retain=True)
    assert set(stage.stored(version)) == {"b", "c"}


COMMANDS = [
    "site/1/line/2/dev3/mode/set",
    "cmnd/lamp/POWER",
    "tele/cmnd/x",
    "zigbee2mqtt/lamp/set",
    "homeassistant/switch/garden/set",
    "spBv1.0/group/NCMD/node",
    "spBv1.0/group/DCMD/node/device",
]
STATES = [
    "stat/lamp/POWER",
    "zigbee2mqtt/lamp",
    "homeassistant/switch/garden/state",
    "homeassistant/switch/garden/config",
    "spBv1.0/group/NBIRTH/node",
    "spBv1.0/group/DDATA/node/device",
    "set/point",
]


@BOTH
@pytest.mark.matrix("T7")
def test_preset_for_commands_keeps_commands_out_of_the_store(staged: Callable[..., Stage], version: int) -> None:
    stage = staged(prefix="", retainer__presets=["commands"])
    publisher, live = stage.client(version), stage.client(version)
    live.subscribe("#")
    for topic in COMMANDS + STATES:
        publisher.publish(topic, "1", qos=1, retain=True)
    live.receives(*(Copy(topic, "1") for topic in COMMANDS + STATES))
    assert set(stage.stored(version)) == set(STATES)


@BOTH
@pytest.mark.matrix("T7")
def test_without_the_preset_commands_are_kept_like_anything(stage: Stage, version: int) -> None:
    publisher = stage.client(version)
    publisher.publish("lamp/set", "1", qos=1, retain=True)
    assert stage.stored(version) == {"lamp/set": b"1"}


@BOTH
@pytest.mark.matrix("T8")
def test_byte_budget_bounds_the_whole_store(staged: Callable[..., Stage], version: int) -> None:
    stage = staged(retainer__max_bytes=10_000)
    publisher, live = stage.client(version), stage.client(version)
    live.subscribe("late")
    for number in range(10):
        publisher.publish(f"t{number}", "x" * 2000, qos=1, retain=True)
    kept = stage.stored(version)
    assert 3 <= len(kept) <= 5
    publisher.publish("late", "x" * 2000, qos=1, retain=True)
    live.receives(Copy("late", "x" * 2000))
    publisher.publish("t0", "y" * 2000, qos=1, retain=True)
    assert stage.stored(version)["t0"] == b"y" * 2000, "replacing by something no larger always fits"
    for topic in kept:
        publisher.publish(topic, "", qos=1, retain=True)
    publisher.publish("late", "x" * 2000, qos=1, retain=True)
    assert set(stage.stored(version)) == {"late"}


@BOTH
@pytest.mark.matrix("T9")
def test_message_budget_of_a_user_bounds_that_user_alone(
    staged: Callable[..., Stage], version: int, password_file: Path
) -> None:
    stage = staged(
        auth__password_file=str(password_file), auth__allow_anonymous=True, retainer__max_messages_per_user=2
    )
    alice, bob = as_user(stage, version, "alice"), as_user(stage, version, "bob")
    for topic in ("a1", "a2", "a3"):
        alice.publish(topic, "1", qos=1, retain=True)
    for topic in ("b1", "b2", "b3"):
        bob.publish(topic, "1", qos=1, retain=True)
    assert set(stage.stored(version)) == {"a1", "a2", "b1", "b2"}
    bob.publish("a1", "", qos=1, retain=True)
    alice.publish("a3", "1", qos=1, retain=True)
    assert set(stage.stored(version)) == {"a2", "a3", "b1", "b2"}


@BOTH
@pytest.mark.matrix("T9")
def test_byte_budget_of_a_user_bounds_that_user_alone(
    staged: Callable[..., Stage], version: int, password_file: Path
) -> None:
    stage = staged(
        auth__password_file=str(password_file), auth__allow_anonymous=True, retainer__max_bytes_per_user="1KB"
    )
    alice, bob = as_user(stage, version, "alice"), as_user(stage, version, "bob")
    for client, letter in ((alice, "a"), (bob, "b")):
        for number in range(3):
            client.publish(f"{letter}{number}", "x" * 600, qos=1, retain=True)
    assert set(stage.stored(version)) == {"a0", "b0"}


@BOTH
@pytest.mark.matrix("T10", "M7")
def test_everything_not_kept_is_counted_by_reason(stage_builder: StageBuilder, unique: Unique, version: int) -> None:
    settings = {
        "sys__interval": 1,
        "retainer__max_retained_messages": 2,
        "retainer__max_payload_size": 10,
        "retainer__policy": [policy("cmd/#", action="drop-flag"), policy("few/#", max_messages=1)],
    }
    # System topics are written by what is around the core.
    with Stage(stage_builder.broker(settings), unique) as stage:
        publisher = stage.client(version)
        before = counters(stage, version)
        publisher.publish("few/1", "1", qos=1, retain=True)
        publisher.publish("few/2", "1", qos=1, retain=True)  # over the budget of its policy
        publisher.publish("a", "1", qos=1, retain=True)
        publisher.publish("b", "1", qos=1, retain=True)  # over the message limit
        publisher.publish("c", "1", qos=1, retain=True)  # likewise
        publisher.publish("a", "x" * 11, qos=1, retain=True)  # over the payload limit
        publisher.publish("cmd/1", "1", qos=1, retain=True)  # not by policy
        expected = {"refused budget": 1, "refused count": 2, "refused size": 1, "refused policy": 1, "refused": 5}
        deadline = time.monotonic() + 60
        while True:
            now = counters(stage, version)
            grown = {name: now.get(name, 0) - before.get(name, 0) for name in expected}
            if grown == expected and now["count"] == 2:
                return
            assert time.monotonic() < deadline, f"expected {json.dumps(expected)} more and count 2, got {now}"
            time.sleep(0.05)


def counters(stage: Stage, version: int) -> dict[str, int]:
    reader = stage.client(version)
    reader.subscribe(COUNTERS + "#")
    found = {copy.topic.removeprefix(COUNTERS): int(copy.payload) for copy in reader.rest()}
    reader.disconnect()
    return found
