"""A scenario of the comparison: how it is run, which figures it yields, and what is expected of them."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

from peers import Running

Figures = dict[str, float]


@dataclass(frozen=True)
class Figure:
    """One line of the table. A target is a ratio to mosquitto (`times`) or a bound on Holdfast's own value."""

    key: str
    label: str
    unit: str = ""
    more_is_better: bool = True
    times: float | None = None  # Holdfast must be this many times better than mosquitto
    at_least: float | None = None
    at_most: float | None = None

    def verdict(self, ours: float | None, mosquittos: float | None) -> bool | None:
        """Whether the target is met; None when there is none or it cannot be told."""
        if ours is None:
            return None
        if self.times is not None:
            ratio = self.ratio(ours, mosquittos)
            return None if ratio is None else ratio >= self.times
        if self.at_least is not None:
            return ours >= self.at_least
        if self.at_most is not None:
            return ours <= self.at_most
        return None

    def ratio(self, ours: float | None, theirs: float | None) -> float | None:
        """How many times better Holdfast is."""
        if ours is None or theirs is None or min(ours, theirs) <= 0:
            return None
        return ours / theirs if self.more_is_better else theirs / ours

    def target(self) -> str:
        if self.times is not None:
            return f"{self.times:g}x mosquitto"
        if self.at_least is not None:
            return f">= {self.at_least:,.10g}"
        if self.at_most is not None:
            return f"<= {self.at_most:,.10g}"
        return ""


@dataclass(frozen=True)
class Scenario:
    name: str
    title: str
    run: Callable[[Running], Figures]
    figures: tuple[Figure, ...]
    rounds: int = 3
    peers: tuple[str, ...] = ("Holdfast", "mosquitto", "nats-server")
    quick_answers: bool = False
    settings: tuple[str, ...] = ()  # of Holdfast, as `name=value`, over those it is always compared with


@dataclass
class Outcome:
    """What one scenario gave: every round of every broker, and what went wrong."""

    rounds: dict[str, list[Figures]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def add(self, peer: str, figures: Figures) -> None:
        self.rounds.setdefault(peer, []).append(figures)

    def median(self, peer: str, key: str) -> float | None:
        values = [figures[key] for figures in self.rounds.get(peer, []) if key in figures]
        return statistics.median(values) if values else None
