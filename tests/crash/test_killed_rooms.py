"""The disk rooms die between their steps, and the next start makes up for it."""

import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import crash_rooms
from crash_rooms import DIED, ROWS, record, take_up
from holdfast.history.table import complete_from, last_offset, load
from holdfast.history.writer import HistoryWriter
from holdfast.journal.disk import Disk
from holdfast.journal.segment import segment_names
from holdfast.storage.folder import DataFolder
from log_records import read_from

PROGRAM = [sys.executable, crash_rooms.__file__]
RECORDS = 300


def fold(upto: int, after: int = 0) -> dict[str, bytes]:
    state: dict[str, bytes] = {}
    for offset in range(after + 1, upto + 1):
        topic = f"t/{offset * 7 % 23}"
        if offset % 6 == 0:
            state.pop(topic, None)
        else:
            state[topic] = b"%d" % offset
    return state


@pytest.fixture
def damaged(tmp_path: Path) -> DataFolder:
    """A state that cannot be read, a journal that does not reach back, one damaged record, a torn tail, a history."""
    folder = DataFolder(tmp_path / "damaged")
    recovered = take_up(folder)
    for offset in range(1, RECORDS + 1):
        recovered.journal.append([record(offset)])
        recovered.journal.step()
    recovered.store.close()
    recovered.lock.release()
    writer = HistoryWriter(folder.history, folder.quarantine)
    writer.append(list(read_from(folder.journal)), RECORDS)
    writer.close()
    names = segment_names(Disk(), folder.journal)
    for name in names[:3]:
        (folder.journal / str(name)).unlink()
    last = folder.journal / str(names[-1])
    last.write_bytes(last.read_bytes().rstrip(b"\0")[:-3])
    (folder.state / "data.mdb").write_bytes(b"rubbish" * 3000)
    return folder


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("tried", [5, pytest.param(1000, marks=pytest.mark.long)])
def test_recovery_may_die_at_any_step_and_is_made_good_by_the_next(
    damaged: DataFolder, tmp_path: Path, tried: int
) -> None:
    expected = fold(RECORDS - 1)  # the torn record was never whole
    whole = tmp_path / "whole"
    shutil.copytree(damaged.root, whole)
    done = subprocess.run([*PROGRAM, "recover", str(whole), "0"], capture_output=True, text=True, check=True)
    steps = int(done.stdout)
    assert steps > 20
    for step in range(1, steps + 1, max(1, steps // tried)):
        root = tmp_path / f"step-{step}"
        shutil.copytree(damaged.root, root)
        died = subprocess.run([*PROGRAM, "recover", str(root), str(step)], capture_output=True, text=True, check=False)
        assert died.returncode == DIED, died.stderr
        recovered = take_up(DataFolder(root))
        found = {m.topic.decode(): m.payload for batch in recovered.store.retained.all() for m in batch}
        assert found == expected, f"after dying at step {step}"
        assert recovered.journal.next_offset > RECORDS
        recovered.store.close()
        recovered.lock.release()
        shutil.rmtree(root)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kills", [4, pytest.param(20, marks=pytest.mark.long)])
def test_history_may_be_killed_at_any_moment_and_has_each_row_once(tmp_path: Path, kills: int) -> None:
    folder = DataFolder(tmp_path)
    chance = random.Random(1)
    last = commits = 0
    for _ in range(kills):
        with subprocess.Popen([*PROGRAM, "history", str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            for _ in range(chance.randint(0, 8)):
                assert process.stdout.readline()
                commits += 1
            time.sleep(chance.uniform(0.0, 0.1))
            process.kill()
        table = load(folder.history)
        reached = last_offset(table)
        assert reached >= last, "what was committed stays"
        last = reached
        rows = table.to_pyarrow_table().sort_by("offset")
        offsets = rows["offset"].to_pylist()
        assert len(offsets) == len(set(offsets)), "no row twice"
        complete = max(1, complete_from(table))
        assert [o for o in offsets if o >= complete] == list(range(complete, last + 1)), "no row missing"
        state: dict[str, bytes] = {}
        for row in rows.select(["topic", "payload", "outcome"]).to_pylist():
            if row["outcome"] == "set":
                state[row["topic"]] = row["payload"]
            else:
                state.pop(row["topic"], None)
        assert state == fold(last), "and the fold is right, also behind retention"
    assert last >= commits * ROWS > 0
