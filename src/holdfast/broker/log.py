"""The log, as the core sees it: what gives entries their order, keeps them, and says when they are kept.

Every change that has to outlast a connection is an entry. The core asks the log for its offset, applies it, and leaves
its record in the effects of the call. The driver hands the records of one call to `append` together, and holds back the
bytes that wait for them until `on_durable` says that they are kept: an acknowledgement never overtakes what it
acknowledges.

| log             | an entry is ordered            | and durable                            |
|-----------------|--------------------------------|----------------------------------------|
| `NullLog`       | at once                        | at once: nothing outlives the process  |
| `JournalLog`    | at once, nobody else writes    | after the group commit's `fdatasync`   |
| `SharedLog`     | when it comes back             | the same moment: most servers have it  |
"""

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import mypyc_attr

from holdfast.broker.batch import Batch
from holdfast.broker.topics import matches
from holdfast.errors import StoreError

Durable = Callable[[int, StoreError | None], None]
Flushed = Callable[[StoreError | None], None]
AtEndOfTurn = Callable[[Callable[[], None]], object]


@mypyc_attr(allow_interpreted_subclasses=True)
class Log:
    """Invariants: offsets only grow; `durable` never passes `position`; `on_durable` is called once for each batch that
    `append` has returned an offset for, in their order.
    """

    def __init__(
        self,
        *,
        waits: bool,
        waits_to_deliver: bool,
        keeps_state: bool,
        history_filters: list[bytes],
        records_live: bool = False,
    ) -> None:
        self.waits: Final = waits  # acknowledgements wait for the disk
        self.waits_to_deliver: Final = waits_to_deliver  # and so does what subscribers are sent
        self.keeps_state: Final = keeps_state  # the retained set and sessions outlive the process
        self.history_filters: Final = [topic_filter.split(b"/") for topic_filter in history_filters]
        self.records_live: Final = records_live  # publishes without RETAIN go to the history too
        self.position = 0  # the offset of the last entry that was ordered
        self.durable = 0  # the offset up to which entries are known to be kept
        self.healthy = True  # what is appended now can be made durable
        self.on_durable: Durable = ignore
        self.served = 0  # calls whose bytes left at once, since nothing of them waits for the log
        self.wrote = False  # bytes were given to a transport, which may send them at the end of the turn
        self.at_end_of_turn: AtEndOfTurn | None = None  # where the driver handles what came in together in turns

    def order(self, count: int) -> int:
        """Give the next `count` entries their offsets; returns the first of them."""
        first = self.position + 1
        self.position += count
        return first

    def order_beside(self, count: int, retained: bool) -> int:
        """Return the offsets of messages that are no entries, since nobody has to remember them, or that only this node
        keeps: where others write to the log too, they take no place in it.
        """
        return self.order(count)

    def append(self, records: Batch, waited_for: bool) -> int:
        """Take the records of one call, and keep all of them or none. `waited_for`: some bytes depend on them.

        Returns the offset that bytes which depend on them have to wait for, 0 when there is nothing to wait for.
        """
        raise NotImplementedError

    def flush(self, done: Flushed) -> None:
        """Call `done` when all that was appended is durable, or with the reason why it cannot be."""
        raise NotImplementedError

    def hand_over(self) -> None:
        """See to it that what nobody waits for becomes durable too. To be called at every tick."""

    def is_behind(self) -> bool:
        """Return whether so much waits to be written that it is better to read from publishers more slowly."""
        return False

    def records_history(self, topic_levels: list[bytes]) -> bool:
        """Return whether publishes with RETAIN to this topic become rows of the history table."""
        for levels in self.history_filters:  # noqa: SIM110  # a generator is slow when it is compiled
            if matches(levels, topic_levels):
                return True
        return False


@final
class NullLog(Log):
    """Orders entries and forgets them: what a broker in memory alone has."""

    def __init__(self) -> None:
        super().__init__(waits=False, waits_to_deliver=False, keeps_state=False, history_filters=[])

    def append(self, records: Batch, waited_for: bool) -> int:
        records.clear()
        self.durable = self.position
        return 0

    def flush(self, done: Flushed) -> None:
        done(None)


def ignore(offset: int, error: StoreError | None) -> None:
    """Stand in until a driver asks to be told what has become durable."""
