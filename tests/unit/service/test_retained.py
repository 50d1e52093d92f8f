"""The retained service beside a broker in this process: rights, names of operations, what is kept for undo."""

from collections.abc import AsyncIterator

import pytest

from holdfast.broker.access import PUBLISH, RECEIVE, RETAIN, SUBSCRIBE, Access, Rule
from holdfast.broker.message import NEVER, Message, Publisher, topic_field
from holdfast.broker.settings import Settings
from holdfast.errors import NotAllowed, NotFound, TooLarge
from holdfast.service import retained as module
from holdfast.service.caller import OPERATOR, Caller
from holdfast.service.requests import Publication, conditions_from
from holdfast.service.retained import RetainedService
from in_process import NOW_MS, InProcess, with_broker

EVERYTHING = conditions_from({})


def rules(*allowed: tuple[int, bytes]) -> Access:
    return Access([Rule(True, actions, topic_filter, "alice", None) for actions, topic_filter in allowed], False)


def test_a_user_finds_reads_and_deletes_what_the_rules_give() -> None:
    async def act(world: InProcess) -> None:
        await world.set("mine/a", "mine/readonly", "theirs/a")
        world.broker.set_access(
            rules((RECEIVE | SUBSCRIBE, b"mine/#"), (PUBLISH | RETAIN, b"mine/a"), (PUBLISH | RETAIN, b"blind/#"))
        )
        alice = Caller("alice", False, world.broker)
        found = [one async for portion in world.retained.find(EVERYTHING, alice) for one in portion]
        assert sorted(one.topic for one in found) == [b"mine/a", b"mine/readonly"]
        assert [one.topic for one in await world.retained.find_writable(EVERYTHING, alice)] == [b"mine/a"]
        assert world.retained.get("mine/a", alice).payload == b"1"
        with pytest.raises(NotAllowed, match="user 'alice' may not read topic 'theirs/a'"):
            world.retained.get("theirs/a", alice)
        with pytest.raises(NotAllowed, match="user 'alice' may not write to topic 'mine/readonly'"):
            await world.retained.remove_topic("mine/readonly", alice)
        with pytest.raises(NotAllowed):
            alice.need_whole_view()
        removed = await world.retained.remove_topic("mine/a", alice)
        assert removed.operation.startswith("user-")
        assert world.topics() == ["mine/readonly", "theirs/a"]

    with_broker(act)


def test_undo_counts_what_the_caller_may_not_write_as_refused() -> None:
    async def act(world: InProcess) -> None:
        await world.set("mine/a", "theirs/a")
        removed = await world.retained.remove(await world.retained.find_writable(EVERYTHING, OPERATOR), OPERATOR)
        assert removed.operation.startswith("api-")
        world.broker.set_access(rules((PUBLISH | RETAIN, b"mine/#")))
        done = await world.retained.undo(removed.operation, Caller("alice", False, world.broker))
        assert (done.restored, done.refused) == (1, 1)
        assert world.topics() == ["mine/a"]

    with_broker(act)


def test_undo_gives_a_message_the_time_it_had_left_whoever_chose_it() -> None:
    settings = Settings()
    settings.retained_expiry_ms = 60_000

    async def act(world: InProcess) -> None:
        await world.set("by/broker")
        await world.set("by/publisher", expiry_s=60)
        world.handle.told_ms += 10_500
        removed = await world.retained.remove(await world.retained.find_writable(EVERYTHING, OPERATOR), OPERATOR)
        assert (await world.retained.undo(removed.operation, OPERATOR)).restored == 2
        for topic in ("by/broker", "by/publisher"):
            assert world.retained.get(topic, OPERATOR).expires_at_ms == NOW_MS + 10_500 + 50_000

    with_broker(act, settings)


def test_a_payload_larger_than_a_packet_may_be_is_refused() -> None:
    async def act(world: InProcess) -> None:
        small = RetainedService(world.source, world.retained.history, max_payload=4)
        with pytest.raises(TooLarge, match="payload has 5 bytes, expected no more than"):
            await small.publish([Publication.model_validate({"topic": "t", "payload": "12345"})], OPERATOR)

    with_broker(act)


def test_the_oldest_deletes_are_forgotten_when_they_take_too_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_BYTES", 500)

    async def act(world: InProcess) -> None:
        operations = []
        for topic in ("a", "b", "c"):
            await world.set(topic)
            operations.append((await world.retained.remove_topic(topic, OPERATOR)).operation)
        with pytest.raises(NotFound, match="there is no history here"):
            await world.retained.undo(operations[0], OPERATOR)
        assert (await world.retained.undo(operations[2], OPERATOR)).restored == 1

    with_broker(act)


def test_a_publish_says_under_which_name_it_is_in_the_history() -> None:
    async def act(world: InProcess) -> None:
        done = await world.set("a", "b")
        assert [one.offset for one in done.accepted] == [1, 2]
        assert world.retained.get("b", OPERATOR).publisher.client_id == done.operation
        named = await world.retained.publish([Publication.model_validate({"topic": "c"})], OPERATOR, "someone")
        assert named.operation == "someone"

    with_broker(act)


@pytest.mark.parametrize("broker", [True, False])
def test_an_operator_may_do_everything(broker: bool) -> None:
    async def act(world: InProcess) -> None:
        world.broker.set_access(Access([], False))
        caller = Caller("root", True, world.broker) if broker else OPERATOR
        caller.need_admin()
        caller.need_whole_view()
        assert caller.may_write(b"a", True, 2)
        assert caller.may_read(b"a")
        assert caller.sees_all

    with_broker(act)


def test_what_is_put_back_is_written_before_more_of_it_is_read() -> None:
    async def act(world: InProcess) -> None:
        asked = 0

        async def portions() -> AsyncIterator[list[Message]]:
            nonlocal asked
            for asked in range(1, 6):
                assert len(await world.retained.find_writable(EVERYTHING, OPERATOR)) == asked - 1
                field = topic_field(b"t/%d" % asked)
                yield [Message(field, b"x", 0, True, b"", Publisher("c", "", "5.0"), asked, 0, NEVER, False)]

        done = await world.retained.put_back(portions(), OPERATOR, replace=False, dry_run=False)
        assert (done.restored, asked) == (5, 5)

    with_broker(act)


def test_a_large_delete_keeps_nothing_in_memory_for_undo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_BYTES", 500)

    async def act(world: InProcess) -> None:
        for number in range(10):
            await world.set(f"t/{number}")
        found = await world.retained.find_writable(EVERYTHING, OPERATOR)
        assert (await world.retained.remove(found, OPERATOR)).count == 10
        assert (world.retained.recent, world.retained.recent_bytes) == ({}, 0)

    with_broker(act)
