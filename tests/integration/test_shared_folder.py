"""A data folder that two processes have open at once."""

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.errors import StoreError
from holdfast.journal.lock import FolderLock
from holdfast.state.store import StateStore
from log_records import retained

SMALL = 1 << 20


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


def test_a_reader_elsewhere_follows_when_the_map_grows(tmp_path: Path) -> None:
    store = StateStore(tmp_path, map_size=SMALL)
    store.apply([retained("t/0", b"first", 1)])
    code = (
        "import sys; from pathlib import Path; from holdfast.state.store import StateStore;"
        "s = StateStore(Path(sys.argv[1]), map_size=1 << 20); print(s.applied, flush=True); sys.stdin.readline();"
        "print(s.applied, s.retained.get(b't/900') is not None, flush=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == "1\n"
        store.apply([retained(f"t/{i}", bytes(5000), i + 1) for i in range(1, 1000)])
        other.stdin.write("go\n")
        other.stdin.flush()
        assert other.stdout.readline() == "1000 True\n"
