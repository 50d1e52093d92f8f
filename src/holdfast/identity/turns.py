"""Who is looked at next among those who want to log in: each address in turn, and few of one address at once.

A check costs far more than the packet that asks for it. Whoever sends very many waits behind himself, and not in front
of everybody else.
"""

from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

Attempt = TypeVar("Attempt")

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
