"""Records to rows and back, column by column."""

from datetime import UTC, datetime, timedelta, timezone

import pyarrow as pa
import pytest

from holdfast.broker.message import CLEARED, REFUSED_BUDGET, Publisher
from holdfast.broker.records import Columns, Publishers, decode_publish, encode_publish
from holdfast.history.rows import batch_of, records_of
from holdfast.history.schema import arrow_schema, log_bound
from holdfast.protocol.mqtt.properties import Properties, encode_properties
from log_records import NOW_MS, live, message, retained


def rows(*records: bytes, after: int = 0) -> list[dict[str, object]]:
    columns = Columns()
    columns.add_all(list(records), after)
    batch = batch_of(columns)
    assert batch.schema == arrow_schema()
    batch.validate(full=True)
    found: list[dict[str, object]] = batch.to_pylist()
    return found


def forwarded(**values: object) -> bytes:
    properties = Properties()
    for name, value in values.items():
        setattr(properties, name, value)
    return encode_properties(properties)[1:]


def test_a_publish_becomes_a_row_with_every_column() -> None:
    properties = forwarded(
        payload_format=1,
        content_type="text/plain",
        response_topic=b"answer/here",
        correlation_data=b"\x00\xff",
        user_properties=[("k", "v"), ("k", "again")],
    )
    (row,) = rows(
        retained("a/ü", b"\x00payload", 42, qos=2, expires_at_ms=NOW_MS + 1500, properties=properties, at_ms=NOW_MS)
    )
    assert row == {
        "offset": 42,
        "timestamp": datetime.fromtimestamp(NOW_MS / 1000, UTC),
        "topic": "a/ü",
        "payload": b"\x00payload",
        "qos": 2,
        "retain": True,
        "client_id": "alice-1",
        "username": "alice",
        "protocol": "5.0",
        "expires_at": datetime.fromtimestamp((NOW_MS + 1500) / 1000, UTC),
        "content_type": "text/plain",
        "response_topic": "answer/here",
        "correlation_data": b"\x00\xff",
        "payload_format": 1,
        "user_properties": [{"key": "k", "value": "v"}, {"key": "k", "value": "again"}],
        "outcome": "set",
    }


def test_what_a_publish_does_not_have_is_null() -> None:
    bob = Publisher("bob", "", "3.1.1")
    (row,) = rows(live("t", b"", 1, publisher=bob, qos=0))
    absent = ("username", "expires_at", "content_type", "response_topic", "correlation_data", "payload_format")
    assert [row[name] for name in (*absent, "user_properties")] == [None] * 7
    assert (row["client_id"], row["protocol"], row["outcome"], row["retain"]) == ("bob", "3.1.1", "live", False)


def test_properties_stay_with_their_rows() -> None:
    found = rows(
        retained("a", b"1", 1),
        retained("b", b"2", 2, properties=forwarded(content_type="x")),
        retained("c", b"3", 3),
        retained("d", b"4", 4, properties=forwarded(content_type="y", payload_format=0)),
    )
    assert [(r["topic"], r["content_type"], r["payload_format"]) for r in found] == [
        ("a", None, None),
        ("b", "x", None),
        ("c", None, None),
        ("d", "y", 0),
    ]


def test_each_row_has_its_own_publisher() -> None:
    clients = [Publisher(f"c{i % 3}", f"u{i % 2}" if i % 2 else "", "5.0") for i in range(10)]
    found = rows(*(retained("t", b"x", i + 1, publisher=c) for i, c in enumerate(clients)))
    assert [(r["client_id"], r["username"] or "") for r in found] == [(c.client_id, c.username) for c in clients]


def test_outcomes_are_words() -> None:
    found = rows(
        retained("t", b"", 1, outcome=CLEARED), retained("t", b"x", 2, outcome=REFUSED_BUDGET), live("t", b"x", 3)
    )
    assert [r["outcome"] for r in found] == ["cleared", "refused_budget", "live"]


def test_only_publishes_meant_for_history_and_not_yet_there_become_rows() -> None:
    from holdfast.broker.session_records import encode_session_ended

    hidden = encode_publish(message("t", b"x", 3), 1, history=False, kept=False)
    found = rows(retained("t", b"x", 1), retained("t", b"x", 2), hidden, encode_session_ended(4, 1), after=1)
    assert [r["offset"] for r in found] == [2]


def test_rows_become_the_records_that_made_them() -> None:
    properties = forwarded(content_type="c", user_properties=[("a", "b")])
    made = [
        retained("t/1", b"one", 5, qos=2, expires_at_ms=NOW_MS + 9999, properties=properties),
        retained("t/2", b"two", 9, publisher=Publisher("x", "", "SN1.2")),
    ]
    table = pa.Table.from_pylist(rows(*made), schema=arrow_schema())
    back = [decode_publish(record, Publishers()) for record in records_of(table)]
    for was, is_now in zip((decode_publish(r, Publishers()) for r in made), back, strict=True):
        for name in ("topic", "payload", "qos", "retain", "properties", "offset", "stored_at_ms", "expires_at_ms"):
            assert getattr(is_now, name) == getattr(was, name), name
        assert is_now.publisher.client_id == was.publisher.client_id
        assert is_now.publisher.protocol == was.publisher.protocol


@pytest.mark.parametrize(
    ("microsecond", "low", "high"),
    [(0, ".000Z", ".000Z"), (1000, ".001Z", ".001Z"), (1001, ".001Z", ".002Z"), (999_999, ".999Z", ".000Z")],
)
def test_the_bounds_of_a_column_are_never_rounded_inwards(microsecond: int, low: str, high: str) -> None:
    """Or a reader that leaves out files by their bounds would miss rows."""
    moment = datetime(2026, 1, 2, 3, 4, 5, microsecond, timezone(timedelta(hours=2)))
    later = 6 if microsecond == 999_999 else 5
    assert log_bound(moment, up=False) == f"2026-01-02T01:04:05{low}"
    assert log_bound(moment, up=True) == f"2026-01-02T01:04:0{later}{high}"


@pytest.mark.parametrize("value", ["topic", 7, None])
def test_a_bound_that_is_no_time_is_told_as_it_is(value: object) -> None:
    assert log_bound(value, up=True) is value
