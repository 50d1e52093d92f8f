"""The history table: each publish once, in order, whatever happens between two commits."""

import os
import random
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from history_writers import open_writer
from holdfast.broker.message import CLEARED
from holdfast.errors import StoreError
from holdfast.history import repair, upkeep
from holdfast.history.compaction import compact
from holdfast.history.reader import HistoryReader
from holdfast.history.schema import COLUMNS, FORMAT_APP_ID, WRITER_APP_ID
from holdfast.history.table import complete_from, data_files, last_offset, live_from, load
from holdfast.history.writer import HistoryWriter
from log_records import NOW_MS, retained


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data" / "history"


def offsets(folder: Path) -> list[int]:
    return sorted(load(folder).to_pyarrow_dataset().to_table(columns=["offset"])["offset"].to_pylist())


def fill(writer: HistoryWriter, first: int, last: int, topics: int = 5) -> None:
    writer.append([retained(f"t/{o % topics}", b"%d" % o, o) for o in range(first, last + 1)], last)


def test_a_commit_carries_the_offset_it_brings_the_table_to(folder: Path) -> None:
    writer = open_writer(folder)
    assert writer.append([retained("t", b"x", 3), retained("t", b"y", 5)], upto=8) == 2
    writer.close()
    table = DeltaTable(str(folder))
    assert table.transaction_version(WRITER_APP_ID) == 8
    assert table.transaction_version(FORMAT_APP_ID) == 1
    assert open_writer(folder).last == 8


def test_records_that_are_in_the_table_are_not_written_again(folder: Path) -> None:
    writer = open_writer(folder)
    records = [retained("t", b"x", o) for o in range(1, 21)]
    writer.append(records[:10], 10)
    writer.close()
    again = open_writer(folder)
    assert again.append(records[5:15], 15) == 5
    assert again.append(records, 20) == 5
    assert offsets(folder) == list(range(1, 21))


def test_a_stretch_without_rows_makes_no_commit(folder: Path) -> None:
    writer = open_writer(folder)
    fill(writer, 1, 3)
    version = writer.table.version()
    assert writer.append([], 900) == 0
    assert DeltaTable(str(folder)).version() == version


def test_a_second_writer_is_refused_until_the_first_is_gone(folder: Path) -> None:
    writer = open_writer(folder)
    with pytest.raises(StoreError, match="in use by another writer"):
        open_writer(folder)
    writer.close()
    open_writer(folder).close()


def test_a_writer_that_is_closed_again_closes_nothing_of_others(folder: Path) -> None:
    writer = open_writer(folder)
    number = writer.lock
    writer.close()
    with (folder.parent / "others").open("w") as other:
        if other.fileno() != number:
            os.dup2(other.fileno(), number)
        writer.close()
        os.fstat(number)
        if other.fileno() != number:
            os.close(number)


def test_a_table_that_cannot_be_written_is_an_error_and_nothing_changes(folder: Path) -> None:
    writer = open_writer(folder)
    fill(writer, 1, 3)
    moved = folder.with_name("moved")
    folder.rename(moved)
    folder.write_text("in the way")
    with pytest.raises(StoreError, match="history cannot be written"):
        fill(writer, 4, 6)
    assert writer.last == 3
    folder.unlink()
    moved.rename(folder)
    fill(writer, 4, 6)
    assert offsets(folder) == [1, 2, 3, 4, 5, 6]


def test_any_engine_reads_the_table(folder: Path) -> None:
    writer = open_writer(folder)
    fill(writer, 1, 100)
    names = [name for name, _ in COLUMNS]
    assert DeltaTable(str(folder)).to_pyarrow_table().column_names == names
    frame = polars.read_delta(str(folder))
    assert frame.columns == names
    assert frame["offset"].sort().to_list() == list(range(1, 101))
    with duckdb.connect() as connection:
        dataset = DeltaTable(str(folder)).to_pyarrow_dataset()
        connection.register("history", dataset)
        last = connection.sql('select topic, arg_max(payload, "offset") from history group by topic order by topic')
        assert last.fetchall() == [(f"t/{i}", b"%d" % (95 + i if i else 100)) for i in range(5)]
    plain = [str(path) for path in folder.glob("*.parquet")]
    with duckdb.connect() as connection:
        assert connection.read_parquet(plain).count("*").fetchall() == [(100,)]


def test_small_files_become_few_and_no_row_changes(folder: Path) -> None:
    writer = open_writer(folder)
    for i in range(40):
        fill(writer, i * 10 + 1, i * 10 + 10)
    before = writer.table.to_pyarrow_table().sort_by("offset")
    assert compact(writer.table, folder) == 39
    assert len(data_files(writer.table)) == 1
    fill(writer, 401, 410)
    after = load(folder).to_pyarrow_table().sort_by("offset")
    assert after.slice(0, 400).equals(before)
    assert open_after(writer, folder).last == 410


def open_after(writer: HistoryWriter, folder: Path) -> HistoryWriter:
    writer.close()
    return open_writer(folder)


def test_vacuum_deletes_what_no_version_needs_and_readers_still_read(folder: Path) -> None:
    writer = open_writer(folder)
    for i in range(30):
        fill(writer, i + 1, i + 1)
    compact(writer.table, folder)
    (folder / "part-00000-of-a-commit-that-never-came.parquet").write_bytes(b"orphan")
    reader = HistoryReader(folder)
    assert upkeep.vacuum(writer.table, keep_hours=1) == 0, "a reader may still be at it"
    assert upkeep.vacuum(writer.table, keep_hours=0) == 31
    assert len(list(folder.glob("*.parquet"))) == 1
    assert reader.of_topic("t/1").num_rows == 6


def fold(table: DeltaTable, at_ms: int) -> dict[str, bytes]:
    state: dict[str, tuple[str, bytes, object]] = {}
    for row in table.to_pyarrow_table().sort_by("offset").to_pylist():
        if row["outcome"] in ("set", "cleared"):
            state[row["topic"]] = (row["outcome"], row["payload"], row["expires_at"])
    return {
        topic: payload
        for topic, (outcome, payload, expires) in state.items()
        if outcome == "set" and (expires is None or expires.timestamp() * 1000 > at_ms)  # type: ignore[attr-defined]
    }


@pytest.mark.parametrize("at_once", [1, upkeep.ROWS_AT_ONCE])
@pytest.mark.parametrize(
    "limits",
    [upkeep.Limits(size=1), upkeep.Limits(age_s=1), upkeep.Limits(age_s=1, size=1)],
    ids=["by size", "by age", "by both"],
)
@pytest.mark.parametrize("seed", range(3))
def test_retention_drops_the_past_and_never_changes_the_fold(
    folder: Path, seed: int, limits: upkeep.Limits, at_once: int
) -> None:
    chance = random.Random(seed)
    writer = open_writer(folder)
    offset = 0
    for _ in range(12):
        records: list[bytes] = []
        for _ in range(50):
            offset += 1
            topic = f"t/{chance.randint(0, 40)}"
            if chance.random() < 0.2:
                records.append(retained(topic, b"", offset, outcome=CLEARED))
            else:
                expires = NOW_MS + chance.randint(1, 700) if chance.random() < 0.2 else 0
                records.append(retained(topic, b"%d" % offset, offset, expires_at_ms=expires))
        writer.append(records, offset)
    now_ms = NOW_MS + offset + 1001 if limits.age_s else NOW_MS + offset
    expected = fold(writer.table, now_ms)
    assert expected
    dropped = upkeep.retain(writer.table, limits, now_ms, at_once)
    assert dropped > 400
    assert fold(load(folder), now_ms) == expected
    assert complete_from(load(folder)) == offset + 1
    assert last_offset(load(folder)) == offset, "what the writer knows is not forgotten"
    found = HistoryReader(folder).retained_at(now_ms)
    assert dict(zip(found["topic"].to_pylist(), found["payload"].to_pylist(), strict=True)) == expected
    assert upkeep.retain(writer.table, limits, now_ms, at_once) == 0, "nothing more to drop"


def test_retention_by_age_keeps_files_with_anything_young(folder: Path) -> None:
    writer = open_writer(folder)
    fill(writer, 1, 100)  # a millisecond each
    writer.append([retained("t/0", b"young", 200, at_ms=NOW_MS + 100_000)], 200)
    assert upkeep.retain(writer.table, upkeep.Limits(age_s=3600), NOW_MS + 101_000) == 0
    assert upkeep.retain(writer.table, upkeep.Limits(age_s=60), NOW_MS + 101_000) == 95
    assert offsets(folder) == [96, 97, 98, 99, 100, 200]
    assert complete_from(load(folder)) == 200


def test_the_past_of_a_topic_and_the_set_of_a_moment_can_be_asked(folder: Path) -> None:
    writer = open_writer(folder)
    writer.append(
        [
            retained("a", b"1", 1),
            retained("b", b"2", 2, expires_at_ms=NOW_MS + 6),
            retained("a", b"3", 3),
            retained("c/d", b"4", 4),
            retained("a", b"", 5, outcome=CLEARED),
            retained("b", b"7", 7),
        ],
        7,
    )
    reader = HistoryReader(folder)

    def at(ms: int, topic_filter: str = "#") -> dict[str, bytes]:
        found = reader.retained_at(NOW_MS + ms, topic_filter)
        return dict(zip(found["topic"].to_pylist(), found["payload"].to_pylist(), strict=True))

    assert at(0) == {}
    assert at(2) == {"a": b"1", "b": b"2"}
    assert at(4) == {"a": b"3", "b": b"2", "c/d": b"4"}
    assert at(4, "c/+") == {"c/d": b"4"}
    assert at(6) == {"c/d": b"4"}, "a was cleared, b had expired"
    assert at(7) == {"b": b"7", "c/d": b"4"}
    assert reader.of_topic("a")["payload"].to_pylist() == [b"1", b"3", b""]
    assert reader.of_topic("a", most=2)["offset"].to_pylist() == [3, 5]
    assert reader.of_topic("a", from_ms=NOW_MS + 2, to_ms=NOW_MS + 3)["offset"].to_pylist() == [3]
    upto = reader.retained_upto(3, NOW_MS)
    assert dict(zip(upto["topic"].to_pylist(), upto["payload"].to_pylist(), strict=True)) == {"a": b"3", "b": b"2"}


@pytest.mark.parametrize("most", [1, 3, 7, 40])
def test_the_newest_rows_of_a_topic_are_the_same_page_by_page(folder: Path, most: int) -> None:
    writer = open_writer(folder)
    for first in range(1, 100, 10):
        fill(writer, first, first + 9)
    writer.close()
    reader = HistoryReader(folder)
    pages: list[int] = []
    before = 0
    while page := reader.of_topic("t/3", most=most, before=before)["offset"].to_pylist():
        assert len(page) <= most
        pages[:0] = page
        before = page[0]
    assert pages == list(range(3, 100, 5))


def test_the_last_rows_of_a_topic_are_found_without_reading_old_files(folder: Path) -> None:
    writer = open_writer(folder)
    for first in range(1, 100, 10):
        fill(writer, first, first + 9)
    writer.close()
    reader = HistoryReader(folder)
    paths = dict(zip(*add_columns(folder, "max.offset", "path"), strict=True))
    for last, path in paths.items():
        if last <= 70:
            (folder / path).unlink()
    assert reader.of_topic("t/3", most=4)["offset"].to_pylist() == [83, 88, 93, 98]


def add_columns(folder: Path, *names: str) -> list[list[Any]]:
    actions = pa.table(load(folder).get_add_actions(flatten=True))
    return [actions[name].to_pylist() for name in names]


@pytest.mark.parametrize("damage", ["empty", "cut", "garbage", "file cut", "file missing"])
def test_commits_torn_by_a_power_cut_are_taken_back_and_written_again(folder: Path, damage: str) -> None:
    writer = open_writer(folder)
    for i in range(5):
        fill(writer, i * 10 + 1, i * 10 + 10)
    writer.close()
    commit = repair.commits(folder)[-2]
    if damage.startswith("file"):
        path = folder / next(a["add"]["path"] for a in repair.actions_of(commit) if "add" in a)
        path.unlink() if damage == "file missing" else path.write_bytes(path.read_bytes()[:100])
    else:
        content = {"empty": b"", "cut": commit.read_bytes()[:-30], "garbage": bytes(300)}[damage]
        commit.write_bytes(content)
    again = open_writer(folder)
    assert again.last == 30
    assert "took back 2 commits" in again.repaired
    fill(again, 31, 50)
    assert offsets(folder) == list(range(1, 51))
    assert repair.problems(folder) == []


@pytest.mark.parametrize("damage", ["file cut", "file missing"])
def test_a_damaged_file_that_the_journal_cannot_give_back_costs_its_own_rows_only(folder: Path, damage: str) -> None:
    writer = open_writer(folder)
    for i in range(5):
        fill(writer, i * 10 + 1, i * 10 + 10)
    writer.close()
    path = folder / next(a["add"]["path"] for a in repair.actions_of(repair.commits(folder)[-3]) if "add" in a)
    path.unlink() if damage == "file missing" else path.write_bytes(path.read_bytes()[:100])
    again = open_writer(folder, kept_from=41)
    assert (again.repaired, again.last) == ("", 50)
    fill(again, 51, 60)
    again.close()
    assert len(repair.problems(folder)) == 1
    [lost] = repair.forget_missing(folder)
    assert "offsets 21 to 30 are lost" in lost
    assert offsets(folder) == [*range(1, 21), *range(31, 61)]


def test_a_table_damaged_deep_inside_stops_history_and_is_not_guessed_at(folder: Path) -> None:
    writer = open_writer(folder)
    fill(writer, 1, 10)
    writer.close()
    for path in (folder / "_delta_log").iterdir():
        path.write_bytes(b"")
    with pytest.raises(StoreError, match="cannot be opened"):
        load(folder)
    with pytest.raises(StoreError, match="no sound commit to go back to"):
        open_writer(folder)
    assert list(folder.glob("*.parquet")), "its rows are still there for whoever can read them"


def test_files_lost_from_the_table_are_named(folder: Path) -> None:
    writer = open_writer(folder)
    fill(writer, 1, 10)
    assert repair.problems(folder) == []
    (lost,) = folder.glob("*.parquet")
    lost.unlink()
    assert repair.problems(folder) == [f"file {lost.name} is missing"]


def test_syncing_touches_files_and_survives_their_removal(folder: Path) -> None:
    writer = open_writer(folder)
    fill(writer, 1, 10)
    writer.sync(0.0)
    assert pc.max(load(folder).to_pyarrow_table()["offset"]).as_py() == 10
    repair.sync_path(str(folder / "gone"))


def test_a_table_says_from_where_on_publishes_without_retain_are_in_it(folder: Path) -> None:
    writer = open_writer(folder)
    writer.mark_live(7)
    assert live_from(load(folder)) == 1, "a table that has always had them need not say so"
    fill(writer, 1, 10)
    writer.mark_live(0)
    assert live_from(load(folder)) == 0
    version = load(folder).version()
    writer.mark_live(0)
    writer.mark_live(None)
    assert load(folder).version() == version, "nothing has changed"
    fill(writer, 11, 20)
    writer.mark_live(21)
    writer.mark_live(31)
    assert live_from(load(folder)) == 21, "they are there since then"
    fill(writer, 21, 30)
    writer.table.create_checkpoint()
    compact(writer.table, folder)
    assert (live_from(load(folder)), open_after(writer, folder).last) == (21, 30)
    assert offsets(folder) == list(range(1, 31))
    assert repair.problems(folder) == []
