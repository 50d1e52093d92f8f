"""What goes wrong in Spark, as the sentence a person needs of it, and what to do about it.

An error may come as PySpark's own kind, as Java's through py4j, as gRPC's through Connect, or as a broken pipe when the
JVM is gone. All of them are long; what a person can use is one line of them.

Files that are not what their table's log says are found before Spark reads them, and named when it could not. Files
that compaction and vacuum took away after a plan had named them are no failure: the rows stay, and the work is done
again.
"""

import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyarrow.fs import FileType, LocalFileSystem
from pyspark.errors import PySparkException

from holdfast.errors import StoreError
from holdfast.spark.ranges import History
from holdfast.spark.session import first_line
from holdfast.spark.tables import TABLES

# Rooms of the installation in which an error of the system means that Spark is gone, not that a file is missing.
SPARK = ("py4j", "pyspark", "grpc")
OURS = re.compile(r"holdfast\.errors\.\w+: (.+)")
CODED = re.compile(r"(\[[A-Z][A-Z0-9_.]+\] .+)")
CAUSE = re.compile(r"^(?:: |Caused by: )([\w.$]+): (.+)$", re.MULTILINE)
RAISED = re.compile(r"^(\w[\w.]*(?:Error|Exception|Interrupt|Exit)(?:: .+)?)$", re.MULTILINE)
STATE = re.compile(r"\s*SQLSTATE: \w+.*$")
# Spark starts a Python process for a stream's source and gives it ten seconds, whatever is set. A busy machine may need
# them for imports alone.
SLOW_START = "Python worker failed to connect back"
# What is found in an error, and what helps.
REMEDIES = (
    (
        (SLOW_START,),
        "a Python process did not start within the ten seconds that Spark gives it: "
        "run again when the machine is less busy",
    ),
    (("OutOfMemoryError", "GC overhead limit exceeded"), "Spark ran out of memory: give it more with --memory"),
    (
        ("No space left on device", "Disk quota exceeded"),
        "Spark ran out of disk space for what it sorts: make room, or point SPARK_LOCAL_DIRS at a larger disk",
    ),
)
LOST = (
    "the connection to Spark was lost: its process ended, for want of memory or because it was killed; "
    "run again, with more --memory if it happens again"
)
UNREADABLE = re.compile(
    r"\[FAILED_READ_FILE\.(?:NO_HINT|CANNOT_READ_FILE_FOOTER)\] Encountered error while reading file (.+?)\.(?:\s|$)"
)
MISSING = re.compile(
    r"\[(?:FAILED_READ_FILE\.FILE_NOT_EXIST\] Encountered error while reading file "
    r"|PATH_NOT_FOUND\] Path does not exist: )(.+?\.parquet)\.(?:\s|$)"
)
LOG = "_delta_log"
Result = TypeVar("Result")

ATTEMPTS = 4
GONE = ("FILE_NOT_EXIST", "FileNotFoundException", "does not exist")
OPENED = re.compile(r"Failed to open local file '(.+?)'")


def is_from_spark(error: BaseException) -> bool:
    """Whether this came out of Spark, or out of the connection to it, rather than from a mistake of ours."""
    if isinstance(error, (PySparkException, Py4JError)) or type(error).__module__.partition(".")[0] == "grpc":
        return True
    return _is_lost(error)


def _is_lost(error: BaseException) -> bool:
    if isinstance(error, Py4JError):  # Java had nothing to say
        return isinstance(error, Py4JNetworkError) or ("\n" not in str(error) and not isinstance(error, Py4JJavaError))
    if not isinstance(error, (OSError, EOFError)):
        return False
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and any(
        str(frame.f_globals.get("__name__", "")).partition(".")[0] in SPARK for frame in frames[-3:]
    )


def reason(error: BaseException) -> str:
    """Returns the sentence a person needs from an error that crossed Spark: ours when one of ours is inside."""
    text = str(error)
    ours = OURS.findall(text)
    if ours:
        return str(ours[-1]).strip()
    for signs, remedy in REMEDIES:
        if any(sign in text for sign in signs):
            return remedy
    if _is_lost(error):
        return LOST
    unreadable = unreadable_file(text)
    if unreadable is not None:
        return unreadable
    coded = CODED.search(text)
    if coded is not None:
        return STATE.sub("", coded[1]).strip()
    if "Traceback (most recent call last)" in text:
        raised = RAISED.findall(text)
        if raised:
            return str(raised[-1]).strip()
    if isinstance(error, Py4JError):
        causes = CAUSE.findall(text)
        if causes:
            name, said = causes[-1]
            return f"{name.rpartition('.')[2]}: {said.strip()}"
    return first_line(error)


def check_whole(history: History, start: int = 0, end: int | None = None) -> None:
    """Compares the files of a range of history with the sizes in its log, and raises StoreError for one that differs.

    A file that is gone is left to the reader: its rows may have moved.

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
    """Returns what to do about the file that Spark says it could not read, or None when it says something else."""
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
    """Returns a sentence that names a damaged file and what to do about it."""
    return _advice(path, f"is damaged ({what})", "move it away, ")


def explain_missing(path: str) -> str:
    return _advice(path, "is missing, although its table names it", "")


def _advice(path: str, fault: str, first: str) -> str:
    """History is kept nowhere else; the pipeline's own tables are made of history."""
    root = next((folder for folder in Path(path).parents if (folder / LOG).is_dir()), None)
    if root is not None and root.name in TABLES:
        return (
            f"{path} {fault}: remove the folder {root} and run `holdfast pipeline run --once`, which makes that table "
            "anew from history"
        )
    doctor = f"holdfast doctor {root.parent if root is not None else 'DATA'} --repair"
    return (
        f"history file {path} {fault}: put it back from a backup; without one, {first}stop the broker and run "
        f"`{doctor}`, which goes on without it"
    )


def retry_on_vacuumed_files(history: History, work: Callable[[], Result]) -> Result:
    """Does the work, which plans from `history`, again after a refresh when a file was gone by then; returns its
    result.
    """
    for _ in range(ATTEMPTS - 1):
        try:
            return work()
        except Exception as error:
            if not is_gone(error):
                raise
        history.refresh()
    try:
        return work()
    except Exception as error:
        found = OPENED.search(str(error)) if is_gone(error) else None
        if found is None:
            raise  # Spark's own words are put into a sentence further up
        raise StoreError(explain_missing(found[1])) from None


def is_gone(error: Exception) -> bool:
    """Whether a file that a plan named is gone. Arrow says so in its own way where the driver itself looks into one."""
    if isinstance(error, FileNotFoundError) and OPENED.search(str(error)):
        return True
    return is_from_spark(error) and any(sign in str(error) for sign in GONE)
