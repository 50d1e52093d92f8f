"""What a client of MQTT-SN keeps on the server beside its session: its topic ids, and in 1.2 its will.

Ids are given in order, starting at 1. A session that was read back from disk has lost its table, so it starts
elsewhere: an id that the client remembers from before must be unknown rather than mean something else.
"""

from typing import Final, final

from holdfast.broker.message import topic_field
from holdfast.protocol.mqtt.packets import Will

FIRST_ID: Final = 1
LAST_ID: Final = 0xFFFE  # 0x0000 and 0xFFFF are reserved


@final
class SensorState:
    """Invariants: `by_id` and `by_field` are inverse to each other; `lent` are the ids among them that the server gave
    for a delivery, oldest first; `size` is the bytes of all topics.
    """

    def __init__(self, first_id: int = FIRST_ID) -> None:
        self.by_id: dict[int, bytes] = {}  # to the topic field
        self.by_field: dict[bytes, int] = {}
        self.lent: list[int] = []
        self.next_id = first_id
        self.size = 0
        self.will: Will | None = None

    def add(self, field: bytes, most: int, most_bytes: int) -> int:
        """A new id for a topic that has none; 0 when there is no room for another."""
        if len(self.by_id) >= most or self.size + len(field) > most_bytes:
            return 0
        topic_id = self.next_id
        while topic_id in self.by_id:
            topic_id = topic_id + 1 if topic_id < LAST_ID else FIRST_ID
        self.next_id = topic_id + 1 if topic_id < LAST_ID else FIRST_ID
        self.by_id[topic_id] = field
        self.by_field[field] = topic_id
        self.size += len(field)
        return topic_id

    def lend(self, field: bytes, most: int, most_bytes: int) -> int:
        """An id for a delivery. When the table is full, the oldest of these is given up for it."""
        topic_id = self.add(field, most, most_bytes)
        while topic_id == 0 and self.lent:
            self.forget(self.lent.pop(0))
            topic_id = self.add(field, most, most_bytes)
        if topic_id:
            self.lent.append(topic_id)
        return topic_id

    def forget(self, topic_id: int) -> None:
        field = self.by_id.pop(topic_id, None)
        if field is not None:
            del self.by_field[field]
            self.size -= len(field)

    def forget_all(self) -> None:
        self.by_id.clear()
        self.by_field.clear()
        self.lent.clear()
        self.size = 0


@final
class Predefined:
    """The topics that both sides know by number without having to say so."""

    def __init__(self, topics: dict[int, bytes]) -> None:
        self.by_id: Final = {topic_id: topic_field(topic) for topic_id, topic in topics.items()}
        self.by_field: Final = {field: topic_id for topic_id, field in self.by_id.items()}
