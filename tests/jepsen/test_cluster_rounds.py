"""Rounds with faults find nothing on a cluster of three nodes and three log servers."""

import pytest

from holdfast.config import Settings
from jepsen.run import play_round
from seeds import seed_of

ROUNDS = 10

# The network between the parts is cut at any moment, in this process: a socket of it that nobody has closed says
# nothing about the cluster.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.mark.skipif("cluster" not in Settings.model_fields, reason="this Holdfast knows no cluster yet")
@pytest.mark.parametrize("number", range(ROUNDS))
def test_no_round_on_a_cluster_finds_anything(number: int) -> None:
    assert play_round("cluster", seed_of(2000) + number) == []
