"""Frames: what is written is what is found, and nothing else is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.journal.record import (
    BAD,
    CLOSED,
    EMPTY,
    FRAME_SIZE,
    LIMIT,
    MARKER,
    MORE,
    RESERVED,
    find_frame,
    frame_all,
    framed_size,
    offset_of,
    own_number,
    own_record,
    scan,
)
from holdfast.journal.segment import checksum

EVERYTHING = (1 << 64) - 1


def record(offset: int, body: bytes = b"") -> bytes:
    return b"\x01\x10" + offset.to_bytes(8, "little") + body


@given(st.lists(st.binary(max_size=60), max_size=20), st.integers(0, 3000))
def test_any_cut_of_frames_gives_the_whole_ones_before_it(bodies: list[bytes], cut: int) -> None:
    records = [record(i + 1, body) for i, body in enumerate(bodies)]
    data = frame_all(records, checksum)
    assert len(data) == framed_size(records)
    part = data[: min(cut, len(data))]
    found = scan(part, 0, 0, EVERYTHING, checksum)
    assert found.ended == MORE
    assert found.records == records[: len(found.records)]
    assert found.position == framed_size(found.records)
    assert len(part) - found.position < FRAME_SIZE + 70


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=10), st.data())
def test_a_flipped_bit_never_yields_a_record_that_was_not_written(bodies: list[bytes], data: st.DataObject) -> None:
    records = [record(i + 1, body) for i, body in enumerate(bodies)]
    damaged = bytearray(frame_all(records, checksum))
    position = data.draw(st.integers(0, len(damaged) - 1))
    damaged[position] ^= 1 << data.draw(st.integers(0, 7))
    found = scan(bytes(damaged), 0, 0, EVERYTHING, checksum)
    assert found.records == records[: len(found.records)]
    assert len(found.records) < len(records)
    assert found.position <= position


def test_records_past_the_limit_are_left() -> None:
    data = frame_all([record(1), record(5), record(9)], checksum)
    found = scan(data, 0, 0, 5, checksum)
    assert [offset_of(r) for r in found.records] == [1, 5]
    assert found.ended == LIMIT


def test_records_that_are_known_are_passed_over() -> None:
    data = frame_all([record(1), record(5), record(9)], checksum)
    found = scan(data, 0, 5, EVERYTHING, checksum)
    assert [offset_of(r) for r in found.records] == [9]


def test_space_set_aside_is_told_from_damage() -> None:
    data = frame_all([record(1)], checksum)
    assert scan(data + bytes(100), 0, 0, EVERYTHING, checksum).ended == EMPTY
    assert scan(data + bytes(5), 0, 0, EVERYTHING, checksum).ended == MORE
    assert scan(data + b"x" * 100, 0, 0, EVERYTHING, checksum).ended == BAD
    assert scan(data + b"x" * 5, 0, 0, EVERYTHING, checksum).ended == BAD


def test_the_next_sound_frame_is_found_behind_damage() -> None:
    head = frame_all([record(1, b"lost")], checksum)
    tail = frame_all([record(2, b"kept")], checksum)
    data = b"\xff" + head[1:] + tail
    assert find_frame(data, 0, 0, checksum) == len(head)
    assert find_frame(data, 0, 2, checksum) == -1


def test_a_marker_inside_a_payload_is_not_taken_for_a_frame() -> None:
    data = b"\xff" * 7 + MARKER + b"not a frame at all, only its marker" + frame_all([record(3)], checksum)
    assert find_frame(data, 0, 0, checksum) == len(data) - FRAME_SIZE - 10


@pytest.mark.parametrize(("kind", "closed"), [(RESERVED, 0), (CLOSED, 77)])
def test_the_journal_s_own_records_are_not_handed_out(kind: int, closed: int) -> None:
    own = own_record(kind, 1, 77)
    found = scan(frame_all([record(1), own], checksum), 0, 0, EVERYTHING, checksum)
    assert found.records == [record(1)]
    assert found.reserved == (77 if kind == RESERVED else 0)
    assert found.closed == closed
    assert own_number(own) == 77


def test_a_record_after_the_closing_mark_undoes_it() -> None:
    data = frame_all([record(1), own_record(CLOSED, 1, 2), record(2)], checksum)
    assert scan(data, 0, 0, EVERYTHING, checksum).closed == 0
