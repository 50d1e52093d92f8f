"""How `holdfast retained` shows messages: tables for people, JSON lines for programs."""

import json
import sys
from datetime import datetime
from typing import Any

from rich import markup
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from holdfast.history.schema import ERASED_PROTOCOL

# A table in a pipe is not cut to the width of a screen that is not there.
WIDTH = None if sys.stdout.isatty() else 200

out = Console(highlight=False, width=WIDTH)
notes = Console(stderr=True, highlight=False, width=WIDTH)


def escape(text: str) -> str:
    """What a client chose, as text for the terminal: neither markup nor control characters get there."""
    return markup.escape("".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text))


def print_messages(found: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        for message in found:
            print(json.dumps(message, ensure_ascii=False))
        return
    table = Table("topic", "qos", "size", "set at", "expires", "publisher", "payload", box=None, pad_edge=False)
    for message in found:
        table.add_row(
            escape(message["topic"]),
            str(message["qos"]),
            str(message["size"]),
            time_text(message["stored_at"]),
            time_text(message["expires_at"]),
            client_of(message),
            escape(shown_text(message)),
        )
    if found:
        out.print(table)
    notes.print(counted(len(found), "message"))


def print_history(rows: list[dict[str, Any]]) -> None:
    table = Table("offset", "time", "outcome", "qos", "publisher", "size", "payload", box=None, pad_edge=False)
    for row in rows:
        erased = row["publisher"]["protocol"] == ERASED_PROTOCOL
        who = "(erased)" if erased else row["publisher"]["client_id"]
        cells = [
            row["version"],
            time_text(row["stored_at"]),
            row["outcome"],
            row["qos"],
            who,
            row["size"],
            shown_text(row),
        ]
        table.add_row(*(escape(str(cell)) for cell in cells))
    out.print(table)


def print_ghosts(found: dict[str, Any], days: float) -> None:
    stale, commands = found["stale"], found["commands"]
    table = Table("why", "topic", "since", "publisher", box=None, pad_edge=False)
    for message in stale["messages"]:
        table.add_row("not written", escape(message["topic"]), time_text(message["stored_at"]), client_of(message))
    for message in found["discovery"]:
        table.add_row("no state", escape(message["topic"]), time_text(message["stored_at"]), client_of(message))
    for message in commands["messages"]:
        table.add_row("command", escape(message["topic"]), time_text(message["stored_at"]), client_of(message))
    for publisher in found["publishers"]:
        topics = f"{counted(publisher['count'], 'topic')}, such as {publisher['sample']}"
        table.add_row(
            "publisher gone", escape(topics), time_text(publisher["last_write"]), escape(publisher["client_id"])
        )
    if table.row_count:
        out.print(table)
    out.print(
        f"{stale['count']} of {found['count']} not written for {days:g} days ({size_text(stale['bytes'])}), "
        f"{counted(found['publishers_count'], 'publisher')} gone, "
        f"{counted(found['discovery_count'], 'discovery', 'discoveries')} without state, "
        f"{counted(commands['count'], 'command')}"
    )


def counted(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def time_text(iso: str | None) -> str:
    """Local time to the second, with its distance from UTC: another machine may be elsewhere."""
    if iso is None:
        return ""
    return datetime.fromisoformat(iso).astimezone().strftime("%Y-%m-%d %H:%M:%S%z")


def client_of(message: dict[str, Any]) -> str:
    return escape(str(message["publisher"]["client_id"]))


def shown_text(message: dict[str, Any]) -> str:
    """The beginning of the payload on one line; control characters must not reach the terminal."""
    preview = message["preview"]
    if preview is None:
        return f"({message['size']} bytes)"
    cut = "".join(c if c.isprintable() else " " for c in preview[:60])
    return cut + ("..." if len(preview) > 60 else "")


def size_text(size: int) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size = size // 1024
    return f"{size} GiB"


def progress() -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=notes,
        transient=True,
    )
