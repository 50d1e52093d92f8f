"""Keep the tables current: those that people wait for at every look, the others a little later, all exactly once.

Each of the two is a query of Structured Streaming, so that Spark's own pages, listeners and metrics show them. Through
Spark Connect, where a batch could not be given to this process, the same batches are taken in a loop.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial

from holdfast.spark.failure import retry_on_vacuumed_files
from holdfast.spark.follow import Follower, Progress, Step
from holdfast.spark.keeper import Keeper

LOOK_S = 0.1
# For what Spark still has to tell of a query that has ended.
TOLD_S = 30.0


class Runner:
    def __init__(
        self,
        keeper: Keeper,
        *,
        max_offsets: int = 5_000_000,
        trigger_s: float = 1.0,
        statistics_s: float = 10.0,
        keep_s: float = 300.0,
        report: Callable[[Step], None] = lambda _step: None,
    ) -> None:
        self.keeper, self.report = keeper, report
        self.max_offsets, self.trigger_s = max_offsets, trigger_s
        self.statistics_s, self.keep_s = statistics_s, keep_s
        self.stopping = False
        self._streams = hasattr(keeper.spark, "_jsparkSession")

    def once(self) -> None:
        """Bring every table to where history ends now."""
        self.keeper.refresh()
        if self._streams:
            self._stream_once()
        else:
            self.catch_up()
        self._rest(whole=True)

    def catch_up(self) -> None:
        """Bring every table to where history ended when the keeper looked last, without a stream."""
        for names in self.keeper.together(self.keeper.following):
            self._bring(names)

    def forever(self) -> None:
        """Until `stop`; a batch that has begun is finished."""
        if self._streams:
            self._stream()
        else:
            self._loop()

    def stop(self) -> None:
        self.stopping = True

    def _stream_once(self) -> None:
        follower = Follower(self.keeper, "tables", self.keeper.following, self.max_offsets)
        with self._following([follower]):
            follower.start(availableNow=True)
            while not follower.wait(LOOK_S):
                if self.stopping:
                    follower.stop()

    def _stream(self) -> None:
        eager, later = self._eager(), self._later()
        looks = {"retained": (eager, self.trigger_s), "statistics": (later, self.statistics_s)}
        followers = {
            Follower(self.keeper, name, tables, self.max_offsets): seconds
            for name, (tables, seconds) in looks.items()
            if tables
        }
        with self._following(list(followers)):
            for follower, seconds in followers.items():
                follower.start(processingTime=f"{seconds * 1000:.0f} milliseconds")
            due = time.monotonic() + self.statistics_s
            while not self.stopping:
                for follower in followers:
                    follower.wait(LOOK_S)
                if time.monotonic() >= due:
                    self._rest()
                    due = time.monotonic() + self.statistics_s

    @contextmanager
    def _following(self, followers: Sequence[Follower]) -> Iterator[None]:
        """Tell of queries while the block runs, and end them with it."""
        streams, progress = self.keeper.spark.streams, Progress(followers, self.report)
        streams.addListener(progress)
        try:
            yield
        finally:
            for follower in followers:
                follower.stop()
            for follower in followers:
                follower.ended.wait(TOLD_S)
            streams.removeListener(progress)

    def _loop(self) -> None:
        due = time.monotonic()
        while not self.stopping:
            self.keeper.refresh()
            for names in self.keeper.together(self._eager()):
                self._bring(names)
            if time.monotonic() >= due:
                for names in self.keeper.together(self._later()):
                    self._bring(names)
                self._rest()
                due = time.monotonic() + self.statistics_s
            self._wait(self.trigger_s)

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self.stopping and time.monotonic() < until:
            time.sleep(LOOK_S)

    def _bring(self, names: Sequence[str]) -> None:
        """Bring tables that can go together to where history ends; those that are behind first, to meet the others."""
        while not self.stopping:
            group, until = self.keeper.furthest_behind(names)
            begun = time.monotonic()
            work = partial(self.keeper.advance_together, group, self.max_offsets, until)
            moved = retry_on_vacuumed_files(self.keeper.history, work)
            if not moved:
                return
            behind, applied = self.keeper.behind(group[0]), self.keeper.tables[group[0]].applied
            self.report(Step(group, moved, time.monotonic() - begun, applied, behind))

    def _eager(self) -> list[str]:
        return [name for name in self.keeper.following if self.keeper.tables[name].value.eager]

    def _later(self) -> list[str]:
        return [name for name in self.keeper.following if not self.keeper.tables[name].value.eager]

    def _rest(self, *, whole: bool = False) -> None:
        """What no reader waits for."""
        if self.stopping:
            return
        self.keeper.history.refresh()
        self.keeper.summarise(datetime.now(UTC))
        self.keeper.follow_erasures()
        self.keeper.compact()
        self.keeper.tidy(self.keep_s, whole=whole)
