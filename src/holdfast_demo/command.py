"""`holdfast demo`: the whole story on one machine in about a minute, and what it proves.

The chapters stand in `Story`, in their order. Their broker is a process of its own, which can be killed and started
again on the same ports.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, NoReturn
from urllib.parse import urlsplit

import typer
from rich.console import Console

from holdfast.cli.pipeline_display import print_differences, shown, spark_work
from holdfast.cli.pipeline_setup import spark_in_one_sentence
from holdfast.errors import UsageError
from holdfast_demo.analyst import Agreement, Analyst, check_spark, compare
from holdfast_demo.fleet import CONFIG, HEARTBEAT_S, Fleet

INTERRUPTED: Final = 130
DIFFERENT: Final = 1
CLEARED_SITE: Final = 2
PAUSE_S: Final = 0.1  # between a moment that is asked for later and the next publish
START_S: Final = 30.0
STOP_S: Final = 15.0
SCHEMES: Final = ("tcp", "udp", "http")


def demo(
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="A new or empty folder to work in. Default: a temporary one."),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the broker running at the end, until Ctrl-C.")] = False,
    rounds: Annotated[int, typer.Option(min=1, max=100_000, help="How long the fleet works.")] = 50,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Show what Spark says.")] = False,
) -> None:
    """
    Show everything in about a minute: a broker, a fleet, a crash, an accident, and Spark to prove what is true.

    Starts a broker on free ports of this machine and lets a fleet speak MQTT 3.1.1, 5.0 and MQTT-SN 1.2 and 2.0 to it:
    values that are set, replaced, cleared and expire, and some that a limit refuses. Kills the broker with SIGKILL,
    starts it again, clears a whole site by accident and puts it back from history. Then Spark makes its tables,
    compares them with the running broker, looks into the past and writes a report.

    Exit code 0 only when everything agrees. Needs `pip install 'holdfast-mqtt[spark,ui]'` and Java 17 or newer.

    Examples:

        holdfast demo

        holdfast demo --keep

        holdfast demo --data ./demo --rounds 500
    """
    check_spark()
    folder = _folder(data)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    broker = DemoBroker(folder / "holdfast.toml", folder / "data", folder / "broker.log")
    story = Story(folder, broker, rounds)
    analyst = Analyst(folder / "data", verbose)
    try:
        with _one_sentence(verbose):
            story.tell(analyst)
        story.close(keep)
        if keep:
            analyst.close()
            broker.wait()
            raise UsageError(f"the broker has ended by itself; what it said is in {broker.log}")
    except KeyboardInterrupt:
        print(f"\nstopping; what was made is in {folder}", flush=True)
        if not (keep and story.told):
            raise typer.Exit(INTERRUPTED) from None
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # what was started is ended, however impatient the user
        broker.stop()
        analyst.close()
    if not story.proven:
        raise typer.Exit(DIFFERENT)


def _folder(given: Path | None) -> Path:
    try:
        if given is None:
            return Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
        given.mkdir(parents=True, exist_ok=True)
        if any(given.iterdir()):
            raise UsageError(f"expected {given} to be a new or empty folder, got one with files in it")
    except OSError as error:
        raise UsageError(f"cannot work in {error.filename}: {error.strerror}") from None
    return given.absolute()


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


@contextmanager
def _one_sentence(verbose: bool) -> Iterator[None]:
    """What goes wrong is said in one sentence, as by the commands that are shown here."""
    try:
        with spark_in_one_sentence(verbose):
            yield
    except OSError as error:
        raise UsageError(f"the demo cannot go on: {str(error) or type(error).__name__}") from None


class DemoBroker:
    """A running `holdfast serve`. What it says goes to a file beside its data."""

    def __init__(self, config: Path, data: Path, log: Path) -> None:
        self.config, self.data, self.log = config, data, log
        self.urls = {scheme: f"{scheme}://127.0.0.1:0" for scheme in SCHEMES}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return 0 if self._process is None else self._process.pid

    def port(self, scheme: str) -> int:
        return urlsplit(self.urls[scheme]).port or 0

    def start(self) -> None:
        """Start it and wait until it listens. The first start lets the system pick ports, the next ones keep them."""
        command = [sys.executable, "-m", "holdfast", "serve", "--config", str(self.config), "--data", str(self.data)]
        for url in self.urls.values():
            command += ["--listen", url]
        # settings in the environment of the user are not meant for the demo
        kept = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
        if "HOLDFAST_PURE" in os.environ:
            kept["HOLDFAST_PURE"] = os.environ["HOLDFAST_PURE"]
        kept["PYTHONUNBUFFERED"] = "1"
        begin = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as output:
            # in a session of its own: Ctrl-C is for the demo, which then ends the broker in good order
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=kept, start_new_session=True
            )
        self._wait_until_listening(begin)

    def _wait_until_listening(self, begin: int) -> None:
        deadline = time.monotonic() + START_S
        while True:
            lines = self.log.read_bytes()[begin:].decode(errors="replace").splitlines()
            found = [line.partition("listening ")[2].split()[0] for line in lines if "listening " in line]
            urls = {urlsplit(url).scheme: url for url in found if "://" in url}
            if all(scheme in urls for scheme in SCHEMES):
                self.urls = {scheme: urls[scheme] for scheme in SCHEMES}
                return
            ended = self._process is None or self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                self.stop()
                said = lines[-1] if lines else "nothing"
                what = "ended at once" if ended else f"did not listen within {START_S:g} s"
                raise UsageError(f"the demo's broker {what}; the last it said was: {said}")
            time.sleep(0.05)

    def kill(self) -> None:
        """As a power cut would: no warning, nothing tidied up."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """As an operator would; safe to repeat."""
        self._end(signal.SIGTERM)

    def wait(self) -> int:
        """Until it ends by itself."""
        return 0 if self._process is None else self._process.wait()

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(number)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Story:
    """The chapters in their order. Each says what it does before and what came of it after."""

    def __init__(self, folder: Path, broker: DemoBroker, rounds: int) -> None:
        self.folder, self.broker, self.rounds = folder, broker, rounds
        self.console = Console(highlight=False)
        self.begun = time.monotonic()
        self.checks: list[tuple[bool, str]] = []
        self.told = False

    @property
    def proven(self) -> bool:
        return self.told and all(good for good, _ in self.checks)

    def tell(self, analyst: Analyst) -> None:
        self._start_broker()
        early, before = self._fleet()
        self._crash()
        self._undo(analyst, before)
        self._tables(analyst)
        self._audit(analyst)
        self._past(analyst, early)
        self._report(analyst)
        self.told = True

    def _start_broker(self) -> None:
        (self.folder / "holdfast.toml").write_text(CONFIG)
        with self._chapter("broker: on free ports, with history") as say:
            self.broker.start()
            urls = self.broker.urls
            say(f"MQTT {urls['tcp']}, MQTT-SN {urls['udp']}, dashboard {urls['http']}")

    def _fleet(self) -> "tuple[Moment, Moment]":
        broker = self.broker
        title = "fleet: 120 machines on MQTT 3.1.1 and 5.0, 12 sensors on MQTT-SN 1.2 and 2.0"
        with self._chapter(title) as say, shown("messages", 1) as meter:
            self.fleet = Fleet(broker.port("tcp"), broker.port("udp"), self.rounds, meter.set)
            meter.total = self.fleet.planned
            asyncio.run(self.fleet.start_shift())
            early = self._moment()
            asyncio.run(self.fleet.work())
            before = self._moment()
            ledger = self.fleet.ledger
            refused = sum(count for outcome, count in ledger.outcomes.items() if outcome.startswith("refused"))
            say(f"{ledger.sent:,} messages, everything at QoS 1 and 2 acknowledged")
            say(f"{ledger.outcomes['set']:,} of them retained, {ledger.expiring} for {HEARTBEAT_S} s only")
            say(f"{refused} more were to be retained, and a limit or a policy refused it")
        return early, before

    def _moment(self) -> "Moment":
        """Now, with what the fleet thinks is retained, and nothing published shortly before or after."""
        time.sleep(PAUSE_S)
        at = datetime.now(UTC)
        expected, near = self.fleet.ledger.retained(at)
        time.sleep(PAUSE_S)
        return Moment(at, expected, near)

    def _crash(self) -> None:
        with self._chapter("crash: kill -9 of the broker, then an accident") as say:
            self.broker.kill()
            self.broker.start()
            lost = asyncio.run(self.fleet.clear_site(CLEARED_SITE))
            say("the broker is back on its ports")
            say(f"a script with a wrong variable clears {lost} retained messages: all of site/{CLEARED_SITE}")

    def _undo(self, analyst: Analyst, before: "Moment") -> None:
        ledger = self.fleet.ledger
        site = f"site/{CLEARED_SITE}/#"
        with self._chapter(f"undo: pipeline restore --filter '{site}' --at {_iso(before.at)}") as say:
            rows = analyst.wait_for_rows(ledger.sent)
            with spark_work(analyst.spark, "undo", rows):
                published = analyst.do(analyst.restore, before.at, site, self.broker.urls["tcp"])
            for topic, (payload, until) in published.items():
                left_s = None if until is None else round(until.timestamp() - time.time())
                ledger.note("5.0", topic, payload, True, left_s)
            say(f"{len(published)} messages are back")

    def _tables(self, analyst: Analyst) -> None:
        from holdfast.spark.tables import FOLLOWING

        ledger = self.fleet.ledger
        with self._chapter("tables: pipeline run --once") as say:
            rows = analyst.wait_for_rows(ledger.sent)
            with shown("tables", len(FOLLOWING) * rows) as meter:
                number = analyst.do(analyst.run, lambda done: meter.set(done * rows))
            outcomes, protocols = analyst.do(analyst.counted)
            say(f"{rows:,} rows of history, folded into {number} tables")
        # a datagram that was sent again may have been taken twice: that is what QoS 1 promises
        exact = rows == ledger.sent and outcomes == ledger.outcomes and protocols == ledger.protocols
        sent, found = _counts(ledger.outcomes + ledger.protocols), _counts(outcomes + protocols)
        self._check(
            exact or 0 < rows - ledger.sent <= ledger.resent,
            f"{rows:,} publishes were sent and {rows:,} are in history, the same by protocol and by outcome: the crash "
            "lost none and doubled none"
            if exact
            else f"{ledger.sent:,} publishes were sent, {ledger.resent} of them again, and {rows:,} are in history: "
            f"sent {sent}; found {found}",
        )
        reasons = {name: number for name, number in outcomes.items() if name.startswith("refused")}
        self._check(
            len(reasons) == 3, f"{sum(reasons.values())} refusals are on record with their reason: {_counts(reasons)}"
        )

    def _audit(self, analyst: Analyst) -> None:
        tcp = self.broker.urls["tcp"]
        with self._chapter(f"audit: pipeline audit --live {tcp}") as say:
            with spark_work(analyst.spark, "audit", self.fleet.ledger.sent):
                found, rows = analyst.do(analyst.audit, tcp)
            expected, near = self.fleet.ledger.retained(datetime.now(UTC))
            table = compare(expected, analyst.do(analyst.retained, None), near)
            sent = compare(expected, asyncio.run(self.fleet.subscribe_as_newcomer()), near)
            say(f"{found.topics} topics, {found.wrong} differences")
        print_differences(rows[:20], len(rows))
        self._check(
            found.wrong == 0 and found.topics > 0,
            f"broker and Spark hold the same {found.topics} retained messages: topic, payload, QoS, properties, expiry "
            f"({found.wrong} differences)",
        )
        wrong = sent.wrong + table.wrong
        self._check(
            wrong == 0 and sent.topics > 0,
            f"the fleet's own books name the same {len(expected)} as a new subscriber is sent and as the table "
            f"`retained` has ({wrong} differences)",
        )

    def _past(self, analyst: Analyst, early: "Moment") -> None:
        with self._chapter(f"past: pipeline retained --at {_iso(early.at)}") as say:
            begun = time.monotonic()
            then = analyst.do(analyst.retained, early.at)
            seconds = time.monotonic() - begun
            topic = f"site/{CLEARED_SITE}/line/1/machine-1/temperature"
            now = self.fleet.ledger.held[topic][0].decode()
            say(f"{topic} was {then.get(topic, b'-').decode()} then and is {now} now")
        found: Agreement = compare(early.expected, then, early.near)
        gone = len(then.keys() - self.fleet.ledger.retained(datetime.now(UTC))[0].keys())
        self._check(
            found.wrong == 0 and found.topics > 0,
            f"the {found.topics} retained messages of {early.at:%H:%M:%S} are what the fleet had set by then, {gone} "
            f"that have expired since among them ({found.wrong} differences, asked in {seconds:.1f} s)",
        )

    def _report(self, analyst: Analyst) -> None:
        self.report = self.folder / "report.html"
        with self._chapter("report: pipeline report") as say:
            with spark_work(analyst.spark, "report", self.fleet.ledger.sent):
                size = analyst.do(analyst.report, self.report)
            say(f"{size / 1e6:.1f} MB of HTML that works offline")

    def close(self, keep: bool) -> None:
        """What was proven, and where to look."""
        seconds = time.monotonic() - self.begun
        self.console.print()
        self.console.print(f"[bold]What was proven[/], in {seconds:.0f} s")
        for good, text in self.checks:
            self.console.print(f"  {'[green]✓[/]' if good else '[red]✗[/]'} {text}", soft_wrap=True)
        self.console.print("[bold]Where to look[/]")
        self._print(f"  report     {self.report}")
        if keep:
            self._print(f"  dashboard  {self.broker.urls['http']}")
        self._print(f"  history    {self.folder / 'data' / 'history'}, tables in {self.folder / 'data' / 'pipeline'}")
        self.console.print("[bold]What to try[/]")
        for command in self._commands(keep):
            self._print(f"  {_program()} {command}")
        if keep:
            self.console.print("The broker runs until Ctrl-C.")
        sys.stdout.flush()

    def _commands(self, keep: bool) -> list[str]:
        data, tcp = self.folder / "data", self.broker.urls["tcp"]
        asking = [
            f"pipeline retained --data {data} --filter 'site/{CLEARED_SITE}/+/+/state'",
            f"pipeline stats --data {data} --max-retained-messages 100",
        ]
        if not keep:
            return [f"serve --config {self.folder / 'holdfast.toml'} --data {data}", *asking]
        return [
            f"sub -p {self.broker.port('tcp')} -t 'site/{CLEARED_SITE}/#' -v",
            f"pub -p {self.broker.port('tcp')} -t site/9/line/1/new/state -m hello -r",
            f"pipeline audit --data {data} --live {tcp}",
            *asking,
        ]

    @contextmanager
    def _chapter(self, title: str) -> Iterator[Callable[[str], None]]:
        """Say what begins; say what came of it, and how long it took, when it is over."""
        self.console.print(f"[bold]{title}[/]", soft_wrap=True)
        begun = time.monotonic()
        results: list[str] = []
        yield results.append
        self._print(f"{time.monotonic() - begun:6.1f} s  " + "\n          ".join(results))

    def _print(self, text: str) -> None:
        self.console.print(text, soft_wrap=True, markup=False)

    def _check(self, good: bool, text: str) -> None:
        self.checks.append((good, text))


class Moment:
    """A time, and the retained set that the fleet expects for it."""

    def __init__(self, at: datetime, expected: dict[str, bytes], near: set[str]) -> None:
        self.at, self.expected, self.near = at, expected, near


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _counts(found: dict[str, int]) -> str:
    return ", ".join(f"{number:,} {name.removeprefix('refused_')}" for name, number in sorted(found.items()))


def _program() -> str:
    """How to call this command from where the user is."""
    return "holdfast" if shutil.which("holdfast") else str(Path(sys.executable).with_name("holdfast"))
