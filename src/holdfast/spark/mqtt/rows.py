"""MQTT messages as rows of the history's columns, so that what was written for history works on them."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import paho.mqtt.client as paho
import pyarrow as pa

from holdfast.history.schema import OUTCOME_CLEARED, OUTCOME_LIVE, OUTCOME_SET, arrow_schema

META = ("hf-offset", "hf-stored-at", "hf-publisher")


def row_of(message: paho.MQTTMessage, version: int, offset: int | None = None) -> dict[str, Any]:
    """A received message. What the broker did not say is null; the time is the arrival's unless it said better."""
    properties = message.properties
    pairs = list(getattr(properties, "UserProperty", [])) if properties is not None else []
    meta = {key: value for key, value in pairs if key in META}
    now = datetime.fromtimestamp(time.time_ns() // 1000 / 1_000_000, UTC)
    expiry = getattr(properties, "MessageExpiryInterval", None)
    payload = bytes(message.payload)
    return {
        "offset": offset if offset is not None else _number(meta.get("hf-offset")),
        "timestamp": _time(meta.get("hf-stored-at")) or now,
        "topic": message.topic,
        "payload": payload,
        "qos": message.qos,
        "retain": bool(message.retain),
        "client_id": meta.get("hf-publisher"),
        "username": None,
        "protocol": "5.0" if version == paho.MQTTv5 else "3.1.1",
        "expires_at": None if expiry is None else now + timedelta(seconds=expiry),
        "content_type": getattr(properties, "ContentType", None),
        "response_topic": getattr(properties, "ResponseTopic", None),
        "correlation_data": getattr(properties, "CorrelationData", None),
        "payload_format": getattr(properties, "PayloadFormatIndicator", None),
        "user_properties": [{"key": key, "value": value} for key, value in pairs if key not in META],
        "outcome": OUTCOME_LIVE if not message.retain else OUTCOME_SET if payload else OUTCOME_CLEARED,
    }


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _time(text: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None


def batch_of(rows: list[dict[str, Any]], columns: list[str]) -> pa.RecordBatch:
    schema = pa.schema([arrow_schema().field(name) for name in columns])
    return pa.RecordBatch.from_pylist(rows, schema=schema)
