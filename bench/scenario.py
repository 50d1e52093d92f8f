"""A scenario of the comparison: how it is run, which figures it yields, and what is expected of them."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast_bench.plan import SATURATED, Busy
from peers import AS_SHIPPED, HOLDFASTS, Running

Figures = dict[str, float]

YARDSTICK = "mosquitto"
GENERATOR, BROKER = "generator_busy", "broker_busy"
SHARE = "%"


@dataclass(frozen=True)
class Figure:
    """One line of the table. A target is a ratio to the broker `beside` it, a bound on Holdfast's own value, or both.

    It is meant for one of Holdfast's columns, `of`: what is fast in memory only says nothing about what is shipped.
    """

    key: str
    label: str
    unit: str = ""
    more_is_better: bool = True
    of: str = AS_SHIPPED
    beside: str = YARDSTICK
    times: float | None = None  # Holdfast must be this many times better than the one beside it
    at_least: float | None = None
    at_most: float | None = None
    limited_by: str = ""  # the figure that says how busy the generator was: at its limit, this one is a lower bound

    def verdict(self, ours: float | None, theirs: float | None) -> bool | None:
        """Whether the target is met; None when there is none or it cannot be told."""
        if ours is None:
            return None
        met: list[bool] = []
        if self.at_least is not None:
            met.append(ours >= self.at_least)
        if self.at_most is not None:
            met.append(ours <= self.at_most)
        if self.times is not None:
            ratio = self.ratio(ours, theirs)
            if ratio is None and all(met):
                return None
            met.append(ratio is not None and ratio >= self.times)
        return all(met) if met else None

    def ratio(self, ours: float | None, theirs: float | None) -> float | None:
        """How many times better the first of them is."""
        if ours is None or theirs is None or min(ours, theirs) <= 0:
            return None
        return ours / theirs if self.more_is_better else theirs / ours

    def target(self) -> str:
        parts: list[str] = []
        if self.at_least is not None:
            parts.append(f">= {self.at_least:,.10g}")
        if self.at_most is not None:
            parts.append(f"<= {self.at_most:,.10g}")
        if self.times is not None:
            parts.append(f"{self.times:g}x {self.beside.partition(',')[0]}")
        return ", ".join(parts)


def rate(
    key: str,
    label: str,
    prefix: str = "",
    *,
    of: str = AS_SHIPPED,
    times: float | None = None,
    at_least: float | None = None,
) -> tuple[Figure, ...]:
    """A rate, and beside it what is needed to judge it."""
    return (
        Figure(key, label, "msgs/s", of=of, times=times, at_least=at_least, limited_by=prefix + GENERATOR),
        Figure(f"{prefix}cpu_us", "broker time each", "us", more_is_better=False),
        Figure(prefix + BROKER, "broker busy", SHARE),
        Figure(prefix + GENERATOR, "generator busy", SHARE),
    )


def shares(busy: Busy | None, prefix: str = "") -> Figures:
    """How busy both sides were, for the lines that `rate` has for it."""
    if busy is None or busy.broker is None:
        return {}
    return {prefix + BROKER: 100 * busy.broker, prefix + GENERATOR: 100 * busy.generator}


@dataclass(frozen=True)
class Scenario:
    name: str
    title: str
    run: Callable[[Running], Figures]
    figures: tuple[Figure, ...]
    rounds: int = 3
    peers: tuple[str, ...] = (*HOLDFASTS, "mosquitto", "nats-server", "FlashMQ")
    quick_answers: bool = False
    settings: tuple[str, ...] = ()  # of Holdfast, as `name=value`, over those of its column


@dataclass
class Outcome:
    """What one scenario gave: every round of every broker, and what went wrong."""

    rounds: dict[str, list[Figures]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)  # a broker that had one is not asked again

    def add(self, peer: str, figures: Figures) -> None:
        self.rounds.setdefault(peer, []).append(figures)

    def median(self, peer: str, key: str) -> float | None:
        values = [figures[key] for figures in self.rounds.get(peer, []) if key in figures]
        return statistics.median(values) if values else None

    def is_lower_bound(self, peer: str, figure: Figure) -> bool:
        busy = self.median(peer, figure.limited_by) if figure.limited_by else None
        return busy is not None and busy >= 100 * SATURATED
