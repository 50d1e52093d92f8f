"""One table of cases for the retained service, over a running broker and over a data folder: the answers are the same.

A real broker makes the data once. The running broker of the cases is one in this process, without sockets, on one copy
of it; the folder is another copy, on which a broker is opened for each change. The cases follow one another on the
same two copies, so they run in one worker and in the order of the file.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from broker_process import start_holdfast
from holdfast.broker.message import Message
from holdfast.broker.settings import REFUSE, Policy, Settings
from holdfast.errors import HoldfastError
from holdfast.server import open_offline
from holdfast.service.caller import OPERATOR
from holdfast.service.folder import FolderSource
from holdfast.service.history import HistoryService
from holdfast.service.hygiene import HygieneService
from holdfast.service.live import LiveSource
from holdfast.service.messages import whole_of
from holdfast.service.past import Moment, wall_clock_ms
from holdfast.service.requests import Publication, RestoreRequest, conditions_from
from holdfast.service.retained import RetainedService
from holdfast.service.source import RetainedSource
from http_api import LISTEN, Api
from wire import P

DAY_S = 86_400
HOUR_MS = 3_600_000


def limits() -> Settings:
    """What both brokers of the cases refuse; the one that made the data did not."""
    settings = Settings()
    settings.max_retained_payload = 100
    settings.policies = [Policy(b"few/#", max_messages=1), Policy(b"protected/#", REFUSE)]
    return settings


class Clock:
    """The wall clock, put forward; or one that stands still at `told_ms`."""

    ahead_ms = 0
    told_ms = 0

    def now_ms(self) -> int:
        return self.told_ms or wall_clock_ms() + self.ahead_ms


class Told:
    """A broker's handle that believes another clock."""

    def __init__(self, handle: Any, clock: Clock) -> None:
        self._handle = handle
        self.now_ms = clock.now_ms

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)


@dataclass
class Services:
    source: RetainedSource
    retained: RetainedService
    history: HistoryService
    hygiene: HygieneService
    clock: Clock
    made: Made

    @classmethod
    def of(cls, source: RetainedSource, clock: Clock, made: Made) -> Services:
        history = HistoryService(source)
        return cls(source, RetainedService(source, history), history, HygieneService(source), clock, made)

    async def find(self, **conditions: Any) -> list[Message]:
        """All portions of what meets the conditions."""
        portions = self.retained.find(conditions_from(conditions), OPERATOR)
        return [one async for portion in portions for one in portion]

    async def topics(self, topic_filter: str) -> dict[str, str]:
        """Topics that are retained now, with their payloads."""
        found = await self.find(filter=topic_filter)
        return {one.topic.decode(): one.payload.decode() for one in sorted(found, key=lambda one: one.topic)}


@dataclass
class Made:
    """The data of the cases. `then` is the offset after which everything of the past was there."""

    folder: Path
    then: int = 0
    operation: str = ""
    soon_ms: int = 0
    fleeting: int = 0  # the offset after which a message that was to last a second was still there
    after: int = 0  # and one behind its end


def make(folder: Path) -> Made:
    made = Made(folder / "data")
    running = start_holdfast(made.folder, listen=LISTEN)
    with Api(running) as api:
        with running.client(5) as client:
            client.connect("sensor")
            properties = [(P.CONTENT_TYPE, "text/plain"), (P.USER_PROPERTY, ("unit", "C"))]
            client.publish("home/kitchen/temperature", b"21.5", qos=1, retain=True, properties=properties)
            client.publish("home/hall/temperature", b"19", qos=1, retain=True)
        with running.client(5) as client:
            client.connect("asleep", properties=[(P.SESSION_EXPIRY, 0xFFFFFFFF)])
            client.publish("asleep/here", b"1", qos=1, retain=True)
        with running.client(5) as client:
            client.connect("gone")
            client.publish("gone/left", b"1", qos=1, retain=True)
            client.publish("lamp/set", b"ON", qos=1, retain=True)
        api.set("homeassistant/sensor/a/config", '{"~": "dev/a", "stat_t": "state/~"}')
        api.set("homeassistant/sensor/b/config", '{"state_topic": "gone/left"}')
        api.set("$hidden/x", "1")
        api.set("long/one", "x" * 60)
        for topic in ("past/gone", "past/changed", "past/same", "past/other-qos", "few/a", "few/b", "protected/a"):
            api.set(topic, "then")
        api.set("past/properties", "then", content_type="text/plain")
        api.set("big/one", "x" * 200)
        api.set("brief/over", "then", expiry_s=1)
        api.set("brief/soon", "then", expiry_s=3600)
        made.soon_ms = api.ok("GET", "/api/v1/retained/message", params={"topic": "brief/soon"})["expires_at_ms"]
        made.then = api.set("undo/a", "1", user_properties=[["k", "v"]])
        for topic in ("past/changed", "past/same", "past/other-qos", "past/properties"):
            api.set(topic, {"past/changed": "now"}.get(topic, "then"), qos=0 if topic == "past/other-qos" else 1)
        for topic in ("past/gone", "few/a", "few/b", "protected/a", "big/one", "brief/over", "brief/soon"):
            api.set(topic, "")
        api.set("fleeting/second", "1", expiry_s=1)
        made.fleeting = api.set("fleeting/day", "1", expiry_s=DAY_S)
        over_ms = api.ok("GET", "/api/v1/retained/message", params={"topic": "fleeting/day"})["stored_at_ms"] + 1000
        while wall_clock_ms() <= over_ms:
            time.sleep(0.05)
        made.after = api.set("fleeting/last", "1")
        made.operation = api.ok("DELETE", "/api/v1/retained/message", params={"topic": "undo/a"})["operation"]
        api.history("undo/a", 2)
    running.stop()
    return made


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("made"))


@pytest.fixture(scope="module")
def both(made: Made) -> Iterator[tuple[asyncio.Runner, Services, Services]]:
    live, folder = made.folder.with_name("live"), made.folder.with_name("folder")
    shutil.copytree(made.folder, live)
    shutil.copytree(made.folder, folder)
    clock = Clock()

    @asynccontextmanager
    async def told(root: Path) -> AsyncIterator[Any]:
        async with open_offline(root, limits()) as handle:
            yield Told(handle, clock)

    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        handle = runner.run(stack.enter_async_context(told(live)))
        source = LiveSource(handle, history=live / "history")
        offline = FolderSource(folder, told, clock.now_ms)
        yield runner, Services.of(source, clock, made), Services.of(offline, clock, made)
        runner.run(source.close())
        offline.close()
        runner.run(stack.aclose())


Case = Callable[[Services], Awaitable[object]]
CASES: list[Any] = []


def case(expected: object) -> Callable[[Case], Case]:
    def add(run: Case) -> Case:
        CASES.append(pytest.param(run, expected, id=run.__name__))
        return run

    return add


def found_by(name: str, expected: list[str], ahead_s: int = 0, **conditions: Any) -> None:
    async def run(services: Services) -> list[str]:
        services.clock.ahead_ms = ahead_s * 1000
        found = await services.find(**conditions)
        return sorted(one.topic.decode() for one in found)

    CASES.append(pytest.param(run, expected, id=f"find by {name}"))


TEMPERATURES = ["home/hall/temperature", "home/kitchen/temperature"]
found_by("filter", TEMPERATURES, filter="home/+/temperature")
found_by("topic", ["home/hall/temperature"], filter="home/hall/temperature")
found_by("part of the topic", TEMPERATURES, contains="temperature")
found_by("client id", ["gone/left", "lamp/set"], client_id="gone")
found_by("user name", [], username="nobody")
found_by("least size", ["long/one"], filter="long/#", min_size=60)
found_by("most size", [], filter="long/#", max_size=59)
found_by("age, older", TEMPERATURES, ahead_s=2 * DAY_S, filter="home/#", older_than=DAY_S)
found_by("age, too young", [], filter="home/#", older_than=DAY_S)
found_by("age, newer", TEMPERATURES, filter="home/#", newer_than=DAY_S)
found_by("age, too old", [], ahead_s=2 * DAY_S, filter="home/#", newer_than=DAY_S)
found_by("hidden", ["$hidden/x"], hidden=True, contains="hidden")
found_by("hidden left out", [], contains="hidden")
found_by("its own filter when hidden", ["$hidden/x"], filter="$hidden/#")


@case(("UsageError", "hidden topics are possible with the filter '#' only, got 'a/#'"))
async def hidden_topics_go_with_everything_only(services: Services) -> object:
    return await services.find(filter="a/#", hidden=True)


@case(("UsageError", "filter 'a/#/b' is not a topic filter, expected `#` last and alone, `+` alone in its level"))
async def a_filter_that_is_none_is_refused(services: Services) -> object:
    return await services.find(filter="a/#/b")


def shown(message: Message) -> dict[str, Any]:
    """A message as JSON without what depends on when and where the case ran."""
    moving = ("version", "stored_at", "stored_at_ms", "expires_at", "expires_at_ms")
    return {name: value for name, value in whole_of(message).items() if name not in moving}


@case(
    {
        "topic": "home/kitchen/temperature",
        "size": 4,
        "qos": 1,
        "publisher": {"client_id": "sensor", "username": "", "protocol": "5.0"},
        "preview": "21.5",
        "payload": b64encode(b"21.5").decode(),
        "text": "21.5",
        "content_type": "text/plain",
        "response_topic": None,
        "correlation_data": None,
        "payload_format": None,
        "user_properties": [["unit", "C"]],
    }
)
async def a_message_is_read_with_everything_it_carries(services: Services) -> object:
    return shown(services.retained.get("home/kitchen/temperature", OPERATOR))


@case(("NotFound", "topic 'nothing/here' is not retained"))
async def a_message_that_is_not_there_is_not_found(services: Services) -> object:
    return services.retained.get("nothing/here", OPERATOR)


@case(("NotFound", "topic 'brief/over' is not retained"))
async def a_message_that_has_expired_is_not_found(services: Services) -> object:
    services.clock.ahead_ms = DAY_S * 1000
    return services.retained.get("brief/over", OPERATOR)


def publication(**fields: Any) -> Publication:
    return Publication.model_validate({"retain": True, "qos": 1, **fields})


@case(({"new/plain": "1", "new/full": "2"}, 0, ["text/x", "back", "AP8=", 1, [["a", "1"], ["a", "2"]]], (3500, 3600)))
async def messages_are_published_with_properties_and_expiry(services: Services) -> object:
    full = publication(
        topic="new/full",
        payload="2",
        expiry_s=3600,
        content_type="text/x",
        response_topic="back",
        correlation_data="AP8=",
        payload_format=1,
        user_properties=[["a", "1"], ["a", "2"]],
    )
    done = await services.retained.publish([publication(topic="new/plain", payload="1"), full], OPERATOR)
    message = services.retained.get("new/full", OPERATOR)
    fields = shown(message)
    names = ("content_type", "response_topic", "correlation_data", "payload_format", "user_properties")
    left_s = (message.expires_at_ms - services.source.now_ms()) // 1000
    assert message.offset == done.accepted[1].offset
    assert message.publisher.client_id == done.operation
    topics = await services.topics("new/#")
    return dict(sorted(topics.items(), reverse=True)), done.refused, [fields[name] for name in names], between(left_s)


def between(left_s: int) -> tuple[int, int]:
    return (3500, 3600) if 3500 <= left_s <= 3600 else (left_s, left_s)


@case(("NotAllowed", "topic '$SYS/broker/uptime' belongs to the broker, expected one that clients may write to"))
async def the_brokers_own_topics_are_not_written(services: Services) -> object:
    return await services.retained.publish([publication(topic="$SYS/broker/uptime", payload="1")], OPERATOR)


@case(("UsageError", "payload is not base64, expected it because of its encoding"))
async def one_that_is_not_valid_stops_those_after_it(services: Services) -> object:
    wrong = publication(topic="stop/b", payload="?", encoding="base64")
    given = [publication(topic="stop/a", payload="1"), wrong, publication(topic="stop/c", payload="1")]
    try:
        return await services.retained.publish(given, OPERATOR)
    finally:
        assert await services.topics("stop/#") == {"stop/a": "1"}


@case(([1], {}, {"remove/a": "1"}, {"remove/a": "1"}))
async def a_delete_is_undone_by_its_name(services: Services) -> object:
    await services.retained.publish([publication(topic="remove/a", payload="1")], OPERATOR)
    found = await services.retained.find_writable(conditions_from({"filter": "remove/#"}), OPERATOR)
    seen = await services.topics("remove/#")
    removed = await services.retained.remove(found, OPERATOR)
    left = await services.topics("remove/#")
    undone = await services.retained.undo(removed.operation, OPERATOR)
    return [undone.restored], left, seen, await services.topics("remove/#")


@case(0)
async def what_was_replaced_since_it_was_found_is_not_deleted(services: Services) -> object:
    await services.retained.publish([publication(topic="replaced/a", payload="1")], OPERATOR)
    found = await services.retained.find_writable(conditions_from({"filter": "replaced/#"}), OPERATOR)
    await services.retained.publish([publication(topic="replaced/a", payload="2")], OPERATOR)
    return (await services.retained.remove(found, OPERATOR)).count


@case(("NotFound", "no operation named 'api-never' is known here or in the history"))
async def a_delete_that_never_was_is_not_undone(services: Services) -> object:
    return await services.retained.undo("api-never", OPERATOR)


Counts = dict[str, int | bool]


async def restored(services: Services, topic_filter: str, **asked: Any) -> Counts:
    request = RestoreRequest.model_validate({"filter": topic_filter, "offset": services.made.then, **asked})
    done = asdict(await services.retained.restore(request, OPERATOR))
    del done["operation"], done["removed"], done["changes"]
    return done


def counts(dry_run: bool, restored: int = 0, present: int = 0, expired: int = 0, refused: int = 0) -> Counts:
    return {"dry_run": dry_run, "restored": restored, "present": present, "expired": expired, "refused": refused}


NOW = {"past/changed": "now", "past/other-qos": "then", "past/properties": "then", "past/same": "then"}


@case((counts(True, restored=1, present=4), NOW))
async def a_dry_run_restores_nothing(services: Services) -> object:
    return await restored(services, "past/#"), await services.topics("past/#")


@case(counts(True, restored=4, present=1))
async def what_differs_in_payload_qos_or_properties_is_not_the_same(services: Services) -> object:
    return await restored(services, "past/#", replace=True)


@case((counts(False, restored=1, present=4), {**NOW, "past/gone": "then"}))
async def only_what_is_missing_is_restored(services: Services) -> object:
    return await restored(services, "past/#", dry_run=False), await services.topics("past/#")


@case((counts(False, restored=3, present=2), {**NOW, "past/changed": "then", "past/gone": "then"}, "text/plain"))
async def what_differs_is_replaced_when_that_is_asked_for(services: Services) -> object:
    done = await restored(services, "past/#", replace=True, dry_run=False)
    fields = shown(services.retained.get("past/properties", OPERATOR))
    return done, await services.topics("past/#"), fields["content_type"]


@case(counts(False, present=5))
async def a_second_restore_finds_everything_in_its_place(services: Services) -> object:
    return await restored(services, "past/#", replace=True, dry_run=False)


@case(counts(True, restored=1, expired=1))
async def a_message_with_a_moment_to_live_is_not_expired(services: Services) -> object:
    services.clock.told_ms = services.made.soon_ms - 400
    return await restored(services, "brief/#")


@case(counts(True, expired=2))
async def a_message_whose_time_is_over_is_expired(services: Services) -> object:
    services.clock.told_ms = services.made.soon_ms
    return await restored(services, "brief/#")


@case((counts(False, restored=1, expired=1), True))
async def a_restored_message_lives_for_the_time_it_had_left(services: Services) -> object:
    services.clock.ahead_ms = 2000
    done = await restored(services, "brief/#", dry_run=False)
    services.clock.ahead_ms = 0
    late_ms = services.retained.get("brief/soon", OPERATOR).expires_at_ms - services.made.soon_ms
    return done, -2000 <= late_ms <= 1000  # whole seconds, rounded up, counted from a clock that is 2 s ahead


@case((counts(False, restored=1, refused=1), {"few/a": "then"}))
async def what_a_budget_refuses_is_counted(services: Services) -> object:
    return await restored(services, "few/#", dry_run=False), await services.topics("few/#")


@case((counts(False, refused=1), {}))
async def what_is_too_large_today_is_counted_as_refused(services: Services) -> object:
    return await restored(services, "big/#", dry_run=False), await services.topics("big/#")


@case((counts(False, refused=1), {}))
async def what_a_policy_refuses_is_counted(services: Services) -> object:
    return await restored(services, "protected/#", dry_run=False), await services.topics("protected/#")


@case(([1, 0], {"undo/a": "1"}, [["k", "v"]], [0, 1]))
async def a_delete_of_another_process_is_undone_from_the_history(services: Services) -> object:
    done = await services.retained.undo(services.made.operation, OPERATOR)
    topics = await services.topics("undo/#")
    again = await services.retained.undo(services.made.operation, OPERATOR)
    fields = shown(services.retained.get("undo/a", OPERATOR))["user_properties"]
    return [done.restored, done.present], topics, fields, [again.restored, again.present]


@case({"brief/over": "then", "brief/soon": "then"})
async def the_past_is_shown_as_of_an_offset_with_expiry_as_of_then(services: Services) -> object:
    portions = services.history.messages_at(Moment(0, services.made.then, "brief/#"), OPERATOR)
    return {one.topic.decode(): one.payload.decode() async for portion in portions for one in portion}


async def topics_at(services: Services, offset: int, topic_filter: str) -> list[str]:
    portions = services.history.messages_at(Moment(0, offset, topic_filter), OPERATOR)
    return sorted([one.topic.decode() async for portion in portions for one in portion])


@case((["fleeting/day", "fleeting/second"], ["fleeting/day", "fleeting/last"]))
async def what_had_expired_by_an_offset_is_not_shown_for_it(services: Services) -> object:
    """The clock of today says nothing about it: by that, both would have expired."""
    services.clock.ahead_ms = 2 * DAY_S * 1000
    made = services.made
    return await topics_at(services, made.fleeting, "fleeting/#"), await topics_at(services, made.after, "fleeting/#")


@case([])
async def before_there_was_anything_nothing_was_retained(services: Services) -> object:
    return [portion async for portion in services.history.messages_at(Moment(1), OPERATOR)]


@case([("cleared", "", "api"), ("set", "then", "api")])
async def the_history_of_a_topic_is_newest_first(services: Services) -> object:
    rows = (await services.history.of_topic("few/b", 0, 10))["rows"][-2:]
    return [(row["outcome"], row["text"], row["publisher"]["protocol"]) for row in rows]


@case((1, True))
async def the_history_of_a_topic_comes_in_pages(services: Services) -> object:
    page = await services.history.of_topic("past/same", 0, 1)
    return len(page["rows"]), page["next"] == page["rows"][0]["version"]


def ghost_parts(found: dict[str, Any]) -> dict[str, Any]:
    return {
        "publishers": {one["client_id"]: one["count"] for one in found["publishers"]},
        "discovery": {one["topic"]: one["state_topic"] for one in found["discovery"]},
        "commands": [one["topic"] for one in found["commands"]["messages"]],
        "all are stale": found["stale"]["count"] == found["count"],
    }


@case(
    {
        "publishers": {"sensor": 2, "gone": 2},
        "discovery": {"homeassistant/sensor/a/config": "state/dev/a"},
        "commands": ["lamp/set"],
        "all are stale": True,
    }
)
async def ghosts_are_publishers_without_a_session_that_wrote_nothing_for_long(services: Services) -> object:
    services.clock.ahead_ms = 31 * DAY_S * 1000
    return ghost_parts(await services.hygiene.report(30, 100))


@case({"publishers": {}, "discovery": {"homeassistant/sensor/a/config": "state/dev/a"}, "commands": ["lamp/set"],
       "all are stale": False})  # fmt: skip
async def nobody_is_a_ghost_who_wrote_lately(services: Services) -> object:
    return ghost_parts(await services.hygiene.report(31, 100))  # reports are kept for a moment, by what was asked


@pytest.mark.parametrize(("run", "expected"), CASES)
def test_both_sources_give_the_answer(
    both: tuple[asyncio.Runner, Services, Services], run: Case, expected: object
) -> None:
    runner, live, folder = both
    answers = []
    for services in (live, folder):
        services.clock.ahead_ms = services.clock.told_ms = 0
        answers.append(runner.run(answer(run, services)))
        services.source.reads_history = False
    assert answers[0] == answers[1]
    assert answers[0] == expected


async def answer(run: Case, services: Services) -> object:
    try:
        return await run(services)
    except HoldfastError as error:
        return type(error).__name__, str(error)
