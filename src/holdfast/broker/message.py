"""What is routed: a message without its wire details, and who published it.

`topic_field` is the topic as it stands in a packet: two bytes of length, then UTF-8. Keeping that one form means that a
topic is cut out of a received packet once and written into every outgoing one without being touched again.
"""

from typing import Final, final

from mypy_extensions import mypyc_attr

# What a publish did to the retained set: the verdict that the log carries and every fold follows.
LIVE: Final = 0
SET: Final = 1
CLEARED: Final = 2
REFUSED_SIZE: Final = 3
REFUSED_COUNT: Final = 4
REFUSED_BUDGET: Final = 5
REFUSED_POLICY: Final = 6

OUTCOMES: Final = ["live", "set", "cleared", "refused_size", "refused_count", "refused_budget", "refused_policy"]

NEVER: Final = 0


# How the client id of a publish through the API begins when the rules were asked for it, as they are for users.
BY_USER: Final = "user-"


@final
@mypyc_attr(acyclic=True)
class Publisher:
    """Where a message came from; shared by all messages of a connection. `origin` is the same as records have it: MQTT
    texts never contain U+0000, so it can stand between them.
    """

    def __init__(self, client_id: str, username: str, protocol: str) -> None:
        self.client_id: Final = client_id
        self.username: Final = username
        self.protocol: Final = protocol
        self.origin: Final = f"{protocol}\0{client_id}\0{username}".encode()


@mypyc_attr(acyclic=True)
class IndexEntry:
    """An entry of the retained index: a message, or a node with more below it. `slot` is its position in the parent."""

    def __init__(self) -> None:
        self.slot = 0


@final
@mypyc_attr(acyclic=True)
class Message(IndexEntry):
    """`properties` are the MQTT 5 properties that are passed on unaltered, encoded, without their length. `offset` is 0
    until the log has ordered the message; after that it never changes.
    """

    def __init__(
        self,
        topic_field: bytes,
        payload: bytes,
        qos: int,
        retain: bool,
        properties: bytes,
        publisher: Publisher,
        offset: int,
        stored_at_ms: int,
        expires_at_ms: int,
        interval_given: bool,
    ) -> None:
        self.slot = 0
        self.list_position = 0  # in the index's list of all messages
        self.topic_field: Final = topic_field
        self.payload: Final = payload
        self.properties: Final = properties
        self.publisher: Final = publisher
        self.offset = offset
        self.stored_at_ms: Final = stored_at_ms
        self.expires_at_ms: Final = expires_at_ms  # NEVER = 0
        self.qos: Final = qos
        self.retain: Final = retain
        # Whether the publisher named the expiry: only then does a copy carry the interval [5: MQTT-3.3.2-6].
        self.interval_given: Final = interval_given

    @property
    def topic(self) -> bytes:
        return self.topic_field[2:]

    def size(self) -> int:
        return len(self.topic_field) - 2 + len(self.payload) + len(self.properties)

    def expired(self, now_ms: int) -> bool:
        return self.expires_at_ms != NEVER and self.expires_at_ms <= now_ms

    def without_retain(self) -> "Message":
        """Return the message as one that is not retained."""
        return self.copy(self.payload, False, self.properties, self.expires_at_ms, self.interval_given)

    def without_payload(self) -> "Message":
        """Return what is left to remember of the message when it is kept elsewhere."""
        return self.copy(b"", self.retain, b"", self.expires_at_ms, self.interval_given)

    def expiring(self, expires_at_ms: int) -> "Message":
        """Return the message with a lifetime that the broker chose."""
        return self.copy(self.payload, self.retain, self.properties, expires_at_ms, False)

    def copy(
        self, payload: bytes, retain: bool, properties: bytes, expires_at_ms: int, interval_given: bool
    ) -> "Message":
        return Message(
            self.topic_field,
            payload,
            self.qos,
            retain,
            properties,
            self.publisher,
            self.offset,
            self.stored_at_ms,
            expires_at_ms,
            interval_given,
        )


def topic_field(topic: bytes) -> bytes:
    return len(topic).to_bytes(2, "big") + topic
