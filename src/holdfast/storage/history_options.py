"""What the process that writes the history is told by the broker that starts it, as JSON on its command line."""

import json
from dataclasses import asdict, dataclass

from holdfast.storage.reserve import NO_RESERVE, Reserve


@dataclass(frozen=True)
class HistoryOptions:
    """Retention of 0 is none. From offset `live_from` on publishes without RETAIN are recorded too; 0 says that they
    are not, None that what the table says of it stays.
    """

    flush_interval_s: float = 1.0
    retention_s: int = 0
    retention_bytes: int = 0
    reserve: Reserve = NO_RESERVE
    live_from: int | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def of_json(text: str) -> "HistoryOptions":
        values = json.loads(text)
        return HistoryOptions(**{**values, "reserve": Reserve(**values["reserve"])})
