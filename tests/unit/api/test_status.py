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
        status = ServerStatus(world.handle, journal(10), tmp_path, reached={"state": 9, "history": 4})
        assert (status.newest(), status.history_lag(), status.state_lag()) == (10, 6, 1)

    with_broker(act)


def test_the_lag_of_the_history_is_timed_from_the_offset_it_has_yet_to_reach(tmp_path: Any) -> None:
    async def act(world: InProcess) -> None:
        status = ServerStatus(world.handle, journal(10), tmp_path, reached={"history": 4})
        history = MetricsHistory(status)
        for now_s, reached, expected in ((100.0, 4, 0.0), (103.0, 9, 3.0), (104.0, 10, 0.0), (105.0, 10, 0.0)):
            status.reached["history"] = reached
            history.watch_lag(now_s)
            assert history.lag_s == expected

    with_broker(act)


def test_offsets_that_a_crash_left_out_are_nothing_to_be_behind_by(tmp_path: Any) -> None:
    async def act(world: InProcess) -> None:
        skipped = (10, 16_777_226)  # offset 11 to there were reserved and never given out
        status = ServerStatus(world.handle, journal(10), tmp_path, reached={"history": 8, "state": 10}, skipped=skipped)
        assert (status.history_lag(), status.state_lag()) == (2, 0)
        status.journal = journal(16_777_229)
        assert (status.history_lag(), status.state_lag()) == (5, 3)
        status.reached["history"] = 16_777_228
        assert status.history_lag() == 1

    with_broker(act)


def test_samples_are_kept_for_longer_in_larger_steps() -> None:
    async def act(world: InProcess) -> None:
        history = MetricsHistory(ServerStatus(world.handle, version="1"))
        history.start()
        for _ in range(61):
            world.handle.told_ms += 1000
            history.on_time()
        history.stop()
        series: Any = {step: history.overview(1440, step)["series"] for step in (1, 10, 60)}
        assert [len(series[step]["at_ms"]) for step in (1, 10, 60)] == [61, 7, 2]
        assert series[60]["at_ms"] == series[1]["at_ms"][::60]

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
        history.samples[1].extend(history.sample() for _ in range(3))
        found: Any = history.overview(2)
        assert found["series"]["retained"] == [2, 2]
        assert (found["retained"]["count"], found["retained"]["version"], found["version"]) == (2, 2, "1")
        assert history.overview(0)["series"] == {name: [] for name in found["series"]}

    with_broker(act)
