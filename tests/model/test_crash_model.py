"""A broker that crashes between any two of its steps neither loses nor doubles what QoS 1 and 2 promise."""

from random import Random

import pytest

from crash_actors import QueueWriter, Subscriber
from model.crash_world import CrashWorld
from seeds import thinned

CRASHES = 25


def tell(seed: int) -> None:
    chance = Random(seed)
    writers = [
        QueueWriter("one-4", "q/one", 1, 4),
        QueueWriter("two-5", "q/two", 2, 5),
        QueueWriter("two-4", "q/too", 2, 4),
    ]
    subscribers = [Subscriber("sub-1", "q/#", 1, 4), Subscriber("sub-2", "q/#", 2, 5), Subscriber("sub-4", "q/#", 2, 4)]
    world = CrashWorld([*subscribers, *writers], chance)
    try:
        world.settle()
        for _ in range(CRASHES):
            for _ in range(chance.choice((10, 100, 400))):
                world.step()
            world.crash()
        world.settle()
    finally:
        world.close()
    for subscriber in subscribers:
        subscriber.check_received(writers)
    assert all(writer.acknowledged for writer in writers)


@pytest.mark.parametrize("seed", thinned(range(20), 4))
def test_what_was_acknowledged_comes_in_order_and_once_whatever_the_crash_cut_off(seed: int) -> None:
    tell(seed)
