"""Files that are not what their table's log says: found before Spark reads them, and named when it could not."""

import re
from pathlib import Path
from urllib.parse import unquote

from pyarrow.fs import FileType, LocalFileSystem

from holdfast.errors import StoreError
from holdfast.spark.ranges import History
from holdfast.spark.shapes import SHAPES

UNREADABLE = re.compile(
    r"\[FAILED_READ_FILE\.(?:NO_HINT|CANNOT_READ_FILE_FOOTER)\] Encountered error while reading file (.+?)\.(?:\s|$)"
)
MISSING = re.compile(
    r"\[(?:FAILED_READ_FILE\.FILE_NOT_EXIST\] Encountered error while reading file "
    r"|PATH_NOT_FOUND\] Path does not exist: )(.+?\.parquet)\.(?:\s|$)"
)
LOG = "_delta_log"


def check_whole(history: History, start: int = 0, end: int | None = None) -> None:
    """Compare the files of a range of history with the sizes in its log. What is gone is left to who reads: it may have
    moved.

    Spark takes a file that was cut to nothing for one that has no rows, and answers without them.
    """
    if not isinstance(history.filesystem, LocalFileSystem):
        return  # an object store keeps an object whole or not at all, and asking for each one takes time
    files = history.between(start, history.end if end is None else end)
    paths = [file.path.removeprefix("file://") for file in files]
    for file, found in zip(files, history.filesystem.get_file_info(paths), strict=True):
        if found.type == FileType.File and found.size != file.size:
            raise StoreError(explain(found.path, f"it has {found.size:,} bytes, expected {file.size:,}"))


def unreadable_file(text: str) -> str | None:
    """What to do about the file that Spark says it could not read, when that is what it says."""
    missing = MISSING.search(text)
    if missing is not None:
        return explain_missing(_local(missing[1]))
    found = UNREADABLE.search(text)
    if found is None:
        return None
    path = _local(found[1])
    if "Permission denied" in text:
        return f"{path} cannot be read: permission denied; run this as a user who may read it"
    return explain(path, "Spark cannot read it")


def _local(path: str) -> str:
    plain = re.sub(r"^file:(//)?", "", path)
    return plain if Path(plain).exists() else unquote(plain)


def explain(path: str, what: str) -> str:
    """Name a damaged file and what to do about it."""
    return _advice(path, f"is damaged ({what})", "move it away, ")


def explain_missing(path: str) -> str:
    return _advice(path, "is missing, although its table names it", "")


def _advice(path: str, fault: str, first: str) -> str:
    """History is kept nowhere else; the pipeline's own tables are made of history."""
    root = next((folder for folder in Path(path).parents if (folder / LOG).is_dir()), None)
    if root is not None and root.name in SHAPES:
        return (
            f"{path} {fault}: remove the folder {root} and run `holdfast pipeline run --once`, which makes that table "
            "anew from history"
        )
    doctor = f"holdfast doctor {root.parent if root is not None else 'DATA'} --repair"
    return (
        f"history file {path} {fault}: put it back from a backup; without one, {first}stop the broker and run "
        f"`{doctor}`, which goes on without it"
    )
