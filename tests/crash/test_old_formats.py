"""Files written by every format version so far are still read. `files/vN` was written by the code of version N.

A new format adds a folder and keeps the old ones. `python tests/crash/test_old_formats.py` writes the newest.
"""

import shutil
import sys
from pathlib import Path

import pytest

from holdfast.broker.message import CLEARED
from holdfast.broker.records import encode_stored_message
from holdfast.broker.session_records import (
    UNACKNOWLEDGED,
    QueuedRecord,
    SessionRecord,
    SubscriptionRecord,
    WillRecord,
    encode_done,
    encode_queued,
    encode_received,
    encode_sent,
    encode_session,
    encode_subscribed,
    encode_will,
)
from holdfast.storage.folder import DataFolder
from holdfast.storage.recovery import Recovered, recover
from log_records import NOW_MS, live, message, retained

FILES = Path(__file__).parent / "files"

# The first half of this log is in the state of the files, all of it in their journal.
LOG = [
    retained("plant/1/temp", b"21.5", 1),
    retained("plant/2/temp", b"22", 2, qos=2, expires_at_ms=NOW_MS + 10**12, properties=b"\x01\x01\x03\x00\x01x"),
    retained("gone", b"soon", 3),
    retained("l" * 2000, b"a long topic", 4),
    encode_session(5, SessionRecord(5, "client", "owner", 5, 3600, NOW_MS, NOW_MS + 5)),
    encode_subscribed(6, SubscriptionRecord(5, b"plant/#", 0b1001, 7)),
    encode_will(7, WillRecord(5, b"will", b"bye", 1, True, 10, 60, b"\x01\x01")),
    live("plant/x", b"queued", 8, kept=True),
    encode_queued(9, 8, [QueuedRecord(5, 1, 8, 1, False, [7])]),
    retained("gone", b"", 10, outcome=CLEARED),
    encode_sent(11, 5, 1, 77, UNACKNOWLEDGED),
    encode_received(12, 5, 99),
    encode_stored_message(13, message("plant/1/temp", b"21.5", 1)),
    encode_queued(14, 1, [QueuedRecord(5, 2, 1, 1, True, [])]),
    live("plant/x", b"done", 15, kept=True),
    encode_queued(16, 15, [QueuedRecord(5, 3, 15, 1, False, [])]),
    encode_done(17, 5, [3]),
    retained("plant/3/temp", b"23", 18),
]


def start(root: Path) -> Recovered:
    return recover(DataFolder(root), history=False, schedule=lambda action: action())


def stop(recovered: Recovered, next_offset: int = 0) -> None:
    recovered.journal.close(next_offset)
    recovered.store.close()
    recovered.lock.release()


@pytest.mark.parametrize("version", sorted(path.name for path in FILES.iterdir()))
@pytest.mark.parametrize("without", ["", "state", "journal"])
def test_a_folder_of_an_older_version_is_taken_up(tmp_path: Path, version: str, without: str) -> None:
    root = tmp_path / "data"
    shutil.copytree(FILES / version, root)
    if without:
        shutil.rmtree(root / without)
    recovered = start(root)
    assert recovered.losses == []
    found = {m.topic: m.payload for batch in recovered.store.retained.all() for m in batch}
    expected = {b"plant/1/temp": b"21.5", b"plant/2/temp": b"22", b"l" * 2000: b"a long topic"}
    (session,) = recovered.store.sessions.all()
    assert session.record.client_id == "client"
    assert [s.topic_filter for s in session.subscriptions] == [b"plant/#"]
    assert session.will is not None
    assert session.will.payload == b"bye"
    queue = [(e.seq, e.message_offset, e.packet_id) for e in session.queue]
    if without == "journal":
        assert found == {**expected, b"gone": b"soon"}
        assert queue == [(1, 8, 0)]
        assert recovered.journal.next_offset == 10
    else:
        assert found == {**expected, b"plant/3/temp": b"23"}
        assert queue == [(1, 8, 77), (2, 1, 0)]
        assert session.unreleased == [99]
        assert sorted(recovered.store.sessions.messages()) == [1, 8]
        assert recovered.journal.next_offset == 19
    stop(recovered)


def write_files(root: Path) -> None:
    """Half of the log is applied, then a state of that moment is kept beside the whole journal."""
    half = len(LOG) // 2
    recovered = start(root)
    recovered.journal.append(LOG[:half])
    stop(recovered, half + 1)
    stop(start(root), half + 1)
    shutil.copytree(root / "state", root / "kept")
    recovered = start(root)
    recovered.journal.append(LOG[half:])
    stop(recovered, len(LOG) + 1)
    shutil.rmtree(root / "state")
    (root / "kept").rename(root / "state")
    for name in ("lock", "state/lock.mdb", "journal/durable"):
        (root / name).unlink(missing_ok=True)


if __name__ == "__main__":
    write_files(FILES / sys.argv[1])
