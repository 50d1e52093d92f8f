"""Examining and repairing a data folder: every kind of damage is named, and gone after a repair."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.broker.session_records import encode_will_cleared
from holdfast.errors import StoreError
from holdfast.history.writer import HistoryWriter
from holdfast.journal.disk import Disk
from holdfast.journal.record import TOGETHER, frame_all, framed_size, own_record
from holdfast.journal.segment import checksum, segment_names
from holdfast.journal.writer import Options
from holdfast.state.environment import TABLES, Environment
from holdfast.storage import doctor
from holdfast.storage.folder import DataFolder
from holdfast.storage.recovery import Recovered, recover
from log_records import read_from, retained

OPTIONS = Options(segment_bytes=3000, allocate_bytes=4096, background_sync_s=0.0)


def at_once(action: Callable[[], None]) -> None:
    action()


def start(folder: DataFolder) -> Recovered:
    return recover(folder, history=True, schedule=at_once, options=OPTIONS)


def stop(recovered: Recovered, next_offset: int = 0) -> None:
    recovered.journal.close(next_offset)
    recovered.store.close()
    recovered.lock.release()


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    """A hundred retained messages on a hundred topics, in journal, state and history."""
    folder = DataFolder(tmp_path / "data")
    recovered = start(folder)
    for offset in range(1, 101):
        recovered.journal.append([retained(f"t/{offset}", b"value %d" % offset, offset)])
        recovered.journal.step()
    stop(recovered, 101)
    stop(start(folder))
    writer = HistoryWriter(folder.history, folder.quarantine)
    for first in range(0, 100, 20):
        writer.append(list(read_from(folder.journal, first, first + 20)), first + 20)
    writer.close()
    return folder


def texts(folder: DataFolder, part: str = "") -> list[str]:
    return [f.text for f in doctor.examine(folder).findings if not part or f.part == part]


def contents(folder: DataFolder) -> dict[bytes, bytes]:
    recovered = start(folder)
    found = {m.topic: m.payload for batch in recovered.store.retained.all() for m in batch}
    stop(recovered)
    return found


WHOLE = {b"t/%d" % o: b"value %d" % o for o in range(1, 101)}


def test_a_sound_folder_has_no_findings(folder: DataFolder) -> None:
    report = doctor.examine(folder)
    assert report.findings == []
    assert (report.records, report.last_offset, report.retained, report.rows_upto) == (100, 100, 100, 100)
    assert doctor.repair(folder) == []
    assert contents(folder) == WHOLE


def test_a_folder_in_use_or_missing_is_refused(folder: DataFolder, tmp_path: Path) -> None:
    recovered = start(folder)
    with pytest.raises(StoreError, match="in use"):
        doctor.examine(folder)
    with pytest.raises(StoreError, match="in use"):
        doctor.repair(folder)
    stop(recovered)
    with pytest.raises(StoreError, match="no data folder"):
        doctor.examine(DataFolder(tmp_path / "nowhere"))


def seen(folder: DataFolder) -> dict[Path, tuple[int, bytes]]:
    """Everything in the folder with its time and content, locks included."""
    paths = [folder.root, *folder.root.rglob("*")]
    return {path: (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"") for path in paths}


def test_examining_changes_nothing(folder: DataFolder) -> None:
    path = folder.journal / str(segment_names(Disk(), folder.journal)[1])
    path.write_bytes(path.read_bytes()[:-10] + b"0123456789")
    before = seen(folder)
    assert doctor.examine(folder).findings
    assert seen(folder) == before


def test_examining_a_folder_in_use_changes_nothing(folder: DataFolder) -> None:
    recovered = start(folder)
    before = seen(folder)
    with pytest.raises(StoreError, match=f"in use by process {os.getpid()}"):
        doctor.examine(folder)
    assert seen(folder) == before
    stop(recovered)


def test_examining_a_copy_without_lock_files_makes_none(folder: DataFolder) -> None:
    (folder.root / "lock").unlink()
    (folder.state / "lock.mdb").unlink()
    before = seen(folder)
    assert doctor.examine(folder).findings == []
    assert seen(folder) == before


@pytest.mark.parametrize("missing", [["snapshots"], ["retained", "sessions", "snapshots"], list(TABLES)])
def test_tables_that_are_missing_are_not_made_by_looking(folder: DataFolder, missing: list[str]) -> None:
    environment = Environment(folder.state)
    with environment.env.begin(write=True) as txn:
        for name in missing:
            txn.drop(environment.db[name], delete=True)
    environment.close()
    before = seen(folder)
    report = doctor.examine(folder)
    assert report.retained == (0 if "retained" in missing else 100)
    assert [finding.part for finding in report.findings if finding.part != "state"] == []
    assert seen(folder) == before


def test_an_empty_folder_is_examined_and_stays_empty(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    folder.state.mkdir()
    before = seen(folder)
    assert replace(doctor.examine(folder), notes=[]) == doctor.Report(0, 0, 0, 0, 0, [], [])
    assert seen(folder) == before


def test_a_state_that_a_follower_still_writes_is_not_examined(folder: DataFolder) -> None:
    code = f"import lmdb, sys; held = lmdb.open({str(folder.state)!r}); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as follower:
        assert follower.stdout is not None
        follower.stdout.readline()
        with pytest.raises(StoreError, match=f"process {follower.pid} still writes the state"):
            doctor.examine(folder)
    assert doctor.examine(folder).findings == []


def test_damaged_segments_are_written_anew_from_what_is_sound(folder: DataFolder) -> None:
    names = segment_names(Disk(), folder.journal)
    path = folder.journal / str(names[1])
    content = bytearray(path.read_bytes())
    lost = names[1].first + 2
    content[content.index(b"value %d" % lost)] ^= 0xFF
    path.write_bytes(content)
    (finding,) = texts(folder, "journal")
    assert f"offsets {lost} to {lost}" in finding
    done = doctor.repair(folder)
    assert any("was set aside" in line for line in done)
    assert texts(folder) == []
    assert path.name not in [p.name for p in folder.journal.iterdir()]
    offsets = [int.from_bytes(r[2:10], "little") for r in read_from(folder.journal)]
    assert offsets == [o for o in range(1, 101) if o != lost]
    assert contents(folder) == WHOLE, "the state had it already"


def test_repairing_the_last_segment_gives_out_no_offset_twice(folder: DataFolder) -> None:
    last = segment_names(Disk(), folder.journal)[-1]
    path = folder.journal / str(last)
    before = start(folder)
    known = before.journal.next_offset
    before.store.close()
    before.lock.release()
    content = bytearray(path.read_bytes())
    content[content.index(b"value %d" % (last.first + 1))] ^= 0xFF
    path.write_bytes(content)
    doctor.repair(folder)
    again = start(folder)
    assert again.journal.next_offset >= known
    stop(again)


def test_a_torn_tail_is_named_and_cut(folder: DataFolder) -> None:
    path = folder.journal / str(segment_names(Disk(), folder.journal)[-1])
    path.write_bytes(path.read_bytes() + b"\xf5\x48\x80\x00\x00\x00half a record")
    assert "was cut short" in texts(folder, "journal")[0]
    doctor.repair(folder)
    assert texts(folder) == []
    assert contents(folder) == WHOLE


def test_half_of_what_was_written_together_is_cut_as_a_whole(folder: DataFolder) -> None:
    path = folder.journal / str(segment_names(Disk(), folder.journal)[-1])
    records = [encode_will_cleared(offset, 1) for offset in (101, 102)]
    together = own_record(TOGETHER, 100, framed_size(records))
    path.write_bytes(path.read_bytes() + frame_all([together, *records], checksum)[:-3])
    assert "was cut short" in texts(folder, "journal")[0]
    assert doctor.examine(folder).records == 100
    doctor.repair(folder)
    assert texts(folder) == []
    assert len(list(read_from(folder.journal))) == 100
    assert contents(folder) == WHOLE


def test_a_state_that_cannot_be_read_is_built_anew(folder: DataFolder) -> None:
    (folder.state / "data.mdb").write_bytes(b"rubbish" * 5000)
    assert texts(folder, "state")
    assert any("set aside as state.1" in line for line in doctor.repair(folder))
    assert contents(folder) == WHOLE
    assert texts(folder) == []


def test_a_damaged_value_is_fetched_from_history(folder: DataFolder) -> None:
    recovered = start(folder)
    db = recovered.store.environment.db["retained"]
    with recovered.store.environment.env.begin(write=True) as txn:
        for key in (b"t\x0042", b"t\x0077"):
            txn.put(key, (txn.get(key, db=db) or b"")[:-1] + b"!", db=db)
    stop(recovered)
    assert texts(folder) == ["table retained has 2 values that fail their checksum"]
    done = doctor.repair(folder)
    assert "state: the retained message of t/42 was damaged and is taken from history again" in done
    assert texts(folder) == []
    assert contents(folder) == WHOLE
    recovered = start(folder)
    assert recovered.store.retained.statistics().count == 100
    stop(recovered)


def test_a_history_that_cannot_be_read_is_set_aside(folder: DataFolder) -> None:
    for path in (folder.history / "_delta_log").iterdir():
        path.write_bytes(b"")
    assert texts(folder, "history")
    assert any("set aside as history.1" in line for line in doctor.repair(folder))
    assert texts(folder) == []
    assert contents(folder) == WHOLE


def test_a_lost_file_of_the_history_costs_its_rows_and_no_others(folder: DataFolder) -> None:
    from holdfast.history import repair
    from holdfast.history.table import load

    commit = repair.commits(folder.history)[2]
    lost = next(action["add"]["path"] for action in repair.actions_of(commit) if "add" in action)
    (folder.history / lost).unlink()
    # Behind a checkpoint the commits before it are history themselves: the tail is not torn then.
    load(folder.history).create_checkpoint()
    for path in repair.commits(folder.history)[:-1]:
        path.unlink()
    assert texts(folder, "history") == [f"file {lost} is missing"]
    done = doctor.repair(folder)
    assert any("offsets 21 to 40 are lost" in line for line in done)
    assert texts(folder) == []
    rows = load(folder.history).to_pyarrow_table()["offset"].to_pylist()
    assert sorted(rows) == [o for o in range(1, 101) if not 21 <= o <= 40]


def test_a_damaged_file_of_history_costs_no_sound_rows_once_the_journal_has_moved_on(folder: DataFolder) -> None:
    from holdfast.history import repair
    from holdfast.history.table import load

    for segment in folder.journal.glob("*.hfj"):
        segment.unlink()
    commit = repair.commits(folder.history)[2]
    damaged = folder.history / next(action["add"]["path"] for action in repair.actions_of(commit) if "add" in action)
    damaged.write_bytes(damaged.read_bytes()[:50])
    assert any("offsets 21 to 40 are lost" in line for line in doctor.repair(folder))
    rows = load(folder.history).to_pyarrow_table()["offset"].to_pylist()
    assert sorted(rows) == [o for o in range(1, 101) if not 21 <= o <= 40]
