"""Keep the tables current: `retained` at every look, the others a little later, all of them exactly once.

`retained` is what people wait for, so it goes first and often. The others cost more for each batch than for each row;
they follow in fewer, larger steps. Whoever starts from far behind takes all tables by topic through history together.
"""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

from holdfast.spark.failure import retry_on_vacuumed_files
from holdfast.spark.keeper import BY_TIME, Keeper
from holdfast.spark.merge import BY_TOPIC


class Step(NamedTuple):
    """Tables moved by one batch, to offset `applied`; `behind` rows are left."""

    tables: tuple[str, ...]
    rows: int
    seconds: float
    applied: int
    behind: int


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
        self._seen = -1

    def once(self) -> None:
        """Bring every table to where history ends now."""
        self.keeper.refresh()
        self.catch_up()
        self._rest()
        for table in self.keeper.tables.values():
            table.tidy()

    def catch_up(self) -> None:
        """Bring every table to where history ended when the keeper looked last."""
        self._bring(BY_TOPIC)
        for name in BY_TIME:
            self._bring((name,))

    def forever(self) -> None:
        """Until `stop`; a batch that has begun is finished."""
        due = time.monotonic() + self.statistics_s
        while not self.stopping:
            if not self._follow():
                self._wait(min(self.trigger_s, max(0.05, due - time.monotonic())))
            if time.monotonic() >= due and not self.stopping:
                for names in (BY_TOPIC[1:], *((name,) for name in BY_TIME)):
                    self._bring(names)
                    self._follow()  # nobody waits for `retained` longer than one step takes
                self._rest(self._follow)
                due = time.monotonic() + self.statistics_s

    def _follow(self) -> bool:
        """Brings `retained` to where history ends now, and returns whether it was not there already."""
        end = self.keeper.refresh()
        if end == self._seen:
            return False
        self._bring(BY_TOPIC[:1])
        self._seen = end
        return True

    def stop(self) -> None:
        self.stopping = True

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self.stopping and time.monotonic() < until:
            time.sleep(min(0.1, seconds))

    def _bring(self, names: Sequence[str]) -> None:
        """Bring tables that can go together to where history ends; those that are behind first, to meet the others."""
        while not self.stopping:
            group, until = self.keeper.furthest_behind(names)
            if not self._advance(group, until):
                return

    def _advance(self, names: Sequence[str], until: int | None) -> int:
        begun = time.monotonic()
        work = partial(self.keeper.advance_together, names, self.max_offsets, until)
        moved = retry_on_vacuumed_files(self.keeper.history, work)
        if moved:
            behind = self.keeper.behind(names[0])
            applied = self.keeper.tables[names[0]].applied
            self.report(Step(tuple(names), moved, time.monotonic() - begun, applied, behind))
        return moved

    def _rest(self, between: Callable[[], object] = bool) -> None:
        """What no reader waits for; `between` is done in the middle of it."""
        if self.stopping:
            return
        self.keeper.refresh_hygiene(datetime.now(UTC), between)
        self.keeper.follow_erasures()
        self.keeper.compact("retained_intervals")
        for table in self.keeper.tables.values():
            table.sweep(self.keep_s)
