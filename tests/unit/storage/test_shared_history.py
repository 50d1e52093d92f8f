"""Nodes of a cluster that write one history: each row once, whoever writes it, and no gap when the writer is gone."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.history.table import load as load_table
from holdfast.journal.reader import Reader
from holdfast.journal.watermark import Watermark
from holdfast.storage.folder import DataFolder
from holdfast.storage.follower_main import LATE_LEASE_S, LEASE_S, SharedHistoryFollower, catch_up
from holdfast.storage.history_options import HistoryOptions, number_of
from holdfast.storage.recovery import recover
from log_records import retained


class Told:
    def __init__(self) -> None:
        self.s = 0.0


class Node:
    """A journal of its own, which has what all nodes have, and a history that it shares."""

    def __init__(self, root: Path, name: str, table: Path, clock: Told, begins_after: int) -> None:
        self.folder = DataFolder(root / name)
        self.folder.put_history(str(table), owner=number_of("cluster test"))
        self.recovered = recover(self.folder, history=True, own_history=False, schedule=lambda action: action())
        self.follower = SharedHistoryFollower(self.folder, HistoryOptions(shared_by=name, begins_after=begins_after))
        self.follower.now = lambda: clock.s  # type: ignore[method-assign]
        self.opened = False

    def publish(self, first: int, last: int) -> None:
        journal = self.recovered.journal
        journal.append([retained(f"t/{o}", b"%d" % o, o) for o in range(first, last + 1)], lambda error: None)
        journal.step()

    def look(self) -> None:
        if not self.opened:
            self.opened = True
            self.reader = Reader(self.folder.journal, self.follower.open(), self.folder.quarantine)
            self.watermark = Watermark(self.folder.journal)
        catch_up(self.follower, self.reader, self.watermark)

    def close(self) -> None:
        if self.opened:
            self.reader.close()
            self.watermark.close()
            self.follower.close()
        self.recovered.journal.close()
        self.recovered.store.close()
        self.recovered.lock.release()


@pytest.fixture
def clock() -> Told:
    return Told()


@pytest.fixture
def node(tmp_path: Path, clock: Told) -> Iterator[Callable[..., Node]]:
    nodes: list[Node] = []

    def make(name: str, begins_after: int = 0) -> Node:
        nodes.append(Node(tmp_path, name, tmp_path / "table", clock, begins_after))
        return nodes[-1]

    yield make
    for each in nodes:
        each.close()


def offsets(tmp_path: Path) -> list[int]:
    return sorted(load_table(tmp_path / "table").to_pyarrow_table(columns=["offset"])["offset"].to_pylist())


def test_one_node_writes_and_the_others_pass_over_what_is_there(node: Callable[..., Node], tmp_path: Path) -> None:
    a, b = node("a"), node("b")
    for each in (a, b):
        each.publish(1, 10)
        each.look()
    assert offsets(tmp_path) == [*range(1, 11)]
    assert (a.follower.leads, b.follower.leads) == (True, False)
    assert (a.follower.reached, b.follower.reached) == (10, 10)


def test_a_node_waits_for_the_writer_that_is_behind(node: Callable[..., Node], tmp_path: Path) -> None:
    a, b = node("a"), node("b")
    for each in (a, b):
        each.publish(1, 5)
        each.look()
    b.publish(6, 9)
    b.look()
    assert offsets(tmp_path) == [*range(1, 6)]
    assert b.follower.reached == 5
    a.publish(6, 9)
    a.look()
    b.look()
    assert offsets(tmp_path) == [*range(1, 10)]
    assert b.follower.reached == 9


def test_another_node_steps_in_when_the_writer_is_gone(node: Callable[..., Node], tmp_path: Path, clock: Told) -> None:
    a, b = node("a"), node("b")
    for each in (a, b):
        each.publish(1, 5)
        each.look()
    b.publish(6, 9)
    b.look()
    clock.s += LEASE_S - 1
    b.look()
    assert offsets(tmp_path) == [*range(1, 6)]
    clock.s += 2
    b.look()
    assert offsets(tmp_path) == [*range(1, 10)]
    assert b.follower.leads
    # and the first one, when it is back, writes nothing twice and leaves the writing to the other
    a.publish(6, 12)
    a.look()
    assert offsets(tmp_path) == [*range(1, 10)]
    assert not a.follower.leads
    b.publish(10, 12)
    b.look()
    a.look()
    assert offsets(tmp_path) == [*range(1, 13)]
    assert a.follower.reached == 12


def test_a_node_that_begins_later_goes_on_from_what_is_there(node: Callable[..., Node], tmp_path: Path) -> None:
    a = node("a")
    a.publish(1, 20)
    a.look()
    late = node("late")
    assert late.recovered.losses == []
    late.publish(1, 8)
    late.look()
    assert late.follower.reached == 8
    late.publish(9, 20)
    late.look()
    assert late.follower.reached == 20
    assert offsets(tmp_path) == [*range(1, 21)]


def test_a_node_that_lacks_rows_lets_those_step_in_who_have_them(
    node: Callable[..., Node], tmp_path: Path, clock: Told
) -> None:
    a, b = node("a"), node("b")
    for each in (a, b):
        each.publish(1, 5)
        each.look()
    late = node("late", begins_after=7)  # it took the state of another there
    b.publish(6, 9)
    late.publish(8, 9)
    b.look()
    late.look()
    clock.s += LEASE_S + 1
    late.look()
    assert offsets(tmp_path) == [*range(1, 6)]
    b.look()
    late.look()
    assert offsets(tmp_path) == [*range(1, 10)]
    assert late.follower.reached == 9


def test_a_node_that_lacks_rows_goes_on_without_them_where_nobody_has_them(
    node: Callable[..., Node], tmp_path: Path, clock: Told
) -> None:
    a = node("a")
    a.publish(1, 5)
    a.look()
    late = node("late", begins_after=7)
    late.publish(8, 9)
    late.look()
    clock.s += LATE_LEASE_S + 1
    late.look()
    assert offsets(tmp_path) == [*range(1, 6), 8, 9]
