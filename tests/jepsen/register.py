"""Whether what was written to and read from one topic is linearizable: whether each operation can be thought to have
happened at one moment between its beginning and its end, such that every read finds the last write before it.

The search is the one of Wing and Gong with the improvements of Lowe: go through the beginnings and ends in the order of
time and keep every *configuration* that is possible so far, which is the value of the topic and which of the operations
under way have already happened. An operation is made to happen no sooner than its end, or that of another, demands it.
A few things keep the number of configurations small however long the history is:

- A read changes nothing, so it happens as soon as the value is the one that it found.
- A write whose value nobody reads is hidden by another one that happens right behind it. So it happens with the next
  other write, and by itself only at its end.
- A value that nobody reads any more is as good as any other such value.
- A write whose outcome is unknown and whose value nobody saw explains nothing, so it is left out. One whose value was
  seen has happened by then. So nothing stays under way for ever, except:
- A delete whose outcome is unknown. Its value, absence, is not unique. But all such deletes are alike, so it is enough
  to count how many of those begun were needed, and to need as few as possible.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from jepsen.history import Outcome, Read, Sight, Write

MOST_STEPS = 2_000_000
UNREAD = "a value that nobody reads from then on"

Value = str | None
Done = frozenset[int]
# The value and the operations under way that have happened, and the fewest unknown deletes that this takes.
Configurations = dict[tuple[Value, Done], int]


@dataclass(frozen=True)
class Unexplained:
    """The first operation for which there is no moment, and the values that the topic could have had by then."""

    operation: Write | Read
    possible: frozenset[Value]


class Undecided(Exception):
    """The search was given up."""


def settle(writes: Iterable[Write], reads: Sequence[Read], sights: Iterable[Sight]) -> list[Write]:
    """The writes that have to be explained, each with the latest time at which it has surely happened."""
    seen_at: dict[str, float] = {}
    for value, at in [*((r.value, r.ended) for r in reads), *((s.value, s.at) for s in sights)]:
        if value is not None:
            seen_at[value] = min(at, seen_at.get(value, at))
    settled = []
    for write in writes:
        if write.outcome is Outcome.REFUSED:
            continue
        seen = seen_at.get(write.value) if write.value is not None else None
        if write.outcome is Outcome.OK or seen is not None:
            ends = [time for time in (write.ended, seen) if time is not None]
            settled.append(replace(write, ended=min(ends)))
        elif write.value is None:
            settled.append(replace(write, ended=None))
    return settled


def explain(
    writes: Sequence[Write], reads: Sequence[Read], sights: Iterable[Sight] = (), most_steps: int = MOST_STEPS
) -> Unexplained | None:
    """None when there is an order that explains everything that was seen of one topic, which begins absent."""
    operations: list[Write | Read] = [*settle(writes, reads, sights), *reads]
    problem = _Search(most_steps).run(operations)
    if problem is not None:
        with contextlib.suppress(Undecided):  # once more, to name the values that were taken for one
            problem = _Search(most_steps, merges=False).run(operations)
    return problem


class _Search:
    def __init__(self, most_steps: int, merges: bool = True) -> None:
        self.steps_left = most_steps
        self.merges = merges
        self.writes: dict[int, Value] = {}  # under way
        self.hidden: set[int] = set()  # writes under way of values that nobody reads
        self.reads: dict[int, Value] = {}
        self.reads_left: Counter[Value] = Counter()  # that have not ended
        self.deletes_begun = 0  # of those whose outcome is unknown
        self.configurations: Configurations = {(None, frozenset()): 0}

    def run(self, operations: Sequence[Write | Read]) -> Unexplained | None:
        # What begins at the moment when something else ends may have happened before it.
        events: list[tuple[float, int, int, Write | Read]] = []
        for key, operation in enumerate(operations):
            events.append((operation.began, 0, key, operation))
            if operation.ended is not None:
                events.append((operation.ended, 1, key, operation))
            if isinstance(operation, Read):
                self.reads_left[operation.value] += 1
        for _, is_end, key, operation in sorted(events, key=lambda event: event[:3]):
            if not is_end:
                self.begin(key, operation)
                continue
            before = self.configurations
            self.end(key)
            if not self.configurations:
                return Unexplained(operation, frozenset(value for value, _ in before))
            if isinstance(operation, Read):
                self.read_ended(operation.value)
        return None

    def begin(self, key: int, operation: Write | Read) -> None:
        if isinstance(operation, Read):
            self.reads[key] = operation.value
            self.configurations = {
                (value, done | {key} if value == operation.value else done): used
                for (value, done), used in self.configurations.items()
            }
        elif operation.ended is None:
            self.deletes_begun += 1
        elif self.reads_left[operation.value]:
            self.writes[key] = operation.value
        else:
            self.hidden.add(key)

    def end(self, key: int) -> None:
        """Keep the configurations in which this operation has happened, after whatever had to happen for it."""
        kept: Configurations = {}
        best: Configurations = {}
        todo = [(value, done, used) for (value, done), used in self.configurations.items()]
        while todo:
            value, done, used = todo.pop()
            self.steps_left -= 1
            if self.steps_left < 0:
                raise Undecided
            if best.get((value, done), used + 1) <= used:
                continue
            best[value, done] = used
            if key in done:
                rest = (value, done - {key})
                kept[rest] = min(used, kept.get(rest, used))
                continue
            for write, written in self.writes.items():
                if write not in done:
                    todo.append((written, self.happened(done | {write}, written), used))
            if key in self.hidden:
                todo.append((UNREAD, done | self.hidden, used))
            if value is not None and used < self.deletes_begun and self.awaits_absence(done):
                todo.append((None, self.happened(done, None), used + 1))
        self.configurations = kept
        self.writes.pop(key, None)
        self.hidden.discard(key)
        self.reads.pop(key, None)

    def happened(self, done: Done, value: Value) -> Done:
        """A write has happened, and with it the hidden ones before it and the reads that find its value."""
        found = [key for key, read in self.reads.items() if read == value and key not in done]
        return done.union(found, self.hidden) if found or self.hidden else done

    def awaits_absence(self, done: Done) -> bool:
        return any(read is None and key not in done for key, read in self.reads.items())

    def read_ended(self, value: Value) -> None:
        self.reads_left[value] -= 1
        if self.reads_left[value] or not self.merges:
            return
        # Nobody will ask for it again: from now on it and its like are one.
        for write in [key for key, written in self.writes.items() if written == value]:
            del self.writes[write]
            self.hidden.add(write)
        merged: Configurations = {}
        for (now, done), used in self.configurations.items():
            place = (UNREAD if now == value else now, done)
            merged[place] = min(used, merged.get(place, used))
        self.configurations = merged
