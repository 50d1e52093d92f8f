"""One publishing connection: how much it may send next, and from where.

All bookkeeping is in bytes of equal frames, so a write cut short inside a frame needs no special case. Flat out, the
bytes come from a block built once and sent round and round. Paced, they are built when they fall due, with that
moment inside: waiting for the window or for the socket counts as latency, a generator that woke up late does not.
"""

import contextlib
from abc import ABC, abstractmethod

from holdfast.bench.codec import PublishFrame
from holdfast.bench.link import Link

BLOCK_BYTES = 1 << 18  # large enough to make a system call cheap, small enough to stay in the cache
NO_LIMIT = 1 << 62


class Outflow(ABC):
    def __init__(self, link: Link, frame: PublishFrame, inflight: int, limit: int) -> None:
        self.link = link
        self.frame = frame
        self.inflight = min(inflight, link.intake.receive_maximum)  # [5: MQTT-3.3.4-7]
        self.limit = limit or NO_LIMIT  # messages
        self.sent_bytes = 0
        self.owed = bytearray()  # PUBREL packets: they go out between frames, never inside one
        self.blocked = False  # the socket took less than offered: wait until it is writable

    @property
    def sent(self) -> int:
        return self.sent_bytes // self.frame.size

    @property
    def finished(self) -> bool:
        whole = self.sent_bytes == self.limit * self.frame.size
        return whole and (self.frame.qos == 0 or self.link.intake.acknowledged >= self.limit)

    def stop(self) -> None:
        """No further messages; a frame that has been begun is completed."""
        begun = -(-self.sent_bytes // self.frame.size)
        self.limit = min(self.limit, begun)

    @property
    def wants_write(self) -> bool:
        return self.blocked

    def pump(self, now_ns: int) -> None:
        """Sends what may be sent now."""
        self.blocked = False
        if self.owed and self.sent_bytes % self.frame.size == 0:
            del self.owed[: self._write(self.owed)]
        if not self.blocked:
            self.send_frames(now_ns)

    @abstractmethod
    def send_frames(self, now_ns: int) -> None: ...

    def allowance(self) -> int:
        """Bytes that the window and the limit let out now."""
        ceiling = self.limit
        if self.frame.qos:
            ceiling = min(ceiling, self.link.intake.acknowledged + self.inflight)
        return ceiling * self.frame.size - self.sent_bytes

    def offer(self, data: memoryview) -> int:
        taken = self._write(data)
        self.sent_bytes += taken
        return taken

    def _write(self, data: memoryview | bytearray) -> int:
        taken = 0
        with contextlib.suppress(BlockingIOError):
            taken = self.link.socket.send(data)
        self.blocked = taken < len(data)
        return taken


class FlatOut(Outflow):
    def __init__(self, link: Link, frame: PublishFrame, inflight: int, limit: int, block: bytes = b"") -> None:
        """`block` is whole frames of the frame's size, in place of the ones built here."""
        super().__init__(link, frame, inflight, limit)
        # an id is used again after at least two windows, when its acknowledgement has long been counted
        frames = max(2 * inflight if frame.qos else 1, min(BLOCK_BYTES // frame.size, 65535))
        self._block = memoryview(block or frame.block(frames))

    @property
    def wants_write(self) -> bool:
        return self.blocked or (self.frame.qos == 0 and self.allowance() > 0)

    def send_frames(self, now_ns: int) -> None:
        allowed = self.allowance()
        while allowed > 0:
            start = self.sent_bytes % len(self._block)
            piece = self._block[start : start + allowed]
            if self.offer(piece) < len(piece) or self.frame.qos == 0:
                return
            allowed -= len(piece)


class Paced(Outflow):
    def __init__(
        self, link: Link, frame: PublishFrame, inflight: int, limit: int, interval_ns: float, first_ns: int
    ) -> None:
        super().__init__(link, frame, inflight, limit)
        self._interval_ns = interval_ns
        self._first_ns = first_ns
        self._made = 0
        self._pending = bytearray()

    @property
    def next_due_ns(self) -> int:
        if self._made >= self.limit:
            return NO_LIMIT
        return self._first_ns + int(self._made * self._interval_ns)

    def stop(self) -> None:
        """What fell due is still sent: leaving it out would hide the waiting it did."""
        self.limit = min(self.limit, self._made)

    def send_frames(self, now_ns: int) -> None:
        if now_ns >= self._first_ns:
            due = min(int((now_ns - self._first_ns) / self._interval_ns) + 1, self.limit)
            if due > self._made:
                count = due - self._made
                self._pending += self.frame.stamped_block(count, self._made % 65535 + 1, now_ns)
                self._made = due
        allowed = min(self.allowance(), len(self._pending))
        if allowed > 0:
            with memoryview(self._pending) as pending:
                taken = self.offer(pending[:allowed])
            del self._pending[:taken]
