"""The journal as the broker's log: entries are ordered at once, and durable when the journal has synced them.

Compiled with the broker, because every publish asks it for an offset.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, final

from holdfast.broker.log import Flushed, Log
from holdfast.errors import StoreError
from holdfast.journal.record import offset_of

# How much may wait for the disk before publishers are read from more slowly.
HIGH_WATER_BYTES: Final = 64 * 1024 * 1024


class JournalWriter(Protocol):
    """What is asked of the journal's writer."""

    next_offset: int
    healthy: bool

    @property
    def backlog(self) -> int: ...

    def append(self, records: list[bytes], done: Callable[[StoreError | None], None] | None = None) -> None: ...


@final
class JournalLog(Log):
    """`batches` are the last offsets of what is on its way to the disk and waited for, oldest first."""

    def __init__(
        self, journal: JournalWriter, *, waits: bool, waits_to_deliver: bool, history_filters: list[bytes]
    ) -> None:
        super().__init__(
            waits=waits, waits_to_deliver=waits_to_deliver, keeps_state=True, history_filters=history_filters
        )
        self.journal = journal
        self.position = journal.next_offset - 1
        self.durable = self.position
        self.batches: deque[int] = deque()
        # Whether too much is held in memory until the state on disk has it.
        self.is_state_behind: Callable[[], bool] | None = None

    def append(self, records: list[bytes]) -> int:
        if not self.waits:
            self.journal.append(records)
            return 0
        last = offset_of(records[-1])
        self.batches.append(last)
        self.journal.append(records, self.on_synced)
        return last

    def on_synced(self, error: StoreError | None) -> None:
        last = self.batches.popleft()
        self.healthy = self.journal.healthy
        if error is None:
            self.durable = last
        self.on_durable(last, error)

    def flush(self, done: Flushed) -> None:
        self.journal.append([], done)

    def is_behind(self) -> bool:
        if self.journal.backlog > HIGH_WATER_BYTES:
            return True
        return self.is_state_behind is not None and self.is_state_behind()
