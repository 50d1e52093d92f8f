"""Random publishes as history rows, the ten-line fold they are checked against, and tables made of them.

The rows are what a broker would have written: a small model of its limits decides each verdict, so that every outcome
occurs. The fold under test never sees the model, only the rows.
"""

import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

from holdfast.history.schema import WRITER_APP_ID, arrow_schema

Row = dict[str, Any]
START = datetime(2026, 3, 1, 8, 0, tzinfo=UTC)
PROTOCOLS = ("3.1.1", "5.0", "SN1.2", "SN2.0", "api")


def publishes(count: int, topics: int, seed: int, first: int = 1, start: datetime = START) -> list[Row]:
    """Sets, clears, live messages, expiries, properties and every refusal, in offset order."""
    rng = random.Random(seed)
    names = [_topic(rng, index) for index in range(topics)]
    held: dict[str, datetime | None] = {}
    limit = max(4, topics // 2)
    now = start
    rows = []
    for offset in range(first, first + count):
        # several rows share a moment: order is the offset's, not the clock's
        now += timedelta(microseconds=rng.choice((0, 0, 1, 250, 40_000)))
        topic = names[min(int(rng.expovariate(4 / topics)), topics - 1)] if rng.random() < 0.7 else rng.choice(names)
        retain = rng.random() < 0.7
        payload = b"" if rng.random() < 0.15 else _payload(rng, offset)
        expires_at = now + timedelta(milliseconds=rng.choice((1, 500, 60_000))) if rng.random() < 0.2 else None
        outcome = "live"
        if retain:
            held = (
                {key: until for key, until in held.items() if until is None or until > now}
                if rng.random() < 0.01
                else held
            )
            if not payload:
                outcome = "cleared"
                held.pop(topic, None)
            elif len(payload) > 90:
                outcome = "refused_size"
            elif topic.endswith("/set"):
                outcome = "refused_policy"
            elif rng.random() < 0.01:
                outcome = "refused_budget"
            elif topic not in held and len(held) >= limit:
                outcome = "refused_count"
            else:
                outcome = "set"
                held[topic] = expires_at
        version5 = rng.random() < 0.5
        rows.append(
            {
                "offset": offset,
                "timestamp": now,
                "topic": topic,
                "payload": payload,
                "qos": rng.randrange(3),
                "retain": retain,
                "client_id": f"client-{rng.randrange(20)}",
                "username": rng.choice((None, "ada", "bob")),
                "protocol": rng.choice(PROTOCOLS),
                "expires_at": expires_at,
                "content_type": "application/json" if version5 and rng.random() < 0.3 else None,
                "response_topic": "answers/1" if version5 and rng.random() < 0.1 else None,
                "correlation_data": rng.randbytes(4) if version5 and rng.random() < 0.1 else None,
                "payload_format": rng.choice((0, 1)) if version5 else None,
                "user_properties": [{"key": "k", "value": str(offset)}] if version5 and rng.random() < 0.2 else [],
                "outcome": outcome,
            }
        )
    return rows


def _topic(rng: random.Random, index: int) -> str:
    if index % 53 == 52:
        return f"$internal/{index}"
    leaf = rng.choice(("temp", "state", "set", "größe", "a b"))
    return f"site/{index % 5}/line/{index % 3}/dev{index}/{leaf}"


def _payload(rng: random.Random, offset: int) -> bytes:
    kind = rng.randrange(4)
    if kind == 0:
        return str(rng.randrange(-1000, 1000) / 10).encode()
    if kind == 1:
        return b'{"v": %d, "n": %d}' % (rng.randrange(100), offset)
    if kind == 2:
        return rng.randbytes(rng.randrange(1, 100))
    return b"on" if rng.random() < 0.5 else b"off"


def oracle(rows: Iterable[Row], offset: int | None = None, moment: datetime | None = None) -> dict[str, Row]:
    """The retained set after this offset or moment, said as plainly as possible: the third opinion."""
    held: dict[str, Row] = {}
    last = START
    for row in rows:
        if (offset is not None and row["offset"] > offset) or (moment is not None and row["timestamp"] > moment):
            break
        last = row["timestamp"]
        if row["outcome"] == "set":
            held[row["topic"]] = row
        elif row["outcome"] == "cleared":
            held.pop(row["topic"], None)
    at = moment or last
    return {topic: row for topic, row in held.items() if row["expires_at"] is None or row["expires_at"] > at}


def write_history(path: Path, rows: list[Row], files: int = 1) -> str:
    """Append rows to a history table, in this many commits, as the broker's writer does."""
    size = max(1, -(-len(rows) // files))
    for at in range(0, len(rows), size):
        part = rows[at : at + size]
        write_deltalake(
            path,
            pa.Table.from_pylist(part, schema=arrow_schema()),
            mode="append",
            commit_properties=CommitProperties(app_transactions=[Transaction(WRITER_APP_ID, part[-1]["offset"])]),
        )
    return str(path)
