"""Rounds of clients and faults, and the verdict on each.

    make jepsen ROUNDS=10                                        fresh seeds, on a cluster
    make jepsen ROUNDS=1 SEED=1234                               that one again
    make jepsen SYSTEM=one                                       one broker, killed and started again
    make jepsen ARGS='--faults pause --faults "cut off"'         only these
    make jepsen ARGS='--judge build/jepsen/1234.json'            the verdict on a history that was kept

A plan of faults and what the clients try follow from the seed. How the two meet does not: it is a race, so a seed that
found something may take a few rounds to find it again.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import SystemRandom
from typing import TypeVar

from jepsen.actor import Actor, World
from jepsen.checker import Violation, check
from jepsen.clients import Looker, Publisher, Reader, Rival, Subscriber, WithWill, Writer
from jepsen.faults import USUAL, WITH_DAMAGE, Anatomy, Nemesis, Step, kinds_of, plan
from jepsen.history import Disturbance, History, Outcome, SessionSeen, Stuck, load
from jepsen.systems import SYSTEMS, System, until

Found = TypeVar("Found")

KEPT = Path(__file__).parents[2] / "build" / "jepsen"
DURATION_S = 25.0
CALM_S = 3.0  # after everything is healed, clients go on for so long
PATIENCE_S = 120.0
TOO_MUCH_S = 1.0  # how long to look for what should not come
AROUND_S = 2.0  # of the history, on both sides of a violation


@dataclass
class Round:
    """One round: who takes part, and what came of it."""

    system: System
    seed: int
    duration_s: float = DURATION_S
    faults: Sequence[str] = USUAL
    say: Callable[[str], None] = print
    patience_s: float = PATIENCE_S  # for what must come
    steps: Sequence[Step] | None = None  # instead of what follows from the seed
    calm_s: float = CALM_S
    history: History = field(init=False)

    def __post_init__(self) -> None:
        self.world = World(self.system, self.seed)
        self.history = self.world.history
        self.subscribers = [
            Subscriber(self.world, "sub-a", 4, ["q/#", "w/#"], qos=2),
            Subscriber(self.world, "sub-b", 5, ["q/#", "w/#"], qos=2),
            Subscriber(self.world, "watch-a", 5, ["r/#"], qos=1),
            Subscriber(self.world, "watch-b", 4, ["r/#"], qos=2),
        ]
        self.publishers = [Publisher(self.world, f"pub-{v}-{qos}", v, qos) for v in (4, 5) for qos in (1, 2)]
        self.with_wills = [WithWill(self.world, f"mortal-{number}-") for number in range(4)]
        self.others: list[Actor] = [
            *(Writer(self.world, f"writer-{number}-") for number in range(4)),
            *(Reader(self.world, f"reader-{number}-") for number in range(4)),
            *(Rival(self.world, f"rival-{number}-", "throne") for number in range(2)),
            *self.with_wills,
        ]

    def play(self) -> list[Violation]:
        for subscriber in self.subscribers:
            subscriber.start()
        until(lambda: all(s.subscribed.is_set() for s in self.subscribers), "everybody is subscribed", PATIENCE_S)
        for actor in (*self.publishers, *self.others):
            actor.start()
        try:
            nemesis = Nemesis(self.system, self.world.clock, self.history, self.say)
            nemesis.run(self.plan())
            self.system.wait_healthy()
            time.sleep(self.calm_s)
            self.world.stop.set()
            self.settle()
            self.look()
        finally:
            self.end()
        assert not self.world.errors, self.world.errors[0]
        return check(self.history)

    def plan(self) -> Sequence[Step]:
        if self.steps is not None:
            return self.steps
        return plan(self.seed, Anatomy.of(self.system), self.duration_s, self.faults)

    def settle(self) -> None:
        """Everybody ends in peace; what is missing after that is missing for good."""
        for actor in self.others:
            actor.join(PATIENCE_S)
            assert not actor.is_alive(), f"{actor.name} does not end"
        for publisher in self.publishers:
            publisher.join(self.patience_s)
            if publisher.is_alive():
                waits = ", ".join(message.message for message in publisher.under_way.values())
                self.stuck(publisher.name, f"{waits} is never acknowledged")
        self.wait(self.all_has_come)  # what has not come by then, the checker misses
        time.sleep(TOO_MUCH_S)

    def all_has_come(self) -> bool:
        messages = {message for publisher in self.publishers for message in publisher.acknowledged}
        messages |= {will for mortal in self.with_wills for will in mortal.expected}
        values = {w.value for w in self.history.writes if w.value and w.qos and w.outcome is Outcome.OK}
        return all((values if s.filters == ["r/#"] else messages) <= s.got for s in self.subscribers)

    def look(self) -> None:
        looker = Looker(self.world)
        for node in self.system.nodes:
            if not self.wait(partial(looker.acknowledged, node)):
                self.stuck(f"node {node}", "it does not acknowledge a write")
        for node, digest in self.system.digests().items():
            if final := self.wait(partial(looker.look, node, digest)):
                self.history.finals.append(final)
            else:
                self.stuck(f"node {node}", "it does not answer a SUBSCRIBE")
        self.history.recorded += self.system.recorded(self.world.clock.now())

    def wait(self, look: Callable[[], Found]) -> Found:
        """What it finds as soon as that is something, or after a long time nothing."""
        deadline = time.monotonic() + self.patience_s
        while not (found := look()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return found

    def stuck(self, who: str, what: str) -> None:
        self.history.stuck.append(Stuck(who, self.world.clock.now(), what))

    def end(self) -> None:
        self.world.stop.set()
        for publisher in self.publishers:
            publisher.give_up.set()
        for subscriber in self.subscribers:
            subscriber.over.set()
        for actor in (*self.subscribers, *self.publishers, *self.others):
            if actor.is_alive():
                actor.join(PATIENCE_S)
        for publisher in self.publishers:
            publisher.forget()
        for lasting in (*self.subscribers, *self.publishers):
            lasting.close()


def excerpt(history: History, violation: Violation) -> Iterator[str]:
    """What belongs to a violation, in order: what was done to the system and with its subject around that moment, and
    whatever mentions one of its names at any time.
    """
    rows: list[tuple[float, str]] = []
    for records in vars(history).values():
        for record in records:
            fields = vars(record)
            moment = next((fields[name] for name in ("began", "at", "since") if name in fields), math.inf)
            words = {value for value in fields.values() if isinstance(value, str)}
            is_near = abs(moment - violation.at) < AROUND_S
            if (is_near and (violation.about in words or isinstance(record, Disturbance | SessionSeen))) or words & {
                *violation.names
            }:
                rows.append((moment, f"{moment:9.4f}  {type(record).__name__:15}{shown(fields)}"))
    yield from (text for _, text in sorted(rows))


def shown(fields: Mapping[str, object]) -> str:
    plain = {k: f"{v:.4f}" if isinstance(v, float) else str(v) for k, v in fields.items() if v not in ("", None)}
    return " ".join(f"{name}={value}" for name, value in plain.items())


def report(violations: Sequence[Violation], history: History) -> str:
    """For the first violation of each kind what belongs to it, and then all of them."""
    lines: list[str] = []
    told: set[str] = set()
    for violation in violations:
        if violation.kind not in told:
            told.add(violation.kind)
            lines += [str(violation), *excerpt(history, violation), ""]
    return "\n".join([*lines, f"all {len(violations)}:", *map(str, violations)])


def keep(history: History, violations: Sequence[Violation], outputs: dict[str, str], stem: str) -> Path:
    """Write down all that is needed to understand what went wrong."""
    path = KEPT / f"{stem}.json"
    history.save(path)
    path.with_suffix(".txt").write_text(report(violations, history) + "\n")
    for name, output in outputs.items():
        (KEPT / f"{stem}-{name}.log").write_text(output)
    return path


def play_round(
    kind: str,
    seed: int,
    *,
    duration_s: float = DURATION_S,
    faults: Sequence[str] | None = None,
    settings: Mapping[str, str] | None = None,
    always_keep: bool = False,
) -> list[Violation]:
    """A round on a fresh system; what it finds is printed and kept."""
    with ExitStack() as stack:
        # what a killed broker had started may write its last while the folder goes
        temporary = tempfile.TemporaryDirectory(prefix="holdfast-jepsen-", ignore_cleanup_errors=True)
        folder = stack.enter_context(temporary)
        system = SYSTEMS[kind](Path(folder), settings or {})
        stack.callback(system.close)
        print(f"round on {system.name} with seed {seed}", flush=True)
        system.start()
        current = Round(system, seed, duration_s, faults or kinds_of(seed, kind))
        for step in current.plan():
            print(f"  planned: {step}")
        try:
            violations = current.play()
        except BaseException:
            print(f"kept as {keep(current.history, check(current.history), system.outputs(), str(seed))}")
            raise
        print(f"seed {seed}: {current.history.counts()}")
        if violations:
            print(f"seed {seed}: {len(violations)} violations, kept as ", end="")
            print(keep(current.history, violations, system.outputs(), str(seed)))
            print(*violations[:20], sep="\n")
        else:
            print(f"seed {seed}: nothing is wrong", flush=True)
            if always_keep:
                print(f"kept as {keep(current.history, violations, system.outputs(), str(seed))}")
        return violations


def main() -> int:
    parser = argparse.ArgumentParser(description="Break a system in every way and hold its promises against it.")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(1 << 32), help="of the first round")
    parser.add_argument("--system", choices=SYSTEMS, default="cluster")
    parser.add_argument("--duration", type=float, default=DURATION_S, metavar="S", help="seconds of faults in a round")
    parser.add_argument("--faults", action="append", choices=WITH_DAMAGE, help="only these")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the nodes")
    parser.add_argument("--keep", action="store_true", help="keep the histories in which nothing is wrong, too")
    parser.add_argument("--judge", type=Path, help="a history that was kept: judge it again and do nothing else")
    arguments = parser.parse_args()
    if arguments.judge:
        history = load(arguments.judge)
        violations = check(history)
        print(report(violations, history) if violations else "nothing is wrong")
        return bool(violations)
    settings = dict(pair.split("=", 1) for pair in arguments.set)
    wrong = [
        seed
        for seed in range(arguments.seed, arguments.seed + arguments.rounds)
        if play_round(
            arguments.system,
            seed,
            duration_s=arguments.duration,
            faults=arguments.faults,
            settings=settings,
            always_keep=arguments.keep,
        )
    ]
    print(f"{arguments.rounds} rounds, {len(wrong)} wrong{': seeds ' + ', '.join(map(str, wrong)) if wrong else ''}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
