"""Records to rows and back: publishes of the log as a batch of the history table, column by column."""

import pyarrow as pa

from holdfast.broker.message import OUTCOMES, SET
from holdfast.broker.records import Columns, encode_publish
from holdfast.errors import ProtocolError
from holdfast.history.messages import message_of
from holdfast.history.schema import arrow_schema
from holdfast.protocol.mqtt.packets import PUBLISH
from holdfast.protocol.mqtt.properties import Properties, decode_properties
from holdfast.protocol.wire import Reader, encode_varint

SCHEMA = arrow_schema()
MICROSECONDS = pa.timestamp("us", tz="UTC")


def batch_of(columns: Columns) -> pa.RecordBatch:
    """The rows of the columns, in their order."""
    count = len(columns)
    protocols, client_ids, usernames = publishers_of(columns)
    properties = [(row, decode_forwarded(data)) for row, data in columns.properties.items()]
    arrays = {
        "offset": pa.array(columns.offsets, pa.int64()),
        "timestamp": timestamps(columns.stored_at_ms),
        "topic": pa.array(columns.topics, pa.binary()).cast(pa.string()),
        "payload": pa.array(columns.payloads, pa.binary()),
        "qos": pa.array(columns.qos, pa.int8()),
        "retain": pa.array(columns.retains, pa.bool_()),
        "client_id": client_ids,
        "username": usernames,
        "protocol": protocols,
        "expires_at": timestamps([at or None for at in columns.expires_at_ms]),
        "content_type": sparse(count, [(row, p.content_type) for row, p in properties], pa.string()),
        "response_topic": sparse(count, [(row, text(p.response_topic)) for row, p in properties], pa.string()),
        "correlation_data": sparse(count, [(row, p.correlation_data) for row, p in properties], pa.binary()),
        "payload_format": sparse(count, [(row, p.payload_format) for row, p in properties], pa.int8()),
        "user_properties": sparse(
            count, [(row, p.user_properties) for row, p in properties], SCHEMA.field("user_properties").type
        ),
        "outcome": pa.array(OUTCOMES, pa.string()).take(pa.array(columns.outcomes, pa.int8())),
    }
    return pa.record_batch([arrays[name] for name in SCHEMA.names], schema=SCHEMA)


def publishers_of(columns: Columns) -> tuple[pa.Array, pa.Array, pa.Array]:
    """(protocol, client id, user name) of every row; each publisher is decoded once."""
    protocols: list[str] = []
    client_ids: list[str] = []
    usernames: list[str | None] = []
    for origin in columns.origins:
        protocol, client_id, username = origin.decode().split("\0")
        protocols.append(protocol)
        client_ids.append(client_id)
        usernames.append(username or None)
    numbers = pa.array(columns.origin_numbers, pa.int32())
    return (
        pa.array(protocols, pa.string()).take(numbers),
        pa.array(client_ids, pa.string()).take(numbers),
        pa.array(usernames, pa.string()).take(numbers),
    )


def timestamps(values_ms: "list[int] | list[int | None]") -> pa.Array:
    return pa.array(values_ms, pa.int64()).cast(pa.timestamp("ms", tz="UTC")).cast(MICROSECONDS)


def sparse(count: int, values: "list[tuple[int, object]]", kind: pa.DataType) -> pa.Array:
    """A column in which few rows have a value."""
    values = [(row, value) for row, value in values if value is not None]
    if not values:
        return pa.nulls(count, kind)
    column: list[object] = [None] * count
    for row, value in values:
        column[row] = value
    return pa.array(column, kind)


def text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def decode_forwarded(data: bytes) -> Properties:
    try:
        properties = decode_properties(Reader(encode_varint(len(data)) + data), PUBLISH)
    except ProtocolError:
        properties = None  # the row is kept without them rather than lost
    return properties if properties is not None else Properties()


def records_of(rows: pa.Table) -> list[bytes]:
    """Rows of retained messages as the records that would have made them, in offset order."""
    records: list[bytes] = []
    for row in rows.sort_by("offset").to_pylist():
        records.append(encode_publish(message_of(row), SET, False, False))
    return records
