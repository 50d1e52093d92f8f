"""What in the retained set is worth a look: one walk over all of it, in portions, kept for a moment."""

import asyncio
import time

from holdfast.api import survey as surveys
from holdfast.api.desk import Desk
from holdfast.api.listing import PORTION
from holdfast.broker.message import Message
from holdfast.broker.views import survey_some

FRESH_S = 10.0


class Hygiene:
    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.known: dict[tuple[float, float, int, int], tuple[float, dict[str, object]]] = {}
        self.lock = asyncio.Lock()

    async def report(self, days: float, expiring_s: float, depth: int, limit: int) -> dict[str, object]:
        key = (days, expiring_s, depth, limit)
        async with self.lock:  # a second caller waits for the first one's walk instead of making its own
            known = self.known.get(key)
            version = self.desk.broker.retained.version
            if known is not None and known[0] + FRESH_S > time.monotonic() and known[1]["version"] == version:
                return known[1]
            found = await self.look(days, expiring_s, depth, limit)
            found["version"] = version
            self.known = {key: (time.monotonic(), found)}
            return found

    async def look(self, days: float, expiring_s: float, depth: int, limit: int) -> dict[str, object]:
        survey = surveys.begin(self.desk.now_ms(), days, expiring_s, depth, limit)
        index = self.desk.broker.retained.index
        cursor = index.cursor(b"#", self.desk.broker.log.position)
        try:
            while not cursor.ended:
                survey_some(cursor, survey, PORTION)
                await asyncio.sleep(0)
        finally:
            index.release(cursor)
        return surveys.report(survey, days, limit, self.desk.broker.sessions, self.get)

    def get(self, topic: bytes) -> Message | None:
        return self.desk.broker.retained.get(topic, self.desk.now_ms())
