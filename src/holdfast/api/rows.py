"""Rows of the history as JSON, and what one delete took away: for the API, and for the command line on a folder."""

import base64
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.api.message import iso, preview_of, text_of

if TYPE_CHECKING:
    from holdfast.history.reader import HistoryReader

PROTOCOL = "api"


def ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def whole_row(row: dict[str, Any]) -> dict[str, object]:
    """A row of the history as JSON."""
    payload: bytes = row["payload"]
    data = row["correlation_data"]
    expires_at_ms = None if row["expires_at"] is None else ms(row["expires_at"])
    stored_at_ms = ms(row["timestamp"])
    return {
        "topic": row["topic"],
        "version": row["offset"],
        "outcome": row["outcome"],
        "retain": row["retain"],
        "size": len(payload),
        "qos": row["qos"],
        "stored_at": iso(stored_at_ms),
        "stored_at_ms": stored_at_ms,
        "expires_at": None if expires_at_ms is None else iso(expires_at_ms),
        "expires_at_ms": expires_at_ms,
        "publisher": {
            "client_id": row["client_id"] or "",
            "username": row["username"] or "",
            "protocol": row["protocol"],
        },
        "preview": preview_of(payload),
        "payload": base64.b64encode(payload).decode(),
        "text": text_of(payload),
        "content_type": row["content_type"],
        "response_topic": row["response_topic"],
        "correlation_data": None if data is None else base64.b64encode(data).decode(),
        "payload_format": row["payload_format"],
        "user_properties": [[pair["key"], pair["value"]] for pair in row["user_properties"] or []],
    }


def removed_by(reader: "HistoryReader", operation: str) -> list[dict[str, Any]]:
    """For each topic that the operation cleared, the row that had set it."""
    import pyarrow.compute as pc

    from holdfast.history.reader import last_verdicts
    from holdfast.history.schema import OUTCOME_CLEARED, OUTCOME_SET

    data = reader.table.to_pyarrow_dataset()
    mine = (pc.field("client_id") == operation) & (pc.field("protocol") == PROTOCOL)
    cleared = data.to_table(columns=["offset", "topic"], filter=mine & (pc.field("outcome") == OUTCOME_CLEARED))
    if cleared.num_rows == 0:
        return []
    first = pc.min(cleared["offset"]).as_py()
    wanted = pc.field("topic").isin(cleared["topic"].combine_chunks()) & (pc.field("offset") < first)
    verdict = pc.field("outcome").isin([OUTCOME_SET, OUTCOME_CLEARED])
    rows = last_verdicts(data.to_table(filter=wanted & verdict))
    found: list[dict[str, Any]] = rows.filter(pc.equal(rows["outcome"], OUTCOME_SET)).to_pylist()
    return found
