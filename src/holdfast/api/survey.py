"""What a survey of the retained set says, as JSON: for the API, and for the command line on a data folder."""

import json
from collections.abc import Callable, Container
from heapq import nlargest
from typing import Any

from holdfast.api.message import iso, summary_of
from holdfast.broker.message import Message
from holdfast.broker.views import Survey, Total

DAY_MS = 86_400_000

Get = Callable[[bytes], Message | None]


def begin(now_ms: int, days: float, expiring_s: float, depth: int, limit: int) -> Survey:
    return Survey(now_ms, now_ms - int(days * DAY_MS), now_ms + int(expiring_s * 1000), depth, limit)


def report(survey: Survey, days: float, limit: int, sessions: Container[str], get: Get) -> dict[str, object]:
    """`sessions` are the clients that are known now; `get` looks a topic up."""
    return {
        "days": days,
        "count": survey.all.count,
        "bytes": survey.all.size,
        "stale": part(survey.stale_total, survey.stale),
        "publishers": absent(survey, sessions, limit),
        "discovery": lost_discovery(survey.discovery, get, limit),
        "subtrees": largest(survey.subtrees, limit),
        "commands": part(survey.commands_total, survey.commands),
        "expiring": part(survey.expiring_total, sorted(survey.expiring, key=lambda m: m.expires_at_ms)),
    }


def absent(survey: Survey, sessions: Container[str], limit: int) -> list[dict[str, object]]:
    """Publishers without a session whose last retained message is from long ago."""
    gone = [
        (client_id, total)
        for client_id, total in survey.publishers.items()
        if total.newest_ms < survey.stale_before_ms and client_id and client_id not in sessions
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


def lost_discovery(found: list[Message], get: Get, limit: int) -> list[dict[str, object]]:
    """Home Assistant discovery configurations that name a state topic on which nothing is retained."""
    lost: list[dict[str, object]] = []
    for message in found:
        topic = state_topic(message.payload)
        if topic and get(topic.encode()) is None:
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
