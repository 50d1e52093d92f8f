"""What a client of MQTT-SN keeps on the server beside its session: its topic ids, and in 1.2 its will.

Ids are assigned in order, starting at 1. A session that was read back from disk has lost its table, so it starts
elsewhere: an id that the client remembers from before must be unknown rather than mean something else.
"""

from typing import Final, final

from holdfast.broker.message import topic_field
from holdfast.protocol.mqtt.packets import Will

NO_ID: Final = 0
FIRST_ID: Final = 1
LAST_ID: Final = 0xFFFE  # 0x0000 and 0xFFFF are reserved


@final
class SensorState:
    """Invariants: `by_id` and `by_field` are inverse to each other; `delivery_ids` are the ids among them that the
    server assigned in order to deliver a message, oldest first; `size` is the bytes of all topics.
    """

    def __init__(self, first_id: int = FIRST_ID) -> None:
        self.by_id: dict[int, bytes] = {}  # to the topic field
        self.by_field: dict[bytes, int] = {}
        self.delivery_ids: list[int] = []
        self.next_id = first_id
        self.size = 0
        self.will: Will | None = None

    def assign(self, field: bytes, max_topics: int, max_bytes: int) -> int:
        """Assign an id to a topic that has none; returns it, or NO_ID when the table is full."""
        if len(self.by_id) >= max_topics or self.size + len(field) > max_bytes:
            return NO_ID
        topic_id = self.next_id
        while topic_id in self.by_id:
            topic_id = topic_id + 1 if topic_id < LAST_ID else FIRST_ID
        self.next_id = topic_id + 1 if topic_id < LAST_ID else FIRST_ID
        self.by_id[topic_id] = field
        self.by_field[field] = topic_id
        self.size += len(field)
        return topic_id

    def assign_for_delivery(self, field: bytes, max_topics: int, max_bytes: int) -> int:
        """Assign an id as `assign` does, but in a full table give up the oldest ids of earlier deliveries for it."""
        topic_id = self.assign(field, max_topics, max_bytes)
        while topic_id == NO_ID and self.delivery_ids:
            self.forget(self.delivery_ids.pop(0))
            topic_id = self.assign(field, max_topics, max_bytes)
        if topic_id != NO_ID:
            self.delivery_ids.append(topic_id)
        return topic_id

    def unused_id(self) -> int:
        """Return an id that is not assigned, and will not be soon."""
        topic_id = LAST_ID
        while topic_id in self.by_id:
            topic_id -= 1
        return topic_id

    def forget(self, topic_id: int) -> None:
        field = self.by_id.pop(topic_id, None)
        if field is not None:
            del self.by_field[field]
            self.size -= len(field)

    def forget_all(self) -> None:
        self.by_id.clear()
        self.by_field.clear()
        self.delivery_ids.clear()
        self.size = 0


@final
class Predefined:
    """The topics that both sides know by number from their configuration, without REGISTER."""

    def __init__(self, topics: dict[int, bytes]) -> None:
        self.by_id: Final = {topic_id: topic_field(topic) for topic_id, topic in topics.items()}
        self.by_field: Final = {field: topic_id for topic_id, field in self.by_id.items()}
