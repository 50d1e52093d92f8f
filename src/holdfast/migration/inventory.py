"""What was found at another broker, and what of it has to stay behind, and why."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from holdfast.broker.message import NEVER
from holdfast.broker.session import is_reserved
from holdfast.broker.topics import ANY_LEVELS, check_topic, is_well_formed
from holdfast.errors import ProtocolError
from holdfast.protocol.wire import decode_text

RETAINED: Final = "retained messages"
SESSIONS: Final = "sessions"
SUBSCRIPTIONS: Final = "subscriptions"
QUEUED: Final = "queued messages"
WILLS: Final = "wills"
SETTINGS: Final = "settings"

# Reasons for staying behind that several readers give.
DAMAGED: Final = "damaged"
EXPIRED: Final = "expired"
OWN_TOPIC: Final = "the broker's own topic ($SYS)"
NOT_A_TOPIC: Final = "no topic by the standard"
NO_MESSAGE: Final = "its message is not in the file, mostly because it has expired"


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """`properties` are those that are passed on, as a message carries them. `expires_at_ms` is 0 for never. `retain` is
    how it was published.
    """

    topic: bytes
    payload: bytes
    qos: int
    properties: bytes = b""
    expires_at_ms: int = NEVER
    client_id: str = ""
    username: str = ""
    retain: bool = False

    def expired(self, now_ms: int) -> bool:
        return self.expires_at_ms != NEVER and self.expires_at_ms <= now_ms


@dataclass(frozen=True, slots=True)
class FoundSubscription:
    """`options` as in SUBSCRIBE: QoS, No Local, Retain As Published. `identifier` is 0 for none."""

    topic_filter: bytes
    options: int
    identifier: int = 0


@dataclass(frozen=True, slots=True)
class FoundDelivery:
    """A message on its way to a client. `packet_id` is 0 while it has not been sent; `released`: its PUBREC came."""

    message: FoundMessage
    qos: int
    retain: bool
    identifiers: tuple[int, ...] = ()
    packet_id: int = 0
    released: bool = False


@dataclass
class FoundSession:
    """`owner` is the user whose session it is, empty for a client without a name. `disconnected_at_ms` is 0 where that
    is not known: then its time counts from the import on. `received` are the messages of QoS 2 that the client has
    handed over and not released, by packet id.
    """

    client_id: str
    owner: str
    version: int
    expiry_interval_s: int
    disconnected_at_ms: int = 0
    subscriptions: dict[bytes, FoundSubscription] = field(default_factory=dict)
    queue: list[FoundDelivery] = field(default_factory=list)
    received: dict[int, FoundMessage] = field(default_factory=dict)


@dataclass
class Inventory:
    """`left` says for each kind of thing why how many stay behind. `damage` are lines about what could not be read,
    `notes` lines about what comes otherwise than it was.
    """

    source: str
    retained: dict[bytes, FoundMessage] = field(default_factory=dict)
    sessions: dict[str, FoundSession] = field(default_factory=dict)
    left: dict[str, Counter[str]] = field(default_factory=dict)
    damage: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def leave(self, kind: str, reason: str, count: int = 1) -> None:
        self.left.setdefault(kind, Counter())[reason] += count

    def add_retained(self, message: FoundMessage, now_ms: int) -> None:
        """Take a retained message, unless it cannot be one here."""
        if is_reserved(message.topic):
            self.leave(RETAINED, OWN_TOPIC)
        elif not is_topic(message.topic):
            self.leave(RETAINED, NOT_A_TOPIC)
        elif message.expired(now_ms):
            self.leave(RETAINED, EXPIRED)
        elif not message.payload:
            self.leave(RETAINED, "empty, which retains nothing")
        else:
            self.retained[message.topic] = message


def is_topic(topic: bytes) -> bool:
    if len(topic) > 65535:
        return False
    try:
        check_topic(topic, ANY_LEVELS)
        decode_text(topic)
    except ProtocolError:
        return False
    return True


def is_topic_filter(topic_filter: bytes) -> bool:
    """Whether a client may subscribe to it, a share included."""
    try:
        decode_text(topic_filter)
    except ProtocolError:
        return False
    return is_well_formed(topic_filter)
