"""Plans follow from their seed, and whatever they do is undone in the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

from jepsen.faults import (
    DAMAGE,
    ISOLATE,
    ISOLATE_FROM_LOG,
    KILL,
    ONE_WAY,
    PAUSE,
    REFUSE,
    SLOW,
    STORE_FAULTS,
    TRUNCATE,
    USUAL,
    WIRE_FAULTS,
    WITH_DAMAGE,
    Anatomy,
    Nemesis,
    Step,
    choices,
    harm_store,
    kinds_of,
    plan,
)
from jepsen.history import Clock, History
from jepsen.systems import CLIENTS, Process, System

ANATOMY = Anatomy(
    node_processes=("a", "b", "c"),
    log_servers=("log-1", "log-2", "log-3"),
    wires=(("clients", "a"), ("clients", "b"), ("a", "log-1"), ("log-1", "log-2"), ("log-2", "log-1")),
)


class Pretended:
    """A process that only remembers what was done to it."""

    def __init__(self, starts: bool = True) -> None:
        self.is_running = True
        self.is_paused = False
        self.starts = starts

    def start(self) -> None:
        if not self.starts:
            raise AssertionError("it does not start")
        self.is_running, self.is_paused = True, False

    def kill(self) -> None:
        self.is_running = False

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False


class PretendedCluster(System):
    """The processes of a cluster without the processes; its wires are real."""

    name = "pretended"
    nodes = ("a", "b")
    keeps_every_will = True

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.pretended = {name: Pretended() for name in ("a", "b", "log-1", "log-2", "log-3")}
        processes: dict[str, Process] = dict(self.pretended)
        self.node_processes = {name: process for name, process in processes.items() if name in self.nodes}
        self.log_servers = {name: process for name, process in processes.items() if name not in self.nodes}
        for node in self.nodes:
            self.wire(CLIENTS, node, lambda: 1)
            for log in self.log_servers:
                self.wire(node, log, lambda: 1)
        self.wire("log-1", "log-2", lambda: 1)
        self.wire("log-3", "log-1", lambda: 1)

    def start(self) -> None: ...
    def wait_healthy(self) -> None: ...

    def close(self) -> None:
        self.network.close()

    def digests(self) -> dict[str, str]:
        return {}

    def outputs(self) -> dict[str, str]:
        return {}

    def store(self, log_server: str) -> Path:
        return self.folder

    def nodes_of(self, process: str) -> Sequence[str]:
        return [process] if process in self.nodes else self.nodes

    def broken(self) -> dict[str, str]:
        """Which wires do not pass, and which processes do not run."""
        wires = {link.name: link.state for link in self.wires.values() if link.state != "open"}
        ended = {name: "ended" for name, p in self.pretended.items() if not p.is_running}
        return wires | ended | {name: "paused" for name, p in self.pretended.items() if p.is_paused}


@pytest.fixture
def system(tmp_path: Path) -> Iterator[PretendedCluster]:
    (tmp_path / "1.blk").write_bytes(bytes(1000))
    cluster = PretendedCluster(tmp_path)
    yield cluster
    cluster.close()


@pytest.fixture
def nemesis(system: PretendedCluster) -> Nemesis:
    return Nemesis(system, Clock(), History(), say=lambda line: None)


def test_the_same_seed_is_the_same_plan() -> None:
    assert plan(1, ANATOMY, 30) == plan(1, ANATOMY, 30) != plan(2, ANATOMY, 30)


@pytest.mark.parametrize("seed", range(50))
def test_on_each_track_one_thing_is_over_before_the_next_begins_and_all_before_the_end(seed: int) -> None:
    steps = plan(seed, ANATOMY, 30)
    for on_wires in (False, True):
        track = [step for step in steps if (step.kind in WIRE_FAULTS) == on_wires]
        assert track
        ends = [step.at_s + step.lasts_s for step in track]
        assert all(end < step.at_s for end, step in zip(ends, track[1:], strict=False))
        assert ends[-1] <= 30.02


def test_every_kind_of_fault_is_planned_sooner_or_later() -> None:
    kinds = (*USUAL, *STORE_FAULTS)
    assert {step.kind for seed in range(50) for step in plan(seed, ANATOMY, 30, kinds)} == set(kinds)


def test_stores_are_harmed_only_when_asked_for() -> None:
    assert not {step.kind for seed in range(50) for step in plan(seed, ANATOMY, 30)} & set(STORE_FAULTS)


def test_every_third_round_on_a_cluster_harms_a_store() -> None:
    assert [kinds_of(seed, "cluster") == WITH_DAMAGE for seed in range(2000, 2006)] == [True, False, False] * 2
    assert {kinds_of(seed, "one") for seed in range(6)} == {USUAL}


def test_no_plan_harms_two_stores() -> None:
    for seed in range(50):
        steps = plan(seed, ANATOMY, 60, (*USUAL, *STORE_FAULTS))
        assert len({step.on for step in steps if step.kind in STORE_FAULTS}) <= 1


def test_one_a_majority_and_all_of_the_log_servers_are_killed() -> None:
    groups = choices(KILL, ANATOMY)
    assert {("log-1",), ("log-1", "log-2"), ("log-3", "log-1"), ("log-1", "log-2", "log-3")} <= set(groups)


def test_without_log_servers_nobody_is_cut_off_from_them() -> None:
    alone = Anatomy(("broker",), (), ((CLIENTS, "a"), (CLIENTS, "b")))
    assert ISOLATE_FROM_LOG not in {step.kind for seed in range(50) for step in plan(seed, alone, 30)}


@pytest.mark.parametrize(
    ("step", "broken"),
    [
        (Step(0, 0, KILL, ("a", "log-1")), {"a": "ended", "log-1": "ended"}),
        (Step(0, 0, PAUSE, ("b",)), {"b": "paused"}),
        (
            Step(0, 0, ISOLATE, ("a",)),
            {f"a to log-{number}": "held" for number in (1, 2, 3)} | {"clients to a": "held"},
        ),
        (Step(0, 0, ISOLATE_FROM_LOG, ("a",)), {f"a to log-{number}": "held" for number in (1, 2, 3)}),
        (
            Step(0, 0, ISOLATE, ("log-1", "log-2")),
            {f"{node} to log-{number}": "held" for node in "ab" for number in (1, 2)} | {"log-3 to log-1": "held"},
        ),
        (Step(0, 0, ONE_WAY, ("a", "log-2")), {"a to log-2": "held to server"}),
        (Step(0, 0, ONE_WAY, ("log-2", "a")), {"a to log-2": "held to client"}),
        (Step(0, 0, REFUSE, ("log-1", "log-2")), {"log-1 to log-2": "cut"}),
    ],
    ids=str,
)
def test_a_step_breaks_what_it_says_and_mends_it(
    system: PretendedCluster, nemesis: Nemesis, step: Step, broken: dict[str, str]
) -> None:
    nemesis.begin(step)
    assert system.broken() == broken
    nemesis.end(step)
    assert system.broken() == {}


def test_a_slow_wire_is_slow_until_the_step_is_over(system: PretendedCluster, nemesis: Nemesis) -> None:
    step = Step(0, 0, SLOW, ("a", "log-1"), chance=3)
    nemesis.begin(step)
    assert list(system.broken()) == ["a to log-1"]
    nemesis.end(step)
    assert system.broken() == {}


def test_a_plan_leaves_nothing_broken(system: PretendedCluster, nemesis: Nemesis) -> None:
    steps = plan(5, Anatomy.of(system), 30, (*USUAL, *STORE_FAULTS))
    nemesis.run([Step(0, 0, step.kind, step.on, step.chance) for step in steps])
    assert system.broken() == {}
    assert len(nemesis.history.disturbances) > 2 * len(steps)


def test_everything_is_mended_also_when_a_process_does_not_start(system: PretendedCluster, nemesis: Nemesis) -> None:
    system.pretended["a"].starts = False
    with pytest.raises(AssertionError, match="it does not start"):
        nemesis.run([Step(0, 0.0, ISOLATE, ("b",)), Step(0, 0.0, KILL, ("a", "log-2"))])
    assert system.broken() == {"a": "ended"}


def test_a_process_that_ends_by_itself_is_told(system: PretendedCluster, nemesis: Nemesis) -> None:
    system.pretended["log-2"].is_running = False
    with pytest.raises(AssertionError, match="log-2 ended, and nobody had killed it"):
        nemesis.run([])
    assert system.broken() == {}


def test_clients_know_which_nodes_were_disturbed(system: PretendedCluster, nemesis: Nemesis) -> None:
    nemesis.follow([Step(0, 0, PAUSE, ("a",))], began=0)
    assert system.disturbed == {"a": 2}
    nemesis.follow([Step(0, 0, PAUSE, ("log-1",))], began=0)
    assert system.disturbed == {"a": 4, "b": 2}


@pytest.mark.parametrize("kind", [DAMAGE, TRUNCATE])
def test_a_store_is_harmed_in_one_file(tmp_path: Path, kind: str) -> None:
    for name in ("1.blk", "2.blk"):
        (tmp_path / name).write_bytes(bytes(1000))
    harm_store(tmp_path, kind, Random(1))
    changed = [path for path in tmp_path.iterdir() if path.read_bytes() != bytes(1000)]
    assert len(changed) == 1
    assert (changed[0].stat().st_size == 1000) == (kind == DAMAGE)
