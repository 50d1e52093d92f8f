"""Checking the table, and undoing commits that a power cut left half written.

The library that writes the table does not wait for the disk, so after a power cut its newest commits may be torn. They
are taken back, newest first, and the journal, which is kept until the table was synced, fills the gap.
"""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as fs

from holdfast.errors import StoreError
from holdfast.history.place import At, place_of
from holdfast.history.schema import WRITER_APP_ID
from holdfast.history.table import first_line, load

LOG = "_delta_log"
LOOK_BACK = 200  # commits; the table is synced far more often than that


def commits(folder: Path) -> list[Path]:
    """Returns the commit files of the log, oldest first."""
    return sorted(path for path in (folder / LOG).glob("*.json") if path.stem.isdigit())


def actions_of(commit: Path) -> list[dict[str, Any]]:
    """Returns what a commit says; an empty list when it is torn."""
    try:
        return [json.loads(line) for line in commit.read_text().splitlines() if line]
    except ValueError:
        return []


def file_problem(files: fs.FileSystem, name: str, size: int) -> str:
    found = files.get_file_info(name)
    if not found.is_file:
        return f"file {name} is missing"
    return "" if found.size == size else f"file {name} has {found.size} bytes, expected {size}"


def torn_tail(folder: Path, kept_from: int) -> tuple[list[Path], str]:
    """Returns the newest commits from the first torn one on, and what is wrong with that one.

    A commit whose file is damaged counts only while the journal, which has offsets from `kept_from` on, can give back
    what it and the later ones brought. A damaged file further back costs its own rows, never sound ones.
    """
    files = place_of(folder).filesystem()
    tail = commits(folder)[-LOOK_BACK:]
    written = [actions_of(commit) for commit in tail]
    reached = reached_before(written)
    removed: set[str] = set()  # by later commits: those files may be gone
    torn: list[Path] = []
    reason = ""
    for commit, actions, before in zip(reversed(tail), reversed(written), reversed(reached), strict=True):
        problem = "" if actions else f"commit {commit.name} is not whole"
        for action in actions:
            if "remove" in action:
                removed.add(action["remove"]["path"])
            elif "add" in action and action["add"]["path"] not in removed and before + 1 >= kept_from:
                problem = problem or file_problem(files, action["add"]["path"], action["add"]["size"])
        if problem:
            reason = problem
            torn = [path for path in tail if path >= commit]
    return torn, reason


def reached_before(written: list[list[dict[str, Any]]]) -> list[int]:
    """Returns the offset that the table had come to before each of these commits; 0 where none of them says."""
    found: list[int] = []
    last = 0
    for actions in written:
        found.append(last)
        for action in actions:
            if action.get("txn", {}).get("appId") == WRITER_APP_ID:
                last = action["txn"]["version"]
    return found


def take_back_torn_commits(at: At, quarantine: Path, kept_from: int = 0) -> str:
    """Takes back what is torn at the end of the table, and returns what was done, or nothing when nothing was torn.

    Only as far as a journal that has offsets from `kept_from` on can give it back. An object store tears nothing.
    """
    folder = place_of(at).folder
    if folder is None or not (folder / LOG).is_dir():
        return ""
    torn, reason = torn_tail(folder, kept_from)
    if not torn:
        return ""
    first = torn[0].stem
    names = [path.name for path in (folder / LOG).iterdir()]
    whole = any(name[:20].isdigit() and name[:20] < first for name in names)
    if not whole and len(torn) > 1:  # a single one was torn while the table was being made
        raise StoreError(f"history table in {folder} has no sound commit to go back to: {reason}")
    quarantine.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in sorted((folder / LOG).iterdir(), reverse=True):
        if path.name == "_last_checkpoint" or (path.name[:20].isdigit() and path.name[:20] >= first):
            os.replace(path, quarantine / f"history.{path.name}")
    return f"history took back {len(torn)} commits from version {int(first)} on: {reason}"


def problems(at: At) -> list[str]:
    """Returns everything wrong with the table that can be seen without reading its rows."""
    place = place_of(at)
    if place.folder is not None and not (place.folder / LOG).is_dir():
        return []
    try:
        files = pa.table(load(place).get_add_actions(flatten=True))
        filesystem = place.filesystem()
        named = zip(files["path"].to_pylist(), files["size_bytes"].to_pylist(), strict=True)
        return [problem for name, size in named if (problem := file_problem(filesystem, name, size))]
    except StoreError as error:
        return [str(error)]
    except OSError as error:
        return [f"history table in {at} cannot be read: {first_line(error)}"]


def sync_files(at: At, since_s: float) -> None:
    """Makes durable what was written to the table after a moment, files first, then the names. In an object store what
    was written is durable.
    """
    folder = place_of(at).folder
    if folder is None:
        return
    folders = [folder / LOG, folder]
    for each in folders:
        for entry in os.scandir(each):
            if entry.is_file() and entry.stat().st_mtime >= since_s:
                sync_path(entry.path)
    for each in folders:
        sync_path(str(each))


def sync_path(path: str) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # removed by upkeep meanwhile
        return
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def forget_missing(at: At) -> list[str]:
    """Takes files that are gone or cut out of the table, so that the rest can be read.

    Returns what was lost, as lines.
    """
    table = load(at)
    filesystem = place_of(at).filesystem()
    files = pa.table(table.get_add_actions(flatten=True))
    lost: list[str] = []
    for row in files.select(["path", "size_bytes", "min.offset", "max.offset"]).to_pylist():
        problem = file_problem(filesystem, row["path"], row["size_bytes"])
        if problem:
            if filesystem.get_file_info(row["path"]).is_file:
                filesystem.delete_file(row["path"])
            lost.append(f"{problem}; rows with offsets {row['min.offset']} to {row['max.offset']} are lost")
    if lost:
        table.repair(dry_run=False)
    return lost
