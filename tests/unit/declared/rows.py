"""Rows of history, as a step of a declared table is given them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from holdfast.history.schema import arrow_schema

START = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)


def history(*messages: tuple[Any, ...], first: int = 1) -> pa.Table:
    """Rows of (topic, payload[, outcome[, seconds]]), from this offset on."""
    rows = []
    for offset, (topic, payload, *rest) in enumerate(messages, first):
        outcome, seconds = (*rest, "live", 0)[:2] if len(rest) != 1 else (rest[0], 0)
        at = START + timedelta(seconds=seconds)
        row = {"offset": offset, "timestamp": at, "topic": topic, "payload": payload, "outcome": outcome}
        rows.append({**row, "qos": 1, "retain": False, "protocol": "5.0", "client_id": f"c{offset}"})
    return pa.Table.from_pylist(rows, schema=arrow_schema())
