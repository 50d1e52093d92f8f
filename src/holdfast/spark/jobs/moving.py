"""Reading history while its files move: compaction and vacuum take away files that a plan has named. The rows stay."""

import re
from collections.abc import Callable
from typing import TypeVar

from holdfast.errors import StoreError
from holdfast.spark.damage import explain_missing
from holdfast.spark.failure import is_from_spark
from holdfast.spark.ranges import History

Result = TypeVar("Result")

ATTEMPTS = 4
GONE = ("FILE_NOT_EXIST", "FileNotFoundException", "does not exist")
OPENED = re.compile(r"Failed to open local file '(.+?)'")


def with_fresh_look(history: History, work: Callable[[], Result]) -> Result:
    """Do the work, which plans from `history`, and again from a fresh look at it when a file was gone by then."""
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
