"""The retained set as a fold over publishes: the reference that the broker is compared with.

`fold` is the whole idea in a few lines. `verdict` is the naive form of the limits: it looks at everything that is
stored and adds up, where the broker keeps running sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum


class Outcome(Enum):
    LIVE = "live"
    SET = "set"
    CLEARED = "cleared"
    SIZE = "refused_size"
    COUNT = "refused_count"
    BUDGET = "refused_budget"
    POLICY = "refused_policy"


LIMITS = (Outcome.SIZE, Outcome.COUNT, Outcome.BUDGET)


@dataclass(frozen=True)
class Rule:
    """One retainer policy."""

    topic_filter: str
    action: str = "store"
    ttl_ms: int = 0
    max_messages: int = 0
    max_bytes: int = 0
    users: tuple[str, ...] = ()

    def applies(self, topic: str, user: str) -> bool:
        return matches(self.topic_filter, topic) and (not self.users or user in self.users)


@dataclass(frozen=True)
class Limits:
    """The settings that decide what is kept; 0 is no limit."""

    max_messages: int = 0
    max_bytes: int = 0
    max_payload: int = 0
    expiry_ms: int = 0
    max_per_user: int = 0
    max_bytes_per_user: int = 0
    strict: bool = False
    rules: tuple[Rule, ...] = ()

    def rule_for(self, topic: str, user: str) -> Rule | None:
        return next((rule for rule in self.rules if rule.applies(topic, user)), None)


@dataclass(frozen=True)
class Publication:
    """A publish as the broker took it in. `number` is its place in the order of all of them, and in its payload."""

    number: int
    topic: str
    payload: bytes
    qos: int
    retain: bool
    client: str
    user: str
    at_ms: int
    interval_s: int | None = None
    properties: tuple[tuple[int, object], ...] = ()
    properties_size: int = 0
    lifetime_ms: int = field(default=0, compare=False)  # the broker's own default for it, 0 for none

    @property
    def size(self) -> int:
        return len(self.topic.encode()) + len(self.payload) + self.properties_size

    @property
    def expires_ms(self) -> int | None:
        """When a subscriber must not be sent it any more, by the publisher's wish."""
        return None if self.interval_s is None else self.at_ms + self.interval_s * 1000

    @property
    def forgotten_ms(self) -> int | None:
        """When the store forgets it: by the publisher's wish, or else by default."""
        if self.interval_s is not None:
            return self.expires_ms
        return self.at_ms + self.lifetime_ms if self.lifetime_ms else None

    def is_kept(self, now_ms: int) -> bool:
        return self.forgotten_ms is None or now_ms < self.forgotten_ms


def fold(log: Iterable[tuple[Publication, Outcome]], now_ms: int) -> dict[str, Publication]:
    """What is retained at a moment: per topic the last publish that was set or cleared, if it has not expired."""
    kept: dict[str, Publication] = {}
    for publication, outcome in log:
        if outcome is Outcome.SET:
            kept[publication.topic] = publication
        elif outcome is Outcome.CLEARED:
            kept.pop(publication.topic, None)
    return {topic: publication for topic, publication in kept.items() if publication.is_kept(now_ms)}


def verdict(publication: Publication, kept: Mapping[str, Publication], limits: Limits) -> Outcome:
    """What a publish does to the set, given the messages that are in it and have not expired."""
    if not publication.retain:
        return Outcome.LIVE
    rule = limits.rule_for(publication.topic, publication.user)
    if rule is not None and rule.action == "refuse":
        return Outcome.POLICY
    if not publication.payload:
        return Outcome.CLEARED
    if rule is not None and rule.action == "drop-flag":
        return Outcome.POLICY
    if 0 < limits.max_payload < len(publication.payload):
        return Outcome.SIZE
    old = kept.get(publication.topic)
    if old is None and 0 < limits.max_messages <= len(kept):
        return Outcome.COUNT
    return Outcome.SET if fits(publication, old, kept, limits, rule) else Outcome.BUDGET


def fits(
    new: Publication, old: Publication | None, kept: Mapping[str, Publication], limits: Limits, rule: Rule | None
) -> bool:
    """A budget is broken only by what makes it worse: replacing by something no larger always fits."""
    mine = [each for each in kept.values() if each.user == new.user]
    budgets = [
        (list(kept.values()), 0, limits.max_bytes),
        (mine, limits.max_per_user, limits.max_bytes_per_user),
    ]
    if rule is not None:
        under = [each for topic, each in kept.items() if matches(rule.topic_filter, topic)]
        budgets.append((under, rule.max_messages, rule.max_bytes))
    for charged, most_messages, most_bytes in budgets:
        replaced = old if old is not None and old in charged else None
        one = 0 if replaced is not None else 1
        more = new.size - (replaced.size if replaced is not None else 0)
        if one > 0 and 0 < most_messages < len(charged) + one:
            return False
        if more > 0 and 0 < most_bytes < sum(each.size for each in charged) + more:
            return False
    return True


def matches(topic_filter: str, topic: str) -> bool:
    """Whether a filter matches a topic, straight from the words of the standard."""
    if topic.startswith("$") and topic_filter[0] in "+#":
        return False
    levels, parts = topic_filter.split("/"), topic.split("/")
    for at, level in enumerate(levels):
        if level == "#":
            return True
        if at >= len(parts) or level not in ("+", parts[at]):
            return False
    return len(levels) == len(parts)
