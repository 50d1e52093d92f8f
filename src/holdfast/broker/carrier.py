"""What takes messages to a client that is not sent MQTT packets: the core's side of another protocol.

A connection with a carrier hands it every message instead of writing PUBLISH. Everything else about the client is as
for all others: the same sessions, subscriptions, queues and snapshots.
"""

from holdfast.broker.message import Message


class Carrier:
    def publish(self, message: Message, qos: int, retain: bool, dup: bool, packet_id: int) -> bool:
        """Take a message over, to be sent now or when its turn comes; False when it can never fit."""
        raise NotImplementedError

    def release(self, packet_id: int) -> None:
        """PUBREL."""
        raise NotImplementedError

    def goodbye(self, reason: int) -> None:
        """The server ends the connection."""
        raise NotImplementedError

    def on_closed(self) -> None:
        """The connection has ended, by whoever's wish."""
        raise NotImplementedError

    def on_due(self) -> None:
        """A timer of kind CARRIER has come up."""
        raise NotImplementedError

    def on_room(self) -> None:
        """The transport takes more, or a snapshot is through."""
        raise NotImplementedError

    def on_authenticated(self, reason: int, username: str) -> None:
        raise NotImplementedError
