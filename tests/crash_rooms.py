"""Programs that tests kill: the disk rooms at work, each in a process of its own.

python tests/crash_rooms.py recover FOLDER STEP     take up the folder, and die at that step (0: not at all)
python tests/crash_rooms.py history FOLDER          write, compact, drop and vacuum history until killed
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.broker.message import CLEARED
from holdfast.history import upkeep
from holdfast.history.compaction import compact
from holdfast.history.writer import HistoryWriter
from holdfast.journal.disk import Disk
from holdfast.journal.reader import Reader
from holdfast.journal.writer import Options
from holdfast.state.store import StateStore
from holdfast.storage.folder import DataFolder
from holdfast.storage.recovery import Recovered, recover
from log_records import retained

DIED = 9
OPTIONS = Options(segment_bytes=3000, spare_within_s=0.0, allocate_bytes=4096, background_sync_s=0.0)
ROWS = 40  # of a history commit


class Steps:
    """Counts the steps of whatever it was put around, and ends the process between two of them."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.count = 0

    def step(self) -> None:
        self.count += 1
        if self.count == self.last:
            os._exit(DIED)

    def around(self, owner: type, name: str) -> None:
        """Before and after each call of a method is a step."""
        method: Callable[..., Any] = getattr(owner, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.step()
            result = method(*args, **kwargs)
            self.step()
            return result

        setattr(owner, name, counted)


def take_up(folder: DataFolder) -> Recovered:
    return recover(folder, history=True, schedule=lambda action: action(), options=OPTIONS)


def run_recovery(folder: DataFolder, last: int) -> None:
    steps = Steps(last)
    steps.around(DataFolder, "move_to_quarantine")
    steps.around(Reader, "set_aside")
    for name in ("fill", "apply"):
        steps.around(StateStore, name)
    for name in ("truncate", "sync", "remove", "create", "allocate", "write", "sync_folder"):
        steps.around(Disk, name)
    recovered = take_up(folder)
    recovered.store.close()
    print(steps.count, flush=True)


def record(offset: int) -> bytes:
    topic = f"t/{offset * 7 % 23}"
    if offset % 6 == 0:
        return retained(topic, b"", offset, outcome=CLEARED)
    return retained(topic, b"%d" % offset, offset)


def run_history(folder: DataFolder) -> None:
    writer = HistoryWriter(folder.history, folder.quarantine)
    print("ready", flush=True)
    while True:
        first = writer.last + 1
        writer.append([record(o) for o in range(first, first + ROWS)], first + ROWS - 1)
        commits = first // ROWS
        print(commits, flush=True)
        if commits % 5 == 0:
            compact(writer.table, folder.history)
        if commits % 7 == 0:
            upkeep.retain(writer.table, upkeep.Limits(size=20_000), int(time.time() * 1000))
        if commits % 9 == 0:
            upkeep.vacuum(writer.table, keep_hours=0)
        if commits % 4 == 0:
            writer.sync(time.time())


if __name__ == "__main__":
    where = DataFolder(Path(sys.argv[2]))
    if sys.argv[1] == "recover":
        run_recovery(where, int(sys.argv[3]))
    else:
        run_history(where)
