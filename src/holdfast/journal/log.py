"""The journal as the broker's log: entries are ordered at once, and durable when the journal has synced them.

Compiled with the broker, because every publish asks it for an offset.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, final

from holdfast.broker.batch import Batch
from holdfast.broker.log import Flushed, Log
from holdfast.errors import StoreError
from holdfast.journal.record import Chunk

# How much may wait for the disk before publishers are read from more slowly.
HIGH_WATER_BYTES: Final = 64 * 1024 * 1024

# How much that nobody waits for is gathered before the journal's thread is woken for it.
ASIDE_BYTES: Final = 64 * 1024

Done = Callable[[StoreError | None], None]


class JournalWriter(Protocol):
    """What is asked of the journal's writer."""

    next_offset: int
    healthy: bool

    @property
    def backlog(self) -> int: ...

    @property
    def quick(self) -> bool: ...

    def append_chunk(self, chunk: Chunk, done: Done | None) -> None: ...

    def put_aside(self, chunk: Chunk, done: Done) -> None: ...

    def commit_here(self) -> None: ...

    def commit_there(self) -> None: ...


@final
class JournalLog(Log):
    """`batches` are the last offsets of what is on its way to the disk and waited for, oldest first.

    Whoever drives the broker says with `at_end_of_turn` how to be called when all that came in together was handled.
    If by then everyone who was served waits for the disk, and the disk is quick, there is nothing better to do than to
    wait with them: the sync is done right there. Otherwise it is the journal's thread that waits. What nobody waits for
    is gathered for a while, since waking the thread costs more than writing one record.
    """

    def __init__(
        self,
        journal: JournalWriter,
        *,
        waits: bool,
        waits_to_deliver: bool,
        history_filters: list[bytes],
        records_live: bool = False,
    ) -> None:
        super().__init__(
            waits=waits,
            waits_to_deliver=waits_to_deliver,
            keeps_state=True,
            history_filters=history_filters,
            records_live=records_live,
        )
        self.journal = journal
        self.position = journal.next_offset - 1
        self.durable = self.position
        self.batches: deque[int] = deque()
        self.aside = 0  # bytes that nobody waits for and that the journal was not told to write yet
        self.turn_ends = False  # `at_end_of_turn` was asked to call
        self.waited_a_turn = False  # for bytes that may leave at once
        self.served_before = 0  # what `served` was when it last did
        # Whether too much is held in memory until the state on disk has it.
        self.is_state_behind: Callable[[], bool] | None = None

    def append(self, records: Batch, waited_for: bool) -> int:
        count, first, last = records.count, records.first, records.last
        chunk = Chunk(records.take(), count, first, last)
        journal = self.journal
        if not self.waits:
            journal.append_chunk(chunk, None)
            return 0
        self.batches.append(last)
        at_end_of_turn = self.at_end_of_turn
        if at_end_of_turn is None:
            journal.append_chunk(chunk, self.on_synced)
            return last
        if not waited_for:
            journal.put_aside(chunk, self.on_synced)
            self.aside += len(chunk.data)
            if self.aside >= ASIDE_BYTES:
                self.hand_over()
            return last
        if self.served == self.served_before and journal.quick:
            journal.put_aside(chunk, self.on_synced)
        else:
            journal.append_chunk(chunk, self.on_synced)
        if not self.turn_ends:
            self.turn_ends = True
            at_end_of_turn(self.on_turn_end)
        return last

    def on_turn_end(self) -> None:
        alone = self.served == self.served_before
        if alone and self.wrote and not self.waited_a_turn and self.at_end_of_turn is not None:
            self.waited_a_turn = True  # let them leave first; once, for there may be more to write in every turn
            self.at_end_of_turn(self.on_turn_end)
            return
        self.waited_a_turn = False
        self.wrote = False
        self.turn_ends = False
        self.served_before = self.served
        if alone:
            self.aside = 0
            self.journal.commit_here()
        else:
            self.hand_over()

    def hand_over(self) -> None:
        """Let the thread write what was put aside. To be called now and then: nobody may be waiting for it."""
        self.aside = 0
        self.journal.commit_there()

    def on_synced(self, error: StoreError | None) -> None:
        last = self.batches.popleft()
        self.healthy = self.journal.healthy
        if error is None:
            self.durable = last
        self.on_durable(last, error)

    def flush(self, done: Flushed) -> None:
        self.journal.append_chunk(Chunk(b"", 0, 0, 0), done)

    def is_behind(self) -> bool:
        if self.journal.backlog > HIGH_WATER_BYTES:
            return True
        return self.is_state_behind is not None and self.is_state_behind()
