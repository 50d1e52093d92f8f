"""Whatever happens to three nodes, in whatever order: what they promise holds."""

from collections import Counter

import pytest

from model.cluster_world import ClusterWorld
from seeds import thinned

STEPS = 500
SEEDS = [range(begin, begin + 50) for begin in range(0, 4000, 50)]


@pytest.mark.parametrize("seeds", thinned(SEEDS, 40), ids=str)
def test_nothing_is_lost_repeated_or_told_differently_whatever_happens_to_the_nodes(seeds: range) -> None:
    seen = Counter[str]()
    for seed in seeds:
        world = ClusterWorld(seed)
        try:
            world.run(STEPS)
        except AssertionError as problem:
            story = "\n".join(world.trace[-80:])
            pytest.fail(f"seed {seed}: {problem}\nlog position, and what happened:\n{story}", pytrace=False)
        seen += world.seen
    # or nothing would have happened to them
    for what in ("crash", "obituary", "state of another", "passed over", "compared", "resumed", "moved", "wills"):
        assert seen[what] > 5, (what, seen)
    for qos in (0, 1, 2):
        assert seen[f"got at {qos}"] > 100, seen
