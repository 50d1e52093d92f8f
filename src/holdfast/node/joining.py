"""Where the state of a node comes from when it has none, and how the folder of a broker alone becomes the beginning of
a cluster.
"""

import logging
from collections.abc import Callable
from pathlib import Path

from holdfast.cluster.connection import Connection
from holdfast.cluster.stream import is_cut, message_count
from holdfast.cluster.transfer import Stored, Transfer
from holdfast.errors import UsageError
from holdfast.journal.lock import FolderLock
from holdfast.node.options import NodeOptions
from holdfast.node.place import ClusterPlace
from holdfast.node.state_copy import chunks_of, describe_state, drop_copy, fetch_state
from holdfast.state.store import StateStore
from holdfast.storage.disk import DiskStorage, copy_state
from holdfast.storage.folder import DataFolder

log = logging.getLogger("holdfast.cluster")


async def needs_state(storage: DiskStorage, place: ClusterPlace, connection: Connection, options: NodeOptions) -> bool:
    """Whether a node has to take the state of another before it can read the log: it is new and there is one, or it was
    away for so long that the log does not reach back.
    """
    recovered = storage.recovered
    assert recovered is not None
    position = recovered.store.sessions.cluster().position
    applied = recovered.store.applied
    if position is not None:
        return await is_cut(connection, options.stream, position.sequence + 1)
    if applied > 0 and applied == place.offset:  # it begins with what was there before the log
        return await is_cut(connection, options.stream, 1)
    if applied > 0 and not place.identity:
        await storage.stop(None)
        raise UsageError(
            f"the data folder {place.root} has what a broker alone has stored: take it into a new cluster with "
            f"`holdfast cluster init`, or give this node an empty folder"
        )
    return len(await Transfer(connection, options.stream.name, options.stream.replicas).find()) > 0


async def set_aside(storage: DiskStorage) -> None:
    """Begin as a new node where the disk has lost something: what is left of it would not be what the others have."""
    await storage.stop(None)
    folder = storage.folder
    found = [each for each in (folder.state, folder.journal, folder.history) if each.exists()]
    log.warning(
        "the data of this node is damaged: it is set aside, and taken from the log and the other nodes again",
        extra={"to": " ".join(str(folder.move_to_quarantine(each)) for each in found)},
    )


async def take_state(storage: DiskStorage, place: ClusterPlace, connection: Connection, options: NodeOptions) -> None:
    """Replace the state and the journal of a folder by the newest state that a node has left for others. What was there
    goes to the quarantine.
    """
    transfer = Transfer(connection, options.stream.name, options.stream.replicas)
    found = await transfer.find()
    if not found:
        raise UsageError(
            "the log does not reach back to what this node has, and no node has left its state: start the others first"
        )
    stored = newest(found)
    folder = storage.folder
    for old in (folder.state, folder.journal):
        if old.exists():
            folder.move_to_quarantine(old)
    folder.state.mkdir(mode=0o700, parents=True)
    told = 0

    def progress(done: int, size: int) -> None:
        nonlocal told
        if size and done * 10 // size > told:
            told = done * 10 // size
            log.info("taking the state of another node", extra={"percent": told * 10, "bytes": size})

    log.info("taking the state of another node", extra={"bytes": stored.size, **stored.about})
    await fetch_state(transfer, stored, folder.state / "data.mdb", progress)
    if int(stored.about.get("sequence", "0")) == 0:
        place.begin_at(int(stored.about.get("offset", "0")))


async def begin_cluster(
    root: Path, connection: Connection, options: NodeOptions, progress: Callable[[int, int], None]
) -> dict[str, str]:
    """Make the state of a folder, which no broker uses, the beginning of a cluster, and the folder that of a node.

    Returns what was said about the state. Raises UsageError where the cluster has begun already.
    """
    transfer = Transfer(connection, options.stream.name, options.stream.replicas)
    count = await message_count(connection, options.stream)
    if count:
        raise UsageError(
            f"the log of the cluster {options.stream.name!r} has {count} messages already, expected none: start nodes "
            "with empty folders to join it, or give cluster.name another name"
        )
    for stored in await transfer.find():
        if stored.about.get("sequence", "0") != "0":
            raise UsageError(
                f"the object store {transfer.bucket} has the state of an earlier cluster ({stored.name}): remove it on "
                "the log servers, or give cluster.name another name"
            )
    folder = DataFolder(root)
    lock = FolderLock(root)
    try:
        store = StateStore(folder.state)
        try:
            store.sessions.forget_cluster()
            path = copy_state(store, root)
        finally:
            store.close()
        about = describe_state(path)
        size = path.stat().st_size
        try:
            await transfer.put("state-0", chunks_of(path), about, lambda done, _: progress(done, size))
        finally:
            drop_copy(path)
        if folder.journal.exists():  # the state has all of it, and the nodes agree on the offsets behind it
            folder.move_to_quarantine(folder.journal)
        ClusterPlace(root, options.stream.name, options.node).begin_at(int(about["offset"]))
        return about
    finally:
        lock.release()


def newest(found: list[Stored]) -> Stored:
    return max(found, key=lambda each: int(each.about.get("sequence", "0")))
