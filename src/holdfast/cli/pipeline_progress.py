"""Showing that work goes on: a bar with rows and rate once it takes longer than two seconds, on standard error.

Spark says how many of its tasks are done; the share of tasks is shown as that share of the rows. Where nobody watches
(no terminal), a line now and then instead of a bar.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import IO, TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S = 2.0
LINE_S = 10.0


class Meter:
    """Rows done out of a total. `set` may be called from any thread."""

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total, self.done = what, max(total, 1), 0
        self.begun = time.monotonic()

    def set(self, done: int) -> None:
        self.done = min(done, self.total)

    def rate(self) -> str:
        seconds = time.monotonic() - self.begun
        return f"{self.done / seconds:,.0f} rows/s" if self.done and seconds > 0 else ""


@contextmanager
def shown(what: str, total: int) -> Iterator[Meter]:
    """Show a meter while the block runs, if it runs long enough to wonder."""
    meter = Meter(what, total)
    with _beside(partial(_show, meter)):
        yield meter


@contextmanager
def _beside(show: Callable[[threading.Event], None]) -> Iterator[None]:
    """Have a thread show how the block comes on; it is told when that is over."""
    stop = threading.Event()
    thread = threading.Thread(target=show, args=(stop,), name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _show(meter: Meter, stop: threading.Event) -> None:
    if stop.wait(PATIENCE_S):
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        while True:
            print(f"{meter.what}: {meter.done:,} of {meter.total:,} rows {meter.rate()}".rstrip(), file=sys.stderr)
            if stop.wait(LINE_S):
                return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(meter.what, total=meter.total, rate="")
        while not stop.wait(0.2):
            progress.update(task, completed=meter.done, rate=meter.rate())


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show on the terminal what is waited for, if it takes long enough to wonder. Without a terminal, nothing.

    The terminal is opened anew: Spark starts with standard error sent to a file.
    """
    if not sys.stderr.isatty():
        yield
        return
    with os.fdopen(os.dup(sys.stderr.fileno()), "w") as terminal, _beside(partial(_spin, what, terminal)):
        yield


def _spin(what: str, terminal: IO[str], stop: threading.Event) -> None:
    if stop.wait(PATIENCE_S):
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(
        *columns, console=Console(file=terminal), transient=True, redirect_stdout=False, redirect_stderr=False
    ) as progress:
        progress.add_task(what, total=None)
        stop.wait()


@contextmanager
def spark_work(spark: "SparkSession", what: str, rows: int) -> Iterator[None]:
    """Follow Spark's own count of tasks while the block runs."""
    follow = _follow_connect if not hasattr(spark, "_jsparkSession") else _follow_local
    with shown(what, rows) as meter, _beside(partial(follow, spark, meter)):
        yield


def _follow_local(spark: "SparkSession", meter: Meter, stop: threading.Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    seen: dict[int, tuple[int, int]] = {}
    while not stop.wait(0.3):
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is not None:
                seen[stage] = (info.numCompletedTasks, info.numTasks)
        _share(meter, seen, set(tracker.getActiveStageIds()))


def _share(meter: Meter, seen: dict[int, tuple[int, int]], active: set[int]) -> None:
    done = sum(total if stage not in active else part for stage, (part, total) in seen.items())
    total = sum(total for _, total in seen.values())
    if total:
        meter.set(max(meter.done, meter.total * done // (total + 1)))


def _follow_connect(spark: "SparkSession", meter: Meter, stop: threading.Event) -> None:
    def on_progress(stages: Any, **_more: Any) -> None:
        listed = list(stages or [])
        done = sum(stage.num_completed_tasks for stage in listed)
        total = sum(stage.num_tasks for stage in listed)
        if total:
            meter.set(max(meter.done, meter.total * done // total))

    handler: Any = on_progress
    spark.registerProgressHandler(handler)
    stop.wait()
    spark.removeProgressHandler(handler)
