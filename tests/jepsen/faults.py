"""What is done to a system while clients use it, by chance from a seed, and undone at the end.

A plan has two tracks that go on side by side: one does things to processes, the other to the wires between them. Within
a track one thing is over before the next begins, and at the end of a plan `Nemesis` heals everything, whether or not it
got through.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from jepsen.history import Clock, Disturbance, History
from jepsen.proxy import TO_CLIENT, TO_SERVER, Link
from jepsen.systems import CLIENTS, System

KILL = "kill -9"
PAUSE = "pause"
DAMAGE = "damage the store of"
TRUNCATE = "truncate the store of"
ISOLATE = "cut off"
ISOLATE_FROM_LOG = "cut off from the log servers"
ONE_WAY = "let nothing through from"
REFUSE = "reset connections between"
SLOW = "slow down"

PROCESS_FAULTS = (KILL, PAUSE)
WIRE_FAULTS = (ISOLATE, ISOLATE_FROM_LOG, ONE_WAY, REFUSE, SLOW)
# They take away a copy of the log: where they are done to one log server, nothing is done to the others.
STORE_FAULTS = (DAMAGE, TRUNCATE)
USUAL = (*PROCESS_FAULTS, *WIRE_FAULTS)
WITH_DAMAGE = (*USUAL, *STORE_FAULTS)

FIRST_S = 2.0  # in peace
SHORTEST_S, LONGEST_S = 0.3, 9.0  # short ones are more frequent; some outlast an election and a node's time-out
SHORTEST_GAP_S, LONGEST_GAP_S = 0.3, 3.0


@dataclass(frozen=True)
class Step:
    at_s: float
    lasts_s: float
    kind: str
    on: tuple[str, ...]
    chance: int = 0  # for what has to be decided when it happens

    def __str__(self) -> str:
        return f"{self.at_s:5.1f} s, for {self.lasts_s:.1f} s: {self.kind} {', '.join(self.on)}"


@dataclass(frozen=True)
class Anatomy:
    """The names of what there is, which is all that a plan needs to know."""

    node_processes: tuple[str, ...]
    log_servers: tuple[str, ...]
    wires: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, system: System) -> Anatomy:
        return cls(tuple(system.node_processes), tuple(system.log_servers), tuple(system.wires))

    def with_one_log_server(self, name: str) -> Anatomy:
        """As if the other log servers were not there."""
        others = {*self.log_servers} - {name}
        wires = tuple(wire for wire in self.wires if not others & {*wire})
        return Anatomy(self.node_processes, (name,), wires)


def plan(seed: int, anatomy: Anatomy, duration_s: float, kinds: Sequence[str] = USUAL) -> list[Step]:
    """What happens when; the same for the same arguments."""
    random = Random(seed)
    harmed = random.choice(anatomy.log_servers or ("",))
    if any(kind in STORE_FAULTS for kind in kinds):
        anatomy = anatomy.with_one_log_server(harmed)
    on_processes = [kind for kind in kinds if kind in (*PROCESS_FAULTS, *STORE_FAULTS) and choices(kind, anatomy)]
    on_wires = [kind for kind in kinds if kind in WIRE_FAULTS and choices(kind, anatomy)]
    steps: list[Step] = []
    for track in (on_processes, on_wires):
        at_s = FIRST_S + random.uniform(0.0, LONGEST_GAP_S)
        while track and at_s < duration_s:
            kind = random.choice(track)
            lasts_s = min(SHORTEST_S * (LONGEST_S / SHORTEST_S) ** random.random(), duration_s - at_s)
            on = (harmed,) if kind in STORE_FAULTS else random.choice(choices(kind, anatomy))
            steps.append(Step(round(at_s, 2), round(lasts_s, 2), kind, on, random.randrange(1 << 32)))
            at_s += lasts_s + random.uniform(SHORTEST_GAP_S, LONGEST_GAP_S)
    return sorted(steps, key=lambda step: step.at_s)


def kinds_of(seed: int, system: str) -> Sequence[str]:
    """What is done in a round of this seed, unless it is said: on a cluster every third harms a store, too."""
    return WITH_DAMAGE if system == "cluster" and seed % 3 == 2 else USUAL


def choices(kind: str, anatomy: Anatomy) -> list[tuple[str, ...]]:
    """All that this kind can be done to."""
    nodes, logs = anatomy.node_processes, anatomy.log_servers
    clients_reach = tuple(to for who, to in anatomy.wires if who == CLIENTS)
    if kind in (KILL, PAUSE):
        groups = [(name,) for name in (*nodes, *logs)]
        return [*groups, *(group for names in (nodes, logs) for group in larger_groups(names))]
    if kind in STORE_FAULTS:
        return [(name,) for name in logs]
    if kind == ISOLATE:
        groups = [(name,) for name in (*clients_reach, *logs)]
        return [*groups, *larger_groups(logs)]
    if kind == ISOLATE_FROM_LOG:
        return [(name,) for name in clients_reach] if logs else []
    if kind == ONE_WAY:
        return [*anatomy.wires, *((to, who) for who, to in anatomy.wires)]
    return list(anatomy.wires)


def larger_groups(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Two neighbours, and all of them: the majority of three, and everything."""
    pairs = [(one, other) for one, other in zip(names, [*names[1:], *names[:1]], strict=True) if len(names) > 2]
    return [*pairs, *([tuple(names)] if len(names) > 1 else [])]


class Nemesis:
    """Carries a plan out. Whatever goes wrong in that is kept in `problem`: a broker that does not start, for one."""

    def __init__(self, system: System, clock: Clock, history: History, say: Callable[[str], None] = print) -> None:
        self.system = system
        self.clock = clock
        self.history = history
        self.say = say
        self.problem: BaseException | None = None
        self.over = threading.Event()

    def run(self, steps: Sequence[Step]) -> None:
        tracks = [[s for s in steps if s.kind in WIRE_FAULTS], [s for s in steps if s.kind not in WIRE_FAULTS]]
        began = self.clock.now()
        threads = [threading.Thread(target=self.follow, args=(track, began), name="nemesis") for track in tracks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ended = [] if self.problem else [name for name, p in self.system.processes.items() if not p.is_running]
        self.note("heal everything")
        self.system.heal()
        assert not ended, f"{', '.join(ended)} ended, and nobody had killed it"
        if self.problem is not None:
            raise self.problem

    def follow(self, steps: Sequence[Step], began: float) -> None:
        try:
            for step in steps:
                if self.over.wait(max(0.0, began + step.at_s - self.clock.now())):
                    return
                self.system.disturb(step.on)
                self.note(f"{step.kind} {', '.join(step.on)}")
                self.begin(step)
                self.over.wait(step.lasts_s)
                self.system.disturb(step.on)
                self.end(step)
                self.note(f"over: {step.kind} {', '.join(step.on)}")
        except BaseException as problem:
            self.problem = problem
            self.over.set()

    def note(self, what: str) -> None:
        at = self.clock.now()
        self.history.disturbances.append(Disturbance(at, what))
        self.say(f"{at:6.2f} s  {what}")

    def begin(self, step: Step) -> None:
        if step.kind in WIRE_FAULTS:
            for link, break_it in self.wires(step):
                break_it(link)
            return
        for name in step.on:
            process = self.system.processes[name]
            assert process.is_running, f"{name} ended, and nobody had killed it"
            process.pause() if step.kind == PAUSE else process.kill()
        if step.kind in STORE_FAULTS:
            self.note(harm_store(self.system.store(step.on[0]), step.kind, Random(step.chance)))

    def end(self, step: Step) -> None:
        if step.kind in WIRE_FAULTS:
            lose = step.chance % 2 == 1
            for link, _ in self.wires(step):
                link.heal(lose=lose)
            return
        for name in step.on:
            process = self.system.processes[name]
            process.resume() if step.kind == PAUSE else process.start()

    def wires(self, step: Step) -> list[tuple[Link, Callable[[Link], None]]]:
        """The links that a step is about, and what it does to each."""
        wires = self.system.wires
        if step.kind == ISOLATE:
            return [(link, Link.hold) for (who, to), link in wires.items() if (who in step.on) != (to in step.on)]
        if step.kind == ISOLATE_FROM_LOG:
            return [(link, Link.hold) for (who, to), link in wires.items() if who in step.on and to != CLIENTS]
        if step.kind == ONE_WAY:
            source, sink = step.on
            if (source, sink) in wires:
                return [(wires[source, sink], lambda link: link.hold(TO_SERVER))]
            return [(wires[sink, source], lambda link: link.hold(TO_CLIENT))]
        link = wires[step.on[0], step.on[1]]
        if step.kind == SLOW:
            return [(link, lambda link: link.delay(Random(step.chance).uniform(0.02, 0.4)))]
        return [(link, Link.cut)]


def harm_store(folder: Path, kind: str, random: Random) -> str:
    """Flip a bit in, or cut the end off, one file of a store that nobody has open; says which."""
    files = sorted(path for path in folder.rglob("*.blk") if path.stat().st_size > 0)
    assert files, f"expected message blocks in {folder}, got none"
    path = random.choice(files)
    content = bytearray(path.read_bytes())
    at = random.randrange(len(content))
    if kind == TRUNCATE:
        del content[at:]
    else:
        content[at] ^= 1 << random.randrange(8)
    path.write_bytes(content)
    return f"{path.relative_to(folder)} from byte {at}"
