"""A broker in this process, without sockets and without a disk, for tests of what is built around one.

The only place where tests name the driver of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast.broker.core import Broker
from holdfast.broker.settings import Settings
from holdfast.net.driver import Driver
from holdfast.service.caller import OPERATOR
from holdfast.service.history import HistoryService
from holdfast.service.live import LiveSource
from holdfast.service.requests import Publication
from holdfast.service.retained import Published, RetainedService

NOW_MS = 1_700_000_000_000

T = TypeVar("T")


class ToldDriver(Driver):
    """Time moves when it is told to."""

    told_ms = NOW_MS

    def now_ms(self) -> int:
        return self.told_ms


class InProcess:
    def __init__(self, settings: Settings) -> None:
        self.handle = ToldDriver(Broker(settings, "auto-"), asyncio.get_running_loop())
        self.broker = self.handle.broker
        self.source = LiveSource(self.handle)
        self.retained = RetainedService(self.source, HistoryService(self.source))

    async def set(self, *topics: str, payload: str = "1", **fields: object) -> Published:
        given = [{"topic": topic, "payload": payload, "retain": True, "qos": 1, **fields} for topic in topics]
        return await self.retained.publish([Publication.model_validate(one) for one in given], OPERATOR)

    def topics(self) -> list[str]:
        cursor = self.source.index.everything()
        found = []
        while not cursor.ended:
            message = cursor.next(1 << 30)
            if message is not None and not message.expired(self.handle.told_ms):
                found.append(message.topic.decode())
        self.source.index.release(cursor)
        return sorted(found)


def with_broker(act: Callable[[InProcess], Awaitable[T]], settings: Settings | None = None) -> T:
    """Run `act` beside a broker, and return what it returns."""

    async def run() -> T:
        return await act(InProcess(settings if settings is not None else Settings()))

    return asyncio.run(run())
