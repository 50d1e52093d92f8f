"""Requests that come twice: the network doubles datagrams and loses answers, so a client sends the same again.

What was carried out is answered again and not carried out again: a SUBSCRIBE whose SUBACK got lost must not bring every
retained message twice.
"""

from typing import Final, final

# How long an answer is kept, and how many of them.
KEPT_MS: Final = 60_000
KEPT_MOST: Final = 4

SUBSCRIBED: Final = 1
UNSUBSCRIBED: Final = 2
REGISTERED: Final = 3


@final
class Answered:
    """A request and what it was answered with."""

    def __init__(self, kind: int, request: bytes, answer: bytes, at_ms: int) -> None:
        self.kind: Final = kind
        self.request: Final = request
        self.answer: Final = answer
        self.at_ms: Final = at_ms


@final
class Repeats:
    def __init__(self) -> None:
        self.answers: list[Answered] = []

    def find(self, request: bytes, now_ms: int) -> bytes:
        """What this very request was answered with; empty when it is new."""
        for answered in self.answers:
            if answered.request == request and now_ms - answered.at_ms <= KEPT_MS:
                return answered.answer
        return b""

    def add(self, kind: int, request: bytes, answer: bytes, now_ms: int) -> None:
        """After a SUBSCRIBE an earlier UNSUBSCRIBE may be meant again, packet id and all; so may the reverse."""
        if kind != REGISTERED:
            self.answers = [a for a in self.answers if a.kind == kind or a.kind == REGISTERED]
        if len(self.answers) >= KEPT_MOST:
            self.answers.pop(0)
        self.answers.append(Answered(kind, request, answer, now_ms))

    def clear(self) -> None:
        self.answers.clear()
