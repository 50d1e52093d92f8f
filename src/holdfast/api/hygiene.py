"""What in the retained set is worth a look: one walk over all of it, in portions, kept for a moment."""

import asyncio
import json
import time
from heapq import nlargest
from typing import Any

from holdfast.api.desk import Desk
from holdfast.api.listing import PORTION
from holdfast.api.message import iso, summary_of
from holdfast.broker.message import Message
from holdfast.broker.views import Survey, Total, survey_some

DAY_MS = 86_400_000
FRESH_S = 10.0


class Hygiene:
    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.known: dict[tuple[float, float, int, int], tuple[float, dict[str, object]]] = {}
        self.lock = asyncio.Lock()

    async def report(self, days: float, expiring_s: float, depth: int, limit: int) -> dict[str, object]:
        key = (days, expiring_s, depth, limit)
        async with self.lock:
            known = self.known.get(key)
            if known is not None and known[0] + FRESH_S > time.monotonic():
                return known[1]
            found = await self.look(days, expiring_s, depth, limit)
            self.known = {key: (time.monotonic(), found)}
            return found

    async def look(self, days: float, expiring_s: float, depth: int, limit: int) -> dict[str, object]:
        now_ms = self.desk.now_ms()
        stale_before_ms = now_ms - int(days * DAY_MS)
        survey = Survey(now_ms, stale_before_ms, now_ms + int(expiring_s * 1000), depth, limit)
        index = self.desk.broker.retained.index
        cursor = index.cursor(b"#", self.desk.broker.offset)
        try:
            while not cursor.ended:
                survey_some(cursor, survey, PORTION)
                await asyncio.sleep(0)
        finally:
            index.release(cursor)
        return {
            "days": days,
            "count": survey.all.count,
            "bytes": survey.all.size,
            "stale": part(survey.stale_total, survey.stale),
            "publishers": self.absent(survey, stale_before_ms, limit),
            "discovery": self.lost_discovery(survey.discovery, limit),
            "subtrees": largest(survey.subtrees, limit),
            "commands": part(survey.commands_total, survey.commands),
            "expiring": part(survey.expiring_total, sorted(survey.expiring, key=lambda m: m.expires_at_ms)),
        }

    def absent(self, survey: Survey, before_ms: int, limit: int) -> list[dict[str, object]]:
        """Publishers without a session whose last retained message is older than that."""
        sessions = self.desk.broker.sessions
        gone = [
            (client_id, total)
            for client_id, total in survey.publishers.items()
            if total.newest_ms < before_ms and client_id and client_id not in sessions
        ]
        gone.sort(key=lambda one: one[1].newest_ms)
        return [
            {
                "client_id": client_id,
                "last_write": iso(total.newest_ms),
                "last_write_ms": total.newest_ms,
                "count": total.count,
                "bytes": total.size,
                "sample": total.sample.decode(),
            }
            for client_id, total in gone[:limit]
        ]

    def lost_discovery(self, found: list[Message], limit: int) -> list[dict[str, object]]:
        """Home Assistant discovery configurations that name a state topic on which nothing is retained."""
        lost: list[dict[str, object]] = []
        for message in found:
            topic = state_topic(message.payload)
            if topic and self.desk.broker.retained.get(topic.encode(), self.desk.now_ms()) is None:
                lost.append({**summary_of(message), "state_topic": topic})
                if len(lost) == limit:
                    break
        return lost


def part(total: Total, messages: list[Message]) -> dict[str, object]:
    return {"count": total.count, "bytes": total.size, "messages": [summary_of(message) for message in messages]}


def largest(totals: dict[bytes, Total], limit: int) -> list[dict[str, object]]:
    return [
        {"prefix": prefix.decode(), "count": total.count, "bytes": total.size}
        for prefix, total in nlargest(limit, totals.items(), key=lambda one: one[1].size)
    ]


def state_topic(payload: bytes) -> str:
    """The state topic that a discovery configuration names, long or short form, `~` filled in; empty when none."""
    try:
        config: Any = json.loads(payload)
    except ValueError:
        return ""
    if not isinstance(config, dict):
        return ""
    topic = config.get("state_topic") or config.get("stat_t")
    base = config.get("~")
    if not isinstance(topic, str):
        return ""
    if isinstance(base, str):
        topic = base + topic[1:] if topic.startswith("~") else topic[:-1] + base if topic.endswith("~") else topic
    try:
        topic.encode()
    except UnicodeEncodeError:
        return ""
    return topic
