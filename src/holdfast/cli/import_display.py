"""How `holdfast import` says what comes, what does not, and why: a table for people, JSON for programs."""

import json
from dataclasses import asdict
from typing import Any

from rich.table import Table

from holdfast.cli.retained_display import escape, notes, out
from holdfast.migration.destination import Outcome, Tally
from holdfast.migration.inventory import QUEUED, RETAINED, SESSIONS, SUBSCRIPTIONS, Inventory
from holdfast.migration.settings_files import BRIDGE_PASSWORD, NEW, OTHER, SAME, FoundSettings, SettingsFile

KINDS = (RETAINED, SESSIONS, SUBSCRIPTIONS, QUEUED)
SHOWN_AT_MOST = 50


def print_inventory(found: Inventory, outcome: Outcome, dry_run: bool, as_json: bool) -> None:
    rows = rows_of(found, outcome)
    if as_json:
        kinds = {kind: {**asdict(tally), "left": left} for kind, tally, left in rows}
        shown = {
            "source": found.source,
            "dry_run": dry_run,
            "kinds": kinds,
            "damage": found.damage,
            "notes": found.notes,
        }
        print(json.dumps(shown, ensure_ascii=False))
        return
    verb = "would come" if dry_run else "came"
    table = Table("what", verb, "there already", "stays behind", "why", box=None, pad_edge=False)
    for kind, tally, left in rows:
        if tally.other:
            left = {"something else is there (--replace takes its place)": tally.other, **left}
        why = "; ".join(f"{count} {reason}" if len(left) > 1 else reason for reason, count in left.items())
        table.add_row(kind, str(tally.imported), str(tally.same), str(sum(left.values())), escape(why))
    out.print(table)
    for line in found.damage:
        notes.print(f"damaged: {escape(line)}", soft_wrap=True)
    for line in found.notes:
        notes.print(escape(line), soft_wrap=True)
    if dry_run:
        out.print("nothing was changed: this was a dry run")
    elif not outcome.changed:
        out.print("nothing was changed: what can come is there already")


def rows_of(found: Inventory, outcome: Outcome) -> list[tuple[str, Tally, dict[str, int]]]:
    rows = []
    kinds = dict.fromkeys([*KINDS, *found.left, *outcome.left])
    for kind in kinds:
        tally = outcome.tallies.get(kind, Tally())
        left = {**found.left.get(kind, {}), **outcome.left.get(kind, {})}
        if left or tally != Tally() or kind == RETAINED:
            rows.append((kind, tally, left))
    return rows


def print_settings(found: FoundSettings, files: list[tuple[SettingsFile, str]], dry_run: bool, as_json: bool) -> None:
    if as_json:
        print(json.dumps(settings_json(found, files, dry_run), ensure_ascii=False))
        return
    kept = any(became == OTHER for _, became in files)
    verb = "would be written" if dry_run or kept else "written"
    said = {NEW: verb, SAME: "there already, the same", OTHER: "something else is there and stays (--replace)"}
    table = Table("file", "what", "", box=None, pad_edge=False)
    for file, became in files:
        table.add_row(escape(str(file.path)), f"{count_of(found, file)} {file.what}", said[became])
    out.print(table)
    if found.left:
        out.print(f"{len(found.left)} of {found.lines} lines have no counterpart:")
        left = Table("where", "line", "what to do", box=None, pad_edge=False)
        for one in found.left[:SHOWN_AT_MOST]:
            left.add_row(escape(one.where), escape(one.text), escape(one.reason))
        out.print(left)
        if len(found.left) > SHOWN_AT_MOST:
            out.print(f"and {len(found.left) - SHOWN_AT_MOST} more, which the settings file names")
    for line in found.notes:
        notes.print(escape(line), soft_wrap=True)
    if kept:
        out.print("nothing was changed: all of these files belong together; --output names another place")
    elif dry_run:
        out.print("nothing was changed: this was a dry run")
    elif all(became == SAME for _, became in files):
        out.print("nothing was changed: the files say so already")


def count_of(found: FoundSettings, file: SettingsFile) -> int:
    if file.what == "users":
        return len(found.users or {})
    if file.what == "access rules":
        return found.rules
    if file.what == BRIDGE_PASSWORD:
        return len(file.lines)
    return len(found.values) + sum(len(tables) for tables in found.tables.values())


def settings_json(found: FoundSettings, files: list[tuple[SettingsFile, str]], dry_run: bool) -> dict[str, Any]:
    return {
        "source": found.source,
        "dry_run": dry_run,
        "files": [{"path": str(file.path), "what": file.what, "became": became} for file, became in files],
        "lines": found.lines,
        "left": [asdict(one) for one in found.left],
        "notes": found.notes,
    }
