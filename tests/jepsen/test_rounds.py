"""Rounds with faults find nothing on a system that keeps its promises, and find what is wrong on one that does not.

`make jepsen` plays as many rounds as you like.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from jepsen.checker import Violation
from jepsen.faults import KILL, Step
from jepsen.run import CALM_S, Round, play_round
from jepsen.systems import CLIENTS, Node, OneBroker, System
from seeds import seed_of

ROUNDS = 10
SLOWER = (1, 3, 9)

Find = Callable[..., None]

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # see test_cluster_rounds


@pytest.fixture
def find(tmp_path: Path) -> Iterator[Find]:
    """Play a short round on a system that is known to be wrong, and find these kinds of violations. Where too little
    happens in it, because the machine is busy, a longer one follows.
    """
    systems: list[System] = []

    def play(kind: Callable[[Path, Mapping[str, Any]], System], kinds: set[str], *kills_at: float) -> None:
        found: set[str] = set()
        for slower in SLOWER:
            system = kind(tmp_path / str(slower), {})
            systems.append(system)
            system.start()
            kills = [Step(at_s * slower, 0.0, KILL, ("broker",)) for at_s in kills_at]
            wrong = Round(system, seed=7, steps=kills, patience_s=2.0 * slower, calm_s=CALM_S * slower)
            violations: list[Violation] = wrong.play()
            found |= {violation.kind for violation in violations}
            if kinds <= found:
                return
        assert kinds <= found

    yield play
    for system in systems:
        system.close()


class Forgetful(OneBroker):
    """A broker that is killed and comes back with nothing."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        super().__init__(folder, settings)
        self.broker = self.Amnesiac(self.broker.folder, self.broker.settings, self.broker.listen)
        self.node_processes["broker"] = self.broker

    class Amnesiac(Node):
        def start(self) -> None:
            shutil.rmtree(self.folder, ignore_errors=True)
            super().start()


class Relapsing(OneBroker):
    """A broker that is killed twice and comes back as it was when it was killed for the first time."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        super().__init__(folder, settings)
        self.broker = self.Outdated(self.broker.folder, self.broker.settings, self.broker.listen)
        self.node_processes["broker"] = self.broker

    class Outdated(Node):
        def start(self) -> None:
            old = self.folder.with_name("old")
            if old.exists():
                shutil.rmtree(self.folder)
                shutil.copytree(old, self.folder)
            elif self.folder.exists():
                shutil.copytree(self.folder, old)
            super().start()


class Strangers(OneBroker):
    """Three brokers that know nothing of each other and say that they are one."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        super().__init__(folder, settings)
        self.others = {name: Node(folder / name, self.broker.settings, self.broker.listen) for name in ("b", "c")}
        self.node_processes.update(self.others)
        for name, node in self.others.items():
            self.wire(CLIENTS, name, lambda node=node: node.now.port)  # type: ignore[misc]

    def start(self) -> None:
        super().start()
        for node in self.others.values():
            node.start()

    def close(self) -> None:
        super().close()
        for node in self.others.values():
            node.kill()


def test_a_broker_that_forgets_is_found(find: Find) -> None:
    find(Forgetful, {"not linearizable", "lost session", "lost message"}, 2.0)


def test_a_broker_that_falls_back_to_an_older_state_is_found(find: Find) -> None:
    find(Relapsing, {"not linearizable", "will twice"}, 2.0, 6.0)


def test_brokers_that_do_not_know_of_each_other_are_found(find: Find) -> None:
    find(Strangers, {"not linearizable", "lost session", "lost message", "two connections", "nodes differ"})


def test_a_round_on_one_broker_finds_nothing() -> None:
    assert play_round("one", seed_of(20), duration_s=10.0) == []


@pytest.mark.long
@pytest.mark.parametrize("number", range(ROUNDS))
def test_no_round_on_one_broker_finds_anything(number: int) -> None:
    assert play_round("one", seed_of(1000) + number) == []
