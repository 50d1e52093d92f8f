"""Erasing from the table: what goes, what stays and says so, and that any moment of the past is told rightly after."""

import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from history_writers import open_writer
from holdfast.broker.message import CLEARED, LIVE, SET, Publisher
from holdfast.history import upkeep
from holdfast.history.compaction import compact
from holdfast.history.erase import carry_out, find
from holdfast.history.erased import Erasure, Selector
from holdfast.history.reader import HistoryReader, records
from holdfast.history.schema import ERASED_APP_ID, ERASED_PROTOCOL, ERASED_TOPIC
from holdfast.history.table import last_offset, load
from holdfast.history.writer import HistoryWriter
from log_records import NOW_MS, retained

ALICE = Publisher("phone", "alice", "5.0")
BOB = Publisher("desk", "bob", "3.1.1")
DONE_MS = NOW_MS + 1_000_000
Row = tuple[str, Publisher, int]


def token(offset: int) -> bytes:
    """Bytes that no compression makes shorter, to be looked for on the disk."""
    return random.Random(offset).randbytes(40)


def published(topic: str, payload: bytes, offset: int, publisher: Publisher, outcome: int) -> bytes:
    return retained(topic, payload, offset, outcome, publisher=publisher, retain=outcome != LIVE)


def fill(folder: Path, rows: list[Row], at_once: int = 3) -> HistoryWriter:
    """A table with a row for each (topic, publisher, outcome), from offset 1 on, in files of so many rows."""
    writer = open_writer(folder)
    made = [
        published(topic, b"" if outcome == CLEARED else token(offset), offset, publisher, outcome)
        for offset, (topic, publisher, outcome) in enumerate(rows, 1)
    ]
    for start in range(0, len(made), at_once):
        writer.append(made[start : start + at_once], min(start + at_once, len(made)))
    return writer


def erase(writer: HistoryWriter, kind: str, value: str, name: str = "one") -> Erasure:
    steps = list(carry_out(writer.table, writer.at, name, Selector(kind, value), DONE_MS))
    assert steps[-1].erasure is not None
    writer.reload()
    return steps[-1].erasure


def rows_of(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = load(folder).to_pyarrow_table().sort_by("offset").to_pylist()
    return rows


def on_disk(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def retained_then(folder: Path, offset: int) -> dict[str, bytes]:
    found = HistoryReader(folder).retained_upto(offset, DONE_MS)
    return dict(zip(found["topic"].to_pylist(), found["payload"].to_pylist(), strict=True))


def expected_then(rows: list[Row], gone: set[int], offset: int) -> dict[str, bytes]:
    """What the broker had then, without what was erased since."""
    held: dict[str, bytes] = {}
    for number, (topic, _, outcome) in enumerate(rows[:offset], 1):
        if outcome != LIVE:
            held.pop(topic, None)
        if outcome == SET and number not in gone:
            held[topic] = token(number)
    return held


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data" / "history"


STORY: list[Row] = [
    ("a", BOB, SET),
    ("a", ALICE, SET),
    ("a", ALICE, SET),
    ("b", ALICE, SET),
    ("a", BOB, SET),
    ("c", BOB, SET),
    ("c", ALICE, CLEARED),
    ("a", ALICE, LIVE),
    ("b", ALICE, SET),
]


def test_rows_of_a_user_go_and_one_without_payload_says_so(folder: Path) -> None:
    writer = fill(folder, STORY)
    done = erase(writer, "user", "alice")
    assert (done.rows, done.upto) == (5, 9)
    rows = rows_of(folder)
    assert [row["offset"] for row in rows if row["username"] == "alice"] == [9]  # in force
    left = {row["offset"]: row for row in rows if row["protocol"] == ERASED_PROTOCOL}
    assert all(row["payload"] == b"" and not row["client_id"] and row["username"] is None for row in left.values())
    # after a value of Bob's, the first of hers stays as what ended it; the record is the only row that names her
    assert {offset: (row["topic"], row["outcome"]) for offset, row in left.items()} == {
        2: ("a", "cleared"),
        7: ("c", "cleared"),
        8: (ERASED_TOPIC, "live"),
    }
    assert [offset for offset, row in left.items() if "alice" in str(row["user_properties"])] == [8]
    assert records(load(folder)) == [(8, done)]


def test_no_byte_of_what_was_erased_is_left_in_the_folder(folder: Path) -> None:
    writer = fill(folder, STORY)
    compact(writer.table, folder)
    assert token(2) in on_disk(folder)  # in files that the newest version has no more
    erase(writer, "user", "alice")
    left = on_disk(folder)
    assert [offset for offset in range(1, 10) if token(offset) in left] == [1, 5, 6, 9]
    assert b"phone" not in b"".join(path.read_bytes() for path in (folder / "_delta_log").glob("*.json"))


def test_a_topic_leaves_nothing_but_the_record(folder: Path) -> None:
    writer = fill(
        folder, [("home/x/1", ALICE, SET), ("home/x/2", BOB, SET), ("home/x/1", BOB, CLEARED), ("k", BOB, SET)]
    )
    done = erase(writer, "topic", "home/+/1")
    assert done.rows == 2
    assert [(row["offset"], row["topic"]) for row in rows_of(folder)] == [(2, "home/x/2"), (3, ERASED_TOPIC), (4, "k")]


@pytest.mark.parametrize(
    ("offsets", "upto", "place"), [((1, 3, 4), 4, 2), ((1, 2, 3), 5, 4), ((1, 2, 4), 4, 3), ((7, 8, 9), 9, 6)]
)
def test_where_every_row_leaves_a_mark_the_record_takes_an_offset_that_has_no_row(
    folder: Path, offsets: tuple[int, int, int], upto: int, place: int
) -> None:
    """A mark that names the user would tell every reader of its topic who had published there."""
    writer = open_writer(folder)
    first, second, third = offsets
    writer.append([published("a", token(1), first, BOB, SET), published("a", token(3), second, ALICE, SET)], second)
    writer.append([published("a", token(4), third, BOB, SET)], upto)
    done = erase(writer, "user", "alice")
    assert records(load(folder)) == [(place, done)]
    rows = rows_of(folder)
    assert {row["offset"]: (row["topic"], row["outcome"]) for row in rows} == {
        first: ("a", "set"),
        second: ("a", "cleared"),
        third: ("a", "set"),
        place: (ERASED_TOPIC, "live"),
    }
    assert [row["timestamp"] for row in rows] == sorted(row["timestamp"] for row in rows)
    assert [row["offset"] for row in rows if "alice" in str(row)] == [place]


def test_where_every_offset_is_taken_the_last_mark_is_the_record(folder: Path) -> None:
    writer = fill(folder, [("a", BOB, SET), ("a", ALICE, CLEARED)])
    done = erase(writer, "client", "phone")
    assert records(load(folder)) == [(2, done)]
    assert retained_then(folder, 2) == {}


@pytest.mark.parametrize("seed", range(20))
def test_every_moment_is_told_as_it_was_without_what_was_erased(folder: Path, seed: int) -> None:
    chance = random.Random(seed)
    rows: list[Row] = [
        (chance.choice("abc"), chance.choice([ALICE, BOB]), chance.choice([SET, SET, CLEARED, LIVE])) for _ in range(40)
    ]
    writer = fill(folder, rows, at_once=chance.randrange(1, 12))
    last = {topic: number for number, (topic, _, outcome) in enumerate(rows, 1) if outcome != LIVE}
    in_force = {number for number in last.values() if rows[number - 1][2] == SET}
    gone = {number for number, row in enumerate(rows, 1) if row[1] is ALICE} - in_force
    done = erase(writer, "user", "alice")
    assert done.rows == len(gone)
    for offset in range(1, 41):
        assert retained_then(folder, offset) == expected_then(rows, gone, offset), offset


@pytest.mark.parametrize("steps", range(6))
def test_an_erasure_that_is_cut_off_anywhere_is_finished_by_another_try(folder: Path, steps: int) -> None:
    writer = fill(folder, STORY * 3, at_once=5)
    begun = carry_out(writer.table, folder, "one", Selector("user", "alice"), DONE_MS)
    assert len(list(zip(range(steps), begun, strict=False))) == steps
    del begun
    writer.append([published("b", b"later", 28, ALICE, SET)], 28)
    writer.close()
    again = open_writer(folder)
    done = erase(again, "user", "alice")
    assert len(records(load(folder))) == 1
    if steps:
        assert done.upto == 27  # as it was begun
    left = on_disk(folder)
    assert [offset for offset in range(1, 28) if token(offset) in left and STORY[(offset - 1) % 9][1] is ALICE] == (
        [27] if steps else []
    )
    assert again.table.transaction_version(ERASED_APP_ID) == 1
    assert last_offset(load(folder)) == 28


def test_others_may_commit_between_two_steps(folder: Path) -> None:
    writer = fill(folder, STORY * 3, at_once=5)
    offset = 27
    for step in carry_out(writer.table, folder, "one", Selector("user", "alice"), DONE_MS):
        if step.erasure is None:
            offset += 1
            writer.append([published("b", token(offset), offset, ALICE, SET)], offset)
    writer.reload()
    assert offset > 28
    assert {row["offset"] for row in rows_of(folder)} >= set(range(28, offset + 1))
    assert not find(load(folder), Selector("user", "alice"), 26, DONE_MS).rows.num_rows


def test_a_table_that_was_open_before_goes_on_after(folder: Path) -> None:
    writer = fill(folder, STORY)
    before = DeltaTable(str(folder))
    erase(writer, "user", "alice")
    writer.append([published("z", b"new", 10, BOB, SET)], 10)
    before.update_incremental()
    assert before.version() == load(folder).version()


def test_torn_commits_after_an_erasure_are_taken_back_as_ever(folder: Path) -> None:
    writer = fill(folder, STORY)
    erase(writer, "user", "alice")
    writer.append([published("z", b"new", 10, BOB, SET)], 10)
    newest = max(folder.glob("part-*"), key=lambda path: path.stat().st_mtime_ns)
    newest.write_bytes(newest.read_bytes()[:-9])
    writer.close()
    again = open_writer(folder, kept_from=5)
    assert "took back 1 commits" in again.repaired
    assert again.last == 9


def test_retention_leaves_the_record(folder: Path) -> None:
    writer = fill(folder, STORY)
    done = erase(writer, "user", "alice")
    assert upkeep.drop(writer.table, 10, DONE_MS) > 0
    assert records(load(folder)) == [(8, done)]


def test_a_selector_that_finds_nothing_still_empties_the_past(folder: Path) -> None:
    """Files that a compaction has replaced may hold rows that retention has dropped since."""
    writer = fill(folder, STORY)
    upkeep.drop(writer.table, 9, DONE_MS)
    assert token(2) in on_disk(folder)
    done = erase(writer, "topic", "nothing/#")
    assert done.rows == 0
    assert token(2) not in on_disk(folder)


def test_who_knows_nothing_of_erasures_folds_rightly(folder: Path) -> None:
    """The fold of the guide, in SQL: for each topic the last row that set or cleared."""
    erase(fill(folder, STORY), "user", "alice")
    table: pa.Table = load(folder).to_pyarrow_table()
    database = duckdb.connect()
    database.register("history", table)
    query = """
        select topic from (
            select *, row_number() over (partition by topic order by "offset" desc) as newest from history
            where outcome in ('set', 'cleared') and "offset" <= ?
        ) where newest = 1 and outcome = 'set' order by topic
    """
    assert [row[0] for row in database.execute(query, [3]).fetchall()] == []
    assert [row[0] for row in database.execute(query, [9]).fetchall()] == ["a", "b"]
