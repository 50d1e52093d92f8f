"""Payloads as columns: what decodes, why the rest does not, and that the fast paths say what the rule says."""

import json
import random
from datetime import UTC, datetime
from typing import Any

import cbor2
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2

from holdfast.errors import ConfigError
from holdfast.spark.declared import declare, decoders
from holdfast.spark.declared.decoders import decode
from sparkplug_wire import block, number, varint
from unit.declared.rows import history

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


def decoded(decoder: str, columns: dict[str, Any], payload: bytes, **more: Any) -> Any:
    """The declared columns of one message, or the reason why there are none."""
    found = decode(declare(name="t", filter="#", decoder=decoder, columns=columns, **more), history(("a/b", payload)))
    if found.bad.num_rows:
        assert found.rows.num_rows == 0
        return found.bad["reason"][0].as_py()
    row = found.rows.to_pylist()[0]
    values = [row[name] for name in columns]
    return values[0] if len(values) == 1 else values


@pytest.mark.parametrize(
    ("kind", "payload", "expected"),
    [
        ("double", b"21.5", 21.5),
        ("double", b" +1.5e3\n", 1500.0),
        ("double", b".5", 0.5),
        ("double", b"warm", 'expected a number, got "warm"'),
        ("double", b"", 'expected a number, got ""'),
        ("double", b"NaN", 'expected a number, got "NaN"'),
        ("double", b"1e999", "expected a finite number, got Infinity"),
        ("double", b"\xff", "expected text in UTF-8, got 1 bytes ff"),
        ("long", b"9223372036854775807", 9223372036854775807),
        ("long", b"9223372036854775808", "expected a whole number that fits long, got 9223372036854775808"),
        ("long", b"21.5", "expected a whole number, got 21.5"),
        ("long", b"21.0", 21),
        ("int", b"3000000000", "expected a whole number that fits int, got 3000000000"),
        ("int", b"-7", -7),
    ],
)
def test_a_number_is_what_is_written_out(kind: str, payload: bytes, expected: Any) -> None:
    assert decoded("number", {"value": kind}, payload) == expected


def test_text_is_utf_8_and_raw_is_whatever_came() -> None:
    assert decoded("text", {"value": "string"}, "größe".encode()) == "größe"
    assert decoded("text", {"value": "string"}, b"\xff\x00") == "expected text in UTF-8, got 2 bytes ff 00"
    assert decoded("raw", {"value": "binary"}, b"\xff\x00") == b"\xff\x00"


@pytest.mark.parametrize(
    ("column", "payload", "expected"),
    [
        ("double", '{"x": 3}', 3.0),
        ("double", '{"x": "3"}', 'x: expected a number, got "3"'),
        ("double", '{"x": true}', "x: expected a number, got true"),
        ("double", '{"x": NaN}', "x: expected a finite number, got NaN"),
        ("double", '{"x": null}', None),
        ("double", "{}", None),
        ("double", '{"x": 1', 'expected JSON, got "{\\"x\\": 1": expecting \',\' delimiter'),
        ("double", "", 'expected JSON, got "": expecting value'),
        ("double", "[" * 100_000, "expected a payload that is not nested so deeply"),
        ("long", '{"x": 1e3}', 1000),
        ("long", '{"x": 1.5}', "x: expected a whole number, got 1.5"),
        ("boolean", '{"x": false}', False),
        ("boolean", '{"x": 0}', "x: expected true or false, got 0"),
        ("string", '{"x": "a"}', "a"),
        ("string", '{"x": {"b": [1, 2]}}', '{"b":[1,2]}'),
        ("string", '{"x": "\\ud83d"}', 'x: expected text in Unicode, got "\\ud83d"'),
        ("binary", '{"x": "AP8="}', b"\x00\xff"),
        ("timestamp", '{"x": "2026-11-16T13:00:00+01:00"}', NOON),
        ("timestamp", '{"x": 5}', "x: expected a time in ISO 8601, got 5"),
        ({"type": "timestamp", "unit": "ms"}, '{"x": 1794830400000}', NOON),
        ({"type": "timestamp", "unit": "s"}, '{"x": 1794830400.0}', NOON),
        ({"type": "timestamp", "unit": "s"}, '{"x": 1e300}', "x: expected a number of s since 1970, got 1e+300"),
        ({"type": "long", "required": True}, "{}", "x: expected a value, got none"),
        ({"type": "long", "required": True}, '{"x": null}', "x: expected a value, got null"),
        ({"type": "long", "from": "a.b"}, '{"a": {"b": 7}}', 7),
        ({"type": "long", "from": "a[1].b"}, '{"a": [{}, {"b": 7}]}', 7),
        ({"type": "long", "from": "a[1]"}, '{"a": [1]}', None),
        ({"type": "long", "from": '"a.b"'}, '{"a.b": 7}', 7),
        ({"type": "string", "from": "$"}, "[1, 2]", "[1,2]"),
    ],
)
def test_json_has_places_and_types(column: Any, payload: str, expected: Any) -> None:
    assert decoded("json", {"x": column}, payload.encode()) == expected


def test_levels_of_the_topic_and_columns_of_history_stand_beside_the_payload() -> None:
    table = declare(
        name="t",
        template="site/{site}/line/{line}/temp",
        decoder="number",
        columns={"site": "string", "line": "int", "by": {"from": "@client_id"}, "celsius": "double"},
    )
    found = decode(table, history(("site/a/line/4/temp", b"21.5"), ("site/a/line/x/temp", b"3"), ("other", b"3")))
    assert found.rows.select(["offset", "topic", "site", "line", "by", "celsius"]).to_pylist() == [
        {"offset": 1, "topic": "site/a/line/4/temp", "site": "a", "line": 4, "by": "c1", "celsius": 21.5}
    ]
    assert found.bad["reason"].to_pylist() == ['{line}: expected a number, got "x"']


def test_cbor_has_bytes_times_and_numbers_for_names() -> None:
    payload = cbor2.dumps({"t": NOON, "raw": b"\x00\xff", 7: 1.5, "deep": {"n": 3}})
    columns = {
        "t": "timestamp",
        "raw": "binary",
        "v": {"type": "double", "from": "7"},
        "n": {"type": "long", "from": "deep.n"},
    }
    assert decoded("cbor", columns, payload) == [NOON, b"\x00\xff", 1.5, 3]
    assert decoded("cbor", {"x": "long"}, payload[:-1]).startswith("expected CBOR, got ")
    assert decoded("cbor", {"x": "long"}, payload + b"\x01") == "expected one value in CBOR, got 1 bytes after it"
    assert decoded("cbor", {"x": "long"}, cbor2.dumps({"x": 1 << 9000})) == (
        "x: expected a whole number that fits long, got a number of 9001 bits"
    )


def descriptor_set() -> bytes:
    """What protoc writes for a message with a nested one, an enum, a map and an imported time."""
    kind = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="drive.proto", package="plant", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    state = file.enum_type.add(name="State")
    state.value.add(name="OFF", number=0)
    state.value.add(name="RUNNING", number=1)
    motor = file.message_type.add(name="Motor")
    motor.field.add(name="speed", number=1, type=kind.TYPE_DOUBLE, label=kind.LABEL_OPTIONAL)
    drive = file.message_type.add(name="Drive")
    fields = [
        ("serial", 1, kind.TYPE_UINT64, kind.LABEL_OPTIONAL, ""),
        ("motors", 2, kind.TYPE_MESSAGE, kind.LABEL_REPEATED, ".plant.Motor"),
        ("state", 3, kind.TYPE_ENUM, kind.LABEL_OPTIONAL, ".plant.State"),
        ("at", 4, kind.TYPE_MESSAGE, kind.LABEL_OPTIONAL, ".google.protobuf.Timestamp"),
    ]
    for name, place, type_, label, type_name in fields:
        drive.field.add(name=name, number=place, type=type_, label=label, type_name=type_name or None)
    imported = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(imported)
    return bytes(descriptor_pb2.FileDescriptorSet(file=[file, imported]).SerializeToString())


def test_protobuf_is_read_by_a_descriptor_set(tmp_path: Any) -> None:
    (tmp_path / "drive.bin").write_bytes(descriptor_set())
    more = {"message": "plant.Drive", "descriptor_set": str(tmp_path / "drive.bin")}
    motor = block(2, varint(1 << 3 | 1) + bytes.fromhex("0000000000003840"))
    payload = number(1, 2**63) + motor + number(3, 1) + block(4, number(1, 1_794_830_400)) + number(9, 1)
    columns = {
        "serial": "string",
        "speed": {"type": "double", "from": "motors[0].speed"},
        "state": "string",
        "at": "timestamp",
    }
    assert decoded("protobuf", columns, payload, **more) == [str(2**63), 24.0, "RUNNING", NOON]
    assert decoded("protobuf", {"serial": "string"}, b"\xff", **more) == "expected a message plant.Drive"
    fresh = decode(
        declare(name="t", filter="#", decoder="protobuf", columns=columns, **more),
        history(("a", payload)),
        notice=True,
    ).fresh
    assert fresh["field"].to_pylist() == ["#9"]


def test_a_message_or_field_that_the_descriptors_do_not_have_is_refused(tmp_path: Any) -> None:
    file = tmp_path / "drive.bin"
    file.write_bytes(descriptor_set())
    base = {"name": "t", "filter": "#", "decoder": "protobuf", "descriptor_set": str(file)}
    with pytest.raises(
        ConfigError, match=r"expected a message of the descriptor set, got 'plant\.Driv'; nearest: plant\.D"
    ):
        declare(**base, message="plant.Driv", columns={"serial": "long"})
    with pytest.raises(ConfigError, match=r"expected a field of plant\.Motor, got 'sped'; nearest: speed"):
        declare(**base, message="plant.Drive", columns={"x": {"type": "long", "from": "motors[0].sped"}})
    file.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="expected a descriptor set, as `protoc --descriptor_set_out` writes it"):
        declare(**base, message="plant.Drive", columns={"serial": "long"})


def test_fields_that_nobody_declared_are_noticed_where_they_are() -> None:
    table = declare(name="t", filter="#", decoder="json", columns={"a": "long", "b": {"type": "long", "from": "n.b"}})
    payloads = ['{"a": 1, "new": "2026-11-16T12:00:00Z"}', '{"n": {"b": 1, "c": [1]}}', '{"a": 2, "gone": null}']
    rows = history(*((f"t/{place}", text.encode()) for place, text in enumerate(payloads)))
    found = decode(table, rows, notice=True).fresh.select(["offset", "topic", "field", "type"]).to_pylist()
    assert sorted(found, key=lambda one: one["offset"]) == [
        {"offset": 1, "topic": "t/0", "field": "new", "type": "string"},
        {"offset": 2, "topic": "t/1", "field": "n.c", "type": "array"},
    ]


def test_publishes_that_clear_a_retained_message_have_no_value() -> None:
    table = declare(name="t", filter="#", decoder="number", columns={"x": "double"})
    found = decode(table, history(("a", b"", "cleared"), ("b", b"1", "set")))
    assert (found.cleared["topic"].to_pylist(), found.rows["topic"].to_pylist()) == (["a"], ["b"])
    assert found.bad.num_rows == 0


def odd_json(rng: random.Random) -> bytes:
    """Objects mostly, and what breaks a reader that takes many at once."""
    values = [1, -2.5, 10**19, 1e308, True, None, "a", "\u0000", "größe", [1], [], {"y": 1}, {}, "2026-01-01", "\n"]
    fields = {rng.choice("axyzn"): rng.choice(values) for _ in range(rng.randrange(4))}
    text = json.dumps(fields, ensure_ascii=rng.random() < 0.5)
    match rng.randrange(12):
        case 0:
            text = text[:-1]
        case 1:
            text = text + text
        case 2:
            text = text.replace(",", ",\n")
        case 3:
            text = rng.choice(
                ["", "null", "5", "[]", " {} ", "{}x", "{,}", '{"x": NaN}', '{"x": 1, "x": 2}', '{"x": 01}']
            )
        case 4:
            return text.encode() + b"\xff"
    return text.encode()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", ["double", "long", "int", "string", "boolean"])
def test_many_at_once_give_what_each_gives_alone(seed: int, kind: str) -> None:
    rng = random.Random(seed)
    share = rng.choice((0.01, 0.5))
    payloads = [odd_json(rng) if rng.random() < share else b'{"x": 1, "n": {"y": 2}}' for _ in range(700)]
    columns = {
        "x": {"aggregate": "last", "type": kind},
        "n": {"aggregate": "count", "from": "x"},
        "y": {"aggregate": "avg", "from": "n.y"},
        "most": {"aggregate": "max", "type": "double", "from": "n.y"},
    }
    table = declare(name="t", filter="#", decoder="json", kind="aggregate", window="1m", columns=columns)
    rows = history(*((f"t/{place % 3}", payload) for place, payload in enumerate(payloads)))
    fast = decode(table, rows, notice=True)
    slow = decoders._by_rule(table, rows, rows["payload"].combine_chunks(), True)
    assert fast.bad["reason"].to_pylist() == [reason for reason in slow.reasons.to_pylist() if reason is not None]
    good = slow.reasons.is_null()
    for name in columns:
        assert fast.rows[name].combine_chunks().equals(slow.columns[name].filter(good))

    def order(one: dict[str, Any]) -> tuple[int, str]:
        return one["offset"], one["field"]

    assert sorted(fast.fresh.to_pylist(), key=order) == sorted(slow.fresh[0].to_pylist(), key=order)


def test_payloads_that_are_nested_deeply_never_reach_the_reader_of_many() -> None:
    table = declare(name="t", filter="#", decoder="json", columns={"x": "double"})
    deep = b'{"x": 1, "y": ' + b'{"a":' * 200_000 + b"1" + b"}" * 200_001
    found = decode(table, history(*[("a", b'{"x": 1}')] * 300, ("a", deep)), notice=True)
    assert found.rows.num_rows == 300
    assert found.bad["reason"].to_pylist() == ["expected a payload that is not nested so deeply"]
