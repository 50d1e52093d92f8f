"""Taking up a data folder after whatever ended the last run.

The steps may be cut off anywhere and started again: nothing is removed before what replaces it is durable, and applying
a record twice changes nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.broker.record_shape import sound_only
from holdfast.errors import StoreError
from holdfast.journal.lock import FolderLock
from holdfast.journal.reader import Reader
from holdfast.journal.writer import Event, Journal, Options, Schedule
from holdfast.state import check
from holdfast.state.store import StateStore
from holdfast.storage.folder import DataFolder
from holdfast.storage.progress import Progress, silent

BATCH = 20_000
# What is replayed in one transaction. Every transaction writes each page it touches once more, so the more it holds
# the less is written in all.
REPLAY_BYTES = 64 << 20


@dataclass
class Recovered:
    """What a broker starts from. `losses` are lines for the operator; with none, nothing was lost.

    The journal is not started yet. Close in the order journal, store, lock.
    """

    folder: DataFolder
    lock: FolderLock
    store: StateStore
    journal: Journal
    losses: list[str] = field(default_factory=list)
    replayed: int = 0


def recover(
    folder: DataFolder,
    *,
    history: bool,
    own_history: bool = True,
    schedule: Schedule,
    on_event: Callable[[Event], None] = lambda event: None,
    options: Options | None = None,
    progress: Progress = silent,
) -> Recovered:
    """Locks the folder, opens state and journal, and brings the state up to the end of the journal.

    A history that is not this folder's own, but all nodes' of a cluster, says nothing about what is in the folder.
    Raises StoreError when another broker has the folder, when a newer version of Holdfast wrote it, when a link leads
    out of it, or when the disk cannot be written at all; never because of damage.
    """
    folder.refuse_links()
    lock = FolderLock(folder.root)
    try:
        losses = quarantine_broken_state(folder, progress)
        store = StateStore(folder.state)
        if store.applied == 0 and own_history:
            losses += rebuild(folder, store, progress)
        consumers = {"state": store.applied, "history": 0} if history else {"state": store.applied}
        journal = Journal(
            folder.journal,
            consumers=consumers,
            schedule=schedule,
            on_event=on_event,
            at_least=max(store.applied, newest_in_history(folder) if own_history else 0) + 1,
            quarantine=folder.quarantine,
            options=options,
        )
        recovered = Recovered(folder, lock, store, journal, losses)
        replay(recovered, progress)
        journal.retention.note("state", store.applied)
        store.sessions.sweep()
    except BaseException:
        lock.release()
        raise
    return recovered


def quarantine_broken_state(folder: DataFolder, progress: Progress) -> list[str]:
    """Moves a state that cannot be read out of the way, and returns what was wrong with it."""
    try:
        found = check.problems(folder.state, waiting=lambda: progress("checking the state", 0))
    except StoreError as error:
        return [str(error)]  # nothing is known against it, so it is used
    if any("this version reads" in problem for problem in found):
        raise StoreError(found[0])
    if found:
        target = folder.move_to_quarantine(folder.state)
        found.append(f"state was set aside as {target.name} and is built anew")
    return found


def rebuild(folder: DataFolder, store: StateStore, progress: Callable[[str, int], None]) -> list[str]:
    """Fills an empty state from the history, as far as the journal does not reach back itself.

    Returns what happened and what could not be had, as lines for the operator.
    """
    first = folder.first_in_journal()
    if first == 1 or (first == 0 and not folder.has_history()):
        return []
    losses: list[str] = []
    records, last = retained_before(folder, first, losses)
    for start in range(0, len(records), BATCH):
        progress("rebuilding the retained set from history", start)
        store.fill(records[start : start + BATCH])
    store.apply([], last)
    losses.append(f"state was built anew, with {len(records)} retained messages from history up to offset {last}")
    losses.append(f"sessions are known only as far as they changed behind offset {last}")
    return losses


def retained_before(folder: DataFolder, first: int, losses: list[str]) -> tuple[list[bytes], int]:
    """Returns the retained messages from before the journal, as records, and the offset they bring the state to."""
    try:
        if not folder.has_history():
            raise StoreError("there is none")
        from holdfast.history.reader import HistoryReader
        from holdfast.history.rows import records_of

        reader = HistoryReader(folder.table)
        last = first - 1 if first else reader.last
        if reader.last < last:
            losses.append(f"history ends at offset {reader.last}: what was set from there to {last} is lost")
        return records_of(reader.retained_upto(last, 0)), last
    except (ImportError, StoreError, OSError, ValueError) as error:
        last = max(0, first - 1)
        losses.append(f"history cannot be read ({error}): retained messages set up to offset {last} are lost")
        return [], last


def replay(recovered: Recovered, progress: Progress) -> None:
    """Applies what the journal holds after the applied offset."""
    store, journal = recovered.store, recovered.journal
    reader = Reader(journal.folder, store.applied, recovered.folder.quarantine)
    total = journal.durable - store.applied
    while records := reader.read(journal.durable, REPLAY_BYTES):
        sound = sound_only(records)
        if len(sound) < len(records):
            missing = len(records) - len(sound)
            recovered.losses.append(f"{missing} records up to offset {reader.last} lack part of their fields")
        store.apply(sound, reader.last)
        recovered.replayed += len(records)
        progress("replaying the journal", recovered.replayed, total)
    reader.close()
    seen = [str(damage) for damage in reader.damage]
    recovered.losses += seen + [line for line in map(str, journal.damage) if line not in seen]


def newest_in_history(folder: DataFolder) -> int:
    """Returns the last offset in the history, or 0 when there is a journal, which knows better."""
    if folder.first_in_journal() or not folder.has_history():
        return 0
    try:
        from holdfast.history.table import last_offset, load

        return last_offset(load(folder.table))
    except (ImportError, StoreError):
        return 0
