"""What the history's follower does with records: rows, and the upkeep of the table."""

import time
from collections.abc import Callable

from holdfast.history import upkeep
from holdfast.history.writer import HistoryWriter
from holdfast.storage.folder import DataFolder
from holdfast.storage.follower import Follower, report

SYNC_EVERY_S = 10.0
COMPACT_EVERY_S = 60.0
RETAIN_EVERY_S = 300.0
VACUUM_EVERY_S = 600.0


class HistoryKeeper(Follower):
    """Rows up to offset `reached` are committed, those up to `safe` survive a power cut."""

    batch_bytes = 32 << 20  # a commit each
    writer: HistoryWriter
    reached = 0
    safe = 0

    def __init__(self, folder: DataFolder, flush_interval_s: float, limits: upkeep.Limits) -> None:
        super().__init__(folder)
        self.interval_s = flush_interval_s
        self.limits = limits
        now = time.monotonic()
        self.due = {"sync": now, "compact": now + 30, "retain": now + 45, "vacuum": now + VACUUM_EVERY_S}

    def open(self) -> int:
        self.writer = HistoryWriter(self.folder.history, self.folder.quarantine, self.folder.journal_keeps_from())
        if self.writer.mended:
            report(note=self.writer.mended)
        self.reached = self.writer.last
        self.sync()
        return self.writer.last

    def take(self, records: list[bytes], upto: int) -> None:
        report(rows=self.writer.append(records, upto))
        self.reached = upto

    def passed(self) -> int:
        return self.safe

    def idle(self) -> None:
        self.every("sync", SYNC_EVERY_S, self.sync)
        self.every("compact", COMPACT_EVERY_S, lambda: upkeep.compact(self.writer.table))
        self.every("retain", RETAIN_EVERY_S, self.retain)
        self.every("vacuum", VACUUM_EVERY_S, lambda: upkeep.vacuum(self.writer.table))

    def every(self, name: str, seconds: float, work: Callable[[], object]) -> None:
        if time.monotonic() >= self.due[name]:
            work()
            self.due[name] = time.monotonic() + seconds

    def sync(self) -> None:
        self.writer.sync(time.time())
        if self.safe != self.reached:
            self.safe = self.reached
            report(passed=self.safe)

    def retain(self) -> None:
        dropped = upkeep.retain(self.writer.table, self.limits, int(time.time() * 1000))
        if dropped:
            report(note=f"history dropped {dropped} rows that were past its retention")

    def close(self) -> None:
        self.writer.close()
