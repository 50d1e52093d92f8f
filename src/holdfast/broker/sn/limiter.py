"""How much strangers are answered: a source address proves nothing, so what it asks for is counted and bounded."""

from typing import Final, final

WINDOW_MS: Final = 1000


@final
class Limiter:
    """Counts by the second, per host and altogether. The table of hosts is as large as the rate, never larger."""

    def __init__(self, per_host: int, overall: int) -> None:
        self.per_host: Final = per_host
        self.overall: Final = overall
        self.since_ms = 0
        self.total = 0
        self.hosts: dict[str, int] = {}

    def allow(self, host: str, now_ms: int) -> bool:
        if now_ms - self.since_ms >= WINDOW_MS:
            self.since_ms = now_ms
            self.total = 0
            self.hosts.clear()
        if 0 < self.overall <= self.total:
            return False
        count = self.hosts.get(host, 0)
        if 0 < self.per_host <= count:
            return False
        self.hosts[host] = count + 1
        self.total += 1
        return True
