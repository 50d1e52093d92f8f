"""Sparkplug B: aliases from the births, deaths that count and deaths that come late, gaps, and every type of value."""

import random
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from holdfast.spark.declared.sparkplug import SCHEMA, follow, parse_topic, problem_of
from sparkplug_wire import NOON, bd_seq, block, double, metric, number, sparkplug
from unit.declared.rows import history

NODE = "spBv1.0/Plant/{}/Edge1"
DEVICE = "spBv1.0/Plant/{}/Edge1/Press"
# An NBIRTH as pysparkplug 0.6.1 encodes it, on top of the code that protoc makes of Tahu's sparkplug_b.proto.
PYSPARKPLUG_NBIRTH = bytes.fromhex(
    "0880f4e9a19e3412120a0562645365711880f4e9a19e342004580312210a144e6f646520436f6e74726f6c2f526562697274681880f4e9a19e"
    "34200b700012120a02693810011880f4e9a19e34200150fb0112140a0369313610021880f4e9a19e342002508cfc0312160a03693332100318"
    "80f4e9a19e3420035090ddfbff0f121b0a0369363410041880f4e9a19e34200458809ce8afedffffffff0112120a02753810051880f4e9a19e"
    "34200550fa0112160a0375333210061880f4e9a19e3420075080d0acf30e121b0a0375363410071880f4e9a19e342008588080a0a89c94b6e6"
    "f90112130a016610081880f4e9a19e342009650000c03f12170a016410091880f4e9a19e34200a69000000000040354012170a0173100a1880"
    "f4e9a19e34200c7a076772c3b6c39f6512160a026474100b1880f4e9a19e34200d5880f4e9a19e3412130a0162100c1880f4e9a19e34201182"
    "010200ff12130a046e756c6c100d1880f4e9a19e342003380112150a036131361880f4e9a19e342017820104ffff020012150a0261621880f4"
    "e9a19e34202082010503000000a012150a0261731880f4e9a19e3420218201057800797a001800"
)


def birth(seq: int = 0, bd: int = 0, *more: bytes) -> tuple[str, bytes]:
    speed = metric("speed", alias=1, datatype=10, value=double(0.0))
    return NODE.format("NBIRTH"), sparkplug(NOON, seq, bd_seq(bd), speed, *more)


def device_birth(seq: int = 1) -> tuple[str, bytes]:
    return DEVICE.format("DBIRTH"), sparkplug(
        NOON,
        seq,
        metric("force", alias=7, datatype=10, value=double(1.0)),
        metric("open", datatype=11, value=number(14, 1)),
    )


def data(seq: int, value: float, alias: int = 1) -> tuple[str, bytes]:
    return NODE.format("NDATA"), sparkplug(NOON, seq, metric(alias=alias, value=double(value)))


def device_data(seq: int, value: float) -> tuple[str, bytes]:
    return DEVICE.format("DDATA"), sparkplug(NOON, seq, metric(alias=7, value=double(value)))


def death(bd: int = 0) -> tuple[str, bytes]:
    return NODE.format("NDEATH"), sparkplug(NOON, None, bd_seq(bd))


def device_death(seq: int) -> tuple[str, bytes]:
    return DEVICE.format("DDEATH"), sparkplug(NOON, seq)


def with_edge(rows: pa.Table) -> pa.Table:
    edges = [parse_topic(topic).edge for topic in rows["topic"].to_pylist()]
    return rows.append_column("edge", pa.array(edges, pa.string()))


def table(*messages: tuple[str, bytes]) -> list[dict[str, Any]]:
    found = follow(SCHEMA.empty_table(), with_edge(history(*messages))).to_pylist()
    return sorted(found, key=lambda row: (row["offset"], row["device"] or "", row["metric"] or ""))


def of(rows: list[dict[str, Any]], name: str, *columns: str) -> list[Any]:
    return [tuple(row[column] for column in columns) for row in rows if row["metric"] == name]


def test_data_with_an_alias_gets_name_and_datatype_from_the_birth() -> None:
    rows = table(birth(), data(1, 3.5))
    assert of(rows, "speed", "offset", "datatype", "double_value", "to_offset", "message_type", "seq_gap") == [
        (1, "Double", 0.0, 2, "NBIRTH", False),
        (2, "Double", 3.5, None, "NDATA", False),
    ]


def test_a_node_and_its_devices_have_rows_of_their_own() -> None:
    rows = table(birth(), device_birth(), device_data(2, 4.0))
    [_, force] = of(rows, "force", "edge", "group", "node", "device", "double_value")
    assert force == ("Plant/Edge1", "Plant", "Edge1", "Press", 4.0)


def test_the_same_alias_means_something_else_after_another_birth() -> None:
    renamed = sparkplug(NOON, 0, bd_seq(1), metric("torque", alias=1, datatype=10, value=double(9.0)))
    rows = table(birth(), (NODE.format("NBIRTH"), renamed), data(1, 3.5))
    assert of(rows, "torque", "double_value") == [(9.0,), (3.5,)]
    assert of(rows, "speed", "offset", "is_stale", "double_value") == [(1, False, 0.0), (2, True, 0.0)]


def test_the_death_of_a_node_makes_all_its_values_stale_and_those_of_its_devices() -> None:
    rows = table(birth(), device_birth(), data(2, 5.0), death())
    stale = [(row["device"], row["metric"], row["double_value"]) for row in rows if row["is_stale"]]
    assert stale == [(None, "bdSeq", None), (None, "speed", 5.0), ("Press", "force", 1.0), ("Press", "open", None)]
    assert {row["offset"] for row in rows if row["is_stale"]} == {4}
    assert all(row["is_stale"] for row in rows if row["to_offset"] is None)


def test_the_late_death_of_an_earlier_connection_does_not_count() -> None:
    rows = table(birth(0, 4), birth(0, 5), death(4), data(1, 2.0))
    assert not any(row["is_stale"] for row in rows)
    assert of(rows, "speed", "seq_gap")[-1] == (False,)


def test_the_death_of_a_device_leaves_its_node_and_the_next_birth_ends_it() -> None:
    rows = table(birth(), device_birth(), device_death(2), device_birth(3), data(4, 1.0))
    assert of(rows, "force", "offset", "is_stale") == [(2, False), (3, True), (4, False)]
    assert not any(row["is_stale"] for row in rows if row["device"] is None)
    assert not any(row["seq_gap"] for row in rows)


def test_a_birth_of_the_node_makes_its_devices_stale_until_they_are_born_again() -> None:
    rows = table(birth(), device_birth(), birth(0, 1), device_data(1, 2.0), device_birth(2))
    assert of(rows, "force", "offset", "is_stale") == [(2, False), (3, True), (5, False)]
    # what a device says by an alias in between is kept, although nobody knows what it is
    assert [(row["alias"], row["double_value"], row["is_stale"]) for row in rows if row["metric"] is None] == [
        (7, 2.0, True)
    ]


def test_a_number_that_does_not_follow_is_marked_and_255_is_followed_by_0() -> None:
    rows = table(birth(), data(1, 1.0), data(4, 2.0), data(5, 3.0))
    assert of(rows, "speed", "double_value", "seq_gap") == [(0.0, False), (1.0, False), (2.0, True), (3.0, False)]
    rows = table(birth(254), data(255, 1.0), data(0, 2.0))
    assert not any(row["seq_gap"] for row in rows)


def test_data_of_a_node_that_was_never_born_is_kept_with_what_is_known() -> None:
    named = NODE.format("NDATA"), sparkplug(NOON, 9, metric("speed", datatype=10, value=double(2.0)))
    rows = table(data(8, 1.0), named)
    assert [(row["metric"], row["alias"], row["double_value"], row["seq_gap"]) for row in rows] == [
        (None, 1, 1.0, True),
        ("speed", None, 2.0, True),
    ]


def test_historical_values_and_commands_do_not_replace_the_present_one() -> None:
    old = NODE.format("NDATA"), sparkplug(NOON, 1, metric(alias=1, value=number(5, 1) + double(7.0)))
    command = NODE.format("NCMD"), sparkplug(NOON, None, metric("speed", datatype=10, value=double(8.0)))
    rows = table(birth(), old, command)
    assert of(rows, "speed", "double_value", "is_historical", "message_type", "to_offset") == [
        (0.0, False, "NBIRTH", None),
        (7.0, True, "NDATA", 2),
        (8.0, False, "NCMD", 3),
    ]


def test_every_type_of_value_is_in_the_column_of_its_type() -> None:
    rows = {row["metric"]: row for row in table((NODE.format("NBIRTH"), PYSPARKPLUG_NBIRTH))}
    values = [name for name in SCHEMA.names if name.endswith("_value")]
    found = {name: {column: row[column] for column in values if row[column] is not None} for name, row in rows.items()}
    noon = datetime(2026, 11, 16, 12, tzinfo=UTC)
    assert found == {
        "bdSeq": {"long_value": 3},
        "Node Control/Rebirth": {"boolean_value": False},
        "i8": {"long_value": -5},
        "i16": {"long_value": -500},
        "i32": {"long_value": -70000},
        "i64": {"long_value": -5_000_000_000},
        "u8": {"long_value": 250},
        "u32": {"long_value": 4_000_000_000},
        "u64": {"string_value": "18000000000000000000"},
        "f": {"double_value": 1.5},
        "d": {"double_value": 21.25},
        "s": {"string_value": "größe"},
        "dt": {"timestamp_value": noon},
        "b": {"bytes_value": b"\x00\xff"},
        "null": {},
        "a16": {"string_value": "[-1,2]", "bytes_value": b"\xff\xff\x02\x00"},
        "ab": {"string_value": "[true,false,true]", "bytes_value": b"\x03\x00\x00\x00\xa0"},
        "as": {"string_value": '["x","yz"]', "bytes_value": b"x\x00yz\x00"},
    }
    assert (rows["null"]["is_null"], rows["d"]["datatype"], rows["d"]["metric_timestamp"]) == (True, "Double", noon)


def test_datasets_and_properties_are_json() -> None:
    row = block(4, block(1, number(1, 5)) + block(1, block(6, b"a")))
    dataset = block(17, number(1, 2) + block(2, b"n") + block(2, b"t") + number(3, 3) + number(3, 12) + row)
    properties = block(9, block(1, b"engUnit") + block(2, number(1, 12) + block(8, b"kN")))
    payload = sparkplug(NOON, 0, metric("set", datatype=16, value=properties + dataset))
    [found] = [row for row in table((NODE.format("NBIRTH"), payload)) if row["metric"] == "set"]
    assert found["properties"] == '{"engUnit":"kN"}'
    assert found["string_value"] == (
        '{"num_of_columns":2,"columns":["n","t"],"types":[3,12],'
        '"rows":[{"elements":[{"int_value":5},{"string_value":"a"}]}]}'
    )


def test_a_host_has_a_row_for_being_online() -> None:
    rows = table(
        ("spBv1.0/STATE/scada", b'{"online": true, "timestamp": 1794830400000}'),
        ("spBv1.0/STATE/other", b"OFFLINE"),
        ("spBv1.0/STATE/scada", b'{"online": false, "timestamp": 1794830401000}'),
    )
    assert [(row["node"], row["boolean_value"], row["to_offset"]) for row in rows] == [
        ("scada", True, 3),
        ("other", False, None),
        ("scada", False, None),
    ]


@pytest.mark.parametrize(
    ("topic", "payload", "problem"),
    [
        ("spBv1.0/Plant/NDATA", b"", "expected a topic spBv1.0/GROUP/TYPE/NODE[/DEVICE], got 'spBv1.0/Plant/NDATA'"),
        ("spBv1.0/Plant/NDATA/Edge1/Press", b"", "expected a topic spBv1.0/GROUP/TYPE/NODE[/DEVICE], got"),
        ("spBv1.0/Plant/NBIRTH/Edge1", b"\xff", "expected a Sparkplug B payload, which these bytes are not"),
        ("spBv1.0/Plant/NBIRTH/Edge1", block(2, block(1, b"\xff")), "expected text in UTF-8 in a metric"),
        ("spBv1.0/STATE/scada", b"{}", 'expected {"online": true or false, "timestamp": …} of a host'),
    ],
)
def test_what_cannot_be_read_has_a_reason_and_changes_nothing(topic: str, payload: bytes, problem: str) -> None:
    assert str(problem_of(topic, payload)).startswith(problem)
    broken = history(birth(), (topic, payload), data(1, 2.0))
    rows = broken.append_column("edge", pa.array(["Plant/Edge1"] * 3, pa.string()))
    assert follow(SCHEMA.empty_table(), rows).num_rows == len(table(birth(), data(1, 2.0)))
    assert problem_of(*birth()) is None


def test_numbers_that_no_long_and_no_calendar_can_hold_do_no_harm() -> None:
    most = (1 << 64) - 1
    payload = sparkplug(most, most, metric("speed", alias=most, at=most, datatype=13, value=number(11, most)))
    [row] = [row for row in table((NODE.format("NBIRTH"), payload)) if row["metric"] == "speed"]
    assert (row["alias"], row["timestamp_value"], row["metric_timestamp"], row["seq"]) == (-1, None, None, 255)


def story(rng: random.Random, length: int) -> list[tuple[str, bytes]]:
    """Births, data, deaths, late deaths and lost messages in any order."""
    seq, bd = 0, 1
    found = []
    for _ in range(length):
        kind = rng.randrange(10)
        seq = (seq + 1 + (rng.random() < 0.1)) % 256
        if kind == 0:
            seq, bd = 0, bd + 1
            found.append(birth(0, bd, *([metric("extra", alias=3, datatype=12, value=block(15, b"x"))] * (bd % 2))))
        elif kind == 1:
            found.append(death(bd - (rng.random() < 0.5)))
        elif kind == 2:
            found.append(device_birth(seq))
        elif kind == 3:
            found.append(device_death(seq))
        elif kind < 7:
            found.append(device_data(seq, rng.random()))
        else:
            found.append(data(seq, rng.random(), rng.choice((1, 3))))
    return found


@pytest.mark.parametrize("seed", range(20))
def test_how_history_is_cut_into_batches_makes_no_difference(seed: int) -> None:
    rng = random.Random(seed)
    messages = story(rng, 60)
    whole = table(*messages)
    rows = with_edge(history(*messages))
    open_rows, ended = SCHEMA.empty_table(), []
    at = 0
    while at < rows.num_rows:
        size = rng.randrange(1, 15)
        found = follow(open_rows, rows.slice(at, size))
        # the engine never gives back what has ended
        ended += found.filter(found["to_offset"].is_valid()).to_pylist()
        open_rows = found.filter(found["to_offset"].is_null())
        at += size
    parts = sorted(
        [*ended, *open_rows.to_pylist()], key=lambda row: (row["offset"], row["device"] or "", row["metric"] or "")
    )
    assert parts == whole
