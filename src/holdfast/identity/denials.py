"""The latest denials, for an operator who asks: failed logins, refused connections, what the rules did not allow.

Whoever is denied the same again is one entry with a count, so that a client in a loop does not push the others out. The
names are what clients say of themselves.
"""

from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

KEPT_MOST: Final = 500
TEXT_MOST: Final = 256


@dataclass
class Denial:
    """`topic` is a topic or a topic filter, `reason` the name of a reason code; empty where there is none."""

    event: str
    client_id: str
    username: str
    host: str
    topic: str
    reason: str
    count: int
    first_ms: int
    last_ms: int


class Denials:
    """At most KEPT_MOST of them, the one that was seen last at the end. `total` counts all there ever were, by event
    in `counted`.
    """

    def __init__(self) -> None:
        self.kept: OrderedDict[tuple[str, str, str, str, str], Denial] = OrderedDict()
        self.counted: Counter[str] = Counter()

    @property
    def total(self) -> int:
        return self.counted.total()

    def add(
        self, at_ms: int, event: str, client_id: str, username: str, address: str, detail: Mapping[str, object]
    ) -> None:
        self.counted[event] += 1
        host = host_of(address)
        topic = text_of(detail.get("topic", detail.get("filter", "")))
        reason = text_of(detail.get("reason", ""))
        key = (event, client_id[:TEXT_MOST], username[:TEXT_MOST], host, topic)
        known = self.kept.get(key)
        if known is None:
            if len(self.kept) >= KEPT_MOST:
                self.kept.popitem(last=False)
            self.kept[key] = Denial(event, key[1], key[2], host, topic, reason, 1, at_ms, at_ms)
            return
        known.count += 1
        known.last_ms = at_ms
        known.reason = reason
        self.kept.move_to_end(key)

    def newest_first(self) -> list[Denial]:
        return list(reversed(self.kept.values()))


def host_of(address: str) -> str:
    """An address without its port: who tries again comes from another one."""
    host, colon, port = address.rpartition(":")
    return (host if colon and port.isdigit() else address).strip("[]")


def text_of(value: object) -> str:
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return text[:TEXT_MOST]
