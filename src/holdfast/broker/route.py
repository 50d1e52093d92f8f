"""Who receives a topic: worked out once from the subscription tree, then cached until a subscription changes."""

from typing import TYPE_CHECKING, Final, final

from holdfast.broker.policy import Policy
from holdfast.broker.subscription import Matches, SharedGroup, Subscription

if TYPE_CHECKING:
    from holdfast.broker.session import Session

DOLLAR: Final = 0x24


@final
class Receiver:
    """One session's view of a topic: overlapping subscriptions are one copy, at the highest QoS [MQTT-3.3.5-1]."""

    def __init__(self, subscription: Subscription) -> None:
        self.session: Final = subscription.session
        self.qos = subscription.qos
        self.retain_as_published = subscription.retain_as_published
        self.identifiers: list[int] | None = [subscription.identifier] if subscription.identifier else None
        self.no_local = subscription.no_local
        # What is left for this session's own messages once No Local subscriptions are taken out.
        self.own: Receiver | None = None

    def merge(self, subscription: Subscription) -> None:
        self.qos = max(self.qos, subscription.qos)
        self.retain_as_published = self.retain_as_published or subscription.retain_as_published
        if subscription.identifier:
            if self.identifiers is None:
                self.identifiers = []
            self.identifiers.append(subscription.identifier)
        self.no_local = self.no_local or subscription.no_local


@final
class Route:
    def __init__(self, topic_field: bytes, levels: list[bytes], generation: int, policies: list[Policy] | None) -> None:
        self.topic_field: Final = topic_field
        self.levels: Final = levels
        self.generation: Final = generation
        self.policies: Final = policies
        self.recorded = False  # goes to the history
        self.persistent = False  # may have to wait for someone who outlives a connection
        self.receivers: list[Receiver] = []
        self.groups: list[SharedGroup] = []
        # Topics that only the broker itself writes to.
        self.reserved: Final = topic_field[2] == DOLLAR and is_reserved(topic_field[2:])
        # Every receiver takes a QoS 0 frame as it is: no identifiers, no No Local, no shared groups.
        self.plain = not self.reserved


def build_receivers(found: Matches) -> list[Receiver]:
    subscriptions = found.subscriptions
    if len(subscriptions) == 1:
        return [Receiver(subscriptions[0])]
    by_session: dict[Session, Receiver] = {}
    own: dict[Session, Receiver] = {}
    for subscription in subscriptions:
        session = subscription.session
        receiver = by_session.get(session)
        if receiver is None:
            by_session[session] = Receiver(subscription)
        else:
            receiver.merge(subscription)
        if not subscription.no_local:
            mine = own.get(session)
            if mine is None:
                own[session] = Receiver(subscription)
            else:
                mine.merge(subscription)
    receivers = list(by_session.values())
    for receiver in receivers:
        if receiver.no_local:
            receiver.own = own.get(receiver.session)
    return receivers


def is_reserved(topic: bytes) -> bool:
    return topic.startswith((b"$SYS/", b"$holdfast/")) or topic == b"$SYS" or topic == b"$holdfast"


def policy_for(route: Route, username: str) -> Policy | None:
    """The first policy that matches topic and user."""
    if route.policies is not None:
        for policy in route.policies:
            if policy.applies_to(username):
                return policy
    return None
