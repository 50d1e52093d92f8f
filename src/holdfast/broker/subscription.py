"""A subscription, the tree that finds those matching a topic, and the groups that share one."""

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from holdfast.broker.session import Session


@final
class Subscription:
    """`topic_filter` is the whole text the client sent, `$share/NAME/` included; `levels` are of the filter proper."""

    def __init__(
        self,
        session: "Session",
        topic_filter: bytes,
        levels: list[bytes],
        share_name: bytes,
        qos: int,
        no_local: bool,
        retain_as_published: bool,
        identifier: int,
    ) -> None:
        self.session: Final = session
        self.topic_filter: Final = topic_filter
        self.levels: Final = levels
        self.share_name: Final = share_name  # empty: not shared
        self.qos: Final = qos
        self.no_local: Final = no_local
        self.retain_as_published: Final = retain_as_published
        self.identifier: Final = identifier  # 0: none


@final
class SharedGroup:
    """The members of one `$share/NAME/FILTER`, in the order of their next turn."""

    def __init__(self) -> None:
        self.members: list[Subscription] = []
        self.turn = 0

    def put(self, subscription: Subscription) -> None:
        for i in range(len(self.members)):
            if self.members[i].session is subscription.session:
                self.members[i] = subscription
                return
        self.members.append(subscription)

    def remove(self, session: "Session") -> None:
        for i in range(len(self.members)):
            if self.members[i].session is session:
                del self.members[i]
                if i < self.turn:
                    self.turn -= 1
                return

    def choose(self, qos: int) -> Subscription | None:
        """Whose turn it is: the next connected member with room, else any connected, else one that can queue."""
        count = len(self.members)
        fallback: Subscription | None = None
        fallback_turn = 0
        absent: Subscription | None = None
        for step in range(count):
            place = (self.turn + step) % count
            member = self.members[place]
            session = member.session
            if session.connection is None:
                if absent is None and min(qos, member.qos) > 0:
                    absent = member
            elif session.has_room():
                self.turn = (place + 1) % count
                return member
            elif fallback is None:
                fallback = member
                fallback_turn = place
        if fallback is not None:
            self.turn = (fallback_turn + 1) % count
            return fallback
        if absent is not None:
            self.turn = (self.turn + 1) % count
        return absent


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

    def put(self, subscription: Subscription, old: Subscription | None) -> None:
        """Add a subscription, in the place of the session's older one with the same filter."""
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
            group.put(subscription)
        else:
            node.subscriptions[subscription.session] = subscription
        if old is None:
            self.count += 1
            if subscription.share_name:
                self.shared += 1
        self.generation += 1

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
