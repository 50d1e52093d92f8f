"""What can happen in a run of the model: plain values, each meaningful in any state.

So any of them can be left out when a failing run is made smaller.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from model.fold import Limits, Rule

TOPICS = ("a", "a/b", "a/b/c", "a/", "/a", "b", "b/c", "b/d", "c", "c/d/e", "$x/1", "$x/y/z")
FILTERS = ("#", "+", "a/#", "a/+", "+/b", "a/b", "b/#", "+/+", "b/c", "c/+/e", "/+", "$x/#", "$x/+", "+/b/#", "c")
# No topic is in two groups, so a shared copy tells which group it is for.
SHARED = ("$share/g/a/#", "$share/g/b/c", "$share/h/$x/#")
CLIENTS = ("one", "two", "three", "four", "five")
USERS = {"one": "ann", "two": "ann", "three": "bob", "four": "", "five": ""}


@dataclass(frozen=True)
class WillOf:
    topic: str
    size: int
    qos: int
    retain: bool
    delay_s: int


@dataclass(frozen=True)
class Connect:
    client: str
    version: int = 5
    clean: bool = True
    expiry_s: int = 0  # how long the session outlives the connection; in 3.1.1 only whether it does
    window: int = 0  # Receive Maximum, 0 for none
    lazy: bool = False  # acknowledges only when told to
    marks: bool = False
    aliases: int = 0
    largest: int = 0  # Maximum Packet Size, 0 for none
    will: WillOf | None = None


@dataclass(frozen=True)
class Disconnect:
    client: str
    with_will: bool = False


@dataclass(frozen=True)
class Cut:
    client: str


@dataclass(frozen=True)
class Wish:
    """One filter of a SUBSCRIBE."""

    topic_filter: str
    qos: int = 0
    no_local: bool = False
    as_published: bool = False
    handling: int = 0


@dataclass(frozen=True)
class Subscribe:
    client: str
    wishes: tuple[Wish, ...]
    identifier: int = 0
    since: bool = False  # ask for what changed since the last end marker for the first filter


@dataclass(frozen=True)
class Unsubscribe:
    client: str
    topic_filter: str


@dataclass(frozen=True)
class Publish:
    client: str
    topic: str
    size: int  # bytes of payload beyond its number; 0 for none at all, which deletes when retained
    qos: int = 0
    retain: bool = True
    interval_s: int | None = None
    dressed: bool = False  # carries content type and user properties


@dataclass(frozen=True)
class Fill:
    """Many retained messages at once, so that snapshots take more than one portion."""

    client: str
    count: int


@dataclass(frozen=True)
class Advance:
    ms: int
    tick: bool = True


@dataclass(frozen=True)
class Block:
    """The client's socket takes no more."""

    client: str


@dataclass(frozen=True)
class Unblock:
    client: str


@dataclass(frozen=True)
class Acknowledge:
    client: str
    count: int


@dataclass(frozen=True)
class Work:
    """Let the broker do a portion of its long work."""


@dataclass(frozen=True)
class Drain:
    """Everyone reads and acknowledges everything; then all that was promised must have come."""


@dataclass(frozen=True)
class Restart:
    """The broker stops and starts again on what it has kept; only where something is kept."""


Step = (
    Connect
    | Disconnect
    | Cut
    | Subscribe
    | Unsubscribe
    | Publish
    | Fill
    | Advance
    | Block
    | Unblock
    | Acknowledge
    | Work
    | Drain
    | Restart
)


@dataclass(frozen=True)
class Plan:
    """A run: the limits in force and the steps."""

    limits: Limits
    steps: list[Step]
    max_inflight: int = 1000
    max_queued: int = 100_000
    tombstones: int = 100_000
    label: str = field(default="", compare=False)


def random_limits(chance: random.Random) -> Limits:
    if chance.random() < 0.3:
        return Limits()
    rules = []
    if chance.random() < 0.6:
        for _ in range(chance.randint(1, 3)):
            rules.append(
                Rule(
                    chance.choice(("a/#", "b/+", "+", "#", "b/c", "$x/#")),
                    chance.choice(("store", "store", "drop-flag", "refuse")),
                    chance.choice((0, 0, 2000)),
                    chance.choice((0, 0, 2)),
                    chance.choice((0, 0, 60)),
                    chance.choice(((), (), ("ann",), ("bob", "ann"))),
                )
            )
    return Limits(
        max_messages=chance.choice((0, 0, 3, 6)),
        max_bytes=chance.choice((0, 0, 120)),
        max_payload=chance.choice((0, 0, 20)),
        expiry_ms=chance.choice((0, 0, 3000)),
        max_per_user=chance.choice((0, 0, 2)),
        max_bytes_per_user=chance.choice((0, 0, 80)),
        strict=chance.random() < 0.2,
        rules=tuple(rules),
    )


class Generator:
    """Random steps with weights that differ from run to run, so that runs dwell on different corners."""

    def __init__(self, chance: random.Random, can_restart: bool = False) -> None:
        self.chance = chance
        makers: list[tuple[Callable[[], Step], float]] = [
            (self.connect, 6),
            (self.disconnect, 2),
            (self.cut, 2),
            (self.subscribe, 14),
            (self.unsubscribe, 3),
            (self.publish, 40),
            (self.advance, 8),
            (self.block, 2),
            (self.unblock, 4),
            (self.acknowledge, 10),
            (Work, 4),
            (Drain, 2),
        ]
        if can_restart:
            makers.append((Restart, 1))
        self.makers = [maker for maker, _ in makers]
        self.weights = [weight * chance.choice((0.3, 1, 1, 2)) for _, weight in makers]
        self.identifier = 0
        self.topics = chance.sample(TOPICS, chance.choice((3, 6, len(TOPICS))))
        self.lazy = chance.choice((0.0, 0.3, 0.8))
        # Some runs are about clients with a tiny window that are in the middle of a snapshot most of the time.
        self.slow = chance.random() < 0.5
        self.windows = (1, 1, 2) if self.slow else (0, 1, 2, 5)
        self.filters = ("#", "#", "+/+", "a/#", "+", "$x/#") if self.slow else FILTERS
        self.least_qos = 1 if self.slow else 0

    def steps(self, count: int) -> list[Step]:
        begin: list[Step] = [self.connect(client) for client in CLIENTS]
        return begin + [self.chance.choices(self.makers, self.weights)[0]() for _ in range(count)] + [Drain()]

    def client(self) -> str:
        return self.chance.choice(CLIENTS)

    def connect(self, client: str | None = None) -> Step:
        chance = self.chance
        version = chance.choice((4, 5, 5))
        five = version == 5
        will = None
        if chance.random() < 0.2:
            will = WillOf(
                chance.choice(self.topics),
                chance.choice((0, 4)),
                chance.randrange(3),
                chance.random() < 0.7,
                chance.choice((0, 0, 2)) if five else 0,
            )
        return Connect(
            client or self.client(),
            version,
            clean=chance.random() < 0.4,
            expiry_s=chance.choice((0, 5, 3600)),
            window=chance.choice(self.windows) if five else 0,
            lazy=self.slow or chance.random() < self.lazy,
            marks=five and chance.random() < 0.5,
            aliases=chance.choice((0, 0, 3)) if five else 0,
            largest=chance.choice((0, 0, 0, 45)) if five else 0,
            will=will,
        )

    def disconnect(self) -> Step:
        return Disconnect(self.client(), with_will=self.chance.random() < 0.3)

    def cut(self) -> Step:
        return Cut(self.client())

    def subscribe(self) -> Step:
        chance = self.chance
        wishes = tuple(
            Wish(
                chance.choice(SHARED) if chance.random() < 0.08 else chance.choice(self.filters),
                chance.choice((self.least_qos, 1, 2)),
                chance.random() < 0.2,
                chance.random() < 0.3,
                chance.choice((0, 0, 0, 1, 1, 2)),
            )
            for _ in range(chance.choice((1, 1, 1, 2, 3)))
        )
        wishes = tuple({wish.topic_filter: wish for wish in wishes}.values())
        self.identifier += 1
        return Subscribe(
            self.client(),
            wishes,
            self.identifier if chance.random() < 0.8 else 0,
            since=len(wishes) == 1 and chance.random() < 0.3,
        )

    def unsubscribe(self) -> Step:
        return Unsubscribe(self.client(), self.chance.choice(FILTERS + SHARED))

    def publish(self) -> Step:
        chance = self.chance
        retain = chance.random() < 0.75
        return Publish(
            self.client(),
            chance.choice(self.topics),
            chance.choice((0, 1, 5, 12, 30)) if retain or chance.random() < 0.1 else chance.choice((1, 5, 12, 30)),
            chance.choice((self.least_qos, self.least_qos, 0, 1, 2)),
            retain,
            chance.choice((None, None, None, 0, 1, 2, 5)),
            chance.random() < 0.2,
        )

    def advance(self) -> Step:
        return Advance(self.chance.choice((1, 50, 130, 999, 1000, 2500, 7000)), tick=self.chance.random() < 0.7)

    def block(self) -> Step:
        return Block(self.client())

    def unblock(self) -> Step:
        return Unblock(self.client())

    def acknowledge(self) -> Step:
        return Acknowledge(self.client(), self.chance.choice((1, 1, 2, 10)))


def make_plan(seed: int, count: int, can_restart: bool = False) -> Plan:
    chance = random.Random(seed)
    limits = random_limits(chance)
    generator = Generator(chance, can_restart)
    steps = generator.steps(count)
    if chance.random() < 0.08:
        limits = Limits()
        at = chance.randrange(len(CLIENTS), 2 * len(CLIENTS))
        steps.insert(at, Fill(CLIENTS[0], chance.choice((300, 700))))
    return Plan(
        limits,
        steps,
        max_inflight=chance.choice((1000, 1000, 2)),
        max_queued=chance.choice((100_000, 100_000, 100_000, 3)),
        tombstones=chance.choice((100_000, 100_000, 2)),
        label=f"seed {seed}",
    )
