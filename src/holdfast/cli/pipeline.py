"""`holdfast pipeline`: history folded by Spark into tables, answers, an audit and a report."""

import json
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.options import Config
from holdfast.cli.pipeline_declared import check, replay
from holdfast.cli.pipeline_display import (
    print_differences,
    print_plan,
    print_retained,
    print_stats,
    print_step,
    shown,
    spark_work,
)
from holdfast.cli.pipeline_setup import (
    DEFAULT_MASTER,
    DEFAULT_MEMORY,
    RUN_MEMORY,
    AsJson,
    Data,
    Declared,
    Filter,
    History,
    Master,
    Memory,
    Tables,
    Verbose,
    declarations_of,
    find_locations,
    open_history,
    open_tables,
    parse_at,
    session,
)
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast.spark.follow import Step
    from holdfast.spark.jobs.audit import Audit
    from holdfast.spark.jobs.restore import Restore
    from holdfast.spark.mqtt.connection import BrokerOptions

app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")

At = Annotated[
    str | None,
    typer.Option("--at", metavar="TIME|OFFSET", help="A moment (ISO 8601, UTC unless it says otherwise) or an offset."),
]
User = Annotated[str | None, typer.Option("--user", help="User name at the broker.")]
Password = Annotated[str | None, typer.Option("--password", envvar="HOLDFAST_PASSWORD", help="Password at the broker.")]


@app.callback()
def pipeline() -> None:
    """
    Fold history with Spark: keep tables, ask for the past, prove, restore, report.

    Needs `pip install 'holdfast-mqtt[spark]'` and Java 17 or newer. Runs on this machine unless --master is given.

    Examples:

        holdfast pipeline run --once

        holdfast pipeline retained --at 2026-03-01T12:00:00Z --filter 'site/#'

        holdfast pipeline audit --live tcp://127.0.0.1:1883

        holdfast pipeline report --out report.html
    """


@app.command()
def run(
    once: Annotated[bool, typer.Option("--once", help="Stop when the tables have what history has now.")] = False,
    trigger: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks at history.")] = 1.0,
    statistics: Annotated[float, typer.Option(min=1, help="Seconds between two updates of the statistics.")] = 10.0,
    max_offsets: Annotated[int, typer.Option(min=1, help="Rows of history in one batch at most.")] = 5_000_000,
    devices: Annotated[
        str | None, typer.Option(help="Topic template of a device, instead of `pipeline.devices` of the configuration.")
    ] = None,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Go on where retention has passed rows that were not read yet.")
    ] = False,
    ui: Annotated[
        int | None, typer.Option(min=1, max=65535, metavar="PORT", help="Serve Spark's own pages on this port.")
    ] = None,
    declared: Declared = None,
    history: History = None,
    tables: Tables = None,
    data: Data = None,
    config: Config = None,
    master: Master = DEFAULT_MASTER,
    memory: Memory = RUN_MEMORY,
    verbose: Verbose = False,
) -> None:
    """
    Keep the tables current from history, each row exactly once.

    Makes and updates `retained`, `retained_intervals`, `topic_stats`, `device_stats`, `traffic` and `hygiene`, and with
    `--declared` tables of your own. It may be stopped or killed at any moment and goes on where it was. It runs as
    queries of Structured Streaming: `--ui 4040` serves Spark's own pages about them, on this machine only unless
    --master is elsewhere.

    Examples:

        holdfast pipeline run

        holdfast pipeline run --once --history /var/lib/holdfast/history --tables /srv/tables

        holdfast pipeline run --declared pipeline.toml

        holdfast pipeline run --master spark://cluster:7077 --devices 'plant/{plant}/{device}/#'
    """
    from holdfast.spark.jobs.run import Runner

    where = find_locations(history, tables, data, config, devices=devices, declared=declared)
    declarations = declarations_of(where.declared)
    open_history(where, counts=True)
    pages = {} if ui is None else {"spark.ui.enabled": "true", "spark.ui.port": str(ui)}
    with session(master, memory, verbose, False, pages) as spark:
        if ui is not None and not master.startswith("sc://"):
            print(f"Spark's own pages: {spark.sparkContext.uiWebUrl}", flush=True)
        keeper = open_tables(spark, where, declarations, accept_loss=accept_loss)
        try:
            behind = sum(keeper.behind(name) for name in keeper.following)
            if once:
                with shown("tables", behind) as meter:
                    moved: list[int] = []

                    def note(step: "Step") -> None:
                        moved.append(step.rows * len(step.tables))
                        meter.set(sum(moved))
                        print_step(step)

                    runner = Runner(keeper, max_offsets=max_offsets, report=note)
                    _stop_on_signals(runner)
                    runner.once()
                print(f"tables in {where.tables} have come to offset {keeper.history.end - 1:,}")
            else:
                print(f"keeping tables in {where.tables} from {keeper.history.location}; Ctrl-C stops", flush=True)
                runner = Runner(
                    keeper, max_offsets=max_offsets, trigger_s=trigger, statistics_s=statistics, report=print_step
                )
                _stop_on_signals(runner)
                runner.forever()
                print("stopped")
        finally:
            keeper.close()


def _stop_on_signals(runner: Any) -> None:
    """Finish the batch in hand, then stop; a second Ctrl-C is for the impatient."""

    def stop(number: int, _frame: object) -> None:
        runner.stop()
        signal.signal(number, signal.SIG_DFL)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)


@app.command()
def retained(
    at: At = None,
    filter: Filter = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write to this file instead: .jsonl, or .parquet (a folder).")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Rows to print at most.")] = 50,
    replay: Annotated[bool, typer.Option("--replay", help="Replay history even where intervals could answer.")] = False,
    as_json: AsJson = False,
    history: History = None,
    tables: Tables = None,
    data: Data = None,
    config: Config = None,
    master: Master = DEFAULT_MASTER,
    memory: Memory = DEFAULT_MEMORY,
    verbose: Verbose = False,
) -> None:
    """
    Print or write the retained set as it was at a moment or after an offset.

    Answers from the table `retained_intervals` where it reaches, by replay of history otherwise: the same answer.

    Examples:

        holdfast pipeline retained --at 2026-03-01T12:00:00Z --filter 'site/+/line/3/#'

        holdfast pipeline retained --at 1200345 --out set.jsonl
    """
    from holdfast.spark.failure import check_whole, retry_on_vacuumed_files
    from holdfast.spark.jobs.output import write_jsonl, write_parquet
    from holdfast.spark.jobs.past import retained_at

    where = find_locations(history, tables, data, config)
    if out is not None and out.suffix not in (".jsonl", ".parquet"):
        raise UsageError(f"expected --out to end in .jsonl or .parquet, got {str(out)!r}")
    moment = parse_at(at)
    table = open_history(where, whole=replay)
    with session(master, memory, verbose, as_json) as spark, spark_work(spark, "retained set", table.rows):

        def work() -> tuple[list[dict[str, Any]], int]:
            past = retained_at(spark, table, where.tables, moment, filter, replay=replay)
            if past.how == "replay":
                check_whole(table)
            rows = past.rows.orderBy("topic")
            if out is not None:
                return [], write_jsonl(rows, out) if out.suffix == ".jsonl" else write_parquet(rows, out)
            first = [row.asDict(recursive=True) for row in rows.limit(limit + 1).collect()]
            return first, len(first) if len(first) <= limit else rows.count()

        found, total = retry_on_vacuumed_files(table, work)
    if out is not None:
        print(f"{total:,} retained messages written to {out}")
        return
    print_retained(found[:limit], total, as_json)


def _link(url: str, user: str | None, password: str | None) -> "BrokerOptions":
    from holdfast.spark.mqtt.connection import BROKER_OPTIONS, BrokerOptions
    from holdfast.spark.options import Options

    return BrokerOptions(Options(_link_options(url, user, password), BROKER_OPTIONS, "mqtt"))


def _link_options(url: str, user: str | None, password: str | None) -> dict[str, str]:
    given = {"brokerUrl": url, "username": user, "password": password}
    return {name: value for name, value in given.items() if value is not None}


@app.command()
def audit(
    live: Annotated[
        str | None, typer.Option("--live", metavar="URL", help="A running broker, such as tcp://127.0.0.1:1883.")
    ] = None,
    filter: Filter = None,
    user: User = None,
    password: Password = None,
    limit: Annotated[int, typer.Option(min=1, help="Differences to print at most.")] = 50,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for history to catch up.")] = 60.0,
    as_json: AsJson = False,
    history: History = None,
    tables: Tables = None,
    data: Data = None,
    config: Config = None,
    master: Master = DEFAULT_MASTER,
    memory: Memory = DEFAULT_MEMORY,
    verbose: Verbose = False,
) -> None:
    """
    Prove that Spark's fold of history and the broker's retained set are the same; exit code 0 only when they are.

    With --live the running broker is read, as of one offset although it goes on changing. Without, the table `retained`
    is compared with a fold of all of history.

    Examples:

        holdfast pipeline audit --live tcp://127.0.0.1:1883

        holdfast pipeline audit --filter 'site/#' --live tcp://broker:1883 --user audit
    """
    from holdfast.spark.delta import Table
    from holdfast.spark.failure import retry_on_vacuumed_files
    from holdfast.spark.jobs.audit import audit_live, audit_table
    from holdfast.spark.tables import RETAINED_TABLE

    where = find_locations(history, tables, data, config)
    options = _link(live, user, password) if live is not None else None
    table = open_history(where)
    with session(master, memory, verbose, as_json) as spark, spark_work(spark, "audit", table.rows):

        def work() -> tuple["Audit", list[dict[str, Any]], int]:
            if options is not None:
                result = audit_live(spark, table, options, filter or "#", wait)
            else:
                kept = Table(f"{where.tables}/retained", RETAINED_TABLE)
                if not kept.applied:
                    raise UsageError(
                        f"there is no table in {where.tables} yet: `holdfast pipeline run --once` makes it"
                    )
                result = audit_table(spark, table, kept.frame(spark), kept.applied)
            first = [row.asDict() for row in result.differences.orderBy("topic").limit(limit).collect()]
            return result, first, len(first) if len(first) < limit else result.differences.count()

        result, rows, count = retry_on_vacuumed_files(table, work)
    other = f"the broker at {live}" if live else "the table `retained`"
    if as_json:
        report = {"version": result.version, "topics": result.topics, "differences": count, "older": result.older}
        print(json.dumps({**report, "rows": rows}, ensure_ascii=False))
    else:
        print_differences(rows, count)
        note = f", {result.older:,} older than history" if result.older else ""
        verdict = "all the same" if count == 0 else f"{count:,} differences"
        print(f"{result.topics:,} topics as of offset {result.version:,}: history and {other}: {verdict}{note}")
    if count:
        raise typer.Exit(1)


@app.command()
def restore(
    at: Annotated[str, typer.Option("--at", metavar="TIME|OFFSET", help="The moment or offset to go back to.")],
    to: Annotated[str, typer.Option("--to", metavar="URL", help="The broker to publish to, tcp://host:port.")],
    filter: Filter = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be published, publish nothing.")] = False,
    clear_others: Annotated[
        bool, typer.Option("--clear-others", help="Also clear topics of the filter that were not retained then.")
    ] = False,
    user: User = None,
    password: Password = None,
    limit: Annotated[int, typer.Option(min=1, help="Topics to list in a dry run.")] = 20,
    history: History = None,
    tables: Tables = None,
    data: Data = None,
    config: Config = None,
    master: Master = DEFAULT_MASTER,
    memory: Memory = DEFAULT_MEMORY,
    verbose: Verbose = False,
) -> None:
    """
    Put the retained set of a past moment back, through the broker: undo a mass delete.

    Only what differs from the present is published. What would have expired by now is not put back.

    Examples:

        holdfast pipeline restore --at 2026-03-01T12:00:00Z --filter 'site/#' --to tcp://127.0.0.1:1883 --dry-run

        holdfast pipeline restore --at 1200345 --filter 'site/3/#' --to tcp://127.0.0.1:1883
    """
    from holdfast.spark.failure import check_whole, retry_on_vacuumed_files
    from holdfast.spark.jobs.past import retained_at
    from holdfast.spark.jobs.restore import plan_restore, put_back

    where = find_locations(history, tables, data, config)
    _link(to, user, password)  # a bad address is said before any work
    table = open_history(where, whole=False)
    moment = parse_at(at)
    with session(master, memory, verbose) as spark, spark_work(spark, "restore", table.rows):

        def work() -> "Restore":
            past = retained_at(spark, table, where.tables, moment, filter)
            present = retained_at(spark, table, where.tables, None, filter)
            if "replay" in (past.how, present.how):
                check_whole(table)
            return plan_restore(past.rows, present.rows, datetime.now(UTC), clear_others=clear_others)

        plan = retry_on_vacuumed_files(table, work)
        if dry_run:
            sample = [row.asDict() for row in plan.rows.orderBy("topic").limit(limit).collect()]
        elif plan.sets or plan.clears:
            put_back(plan, _link_options(to, user, password))
    what = f"{plan.sets:,} messages and {plan.clears:,} clears, {plan.same:,} topics are as they were"
    if dry_run:
        print_plan(sample)
        print(f"would publish {what}")
    else:
        print(f"published {what}")


@app.command()
def report(
    out: Annotated[Path, typer.Option("--out", help="The HTML file to write.")] = Path("report.html"),
    update: Annotated[bool, typer.Option(help="Bring the tables up to date first.")] = True,
    devices: Annotated[str | None, typer.Option(help="Topic template of a device.")] = None,
    as_json: AsJson = False,
    history: History = None,
    tables: Tables = None,
    data: Data = None,
    config: Config = None,
    master: Master = DEFAULT_MASTER,
    memory: Memory = DEFAULT_MEMORY,
    verbose: Verbose = False,
) -> None:
    """
    Make one HTML file with charts that works offline and needs no knowledge of MQTT.

    Examples:

        holdfast pipeline report --out report.html

        holdfast pipeline report --no-update --json
    """
    from holdfast.spark.jobs.output import write_text
    from holdfast.spark.jobs.page import build_page
    from holdfast.spark.jobs.report import collect, describe
    from holdfast.spark.jobs.run import Runner
    from holdfast.spark.keeper import Keeper

    where = find_locations(history, tables, data, config)
    open_history(where, whole=update, counts=True)
    with session(master, memory, verbose, as_json) as spark:
        keeper = Keeper(spark, where.history, where.tables, template=devices or where.devices)
        try:
            with spark_work(spark, "report", keeper.history.rows):
                if update:
                    Runner(keeper).once()
                found = collect(keeper, datetime.now(UTC))
        finally:
            keeper.close()
    write_text(out, build_page(found))
    if as_json:
        print(json.dumps(describe(found), ensure_ascii=False))
    else:
        print(f"{found.messages:,} messages on {found.topics:,} topics, {found.retained:,} retained: open {out}")


@app.command()
def stats(
    max_retained_messages: Annotated[
        int | None, typer.Option(min=0, help="What if this were the limit; 0: none.")
    ] = None,
    max_payload_size: Annotated[int | None, typer.Option(min=0, help="What if this were the limit in bytes.")] = None,
    expiry_interval: Annotated[
        int | None, typer.Option(min=0, help="What if messages expired after so many s.")
    ] = None,
    filter: Filter = None,
    as_json: AsJson = False,
    history: History = None,
    tables: Tables = None,
    data: Data = None,
    config: Config = None,
    master: Master = DEFAULT_MASTER,
    memory: Memory = DEFAULT_MEMORY,
    verbose: Verbose = False,
) -> None:
    """
    Count what is in history and how it lies there; and what would be retained, and refused, under other limits.

    Lists the tables that `holdfast pipeline run` keeps, declared ones too: their rows, files and sizes, files that
    others have replaced and that are not deleted yet, and what the last compaction gained.

    Examples:

        holdfast pipeline stats

        holdfast pipeline stats --tables /srv/tables --json

        holdfast pipeline stats --max-retained-messages 100000 --max-payload-size 4096 --expiry-interval 86400
    """
    from holdfast.history.layout import layout
    from holdfast.history.place import Place
    from holdfast.spark.delta import layouts
    from holdfast.spark.failure import retry_on_vacuumed_files
    from holdfast.spark.fold import matching
    from holdfast.spark.jobs.stats import Limits, summarise, what_if
    from holdfast.spark.keeper import history_frame

    where = find_locations(history, tables, data, config)
    limits = Limits(max_retained_messages or 0, max_payload_size or 0, expiry_interval or 0)
    asked = (max_retained_messages, max_payload_size, expiry_interval) != (None, None, None)
    now = datetime.now(UTC)
    table = open_history(where, counts=True)
    kept = layouts(where.tables)
    with session(master, memory, verbose, as_json) as spark:

        def work() -> dict[str, Any]:
            rows = matching(history_frame(spark, table), filter)
            found = summarise(rows, now)
            if asked:
                outcome = what_if(rows, limits, int(now.timestamp() * 1_000_000))
                found["what_if"] = {**outcome._asdict(), "limits": limits._asdict()}
            return found

        with spark_work(spark, "statistics", table.rows):
            found = retry_on_vacuumed_files(table, work)
    found["table"] = layout(Place(table.location))
    found["tables"] = kept
    if as_json:
        print(json.dumps(found, ensure_ascii=False))
        return
    print_stats(found)


app.command()(check)
app.command()(replay)


if __name__ == "__main__":
    sys.exit(app())
