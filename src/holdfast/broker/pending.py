"""What a node that shares a log keeps in mind of it: who the other nodes are, and what waits for own entries."""

from collections.abc import Callable
from typing import Final, final

from holdfast.broker.effects import Accepted
from holdfast.broker.entries import FORMAT
from holdfast.broker.node_records import NodeRecord
from holdfast.broker.session import Connection
from holdfast.broker.subscription import PendingFilters
from holdfast.protocol.mqtt.packets import Connect
from holdfast.protocol.mqtt.reasons import SUCCESS

# What is to be done when an entry of this node comes back.
NOTHING: Final = 0
ACKNOWLEDGE: Final = 1
WELCOME: Final = 2
SUBSCRIBED: Final = 3
UNSUBSCRIBED: Final = 4
RELEASED: Final = 5
ACCEPTED: Final = 6
CALL: Final = 7

Then = Callable[[int], None]


@final
class Pending:
    """What is to be done when an entry comes back, for the connection that caused it."""

    def __init__(self, act: int, connection: Connection | None) -> None:
        self.act: Final = act
        self.connection: Final = connection
        self.qos = 0
        self.packet_id = 0
        self.reason: int = SUCCESS
        self.connect: Connect | None = None
        self.assigned = False
        self.auth_data = b""
        self.filters: PendingFilters | None = None
        self.accepted: Accepted | None = None
        self.then: Then | None = None


@final
class Member:
    """A node, as the log knows it. `counter` is that of its last frame that counted."""

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self.instance = 0
        self.counter = 0
        self.began = 0
        self.reads: int = FORMAT
        self.up = False
        self.address = ""
        self.version = ""

    def record(self) -> NodeRecord:
        return NodeRecord(self.name, self.instance, self.began, self.reads, self.up, self.address, self.version)
