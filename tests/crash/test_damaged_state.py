"""Damaged LMDB files are recognised without taking the broker down."""

import random
from pathlib import Path

import pytest

from holdfast.errors import StoreError
from holdfast.state import check
from holdfast.state.store import StateStore
from log_records import retained


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    store = StateStore(tmp_path)
    store.apply([retained(f"t/{i}/{i * 7 % 100}", bytes(100), i + 1) for i in range(3000)])
    store.close()
    return tmp_path


def test_a_sound_state_and_a_missing_one_have_no_problems(folder: Path, tmp_path: Path) -> None:
    assert check.problems(folder) == []
    assert check.problems(folder, values=True) == []
    assert check.problems(tmp_path / "nothing") == []


def test_a_file_that_is_not_lmdb_is_a_problem(folder: Path) -> None:
    (folder / "data.mdb").write_bytes(b"not a database" * 1000)
    assert "cannot be opened" in check.problems(folder)[0]
    with pytest.raises(StoreError):
        StateStore(folder)


def test_a_truncated_file_is_a_problem_and_not_a_crash(folder: Path) -> None:
    data = (folder / "data.mdb").read_bytes()
    (folder / "data.mdb").write_bytes(data[: len(data) // 3])
    assert check.problems(folder)


def test_overwritten_pages_are_a_problem_and_not_a_crash(folder: Path) -> None:
    data = bytearray((folder / "data.mdb").read_bytes())
    for page in range(3, len(data) // 4096):
        data[page * 4096 : page * 4096 + 64] = random.Random(page).randbytes(64)
    (folder / "data.mdb").write_bytes(data)
    assert check.problems(folder)


def test_a_flipped_bit_in_a_value_is_seen_when_values_are_checked(folder: Path) -> None:
    store = StateStore(folder)
    db = store.environment.db["retained"]
    with store.environment.env.begin(write=True) as txn, txn.cursor(db) as cursor:
        cursor.first()
        txn.put(cursor.key(), cursor.value()[:-1] + b"!", db=db)
    store.close()
    assert check.problems(folder) == []
    assert check.problems(folder, values=True) == ["table retained has 1 values that fail their checksum"]


def test_whoever_waits_for_the_check_of_a_state_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    StateStore(tmp_path).close()
    monkeypatch.setattr(check, "WAITING_S", 0.001)
    waited: list[int] = []
    assert check.problems(tmp_path, waiting=lambda: waited.append(1)) == []
    assert waited
