"""`holdfast check-config`: what the broker would run with, where each value comes from, and what is wrong with it."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from holdfast.cli import rights
from holdfast.cli.options import Assignments, Config, Data, Listen
from holdfast.config import Problem, Settings, Source, problems_of, read
from holdfast.config.load import DEFAULT, KEYS
from holdfast.errors import UsageError


def check_config(
    config: Config = None,
    listen: Listen = None,
    data: Data = None,
    assignments: Assignments = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    changed: Annotated[bool, typer.Option("--changed", help="Leave out what has its default.")] = False,
    who: Annotated[
        str | None,
        typer.Option("--who", metavar="USER", help="Explain the rights of this user; '' is one without a name."),
    ] = None,
    can: Annotated[
        tuple[str, str] | None,
        typer.Option("--can", metavar="ACTION TOPIC", help="What --who wants: publish, subscribe, retain or receive."),
    ] = None,
    client_id: Annotated[str, typer.Option("--client-id", metavar="ID", help="Client id of --who.")] = "",
    qos: Annotated[int | None, typer.Option("--qos", min=0, max=2, help="QoS that --who wants.")] = None,
    certificate: Annotated[bool, typer.Option("--certificate", help="--who has shown a certificate.")] = False,
) -> None:
    """
    Show the effective settings, where each came from, and problems.

    Reads flags, environment and file as `holdfast serve` does and starts nothing. The exit code is 1 when there is a
    problem, else 0. With `--who` and `--can` it says whether a user may do something and which rule decides; the exit
    code is then 1 for no.

    Examples:

        holdfast check-config --config holdfast.toml

        holdfast check-config --changed --set durability=deliver

        holdfast check-config --json

        holdfast check-config --config holdfast.toml --who alice --can publish home/door
    """
    if (who is None) != (can is None):
        raise UsageError("expected --who and --can together, got one of them")
    source = Source(config, tuple(listen or ()), data, tuple(assignments or ()), os.environ)
    settings, origins, problems = read(source)
    if settings is not None:
        problems = problems_of(settings, origins)
    if who is not None and can is not None and settings is not None and not problems:
        rights.explain(settings, who, can, client_id, qos, certificate, as_json)
    names = [key for key in KEYS if not changed or origins[key] != DEFAULT]
    if as_json:
        print(json.dumps(_document(settings, origins, problems, names), indent=2, ensure_ascii=False))
    else:
        _print_table(settings, origins, problems, names)
    raise typer.Exit(1 if problems else 0)


def _document(
    settings: Settings | None, origins: dict[str, str], problems: list[Problem], names: list[str]
) -> dict[str, object]:
    return {
        "settings": {key: {"value": value_of(settings, key), "origin": origins[key]} for key in names if settings},
        "problems": [{"key": p.key, "message": p.message, "origin": p.origin} for p in problems],
    }


def _print_table(settings: Settings | None, origins: dict[str, str], problems: list[Problem], names: list[str]) -> None:
    console = Console(highlight=False)
    if settings is not None:
        table = Table("key", "value", "from", title="Settings", title_justify="left")
        for key in names:
            style = "dim" if origins[key] == DEFAULT else ""
            value = value_of(settings, key)
            shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            table.add_row(key, escape(shown), escape(origins[key]), style=style)
        console.print(table)
    for problem in problems:
        console.print(f"[red]problem[/red] {escape(str(problem))}", soft_wrap=True)
    console.print("[green]no problems[/green]" if not problems else f"{len(problems)} to mend")


def value_of(settings: Settings | None, key: str) -> object:
    """The value as JSON can hold it."""
    value: object = settings
    for part in key.split("."):
        value = getattr(value, part)
    if isinstance(value, list):
        return [entry.model_dump(mode="json") if isinstance(entry, BaseModel) else entry for entry in value]
    return str(value) if isinstance(value, Path) else value
