"""The tree that finds the subscriptions matching a topic, and what they make of it: who receives it, and how."""

from typing import Final, final

from holdfast.broker.session import Connection, Receiver, Session, SharedGroup, Snapshot, Subscription
from holdfast.protocol.mqtt.packets import SubscriptionRequest


@final
class TreeNode:
    def __init__(self) -> None:
        self.children: dict[bytes, TreeNode] = {}
        self.subscriptions: dict[Session, Subscription] = {}
        self.groups: dict[bytes, SharedGroup] = {}


@final
class Matches:
    def __init__(self) -> None:
        self.subscriptions: list[Subscription] = []
        self.groups: list[SharedGroup] = []

    def collect(self, node: TreeNode) -> None:
        if node.subscriptions:
            self.subscriptions.extend(node.subscriptions.values())
        if node.groups:
            self.groups.extend(node.groups.values())


@final
class SubscriptionTree:
    """Subscriptions by the levels of their filter. `generation` grows with every change, so caches know when to go."""

    def __init__(self) -> None:
        self.root = TreeNode()
        self.generation = 1
        self.count = 0
        self.shared = 0

    def put(self, subscription: Subscription) -> Subscription | None:
        """Add a subscription to the tree and to its session, in the place of an older one with the same filter; returns
        that one.
        """
        mine = subscription.session.subscriptions
        old = mine.get(subscription.topic_filter)
        mine[subscription.topic_filter] = subscription
        node = self.root
        for level in subscription.levels:
            child = node.children.get(level)
            if child is None:
                child = TreeNode()
                node.children[level] = child
            node = child
        if subscription.share_name:
            group = node.groups.get(subscription.share_name)
            if group is None:
                group = SharedGroup()
                node.groups[subscription.share_name] = group
                # In an order that does not depend on who came first: nodes that share a log must find the same one.
                node.groups = {name: node.groups[name] for name in sorted(node.groups)}
            group.put(subscription)
        else:
            node.subscriptions[subscription.session] = subscription
        if old is None:
            self.count += 1
            if subscription.share_name:
                self.shared += 1
        self.generation += 1
        return old

    def group_of(self, subscription: Subscription) -> SharedGroup | None:
        node: TreeNode | None = self.root
        for level in subscription.levels:
            assert node is not None
            node = node.children.get(level)
            if node is None:
                return None
        assert node is not None
        return node.groups.get(subscription.share_name)

    def remove(self, subscription: Subscription) -> None:
        """Take a subscription out of the tree and out of its session."""
        subscription.session.subscriptions.pop(subscription.topic_filter, None)
        path = [self.root]
        for level in subscription.levels:
            path.append(path[-1].children[level])
        node = path[-1]
        if subscription.share_name:
            group = node.groups[subscription.share_name]
            group.remove(subscription.session)
            if not group.members:
                del node.groups[subscription.share_name]
        else:
            del node.subscriptions[subscription.session]
        depth = len(path) - 1
        while depth > 0:
            node = path[depth]
            if node.children or node.subscriptions or node.groups:
                break
            del path[depth - 1].children[subscription.levels[depth - 1]]
            depth -= 1
        self.count -= 1
        if subscription.share_name:
            self.shared -= 1
        self.generation += 1

    def match(self, topic_levels: list[bytes]) -> Matches:
        found = Matches()
        nodes = [self.root]
        wildcards = not topic_levels[0].startswith(b"$")  # [MQTT-4.7.2-1]
        for level in topic_levels:
            below: list[TreeNode] = []
            for node in nodes:
                child = node.children.get(level)
                if child is not None:
                    below.append(child)
                if wildcards:
                    child = node.children.get(b"+")
                    if child is not None:
                        below.append(child)
                    child = node.children.get(b"#")
                    if child is not None:
                        found.collect(child)
            wildcards = True
            nodes = below
            if not nodes:
                return found
        for node in nodes:
            found.collect(node)
            child = node.children.get(b"#")  # `a/#` matches `a` too
            if child is not None:
                found.collect(child)
        return found


@final
class PendingFilters:
    """A SUBSCRIBE or an UNSUBSCRIBE, carried out in portions: `position` filters are done, with these `reasons`.

    `deleted` has, for each filter, the topics that were deleted since the offset which the client named; `collected` is
    how far they were looked for. None: that is not known any more, or was not asked for.
    """

    def __init__(self, connection: Connection, packet_id: int) -> None:
        self.connection: Final = connection
        self.packet_id: Final = packet_id
        self.requests: list[SubscriptionRequest] = []
        self.topic_filters: list[bytes] = []
        self.identifier = 0
        self.position = 0
        self.reasons: list[int] = []
        self.begun: list[Snapshot] = []
        self.since = 0
        self.collected = 0
        self.deleted: dict[bytes, dict[bytes, int]] | None = None
        self.deletions = 0  # in all of `deleted`
        self.tree: SubscriptionTree | None = None  # finds the filters that match a deleted topic
        self.known: list[int] = []  # where nodes share a log: the reasons of filters that go through it, else -1


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
