"""`holdfast history`: erasing from the history. The process that writes it does the work; this one asks for it."""

import asyncio
import fcntl
import json
import os
import shlex
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.table import Table

from holdfast.cli.options import Config
from holdfast.cli.pipeline_setup import Data, Tables, find_locations
from holdfast.cli.retained_display import counted, escape, notes, out, progress
from holdfast.errors import StoreError, UsageError
from holdfast.history.erased import Selector
from holdfast.history.place import Place
from holdfast.service.requests import check_filter
from holdfast.storage import erasures
from holdfast.storage.folder import DataFolder

if TYPE_CHECKING:
    from holdfast.history.erase import Found

NOTHING_FOUND = 1
LISTED = 20
LOOK_EVERY_S = 0.2
BEGUN_AFTER_S = 60.0
JOURNAL_S = 60.0  # the state follows within a second, unless much waits for it
LOCK_NAME = "history.lock"
# How the command that removes retained messages is told which, by the kind of selector.
REMOVED_BY = {"topic": "", "user": "--publisher ", "client": "'#' --client-id "}

app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")


@app.callback()
def history() -> None:
    """
    Erase data from the history permanently.

    `holdfast retained history` and `at` show what is in it.

    Examples:

        holdfast history erase --user alice

        holdfast history erase --user alice --yes

        holdfast history erasures
    """


@dataclass(frozen=True)
class Outcome:
    """What was found or has gone: rows of the history, and of each table of the pipeline unless a run sees to that."""

    dry_run: bool
    selector: Selector
    upto: int
    rows: int
    in_force: int
    tables: dict[str, int] | None
    name: str | None = None
    in_journal: bool = False


@app.command()
def erase(
    topic: Annotated[
        str | None,
        typer.Option("--topic", metavar="FILTER", help="Erase what was published to topics matching this filter."),
    ] = None,
    user: Annotated[
        str | None, typer.Option("--user", metavar="NAME", help="Erase everything this user has published.")
    ] = None,
    client: Annotated[
        str | None,
        typer.Option("--client", metavar="ID", help="Erase everything the client with this id has published."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be erased; the default without --yes.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Erase it. This cannot be undone.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
    tables: Tables = None,
    data: Data = None,
    config: Config = None,
) -> None:
    """
    Erase rows from the history, its older versions and the pipeline's tables, and delete them from disk.

    Run it on the broker's machine as the broker's user; the broker may be running or stopped. A row without payload
    then records when, what and how many rows were erased: see `holdfast history erasures`. If an erased value replaced
    one by another publisher, an empty row without publisher stays in its place.

    Currently retained messages are not touched: delete them with `holdfast retained rm`, then erase again. Copies
    elsewhere are not touched either: backups, exports, messages queued for offline clients.

    If the command is interrupted, its request is kept and completed by the broker or by running the command again. The
    exit code is 0 if something was found or erased, 1 if nothing was or something failed, 2 for a usage error.

    Examples:

        holdfast history erase --user alice

        holdfast history erase --topic 'home/alice/#' --yes

        holdfast history erase --client phone-17 --data /var/lib/holdfast --yes
    """
    given = {"topic": topic, "user": user, "client": client}
    chosen = {kind: value for kind, value in given.items() if value is not None}
    if len(chosen) != 1 or not all(chosen.values()):
        raise typer.BadParameter("expected one of --topic FILTER, --user NAME and --client ID")
    if dry_run and yes:
        raise typer.BadParameter("expected --dry-run or --yes, got both")
    [(kind, value)] = chosen.items()
    if kind == "topic":
        check_filter(value)
    selector = Selector(kind, value)
    where = find_locations(None, tables, data, config)
    folder = folder_of(data, config)
    if not yes:
        upto, found = look(folder, selector)
        in_them = in_tables(where.tables, folder, selector, None)
        report(Outcome(True, selector, upto, found.rows.num_rows, len(found.in_force), in_them), as_json, found)
    done, in_journal = asyncio.run(carry_out(folder, erasures.ask(folder, kind, value, now_ms())))
    try:
        gone = in_tables(where.tables, folder, selector, done.name)
    except UsageError as error:
        raise UsageError(
            f"erased {done.rows} rows of the history, and none of the pipeline's tables: {error}"
        ) from None
    _, left = look(folder, selector)
    report(Outcome(False, selector, done.upto, done.rows, len(left.in_force), gone, done.name, in_journal), as_json)


@app.command("erasures")
def list_erasures(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")] = False,
    data: Data = None,
    config: Config = None,
) -> None:
    """
    List past erasures, as recorded in the history.

    The exit code is 1 if there are none.

    Examples:

        holdfast history erasures

        holdfast history erasures --json
    """
    from holdfast.history.reader import records
    from holdfast.history.table import load

    known = [erasure for _, erasure in records(load(folder_of(data, config).table))]
    if as_json:
        for erasure in known:
            print(json.dumps(asdict(erasure)))
    elif known:
        table = Table("when", "what", "rows", "up to offset", "name", box=None, pad_edge=False)
        for erasure in known:
            when = datetime.fromtimestamp(erasure.at_ms / 1000).strftime("%Y-%m-%d %H:%M:%S")
            numbers = (str(number) for number in (erasure.rows, erasure.upto))
            table.add_row(when, escape(str(erasure.selector)), *numbers, escape(erasure.name))
        out.print(table)
    end(0 if known else NOTHING_FOUND)


def folder_of(data: str | None, config: Path | None) -> DataFolder:
    folder = DataFolder(find_locations(None, None, data, config).data)
    if not folder.has_history():
        raise UsageError(f"there is no history in {folder.root}, expected the data folder of a broker: see --data")
    return folder


def look(folder: DataFolder, selector: Selector) -> tuple[int, "Found"]:
    """The last offset in the history, and what is there up to it."""
    from holdfast.history.erase import find
    from holdfast.history.table import last_offset, load

    with notes.status("looking through the history"):
        table = load(folder.table)
        return last_offset(table), find(table, selector, last_offset(table), now_ms())


async def carry_out(folder: DataFolder, request: erasures.Request) -> tuple[erasures.Request, bool]:
    """Has the history's writer do it: the running broker's, or one that is started for this, which runs until the
    journal has let go of the rows too. Returns what was done, and whether they are in the journal still.
    """
    from holdfast.server import open_offline

    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(open_offline(folder.root))
        except StoreError:
            if not is_locked(folder.root / "lock"):
                raise
        done = await done_of(folder, request.name)
        with notes.status("waiting until the journal has let go of them"):
            return done, not await within(JOURNAL_S, lambda: folder.journal_keeps_from() > done.upto)


async def done_of(folder: DataFolder, name: str) -> erasures.Request:
    """Waits until a request is done, and shows how far it is."""
    patience = time.monotonic() + BEGUN_AFTER_S
    with progress() as bar:
        task = bar.add_task("waiting for the history's writer", total=None)
        while True:
            request = erasures.read(folder, name)
            if request is None:
                raise StoreError(f"the request {name} has gone from {folder.erasures}, expected it to be carried out")
            if request.is_done:
                return request
            if request.state == erasures.RUNNING:
                bar.update(task, description="erasing", completed=request.files, total=request.of or None)
            elif time.monotonic() > patience and not is_locked(folder.root / LOCK_NAME):
                raise UsageError(
                    "the erasure has not started: the broker on this folder seems to keep no history "
                    "(history.enable). Stop it and try again, or turn its history on; the request is kept"
                )
            await asyncio.sleep(LOOK_EVERY_S)


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock that this file stands for."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def in_tables(root: str, folder: DataFolder, selector: Selector, name: str | None) -> dict[str, int] | None:
    """How many rows of the pipeline's tables have gone with those of the history, by the erasure of that name, or
    would go; None where a run that is at work sees to it.
    """
    tables = Place(root).folder
    if tables is not None and not tables.is_dir():
        return {}
    try:
        from holdfast.cli import pipeline_erasing
    except ImportError as error:
        raise UsageError(
            f"there are tables of the pipeline in {root}, which need holdfast-mqtt[spark] to be erased from ({error})"
        ) from None
    with notes.status("looking through the pipeline's tables"):
        if name is None:
            return pipeline_erasing.count_in_tables(root, folder.table, selector, now_ms())
        return pipeline_erasing.follow_history(root, folder.table, name, selector, now_ms())


def now_ms() -> int:
    return int(time.time() * 1000)


async def within(seconds: float, condition: Callable[[], bool]) -> bool:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        await asyncio.sleep(LOOK_EVERY_S)
    return True


def report(outcome: Outcome, as_json: bool, found: "Found | None" = None) -> NoReturn:
    if as_json:
        print(json.dumps(asdict(outcome)))
    else:
        if found is not None:
            print_found(found)
        for line in lines_of(outcome):
            out.print(escape(line), soft_wrap=True)
    end(0 if outcome.rows or any((outcome.tables or {}).values()) else NOTHING_FOUND)


def end(code: int) -> NoReturn:
    """Arrow's threads may still be reading ahead, and would abort an interpreter that takes itself apart."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def print_found(found: "Found") -> None:
    table = Table("topic", "rows", "first", "last", box=None, pad_edge=False)
    grouped = found.rows.group_by("topic").aggregate([("offset", "count"), ("timestamp", "min"), ("timestamp", "max")])
    rows = grouped.sort_by([("offset_count", "descending"), ("topic", "ascending")])
    for row in rows.slice(0, LISTED).to_pylist():
        times = (row[name].astimezone().strftime("%Y-%m-%d %H:%M:%S") for name in ("timestamp_min", "timestamp_max"))
        table.add_row(escape(row["topic"]), str(row["offset_count"]), *times)
    if rows.num_rows:
        out.print(table)
    if rows.num_rows > LISTED:
        out.print(f"and {rows.num_rows - LISTED} more topics")


def lines_of(outcome: Outcome) -> list[str]:
    verb = "would erase" if outcome.dry_run else "erased"
    rows = counted(outcome.rows, "row")
    lines = [f"{verb} {rows} of the history up to offset {outcome.upto}, selected by {outcome.selector}"]
    tables = outcome.tables or {}
    lines += [f"{verb} {counted(n, 'row')} of the pipeline's table {name}" for name, n in tables.items() if n]
    if outcome.tables is None:
        lines.append(
            "a pipeline run is in progress: it erases from its tables by itself when it next reads the history"
        )
    if outcome.in_force:
        remove = f"holdfast retained rm {REMOVED_BY[outcome.selector.kind]}{shlex.quote(outcome.selector.value)}"
        lines.append(
            f"{counted(outcome.in_force, 'row')} kept, because the messages are currently retained: delete them with "
            f"`{remove}`, then erase again"
        )
    if outcome.dry_run:
        lines.append("nothing is erased without --yes")
    elif outcome.in_journal:
        lines.append(
            "the journal still holds them, because part of the broker has not read past them yet. They are deleted "
            "from disk as soon as it has; there is nothing you need to do"
        )
    return lines
