"""A rate limit as a leaky bucket: what is done is poured in, and it drains at the rate that is allowed."""

from typing import Final, final

# How long unused rate may be saved up, and how many users are remembered before the idle ones are forgotten.
BURST_S: Final = 1.0
REMEMBERED_USERS: Final = 10_000


@final
class LeakyBucket:
    """Drains `rate` a second and holds `capacity`, which is what may be done at once. `now_s` is the caller's clock."""

    def __init__(self, rate: float, capacity: float) -> None:
        self.rate = rate
        self.capacity = capacity
        self.level = 0.0
        self.since_s = 0.0

    def drain(self, now_s: float) -> float:
        """Lets out what has drained since the last call, and returns what is left."""
        elapsed_s = max(0.0, now_s - self.since_s)
        self.since_s = now_s
        self.level = max(0.0, self.level - elapsed_s * self.rate)
        return self.level

    def offer(self, now_s: float) -> bool:
        """Pours in one if there is room for it, and returns whether there was."""
        if self.drain(now_s) + 1 > self.capacity:
            return False
        self.level += 1
        return True

    def pour(self, amount: float, now_s: float) -> float:
        """Pours in `amount` in any case, and returns after how many seconds the bucket holds no more than it should."""
        self.level = self.drain(now_s) + amount
        return max(0.0, self.level - self.capacity) / self.rate


@final
class UserRates:
    """What all connections of one user may send in a second together: publishes, and bytes. 0 is any. Clients without a
    name are one user.
    """

    def __init__(self, messages: float, size: float) -> None:
        self.messages: Final = messages
        self.size: Final = size
        self.is_limited: Final = messages > 0 or size > 0
        self.buckets: dict[str, tuple[LeakyBucket, LeakyBucket]] = {}

    def pour(self, username: str, messages: int, size: int, now_s: float) -> float:
        """Count what has come in any case; returns for how many seconds its sender should not be read from."""
        of_messages, of_bytes = self.buckets_of(username, now_s)
        wait_s = 0.0
        if self.messages > 0:
            wait_s = of_messages.pour(messages, now_s)
        if self.size > 0:
            wait_s = max(wait_s, of_bytes.pour(size, now_s))
        return wait_s

    def admit(self, username: str, messages: int, size: int, now_s: float) -> bool:
        """Count what can still be refused, unless the user is over a rate; returns whether it may come in."""
        of_messages, of_bytes = self.buckets_of(username, now_s)
        if self.messages > 0 and of_messages.drain(now_s) >= of_messages.capacity:
            return False
        if self.size > 0 and of_bytes.drain(now_s) >= of_bytes.capacity:
            return False
        self.pour(username, messages, size, now_s)
        return True

    def buckets_of(self, username: str, now_s: float) -> tuple[LeakyBucket, LeakyBucket]:
        held = self.buckets.get(username)
        if held is None:
            if len(self.buckets) >= REMEMBERED_USERS:
                self.forget_idle(now_s)
            held = (LeakyBucket(self.messages, self.messages * BURST_S), LeakyBucket(self.size, self.size * BURST_S))
            self.buckets[username] = held
        return held

    def forget_idle(self, now_s: float) -> None:
        for username, held in list(self.buckets.items()):
            if held[0].drain(now_s) == 0 and held[1].drain(now_s) == 0:
                del self.buckets[username]
