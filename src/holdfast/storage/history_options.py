"""What the process that writes the history is told by the broker that starts it, as JSON on its command line."""

import json
from dataclasses import asdict, dataclass, field

from holdfast.storage.reserve import NO_RESERVE, Reserve

FOLLOWER = "holdfast.storage.follower_main"  # the module that it runs, which nobody else needs
REST_AFTER_S = 30.0  # without rows, the libraries of the history are let go


def number_of(name: str) -> int:
    """A number for a name, which a table can keep."""
    import hashlib  # and OpenSSL, for half a megabyte, which a follower does without

    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 2


@dataclass(frozen=True)
class Resting:
    """Where a process stood that went to rest: the last offset in the table, the last that it had read, when which
    upkeep is due, and when files were replaced that are still there.
    """

    table: int = 0
    after: int = 0
    due: dict[str, float] = field(default_factory=dict)
    replaced_at: float | None = None


@dataclass(frozen=True)
class HistoryOptions:
    """Retention of 0 is none. From offset `live_from` on publishes without RETAIN are recorded too; 0 says that they
    are not, None that what the table says of it stays. A table that is new begins behind offset `begins_after`, and
    nothing is lost by that. Files are joined to `file_bytes` each, in no more than that part of the time, and stay for
    a while when they have been replaced. `shared_by` is the name of a node whose table is that of the other nodes
    too. `resting` is told by the process to the one that it becomes.
    """

    flush_interval_s: float = 1.0
    retention_s: int = 0
    retention_bytes: int = 0
    reserve: Reserve = NO_RESERVE
    live_from: int | None = None
    begins_after: int = 0
    rest_after_s: float = REST_AFTER_S
    file_bytes: int = 64 << 20
    compact_budget: float = 0.25
    keep_replaced_s: int = 300
    iceberg: bool = False
    shared_by: str = ""
    resting: Resting | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def of_json(text: str) -> "HistoryOptions":
        values = json.loads(text)
        resting = Resting(**values["resting"]) if values["resting"] else None
        return HistoryOptions(**{**values, "reserve": Reserve(**values["reserve"]), "resting": resting})
