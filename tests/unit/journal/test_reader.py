"""Reading past damage: everything sound is served, everything else is kept and accounted for."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from faulty_disk import OpenDisk
from holdfast.errors import StoreError
from holdfast.journal.disk import Disk
from holdfast.journal.reader import Reader
from holdfast.journal.record import FRAME_SIZE, frame_all, offset_of
from holdfast.journal.segment import FORMAT, HEAD_SIZE, SegmentName, checksum, encode_head, segment_names


def record(offset: int, body: bytes = b"body") -> bytes:
    return b"\x01\x10" + offset.to_bytes(8, "little") + body


def write_segment(folder: Path, first: int, records: list[bytes], generation: int = 0, tail: bytes = b"") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / str(SegmentName(first, generation))
    path.write_bytes(encode_head(first) + frame_all(records, checksum) + tail)
    return path


DISK = OpenDisk()


def open_reader(folder: Path, after: int = 0, quarantine: Path | None = None) -> Reader:
    return Reader(folder, after, quarantine, DISK)


@pytest.fixture(autouse=True)
def no_segment_stays_open() -> Iterator[None]:
    yield
    DISK.let_go()


def read_all(reader: Reader) -> list[int]:
    offsets: list[int] = []
    while records := reader.read():
        offsets += [offset_of(r) for r in records]
    return offsets


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def quarantine(tmp_path: Path) -> Path:
    return tmp_path / "quarantine"


def test_an_empty_or_missing_folder_has_no_records(folder: Path) -> None:
    assert read_all(open_reader(folder)) == []
    folder.mkdir()
    assert read_all(open_reader(folder)) == []


def test_reading_starts_behind_any_offset(folder: Path) -> None:
    write_segment(folder, 1, [record(o) for o in range(1, 11)])
    write_segment(folder, 11, [record(o) for o in range(11, 21)])
    for after in range(21):
        reader = open_reader(folder, after)
        assert read_all(reader) == list(range(after + 1, 21))
        assert reader.damage == []


def test_what_is_passed_over_is_never_taken_for_the_end(folder: Path) -> None:
    write_segment(folder, 1, [record(o, bytes(10_000)) for o in range(1, 501)])
    reader = open_reader(folder, 499)
    assert [offset_of(r) for r in reader.read(max_bytes=1000)] == [500]
    assert reader.read(max_bytes=1000) == []


def test_records_larger_than_a_read_are_read(folder: Path) -> None:
    write_segment(folder, 1, [record(1, bytes(5 << 20)), record(2)])
    assert read_all(open_reader(folder)) == [1, 2]


def test_a_torn_tail_is_the_end_and_not_damage(folder: Path) -> None:
    whole = frame_all([record(3)], checksum)
    for cut in range(1, len(whole)):
        write_segment(folder, 1, [record(1), record(2)], tail=whole[:cut])
        reader = open_reader(folder)
        assert read_all(reader) == [1, 2]
        assert reader.damage == []


def test_a_damaged_record_in_the_middle_costs_only_itself_and_its_bytes_are_kept(
    folder: Path, quarantine: Path
) -> None:
    records = [record(o, b"%d" % o) for o in range(1, 6)]
    path = write_segment(folder, 1, records)
    start = HEAD_SIZE + len(frame_all(records[:2], checksum))
    damaged = bytearray(path.read_bytes())
    damaged[start + FRAME_SIZE + 10] ^= 0x40
    path.write_bytes(damaged)
    reader = open_reader(folder, quarantine=quarantine)
    assert read_all(reader) == [1, 2, 4, 5]
    (damage,) = reader.damage
    assert (damage.first, damage.last, damage.position) == (3, 3, start)
    kept = (quarantine / damage.kept_as).read_bytes()
    assert kept == bytes(damaged[start : start + len(kept)])
    assert len(kept) == len(frame_all([records[2]], checksum))
    assert "offsets 3 to 3" in str(damage)


def test_a_damaged_length_does_not_hide_what_follows(folder: Path) -> None:
    records = [record(o) for o in range(1, 6)]
    path = write_segment(folder, 1, records)
    damaged = bytearray(path.read_bytes())
    damaged[HEAD_SIZE + len(frame_all(records[:1], checksum)) + 4] = 0x7F
    path.write_bytes(damaged)
    reader = open_reader(folder)
    assert read_all(reader) == [1, 3, 4, 5]


def test_a_page_of_zeros_in_the_middle_is_damage(folder: Path, quarantine: Path) -> None:
    records = [record(o, bytes([o]) * 500) for o in range(1, 40)]
    path = write_segment(folder, 1, records)
    data = bytearray(path.read_bytes())
    data[4096:8192] = bytes(4096)
    path.write_bytes(data)
    reader = open_reader(folder, quarantine=quarantine)
    offsets = read_all(reader)
    assert offsets[0] == 1
    assert offsets[-1] == 39
    assert 25 < len(offsets) < 39
    (damage,) = reader.damage
    assert set(range(damage.first, damage.last + 1)) == set(range(1, 40)) - set(offsets)


def test_a_segment_cut_short_in_the_middle_is_reported_with_the_offsets_it_may_have_had(folder: Path) -> None:
    path = write_segment(folder, 1, [record(o) for o in range(1, 11)])
    path.write_bytes(path.read_bytes()[:-20])
    write_segment(folder, 11, [record(11)])
    reader = open_reader(folder)
    assert read_all(reader) == [*range(1, 10), 11]
    (damage,) = reader.damage
    assert (damage.first, damage.last) == (10, 10)


def test_a_missing_segment_is_reported(folder: Path) -> None:
    write_segment(folder, 1, [record(o) for o in range(1, 11)]).unlink()
    write_segment(folder, 11, [record(11)])
    reader = open_reader(folder, 5)
    assert read_all(reader) == [11]
    (damage,) = reader.damage
    assert (damage.first, damage.last) == (6, 10)


def test_a_damaged_head_costs_nothing(folder: Path) -> None:
    path = write_segment(folder, 1, [record(1), record(2)])
    path.write_bytes(b"XX" + path.read_bytes()[2:])
    reader = open_reader(folder)
    assert read_all(reader) == [1, 2]
    assert "nothing lost" in str(reader.damage[0])


def test_a_later_format_is_refused_rather_than_guessed_at(folder: Path) -> None:
    path = write_segment(folder, 1, [record(1)])
    data = bytearray(path.read_bytes())
    data[8] = FORMAT + 1
    data[20:24] = checksum(bytes(data[:20])).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(StoreError, match=f"format {FORMAT + 1}, this version reads up to {FORMAT}"):
        read_all(open_reader(folder))


def test_a_newer_generation_hides_the_file_it_replaced(folder: Path) -> None:
    write_segment(folder, 5, [record(5, b"never durable")])
    write_segment(folder, 5, [record(5, b"the one")], generation=1)
    reader = open_reader(folder, 4)
    assert [r[10:] for r in reader.read()] == [b"the one"]
    assert reader.damage == []


def test_other_files_in_the_folder_are_left_alone(folder: Path) -> None:
    write_segment(folder, 1, [record(1)])
    (folder / "notes.txt").write_text("hello")
    (folder / "x.hfj").write_text("hello")
    assert segment_names(Disk(), folder) == [SegmentName(1)]
    assert read_all(open_reader(folder)) == [1]


@pytest.mark.parametrize("seed", range(40))
def test_any_damage_leaves_a_subsequence_and_names_what_is_missing(folder: Path, quarantine: Path, seed: int) -> None:
    chance = random.Random(seed)
    firsts = [1, 31, 61]
    for first in firsts:
        bodies = [bytes(chance.randbytes(chance.randint(0, 200))) for _ in range(30)]
        write_segment(folder, first, [record(first + i, body) for i, body in enumerate(bodies)])
    for _ in range(chance.randint(1, 6)):
        path = folder / str(SegmentName(chance.choice(firsts)))
        data = bytearray(path.read_bytes())
        at = chance.randrange(HEAD_SIZE, len(data))
        size = chance.choice([1, 1, 3, 64])
        data[at : at + size] = chance.randbytes(len(data[at : at + size]))
        path.write_bytes(data)
    reader = open_reader(folder, quarantine=quarantine)
    offsets = read_all(reader)
    assert offsets == sorted(set(offsets))
    missing = set(range(1, 91)) - set(offsets)
    named = {o for damage in reader.damage for o in range(damage.first, damage.last + 1)}
    last = offsets[-1] if offsets else 0
    assert {o for o in missing if o < last} <= named
    assert len(missing) < 60
