"""A broker that shares its log agrees with the model, and with every other broker that reads the same log."""

from collections import Counter

import pytest

from model.drive import failure_of, report
from model.shared_world import SharedWorld, ticking
from model.steps import Plan, make_plan
from seeds import thinned

STEPS_PER_RUN = 120
SEEDS = [range(begin, begin + 25) for begin in range(0, 400, 25)]


@pytest.mark.parametrize("seeds", thinned(SEEDS, 8), ids=str)
def test_a_broker_whose_entries_come_back_from_the_log_agrees_with_the_model(seeds: range) -> None:
    seen = Counter[str]()
    for seed in seeds:
        plan = ticking(make_plan(seed, STEPS_PER_RUN))
        worlds: list[SharedWorld] = []

        def make(plan: Plan, worlds: list[SharedWorld] = worlds) -> SharedWorld:
            worlds.append(SharedWorld(plan))
            return worlds[-1]

        if failure_of(plan, make) is not None:
            pytest.fail(report(plan, SharedWorld), pytrace=False)
        seen += worlds[-1].seen
    # or empty brokers would have been compared
    assert min(seen[kind] for kind in ("queue", "inflight", "subscriptions", "will", "snapshots")) > 20, seen
