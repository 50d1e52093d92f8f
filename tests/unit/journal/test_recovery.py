"""Finding the end of a journal: the last offset, the first free one, and what was torn."""

from pathlib import Path

from holdfast.journal.record import CLOSED, RESERVED, frame_all, own_record
from holdfast.journal.recovery import find_end
from holdfast.journal.segment import HEAD_SIZE, SegmentName, checksum, encode_head


def record(offset: int) -> bytes:
    return b"\x01\x10" + offset.to_bytes(8, "little") + b"body"


def write_segment(folder: Path, first: int, records: list[bytes], tail: bytes = b"") -> int:
    folder.mkdir(exist_ok=True)
    sound = encode_head(first) + frame_all(records, checksum)
    (folder / str(SegmentName(first))).write_bytes(sound + tail)
    return len(sound)


def test_a_folder_without_segments_starts_at_one(tmp_path: Path) -> None:
    end = find_end(tmp_path)
    assert (end.name, end.last, end.next_offset) == (None, 0, 1)


def test_the_next_offset_is_behind_the_last_record_and_what_was_reserved(tmp_path: Path) -> None:
    write_segment(tmp_path, 1, [own_record(RESERVED, 0, 500), record(1), record(2)])
    assert find_end(tmp_path).next_offset == 500
    write_segment(tmp_path, 1, [own_record(RESERVED, 0, 500), record(1), record(700)])
    assert find_end(tmp_path).next_offset == 701


def test_a_clean_end_says_the_next_offset(tmp_path: Path) -> None:
    write_segment(tmp_path, 1, [own_record(RESERVED, 0, 500), record(1), own_record(CLOSED, 1, 9)])
    assert find_end(tmp_path).next_offset == 9


def test_a_reservation_after_a_clean_end_counts_again(tmp_path: Path) -> None:
    write_segment(tmp_path, 1, [record(1), own_record(CLOSED, 1, 9), own_record(RESERVED, 1, 800)])
    assert find_end(tmp_path).next_offset == 800


def test_space_set_aside_is_not_torn_and_half_a_record_is(tmp_path: Path) -> None:
    size = write_segment(tmp_path, 1, [record(1)], tail=bytes(4096))
    end = find_end(tmp_path)
    assert (end.size, end.torn) == (size, 0)
    size = write_segment(tmp_path, 1, [record(1)], tail=frame_all([record(2)], checksum)[:-3] + bytes(4096))
    end = find_end(tmp_path)
    assert end.size == size
    assert end.torn > 0


def test_a_whole_but_damaged_last_record_is_kept_in_quarantine(tmp_path: Path) -> None:
    folder, quarantine = tmp_path / "journal", tmp_path / "quarantine"
    bad = bytearray(frame_all([record(2)], checksum))
    bad[-1] ^= 1
    size = write_segment(folder, 1, [record(1)], tail=bytes(bad))
    end = find_end(folder, quarantine)
    assert (end.size, end.torn, end.last) == (size, len(bad), 1)
    assert [path.read_bytes() for path in quarantine.iterdir()] == [bytes(bad)]


def test_a_segment_that_was_created_and_never_written_is_no_place_to_go_on(tmp_path: Path) -> None:
    write_segment(tmp_path, 1, [own_record(RESERVED, 0, 500), record(1), record(2)])
    (tmp_path / str(SegmentName(3))).write_bytes(bytes(4096))
    end = find_end(tmp_path)
    assert (end.name, end.size, end.last, end.next_offset) == (SegmentName(3), 0, 2, 500)
    assert end.damage == []
    (tmp_path / str(SegmentName(3))).write_bytes(b"")
    assert find_end(tmp_path).size == 0


def test_an_empty_but_sound_segment_is_gone_on_with(tmp_path: Path) -> None:
    write_segment(tmp_path, 1, [own_record(RESERVED, 0, 500), record(1)])
    write_segment(tmp_path, 2, [])
    end = find_end(tmp_path)
    assert (end.name, end.size, end.last, end.next_offset) == (SegmentName(2), HEAD_SIZE, 1, 500)
