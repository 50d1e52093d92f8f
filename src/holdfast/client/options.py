"""How a client introduces itself and behaves."""

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.protocol.mqtt.packets import V311, Packet, Will
from holdfast.protocol.mqtt.properties import Properties

Trace = Callable[[str, Packet], None]  # called with "sending" or "received" for each packet


@dataclass(frozen=True)
class Options:
    client_id: str = ""
    version: int = V311
    clean_start: bool = True
    keep_alive: int = 60
    username: str | None = None
    password: bytes | None = None
    will: Will | None = None
    properties: Properties | None = None
    max_inflight: int = 20  # own limit of unacknowledged QoS 1 and 2 messages; the server's Receive Maximum also counts
    connect_timeout_s: float = 10.0
    reconnect: bool = False  # after a lost connection try again until it works, and subscribe again
    reconnect_max_s: float = 30.0
    trace: Trace | None = None
