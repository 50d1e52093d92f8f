"""What in the retained set is worth a look, by `rules.hygiene`: one walk over all of it, kept for a moment."""

import asyncio
import json
import time
from collections.abc import Container
from heapq import nlargest

from holdfast.broker.message import Message
from holdfast.broker.views import HygieneScan, Tally, scan_some
from holdfast.rules.hygiene import has_gone, is_stale, state_topic
from holdfast.service.caller import OPERATOR, Caller
from holdfast.service.messages import iso, summary_of
from holdfast.service.source import WALK_PORTION, RetainedSource

DAY_MS = 86_400_000
FRESH_S = 10.0
EXPIRING_S = 3600.0
DEPTH = 2

Key = tuple[float, float, int, int, str | None]


class HygieneService:
    def __init__(self, source: RetainedSource) -> None:
        self.source = source
        self.known: dict[Key, tuple[float, dict[str, object]]] = {}
        self.lock = asyncio.Lock()

    async def report(
        self,
        days: float,
        limit: int,
        expiring_s: float = EXPIRING_S,
        depth: int = DEPTH,
        caller: Caller = OPERATOR,
    ) -> dict[str, object]:
        """What was not written for `days`, what expires within `expiring_s`, the largest subtrees of `depth` levels and
        the rest, at most `limit` of each. A second caller waits for the first one's walk instead of making its own.
        Publishers are named to administrators.
        """
        key = (days, expiring_s, depth, limit, None if caller.admin else caller.name)
        async with self.lock:
            version = self.source.last_change
            known = self.known.get(key)
            if known is not None and known[0] + FRESH_S > time.monotonic() and known[1]["version"] == version:
                return known[1]
            await self.source.listen()
            scan = await self.scan(days, expiring_s, depth, limit)
            found = {"version": version, **self.described(scan, days, limit, caller)}
            self.known = {key: (time.monotonic(), found)}
            return found

    async def scan(self, days: float, expiring_s: float, depth: int, limit: int) -> HygieneScan:
        now_ms = self.source.now_ms()
        scan = HygieneScan(now_ms, now_ms - int(days * DAY_MS), now_ms + int(expiring_s * 1000), depth, limit)
        index = self.source.index
        cursor = index.cursor(b"#", self.source.version)
        try:
            while not cursor.ended:
                scan_some(cursor, scan, WALK_PORTION)
                await asyncio.sleep(0)
        finally:
            index.release(cursor)
        return scan

    def described(self, scan: HygieneScan, days: float, limit: int, caller: Caller) -> dict[str, object]:
        """Lists are cut at `limit`, counts are of all there are."""
        expiring = sorted(scan.expiring, key=lambda message: message.expires_at_ms)
        publishers = gone_publishers(scan, self.source.client_ids()) if caller.admin else []
        discovery = self.without_state(scan, days, caller)
        return {
            "days": days,
            "count": scan.all.count,
            "bytes": scan.all.size,
            "stale": group(scan.stale_tally, scan.stale, caller),
            "publishers": publishers[:limit],
            "publishers_count": len(publishers),
            "discovery": discovery[:limit],
            "discovery_count": len(discovery),
            "listening_since_ms": self.source.listening_since_ms,
            "subtrees": largest(scan.subtrees, limit),
            "subtrees_count": len(scan.subtrees),
            "commands": group(scan.commands_tally, scan.commands, caller),
            "expiring": group(scan.expiring_tally, expiring, caller),
        }

    def without_state(self, scan: HygieneScan, days: float, caller: Caller) -> list[dict[str, object]]:
        """Discovery configurations that name a state topic on which nothing is retained, and which nobody has
        published to for `days`, or for a day where those are fewer.
        """
        silent_before_ms = scan.now_ms - int(max(days, 1.0) * DAY_MS)
        found: list[dict[str, object]] = []
        for message in scan.discovery:
            topic = named_state(message.payload)
            if not topic or self.source.get(topic.encode()) is not None:
                continue
            heard_at_ms = self.source.heard_at_ms(topic)
            if not heard_at_ms or is_stale(heard_at_ms, silent_before_ms):
                known = {"state_topic": topic, "heard_at_ms": heard_at_ms or None}
                found.append({**summary_of(message, caller), **known})
        return found


def gone_publishers(scan: HygieneScan, sessions: Container[str]) -> list[dict[str, object]]:
    """Publishers that have gone, the longest gone first."""
    gone = [
        (client_id, tally)
        for client_id, tally in scan.publishers.items()
        if has_gone(tally.newest_ms, scan.stale_before_ms, client_id in sessions)
    ]
    gone.sort(key=lambda one: one[1].newest_ms)
    return [
        {
            "client_id": client_id,
            "last_write": iso(tally.newest_ms),
            "last_write_ms": tally.newest_ms,
            "count": tally.count,
            "bytes": tally.size,
            "sample": tally.sample.decode(),
        }
        for client_id, tally in gone
    ]


def group(tally: Tally, messages: list[Message], caller: Caller) -> dict[str, object]:
    shown = [summary_of(message, caller) for message in messages]
    return {"count": tally.count, "bytes": tally.size, "messages": shown}


def largest(tallies: dict[bytes, Tally], limit: int) -> list[dict[str, object]]:
    return [
        {"prefix": prefix.decode(), "count": tally.count, "bytes": tally.size}
        for prefix, tally in nlargest(limit, tallies.items(), key=lambda one: one[1].size)
    ]


def named_state(payload: bytes) -> str:
    """The state topic that a discovery configuration names, as far as a topic can be written so; empty when none."""
    try:
        topic = state_topic(json.loads(payload))
        topic.encode()
    except (ValueError, RecursionError):  # no JSON, nested too deep, or a lone surrogate
        return ""
    return topic
