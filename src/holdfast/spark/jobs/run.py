"""Keep the tables current: `retained` at every look, the others a little later, all of them exactly once.

`retained` is what people wait for, so it goes first and often. The statistics cost more for each batch than for each
row; they follow in fewer, larger steps.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from pyspark.errors import PySparkException

from holdfast.spark.keeper import FOLLOWING, Keeper

# A file that a plan named may be gone: compacted into another one and vacuumed. The rows are not.
GONE = ("FILE_NOT_EXIST", "FileNotFoundException", "does not exist")


class Step(NamedTuple):
    """One table moved by one batch, to offset `applied`; `behind` rows are left."""

    table: str
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
        self._bring(FOLLOWING)
        self._rest()
        for table in self.keeper.tables.values():
            table.tidy()

    def forever(self) -> None:
        """Until `stop`; a batch that has begun is finished."""
        due = time.monotonic() + self.statistics_s
        while not self.stopping:
            if not self._follow():
                self._wait(min(self.trigger_s, max(0.05, due - time.monotonic())))
            if time.monotonic() >= due and not self.stopping:
                for name in FOLLOWING[1:]:
                    self._bring((name,))
                    self._follow()  # nobody waits for `retained` longer than one table takes
                self._rest()
                due = time.monotonic() + self.statistics_s

    def _follow(self) -> bool:
        """Bring `retained` to where history ends now; False when it was there already."""
        end = self.keeper.refresh()
        if end == self._seen:
            return False
        self._bring(FOLLOWING[:1])
        self._seen = end
        return True

    def stop(self) -> None:
        self.stopping = True

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self.stopping and time.monotonic() < until:
            time.sleep(min(0.1, seconds))

    def _bring(self, names: tuple[str, ...]) -> None:
        for name in names:
            while not self.stopping and self._advance(name):
                pass

    def _advance(self, name: str) -> int:
        begun = time.monotonic()
        for attempt in range(4):
            try:
                moved = self.keeper.advance(name, self.max_offsets)
                break
            except PySparkException as error:
                if attempt == 3 or not any(sign in str(error) for sign in GONE):
                    raise
                self.keeper.refresh()
        if moved:
            table = self.keeper.tables[name]
            self.report(Step(name, moved, time.monotonic() - begun, table.applied, self.keeper.behind(name)))
        return moved

    def _rest(self) -> None:
        """What no reader waits for."""
        if self.stopping:
            return
        self.keeper.refresh_hygiene(datetime.now(UTC))
        self.keeper.compact("retained_intervals")
        for table in self.keeper.tables.values():
            table.sweep(self.keep_s)
