"""What goes wrong in Spark, as the sentence a person needs of it, and what to do about it.

An error may come as PySpark's own kind, as Java's through py4j, as gRPC's through Connect, or as a broken pipe when the
JVM is gone. All of them are long; what a person can use is one line of them.
"""

import re
import traceback

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException

from holdfast.spark.damage import unreadable_file
from holdfast.spark.session import first_line

# Rooms of the installation in which an error of the system means that Spark is gone, not that a file is missing.
SPARK = ("py4j", "pyspark", "grpc")
OURS = re.compile(r"holdfast\.errors\.\w+: (.+)")
CODED = re.compile(r"(\[[A-Z][A-Z0-9_.]+\] .+)")
CAUSE = re.compile(r"^(?:: |Caused by: )([\w.$]+): (.+)$", re.MULTILINE)
RAISED = re.compile(r"^(\w[\w.]*(?:Error|Exception|Interrupt|Exit)(?:: .+)?)$", re.MULTILINE)
STATE = re.compile(r"\s*SQLSTATE: \w+.*$")
# What is found in an error, and what helps.
REMEDIES = (
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
    """The sentence a person needs from an error that crossed Spark: ours when one of ours is inside."""
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
