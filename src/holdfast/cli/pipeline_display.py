"""What `holdfast pipeline` shows: tables for people, JSON lines for programs, and meanwhile that work goes on.

A bar with rows and rate appears on standard error once work takes longer than two seconds. Spark says how many of its
tasks are done; the share of tasks is shown as that share of the rows. Where nobody watches (no terminal), a line now
and then instead of a bar.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import IO, TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from holdfast.storage import reserve

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.spark.follow import Step

PATIENCE_S = 2.0
LINE_S = 10.0


def print_step(step: "Step") -> None:
    rate = step.rows / step.seconds if step.seconds else 0
    print(
        f"{', '.join(step.tables)}: {step.rows:,} rows in {step.seconds:.1f} s ({rate:,.0f}/s), {step.behind:,} behind",
        flush=True,
    )


def print_retained(rows: list[dict[str, Any]], total: int, as_json: bool) -> None:
    from holdfast.spark.jobs.output import plain

    if as_json:
        for row in rows:
            print(json.dumps(plain(row), ensure_ascii=False))
        return
    table = Table("topic", "payload", "qos", "set at (UTC)", "expires", "by", box=None, pad_edge=False)
    for row in rows:
        shown_row = plain(row)
        table.add_row(
            cell(row["topic"]),
            cell(brief(shown_row["payload"])),
            str(row["qos"]),
            (shown_row["timestamp"] or "")[:19].replace("T", " "),
            (shown_row["expires_at"] or "")[:19].replace("T", " "),
            cell(row["client_id"] or ""),
        )
    Console().print(table)
    more = f"; {total - len(rows):,} more with --limit or --out" if total > len(rows) else ""
    print(f"{total:,} retained messages{more}")


def print_differences(rows: list[dict[str, Any]], count: int) -> None:
    if not rows:
        return
    table = Table("topic", "what", "history says", "found", box=None, pad_edge=False)
    for row in rows:
        cells = (row["topic"], row["problem"], brief(row["expected"] or "-"), brief(row["got"] or "-"))
        table.add_row(*(cell(text) for text in cells))
    Console().print(table)
    if count > len(rows):
        print(f"… and {count - len(rows):,} more")


def print_plan(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        print(f"{row['action']:5} {printable(row['topic'])}")


def print_stats(found: dict[str, Any]) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    for name in ("messages", "bytes", "topics", "publishers", "retained", "retained_bytes"):
        table.add_row(name.replace("_", " "), f"{found[name]:,}")
    table.add_row("from", found["first"] or "-")
    table.add_row("to", found["last"] or "-")
    for outcome, number in found["outcomes"].items():
        table.add_row(f"outcome {outcome}", f"{number:,}")
    for name, text in layout_rows(found["table"]):
        table.add_row(name, text)
    Console().print(table)
    if found["tables"]:
        print()
        print_tables(found["tables"])
    what = found.get("what_if")
    if what:
        limits = ", ".join(f"{name}={value}" for name, value in what["limits"].items())
        print(f"\nwith {limits}:")
        print(f"  {what['retained']:,} topics would be retained ({what['bytes']:,} bytes), {what['peak']:,} at most")
        for reason, number in sorted(what["refused"].items()):
            print(f"  {number:,} publishes would be {reason.replace('_', ' by ')}")
        for topic, number in what["topics"][:20]:
            print(f"  {number:>8,} refused on {printable(topic)}")


def layout_rows(layout: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """How the table lies there: files, sizes, and what the last compaction gained."""
    bounds = (
        f", {reserve.shown(layout['smallest'])} to {reserve.shown(layout['largest'])} each" if layout["files"] else ""
    )
    yield "files", f"{layout['files']:,}, {reserve.shown(layout['bytes'])}{bounds}"
    if layout["replaced_files"]:
        waiting = f"{layout['replaced_files']:,}, {reserve.shown(layout['replaced_bytes'])}"
        yield "replaced files", f"{waiting}, deleted when history.keep_replaced has passed"
    yield "last compaction", gain_text(layout["last_compaction"])


def print_tables(layouts: dict[str, dict[str, Any]]) -> None:
    """How the pipeline's own tables lie there, a line for each."""
    table = Table("table", box=None, pad_edge=False)
    for name in ("rows", "files", "size", "replaced files"):
        table.add_column(name, justify="right")
    table.add_column("last compaction")
    for name, layout in layouts.items():
        left = f"{layout['replaced_files']:,}, {reserve.shown(layout['replaced_bytes'])}"
        table.add_row(
            cell(name),
            "?" if layout["rows"] is None else f"{layout['rows']:,}",
            f"{layout['files']:,}",
            reserve.shown(layout["bytes"]),
            left if layout["replaced_files"] else "-",
            gain_text(layout["last_compaction"]),
        )
    Console().print(table)


def gain_text(gain: dict[str, Any] | None) -> str:
    if gain is None:
        return "none yet"
    at = datetime.fromtimestamp(gain["at_ms"] / 1000, UTC).isoformat(timespec="seconds")
    before, after = (f"{gain['files' + end]:,} files, {reserve.shown(gain['bytes' + end])}" for end in ("", "_after"))
    return f"{at}: {before} became {after}"


def brief(text: str, width: int = 60) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def printable(text: str) -> str:
    """Topics and payloads are data: no control characters of the terminal."""
    return "".join(character if character.isprintable() else "·" for character in text)


def cell(text: str) -> Text:
    """For a table, where a plain string would be read as markup."""
    return Text(printable(text))


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

    The terminal is opened a second time: Spark starts with standard error sent to a file.
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
