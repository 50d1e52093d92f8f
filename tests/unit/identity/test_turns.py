"""Addresses take turns, however many attempts one of them brings."""

from collections.abc import Hashable

from holdfast.identity import turns
from holdfast.identity.turns import Turns


def test_addresses_are_served_in_turn() -> None:
    queue: Turns[str] = Turns(1, 1)
    for number in range(3):
        assert queue.add("flood", f"flood {number}")
    assert queue.add("other", "other 0")
    assert queue.add("third", "third 0")
    served = []
    while (turn := queue.next()) is not None:
        served.append(turn[1])
        assert queue.next() is None, "one at a time"
        queue.done(turn[0])
    assert served == ["flood 0", "other 0", "third 0", "flood 1", "flood 2"]
    assert queue.count == 0


def test_one_address_never_has_all_places() -> None:
    queue: Turns[str] = Turns(3, 2)
    for number in range(5):
        queue.add("slow", f"slow {number}")
    begun: list[Hashable] = []
    while (turn := queue.next()) is not None:
        begun.append(turn[1])
    assert begun == ["slow 0", "slow 1"]
    queue.add("other", "other 0")
    assert queue.next() == ("other", "other 0")
    queue.done("slow")
    assert queue.next() == ("slow", "slow 2")


def test_what_waits_is_bounded_for_one_address_and_for_all() -> None:
    queue: Turns[int] = Turns(1, 1)
    assert all(queue.add("flood", number) for number in range(turns.WAITING_PER_ADDRESS))
    assert not queue.add("flood", 0)
    assert queue.add("other", 0)
    for host in range(turns.WAITING_MOST):
        queue.add(host, 0)
    assert queue.count == turns.WAITING_MOST
    assert not queue.add("late", 0)
