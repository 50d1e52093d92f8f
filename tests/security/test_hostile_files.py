"""A data folder that somebody else has written to: what stands in its files is data and nothing more, no link leads out
of it, and what cannot be used is told in one sentence.

Checksums are no help here: who writes the files makes them too.
"""

import asyncio
import json
import logging
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import wire
from broker_process import BrokerProcess, start_holdfast
from holdfast.broker.core import Broker
from holdfast.broker.settings import Settings
from holdfast.errors import StoreError
from holdfast.history import upkeep
from holdfast.history.reader import HistoryReader
from holdfast.history.table import load
from holdfast.history.writer import HistoryWriter
from holdfast.journal.reader import Reader
from holdfast.journal.record import frame_all
from holdfast.journal.segment import checksum, encode_head
from holdfast.state import check
from holdfast.state.store import StateStore
from holdfast.state.tables import CHECKSUM_SIZE, seal
from holdfast.storage.disk import DiskStorage
from http_api import until
from log_records import retained

NOW_MS = 1_800_000_000_000
ALL = 1 << 62
ROUNDS = 30


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with something in nearly every table: retained messages, sessions, a queue, a will."""
    folder = tmp_path_factory.mktemp("whole") / "data"
    settings = {"history.record": "all", "history.flush_interval": "100ms"}
    broker = start_holdfast(folder, settings, listen=("tcp://127.0.0.1:0",))
    waits, publishes = broker.client(5), broker.client(5)
    kept = [(wire.P.SESSION_EXPIRY, 6000)]
    waits.connect("waits", clean=False, properties=kept)
    waits.subscribe("#", qos=2)
    waits.disconnect()
    publishes.connect("publishes", clean=False, properties=kept, will=wire.Will("w", b"x", qos=1, retain=True))
    for number in range(30):
        expires = [(wire.P.MESSAGE_EXPIRY, 3600)] if number % 2 else []
        publishes.publish(f"a/{number}/b", b"payload", qos=number % 3, retain=True, properties=expires)
    until(lambda: (folder / "history" / "_delta_log").is_dir(), bool)
    broker.stop()
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "data"))


def garbled(value: bytes, chance: random.Random) -> bytes:
    kind = chance.randrange(5)
    if kind == 0 or not value:
        return chance.randbytes(chance.randrange(100))
    if kind == 1:
        return value[: chance.randrange(len(value))]
    if kind == 2:
        return value + chance.randbytes(chance.randrange(1, 50))
    at = chance.randrange(len(value))
    return value[:at] + (b"\xff" * 8 if kind == 3 else chance.randbytes(1)) + value[at + 1 :]


def take_up(root: Path, in_memory: bool) -> None:
    """What a start does with the folder, and a walk over all that is retained. Raises StoreError."""
    loop = asyncio.new_event_loop()
    storage = DiskStorage(root, loop)
    try:
        broker = Broker(Settings(), "")
        broker.use_log(storage.open("ack", ["#"], records_live=True))
        storage.load(broker, NOW_MS, in_memory)
        cursor = broker.retained.index.cursor(b"#", ALL)
        while not cursor.ended:
            cursor.next(100)
        broker.retained.index.release(cursor)
    finally:
        if storage.recovered is not None:
            storage.recovered.store.close()
            storage.recovered.lock.release()
        loop.close()


def refusal_of(root: Path, in_memory: bool) -> str:
    """Why a folder is not taken up; nothing when it is."""
    try:
        take_up(root, in_memory)
    except StoreError as error:
        return str(error)
    return ""


@pytest.fixture
def sound_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of the state is sound as LMDB, which is checked in a process of its own."""
    monkeypatch.setattr(check, "problems", lambda *_, **__: [])
    monkeypatch.setattr(logging.getLogger("holdfast.storage"), "disabled", True)


@pytest.mark.usefixtures("sound_file")
def test_any_value_in_the_state_is_taken_or_refused_in_a_sentence(whole: Path, tmp_path: Path) -> None:
    refusals = set()
    for number in range(ROUNDS):
        chance = random.Random(number)
        root = Path(shutil.copytree(whole, tmp_path / str(number)))
        store = StateStore(root / "state")
        for name, table in store.environment.db.items():
            if name == "meta" and number % 5:
                continue
            with store.environment.env.begin(write=True) as txn:
                for key, value in list(txn.cursor(table)):
                    if chance.random() < 0.1:
                        txn.put(key, seal(key, garbled(value[CHECKSUM_SIZE:], chance)), db=table)
        store.environment.close()
        refusals.add(refusal_of(root, in_memory=number % 2 == 0))
        shutil.rmtree(root)
    assert len(refusals) > 1, "expected some that cannot be used"
    assert not any("\n" in refusal for refusal in refusals)


@pytest.mark.usefixtures("sound_file")
def test_any_record_in_the_journal_is_taken_or_refused_in_a_sentence(whole: Path, tmp_path: Path) -> None:
    reader = Reader(whole / "journal", 0)
    records: list[bytes] = []
    while found := reader.read(ALL):
        records += found
    reader.close()
    assert len(records) > 50
    for number in range(ROUNDS):
        chance = random.Random(number)
        root = tmp_path / str(number)
        (root / "journal").mkdir(parents=True)
        written = []
        for record in records:
            kind = chance.randrange(256) if chance.random() < 0.03 else record[1]
            body = garbled(record[10:], chance) if chance.random() < 0.3 else record[10:]
            written.append(record[:1] + bytes((kind,)) + record[2:10] + body)
        segment = root / "journal" / f"{1:020d}.hfj"
        segment.write_bytes(encode_head(1) + frame_all(written, checksum))
        assert "\n" not in refusal_of(root, in_memory=number % 2 == 0)
        shutil.rmtree(root)


OUTSIDE = ("../../outside.parquet", "%2e%2e/%2e%2e/outside.parquet", "{}/outside.parquet", "file://{}/outside.parquet")


@pytest.mark.parametrize("path", OUTSIDE)
def test_a_table_that_names_files_elsewhere_has_none_of_them_read_or_deleted(tmp_path: Path, path: str) -> None:
    for name in ("data", "other"):
        writer = HistoryWriter(tmp_path / name / "history", tmp_path / name / "quarantine")
        writer.append([retained("t", name.encode(), 1)], 1)
        writer.close()
    outside = tmp_path / "outside.parquet"
    shutil.move(next((tmp_path / "other" / "history").glob("*.parquet")), outside)
    table = tmp_path / "data" / "history"
    last = max((table / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for line in last.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            action["add"]["path"] = path.format(tmp_path)
    last.write_text("".join(json.dumps(action) + "\n" for action in actions))
    with pytest.raises((OSError, StoreError)):
        HistoryReader(table).of_topic("t")
    remove = {"path": path.format(tmp_path), "deletionTimestamp": 1, "dataChange": True}
    (last.parent / f"{int(last.stem) + 1:020d}.json").write_text(json.dumps({"remove": remove}) + "\n")
    upkeep.vacuum(load(table), keep_hours=0)
    assert outside.exists()


FILES = ("lock", "journal/durable", "journal/{segment}", "state/data.mdb", "state/lock.mdb", "history.lock")
TABLE = ("history/part-0.parquet", "history/_delta_log/00000000000000000009.json")
BESIDE = ("bridges/made.json", "bridges/b.password", "erasures/1.json")


@pytest.mark.parametrize("name", [*FILES, *TABLE, *BESIDE])
def test_a_link_in_the_place_of_a_file_keeps_the_broker_from_starting(folder: Path, tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious" * 100)
    segment = next((folder / "journal").glob("*.hfj")).name
    place = folder / name.format(segment=segment)
    place.parent.mkdir(exist_ok=True)
    place.unlink(missing_ok=True)
    place.symlink_to(victim)
    with pytest.raises(StoreError, match=r"is a symbolic link to .*victim, expected a file of the broker's own"):
        take_up(folder, True)
    assert victim.read_bytes() == b"precious" * 100


@pytest.mark.parametrize("name", ["journal", "state", "history", "quarantine"])
def test_a_folder_may_be_the_operators_own_link_and_nobody_elses(folder: Path, tmp_path: Path, name: str) -> None:
    target = tmp_path / "elsewhere"
    if (folder / name).exists():
        (folder / name).rename(target)
    else:
        target.mkdir()
    (folder / name).symlink_to(target)
    take_up(folder, True)
    if os.geteuid() != 0:
        pytest.skip("only root can make a link of another user")
    os.chown(folder / name, 65534, 65534, follow_symlinks=False)
    with pytest.raises(StoreError, match="is a symbolic link"):
        take_up(folder, True)


def test_a_link_that_comes_later_is_not_followed_either(tmp_path: Path) -> None:
    """The look at the start is one moment; files are opened at others."""
    from holdfast.journal.disk import Disk
    from holdfast.journal.lock import FolderLock
    from holdfast.journal.watermark import Watermark

    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    for name in ("lock", "durable", "1.hfj", "history.lock"):
        (tmp_path / name).symlink_to(victim)
    for attempt in (
        lambda: FolderLock(tmp_path),
        lambda: Watermark(tmp_path, write=True),
        lambda: Disk().open(tmp_path / "1.hfj", write=True),
        lambda: Disk().create(tmp_path / "1.hfj"),
        lambda: HistoryWriter(tmp_path / "history", tmp_path / "quarantine"),
    ):
        with pytest.raises(OSError, match=r"symbolic links|File exists"):
            attempt()
    assert victim.read_bytes() == b"precious"


def test_what_a_bridge_is_told_takes_the_place_of_a_link(tmp_path: Path) -> None:
    from holdfast.bridge.bridges import write_private

    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in ("b.password", "b.password.new"):
        (tmp_path / name).symlink_to(victim)
    write_private(tmp_path / "b.password", "a secret")
    assert victim.read_text() == "precious"
    assert (tmp_path / "b.password").read_text() == "a secret"
    assert (tmp_path / "b.password").stat(follow_symlinks=False).st_mode == 0o100600


def test_a_folder_that_everybody_can_write_to_is_remarked_on(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    data = tmp_path / "open"
    data.mkdir()
    data.chmod(0o777)
    broker = start_broker(args=["--data", str(data)], history__enable=False)
    assert "every user can write to the data folder" in broker.output
