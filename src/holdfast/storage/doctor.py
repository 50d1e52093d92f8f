"""Examining a data folder without a running broker, and repairing what can be.

Nothing is thrown away: what is taken out of use goes to the quarantine. A repair leaves a folder that `examine` finds
nothing wrong with, and says what could not be saved.
"""

import fcntl
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import StoreError
from holdfast.journal.disk import Disk
from holdfast.journal.lock import NAME as LOCK
from holdfast.journal.lock import FolderLock
from holdfast.journal.reader import Reader
from holdfast.journal.record import RESERVED, frame_all, own_record
from holdfast.journal.recovery import find_end
from holdfast.journal.segment import Segment, SegmentName, checksum, segment_names
from holdfast.state import check
from holdfast.state.environment import Environment
from holdfast.state.store import StateStore
from holdfast.storage.folder import DataFolder
from holdfast.storage.recovery import rebuild
from holdfast.storage.reserve import Reserve, Space, shown, space_at

Progress = Callable[[str, int], None]

FILE_LOCK = struct.Struct("hhqqi")  # struct flock of Linux: type, whence, start, length, process


@dataclass(frozen=True)
class Finding:
    """`part` is journal, state or history."""

    part: str
    text: str


@dataclass(frozen=True)
class Report:
    """What lies in the folder, and what is wrong with it."""

    records: int
    last_offset: int
    retained: int
    sessions: int
    rows_upto: int  # offset the history has reached
    findings: list[Finding]
    notes: list[str]  # what is worth knowing and nothing is wrong with


def quiet(what: str, count: int) -> None:
    """Shows no progress."""


def examine(folder: DataFolder, progress: Progress = quiet) -> Report:
    """Reads everything and changes no byte. Raises StoreError while a broker uses the folder."""
    if not folder.root.is_dir():
        raise StoreError(f"there is no data folder at {folder.root}")
    with brokers_held_off(folder.root):
        check_no_writer(folder.state)
        records, last, findings = examine_journal(folder, progress)
        retained, sessions, applied = examine_state(folder, findings)
        rows_upto = examine_history(folder, findings)
        first = folder.first_in_journal()
        if first and applied + 1 < first:
            findings.append(Finding("state", f"it ends at offset {applied}, the journal begins at {first}"))
        if first and rows_upto and rows_upto + 1 < first:
            findings.append(Finding("history", f"it ends at offset {rows_upto}, the journal begins at {first}"))
    return Report(
        records, max(last, applied, rows_upto), retained, sessions, rows_upto, findings, notes_on(space_at(folder.root))
    )


def notes_on(space: Space) -> list[str]:
    """Returns what free space means for the history. The folder does not know its broker's settings."""
    reserve = Reserve().of(space.total)
    if space.free >= reserve:
        return []
    return [
        f"{shown(space.free)} of {shown(space.total)} are free, less than the {shown(reserve)} below which a broker "
        "writes nothing to the history (history.reserve, unless it is set): what is published waits in the journal "
        "until there is room"
    ]


@contextmanager
def brokers_held_off(root: Path) -> Iterator[None]:
    """Keeps brokers from starting while the folder is read, without writing to their lock."""
    try:
        fd = os.open(root / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # a copy, or a folder that no broker has used
        yield
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 32, 0).decode(errors="replace").strip()
            who = f"process {holder}" if holder else "another process"
            raise StoreError(f"data folder {root} is in use by {who}: examine it when that has ended") from None
        yield
    finally:
        os.close(fd)


def check_no_writer(state: Path) -> None:
    """Raises StoreError while a process has the state open: a follower outlives a broker that was killed by a moment.

    LMDB shows that by a lock on its lock file, and asking about a lock takes none.
    """
    try:
        fd = os.open(state / "lock.mdb", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        asked = FILE_LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, *_, process = FILE_LOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    finally:
        os.close(fd)
    if kind != fcntl.F_UNLCK:
        raise StoreError(f"process {process} still writes the state in {state}: examine it when that has ended")


def examine_journal(folder: DataFolder, progress: Progress) -> tuple[int, int, list[Finding]]:
    first = folder.first_in_journal()
    end = find_end(folder.journal)
    reader = Reader(folder.journal, max(0, first - 1))
    count = 0
    while records := reader.read(end.last):
        count += len(records)
        progress("reading the journal", count)
    reader.close()
    findings = [Finding("journal", str(damage)) for damage in reader.damage]
    if end.torn:
        findings.append(Finding("journal", f"a write of {end.torn} bytes was cut short; nobody was promised it"))
    return count, reader.last if first else 0, findings


def examine_state(folder: DataFolder, findings: list[Finding]) -> tuple[int, int, int]:
    """Returns the numbers of retained messages and sessions, and the applied offset."""
    found = check.problems(folder.state, values=True, readonly=True)
    findings += [Finding("state", problem) for problem in found]
    if any("fail their checksum" not in problem for problem in found) or not (folder.state / "data.mdb").exists():
        return 0, 0, 0
    environment = Environment(folder.state, readonly=True, locked=False)
    try:
        return environment.entries("retained"), environment.entries("sessions"), environment.applied
    finally:
        environment.close()


def examine_history(folder: DataFolder, findings: list[Finding]) -> int:
    if not folder.has_history():
        return 0
    try:
        from holdfast.history import repair as history_repair
        from holdfast.history.table import last_offset, load
    except ImportError as error:
        findings.append(Finding("history", f"it cannot be examined without its libraries ({error})"))
        return 0
    found = history_repair.problems(folder.table)
    findings += [Finding("history", problem) for problem in found]
    try:
        return last_offset(load(folder.table))
    except StoreError:
        return 0


def repair(folder: DataFolder, progress: Progress = quiet) -> list[str]:
    """Repairs what `examine` finds, and returns what was done, as lines."""
    lock = FolderLock(folder.root)
    try:
        done = repair_journal(folder, progress)
        done += repair_history(folder)
        done += repair_state(folder, progress)
    finally:
        lock.release()
    return done


def repair_journal(folder: DataFolder, progress: Progress) -> list[str]:
    """Cuts off what was never written to its end, writes the sound records of damaged segments into new ones, and
    returns what was done, as lines. The damaged segments go to the quarantine.
    """
    disk = Disk()
    done: list[str] = []
    end = find_end(folder.journal, folder.quarantine)
    if end.torn and end.name is not None:
        segment = Segment.resume(disk, folder.journal, end.name, end.size)
        segment.seal()
        done.append(f"journal segment {end.name}: a write of {end.torn} bytes that was cut short is gone")
    first = folder.first_in_journal()
    reader = Reader(folder.journal, max(0, first - 1), folder.quarantine)
    while reader.read():
        pass
    reader.close()
    done += [str(damage) for damage in reader.damage]
    for name in segment_names(disk, folder.journal):
        if any(damage.segment == str(name) for damage in reader.damage):
            progress(f"writing segment {name} anew", 0)
            done.append(rewrite(folder, disk, name))
    return done


def rewrite(folder: DataFolder, disk: Disk, name: SegmentName) -> str:
    following = [other.first for other in segment_names(disk, folder.journal) if other > name]
    limit = following[0] - 1 if following else (1 << 64) - 1
    reader = Reader(folder.journal, name.first - 1)
    records: list[bytes] = []
    while batch := reader.read(limit):
        records += batch
    reader.close()
    given_out = own_record(RESERVED, name.first - 1, max(reader.reserved, reader.closed, reader.last + 1))
    fresh = Segment.create(disk, folder.journal, name.first)
    fresh.write(frame_all([given_out, *records], checksum))
    fresh.sync()
    fresh.seal()
    target = folder.move_to_quarantine(folder.journal / str(name))
    disk.sync_folder(folder.journal)
    return f"journal segment {name} was set aside as {target.name}; {len(records)} sound records are in {fresh.name}"


def repair_history(folder: DataFolder) -> list[str]:
    if not folder.has_history():
        return []
    try:
        from holdfast.history import repair as history_repair
        from holdfast.history.table import load
    except ImportError:
        return []
    done: list[str] = []
    try:
        repaired = history_repair.take_back_torn_commits(folder.table, folder.quarantine, folder.journal_keeps_from())
        done += [repaired] if repaired else []
        load(folder.table)
    except StoreError as error:
        if folder.table.folder is None:
            return [*done, f"{error}; what lies in an object store is left alone"]
        target = folder.move_to_quarantine(folder.history)
        return [*done, f"{error}; it was set aside as {target.name} and begins anew with what the journal holds"]
    lost = history_repair.forget_missing(folder.table)
    return [*done, *(f"history forgot a file that is gone: {text}" for text in lost)]


def repair_state(folder: DataFolder, progress: Progress) -> list[str]:
    """Rebuilds a state that cannot be read, or takes out single damaged values and fetches them from history.

    Returns what was done, as lines.
    """
    found = check.problems(folder.state, values=True)
    if not found:
        return []
    if all("fail their checksum" in problem for problem in found):
        return drop_damaged_values(folder)
    target = folder.move_to_quarantine(folder.state)
    store = StateStore(folder.state)
    try:
        return [*found, f"state was set aside as {target.name}", *rebuild(folder, store, progress)]
    finally:
        store.close()


def drop_damaged_values(folder: DataFolder) -> list[str]:
    store = StateStore(folder.state)
    try:
        topics, others = store.drop_damaged()
        done = [f"state: damaged entry {name} was dropped" for name in others]
        for topic in topics:
            again = fetch_retained(folder, topic, store.applied)
            if again is not None:
                store.fill([again])
            how = "taken from history again" if again is not None else "lost"
            done.append(f"state: the retained message of {topic.decode(errors='replace')} was damaged and is {how}")
        return done
    finally:
        store.close()


def fetch_retained(folder: DataFolder, topic: bytes, upto: int) -> bytes | None:
    """Returns the record that the history says is in force for a topic."""
    if not folder.has_history():
        return None
    try:
        from holdfast.history.reader import HistoryReader
        from holdfast.history.rows import records_of

        rows = HistoryReader(folder.table).of_topic(topic.decode())
    except (ImportError, StoreError, ValueError):
        return None
    verdicts = [row for row in rows.select(["offset", "outcome"]).to_pylist() if row["outcome"] in ("set", "cleared")]
    verdicts = [row for row in verdicts if row["offset"] <= upto]
    if not verdicts or verdicts[-1]["outcome"] != "set":
        return None
    import pyarrow.compute as pc

    return records_of(rows.filter(pc.equal(rows["offset"], verdicts[-1]["offset"])))[0]
