"""What the broker takes of its machine, and what waits in it: memory, disk, queues. Worked out when it is asked for,
and kept for a moment, so that many pages cost no more than one.
"""

import asyncio
import os
import shutil
import time
from dataclasses import dataclass, field
from heapq import nlargest
from pathlib import Path

from holdfast.api.status import ServerStatus

FRESH_S = 2.0
SIZES_FRESH_S = 60.0
PORTION = 5000
DEEPEST = 5
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass
class Resources:
    status: ServerStatus
    known: dict[str, object] = field(default_factory=dict)
    known_at: float = -FRESH_S
    sizes: dict[str, int] = field(default_factory=dict)
    sizes_at: float = -SIZES_FRESH_S
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def report(self) -> dict[str, object]:
        async with self.lock:
            if self.known_at + FRESH_S > time.monotonic():
                return self.known
            self.known = {
                "memory": memory(),
                "disk": await self.disk(),
                "queues": await self.queues(),
                "journal": self.journal(),
            }
            self.known_at = time.monotonic()
            return self.known

    async def disk(self) -> dict[str, object] | None:
        """None where nothing is kept on disk."""
        folder = self.status.folder
        if folder is None:
            return None
        if self.sizes_at + SIZES_FRESH_S <= time.monotonic():
            self.sizes = await asyncio.to_thread(sizes_of, folder)
            self.sizes_at = time.monotonic()
        try:
            space = shutil.disk_usage(folder)
        except OSError:
            return None
        return {"folder": str(folder), "total": space.total, "free": space.free, "parts": self.sizes}

    async def queues(self) -> dict[str, object]:
        broker = self.status.broker
        queued = queued_bytes = inflight = 0
        deep: list[tuple[int, int, str]] = []
        for number, session in enumerate(list(broker.sessions.values())):
            if number % PORTION == PORTION - 1:
                await asyncio.sleep(0)
            waiting = len(session.queue)
            if waiting:
                queued += waiting
                queued_bytes += session.queued_bytes
                deep.append((waiting, session.queued_bytes, session.client_id))
            inflight += len(session.inflight)
        return {
            "messages": queued,
            "bytes": queued_bytes,
            "inflight": inflight,
            "most_messages": broker.settings.max_queued_messages,
            "deepest": [
                {"client_id": client_id, "messages": messages, "bytes": size}
                for messages, size, client_id in nlargest(DEEPEST, deep)
            ],
        }

    def journal(self) -> dict[str, object] | None:
        journal = self.status.journal
        if journal is None:
            return None
        times = journal.sync_times
        commits = sum(times.counts)
        return {
            "healthy": journal.healthy,
            "backlog_bytes": journal.backlog,
            "sync_s": round(times.total_s / commits, 6) if commits else 0.0,
        }


def memory() -> dict[str, int]:
    """Bytes in memory, of this process and of those it has started; 0 where the system does not tell."""
    own = resident(os.getpid())
    return {"broker": own, "helpers": sum(resident(pid) for pid in children(os.getpid()))}


def resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except (OSError, IndexError, ValueError):
        return 0


def children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *children(int(child))]
    except (OSError, ValueError):
        pass
    return found


def sizes_of(folder: Path) -> dict[str, int]:
    """Bytes on disk of each part of the data folder."""
    found: dict[str, int] = {}
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return found
    for entry in entries:
        if entry.is_dir(follow_symlinks=True):
            found[entry.name] = sum(
                size_of(Path(root, name)) for root, _, names in os.walk(entry.path) for name in names
            )
    return found


def size_of(path: Path) -> int:
    """What a file takes: one that is mapped, or made long beforehand, takes less than it is long."""
    try:
        return path.lstat().st_blocks * 512
    except OSError:
        return 0
