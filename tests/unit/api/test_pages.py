"""Pages of a listing: cursors that are good for one caller, for a while, and not for ever more of them."""

import pytest

from holdfast.api import pages as module
from holdfast.api.pages import CursorPages
from holdfast.api.problem import Problem
from holdfast.broker.access import ALL, Access, Rule
from holdfast.service.caller import OPERATOR, Caller
from holdfast.service.requests import conditions_from
from in_process import InProcess, with_broker

EVERYTHING = conditions_from({})


async def filled(world: InProcess, count: int) -> CursorPages:
    await world.set(*(f"t/{number:03}" for number in range(count)))
    return CursorPages(world.source)


def test_pages_add_up_to_the_whole_set_and_the_cursor_is_given_back() -> None:
    async def act(world: InProcess) -> None:
        pages = await filled(world, 25)
        found, token = await pages.first(EVERYTHING, OPERATOR, 10)
        topics = [one.topic for one in found]
        while token is not None:
            found, token = await pages.next(token, OPERATOR, 10)
            topics += [one.topic for one in found]
        assert len(topics) == len(set(topics)) == 25
        whole, rest = await pages.first(EVERYTHING, OPERATOR, 100)
        assert (len(whole), rest) == (25, None)
        assert len(pages.listings) == 1  # the one whose last page may be asked for again

    with_broker(act)


@pytest.mark.parametrize("token", ["", "nothing.1", "nothing", ".", "x.y"])
def test_a_cursor_that_is_not_known_is_gone(token: str) -> None:
    async def act(world: InProcess) -> None:
        pages = await filled(world, 3)
        with pytest.raises(Problem) as gone:
            await pages.next(token, OPERATOR, 1)
        assert gone.value.status == 410

    with_broker(act)


def test_a_cursor_of_another_caller_is_gone() -> None:
    async def act(world: InProcess) -> None:
        pages = await filled(world, 3)
        _, token = await pages.first(EVERYTHING, OPERATOR, 1)
        assert token is not None
        with pytest.raises(Problem):
            await pages.next(token, Caller("mallory", False, world.broker), 1)

    with_broker(act)


def test_a_page_that_was_lost_can_be_asked_for_again_but_none_before_it() -> None:
    async def act(world: InProcess) -> None:
        pages = await filled(world, 9)
        _, first = await pages.first(EVERYTHING, OPERATOR, 3)
        assert first is not None
        second = await pages.next(first, OPERATOR, 3)
        assert await pages.next(first, OPERATOR, 3) == second
        assert second[1] is not None
        await pages.next(second[1], OPERATOR, 3)
        with pytest.raises(Problem):
            await pages.next(first, OPERATOR, 3)

    with_broker(act)


def test_a_page_ends_when_it_has_enough_bytes() -> None:
    async def act(world: InProcess) -> None:
        await world.set(*(f"t/{number}" for number in range(10)), payload="x" * 100)
        pages = CursorPages(world.source)
        found, token = await pages.first(EVERYTHING, OPERATOR, 10, most_bytes=250)
        assert len(found) == 3
        assert token is not None

    with_broker(act)


def test_too_many_listings_make_room_by_leaving_out_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LISTINGS_MOST", 4)

    async def act(world: InProcess) -> None:
        pages = await filled(world, 3)
        tokens = [(await pages.first(EVERYTHING, OPERATOR, 1))[1] for _ in range(5)]
        assert len(pages.listings) <= 4
        assert tokens[0] is not None
        assert tokens[4] is not None
        with pytest.raises(Problem):
            await pages.next(tokens[0], OPERATOR, 1)
        assert (await pages.next(tokens[4], OPERATOR, 1))[0]

    with_broker(act)


def test_what_a_caller_may_not_see_does_not_end_a_page() -> None:
    """Else a search would tell whether it is there."""

    async def act(world: InProcess) -> None:
        await world.set(*(f"secret/{number}" for number in range(3)), "shown/1", payload="x" * 100)
        world.broker.set_access(Access([Rule(True, ALL, b"shown/#", None, None)], False))
        found, following = await CursorPages(world.source).first(
            conditions_from({"search": "xx"}), Caller("bob", False, world.broker), 10, most_bytes=200
        )
        assert ([one.topic for one in found], following) == ([b"shown/1"], None)

    with_broker(act)
