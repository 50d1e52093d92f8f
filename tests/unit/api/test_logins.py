"""Logins of the API wait as those of MQTT do: address by address, and a ban counts for those that wait."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from holdfast.api.auth import CHECKS_AT_ONCE, ApiAuthenticator
from holdfast.api.problem import Problem
from holdfast.broker.core import Broker
from holdfast.broker.settings import Settings
from holdfast.identity import turns
from holdfast.net.admission import Bans

GUESSER, OTHER = "192.0.2.1", "192.0.2.2"
PATIENCE_S = 60.0


class SlowSecrets:
    """Checks are done one after the other as `allow` lets them, and noted."""

    def __init__(self) -> None:
        self.checked: list[str] = []
        self.allowed = threading.Semaphore(0)

    def check(self, username: str | None, password: bytes | None) -> bool:
        self.checked.append(username or "")
        assert self.allowed.acquire(timeout=PATIENCE_S)
        return password == b"right"


def with_logins(act: Callable[[ApiAuthenticator, SlowSecrets], Awaitable[None]], failures: int = 0) -> None:
    async def run() -> None:
        keys = SlowSecrets()
        authenticator = ApiAuthenticator(Broker(Settings(), ""), keys, None, [], Bans(failures=failures))
        await act(authenticator, keys)
        authenticator.stop()

    asyncio.run(run())


def test_a_login_does_not_wait_behind_those_of_another_address() -> None:
    async def act(authenticator: ApiAuthenticator, keys: SlowSecrets) -> None:
        flood = [asyncio.create_task(authenticator.check(f"guess {n}", b"wrong", GUESSER)) for n in range(50)]
        await asyncio.sleep(0)
        ann = asyncio.create_task(authenticator.check("ann", b"right", OTHER))
        while not ann.done():
            keys.allowed.release()
            await asyncio.sleep(0.001)
        assert keys.checked.index("ann") <= 2 * CHECKS_AT_ONCE, "among the next, whoever else waits"
        keys.allowed.release(len(flood) * 2)
        await asyncio.gather(*flood)

    with_logins(act)


def test_a_ban_stops_the_guesses_that_wait() -> None:
    async def act(authenticator: ApiAuthenticator, keys: SlowSecrets) -> None:
        keys.allowed.release(1000)
        guesses = [authenticator.check(f"guess {n}", b"right" if n == 59 else b"wrong", GUESSER) for n in range(60)]
        found = await asyncio.gather(*guesses, return_exceptions=True)
        assert 5 <= len(keys.checked) <= 5 + CHECKS_AT_ONCE
        assert found.count(None) <= len(keys.checked)
        refused = [answer for answer in found if isinstance(answer, Problem)]
        assert len(refused) + found.count(None) == 60, "the right one is refused too"
        assert {problem.status for problem in refused} == {403}
        with pytest.raises(Problem, match="banned"):
            await authenticator.check("ann", b"right", GUESSER)
        assert await authenticator.check("ann", b"right", OTHER) is not None

    with_logins(act, failures=5)


def test_a_right_guess_that_is_being_checked_when_the_ban_comes_is_refused() -> None:
    async def act(authenticator: ApiAuthenticator, keys: SlowSecrets) -> None:
        right = asyncio.create_task(authenticator.check("ann", b"right", GUESSER))
        while not keys.checked:
            await asyncio.sleep(0.001)
        authenticator.bans.on_failure(GUESSER, asyncio.get_running_loop().time())
        keys.allowed.release()
        with pytest.raises(Problem, match="banned"):
            await right

    with_logins(act, failures=1)


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "WAITING_PER_ADDRESS", 5)

    async def act(authenticator: ApiAuthenticator, keys: SlowSecrets) -> None:
        flood = [asyncio.create_task(authenticator.check(f"guess {n}", b"wrong", GUESSER)) for n in range(50)]
        await asyncio.sleep(0)
        keys.allowed.release(1000)
        found = await asyncio.gather(*flood, return_exceptions=True)
        assert found.count(None) == 5 + CHECKS_AT_ONCE
        assert {answer.status for answer in found if isinstance(answer, Problem)} == {503}

    with_logins(act)
