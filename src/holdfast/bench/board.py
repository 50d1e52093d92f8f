"""What the processes of a run tell each other while it runs: plain numbers in shared memory, no locks.

Each number has one writer. The conductor writes the phase, each worker writes its own row; everybody reads. A reader
may see a row that is one pass old, never a torn number: aligned 64-bit stores are whole on all machines this runs on.
"""

from collections.abc import MutableSequence
from multiprocessing.context import SpawnContext

SETUP, GO, STOP, QUIT = range(4)

ROW = 8  # numbers per worker: a cache line, so that workers do not slow each other
MESSAGES, BYTES, ACKNOWLEDGED, LAST_NS, READY, DONE = range(6)


class Board:
    def __init__(self, context: SpawnContext, workers: int) -> None:
        self._cells: MutableSequence[int] = context.RawArray("q", ROW * (workers + 1))

    @property
    def phase(self) -> int:
        return self._cells[0]

    @phase.setter
    def phase(self, phase: int) -> None:
        self._cells[0] = phase

    @property
    def started_ns(self) -> int:
        """When the conductor said go, on the monotonic clock that all processes of a machine share."""
        return self._cells[1]

    @started_ns.setter
    def started_ns(self, started_ns: int) -> None:
        self._cells[1] = started_ns

    def put(self, worker: int, field: int, value: int) -> None:
        self._cells[ROW * (worker + 1) + field] = value

    def get(self, worker: int, field: int) -> int:
        return self._cells[ROW * (worker + 1) + field]

    def total(self, workers: range, field: int) -> int:
        return sum(self.get(worker, field) for worker in workers)
