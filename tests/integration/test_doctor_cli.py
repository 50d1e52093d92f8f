"""`holdfast doctor`: says what is wrong with a data folder, and repairs it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from holdfast.cli.main import build_app
from holdfast.journal.disk import Disk
from holdfast.journal.segment import segment_names
from holdfast.storage.folder import DataFolder
from holdfast.storage.recovery import recover
from log_records import retained


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(build_app("doctor"), ["doctor", *arguments])
    return done.exit_code, done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    folder = DataFolder(tmp_path / "data")
    recovered = recover(folder, history=False, schedule=lambda action: action())
    recovered.journal.append([retained(f"t/{o}", b"value %d" % o, o) for o in range(1, 11)])
    recovered.journal.close(11)
    recovered.store.close()
    recovered.lock.release()
    return folder


def test_a_sound_folder_is_said_to_be_so(folder: DataFolder) -> None:
    code, out = run(str(folder.root))
    assert code == 0
    assert "10 records in the journal" in out
    assert "nothing wrong" in out


def test_damage_is_named_and_gone_after_a_repair(folder: DataFolder) -> None:
    path = folder.journal / str(segment_names(Disk(), folder.journal)[0])
    path.write_bytes(path.read_bytes().replace(b"value 4", b"VALUE 4"))
    code, out = run(str(folder.root))
    assert code == 1
    assert "offsets 1 to 10" in out  # they were written together and share a checksum
    assert "--repair" in out
    code, out = run(str(folder.root), "--repair", "--json")
    assert code == 0
    document = json.loads(out)
    assert document["findings"]
    assert document["repairs"]
    assert document["left"] == []
    assert run(str(folder.root))[0] == 0
