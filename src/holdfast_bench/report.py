"""What a person sees of a run: a bar while it runs, a table when it is over."""

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from holdfast_bench import coordinator
from holdfast_bench.plan import Busy, Result, lower_bound

LABELS = {
    "connections": "connections opened",
    "connections_per_s": "connections/s",
    "alive": "still answering",
    "bytes_per_connection": "broker memory per connection",
    "set_per_s": "set/s",
    "set_busy": "generator busy meanwhile",
    "overhead_bytes_per_message": "broker memory beyond topic and payload",
    "snapshot_per_s": "snapshot messages/s",
    "snapshot_busy": "generator busy meanwhile",
    "snapshot_s": "snapshot, seconds",
    "ping_max_ms": "another client's slowest ping, ms",
    "exact_ms": "subscribing one topic, ms",
    "empty_ms": "subscribing an empty topic, ms",
    "clear_per_s": "cleared/s",
    "bytes_left_per_message": "broker memory not given back, per message",
}


class Bar:
    """A progress bar on stderr, so that stdout stays clean for --json."""

    def __init__(self, title: str, quiet: bool) -> None:
        self._title = title
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[rates]}"),
            TimeElapsedColumn(),
            console=Console(file=sys.stderr),
            transient=True,
            disable=quiet,
            refresh_per_second=8,
        )
        self._task: TaskID = self._progress.add_task(title, total=1.0, rates="")
        self._last = coordinator.Progress(0.0, 0.0)
        self._rates = ""

    def __enter__(self) -> "Bar":
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def watch(self, now: coordinator.Progress) -> None:
        passed_s = now.elapsed_s - self._last.elapsed_s
        if not now.step and passed_s >= 0.25:
            sent = (now.sent - self._last.sent) / passed_s
            received = (now.received - self._last.received) / passed_s
            self._rates = f"sent {short(sent)}/s  received {short(received)}/s"
            self._last = now
        title = f"{self._title}: {now.step}" if now.step else self._title
        self._progress.update(self._task, description=title, completed=now.share, rates=self._rates)


def summary(result: Result) -> Table:
    table = Table(show_header=False)
    table.add_column("figure")
    table.add_column("value", justify="right")
    if result.figures:
        for name, value in result.figures.items():
            table.add_row(LABELS.get(name, name), amount(name, value))
        if result.expected:
            table.add_row("messages in the snapshot", f"{result.received:,} of {result.expected:,}")
        return table
    table.add_row("measured for", f"{result.seconds:.2f} s")
    if result.sent:
        table.add_row("sent/s", f"{result.sent_per_s:,.0f}")
    if result.received:
        table.add_row("received/s", f"{result.received_per_s:,.0f}")
        table.add_row("received MB/s", f"{result.received_bytes_per_s / 1e6:,.1f}")
    if result.sent:
        table.add_row("sent", f"{result.sent:,}")
    if result.acknowledged:
        table.add_row("acknowledged", f"{result.acknowledged:,}")
    if result.scenario != "pub":
        table.add_row("received", f"{result.received:,}")
    if result.expected:
        table.add_row("lost", f"{result.lost:,}" + (f" of {result.expected:,}" if result.lost else ""))
    if result.latency:
        table.add_row("latency p50", f"{result.latency.p50_ms:.3f} ms")
        table.add_row("latency p99", f"{result.latency.p99_ms:.3f} ms")
        table.add_row("latency p99.9", f"{result.latency.p999_ms:.3f} ms")
        table.add_row("latency max", f"{result.latency.max_ms:.3f} ms")
    if result.busy:
        for name, share in shares(result.busy).items():
            table.add_row(name, f"{share:.0%}")
    return table


def shares(busy: Busy) -> dict[str, float]:
    """How busy everybody was who took part, in cores."""
    sides = {"publishers busy": busy.publishers, "subscribers busy": busy.subscribers}
    found = {name: share for name, share in sides.items() if share}
    return found if busy.broker is None else found | {"broker busy": busy.broker}


def bounds(result: Result) -> list[str]:
    """What the generator's own limit leaves open about the rates."""
    said = [lower_bound(result.busy.generator)] if result.busy else []
    for step in ("set", "snapshot"):
        told = lower_bound(result.figures.get(f"{step}_busy", 0.0))
        said.append(told and f"{step}: {told}")
    return [told for told in said if told]


def amount(name: str, value: float) -> str:
    if "bytes" in name:
        return f"{value:,.0f} B"
    if name.endswith("_busy"):
        return f"{value:.0%}"
    if name.endswith(("_ms", "_s")) and not name.endswith("_per_s"):
        return f"{value:.3f}"
    return f"{value:,.0f}"


def short(value: float) -> str:
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.0f}"
