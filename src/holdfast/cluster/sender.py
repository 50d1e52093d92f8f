"""What this node writes to the log, in order, again and again until it has been seen coming back.

Every message carries its node, its epoch and a counter, and every reader takes a node's messages only in the order of
that counter: what it has had already and what comes after a gap is ignored. So to send too much is always right, and
to send in order is all that is asked for: go-back-N. Coming back through the reader is the acknowledgement, since
that is what a quorum has on disk. The answers of JetStream are used to hear of trouble early.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from holdfast.cluster.connection import NO_RESPONDERS, Message

PAUSE_S: Final = (0.05, 1.0)  # between two attempts: the first, and the longest
PROGRESS_S: Final = 2.0  # when nothing has come back, nor been answered, for so long, all of it is sent again
FULL: Final = (10023, 10047, 10077)  # error codes: a limit of the stream or of the servers' storage is reached


class Sender:
    """`publish(payload, reply)` hands one message to the network and says whether there was one."""

    def __init__(self, publish: Callable[[bytes, str], bool], inbox: str, in_flight: int, now: Callable[[], float]):
        self.publish = publish
        self.inbox = inbox
        self.in_flight = in_flight
        self.now = now
        self.position = 0  # how far the log has been read
        self.trouble = ""  # why nothing comes back, for as long as nothing does
        self.trouble_since = 0.0
        self.sent_again = 0
        self.waiting_bytes = 0  # all that has not come back
        self._queue: deque[tuple[int, bytes]] = deque()
        self._sent = 0  # how many at the head of the queue are under way
        self._round = 0  # goes up whenever everything is sent again; answers to an earlier round count for nothing
        self._pause_s = PAUSE_S[0]
        self._resume_at = 0.0  # 0: not pausing
        self._progress_at = 0.0
        self._first_stored = 0  # where the first message of this round is in the log; 0: not known yet
        self._last_stored = 0

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def send(self, counter: int, payload: bytes) -> None:
        assert not self._queue or counter == self._queue[-1][0] + 1, f"counter {counter} after {self._queue[-1][0]}"
        if not self._queue:
            self._progress_at = self.now()
        self._queue.append((counter, payload))
        self.waiting_bytes += len(payload)
        self._fill()

    def returned(self, counter: int) -> None:
        """All up to `counter` are in the log for good."""
        queue = self._queue
        if not queue or counter < queue[0][0]:
            return
        while queue and queue[0][0] <= counter:
            self.waiting_bytes -= len(queue.popleft()[1])
            self._sent = max(0, self._sent - 1)
        self._progress_at = self.now()
        self._pause_s = PAUSE_S[0]
        self.trouble = ""
        self._fill()

    def forget(self) -> None:
        """Nothing of what waits is wanted any more; the next counter may be any."""
        self._queue.clear()
        self.waiting_bytes = 0
        self._sent = 0
        self._round += 1
        self._first_stored = self._last_stored = 0

    def resend(self) -> None:
        """There was a gap. Each message behind it says so; together they call for one more round, not for many."""
        if self._sent and self._first_stored and self.position >= self._first_stored:
            self._go_back()

    def on_connected(self) -> None:
        if not self._queue:
            self.trouble = ""
        self._go_back()

    def on_lost(self, why: str) -> None:
        self._hear_trouble(why)
        self._round += 1
        self._sent = 0
        self._resume_at = 0.0

    def on_answer(self, message: Message) -> None:
        number = message.subject[len(self.inbox) + 1 :]
        if number.partition(".")[0] != str(self._round):
            return
        if message.status == NO_RESPONDERS:
            self._pause("the log has no leader: fewer than a quorum of its servers are there")
            return
        answer: dict[str, Any] = json.loads(message.payload or b"{}")
        error = answer.get("error")
        if error is None:
            self._progress_at = self.now()
            self._last_stored = int(answer.get("seq", 0))
            if not self._first_stored:
                self._first_stored = self._last_stored
        elif error.get("err_code") in FULL:
            said = error.get("description")
            self._pause(f"the log is full ({said}): give it more room; what waits is written as soon as there is some")
        else:
            self._pause(f"the log refuses a message: {error.get('description')} (code {error.get('err_code')})")

    def tick(self) -> None:
        """Called a few times a second."""
        now = self.now()
        if self._resume_at:
            if now >= self._resume_at:
                self._go_back()
        elif self._sent and now - self._progress_at >= PROGRESS_S and self._last_stored <= self.position:
            self._hear_trouble(f"the log has not answered for {PROGRESS_S:g} s")
            self._progress_at = now
            self._go_back()

    def _hear_trouble(self, why: str) -> None:
        if not self.trouble:
            self.trouble_since = self.now()
        self.trouble = why

    def _pause(self, why: str) -> None:
        self._hear_trouble(why)
        if not self._resume_at:
            self._resume_at = self.now() + self._pause_s
            self._pause_s = min(self._pause_s * 2, PAUSE_S[1])

    def _go_back(self) -> None:
        self.sent_again += self._sent
        self._round += 1
        self._sent = 0
        self._resume_at = 0.0
        self._first_stored = 0
        self._last_stored = 0
        self._fill()

    def _fill(self) -> None:
        # while there is trouble one message is enough to find out whether it is over
        room = 1 if self.trouble else self.in_flight
        while not self._resume_at and self._sent < min(room, len(self._queue)):
            if not self.publish(self._queue[self._sent][1], f"{self.inbox}.{self._round}.{self._sent}"):
                return
            self._sent += 1
