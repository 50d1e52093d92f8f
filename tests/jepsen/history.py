"""What the clients of a round write down themselves: what they asked for, what they were told, what they saw, and when.

All times are seconds on one monotonic clock. Nothing in here comes from the brokers but what they said on the wire, and
the two opaque things that are read of each node at the end: its digest, and its retained set as a subscriber sees it.

Values are unique: no two writes of a round carry the same, so that what is read says which write it came from. None
stands for absence, and a delete is the write of None.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any


class Outcome(StrEnum):
    OK = "ok"  # acknowledged
    REFUSED = "refused"  # answered with a reason why not, the only time that it was sent: it must not have happened
    UNKNOWN = "unknown"  # no answer: it may have happened, or happen at any later time, or never


class Ending(StrEnum):
    CLEAN = "clean"  # DISCONNECT, and it is certain that the node has taken it in: see WillConnection
    LEFT = "left"  # DISCONNECT was sent, and nobody knows whether it arrived
    CUT = "cut"  # without DISCONNECT: by the client, by a fault, by the death of the node


@dataclass(frozen=True)
class Write:
    """A retained publish, or with None the delete, of one topic. Sent once and never again."""

    topic: str
    value: str | None
    began: float
    ended: float | None  # when PUBACK or PUBREC came
    outcome: Outcome
    client: str = ""
    node: str = ""
    qos: int = 1


@dataclass(frozen=True)
class Read:
    """The snapshot of a SUBSCRIBE, for one topic: from SUBSCRIBE to the copy, or to the proof that there is none."""

    topic: str
    value: str | None
    began: float
    ended: float
    client: str = ""
    node: str = ""


@dataclass(frozen=True)
class Sight:
    """A message of a topic that is written to came to a subscriber: a retained copy or a live one.

    A stream is what one subscriber sees in order: one connection, or one session over all its connections. `again` says
    that this stream may repeat: it is at QoS 1, where a message that was not acknowledged comes once more.
    """

    stream: str
    topic: str
    value: str | None
    at: float
    again: bool = False
    node: str = ""


@dataclass(frozen=True)
class Sent:
    """A message to persistent sessions. It is sent again, from the publisher's session, until it is acknowledged."""

    message: str
    publisher: str
    topic: str
    number: int  # counts up for each publisher
    qos: int
    began: float
    ended: float | None
    outcome: Outcome


@dataclass(frozen=True)
class Subscription:
    """A persistent session that is subscribed from here on to every topic below the prefix."""

    session: str
    prefix: str
    qos: int
    since: float  # when SUBACK came


@dataclass(frozen=True)
class Received:
    """A message came to a persistent session. At QoS 2 a repetition before PUBREL is not a second receipt."""

    session: str
    message: str
    topic: str
    qos: int
    at: float
    node: str = ""


@dataclass(frozen=True)
class SessionSeen:
    """CONNACK for a client that expects its session: whether the broker still had it."""

    session: str
    at: float
    present: bool
    expected: bool
    node: str = ""


@dataclass(frozen=True)
class WillConnection:
    """A connection with a will, with or without a delay, under a client id that nobody uses again.

    It ended CLEAN only when the broker closed the connection after DISCONNECT, something was acknowledged by the same
    node afterwards, and nothing was done to that node from CONNECT to then.
    """

    will: str  # its payload
    topic: str
    client: str
    node: str
    began: float
    accepted: float | None  # when CONNACK came
    ended: float
    ending: Ending


@dataclass(frozen=True)
class Served:
    """A publish at QoS 1 on one of several connections that use one client id, which was acknowledged."""

    client: str
    connection: str
    began: float
    ended: float
    node: str = ""


@dataclass(frozen=True)
class Attached:
    """CONNACK on one of several connections that use one client id."""

    client: str
    connection: str
    began: float  # when CONNECT was sent
    ended: float  # when CONNACK came
    node: str = ""


@dataclass(frozen=True)
class Final:
    """What a node is at the end, when all is healed and quiet."""

    node: str
    digest: str
    retained: dict[str, str]


@dataclass(frozen=True)
class Recorded:
    """The rows of a node's history at the end, and where Spark's fold of them is not what the node sends."""

    node: str
    at: float
    rows: int
    digest: str
    differences: list[str]


@dataclass(frozen=True)
class Malformed:
    """Something came that MQTT does not allow, or at a place where MQTT does not allow it."""

    client: str
    node: str
    at: float
    what: str


@dataclass(frozen=True)
class Stuck:
    """Everything was healed, and yet this did not happen however long it was waited for."""

    who: str
    at: float
    what: str


@dataclass(frozen=True)
class Disturbance:
    """What was done to the system; for the reader, the checker does not look at it."""

    at: float
    what: str


@dataclass
class History:
    writes: list[Write] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    sights: list[Sight] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    subscriptions: list[Subscription] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)
    sessions: list[SessionSeen] = field(default_factory=list)
    wills: list[WillConnection] = field(default_factory=list)
    attached: list[Attached] = field(default_factory=list)
    served: list[Served] = field(default_factory=list)
    finals: list[Final] = field(default_factory=list)
    recorded: list[Recorded] = field(default_factory=list)
    malformed: list[Malformed] = field(default_factory=list)
    stuck: list[Stuck] = field(default_factory=list)
    disturbances: list[Disturbance] = field(default_factory=list)

    def counts(self) -> str:
        return ", ".join(f"{len(getattr(self, kind.name))} {kind.name}" for kind in fields(self))

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=0))


RECORDS: dict[str, Callable[..., Any]] = {
    "writes": Write,
    "reads": Read,
    "sights": Sight,
    "sent": Sent,
    "subscriptions": Subscription,
    "received": Received,
    "sessions": SessionSeen,
    "wills": WillConnection,
    "attached": Attached,
    "served": Served,
    "finals": Final,
    "recorded": Recorded,
    "malformed": Malformed,
    "stuck": Stuck,
    "disturbances": Disturbance,
}
ENUMS: dict[str, Callable[[str], Any]] = {"outcome": Outcome, "ending": Ending}


def load(path: Path) -> History:
    """A history that was saved, to be looked at again."""
    stored: dict[str, list[dict[str, Any]]] = json.loads(path.read_text())
    history = History()
    for name, rows in stored.items():
        for row in rows:
            plain = {key: ENUMS[key](value) if key in ENUMS else value for key, value in row.items()}
            getattr(history, name).append(RECORDS[name](**plain))
    return history


class Clock:
    """The one clock of a round, which begins at zero; and the source of its unique values."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self.lock = threading.Lock()
        self.last = 0

    def now(self) -> float:
        return time.monotonic() - self.start

    def unique(self, prefix: str) -> str:
        with self.lock:
            self.last += 1
            return f"{prefix}{self.last}"
