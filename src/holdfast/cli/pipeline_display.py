"""How `holdfast pipeline` shows what it found: tables for people, JSON lines for programs."""

import json
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

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
            safe(row["topic"]),
            safe(brief(shown_row["payload"])),
            str(row["qos"]),
            (shown_row["timestamp"] or "")[:19].replace("T", " "),
            (shown_row["expires_at"] or "")[:19].replace("T", " "),
            safe(row["client_id"] or ""),
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
        table.add_row(*(safe(cell) for cell in cells))
    Console().print(table)
    if count > len(rows):
        print(f"… and {count - len(rows):,} more")


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
            print(f"  {number:>8,} refused on {safe(topic)}")


def brief(text: str, width: int = 60) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def safe(text: str) -> str:
    """Topics and payloads are data: no markup, no control characters of the terminal."""
    clean = "".join(character if character.isprintable() else "·" for character in text)
    return clean.replace("[", "\\[")
