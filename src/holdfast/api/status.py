"""What the API tells of the server that it is part of: the broker, and how its disk is doing."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from holdfast.broker.core import Broker
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
    """Beside its status: `backlog` is the bytes that wait."""

    @property
    def backlog(self) -> int: ...

    @property
    def sync_times(self) -> SyncTimes: ...


@dataclass
class ServerStatus:
    """`reached` says how far the followers are, `problems` what they complain of, `paused` why they write nothing for
    now, all by name; `history` is the table's folder, None where there is none.
    """

    handle: BrokerHandle
    journal: JournalNumbers | None = None
    history: Path | None = None
    reached: dict[str, int] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    paused: dict[str, str] = field(default_factory=dict)
    version: str = ""
    started_at_ms: int = 0
    storage_type: str = "ram"

    @property
    def broker(self) -> Broker:
        return self.handle.broker

    def now_ms(self) -> int:
        return self.handle.now_ms()

    def newest(self) -> int:
        """The newest offset that the history could have: what is durable, or all there is."""
        return self.journal.durable if self.journal is not None else self.broker.log.position

    def history_lag(self) -> int:
        """Offsets that the history is behind."""
        return 0 if self.history is None else max(0, self.newest() - self.reached.get("history", 0))

    def state_lag(self) -> int:
        """Offsets that the state on disk is behind."""
        if self.journal is None:
            return 0
        return max(0, self.journal.durable - self.reached.get("state", self.broker.log.position))
