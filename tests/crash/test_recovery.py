"""Taking up a data folder: whatever was damaged, the broker starts, serves the rest and says what is missing."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.broker.message import CLEARED
from holdfast.broker.session_records import SessionRecord, encode_session
from holdfast.errors import StoreError
from holdfast.history.writer import HistoryWriter
from holdfast.journal.disk import Disk
from holdfast.journal.segment import HEAD_SIZE, segment_names
from holdfast.journal.writer import Options
from holdfast.storage.folder import DataFolder
from holdfast.storage.recovery import Recovered, recover
from log_records import read_from, retained
from seeds import thinned

OPTIONS = Options(segment_bytes=2000, allocate_bytes=4096, background_sync_s=0.0)


def at_once(action: Callable[[], None]) -> None:
    action()


def start(folder: DataFolder) -> Recovered:
    return recover(folder, history=True, schedule=at_once, options=OPTIONS)


def stop(recovered: Recovered, next_offset: int = 0) -> None:
    recovered.journal.close(next_offset)
    recovered.store.close()
    recovered.lock.release()


def write(recovered: Recovered, *records: bytes) -> None:
    recovered.journal.append(list(records))
    recovered.journal.step()


def contents(recovered: Recovered) -> dict[bytes, bytes]:
    return {m.topic: m.payload for batch in recovered.store.retained.all() for m in batch}


def publish(recovered: Recovered, count: int) -> dict[bytes, bytes]:
    """Sets and clears over a few topics; what they add up to."""
    model: dict[bytes, bytes] = {}
    first = recovered.journal.next_offset
    for offset in range(first, first + count):
        topic = f"t/{offset % 7}"
        if offset % 5 == 0:
            write(recovered, retained(topic, b"", offset, outcome=CLEARED))
            model.pop(topic.encode(), None)
        else:
            write(recovered, retained(topic, b"%d" % offset, offset))
            model[topic.encode()] = b"%d" % offset
    return model


def to_history(folder: DataFolder) -> int:
    writer = HistoryWriter(folder.history, folder.quarantine)
    writer.append(list(read_from(folder.journal, writer.last)), 0)
    writer.close()
    return writer.last


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    return DataFolder(tmp_path / "data")


def test_a_new_folder_is_made_and_nothing_is_lost(folder: DataFolder) -> None:
    recovered = start(folder)
    assert recovered.losses == []
    assert recovered.journal.next_offset == 1
    stop(recovered)
    assert folder.root.stat().st_mode & 0o777 == 0o700


def test_a_folder_in_use_is_refused(folder: DataFolder) -> None:
    recovered = start(folder)
    with pytest.raises(StoreError, match="in use by process"):
        start(folder)
    stop(recovered)
    stop(start(folder))


def test_what_only_the_journal_has_is_replayed(folder: DataFolder) -> None:
    recovered = start(folder)
    model = publish(recovered, 40)
    stop(recovered, 41)
    again = start(folder)
    assert again.replayed == 40
    assert contents(again) == model
    assert again.journal.next_offset == 41
    assert again.losses == []
    stop(again)
    assert start(folder).replayed == 0


@pytest.mark.parametrize("damage", ["garbage", "cut", "pages", "gone"])
def test_a_broken_state_is_built_anew_from_the_journal(folder: DataFolder, damage: str) -> None:
    recovered = start(folder)
    model = publish(recovered, 40)
    write(recovered, encode_session(41, SessionRecord(41, "client", "", 5, 60, 1, 0)))
    stop(recovered, 42)
    stop(start(folder))
    data = folder.state / "data.mdb"
    if damage == "gone":
        shutil.rmtree(folder.state)
    else:
        content = bytearray(data.read_bytes())
        if damage == "garbage":
            content = bytearray(b"rubbish" * 10000)
        elif damage == "cut":
            content = content[: len(content) // 2]
        else:
            for page in range(2, len(content) // 4096):
                content[page * 4096 : page * 4096 + 16] = random.Random(page).randbytes(16)
        data.write_bytes(content)
    again = start(folder)
    assert contents(again) == model
    assert [s.record.client_id for s in again.store.sessions.all()] == ["client"]
    assert again.journal.next_offset == 42
    if damage != "gone":
        assert any("set aside as state.1" in loss for loss in again.losses)
        assert (folder.quarantine / "state.1").is_dir()
    stop(again)


def drop_first_segments(folder: DataFolder, count: int) -> int:
    names = segment_names(Disk(), folder.journal)
    assert len(names) > count
    for name in names[:count]:
        (folder.journal / str(name)).unlink()
    return names[count].first


def test_a_broken_state_is_built_anew_from_history_where_the_journal_does_not_reach(folder: DataFolder) -> None:
    recovered = start(folder)
    model = publish(recovered, 200)
    stop(recovered, 201)
    stop(start(folder))
    to_history(folder)
    first = drop_first_segments(folder, 3)
    shutil.rmtree(folder.state)
    again = start(folder)
    assert contents(again) == model
    assert any(f"from history up to offset {first - 1}" in loss for loss in again.losses)
    assert again.journal.next_offset == 201
    stop(again)


def test_what_neither_history_nor_journal_has_is_said_to_be_lost(folder: DataFolder) -> None:
    recovered = start(folder)
    publish(recovered, 200)
    stop(recovered, 201)
    first = drop_first_segments(folder, 3)
    shutil.rmtree(folder.state)
    again = start(folder)
    assert any(f"retained messages set up to offset {first - 1} are lost" in loss for loss in again.losses)
    assert again.journal.next_offset == 201
    stop(again)


def test_without_a_journal_offsets_go_on_behind_state_and_history(folder: DataFolder) -> None:
    recovered = start(folder)
    model = publish(recovered, 30)
    stop(recovered, 31)
    stop(start(folder))
    to_history(folder)
    shutil.rmtree(folder.journal)
    again = start(folder)
    assert again.journal.next_offset == 31
    assert contents(again) == model
    stop(again)
    shutil.rmtree(folder.journal)
    shutil.rmtree(folder.state)
    third = start(folder)
    assert third.journal.next_offset == 31
    assert contents(third) == model, "history alone knows it all"
    stop(third)


def test_a_damaged_record_costs_itself_and_is_named(folder: DataFolder) -> None:
    recovered = start(folder)
    for offset in range(1, 11):
        write(recovered, retained(f"t/{offset}", b"value", offset))
    stop(recovered, 11)
    path = folder.journal / str(segment_names(Disk(), folder.journal)[0])
    content = bytearray(path.read_bytes())
    at = content.index(b"t/4")
    content[at] ^= 1
    path.write_bytes(content)
    again = start(folder)
    assert set(contents(again)) == {f"t/{o}".encode() for o in range(1, 11) if o != 4}
    (loss,) = again.losses
    assert "offsets 4 to 4" in loss
    assert len(list(folder.quarantine.iterdir())) == 1
    stop(again)


@pytest.mark.parametrize("cut", thinned(range(1, 60, 3), 5))
def test_a_torn_tail_costs_only_what_was_never_whole(folder: DataFolder, cut: int) -> None:
    recovered = start(folder)
    for offset in range(1, 6):
        write(recovered, retained(f"t/{offset}", b"value", offset))
    size = recovered.journal.segment.size  # type: ignore[union-attr]
    path = recovered.journal.segment.path  # type: ignore[union-attr]
    recovered.store.close()
    recovered.lock.release()
    path.write_bytes(path.read_bytes()[: size - cut])
    again = start(folder)
    assert set(contents(again)) == {b"t/1", b"t/2", b"t/3", b"t/4"}
    assert again.losses == []
    assert again.journal.next_offset > 5
    stop(again)


@pytest.mark.parametrize("seed", thinned(range(12), 4))
def test_flipped_bytes_anywhere_never_keep_the_broker_from_starting(folder: DataFolder, seed: int) -> None:
    chance = random.Random(seed)
    recovered = start(folder)
    publish(recovered, 120)
    stop(recovered, 121)
    stop(start(folder))
    files = [*folder.journal.glob("*.hfj"), folder.state / "data.mdb", folder.state / "lock.mdb"]
    for _ in range(chance.randint(1, 8)):
        path = chance.choice(files)
        content = bytearray(path.read_bytes())
        low = HEAD_SIZE if path.suffix == ".hfj" else 0
        at = chance.randrange(low, len(content))
        content[at] ^= 1 << chance.randrange(8)
        path.write_bytes(content)
    again = start(folder)
    write(again, retained("after", b"damage", again.journal.next_offset))
    assert again.journal.healthy
    stop(again)


def test_a_record_that_lacks_something_is_left_out_and_said_to_be_lost(folder: DataFolder) -> None:
    first = start(folder)
    write(first, retained("a", b"1", 1), retained("b", b"2", 2)[:20], retained("c", b"3", 3))
    stop(first, 4)
    again = start(folder)
    assert set(contents(again)) == {b"a", b"c"}
    assert again.losses == ["1 records up to offset 3 lack part of their fields"]
    stop(again, 4)


def test_recovery_reports_the_records_it_replays(folder: DataFolder) -> None:
    first = recover(folder, history=False, schedule=at_once)
    write(first, *(retained(f"t/{offset}", b"x", offset) for offset in range(1, 501)))
    first.store.close()
    first.lock.release()
    told: list[tuple[str, int, int]] = []
    second = recover(
        folder,
        history=False,
        schedule=at_once,
        progress=lambda what, count, total=0: told.append((what, count, total)),
    )
    assert told[-1] == ("replaying the journal", 500, 500)
    stop(second)
