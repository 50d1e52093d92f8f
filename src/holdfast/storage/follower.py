"""A process that follows the journal: the part that both followers, state and history, have in common.

A follower reads what is durable, keeps it in its own way and reports how far it has come, one JSON object a line on its
standard output. Its standard input is its life line: when the broker closes it, or ends in any way, the follower takes
in what is left and ends too. Working in a process of its own, it never holds up the broker's event loop.
"""

import json
import os
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from holdfast.broker.record_shape import sound_only
from holdfast.errors import StoreError
from holdfast.journal.reader import Reader
from holdfast.journal.watermark import Watermark
from holdfast.storage.folder import DataFolder

RETRY_S = 2.0


class Follower:
    """Subclasses say what to do with records. `interval_s` is the time between two looks at the journal."""

    interval_s = 1.0
    batch_bytes = 8 << 20

    def __init__(self, folder: DataFolder) -> None:
        self.folder = folder

    def open(self) -> int:
        """Open what is kept; the offset to go on behind. After this, and only then, `close` is called."""
        raise NotImplementedError

    def take(self, records: list[bytes], upto: int) -> None:
        """Keep what is of interest in the records; they bring the follower to offset `upto`. All of it or nothing."""
        raise NotImplementedError

    def idle(self) -> None:
        """Called after each look at the journal: time for upkeep."""

    def passed(self) -> int:
        """The offset up to which the journal is no longer needed."""
        raise NotImplementedError

    def close(self) -> None:
        pass


def prepare() -> None:
    """To be called first, by every follower."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the broker says when to stop
    os.umask(0o077)
    with suppress(OSError):
        os.nice(5)  # whoever waits for the broker comes first


def run(follower: Follower) -> int:
    """Follow until the life line ends. Problems are reported, and tried again for as long as they last."""
    known = ""
    while True:
        try:
            follow(follower)
            return 0
        except (StoreError, OSError) as error:
            if str(error) != known:
                known = str(error)
                report(problem=known)
        if not wait(RETRY_S):
            return 1


def follow(follower: Follower) -> None:
    """Take in what comes until the life line ends, or raise."""
    reader = Reader(follower.folder.journal, follower.open(), follower.folder.quarantine)
    try:
        watermark = Watermark(follower.folder.journal)
        report(at=reader.last, passed=follower.passed())
        while wait(follower.interval_s):
            catch_up(follower, reader, watermark)
            follower.idle()
        catch_up(follower, reader, watermark)
    finally:
        reader.close()
        follower.close()


def catch_up(follower: Follower, reader: Reader, watermark: Watermark) -> None:
    limit = watermark.get()
    while records := reader.read(limit, follower.batch_bytes):
        for damage in reader.damage:
            report(loss=str(damage))
        reader.damage.clear()
        sound = sound_only(records)
        if len(sound) < len(records):
            report(loss=f"{len(records) - len(sound)} records up to offset {reader.last} lack part of their fields")
        follower.take(sound, reader.last)
        report(at=reader.last, passed=follower.passed(), count=len(records))


def wait(seconds: float) -> bool:
    """Pause; False when the life line ended."""
    deadline = time.monotonic() + seconds
    while True:
        ready, _, _ = select.select([sys.stdin], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return True
        if not os.read(sys.stdin.fileno(), 4096):
            return False


def report(**values: object) -> None:
    try:
        sys.stdout.write(json.dumps(values) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:  # the broker is gone; the life line ends as well
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115


def folder_from_arguments() -> DataFolder:
    return DataFolder(Path(sys.argv[1]))
