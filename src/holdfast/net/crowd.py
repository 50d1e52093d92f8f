"""How many connections one address has, and how fast it makes new ones; over all listeners together."""

# Addresses whose rate is remembered before the idle ones are forgotten.
REMEMBERED = 10_000


class Crowd:
    """0 is no limit. Times are seconds of the caller's clock."""

    def __init__(self, most: int = 0, rate: float = 0) -> None:
        self.most = most
        self.rate = rate
        self.present: dict[str, int] = {}
        self.debts: dict[str, tuple[float, float]] = {}

    @property
    def is_limited(self) -> bool:
        return self.most > 0 or self.rate > 0

    def enter(self, host: str, now: float) -> bool:
        """Whether one more connection from this address is all right; if so it counts until `leave`."""
        if self.most > 0 and self.present.get(host, 0) >= self.most:
            return False
        if self.rate > 0 and not self.in_rate(host, now):
            return False
        self.present[host] = self.present.get(host, 0) + 1
        return True

    def leave(self, host: str) -> None:
        left = self.present.get(host, 0) - 1
        if left > 0:
            self.present[host] = left
        else:
            self.present.pop(host, None)

    def in_rate(self, host: str, now: float) -> bool:
        """A second's worth of connections may come at once."""
        if len(self.debts) >= REMEMBERED:
            self.debts = {who: entry for who, entry in self.debts.items() if entry[0] > (now - entry[1]) * self.rate}
        debt, since = self.debts.get(host, (0.0, now))
        debt = max(0.0, debt - (now - since) * self.rate)
        if debt + 1 > max(self.rate, 1.0):
            self.debts[host] = (debt, now)
            return False
        self.debts[host] = (debt + 1, now)
        return True
