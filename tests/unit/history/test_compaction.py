"""Small files become few large ones by themselves: rows stay as they were, for every kind of reader."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from history_writers import open_writer
from holdfast.errors import StoreError
from holdfast.history import compaction
from holdfast.history.compaction import compact, join, worth_joining
from holdfast.history.layout import Gain, last_gain, layout
from holdfast.history.reader import HistoryReader
from holdfast.history.table import DataFile, data_files, load
from holdfast.history.upkeep import Limits, keep_replaced, retain, vacuum
from holdfast.history.writer import HistoryWriter
from log_records import NOW_MS, retained

KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data" / "history"


def fill(writer: HistoryWriter, commits: int, rows: int = 3) -> None:
    for _ in range(commits):
        first = writer.last + 1
        offsets = range(first, first + rows)
        writer.append([retained(f"t/{o % 7}", b"%d" % o, o) for o in offsets], offsets[-1])


def told(sizes: list[int], first: int = 0) -> list[DataFile]:
    return [DataFile(f"f{i}", size, 1, i, i, 0) for i, size in enumerate(sizes, first)]


def joined(files: list[DataFile], chosen: list[DataFile]) -> list[DataFile]:
    """The files after a compaction that keeps every byte."""
    if not chosen:
        return files
    whole = replace(
        chosen[-1], path="j" + chosen[-1].path, size=sum(file.size for file in chosen), first=chosen[0].first
    )
    return sorted([*(file for file in files if file not in chosen), whole], key=lambda file: file.first)


@pytest.mark.parametrize("size", [4 * KIB, 40 * KIB, 4 * MIB])
def test_a_commit_a_second_leaves_no_more_than_a_file_a_minute(size: int) -> None:
    files: list[DataFile] = []
    written = 0
    for second in range(1, 18 * 60 + 1):
        files += told([size], second)
        if second % 10 == 0:
            while chosen := worth_joining(files):
                files = joined(files, chosen)
                written += sum(file.size for file in chosen)
    large = [file for file in files if file.size >= 32 * MIB]
    assert len(files) - len(large) <= 18
    assert all(file.size <= 64 * MIB for file in files)
    assert written <= 20 * 18 * 60 * size + 110 * MIB, "rows are written again only as their file doubles"


def test_rows_that_come_no_more_leave_fewer_files_still() -> None:
    files = told([30 * MIB, 9 * MIB, 4 * KIB, 4 * KIB])
    assert worth_joining(files) == []
    assert worth_joining(files, settled=True) == files[2:]


def test_files_that_have_their_size_stay_and_what_lies_between_them_is_joined() -> None:
    files = told([64 * MIB, 5 * MIB, 6 * MIB, 40 * MIB, 2 * MIB])
    assert worth_joining(files) == files[1:3]
    assert worth_joining(told([64 * MIB, 40 * MIB, 33 * MIB])) == []


def test_compaction_changes_no_row_and_no_stream_reads_one_twice(folder: Path) -> None:
    writer = open_writer(folder)
    fill(writer, 40)
    before = writer.table.to_pyarrow_table().sort_by("offset")
    assert compact(writer.table, folder) == 39
    assert load(folder).to_pyarrow_table().sort_by("offset").equals(before)
    [commit] = sorted((folder / "_delta_log").glob("*.json"))[-1:]
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    changes = [action[kind]["dataChange"] for action in actions for kind in ("add", "remove") if kind in action]
    assert changes == [False] * 41
    fill(writer, 1)
    writer.close()
    assert open_writer(folder).last == 123, "the writer's own place in the journal is untouched"


def test_bounds_in_the_log_still_tell_where_a_row_is(folder: Path) -> None:
    writer = open_writer(folder)
    fill(writer, 20)
    before = data_files(writer.table)
    compact(writer.table, folder)
    [file] = data_files(load(folder))
    assert (file.rows, file.first, file.last) == (60, 1, 60)
    assert file.newest_us == max(one.newest_us for one in before)
    assert HistoryReader(folder).of_topic("t/3")["offset"].to_pylist() == list(range(3, 61, 7))
    assert HistoryReader(folder).of_topic("t/3", most=2, before=40)["offset"].to_pylist() == [31, 38]


def test_whatever_a_row_has_it_is_found_by_that_afterwards(folder: Path) -> None:
    """A column without bounds in the log would hide its file from who asks for it."""
    writer = open_writer(folder)
    long = "t/" + "x" * 300
    for offset in (1, 11):
        writer.append([retained(long, b"", offset), retained("é/∞", b"1", offset + 1)], offset + 1)
    before = load(folder).to_pyarrow_table().sort_by("offset")
    compact(writer.table, folder)
    assert HistoryReader(folder).of_topic(long)["offset"].to_pylist() == [1, 11]
    data = load(folder).to_pyarrow_dataset()
    for name in ("retain", "qos", "client_id", "username", "protocol", "outcome", "offset", "timestamp"):
        for value in set(before[name].to_pylist()):
            found = data.to_table(filter=pc.field(name) == pa.scalar(value, before.schema.field(name).type))
            assert found.num_rows == sum(1 for one in before[name].to_pylist() if one == value), name


def test_rows_lie_by_topic_within_blocks_by_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "BLOCK_ROWS", 70)
    monkeypatch.setattr(compaction, "GROUP_ROWS", 10)
    writer = open_writer(folder)
    fill(writer, 20, rows=7)
    compact(writer.table, folder)
    [file] = data_files(writer.table)
    read = pq.ParquetFile(folder / file.path)
    groups = [read.read_row_group(i).to_pydict() for i in range(read.metadata.num_row_groups)]
    assert [len(set(group["topic"])) for group in groups] == [1] * 14, "a reader of one topic needs one group a block"
    blocks = [groups[:7], groups[7:]]
    assert [max(max(group["offset"]) for group in block) for block in blocks] == [70, 140]


def test_others_may_commit_between_two_blocks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "BLOCK_ROWS", 10)
    writer = open_writer(folder)
    fill(writer, 20)
    steps = 0
    for gain in join(writer.table, folder, data_files(writer.table)):
        steps += gain is None
        if gain is None:
            fill(writer, 1)
    assert steps >= 5
    assert load(folder).to_pyarrow_table().sort_by("offset")["offset"].to_pylist() == list(range(1, writer.last + 1))


def test_a_compaction_whose_files_were_replaced_meanwhile_changes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "BLOCK_ROWS", 10)
    writer = open_writer(folder)
    fill(writer, 20)
    work = join(writer.table, folder, data_files(writer.table))
    next(work)
    assert retain(writer.table, Limits(age_s=1), NOW_MS + 10_000_000) > 0
    left = writer.table.to_pyarrow_table().sort_by("offset")
    assert [gain for gain in work if gain is not None] == []
    assert load(folder).to_pyarrow_table().sort_by("offset").equals(left)
    assert {path.name for path in folder.glob("joined-*")} == set()


def test_a_compaction_that_would_lose_rows_is_refused(folder: Path) -> None:
    writer = open_writer(folder)
    fill(writer, 3)
    files = data_files(writer.table)
    wrong = [replace(files[0], rows=4), *files[1:]]
    with pytest.raises(StoreError, match="9 rows were read, expected 10"):
        list(join(writer.table, folder, wrong))
    assert len(data_files(load(folder))) == 3


def test_the_table_says_what_the_last_compaction_gained(folder: Path) -> None:
    writer = open_writer(folder)
    assert last_gain(writer.table) is None
    fill(writer, 30)
    before = sum(file.size for file in data_files(writer.table))
    compact(writer.table, folder)
    [file] = data_files(writer.table)
    gain = last_gain(load(folder))
    assert gain is not None
    assert gain == Gain(30, before, 1, file.size, gain.at_ms)
    found = layout(folder)
    assert (found["files"], found["bytes"], found["replaced_files"]) == (1, file.size, 30)
    assert found["last_compaction"]["bytes_after"] < before


def test_what_was_replaced_goes_when_the_time_that_readers_have_is_over(folder: Path) -> None:
    writer = open_writer(folder)
    fill(writer, 10)
    compact(writer.table, folder)
    assert vacuum(writer.table) == 0
    keep_replaced(writer.table, 0)
    assert vacuum(writer.table) == 10
    assert layout(folder)["replaced_files"] == 0
    version = writer.table.version()
    keep_replaced(writer.table, 0)
    assert writer.table.version() == version, "what the table says already is not said again"
    assert len(DeltaTable(str(folder)).to_pyarrow_table()) == 30
