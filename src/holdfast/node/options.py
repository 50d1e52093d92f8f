"""What a node is told, and what it needs of the one that drives its broker."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from holdfast.broker.core import Broker
from holdfast.broker.effects import LiveItem
from holdfast.cluster.options import StreamOptions


class BrokerDriver(Protocol):
    """What drives the broker, as far as a node needs it."""

    broker: Broker
    loop: asyncio.AbstractEventLoop
    skew_ms: int
    last_ms: int
    on_proposed: Callable[[], None] | None
    on_live: Callable[[list[LiveItem]], None] | None

    def now_ms(self) -> int: ...

    def apply(self, sequence: int, time_ms: int, frame: bytes) -> None: ...

    def receive_live(self, data: bytes) -> None: ...

    def send_all_away(self, reason: int, text: str, reference: str = "") -> None: ...

    def let_go(self) -> None: ...

    def propose(self) -> None: ...


@dataclass(frozen=True)
class NodeOptions:
    """`advertise` is where clients reach this node; `batch` bounds the bytes of one message of the log."""

    node: str
    stream: StreamOptions
    batch: int = 128 << 10
    node_timeout_s: float = 10.0
    advertise: str = ""
    log_bytes: int = 1 << 30  # of the log before it is cut below what all nodes have
