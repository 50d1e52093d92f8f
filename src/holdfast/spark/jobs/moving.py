"""Reading history while its files move: compaction and vacuum take away files that a plan has named. The rows stay."""

import math
import re
import time
from collections.abc import Callable
from typing import TypeVar

from holdfast.errors import StoreError
from holdfast.spark.damage import explain_missing
from holdfast.spark.failure import is_from_spark
from holdfast.spark.jobs.run import GONE
from holdfast.spark.ranges import History

Result = TypeVar("Result")

ATTEMPTS = 4
OPENED = re.compile(r"Failed to open local file '(.+?)'")


def with_fresh_look(history: History, work: Callable[[], Result], calm_s: float = math.inf) -> Result:
    """Do the work, which plans from `history`, and again from a fresh look at it when a file was gone by then.

    Work that goes on for ever may meet this many times: what went well for `calm_s` is not held against it.
    """
    failures = 0
    while True:
        begun = time.monotonic()
        try:
            return work()
        except Exception as error:
            failures = failures + 1 if time.monotonic() - begun < calm_s else 1
            if not is_gone(error):
                raise
            if failures == ATTEMPTS:
                found = OPENED.search(str(error))
                if found is None:
                    raise  # Spark's own words, which are put into a sentence further up
                raise StoreError(explain_missing(found[1])) from None
        history.refresh()


def is_gone(error: Exception) -> bool:
    """Whether a file that a plan named is gone. Arrow says so in its own way where the driver itself looks into one."""
    if isinstance(error, FileNotFoundError) and OPENED.search(str(error)):
        return True
    return is_from_spark(error) and any(sign in str(error) for sign in GONE)
