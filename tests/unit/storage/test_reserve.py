"""Free space that is left alone: the history stops before the journal has to, and goes on by itself."""

import json
from pathlib import Path

import pytest

from holdfast.config import Settings, load
from holdfast.from_settings import history_options, reserve_of
from holdfast.history.table import load as load_table
from holdfast.journal.reader import Reader
from holdfast.journal.watermark import Watermark
from holdfast.storage.doctor import notes_on
from holdfast.storage.folder import DataFolder
from holdfast.storage.follower_main import HistoryFollower, catch_up
from holdfast.storage.history_options import HistoryOptions
from holdfast.storage.recovery import recover
from holdfast.storage.reserve import NO_RESERVE, Reserve, Space, space_at
from log_records import retained

MIB, GIB, TIB = 1 << 20, 1 << 30, 1 << 40


@pytest.mark.parametrize(
    ("bounds", "total", "expected"),
    [
        (["5%", "1GiB"], 4 * TIB, GIB),
        (["5%", "1GiB"], 8 * GIB, 8 * GIB // 20),
        (["2GiB"], 8 * GIB, 2 * GIB),
        (["12.5%"], 8 * GIB, GIB),
        (["0"], 8 * GIB, 0),
        (["5%", "0"], 8 * GIB, 0),
    ],
)
def test_of_several_bounds_the_smallest_counts(bounds: list[str], total: int, expected: int) -> None:
    assert reserve_of(bounds).of(total) == expected


def test_the_default_of_the_configuration_is_what_the_doctor_takes_for_granted() -> None:
    assert history_options(Settings(), 1).reserve == Reserve()


@pytest.mark.parametrize(
    ("given", "read"),
    [("1GiB", ["1GiB"]), ("5%", ["5%"]), ("2.50 %, 1073741824", ["2.5%", "1GiB"]), ("0", ["0"]), ('["7%"]', ["7%"])],
)
def test_a_reserve_is_a_size_or_a_percentage_or_several(given: str, read: list[str]) -> None:
    assert load(assignments=[f"history.reserve={given}"], environ={}).settings.history.reserve == read


def test_the_real_file_system_is_asked(tmp_path: Path) -> None:
    space = space_at(tmp_path)
    assert 0 < space.free <= space.total


def test_options_survive_their_way_to_the_process() -> None:
    options = HistoryOptions(0.5, 60, 1000, Reserve(7, 1.5), 9)
    assert HistoryOptions.of_json(options.to_json()) == options


class Disk:
    """A told amount of free space."""

    def __init__(self) -> None:
        self.free = 10 * GIB

    def space(self, folder: Path) -> Space:
        return Space(100 * GIB, self.free)


class Following:
    """A journal with records, and a history that follows it on a disk of which the test says how much is free."""

    def __init__(self, root: Path, reserve: Reserve) -> None:
        self.folder = DataFolder(root)
        self.recovered = recover(self.folder, history=True, schedule=lambda action: action())
        self.disk = Disk()
        self.follower = HistoryFollower(self.folder, HistoryOptions(reserve=reserve), self.disk.space)
        self.reader = Reader(self.folder.journal, self.follower.open(), self.folder.quarantine)
        self.watermark = Watermark(self.folder.journal)

    def publish(self, first: int, last: int) -> None:
        journal = self.recovered.journal
        journal.append([retained(f"t/{o}", b"%d" % o, o) for o in range(first, last + 1)], lambda error: None)
        journal.step()
        assert journal.durable == last

    def rows_once_caught_up(self) -> int:
        catch_up(self.follower, self.reader, self.watermark)
        return int(load_table(self.folder.history).to_pyarrow_dataset().count_rows())

    def close(self) -> None:
        self.reader.close()
        self.follower.close()
        self.recovered.journal.close()
        self.recovered.store.close()
        self.recovered.lock.release()


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What was reported about a pause, in order."""
    reports = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [report["paused"] for report in reports if "paused" in report]


def test_history_stops_below_its_reserve_and_takes_up_what_the_journal_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    following = Following(tmp_path, Reserve())
    following.publish(1, 10)
    assert following.rows_once_caught_up() == 10
    assert said(capsys) == []
    following.disk.free = GIB - 1
    following.publish(11, 20)
    assert following.rows_once_caught_up() == following.rows_once_caught_up() == 10
    [why] = said(capsys)
    assert "1024.0 MiB of 100.0 GiB are free, expected at least 1.0 GiB (history.reserve)" in why
    assert "history.retention_bytes" in why
    following.disk.free = GIB + 1
    assert following.rows_once_caught_up() == 10, "a little more would be gone at once"
    assert said(capsys) == []
    following.disk.free = 2 * GIB
    assert following.rows_once_caught_up() == 20
    assert said(capsys) == [""]
    following.close()


def test_without_a_reserve_it_never_stops(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    following = Following(tmp_path, NO_RESERVE)
    following.disk.free = 0
    following.publish(1, 10)
    assert following.rows_once_caught_up() == 10
    assert said(capsys) == []
    following.close()


def test_the_doctor_says_when_there_is_little_space() -> None:
    assert notes_on(Space(100 * GIB, GIB)) == []
    [note] = notes_on(Space(100 * GIB, 500 * MIB))
    assert "500.0 MiB of 100.0 GiB are free, less than the 1.0 GiB" in note
    assert "history.reserve" in note
