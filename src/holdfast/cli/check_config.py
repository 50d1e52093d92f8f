"""`holdfast check-config`: what the broker would run with, where each value comes from, and what is wrong with it.

With `--who USER --can ACTION TOPIC`: what the access rules answer, and which of them does.
"""

import json
import os
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from holdfast.broker.access import ANY_QOS
from holdfast.broker.topics import is_valid_filter
from holdfast.cli.options import Assignments, Config, Data, Listen
from holdfast.config import Problem, Settings, Source, problems_of, read
from holdfast.config.checks import exposed_secrets, unanswered
from holdfast.config.load import DEFAULT, KEYS
from holdfast.config.settings import SHARED_KEYS
from holdfast.config.shown import value_of
from holdfast.errors import UsageError
from holdfast.service.permissions import ACTIONS, decide


def check_config(
    config: Config = None,
    listen: Listen = None,
    data: Data = None,
    assignments: Assignments = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    changed: Annotated[
        bool, typer.Option("--changed", help="Show only settings that differ from their defaults.")
    ] = False,
    who: Annotated[
        str | None,
        typer.Option(
            "--who", metavar="USER", help="Explain the permissions of this user; '' means an anonymous client."
        ),
    ] = None,
    can: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--can", metavar="ACTION TOPIC", help="What --who wants to do: publish, subscribe, retain or receive."
        ),
    ] = None,
    client_id: Annotated[str, typer.Option("--client-id", metavar="ID", help="Client id of --who.")] = "",
    qos: Annotated[int | None, typer.Option("--qos", min=0, max=2, help="QoS requested by --who.")] = None,
    certificate: Annotated[
        bool, typer.Option("--certificate", help="--who has presented a client certificate.")
    ] = False,
) -> None:
    """
    Show the effective settings, where each one came from, and any problems.

    Reads flags, environment and file like `holdfast serve`, but starts nothing. The exit code is 1 if there is a
    problem, otherwise 0. With `--who` and `--can` it says whether a user is allowed to do something and which rule
    decides; the exit code is then 1 if not.

    On a node of a cluster it also says whether each setting is shared by all nodes or belongs to this node.

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
        explain_rights(settings, who, can, client_id, qos, certificate, as_json)
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
        "settings": {
            key: {"value": value_of(settings, key), "origin": origins[key], **scope_of(settings, key)}
            for key in names
            if settings
        },
        "warnings": [{"key": key, "message": message} for key, message in _warnings(settings)],
        "problems": [{"key": p.key, "message": p.message, "origin": p.origin} for p in problems],
    }


def _print_table(settings: Settings | None, origins: dict[str, str], problems: list[Problem], names: list[str]) -> None:
    console = Console(highlight=False)
    if settings is not None:
        columns = ["key", "value", "from", *(["of"] if settings.cluster.url else [])]
        table = Table(*columns, title="Settings", title_justify="left")
        for key in names:
            style = "dim" if origins[key] == DEFAULT else ""
            value = value_of(settings, key)
            shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            table.add_row(key, escape(shown), escape(origins[key]), *scope_of(settings, key).values(), style=style)
        console.print(table)
    for key, message in _warnings(settings):
        console.print(f"[yellow]warning[/yellow] {escape(key)}: {escape(message)}", soft_wrap=True)
    for problem in problems:
        console.print(f"[red]problem[/red] {escape(str(problem))}", soft_wrap=True)
    console.print(
        "[green]no problems[/green]" if not problems else f"{len(problems)} problem{'' if len(problems) == 1 else 's'}"
    )


def _warnings(settings: Settings | None) -> list[tuple[str, str]]:
    """What would do, and had better be otherwise."""
    if settings is None:
        return []
    found = [
        (key, f"every user of this machine can read {path}, expected mode 0600")
        for key, path in exposed_secrets(settings)
    ]
    return [*found, *unanswered(settings)]


def scope_of(settings: Settings, key: str) -> dict[str, str]:
    """Whose a setting is, where the broker is one of many: the same for all nodes, or this one's own."""
    if not settings.cluster.url:
        return {}
    return {"of": "cluster" if key in SHARED_KEYS else "node"}


def explain_rights(
    settings: Settings,
    username: str,
    can: tuple[str, str],
    client_id: str,
    qos: int | None,
    certificate: bool,
    as_json: bool,
) -> None:
    """Print the decision and the rule that made it; the exit code is 0 for allowed and 1 for denied."""
    from holdfast.from_settings import access_rules

    action, topic = can
    if action not in ACTIONS:
        raise UsageError(f"--can: expected one of {', '.join(ACTIONS)}, got {action!r}")
    encoded = topic.encode()
    wildcard = any(c in topic for c in "+#")
    if not is_valid_filter(encoded, settings.limits.max_topic_levels) or (wildcard and action != "subscribe"):
        kind = "topic filter" if action == "subscribe" else "topic without wildcards"
        raise UsageError(f"--can {action}: expected a {kind}, got {topic!r}")
    allowed, why = decide(
        access_rules(settings),
        ACTIONS[action],
        username,
        client_id,
        encoded,
        ANY_QOS if qos is None else qos,
        certificate,
    )
    if as_json:
        answer = {"user": username, "client_id": client_id, "action": action, "topic": topic}
        print(json.dumps({**answer, "allowed": allowed, "because": why}, indent=2, ensure_ascii=False))
    else:
        who = repr(username) if username else "a client without a user name"
        print(f"{'allowed' if allowed else 'denied'}: {who} may {'' if allowed else 'not '}{action} {topic!r}")
        print(f"because of {why}")
    raise typer.Exit(0 if allowed else 1)
