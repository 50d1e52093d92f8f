"""One line of a bridge, as mosquitto writes it: `PATTERN [out|in|both] [QOS [LOCAL-PREFIX [REMOTE-PREFIX]]]`.

The pattern is the part that both brokers call alike; each has its prefix in front of it. `""` is an empty pattern or
prefix. An empty pattern maps one topic to another: the prefixes are the topics then. Behind it may stand rules of our
own: `retain=keep|strip|set` and `expiry=SECONDS`.
"""

from dataclasses import dataclass
from typing import Final

OUT: Final = "out"
IN: Final = "in"
BOTH: Final = "both"
DIRECTIONS: Final = (OUT, IN, BOTH)

KEEP: Final = "keep"
STRIP: Final = "strip"
SET: Final = "set"
RETAINS: Final = (KEEP, STRIP, SET)

# The brokers that a message has passed on its way over bridges, one user property for each.
VIA: Final = "holdfast-via"

FORM: Final = "PATTERN [out|in|both] [QOS [LOCAL-PREFIX [REMOTE-PREFIX]]] [retain=keep|strip|set] [expiry=SECONDS]"


@dataclass(frozen=True)
class BridgeTopic:
    """`retain` says what becomes of RETAIN: kept, taken away, or set on every message. `expiry_s` 0: as published."""

    pattern: str
    direction: str = OUT
    qos: int = 0
    local_prefix: str = ""
    remote_prefix: str = ""
    retain: str = KEEP
    expiry_s: int = 0

    @property
    def goes_out(self) -> bool:
        return self.direction != IN

    @property
    def comes_in(self) -> bool:
        return self.direction != OUT

    @property
    def local_filter(self) -> str:
        return self.local_prefix + self.pattern

    @property
    def remote_filter(self) -> str:
        return self.remote_prefix + self.pattern

    def to_remote(self, topic: bytes) -> bytes:
        """The other broker's name of a topic that `local_filter` matches."""
        return self.remote_prefix.encode() + topic[len(self.local_prefix.encode()) :]

    def to_local(self, topic: bytes) -> bytes:
        """Our name of a topic that `remote_filter` matches."""
        return self.local_prefix.encode() + topic[len(self.remote_prefix.encode()) :]

    def __str__(self) -> str:
        words = [shown(self.pattern), self.direction, str(self.qos)]
        if self.local_prefix or self.remote_prefix:
            words += [shown(self.local_prefix), shown(self.remote_prefix)]
        if self.retain != KEEP:
            words.append(f"retain={self.retain}")
        if self.expiry_s:
            words.append(f"expiry={self.expiry_s}")
        return " ".join(words)


def shown(text: str) -> str:
    return f'"{text}"' if not text or " " in text else text


def parse_bridge_topic(line: str) -> BridgeTopic:
    """Raises ValueError that says what was expected and what stood there."""
    words = split(line)
    options: dict[str, str] = {}
    while words and words[-1].partition("=")[0] in ("retain", "expiry") and "=" in words[-1]:
        name, _, value = words.pop().partition("=")
        options[name] = value
    if not words or len(words) > 5:
        raise ValueError(f"expected {FORM}, got {line!r}")
    pattern, direction, qos, local, remote = words + ["", OUT, "0", "", ""][len(words) :]
    if direction not in DIRECTIONS:
        raise ValueError(f"expected a direction out, in or both, got {direction!r} in {line!r}")
    if qos not in ("0", "1", "2"):
        raise ValueError(f"expected a QoS 0, 1 or 2, got {qos!r} in {line!r}")
    retain = options.get("retain", KEEP)
    if retain not in RETAINS:
        raise ValueError(f"expected retain=keep, retain=strip or retain=set, got {retain!r} in {line!r}")
    expiry = options.get("expiry", "0")
    if not expiry.isascii() or not expiry.isdigit() or int(expiry) > 0xFFFFFFFF:
        raise ValueError(f"expected expiry in whole seconds, got {expiry!r} in {line!r}")
    if any(wildcard in prefix for prefix in (local, remote) for wildcard in "+#"):
        raise ValueError(f"expected prefixes without wildcards, got {line!r}")
    found = BridgeTopic(pattern, direction, int(qos), local, remote, retain, int(expiry))
    if not found.local_filter or not found.remote_filter:
        raise ValueError(f"expected a pattern, or both topics where the pattern is empty, got {line!r}")
    return found


def split(line: str) -> list[str]:
    """Words, where `"` holds together what has spaces in it, or nothing."""
    words: list[str] = []
    rest = line.strip()
    while rest:
        if rest.startswith('"'):
            word, quote, rest = rest[1:].partition('"')
            if not quote:
                raise ValueError(f'expected a closing ", got {line!r}')
        else:
            word, _, rest = rest.partition(" ")
        words.append(word)
        rest = rest.strip()
    return words
