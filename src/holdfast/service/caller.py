"""Who asks, and what they may see and change."""

from dataclasses import dataclass

from holdfast.broker.access import PUBLISH, RETAIN, Access
from holdfast.broker.core import Broker
from holdfast.broker.message import Message, Publisher
from holdfast.errors import NotAllowed


@dataclass(frozen=True)
class Caller:
    """`admin`: may do everything. Others see and change the topics that the broker's access rules give them, and are
    not told who else publishes there: who wants to take a session needs its client id, who guesses passwords a name.
    `is_user`: the name is that of a user of the broker, and not of an API key.
    """

    name: str
    admin: bool
    broker: Broker | None = None
    is_user: bool = False

    @property
    def is_banned(self) -> bool:
        return self.is_user and self.broker is not None and self.name in self.broker.settings.banned_users

    @property
    def access(self) -> Access | None:
        return None if self.admin or self.broker is None else self.broker.access

    @property
    def sees_all(self) -> bool:
        return self.access is None

    def may_read(self, topic: bytes) -> bool:
        access = self.access
        # As on MQTT: what a subscription would not bring is not shown here either.
        return access is None or access.may_receive(self.name, "", topic.split(b"/"), False)

    def may_see(self, message: Message) -> bool:
        """Whether a subscription would bring this retained message."""
        if self.access is None or self.broker is None:
            return True
        return self.may_read(message.topic) and self.broker.may_stay(message)

    def may_write(self, topic: bytes, retain: bool, qos: int) -> bool:
        access = self.access
        if access is None:
            return True
        levels = topic.split(b"/")
        return access.may(PUBLISH, self.name, "", levels, qos) and (
            not retain or access.may(RETAIN, self.name, "", levels, qos)
        )

    def publisher_of(self, message: Message) -> Publisher:
        """Who published a message, without names where they are none of the caller's business."""
        publisher = message.publisher
        if self.admin or publisher.username == self.name:
            return publisher
        return Publisher("", "", publisher.protocol)

    def need_publisher(self, client_id: str, username: str) -> None:
        """For a search by publisher, which would tell who it is."""
        if (client_id or username) and not self.admin and username != self.name:
            raise NotAllowed(f"user {self.name!r} may search by publisher for username={self.name!r} only")

    def need_admin(self) -> None:
        if not self.admin:
            raise NotAllowed(f"user {self.name!r} may not do this, expected an API key or one of api.admins")

    def need_whole_view(self) -> None:
        """For answers about all topics together, which cannot be cut down to what one may read."""
        if not self.sees_all:
            self.need_admin()

    def need_read(self, topic: bytes) -> None:
        if not self.may_read(topic):
            raise NotAllowed(f"user {self.name!r} may not read topic {topic.decode()!r}")

    def need_write(self, topic: bytes, retain: bool, qos: int) -> None:
        if not self.may_write(topic, retain, qos):
            raise NotAllowed(f"user {self.name!r} may not write to topic {topic.decode()!r} with QoS {qos}")


OPERATOR = Caller("", True)  # whoever can read a data folder may do everything with it
