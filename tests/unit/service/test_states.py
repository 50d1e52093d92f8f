"""Which topics are known to be alive although nothing is retained on them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.broker.message import Publisher
from holdfast.service.caller import OPERATOR
from holdfast.service.hygiene import DAY_MS, HygieneService
from holdfast.service.states import StateTopics, read_noted
from in_process import NOW_MS, InProcess, with_broker

CONFIG = "homeassistant/sensor/a/config"
DEVICE = Publisher("device", "", "5.0")


async def name(world: InProcess, state: str, config: str = CONFIG) -> None:
    await world.set(config, payload=json.dumps({"state_topic": state}))


def publish(world: InProcess, topic: str) -> None:
    world.handle.publish(DEVICE, topic.encode(), b"1", 0, False)


async def lost(world: InProcess, states: StateTopics, days: float = 30) -> list[object]:
    world.source.states = states
    report = await HygieneService(world.source).report(days, 100)
    found = report["discovery"]
    assert isinstance(found, list)
    assert report["discovery_count"] == len(found)
    return [one["topic"] for one in found]


def test_a_discovery_whose_state_is_published_and_not_retained_is_well() -> None:
    async def act(world: InProcess) -> None:
        await name(world, "a/state")
        await name(world, "b/state", "homeassistant/sensor/b/config")
        states = StateTopics(world.handle, None)
        await states.refresh()
        publish(world, "a/state")
        assert await lost(world, states) == ["homeassistant/sensor/b/config"]
        assert await lost(world, states, 0) == ["homeassistant/sensor/b/config"]

    with_broker(act)


def test_a_topic_that_has_been_silent_for_long_is_lost_again() -> None:
    async def act(world: InProcess) -> None:
        await name(world, "a/state")
        states = StateTopics(world.handle, None)
        await states.refresh()
        publish(world, "a/state")
        world.handle.told_ms += 31 * DAY_MS
        assert await lost(world, states) == [CONFIG]
        assert states.heard_at_ms("a/state") == NOW_MS
        publish(world, "a/state")
        assert await lost(world, states) == []

    with_broker(act)


def test_only_named_topics_are_listened_for() -> None:
    async def act(world: InProcess) -> None:
        await name(world, "a/state")
        states = StateTopics(world.handle, None)
        await states.refresh()
        publish(world, "other")
        assert [field[2:] for field in world.broker.heard] == [b"a/state"]
        assert world.broker.find_route(b"\0\x05other").plain
        assert not world.broker.find_route(b"\0\x07a/state").plain
        await world.retained.remove_topic(CONFIG, OPERATOR)
        await states.refresh()
        assert world.broker.heard == {}
        assert world.broker.find_route(b"\0\x07a/state").plain

    with_broker(act)


def test_what_was_heard_outlives_the_broker(tmp_path: Path) -> None:
    path = tmp_path / "heard.json"

    async def first(world: InProcess) -> None:
        await name(world, "a/state")
        states = StateTopics(world.handle, path)
        await states.refresh()
        publish(world, "a/state")
        await states.write()

    async def second(world: InProcess) -> None:
        await name(world, "a/state")
        assert await lost(world, StateTopics(world.handle, path)) == []

    with_broker(first)
    assert read_noted(path).heard == {"a/state": NOW_MS}
    with_broker(second)


def test_without_discovery_there_is_no_file(tmp_path: Path) -> None:
    async def act(world: InProcess) -> None:
        await world.set("a")
        states = StateTopics(world.handle, tmp_path / "heard.json")
        await states.refresh()
        await states.write()

    with_broker(act)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"since_ms": 1, "heard": 3}', '{"since_ms": "x", "heard": {}}'])
def test_a_file_that_says_nothing_is_as_good_as_none(tmp_path: Path, content: str) -> None:
    path = tmp_path / "heard.json"
    path.write_text(content)
    assert read_noted(path).since_ms == 0
    assert read_noted(tmp_path / "missing").heard == {}
