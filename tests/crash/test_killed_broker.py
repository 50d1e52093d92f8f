"""A broker that is killed at random moments keeps what it acknowledged. `make crash` kills it as often as you like."""

import os
from pathlib import Path

import pytest

from crash_story import CrashStory

SEED = int(os.environ.get("CRASH_SEED", "0")) or int.from_bytes(os.urandom(4))


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("rounds", [5, pytest.param(45, marks=pytest.mark.long)])
def test_nothing_acknowledged_is_lost_however_often_the_broker_is_killed(tmp_path: Path, rounds: int) -> None:
    story = CrashStory(tmp_path / "data", SEED)
    story.run(rounds)
    assert story.killed == rounds
    assert all(len(writer.acknowledged) > 0 for writer in story.queue_writers), story.summary()
