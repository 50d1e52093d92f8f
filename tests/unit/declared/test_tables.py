"""Each kind of table, by a few rows; and that how history is cut into batches makes no difference to any."""

import pickle
import random
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from holdfast.spark.declared import Declaration, declare
from holdfast.spark.declared.sparkplug import SCHEMA
from holdfast.spark.declared.tables import declared_tables, table_of
from holdfast.spark.derived import Batch, DerivedTable
from unit.declared.rows import START, history

BASE: dict[str, Any] = {"template": "site/{site}/{device}/drive", "decoder": "json"}
SPEED = {"site": "string", "device": "string", "speed": {"type": "double", "required": True}}


def after(table: DerivedTable, *batches: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table after these batches, as the engine would have them."""
    # what executors get has been pickled
    table = pickle.loads(pickle.dumps(table))
    held = table.schema.empty_table()
    for rows in batches:
        if rows.num_rows:
            step = table.follow(held if table.key else table.schema.empty_table(), rows, Batch(0, 0, rows.num_rows))
            assert step.schema.equals(table.schema)
            held = step if table.key else pa.concat_tables([held, step])
    return list(held.to_pylist())


def drive(device: str, payload: str, site: str = "a", outcome: str = "live", at: int = 0) -> tuple[Any, ...]:
    return f"site/{site}/{device}/drive", payload.encode(), outcome, at


def test_history_has_every_row_that_decodes() -> None:
    table = table_of(declare(name="drives", columns=SPEED, **BASE))
    rows = history(
        drive("d1", '{"speed": 1}'), drive("d1", "?"), drive("d1", '{"speed": 2}'), drive("d1", "", "cleared")
    )
    assert table.key == ()
    assert [(row["offset"], row["device"], row["speed"]) for row in after(table, rows)] == [
        (1, "d1", 1.0),
        (3, "d1", 2.0),
    ]


def test_latest_has_the_newest_that_decodes_of_each_key_until_it_is_cleared() -> None:
    table = table_of(declare(name="now", kind="latest", key=["site", "device"], columns=SPEED, **BASE))
    first = history(drive("d1", '{"speed": 1}'), drive("d2", '{"speed": 5}'), drive("d1", '{"speed": 2}'))
    second = history(drive("d1", "?"), drive("d2", "", outcome="cleared"), drive("d3", '{"speed": 7}'), first=4)
    assert [(row["device"], row["speed"], row["offset"]) for row in after(table, first, second)] == [
        ("d1", 2.0, 3),
        ("d3", 7.0, 6),
    ]
    third = history(drive("d2", '{"speed": 6}'), first=7)
    assert len(after(table, first, second, third)) == 3


def test_rows_of_latest_are_brought_together_by_what_is_known_without_the_payload() -> None:
    columns = {"site": "string", "line": {"type": "int", "from": "{device}"}, "serial": "string"}
    table = table_of(declare(name="now", kind="latest", key=["serial", "line"], columns=columns, **BASE))
    assert table.key == ("line", "serial")
    assert table.takes["line"] == "try_cast(get(split(topic, '/'), 2) as int)"


AGGREGATES = {
    "site": "string",
    "n": {"aggregate": "count", "from": "speed"},
    "total": {"aggregate": "sum", "from": "speed", "type": "double"},
    "mean": {"aggregate": "avg", "from": "speed"},
    "least": {"aggregate": "min", "from": "speed", "type": "double"},
    "most": {"aggregate": "max", "from": "speed", "type": "double"},
    "opened": {"aggregate": "first", "from": "speed", "type": "double"},
    "closed": {"aggregate": "last", "from": "speed", "type": "double"},
}


def aggregate() -> Declaration:
    return declare(name="by_minute", kind="aggregate", window="1m", columns=AGGREGATES, **BASE)


def test_an_aggregate_has_a_row_for_each_window_and_key() -> None:
    rows = history(
        drive("d1", '{"speed": 4}', at=1),
        drive("d2", '{"speed": 1}', at=30),
        drive("d1", "{}", at=59),
        drive("d1", '{"speed": 7}', at=60),
        drive("d1", '{"speed": 8}', site="b", at=61),
    )
    found = after(table_of(aggregate()), rows)
    assert found[0] == {
        "window_start": START,
        "site": "a",
        "messages": 3,
        "n": 2,
        "total": 5.0,
        "mean": 2.5,
        "mean_sum": 5.0,
        "mean_count": 2,
        "least": 1.0,
        "most": 4.0,
        "opened": 4.0,
        "opened_offset": 1,
        "closed": 1.0,
        "closed_offset": 2,
    }
    assert [(row["window_start"] - START, row["site"], row["mean"]) for row in found[1:]] == [
        (timedelta(minutes=1), "a", 7.0),
        (timedelta(minutes=1), "b", 8.0),
    ]


@pytest.mark.parametrize(
    ("decoder", "payloads", "place"),
    [
        ("json", ['{"x": "a"}', '{"x": null}', '{"x": {"y": 1}}'], "x"),
        ("number", ["1.5", "2", "1e3"], "$"),
        ("text", ["a", "", "b"], "$"),
    ],
)
def test_a_count_asks_only_whether_there_is_a_value(decoder: str, payloads: list[str], place: str) -> None:
    columns = {"n": {"aggregate": "count", "from": place}}
    table = declare(name="n", filter="#", decoder=decoder, kind="aggregate", window="1m", columns=columns)
    [row] = after(table_of(table), history(*(("a", text.encode()) for text in payloads)))
    assert (row["messages"], row["n"]) == (3, 2 if decoder == "json" else 3)


def test_a_window_without_a_value_has_its_messages_and_nothing_else() -> None:
    [row] = after(table_of(aggregate()), history(drive("d1", "{}")))
    assert (row["messages"], row["n"], row["mean"], row["closed"]) == (1, 0, None, None)


def test_what_does_not_decode_is_in_quarantine_with_table_and_reason() -> None:
    tables = [declare(name="drives", columns=SPEED, **BASE), declare(name="metrics", decoder="sparkplug")]
    quarantine = {table.name: table for table in declared_tables(tables)}["quarantine"]
    rows = history(drive("d1", "?"), drive("d1", '{"speed": 1}'), drive("d1", "{}"), ("spBv1.0/P/NBIRTH/E", b"\xff"))
    found = after(quarantine, rows)
    assert [(row["offset"], row["topic"], row["table"], row["reason"]) for row in found] == [
        (1, "site/a/d1/drive", "drives", 'expected JSON, got "?": expecting value'),
        (3, "site/a/d1/drive", "drives", "speed: expected a value, got none"),
        (4, "spBv1.0/P/NBIRTH/E", "metrics", "expected a Sparkplug B payload, which these bytes are not"),
    ]


def test_new_fields_are_in_schema_drift_since_when_and_how_often() -> None:
    drift = {table.name: table for table in declared_tables([declare(name="drives", columns=SPEED, **BASE)])}[
        "schema_drift"
    ]
    new = '{"speed": 1, "torque": 2}'
    first = history(drive("d1", '{"speed": 1}'), drive("d1", new, at=5), drive("d2", new, at=6))
    second = history(drive("d1", new, at=9), drive("d1", '{"speed": 1, "torque": "high"}', at=10), first=4)
    columns = ("topic", "table", "field", "type", "first_offset", "last_offset", "messages")
    assert [tuple(row[name] for name in columns) for row in after(drift, first, second)] == [
        ("site/a/d1/drive", "drives", "torque", "number", 2, 4, 2),
        ("site/a/d2/drive", "drives", "torque", "number", 3, 3, 1),
        ("site/a/d1/drive", "drives", "torque", "string", 5, 5, 1),
    ]


def test_a_sparkplug_table_as_latest_has_only_what_no_other_value_has_followed() -> None:
    table = table_of(declare(name="metrics", decoder="sparkplug", kind="latest"))
    assert table.ended == ""
    assert set(SCHEMA.names) - set(table.schema.names) == {"to_offset"}
    assert table_of(declare(name="metrics", decoder="sparkplug")).ended == "to_offset"


def test_without_declarations_there_are_no_tables() -> None:
    assert declared_tables([]) == []


@pytest.mark.parametrize("seed", range(8))
def test_how_history_is_cut_into_batches_makes_no_difference(seed: int) -> None:
    rng = random.Random(seed)
    payloads = ('{"speed": %d}', "?", "{}", '{"speed": %d, "new": 1}', "")
    messages = []
    for number in range(120):
        text = rng.choice(payloads)
        outcome = "cleared" if not text else "live"
        text = text % number if "%" in text else text
        messages.append(drive(f"d{rng.randrange(4)}", text, rng.choice("ab"), outcome, number * 3))
    rows = history(*messages)
    batches = []
    while rows.num_rows:
        size = rng.randrange(1, 40)
        batches.append(rows.slice(0, size))
        rows = rows.slice(size)
    declarations = [
        declare(name="drives", columns=SPEED, **BASE),
        declare(name="now", kind="latest", key=["device"], columns=SPEED, **BASE),
        aggregate(),
    ]
    for table in declared_tables(declarations):
        cut, whole = after(table, *batches), after(table, history(*messages))
        assert sorted(cut, key=repr) == sorted(whole, key=repr), table.name
