"""The data folder of a node: which cluster it belongs to, and where its state comes from when it has none."""

import json
import logging
from dataclasses import dataclass
from pathlib import Path

from holdfast.cluster.connection import Connection
from holdfast.cluster.stream import first_message
from holdfast.cluster.transfer import Stored, Transfer
from holdfast.errors import UsageError
from holdfast.node import NodeOptions, fetch_state
from holdfast.storage.disk import DiskStorage

log = logging.getLogger("holdfast.cluster")


@dataclass
class ClusterPlace:
    """The file `cluster.json` of a data folder. Raises UsageError when that is another node or cluster."""

    root: Path
    name: str
    node: str
    identity: str = ""  # of the log that the state was made from

    def __post_init__(self) -> None:
        if not self.path.exists():
            return
        known = json.loads(self.path.read_text())
        for key, mine in (("name", self.name), ("node", self.node)):
            if known.get(key) != mine:
                raise UsageError(
                    f"the data folder {self.root} belongs to {key} {known.get(key)!r} of a cluster, expected {mine!r}: "
                    f"give this node a folder of its own"
                )
        self.identity = str(known.get("identity", ""))

    @property
    def path(self) -> Path:
        return self.root / "cluster.json"

    def write(self, identity: str) -> None:
        partial = self.path.with_suffix(".partial")
        partial.write_text(json.dumps({"name": self.name, "node": self.node, "identity": identity}) + "\n")
        partial.rename(self.path)
        self.identity = identity


async def needs_state(storage: DiskStorage, place: ClusterPlace, connection: Connection, options: NodeOptions) -> bool:
    """Whether a node has to take the state of another before it can read the log: it is new and there is one, or it was
    away for so long that the log does not reach back.
    """
    recovered = storage.recovered
    assert recovered is not None
    position = recovered.store.sessions.cluster().position
    if position is None and not place.identity and recovered.store.applied > 0:
        await storage.stop(None)
        raise UsageError(
            f"the data folder {place.root} has what a broker alone has stored: take it into a new cluster with "
            f"`holdfast cluster init`, or give this node an empty folder"
        )
    if position is None:
        return len(await Transfer(connection, options.stream.name, options.stream.replicas).find()) > 0
    return await first_message(connection, options.stream) > position.sequence + 1


async def set_aside(storage: DiskStorage) -> None:
    """Begin as a new node where the disk has lost something: what is left of it would not be what the others have."""
    await storage.stop(None)
    folder = storage.folder
    found = [each for each in (folder.state, folder.journal, folder.history) if each.exists()]
    log.warning(
        "the data of this node is damaged: it is set aside, and taken from the log and the other nodes again",
        extra={"to": " ".join(str(folder.move_to_quarantine(each)) for each in found)},
    )


async def take_state(storage: DiskStorage, connection: Connection, options: NodeOptions) -> None:
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


def newest(found: list[Stored]) -> Stored:
    return max(found, key=lambda each: int(each.about.get("sequence", "0")))
