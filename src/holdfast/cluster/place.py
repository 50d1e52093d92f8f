"""Where in a stream a message stands: JetStream says so in its reply subject."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.cluster.connection import Message


class Place(NamedTuple):
    sequence: int  # in the stream
    delivered: int  # how many the consumer has sent, this one included
    time_ms: int


def place_of(message: Message) -> Place:
    # $JS.ACK.<stream>.<consumer>.<deliveries>.<stream sequence>.<consumer sequence>.<time in ns>.<pending>,
    # or the same with domain and account behind ACK
    tokens = message.reply.split(".")
    at = 5 if len(tokens) == 9 else 7
    return Place(int(tokens[at]), int(tokens[at + 1]), int(tokens[at + 2]) // 1_000_000)
