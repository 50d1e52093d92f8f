"""How `holdfast retained` shows messages: tables for people, JSON lines for programs."""

import json
import sys
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

# A table in a pipe is not cut to the width of a screen that is not there.
WIDTH = None if sys.stdout.isatty() else 200

out = Console(highlight=False, width=WIDTH)
notes = Console(stderr=True, highlight=False, width=WIDTH)


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
    notes.print(f"{len(found)} messages")


def time_text(iso: str | None) -> str:
    """Local time to the second."""
    if iso is None:
        return ""
    return datetime.fromisoformat(iso).astimezone().strftime("%Y-%m-%d %H:%M:%S")


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
