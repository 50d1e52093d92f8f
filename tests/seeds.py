"""Seeds of tests that try many things by chance: the same ones every time, unless TEST_SEED says otherwise.

    TEST_SEED=fresh pytest tests/model      a seed that nobody has tried
    TEST_SEED=1234 pytest tests/model       that one, to see again what it found

Which one it was is printed, and pytest shows that when the test fails.
"""

import os
import random

MOST = 10**12


def seed_of(usual: int) -> int:
    """The seed to begin with, where the usual one is this."""
    asked = os.environ.get("TEST_SEED", "")
    seed = random.SystemRandom().randrange(MOST) if asked == "fresh" else int(asked or usual)
    print(f"seed {seed}: TEST_SEED={seed} repeats it")
    return seed
