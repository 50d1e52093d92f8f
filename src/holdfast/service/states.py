"""When the state topics that discovery configurations name were last published to, retained or not.

A device whose state is never kept looks like one that has gone to somebody who sees the retained set alone. So the
broker notes a time for these topics, and only for them: others take the path they always took. The times are written
to a small file now and then, since a device may be silent for longer than the broker runs.
"""

import asyncio
import contextlib
import json
import logging
import os
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.broker.message import topic_field
from holdfast.rules.hygiene import DISCOVERY_FIRST, is_discovery
from holdfast.service.hygiene import named_state
from holdfast.service.source import WALK_PORTION, BrokerHandle

log = logging.getLogger("holdfast.api")

NAMED_MOST = 20_000
# What changed is looked at so often, and less often where there are many configurations.
REFRESH_S = 1.0
REFRESH_S_PER_CONFIG = 0.001
WRITE_EVERY_S = 300.0


@dataclass
class Noted:
    """What a file says; `since_ms` is 0 where nobody has listened yet."""

    since_ms: int = 0
    heard: dict[str, int] = field(default_factory=dict)


def read_noted(path: Path) -> Noted:
    """What was noted before; nothing where there is no such file, or one that cannot be read as one."""
    try:
        found = json.loads(path.read_bytes())
        heard = {str(topic): int(at_ms) for topic, at_ms in list(found["heard"].items())[:NAMED_MOST]}
        return Noted(int(found["since_ms"]), heard)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Noted()


class StateTopics:
    """`path` is the file; None keeps nothing beyond the process."""

    def __init__(self, handle: BrokerHandle, path: Path | None) -> None:
        self.handle = handle
        self.path = path
        self.noted = read_noted(path) if path is not None else Noted()
        self.since_ms = self.noted.since_ms or handle.now_ms()
        self.configs: dict[bytes, tuple[int, str]] = {}  # by topic: the version that was read, and what it names
        self.version = -1
        self.lock = asyncio.Lock()
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.task = self.handle.loop.create_task(self.keep_listening(), name="holdfast-states")

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
            await self.write()

    async def keep_listening(self) -> None:
        written_s = self.handle.loop.time()
        while True:
            await self.refresh()
            await asyncio.sleep(REFRESH_S + REFRESH_S_PER_CONFIG * len(self.configs))
            if written_s + WRITE_EVERY_S <= self.handle.loop.time():
                written_s = self.handle.loop.time()
                await self.write()

    async def refresh(self) -> None:
        """Listen for what is named now."""
        async with self.lock:
            broker = self.handle.broker
            if broker.retained.version == self.version:
                return
            self.version = broker.retained.version
            self.configs = await self.read_configs()
            named = {state for _, state in self.configs.values() if state}
            broker.listen_for([state.encode() for state in sorted(named)[:NAMED_MOST]])

    async def read_configs(self) -> dict[bytes, tuple[int, str]]:
        index = self.handle.broker.retained.index
        cursor = index.cursor(f"{DISCOVERY_FIRST}/#".encode(), self.handle.broker.log.position)
        found: dict[bytes, tuple[int, str]] = {}
        try:
            visits = WALK_PORTION
            while not cursor.ended:
                message = cursor.next(WALK_PORTION)
                visits -= max(1, cursor.visited)
                if visits <= 0:
                    await asyncio.sleep(0)
                    visits = WALK_PORTION
                if message is not None and is_discovery(message.topic):
                    known = self.configs.get(message.topic)
                    if known is None or known[0] != message.offset:
                        known = (message.offset, named_state(message.payload))
                    found[message.topic] = known
        finally:
            index.release(cursor)
        return found

    def heard_at_ms(self, topic: str) -> int:
        heard = self.handle.broker.heard.get(topic_field(topic.encode()))
        before = self.noted.heard.get(topic, 0)
        return max(before, heard.at_ms) if heard is not None else before

    def now_noted(self) -> Noted:
        named = sorted({state for _, state in self.configs.values() if state})[:NAMED_MOST]
        heard = {topic: at_ms for topic in named if (at_ms := self.heard_at_ms(topic))}
        return Noted(self.since_ms, heard)

    async def write(self) -> None:
        """Where no configuration names a topic, there is nothing to be kept."""
        if self.path is None or not self.configs:
            return
        noted = self.now_noted()
        if noted != self.noted:
            self.noted = noted
            await asyncio.to_thread(write_noted, self.path, noted)


def write_noted(path: Path, noted: Noted) -> None:
    """It is worth little: a disk that refuses is the journal's to report."""
    new = path.with_suffix(".new")
    try:
        new.write_text(json.dumps({"since_ms": noted.since_ms, "heard": noted.heard}))
        os.replace(new, path)
    except OSError as error:
        log.debug("cannot note which topics are alive", extra={"path": str(path), "error": str(error)})
        with contextlib.suppress(OSError):
            new.unlink()
