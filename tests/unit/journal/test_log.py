"""Where a sync is waited for: by the event loop itself when nobody else has anything of it, by a thread otherwise."""

from collections.abc import Callable

from holdfast.broker.batch import Batch
from holdfast.errors import StoreError
from holdfast.journal.log import ASIDE_BYTES, Done, JournalLog
from holdfast.journal.record import Chunk


class Journal:
    """Notes what it is asked for, and is done when told to be."""

    next_offset = 1
    healthy = True
    backlog = 0
    quick = True

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.dones: list[Done] = []

    def append_chunk(self, chunk: Chunk, done: Done | None) -> None:
        self.asked.append(f"thread {chunk.last}")
        if done is not None:
            self.dones.append(done)

    def put_aside(self, chunk: Chunk, done: Done) -> None:
        self.asked.append(f"aside {chunk.last}")
        self.dones.append(done)

    def commit_here(self) -> None:
        self.asked.append("here")

    def commit_there(self) -> None:
        self.asked.append("there")


class Turns:
    def __init__(self) -> None:
        self.journal = Journal()
        self.log = JournalLog(self.journal, waits=True, waits_to_deliver=False, history_filters=[])
        self.log.at_end_of_turn = self.at_end
        self.calls: list[Callable[[], None]] = []

    def at_end(self, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def append(self, *, waited_for: bool = True, size: int = 0) -> None:
        batch = Batch()
        batch.add(b"\x01\x10" + self.log.order(1).to_bytes(8, "little") + bytes(size))
        self.log.append(batch, waited_for)

    def end(self) -> list[str]:
        """End the turn; what the journal was asked for in it."""
        while self.calls:
            self.calls.pop(0)()
        asked, self.journal.asked = self.journal.asked, []
        return asked


def test_the_loop_syncs_itself_once_a_turn_when_everyone_waits_for_the_disk() -> None:
    turns = Turns()
    turns.append()
    turns.append()
    assert turns.end() == ["aside 1", "aside 2", "here"]
    turns.append()
    assert turns.end() == ["aside 3", "here"]


def test_what_may_leave_at_once_leaves_before_the_loop_waits_for_the_disk() -> None:
    turns = Turns()
    turns.append()
    turns.log.wrote = True  # to subscribers of what was published
    turns.calls.pop(0)()
    assert turns.journal.asked == ["aside 1"]
    assert turns.end() == ["aside 1", "here"]


def test_no_acknowledgement_waits_for_others_who_are_written_to_in_every_turn() -> None:
    turns = Turns()
    turns.append()
    for _ in range(3):
        turns.log.wrote = True
        if turns.calls:
            turns.calls.pop(0)()
    assert turns.end() == ["aside 1", "here"]
    turns.append()
    turns.log.wrote = True
    turns.log.served += 1
    turns.calls.pop(0)()
    assert turns.end() == ["aside 2", "there"]


def test_the_thread_syncs_while_someone_is_served_who_waits_for_nothing() -> None:
    turns = Turns()
    turns.log.served += 1
    turns.append()
    assert turns.end() == ["thread 1", "there"]
    turns.append()
    turns.log.served += 1
    assert turns.end() == ["aside 2", "there"]
    turns.append()
    assert turns.end() == ["aside 3", "here"]


def test_the_thread_syncs_on_a_slow_disk() -> None:
    turns = Turns()
    turns.journal.quick = False
    turns.append()
    assert "aside 1" not in turns.end()


def test_the_thread_is_woken_for_what_nobody_waits_for_at_the_next_tick_or_when_it_is_much() -> None:
    turns = Turns()
    turns.append(waited_for=False)
    turns.append(waited_for=False)
    assert turns.end() == ["aside 1", "aside 2"]
    turns.log.hand_over()
    assert turns.end() == ["there"]
    turns.append(waited_for=False, size=ASIDE_BYTES)
    assert turns.end() == ["aside 3", "there"]


def test_what_nobody_waits_for_goes_with_what_somebody_does() -> None:
    turns = Turns()
    turns.append(waited_for=False)
    turns.append()
    assert turns.end() == ["aside 1", "aside 2", "here"]


def test_without_turns_the_thread_syncs_everything() -> None:
    turns = Turns()
    turns.log.at_end_of_turn = None
    turns.append()
    assert turns.end() == ["thread 1"]


def test_what_is_durable_is_told_with_its_offset_and_in_order() -> None:
    turns = Turns()
    told: list[tuple[int, StoreError | None]] = []
    turns.log.on_durable = lambda offset, error: told.append((offset, error))
    turns.append()
    turns.append()
    error = StoreError("journal cannot be written")
    turns.journal.dones[0](None)
    turns.journal.dones[1](error)
    assert told == [(1, None), (2, error)]
    assert turns.log.durable == 1
