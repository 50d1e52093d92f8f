"""Which segments may go: those that every consumer has passed, and, past the journal's own limit, more than those.

A consumer is a fold of the journal that keeps its own place, such as the state or the history. An *expendable* one may
lose records when the journal would otherwise grow without end; what it lost is said. For the others the journal refuses
to grow instead.
"""

from dataclasses import dataclass

from holdfast.journal.segment import SegmentName


@dataclass(frozen=True)
class SealedSegment:
    name: SegmentName
    size: int
    last: int  # offset of its last record


class Retention:
    """Invariant: `sealed` is in offset order and holds every segment but the one being written."""

    def __init__(self, max_bytes: int, consumers: dict[str, int], expendable: frozenset[str]) -> None:
        self.max_bytes = max_bytes
        self.passed = dict(consumers)
        self.expendable = expendable
        self.sealed: list[SealedSegment] = []

    def note(self, consumer: str, offset: int) -> None:
        self.passed[consumer] = max(offset, self.passed.get(consumer, 0))

    def size(self) -> int:
        return sum(segment.size for segment in self.sealed)

    def take_passed(self, keep: int) -> list[SealedSegment]:
        """Segments from the front that all consumers have passed, except the newest `keep`; they are no longer kept
        here. The newest segment of all must stay: it says which offsets are in use.
        """
        needed = min(self.passed.values(), default=0)
        count = 0
        while count < len(self.sealed) - keep and self.sealed[count].last <= needed:
            count += 1
        taken, self.sealed = self.sealed[:count], self.sealed[count:]
        return taken

    def take_excess(self, open_size: int) -> list[SealedSegment]:
        """Segments to give up so that the journal keeps to its limit, oldest first; only expendable consumers lose."""
        excess = self.size() + open_size - self.max_bytes
        taken: list[SealedSegment] = []
        while excess > 0 and self.sealed and self.sealed[0].last <= self.firm():
            taken.append(self.sealed.pop(0))
            excess -= taken[-1].size
        return taken

    def take_oldest(self) -> list[SealedSegment]:
        """The oldest segment, if only expendable consumers need it; never the newest, which says which offsets are in
        use.
        """
        if len(self.sealed) > 1 and self.sealed[0].last <= self.firm():
            return [self.sealed.pop(0)]
        return []

    def firm(self) -> int:
        """The offset up to which nobody needs the journal who may lose nothing."""
        return min((at for name, at in self.passed.items() if name not in self.expendable), default=1 << 64)

    def losers(self, segments: list[SealedSegment]) -> list[str]:
        """The consumers that have not read all of these."""
        last = max((segment.last for segment in segments), default=0)
        return sorted(name for name, at in self.passed.items() if at < last)

    def is_full(self, open_size: int) -> bool:
        """Whether the journal is over its limit because of segments that somebody still needs."""
        return bool(self.sealed) and self.size() + open_size > self.max_bytes

    def slowest(self) -> str:
        """Of the consumers that may lose nothing, the one that is furthest behind."""
        firm = [name for name in self.passed if name not in self.expendable]
        return min(firm, key=self.passed.__getitem__, default="nobody")
