"""What the API tells of the server that it is part of: the broker, and how its disk is doing."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from holdfast.broker.core import Broker
from holdfast.errors import StoreError
from holdfast.history.place import At
from holdfast.identity.denials import Denials
from holdfast.service.live import JournalStatus
from holdfast.service.source import BrokerHandle


class SyncTimes(Protocol):
    """A histogram: `counts` are of each bucket alone, one more than there are `bounds`."""

    @property
    def bounds(self) -> tuple[float, ...]: ...

    @property
    def counts(self) -> list[int]: ...

    @property
    def total_s(self) -> float: ...


class JournalNumbers(JournalStatus, Protocol):
    """Beside its status: whether it can be written; `backlog` is the bytes that wait."""

    @property
    def healthy(self) -> bool: ...

    @property
    def backlog(self) -> int: ...

    @property
    def sync_times(self) -> SyncTimes: ...


class ClusterView(Protocol):
    """The cluster, as one of its nodes sees it, whose name is `name`. The first two texts say why not, and are empty
    while there is no reason.
    """

    @property
    def not_ready(self) -> str: ...

    @property
    def cannot_write(self) -> str: ...

    @property
    def name(self) -> str: ...

    def status(self) -> dict[str, Any]: ...

    async def drain_node(self, name: str) -> None: ...

    async def remove(self, name: str) -> None: ...

    async def verify(self) -> dict[str, str]: ...


class Configuration(Protocol):
    """What the server was told, as it may be shown: no secret is in it."""

    def settings(self) -> list[dict[str, Any]]:
        """Every setting with its value, and where that came from."""

    def listeners(self) -> list[dict[str, Any]]: ...

    def users(self) -> list[dict[str, Any]]:
        """The names that are in files: users of the broker and API keys."""

    def logins(self) -> list[str]:
        """The ways to log in, in a few words each."""


class BridgesView(Protocol):
    """The links to other brokers. A bridge is told as a table of the configuration."""

    def status(self) -> list[dict[str, Any]]: ...

    def told(self, name: str) -> dict[str, Any]: ...

    async def add(self, told: dict[str, Any], replace: bool = False) -> dict[str, Any]: ...

    async def remove(self, name: str) -> None: ...

    async def test(self, told: dict[str, Any]) -> list[dict[str, object]]: ...


@dataclass
class ServerStatus:
    """`reached` says how far the followers are, `problems` what they complain of, `paused` why they write nothing for
    now, all by name; `folder` is the data folder, `history` is where the table is, None where there is none, and
    `erasures` the folder of requests to erase from it; `cluster` is None for a broker that stands alone. The offsets
    above the first of `skipped`, up to the second, were never given out: a start after a crash leaves some out.
    `on_denied` is told what was denied to whom, at which address, and why.
    """

    handle: BrokerHandle
    journal: JournalNumbers | None = None
    history: At | None = None
    erasures: Path | None = None
    reached: dict[str, int] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    paused: dict[str, str] = field(default_factory=dict)
    version: str = ""
    started_at_ms: int = 0
    storage_type: str = "ram"
    cluster: ClusterView | None = None
    folder: Path | None = None
    heard: Path | None = None
    skipped: tuple[int, int] = (0, 0)
    denials: Denials = field(default_factory=Denials)
    configuration: Configuration | None = None
    bridges: BridgesView | None = None
    on_denied: Callable[[str, str, str, str], object] = lambda event, username, host, reason: None

    @property
    def broker(self) -> Broker:
        return self.handle.broker

    def now_ms(self) -> int:
        return self.handle.now_ms()

    @property
    def node(self) -> str:
        """The name of this node; empty for a broker that stands alone."""
        return self.cluster.name if self.cluster is not None else ""

    def need_cluster(self) -> None:
        """Raises StoreError where this is a node of a cluster and nothing can be asked of the others now."""
        if self.cluster is not None and self.cluster.cannot_write:
            raise StoreError(f"the cluster cannot be reached through this node now: {self.cluster.cannot_write}")

    def refusal(self) -> str:
        """Why nothing can be stored now; empty while it can."""
        if self.cluster is not None:
            return self.cluster.cannot_write
        if self.journal is not None and not self.journal.healthy:
            return "the disk is full or failing"
        return ""

    def newest(self) -> int:
        """The newest offset that the history could have: what is durable, or all there is."""
        if self.journal is None or self.cluster is not None:
            return self.broker.log.position
        return self.journal.durable

    def history_lag(self) -> int:
        """Offsets that the history is behind."""
        return 0 if self.history is None else self.behind(self.reached.get("history", 0), self.newest())

    def state_lag(self) -> int:
        """Offsets that the state on disk is behind."""
        if self.journal is None:
            return 0
        return self.behind(self.reached.get("state", self.broker.log.position), self.journal.durable)

    def behind(self, reached: int, newest: int) -> int:
        """Offsets between two that may have been given out."""
        first, last = self.skipped
        never = max(0, min(newest, last) - max(reached, first))
        return max(0, newest - reached - never)
