"""What Spark does in the demo, all in one session: undo, tables, audit, the past, report. Answers are plain values."""

import os
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from holdfast.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.spark.follow import Step

Result = TypeVar("Result")

HISTORY_S: Final = 60.0
# One small run: the second compiler and a parallel collector cost more than they save.
JVM: Final = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


def check_spark() -> None:
    """Say what is missing before anything is started."""
    import holdfast.spark  # noqa: F401 - names the extra to install when its packages are not there
    from holdfast.spark.session import check_java

    check_java()


def start_spark(verbose: bool) -> "SparkSession":
    from holdfast.spark.session import start_session

    return start_session(f"local[{os.cpu_count() or 2}]", name="holdfast demo", verbose=verbose, settings=JVM)


class Agreement(NamedTuple):
    """Two sets of topics and payloads compared; `wrong` is what one has and the other has not, or has differently."""

    topics: int
    wrong: int


class Analyst:
    """History and tables of the demo, through one Spark session.

    The session starts in a thread of its own while others do something else, and stays there: which session is the
    active one is known to Spark by thread. So every job goes through `do`.
    """

    def __init__(self, data: Path, verbose: bool) -> None:
        self.history_path = str(data / "history")
        self.tables_path = str(data / "pipeline")
        self._keeper: Any = None
        self._thread = ThreadPoolExecutor(1, "spark")
        self._starting = self._thread.submit(start_spark, verbose)

    @property
    def spark(self) -> "SparkSession":
        return self._starting.result()

    def do(self, job: Callable[..., Result], *arguments: object) -> Result:
        self._starting.result()  # that Spark could not start is what there is to say then
        return self._thread.submit(job, *arguments).result()

    def close(self) -> None:
        """End Spark, also in the middle of a job."""
        with suppress(Exception):  # a session that could not start, or is gone already, needs no stop
            self._starting.result().stop()
        self._thread.shutdown(cancel_futures=True)
        if self._keeper is not None:
            self._keeper.close()

    def wait_for_rows(self, rows: int) -> int:
        """History is written behind the acknowledgement: wait until it has as many rows as were sent."""
        from holdfast.spark.ranges import History

        deadline = time.monotonic() + HISTORY_S
        while True:
            with suppress(UsageError):  # there is no table before the first commit
                found = History(self.history_path).rows
                if found >= rows:
                    return found
            if time.monotonic() > deadline:
                raise UsageError(f"expected {rows:,} rows of history within {HISTORY_S:g} s, see {self.history_path}")
            time.sleep(0.1)

    def restore(self, at: datetime, topic_filter: str, broker: str) -> dict[str, tuple[bytes, datetime | None]]:
        """Puts a past set back through the broker, and returns what was published."""
        from holdfast.spark.jobs.past import retained_at
        from holdfast.spark.jobs.restore import plan_restore, put_back
        from holdfast.spark.ranges import History

        history = History(self.history_path)
        past = retained_at(self.spark, history, None, at, topic_filter)
        present = retained_at(self.spark, history, None, None, topic_filter)
        plan = plan_restore(past.rows, present.rows, datetime.now(UTC))
        rows = plan.rows.select("topic", "payload", "expires_at").collect()
        published = {row.topic: (bytes(row.payload), row.expires_at) for row in rows}
        put_back(plan, {"brokerUrl": broker})
        return published

    def run(self, progress: Callable[[int], None]) -> int:
        """Does `pipeline run --once` and returns how many tables there are. `progress` hears how many are done."""
        from holdfast.spark.jobs.run import Runner
        from holdfast.spark.keeper import Keeper

        self._keeper = Keeper(self.spark, self.history_path, self.tables_path)
        done: list[str] = []

        def note(step: "Step") -> None:
            done.extend(step.tables)
            progress(len(done))

        Runner(self._keeper, report=note).once()
        return len(self._keeper.tables)

    def counted(self) -> tuple[Counter[str], Counter[str]]:
        """Rows by outcome and by protocol, from the table `traffic`."""
        outcomes: Counter[str] = Counter()
        protocols: Counter[str] = Counter()
        for row in self._keeper.tables["traffic"].frame(self.spark).collect():
            outcomes[row.outcome] += row.messages
            protocols[row.protocol] += row.messages
        return outcomes, protocols

    def audit(self, broker: str) -> tuple[Agreement, list[dict[str, Any]]]:
        """Does `pipeline audit --live` and returns its result, with the first differences if there are any."""
        from holdfast.spark.jobs.audit import audit_live
        from holdfast.spark.mqtt.connection import BROKER_OPTIONS, BrokerOptions
        from holdfast.spark.options import Options

        options = BrokerOptions(Options({"brokerUrl": broker}, BROKER_OPTIONS, "mqtt"))
        self._keeper.refresh()
        found = audit_live(self.spark, self._keeper.history, options)
        rows = [row.asDict() for row in found.differences.orderBy("topic").collect()]
        return Agreement(found.topics, len(rows)), rows

    def retained(self, at: datetime | None) -> dict[str, bytes]:
        """`pipeline retained --at`, from the table of intervals; without a moment, the table `retained` now."""
        from holdfast.spark.fold import not_expired
        from holdfast.spark.jobs.past import retained_at

        if at is None:
            return _by_topic(self._keeper.tables["retained"].frame(self.spark).where(not_expired()))
        return _by_topic(retained_at(self.spark, self._keeper.history, self.tables_path, at).rows)

    def report(self, out: Path) -> int:
        """Does `pipeline report` and returns the size of the file."""
        from holdfast.spark.jobs.output import write_text
        from holdfast.spark.jobs.page import build_page
        from holdfast.spark.jobs.report import collect

        write_text(out, build_page(collect(self._keeper, datetime.now(UTC))))
        return out.stat().st_size


def _by_topic(rows: "DataFrame") -> dict[str, bytes]:
    return {row.topic: bytes(row.payload) for row in rows.select("topic", "payload").collect()}


def compare(ours: dict[str, bytes], theirs: dict[str, bytes], ignored: set[str]) -> Agreement:
    topics = (ours.keys() | theirs.keys()) - ignored
    return Agreement(len(topics), sum(ours.get(topic) != theirs.get(topic) for topic in topics))
