"""How far a start has come, for the operator who waits for it.

A quick start says nothing. One that takes longer shows a bar where a terminal is, and leaves a line a second in the
diagnostics where there is none.
"""

import logging
import sys
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

log = logging.getLogger("holdfast.storage")

PATIENCE_S = 2.0
INTERVAL_S = 1.0


class Progress(Protocol):
    """What is being done, how many records or messages of it are done, and how many there are (0: not known)."""

    def __call__(self, what: str, count: int, total: int = 0) -> None: ...


def silent(what: str, count: int, total: int = 0) -> None:
    """Shows no progress."""


class StartProgress:
    """Call it as often as you like; `close` it when the broker serves."""

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = monotonic) -> None:
        self.stream = stream if stream is not None else sys.stderr
        self.clock = clock
        self.started_at = self.told_at = self.step_began_at = clock()
        self.step = ""
        self.bars: Bars | None = None
        self.task: TaskID | None = None

    def __call__(self, what: str, count: int, total: int = 0) -> None:
        now = self.clock()
        if what != self.step:
            self.step = what
            self.step_began_at = now
            if self.bars is not None and self.task is not None:
                self.bars.remove_task(self.task)
            self.task = None
        if now - self.started_at < PATIENCE_S:
            return
        per_second = int(count / max(now - self.step_began_at, 0.001))
        if self.stream.isatty():
            self.show(count, total, per_second)
        elif now - self.told_at >= INTERVAL_S:
            self.told_at = now
            of = {"of": total} if total else {}
            log.info("recovering", extra={"step": what, "done": count, **of, "per_second": per_second})

    def show(self, count: int, total: int, per_second: int) -> None:
        if self.bars is None:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bars

            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rate]}"))
            console = Console(file=self.stream)
            self.bars = Bars(*columns, TimeElapsedColumn(), console=console, transient=True)
            self.bars.start()
        rate = f"{count:,} at {per_second:,}/s" if count else ""
        if self.task is None:
            self.task = self.bars.add_task(self.step, total=total or None, rate=rate)
        self.bars.update(self.task, completed=count, total=total or None, rate=rate)

    def close(self) -> None:
        if self.bars is not None:
            self.bars.stop()
            self.bars = None
