"""A rate limit as a leaky bucket: what is done is poured in, and it drains at the rate that is allowed."""

from typing import final


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
