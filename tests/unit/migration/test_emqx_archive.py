"""An export of EMQX's: the rows of its retained table, whole and damaged."""

from pathlib import Path
from typing import Any

import pytest

from emqx_files import A, archive, encode_term, log_of, retained_row
from holdfast.errors import UsageError
from holdfast.migration.emqx_archive import read_file
from holdfast.migration.erlang_terms import Atom, TermProblem, decode_term
from holdfast.migration.inventory import RETAINED, SETTINGS, FoundMessage, Inventory
from holdfast.service.messages import decode_forwarded

NOW_MS = 1_700_000_000_000


def read(tmp_path: Path, data: bytes) -> Inventory:
    path = tmp_path / "export.tar.gz"
    path.write_bytes(data)
    return read_file(path, NOW_MS)


def test_all_fields_of_a_message_come(tmp_path: Path) -> None:
    properties = {
        "Content-Type": b"text/plain",
        "Response-Topic": b"answers/1",
        "Correlation-Data": b"\x00\xff",
        "Payload-Format-Indicator": 1,
        "User-Property": [(b"unit", "°C".encode()), (b"unit", b"again")],
        "Message-Expiry-Interval": 60,
    }
    row = retained_row(b"home/a", b"\x00\x01", 2, {"properties": properties}, NOW_MS + 60_000)
    found = read(tmp_path, archive(log_of(row)))
    [message] = found.retained.values()
    assert message == FoundMessage(
        b"home/a", b"\x00\x01", 2, message.properties, NOW_MS + 60_000, "sensor", "bob", True
    )
    carried = decode_forwarded(message.properties)
    assert (carried.content_type, carried.response_topic, carried.payload_format) == ("text/plain", b"answers/1", 1)
    assert carried.correlation_data == b"\x00\xff"
    assert carried.user_properties == [("unit", "°C"), ("unit", "again")]
    assert found.damage == []


def test_a_large_message_with_a_digest_in_front_is_whole(tmp_path: Path) -> None:
    payload = bytes(range(256)) * 400
    found = read(tmp_path, archive(log_of(retained_row(b"big", payload, 0, {}, 0), retained_row(b"b", b"x", 0, {}, 0))))
    assert {topic: message.payload for topic, message in found.retained.items()} == {b"big": payload, b"b": b"x"}


def test_what_comes_before_damage_is_taken_and_the_damage_named(tmp_path: Path) -> None:
    log = log_of(retained_row(b"a", b"1", 0, {}, 0), retained_row(b"b", b"2", 0, {}, 0))
    found = read(tmp_path, archive(log[:-10]))
    assert list(found.retained) == [b"a"]
    assert "cut off" in found.damage[0]


def test_rows_that_cannot_come_are_counted(tmp_path: Path) -> None:
    rows: list[Any] = [
        retained_row(b"old", b"1", 0, {}, NOW_MS - 1),
        retained_row(b"a/#", b"1", 0, {}, 0),
        (A("emqx_retainer_message"), [b"x"], A("undefined"), 0),
        retained_row(b"bad/properties", b"1", 0, {"properties": {"Content-Type": 5}}, 0),
    ]
    found = read(tmp_path, archive(log_of(*rows)))
    assert list(found.retained) == [b"bad/properties"]
    assert sum(found.left[RETAINED].values()) == 3
    assert any("bad/properties" in note for note in found.notes)


def test_other_tables_of_the_export_are_named(tmp_path: Path) -> None:
    data = archive(log_of(retained_row(b"a", b"1", 0, {}, 0)), emqx_acl=b"", emqx_banned=b"")
    assert len(read(tmp_path, data).left[SETTINGS]) == 3  # and its configuration


def test_an_archive_without_the_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="emqx_retainer_message"):
        read(tmp_path, archive(None))


@pytest.mark.parametrize(
    "value",
    [0, 255, 256, -1, 2**31, -(2**40), 2**80, b"", b"\x00\xff", [], [1, [2]], (), (1, (2, b"x")), {1: 2, b"k": [b"v"]}],
)
def test_terms_come_back_as_they_were_written(value: Any) -> None:
    assert decode_term(encode_term(value)) == value


def test_atoms_are_told_from_binaries() -> None:
    assert decode_term(encode_term((A("a"), b"a"))) == (Atom("a"), b"a")
    assert isinstance(decode_term(encode_term(A("a"))), Atom)


def test_nesting_without_end_is_a_problem() -> None:
    with pytest.raises(TermProblem, match="nested"):
        decode_term(b"\x83" + b"\x68\x01" * 100_000 + b"\x6a")
