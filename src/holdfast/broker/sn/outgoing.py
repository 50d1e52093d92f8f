"""A message on its way to a sensor, and whether it can be sent as it is."""

from typing import Final, final

from holdfast.broker.message import Message

READY: Final = 0
NEEDS_ID: Final = 1  # the client has to be told a number for the topic first
TOO_LARGE: Final = 2


@final
class Outgoing:
    """A message that a link has taken over; `topic_type` and `topic_id` are settled when it leaves."""

    def __init__(self, message: Message, qos: int, retain: bool, dup: bool, packet_id: int) -> None:
        self.message: Final = message
        self.qos: Final = qos
        self.retain: Final = retain
        self.dup = dup
        self.packet_id: Final = packet_id
        self.topic_type = 0
        self.topic_id = 0
        self.registered_again = False
