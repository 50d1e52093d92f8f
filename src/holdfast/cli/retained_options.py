"""What the commands of `holdfast retained` take, and what is meant by it: conditions, ages and moments."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.quantity import parse_duration

DEFAULT_URL = "http://127.0.0.1:18083"

Url = Annotated[
    str,
    typer.Option("--url", metavar="URL", envvar="HOLDFAST_URL", help="The broker's HTTP listener."),
]
Key = Annotated[
    str,
    typer.Option(
        "--key",
        metavar="NAME:SECRET",
        envvar="HOLDFAST_KEY",
        help="An API key and its secret, or a user name and password.",
    ),
]
Data = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="Work on a data folder instead of a running broker."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]
Filter = Annotated[str, typer.Argument(metavar="FILTER", help="A topic filter.")]
AnyFilter = Annotated[
    str | None, typer.Argument(metavar="FILTER", help="A topic filter. Default with `--publisher`: every topic.")
]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="A topic, without wildcards.")]
Contains = Annotated[str | None, typer.Option("--contains", metavar="TEXT", help="Only topics that contain this text.")]
ClientId = Annotated[str | None, typer.Option("--client-id", metavar="ID", help="Only messages from this client.")]
Publisher = Annotated[
    str | None,
    typer.Option("--publisher", "--username", metavar="NAME", help="Only messages published by this user."),
]
OlderThan = Annotated[
    str | None, typer.Option("--older-than", metavar="AGE", help="Set at least this long ago: 30d, 2h.")
]
NewerThan = Annotated[
    str | None, typer.Option("--newer-than", metavar="AGE", help="Set at most this long ago: 30d, 2h.")
]
MinSize = Annotated[int | None, typer.Option("--min-size", metavar="BYTES", help="Payloads of at least this size.")]
When = Annotated[
    str,
    typer.Argument(
        metavar="WHEN",
        help="A time (2025-03-01T12:00, in the local time zone unless it names one, such as Z), an age (2h), or an "
        "offset (@1234).",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it instead of only showing what would be done.")]


def conditions_of(
    topic_filter: str | None,
    contains: str | None,
    client_id: str | None,
    publisher: str | None,
    older_than: str | None,
    newer_than: str | None,
    min_size: int | None,
) -> dict[str, Any]:
    """The conditions that were given, and no others.

    An empty text would ask for nothing, and so delete everything where a script's variable is not set.
    """
    for flag, text in (("--contains", contains), ("--client-id", client_id), ("--publisher", publisher)):
        if text == "":
            raise typer.BadParameter(f"expected a value after {flag}, got nothing")
    given: dict[str, Any] = {
        "contains": contains,
        "client_id": client_id,
        "username": publisher,
        "hidden": True if publisher is not None and topic_filter is None else None,
        "older_than": None if older_than is None else duration_of(older_than),
        "newer_than": None if newer_than is None else duration_of(newer_than),
        "min_size": min_size,
    }
    return {name: value for name, value in given.items() if value is not None}


def duration_of(text: str) -> float:
    try:
        return float(parse_duration(text))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def moment_of(when: str) -> tuple[int, int]:
    """(milliseconds since the epoch, 0) or (0, offset)."""
    if when.startswith("@"):
        if not when[1:].isdigit():
            raise typer.BadParameter(f"expected an offset such as @1234, got {when!r}")
        return 0, int(when[1:])
    try:
        moment = datetime.fromisoformat(when)
    except ValueError:
        try:
            moment = datetime.now() - timedelta(seconds=float(parse_duration(when)))
        except ValueError:
            raise typer.BadParameter(f"expected a time, an age such as 2h, or @OFFSET, got {when!r}") from None
    if moment.timestamp() > datetime.now().timestamp():
        raise typer.BadParameter(f"expected a time in the past, got {moment.astimezone().isoformat()}")
    return int(moment.timestamp() * 1000), 0
