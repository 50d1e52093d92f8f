"""An event loop whose clock is told how much time has passed, and a driver that goes by it."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from contextvars import Context
from typing import TypeVarTuple

from holdfast.net.driver import Driver

START_MS = 1_700_000_000_000
Ts = TypeVarTuple("Ts")


class ToldLoop(asyncio.AbstractEventLoop):
    """Runs what is due when it is told how much time has passed."""

    def __init__(self) -> None:
        self.now = 100.0
        self.order = itertools.count()
        self.timers: list[tuple[float, int, asyncio.TimerHandle]] = []

    def time(self) -> float:
        return self.now

    def get_debug(self) -> bool:
        return False

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(self.now + delay, callback, args, self)
        heapq.heappush(self.timers, (handle.when(), next(self.order), handle))
        return handle

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_later(0, callback, *args)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Asked for by the handle; what is cancelled stays in the heap and is passed over."""

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while self.timers and self.timers[0][0] <= end:
            self.now, _, handle = heapq.heappop(self.timers)
            if not handle.cancelled():
                handle._run()
        self.now = end


class ToldDriver(Driver):
    def now_ms(self) -> int:
        return START_MS + int(self.loop.time() * 1000)
