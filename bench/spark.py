"""The speed of the Spark pipeline: python bench/spark.py [--rows 1,5,20,50] [--only fold,source]

Writes a history table with the broker's own writer and measures on it, each figure in a fresh process: the fold beside
DuckDB's on the same files with its memory, the past from intervals, an incremental run of all tables, the source beside
Spark's own Parquet reader, and the time from a publish to the table `retained` with a real broker.

Examples:

    python bench/spark.py                                 # everything, 1 to 50 million rows; about half an hour
    python bench/spark.py --rows 1 --only fold,source     # a quick look
    python bench/spark.py --rows 20 --only incremental --folder /mnt/big
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

import machine
import spark_engines
import spark_lag
import spark_work
from spark_history import grow, topics_for
from spark_work import Figures

MILLION = 1_000_000
HERE = Path(__file__)
PARTS = ("fold", "source", "incremental", "past", "lag", "engines", "workers")
ENGINES = ("engine_of_files", "engine_of_merge", "engine_of_ranges", "engine_of_state")
# More rows tell no more about these, and take long.
AT_MOST = {"source": 5.0, "incremental": 20.0, "past": 5.0, "engines": 5.0, "workers": 5.0}
WORKERS = (1, 2, 4)


@dataclass(frozen=True)
class Line:
    """One line of the table: what, how many millions of rows, the value, and the bound it is held against."""

    what: str
    millions: float
    value: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None

    def verdict(self) -> str:
        if self.at_most is not None:
            return f"<= {self.at_most:g} " + (
                "[green]met[/green]" if self.value <= self.at_most else "[red]missed[/red]"
            )
        if self.at_least is not None:
            met = self.value >= self.at_least
            return f">= {self.at_least:,.10g} " + ("[green]met[/green]" if met else "[red]missed[/red]")
        return ""


class Bench:
    def __init__(self, folder: Path, console: Console) -> None:
        self.folder, self.console = folder, console
        self.lines: list[Line] = []
        self.figures: dict[str, Figures] = {}

    def history(self, millions: float) -> str:
        """The table of this size. All sizes with a million topics are one table that grows; readers stop in time."""
        rows = int(millions * MILLION)
        topics = topics_for(rows)
        place = self.folder / f"history-{topics}" / "history"
        grow(place, rows, topics)
        return str(place)

    def run(self, name: str, millions: float, **given: object) -> Figures:
        """Measure in a process of its own."""
        with self.console.status(f"{name}, {millions:g} M rows"):
            command = [sys.executable, str(HERE), "--work", name, json.dumps(given)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(f"{name} failed:\n{done.stderr}")
        found: Figures = json.loads(done.stdout.splitlines()[-1])
        self.figures[f"{name}-{millions:g}M"] = found
        return found

    def add(self, *lines: Line) -> None:
        self.lines += lines
        for line in lines:
            where = f"{line.millions:g} M rows" if line.millions else ""
            self.console.print(f"{line.what:42} {where:>10} {line.value:>14,.2f} {line.unit:8} {line.verdict()}")

    def fold(self, millions: float) -> None:
        rows = int(millions * MILLION)
        place = self.history(millions)
        spark = self.run("fold_by_spark", millions, history=place, rows=rows)
        duckdb = self.run("fold_by_duckdb", millions, history=place, rows=rows)
        ratio = spark["seconds"] / duckdb["seconds"]
        self.add(
            Line("fold, Spark", millions, spark["seconds"], "s"),
            Line("fold, DuckDB", millions, duckdb["seconds"], "s"),
            # below twenty million rows, starting the tasks is most of the work
            Line("fold, Spark to DuckDB", millions, ratio, "times", at_most=3 if millions >= 20 else None),
            Line("fold, Spark, processor time", millions, spark["cpu_s"], "s"),
            Line("fold, DuckDB, processor time", millions, duckdb["cpu_s"], "s"),
            Line("fold, most memory, Spark", millions, spark["gib"], "GiB", at_most=4),
            Line("fold, most memory, DuckDB", millions, duckdb["gib"], "GiB"),
            Line("fold, rate", millions, spark["rows_per_s"], "rows/s"),
        )

    def source(self, millions: float) -> None:
        found = self.run("read_by_source", millions, history=self.history(millions), rows=int(millions * MILLION))
        self.add(
            Line("format('holdfast'), all columns", millions, found["source_s"], "s"),
            Line("read_history, all columns", millions, found["scan_s"], "s"),
            Line("Spark's Parquet reader", millions, found["parquet_s"], "s"),
            Line("format('holdfast'), processor time", millions, found["source_cpu_s"], "s"),
            Line("read_history, processor time", millions, found["scan_cpu_s"], "s"),
            Line("Spark's Parquet reader, processor time", millions, found["parquet_cpu_s"], "s"),
            Line("speed of the source to the reader's", millions, found["source_share"] * 100, "%", at_least=80),
            Line("speed of read_history to the reader's", millions, found["scan_share"] * 100, "%", at_least=80),
        )

    def workers(self, millions: float) -> None:
        """Cost by doubling: the same fold with 1, 2 and 4 workers of one core each."""
        rows, place = int(millions * MILLION), self.history(millions)
        alone = 0.0
        for number in WORKERS:
            found = self.run("fold_on_workers", millions, history=place, rows=rows, workers=number)
            alone = alone or found["seconds"]
            self.add(
                Line(f"fold, {number} workers", millions, found["seconds"], "s"),
                Line(f"fold, {number} workers, the first time", millions, found["first_s"], "s"),
                Line(f"fold, {number} workers, planned by the driver", millions, found["planned_s"], "s"),
                Line(f"fold, {number} workers, processor time", millions, found["cpu_s"], "s"),
            )
            if number > 1:
                self.add(Line(f"fold, {number} workers to one", millions, alone / found["seconds"], "times"))

    def incremental(self, millions: float) -> None:
        """Needs a table that ends at these rows: the run goes to the end."""
        rows = int(millions * MILLION)
        topics = topics_for(rows)
        place = self.folder / f"run-{millions:g}"
        shutil.rmtree(place, ignore_errors=True)
        grow(place / "history", rows, topics)
        found = self.run(
            "keep_tables", millions, history=str(place / "history"), tables=str(place / "tables"), rows=rows
        )
        self.add(
            Line(
                "incremental run, all tables, sustained", millions, found["lasting_rows_per_s"], "rows/s", None, 200_000
            ),
            Line("incremental run, with the first batch", millions, found["rows_per_s"], "rows/s"),
            Line("incremental run, processor time", millions, found["cpu_s"], "s"),
            Line("incremental run, most memory", millions, found["gib"], "GiB", at_most=3),
            Line("incremental run, resident sets added up", millions, found["added_gib"], "GiB"),
            *(
                Line(f"  {name}", millions, value, "s")
                for name, value in found.items()
                if name.endswith("_s") and "_per_" not in name and name != "cpu_s"
            ),
        )

    def past(self, millions: float) -> None:
        rows = int(millions * MILLION)
        place = self.folder / f"run-{millions:g}"
        if not (place / "tables" / "retained_intervals").exists():
            self.incremental(millions)
        found = self.run(
            "past_from_intervals", millions, history=str(place / "history"), tables=str(place / "tables"), rows=rows
        )
        self.add(
            Line("as of a moment, whole set", millions, found["whole_s"], "s", at_most=1),
            Line("as of an offset, whole set", millions, found["by_offset_s"], "s", at_most=1),
            Line("as of a moment, one line's topics", millions, found["filter_s"], "s", at_most=1),
            Line("as of, the first asked", millions, found["first_s"], "s"),
            Line("as of, by replay", millions, found["replay_s"], "s"),
        )

    def engines(self, millions: float) -> None:
        """So many topics, and a fifth as many changes."""
        topics, changes = int(millions * MILLION), int(millions * MILLION) // 5
        place = self.folder / f"engines-{millions:g}"
        shutil.rmtree(place, ignore_errors=True)
        history = str(place / "history")
        spark_engines.fill(history, topics, changes)
        for name in ENGINES:
            # state is kept a row at a time: a tenth shows its rate
            some = changes // 10 if name == "engine_of_state" else changes
            found = self.run(name, millions, history=history, tables=str(place / name), topics=topics, changes=some)
            what = name.removeprefix("engine_of_")
            self.add(
                Line(f"retained by {what}", millions, found["rows_per_s"], "rows/s"),
                Line(f"retained by {what}, processor time", millions, found["cpu_s"], "s"),
                Line(f"retained by {what}, most memory", millions, found["gib"], "GiB"),
            )

    def lag(self) -> None:
        with self.console.status("from publish to the table `retained`"):
            found = spark_lag.measure(self.folder / "lag")
        self.figures["lag"] = found
        self.add(
            Line("publish to `retained`, median", 0, found["median_s"], "s", at_most=1.5),
            Line("publish to `retained`, slowest", 0, found["slowest_s"], "s", at_most=3),
        )


def main() -> int:
    options = parse()
    if options.work:
        name, given = options.work
        room = spark_engines if name in ENGINES else spark_work
        print(json.dumps(getattr(room, name)(**json.loads(given))))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # through the blocks that end what was started
    console = Console() if sys.stdout.isatty() else Console(width=110)
    bench = Bench(Path(options.folder) / "holdfast-spark-bench", console)  # its own: it is deleted at the end
    if os.getloadavg()[0] > 0.7:
        console.print(
            f"[yellow]load average {os.getloadavg()[0]:.1f}: others use this machine, times will be long[/yellow]"
        )
    try:
        for part in options.only:
            if part == "lag":
                bench.lag()
                continue
            bound = AT_MOST.get(part)
            sizes = [size for size in options.rows if bound is None or size <= bound] or [bound or 1.0]
            for size in sizes if part == "fold" else sizes[-1:]:
                getattr(bench, part)(size)
    finally:
        if not options.keep:
            shutil.rmtree(bench.folder, ignore_errors=True)
    console.print(table(bench.lines))
    write(Path(options.json), bench)
    console.print(f"figures: {options.json}")
    return 1 if any("missed" in line.verdict() for line in bench.lines) else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=millions, default=millions("1,5,20,50"), help="millions of rows, such as 1,5,20")
    parser.add_argument("--only", type=parts, default=list(PARTS), help=f"comma-separated, of: {', '.join(PARTS)}")
    folder = tempfile.gettempdir()
    parser.add_argument("--folder", default=folder, help="where a folder for tables is made; 50 M rows take 3 GB")
    parser.add_argument("--keep", action="store_true", help="leave the tables for the next time")
    parser.add_argument("--json", default="build/bench-spark.json", help="where the figures go")
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


def millions(text: str) -> list[float]:
    try:
        return sorted(float(word) for word in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected millions of rows such as 1,5,20, got {text!r}") from None


def parts(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"expected some of {', '.join(PARTS)}, got {unknown[0]!r}")
    return [part for part in PARTS if part in names]


def table(lines: list[Line]) -> Table:
    shown = Table(box=box.SIMPLE, title="the Spark pipeline", title_justify="left")
    shown.add_column("")
    for name in ("M rows", "figure"):
        shown.add_column(name, justify="right")
    shown.add_column("")
    shown.add_column("target")
    for line in lines:
        value = f"{line.value:,.0f}" if line.value >= 1000 else f"{line.value:.2f}"
        shown.add_row(line.what, f"{line.millions:g}" if line.millions else "", value, line.unit, line.verdict())
    return shown


def write(path: Path, bench: Bench) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figures = {
        "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine.describe(),
        "figures": bench.figures,
    }
    path.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
