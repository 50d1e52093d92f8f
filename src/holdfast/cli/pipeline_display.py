"""How `holdfast pipeline` shows what it found: tables for people, JSON lines for programs."""

import json
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from holdfast.spark.jobs.run import Step


def print_step(step: "Step") -> None:
    rate = step.rows / step.seconds if step.seconds else 0
    print(
        f"{', '.join(step.tables)}: {step.rows:,} rows in {step.seconds:.1f} s ({rate:,.0f}/s), {step.behind:,} behind",
        flush=True,
    )


def print_retained(rows: list[dict[str, Any]], total: int, as_json: bool) -> None:
    from holdfast.spark.jobs.output import plain

    if as_json:
        for row in rows:
            print(json.dumps(plain(row), ensure_ascii=False))
        return
    table = Table("topic", "payload", "qos", "set at (UTC)", "expires", "by", box=None, pad_edge=False)
    for row in rows:
        shown_row = plain(row)
        table.add_row(
            cell(row["topic"]),
            cell(brief(shown_row["payload"])),
            str(row["qos"]),
            (shown_row["timestamp"] or "")[:19].replace("T", " "),
            (shown_row["expires_at"] or "")[:19].replace("T", " "),
            cell(row["client_id"] or ""),
        )
    Console().print(table)
    more = f"; {total - len(rows):,} more with --limit or --out" if total > len(rows) else ""
    print(f"{total:,} retained messages{more}")


def print_differences(rows: list[dict[str, Any]], count: int) -> None:
    if not rows:
        return
    table = Table("topic", "what", "history says", "found", box=None, pad_edge=False)
    for row in rows:
        cells = (row["topic"], row["problem"], brief(row["expected"] or "-"), brief(row["got"] or "-"))
        table.add_row(*(cell(text) for text in cells))
    Console().print(table)
    if count > len(rows):
        print(f"… and {count - len(rows):,} more")


def print_plan(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        print(f"{row['action']:5} {printable(row['topic'])}")


def print_stats(found: dict[str, Any]) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    for name in ("messages", "bytes", "topics", "publishers", "retained", "retained_bytes"):
        table.add_row(name.replace("_", " "), f"{found[name]:,}")
    table.add_row("from", found["first"] or "-")
    table.add_row("to", found["last"] or "-")
    for outcome, number in found["outcomes"].items():
        table.add_row(f"outcome {outcome}", f"{number:,}")
    Console().print(table)
    what = found.get("what_if")
    if what:
        limits = ", ".join(f"{name}={value}" for name, value in what["limits"].items())
        print(f"\nwith {limits}:")
        print(f"  {what['retained']:,} topics would be retained ({what['bytes']:,} bytes), {what['peak']:,} at most")
        for reason, number in sorted(what["refused"].items()):
            print(f"  {number:,} publishes would be {reason.replace('_', ' by ')}")
        for topic, number in what["topics"][:20]:
            print(f"  {number:>8,} refused on {printable(topic)}")


def brief(text: str, width: int = 60) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def printable(text: str) -> str:
    """Topics and payloads are data: no control characters of the terminal."""
    return "".join(character if character.isprintable() else "·" for character in text)


def cell(text: str) -> Text:
    """For a table, where a plain string would be read as markup."""
    return Text(printable(text))
