"""Tests that try many things by chance: which ones, and how many.

`make test` tries the same few every time, so what it says depends on the code alone. `make test-long` tries the others
and, with TEST_SEED=fresh, some that nobody has tried.

    TEST_SEED=fresh TEST_EFFORT=10 pytest tests/model      ten times as many, from a seed that nobody has tried
    TEST_SEED=1234 pytest tests/model                      that one, to see again what it found

Which seed it was is printed, and pytest shows that when the test fails.
"""

import os
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

MOST = 10**12
FRESH = os.environ.get("TEST_SEED") == "fresh"
EFFORT = int(os.environ.get("TEST_EFFORT", "1"))
EXAMPLES = 100

# Neither how long an example takes nor how long it took to think of it is anything a busy machine may be blamed for.
settings.register_profile(
    "holdfast",
    max_examples=EXAMPLES * EFFORT,
    derandomize=not FRESH,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("holdfast")


def seed_of(usual: int) -> int:
    """The seed to begin with, where the usual one is this."""
    asked = os.environ.get("TEST_SEED", "")
    seed = random.SystemRandom().randrange(MOST) if FRESH else int(asked or usual)
    print(f"seed {seed}: TEST_SEED={seed} repeats it")
    return seed


def thinned(values: Sequence[Any], every: int) -> list[Any]:
    """The parameters of a test, of which `make test` takes one out of so many and `make test-long` the others."""
    return [v if at % every == 0 else pytest.param(v, marks=pytest.mark.long) for at, v in enumerate(values)]
