"""`holdfast doctor`: what is in a data folder, what is wrong with it, and repairing it."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from holdfast.storage import doctor as examination
from holdfast.storage.folder import DataFolder


def doctor(
    folder: Annotated[Path, typer.Argument(help="The data folder, as passed to `holdfast serve --data`.")],
    repair: Annotated[
        bool, typer.Option("--repair", help="Repair what is damaged; anything removed is moved to quarantine/.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """
    Check a data folder that no broker is using and, if asked, repair it.

    Reads the journal, the state and the history in full; changes nothing without --repair. The exit code is 1 if there
    is a problem (or one is left after a repair), otherwise 0.

    Examples:

        holdfast doctor data

        holdfast doctor data --repair

        holdfast doctor data --json
    """
    data = DataFolder(folder)
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    done: list[str] = []
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("reading")

        def show(what: str, count: int) -> None:
            progress.update(task, description=f"{what}: {count}" if count else what)

        report = examination.examine(data, show)
        found = report.findings
        if repair and found:
            done = examination.repair(data, show)
            report = examination.examine(data, show)
    if as_json:
        print(json.dumps(_document(report, found, done), indent=2, ensure_ascii=False))
    else:
        _print(report, found, done)
    raise typer.Exit(1 if report.findings else 0)


def _document(report: examination.Report, found: list[examination.Finding], done: list[str]) -> dict[str, object]:
    return {
        "journal": {"records": report.records, "last_offset": report.last_offset},
        "state": {"retained": report.retained, "sessions": report.sessions},
        "history": {"upto_offset": report.rows_upto},
        "findings": [{"part": finding.part, "text": finding.text} for finding in found],
        "notes": report.notes,
        "repairs": done,
        "left": [{"part": finding.part, "text": finding.text} for finding in report.findings],
    }


def _print(report: examination.Report, found: list[examination.Finding], done: list[str]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"{report.records} records in the journal, {report.retained} retained messages and {report.sessions} sessions "
        f"in the state, history up to offset {report.rows_upto}; last offset {report.last_offset}"
    )
    for finding in found:
        console.print(f"[red]wrong[/red]  {finding.part}: {escape(finding.text)}")
    for note in report.notes:
        console.print(f"[yellow]note[/yellow]   {escape(note)}")
    for line in done:
        console.print(f"[green]done[/green]   {escape(line)}")
    for finding in report.findings if done else []:
        console.print(f"[red]still[/red]  {finding.part}: {escape(finding.text)}")
    if not found:
        console.print("nothing wrong")
    elif not done:
        console.print("run again with --repair to repair this")
