"""Deleting by conditions: a token is good for what was counted, for who counted it, and for ten minutes."""

import time

import pytest

from holdfast.api import bulk_delete as module
from holdfast.api.bulk_delete import BulkDelete
from holdfast.api.problem import Problem
from holdfast.service.caller import OPERATOR, Caller
from holdfast.service.requests import conditions_from
from in_process import InProcess, with_broker

CONDITIONS = conditions_from({"filter": "d/#"})


async def token_of(deletes: BulkDelete) -> str:
    return str((await deletes.dry_run(CONDITIONS, OPERATOR))["token"])


def test_a_dry_run_counts_and_deletes_nothing() -> None:
    async def act(world: InProcess) -> None:
        await world.set(*(f"d/{number:02}" for number in range(25)), "other")
        seen = await BulkDelete(world.retained).dry_run(CONDITIONS, OPERATOR)
        assert (seen["count"], seen["bytes"]) == (25, 25 * 5)
        assert seen["sample"] == [f"d/{number:02}" for number in range(20)]
        assert len(world.topics()) == 26

    with_broker(act)


def test_a_token_deletes_what_was_counted() -> None:
    async def act(world: InProcess) -> None:
        await world.set("d/1", "d/2", "other")
        deletes = BulkDelete(world.retained)
        assert (await deletes.delete(CONDITIONS, OPERATOR, await token_of(deletes))).count == 2
        assert world.topics() == ["other"]

    with_broker(act)


@pytest.mark.parametrize("change", ["count", "filter", "caller", "broker", "token", "words", "nothing"])
def test_a_token_is_for_nothing_else(change: str) -> None:
    async def act(world: InProcess) -> None:
        await world.set("d/1", "d/2")
        deletes = BulkDelete(world.retained)
        token, conditions, caller = await token_of(deletes), CONDITIONS, OPERATOR
        if change == "count":
            await world.set("d/3")
        elif change == "filter":
            conditions = conditions_from({"filter": "#"})
        elif change == "caller":
            caller = Caller("mallory", True)
        elif change == "broker":
            deletes = BulkDelete(world.retained)  # a token of before the restart
        else:
            token = {"token": token[:-1] + "x", "words": f"{token.split('.')[0]}.ü", "nothing": ""}[change]
        before = world.topics()
        with pytest.raises(Problem) as refused:
            await deletes.delete(conditions, caller, token)
        assert refused.value.status == 409
        assert world.topics() == before

    with_broker(act)


def test_a_token_grows_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOKEN_S", -1)

    async def act(world: InProcess) -> None:
        await world.set("d/1")
        deletes = BulkDelete(world.retained)
        token = await token_of(deletes)
        assert int(token.split(".")[0]) < time.time()
        with pytest.raises(Problem, match="too old"):
            await deletes.delete(CONDITIONS, OPERATOR, token)

    with_broker(act)
