"""Random runs of the broker core against the reference model.

A run is a plan of steps made from a seed. There are MODEL_STEPS of them (20 000 unless told otherwise) on seeds that
are always the same, a quarter in `make test` and the others in `make test-long`; with TEST_SEED=fresh some are on seeds
that nobody has tried. A failing plan is made smaller and printed with its seed; `MODEL_SEED=N pytest tests/model`
repeats one.

    MODEL_STEPS=2000000 MODEL_SEED=1000 pytest tests/model -n0 -m 'long or not long'      many runs, from seed 1000 on
"""

import os

import pytest

from model.disk_world import DiskOnlyWorld, DiskWorld
from model.drive import failure_of, report
from model.fold import Limits, Outcome, Publication, fold, matches, verdict
from model.steps import make_plan
from model.world import World
from seeds import EFFORT, seed_of, thinned

STEPS = int(os.environ.get("MODEL_STEPS", "20000"))
FIRST_SEED = int(os.environ.get("MODEL_SEED", "0"))
STEPS_PER_RUN = 120
PARTS = 8
DISK_PARTS = 4


def run_seeds(seeds: range, world: type[World] = World) -> None:
    for seed in seeds:
        plan = make_plan(seed, STEPS_PER_RUN, world.can_restart)
        if failure_of(plan, world) is not None:
            pytest.fail(report(plan, world), pytrace=False)


@pytest.mark.timeout(0 if STEPS > 100_000 else 600)
@pytest.mark.parametrize("part", thinned(range(PARTS), 4))
def test_broker_agrees_with_the_model(part: int) -> None:
    runs = -(-STEPS // STEPS_PER_RUN // PARTS) + 1
    begin = FIRST_SEED + part * runs
    run_seeds(range(begin, begin + runs))


@pytest.mark.timeout(0 if STEPS > 100_000 else 600)
@pytest.mark.parametrize("world", [DiskWorld, DiskOnlyWorld], ids=["disc", "disc_only"])
@pytest.mark.parametrize("part", thinned(range(DISK_PARTS), DISK_PARTS))
def test_broker_on_disk_agrees_with_the_model_over_restarts(world: type[World], part: int) -> None:
    runs = -(-STEPS // 5 // STEPS_PER_RUN // DISK_PARTS)
    begin = FIRST_SEED + part * runs
    run_seeds(range(begin, begin + runs), world)


@pytest.mark.timeout(600)
def test_broker_agrees_with_the_model_on_other_seeds() -> None:
    begin = seed_of(10**9)
    run_seeds(range(begin, begin + 10 * EFFORT))


def publication(number: int, topic: str, payload: bytes = b"x", **rest: object) -> Publication:
    fields: dict[str, object] = {"qos": 0, "retain": True, "client": "c", "user": "u", "at_ms": 0, **rest}
    return Publication(number, topic, payload, **fields)  # type: ignore[arg-type]


def test_fold_keeps_the_last_set_of_each_topic_until_it_is_cleared_or_expires() -> None:
    log = [
        (publication(1, "a"), Outcome.SET),
        (publication(2, "a"), Outcome.SET),
        (publication(3, "b"), Outcome.SET),
        (publication(4, "b", b""), Outcome.CLEARED),
        (publication(5, "c", interval_s=2), Outcome.SET),
        (publication(6, "a", retain=False), Outcome.LIVE),
        (publication(7, "a"), Outcome.COUNT),
    ]
    assert {topic: each.number for topic, each in fold(log, 1999).items()} == {"a": 2, "c": 5}
    assert set(fold(log, 2000)) == {"a"}


@pytest.mark.parametrize(
    ("topic_filter", "topic", "expected"),
    [
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("a/+", "a", False),
        ("a/+", "a/", True),
        ("#", "$x", False),
        ("+/1", "$x/1", False),
        ("$x/+", "$x/1", True),
        ("+", "a/b", False),
    ],
)
def test_model_matches_as_the_standard_says(topic_filter: str, topic: str, expected: bool) -> None:
    assert matches(topic_filter, topic) is expected


def test_verdict_refuses_new_topics_at_the_limit_and_replaces_old_ones() -> None:
    kept = {"a": publication(1, "a"), "b": publication(2, "b")}
    limits = Limits(max_messages=2)
    assert verdict(publication(3, "c"), kept, limits) is Outcome.COUNT
    assert verdict(publication(3, "a"), kept, limits) is Outcome.SET
    assert verdict(publication(3, "c", b""), kept, limits) is Outcome.CLEARED
    assert verdict(publication(3, "a", b"xx"), kept, Limits(max_bytes=4)) is Outcome.BUDGET
