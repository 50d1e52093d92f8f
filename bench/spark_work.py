"""What bench/spark.py measures, each in a process of its own so that memory is that of one piece of work."""

import contextlib
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Figures = dict[str, float]
MEMORY = "2g"  # what `holdfast pipeline` gives the driver when nobody says otherwise
RUN_MEMORY = "1g"  # and `holdfast pipeline run`
DUCKDB_FOLD = """
    WITH rows AS (SELECT * FROM read_parquet({files}) WHERE outcome IN ('set', 'cleared')),
         last AS (SELECT max("offset") AS "offset" FROM rows GROUP BY topic)
    SELECT * FROM rows SEMI JOIN last USING ("offset")
    WHERE outcome = 'set' AND (expires_at IS NULL OR expires_at > TIMESTAMPTZ '{at}')
"""


class Memory:
    """The most that this process and all it has started had at once, JVM and Python workers included.

    Workers are copies of one process: a page that several have counts once. With every one of its sharers it counts in
    `added_up`, as a list of processes would show it.
    """

    def __init__(self) -> None:
        self.peak = self.added_up = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        me = psutil.Process()
        while not self._stop.wait(0.3):
            total = added_up = 0
            for process in (me, *me.children(recursive=True)):
                with contextlib.suppress(psutil.Error, OSError):
                    rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
                    sizes = dict(line.split(":") for line in rollup.splitlines()[1:])
                    total += int(sizes["Pss"].split()[0]) * 1024
                    added_up += int(sizes["Rss"].split()[0]) * 1024
            self.peak, self.added_up = max(self.peak, total), max(self.added_up, added_up)

    def stop(self) -> Figures:
        self._stop.set()
        self._thread.join()
        return {"gib": self.peak / (1 << 30), "added_gib": self.added_up / (1 << 30)}


@contextmanager
def session(master: str | None = None, memory: str = MEMORY, **settings: str) -> Iterator["SparkSession"]:
    """A session that is up: its first query, which starts everything, has been answered."""
    from holdfast.spark.session import start_session

    spark = start_session(master, memory=memory, settings={name.replace("_", "."): v for name, v in settings.items()})
    spark.range(10).count()
    try:
        yield spark
    finally:
        spark.stop()


def drain(frame: "DataFrame") -> None:
    """Compute every column of every row and keep nothing."""
    frame.write.format("noop").mode("overwrite").save()


def seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def processor_seconds() -> float:
    """What this process and all it has started have used: on a busy machine the better measure."""
    me = psutil.Process()
    total = 0.0
    for process in (me, *me.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def costs(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds by the clock, and of processor time."""
    before = processor_seconds()
    took = seconds(work)
    return took, processor_seconds() - before


def fold_by_spark(history: str, rows: int) -> Figures:
    from holdfast.spark.ranges import History
    from holdfast.spark.replay import fold_history

    memory = Memory()
    with session() as spark:
        table = History(history)
        took, cpu = costs(lambda: drain(fold_history(spark, table, rows, at=_then(rows))))
        peak = memory.stop()
    return {"seconds": took, "cpu_s": cpu, **peak, "rows_per_s": rows / took}


def fold_on_workers(history: str, rows: int, workers: int) -> Figures:
    """The same fold on a standalone cluster of workers with a core each; the second of two, when all is compiled."""
    from holdfast.spark.ranges import History
    from holdfast.spark.replay import fold_history
    from spark_cluster import cluster

    with cluster(workers) as url, session(url, spark_executor_memory="1g", spark_driver_host="127.0.0.1") as spark:
        # before all workers have come, the first of them would have all tasks
        wait_for_executors(spark, workers)
        table = History(history)
        begun = time.perf_counter()
        frame = fold_history(spark, table, rows, at=_then(rows))
        frame._jdf.queryExecution().executedPlan()
        planned = time.perf_counter() - begun
        first = costs(lambda: drain(frame))
        took, cpu = costs(lambda: drain(frame))
    return {"seconds": took, "cpu_s": cpu, "first_s": first[0], "planned_s": planned, "rows_per_s": rows / took}


def wait_for_executors(spark: "SparkSession", number: int) -> None:
    context = spark.sparkContext._jsc.sc()
    deadline = time.monotonic() + 120
    while context.getExecutorMemoryStatus().size() <= number:  # the driver is one of them
        if time.monotonic() > deadline:
            raise RuntimeError(f"expected {number} executors within 120 s")
        time.sleep(0.1)


def fold_by_duckdb(history: str, rows: int) -> Figures:
    import duckdb

    from holdfast.spark.ranges import History

    memory = Memory()
    files = list(History(history).holding(0, rows + 1))
    query = DUCKDB_FOLD.format(files=files, at=_then(rows).isoformat())
    connection = duckdb.connect()
    took, cpu = costs(lambda: connection.execute(f"CREATE TABLE retained AS {query}"))
    return {"seconds": took, "cpu_s": cpu, **memory.stop()}


def _then(rows: int) -> datetime:
    """When the last row was written: some have expired by then, most have not."""
    from spark_history import FIRST_US, STEP_US

    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=FIRST_US + rows * STEP_US)


def keep_tables(history: str, tables: str, rows: int) -> Figures:
    """Every table from the first row to the last, in batches of the default size: what one run does."""
    from holdfast.spark.follow import Step
    from holdfast.spark.jobs.run import Runner
    from holdfast.spark.keeper import Keeper
    from holdfast.spark.tables import FOLLOWING

    memory = Memory()
    spent: dict[str, float] = {}
    later: list[tuple[str, float, int]] = []

    def note(step: Step) -> None:
        name = ", ".join(step.tables)
        if step.applied - step.rows > 1:
            later.append((name, step.seconds, step.rows))
        spent[name] = spent.get(name, 0.0) + step.seconds

    with session(memory=RUN_MEMORY) as spark:
        keeper = Keeper(spark, history, tables)
        took, cpu = costs(Runner(keeper, max_offsets=max(rows // 4, 1), report=note).once)
        keeper.close()
    # the first batch makes the tables; the rate that lasts is that of the batches after it
    moved = sum(taken for name, _, taken in later if FOLLOWING[0] in name)
    lasting = moved / sum(passed for _, passed, _ in later) if later else rows / took
    return {
        "seconds": took,
        "cpu_s": cpu,
        "rows_per_s": rows / took,
        "lasting_rows_per_s": lasting,
        **memory.stop(),
        **{f"{name}_s": value for name, value in spent.items()},
    }


def past_from_intervals(history: str, tables: str, rows: int) -> Figures:
    """The whole retained set of some moments, and a part of it as people ask for it, after the session is up."""
    from holdfast.spark.jobs.past import retained_at
    from holdfast.spark.ranges import History

    table = History(history)
    whole, part, by_offset = [], [], []
    with session() as spark:

        def whole_set(at: datetime | int) -> None:
            drain(retained_at(spark, table, tables, at).rows)

        def some_of_it(at: datetime | int) -> None:
            retained_at(spark, table, tables, at, "site/7/line/3/#").rows.collect()

        for share in (0.95, 0.2, 0.4, 0.6, 0.8, 1.0):
            moment = _then(int(rows * share))
            whole.append(seconds(partial(whole_set, moment)))
            part.append(seconds(partial(some_of_it, moment)))
            last = int(rows * share)
            by_offset.append(seconds(partial(whole_set, last)))
            assert retained_at(spark, table, tables, moment).how == "intervals"
        replay = seconds(lambda: drain(retained_at(spark, table, tables, _then(rows // 2), replay=True).rows))
    return {
        "first_s": whole[0],
        "whole_s": statistics.median(whole[1:]),
        "by_offset_s": statistics.median(by_offset[1:]),
        "filter_s": statistics.median(part[1:]),
        "replay_s": replay,
    }


def read_by_source(history: str, rows: int) -> Figures:
    """The source, the scan and Spark's own reader, in turns, on the same files, all columns."""
    from holdfast.history.schema import COLUMNS
    from holdfast.spark.ranges import History
    from holdfast.spark.scan import read_history

    files = History(history).holding(0, rows + 1)
    schema = ", ".join(f"{name} {kind}" for name, kind in COLUMNS)
    with session() as spark:
        frames = {
            "parquet": spark.read.schema(schema).parquet(*files),
            "source": spark.read.format("holdfast").option("endingOffsets", rows + 1).load(history),
            "scan": read_history(spark, history, endingOffsets=rows + 1),
        }
        tries = [{name: costs(partial(drain, frame)) for name, frame in frames.items()} for _ in range(6)]
    found: Figures = {}
    for name in frames:
        # the first of each compiled the plan, and the compiler of the JVM goes on through the second
        found[f"{name}_s"] = statistics.median(one[name][0] for one in tries[2:])
        found[f"{name}_cpu_s"] = statistics.median(one[name][1] for one in tries[2:])
    for name in ("source", "scan"):
        found[f"{name}_share"] = found["parquet_s"] / found[f"{name}_s"]
        found[f"{name}_cpu_share"] = found["parquet_cpu_s"] / found[f"{name}_cpu_s"]
    return {**found, "rows_per_s": rows / found["source_s"]}
