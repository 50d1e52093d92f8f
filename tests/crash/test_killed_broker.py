"""A broker that is killed at random moments keeps what it acknowledged."""

import os
from pathlib import Path

import pytest

from crash_story import CrashStory

ROUNDS = int(os.environ.get("CRASH_ROUNDS", "50"))
SEED = int(os.environ.get("CRASH_SEED", "0")) or int.from_bytes(os.urandom(4))


@pytest.mark.timeout(60 + 20 * ROUNDS)
def test_nothing_acknowledged_is_lost_however_often_the_broker_is_killed(tmp_path: Path) -> None:
    story = CrashStory(tmp_path / "data", SEED)
    story.run(ROUNDS)
    assert story.killed == ROUNDS
    assert all(len(writer.acknowledged) > 0 for writer in story.queue_writers), story.summary()
