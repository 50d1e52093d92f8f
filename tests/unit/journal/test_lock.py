"""One broker for one data folder."""

import os
import subprocess
import sys
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


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from holdfast.journal.lock import FolderLock;"
        "FolderLock(Path(sys.argv[1])); print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StoreError, match=f"in use by process {holder.pid}"):
            FolderLock(tmp_path)
        holder.kill()
        holder.wait()
    FolderLock(tmp_path).release()
