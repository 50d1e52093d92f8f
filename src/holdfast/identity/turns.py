"""Who is looked at next among those who want to log in: each address in turn, and few of one address at once.

A check costs far more than the packet that asks for it. Whoever sends very many waits behind himself, and not in front
of everybody else.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Generic, TypeVar

from holdfast.identity.hosts import key_of_host

Attempt = TypeVar("Attempt")
Answer = TypeVar("Answer")

PER_ADDRESS_AT_ONCE: Final = 4

# What may wait. Those beyond are told to come back, so that a flood of logins costs no memory.
WAITING_MOST: Final = 10_000
WAITING_PER_ADDRESS: Final = 1000


class Turns(Generic[Attempt]):
    """`waiting` holds the addresses that somebody waits for, the next one first; `under_way` counts by address."""

    def __init__(self, at_once: int, per_address: int) -> None:
        self.at_once = at_once
        self.per_address = per_address
        self.waiting: OrderedDict[Hashable, deque[Attempt]] = OrderedDict()
        self.under_way: dict[Hashable, int] = {}
        self.count = 0  # of those that wait
        self.busy = 0  # those under way

    def add(self, address: Hashable, attempt: Attempt) -> bool:
        """Queue an attempt; returns False when too many wait, of all or of this address."""
        queue = self.waiting.get(address)
        if self.count >= WAITING_MOST or (queue is not None and len(queue) >= WAITING_PER_ADDRESS):
            return False
        if queue is None:
            queue = self.waiting[address] = deque()
        queue.append(attempt)
        self.count += 1
        return True

    def next(self) -> tuple[Hashable, Attempt] | None:
        """Return whose turn it is, or None while all places are taken. `done` gives the place back."""
        if self.busy >= self.at_once:
            return None
        address = next((one for one in self.waiting if self.under_way.get(one, 0) < self.per_address), None)
        if address is None:
            return None
        queue = self.waiting[address]
        attempt = queue.popleft()
        self.count -= 1
        if queue:
            self.waiting.move_to_end(address)
        else:
            del self.waiting[address]
        self.under_way[address] = self.under_way.get(address, 0) + 1
        self.busy += 1
        return address, attempt

    def done(self, address: Hashable) -> None:
        self.busy -= 1
        left = self.under_way[address] - 1
        if left > 0:
            self.under_way[address] = left
        else:
            del self.under_way[address]


class TooManyWait(Exception):
    """Nobody more can wait, of all or of this address."""


class Crew:
    """A few threads that check logins, one address after the other."""

    def __init__(self, name: str, at_once: int) -> None:
        self.pool = ThreadPoolExecutor(at_once, thread_name_prefix=name)
        self.turns: Turns[asyncio.Future[None]] = Turns(at_once, PER_ADDRESS_AT_ONCE)

    async def do(self, host: str, work: Callable[[], Answer], object_to: Callable[[], None]) -> Answer:
        """Have work done in a thread when it is this host's turn. `object_to` is asked just before, and raises if the
        work need not be done any more. Raises TooManyWait.
        """
        loop = asyncio.get_running_loop()
        address = key_of_host(host)
        turn: asyncio.Future[None] = loop.create_future()
        if not self.turns.add(address, turn):
            raise TooManyWait
        self.call_up()
        await turn
        try:
            object_to()
            return await loop.run_in_executor(self.pool, work)
        finally:
            self.turns.done(address)
            self.call_up()

    def call_up(self) -> None:
        while (turn := self.turns.next()) is not None:
            address, waits = turn
            if waits.done():  # given up: the broker stops
                self.turns.done(address)
            else:
                waits.set_result(None)

    def stop(self) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)
