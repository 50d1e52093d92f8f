"""How far the disk is behind, and how late the loop runs."""

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.api.metrics_history import LAG_BOUNDS, LoopLag, MetricsHistory
from holdfast.api.status import ServerStatus
from in_process import InProcess, with_broker


def journal(durable: int) -> Any:
    return SimpleNamespace(healthy=True, durable=durable, backlog=0, sync_times=None)


def test_without_a_disk_nothing_is_behind() -> None:
    async def act(world: InProcess) -> None:
        await world.set("a")
        status = ServerStatus(world.handle)
        assert (status.newest(), status.history_lag(), status.state_lag()) == (1, 0, 0)

    with_broker(act)


def test_followers_are_behind_by_what_is_durable_and_not_reached(tmp_path: Any) -> None:
    async def act(world: InProcess) -> None:
        status = ServerStatus(world.handle, journal(10), tmp_path, {"state": 9, "history": 4})
        assert (status.newest(), status.history_lag(), status.state_lag()) == (10, 6, 1)

    with_broker(act)


def test_the_lag_of_the_history_is_timed_from_the_offset_it_has_yet_to_reach(tmp_path: Any) -> None:
    async def act(world: InProcess) -> None:
        status = ServerStatus(world.handle, journal(10), tmp_path, {"history": 4})
        history = MetricsHistory(status)
        for now_s, reached, expected in ((100.0, 4, 0.0), (103.0, 9, 3.0), (104.0, 10, 0.0), (105.0, 10, 0.0)):
            status.reached["history"] = reached
            history.watch_lag(now_s)
            assert history.lag_s == expected

    with_broker(act)


@pytest.mark.parametrize(("seconds", "bucket"), [(0.0, 0), (0.001, 0), (0.002, 1), (2.5, 10), (9.0, len(LAG_BOUNDS))])
def test_a_delay_is_counted_in_its_bucket(seconds: float, bucket: int) -> None:
    lag = LoopLag()
    lag.add(seconds)
    assert lag.counts.index(1) == bucket
    assert (lag.latest_s, lag.total_s) == (seconds, seconds)


def test_an_overview_has_as_many_samples_as_were_asked_for() -> None:
    async def act(world: InProcess) -> None:
        await world.set("a", "b")
        history = MetricsHistory(ServerStatus(world.handle, version="1"))
        history.samples.extend(history.sample() for _ in range(3))
        found: Any = history.overview(2)
        assert found["series"]["retained"] == [2, 2]
        assert (found["retained"]["count"], found["retained"]["version"], found["version"]) == (2, 2, "1")
        assert history.overview(0)["series"] == {name: [] for name in found["series"]}

    with_broker(act)
