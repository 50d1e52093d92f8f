"""One broker for one data folder."""

import os
from pathlib import Path

import pytest

from holdfast.errors import StoreError
from holdfast.journal.lock import FolderLock


def test_a_second_holder_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path / "data")
    with pytest.raises(StoreError, match=f"in use by process {os.getpid()}"):
        FolderLock(tmp_path / "data")
    lock.release()
    FolderLock(tmp_path / "data").release()
