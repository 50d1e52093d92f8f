"""Which cluster a data folder belongs to, and how a node's folder becomes that of a broker alone."""

import json
import logging
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import UsageError
from holdfast.storage.disk import DiskStorage

log = logging.getLogger("holdfast.cluster")


@dataclass
class ClusterPlace:
    """The file `cluster.json` of a data folder. Raises UsageError when that is another node or cluster."""

    root: Path
    name: str
    node: str
    identity: str = ""  # of the log that the state was made from
    offset: int = 0  # of a state that was there before the log

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
        self.offset = int(known.get("offset", 0))

    @property
    def path(self) -> Path:
        return place_file(self.root)

    def write(self, identity: str) -> None:
        self.identity = identity
        known = {"name": self.name, "node": self.node, "identity": identity, "offset": self.offset}
        partial = self.path.with_suffix(".partial")
        partial.write_text(json.dumps(known) + "\n")
        partial.rename(self.path)

    def begin_at(self, offset: int) -> None:
        """Note that the folder has the state that was there before the log, so that it is known for that later."""
        self.offset = offset
        self.write(self.identity)


def place_file(root: Path) -> Path:
    return root / "cluster.json"


def need_no_node(root: Path) -> None:
    """Raises UsageError where a folder is a node's: what is changed in it alone, the other nodes would not know."""
    if place_file(root).exists():
        node = json.loads(place_file(root).read_text()).get("node")
        raise UsageError(
            f"the data folder {root} is that of node {node!r} of a cluster: change what the cluster has through a node "
            "that runs, with --url"
        )


def drop_unused_place(root: Path) -> None:
    """Forget that a folder was to be a node's, where it has not become one yet."""
    path = place_file(root)
    if path.exists() and not json.loads(path.read_text()).get("identity"):
        path.unlink()


def leave_cluster(storage: DiskStorage) -> None:
    """Let a folder that was a node's be that of a broker alone. Its sessions, its retained messages and its history
    stay; the cluster will not know it any more.
    """
    recovered = storage.recovered
    assert recovered is not None
    path = place_file(storage.folder.root)
    if not path.exists() and recovered.store.sessions.cluster().position is None:
        return
    recovered.store.sessions.forget_cluster()
    if path.exists():
        storage.folder.move_to_quarantine(path)
    log.warning(
        "this folder was that of a node, and goes on alone from here: to be a node again it would have to be empty",
        extra={"folder": str(storage.folder.root)},
    )
