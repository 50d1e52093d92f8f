"""Which nodes want which live messages.

QoS 0 messages that nobody has to remember do not go through the log. They go straight to the nodes that have a
subscriber for them, so each node tells the others what its clients have subscribed to. Sessions that outlive their
connections, and shared subscriptions, are in the log and need no telling.
"""

from typing import Final, final


@final
class InterestNode:
    def __init__(self) -> None:
        self.children: dict[bytes, InterestNode] = {}
        self.nodes: dict[str, None] = {}


@final
class Interest:
    """`own` counts the subscriptions of this node's clients by filter; `added` and `removed` are changes of it that the
    other nodes have not been told; `others` are the filters of each other node.
    """

    def __init__(self) -> None:
        self.own: dict[bytes, int] = {}
        self.changes: dict[bytes, bool] = {}
        self.others: dict[str, dict[bytes, None]] = {}
        self.root: Final = InterestNode()

    def add(self, topic_filter: bytes) -> None:
        """A client of this node has subscribed."""
        count = self.own.get(topic_filter, 0)
        self.own[topic_filter] = count + 1
        if count == 0:
            self.changes[topic_filter] = True

    def remove(self, topic_filter: bytes) -> None:
        count = self.own.get(topic_filter, 0)
        if count > 1:
            self.own[topic_filter] = count - 1
        elif count == 1:
            del self.own[topic_filter]
            self.changes[topic_filter] = False

    def take_changes(self) -> dict[bytes, bool]:
        """Return what has changed since the last time: filters that are wanted now, and that are not any more."""
        changes = self.changes
        self.changes = {}
        return changes

    # What other nodes say.

    def learn(self, node: str, changes: dict[bytes, bool]) -> None:
        known = self.others.get(node)
        if known is None:
            known = {}
            self.others[node] = known
        for topic_filter, wanted in changes.items():
            if wanted and topic_filter not in known:
                known[topic_filter] = None
                self.put(node, topic_filter)
            elif not wanted and topic_filter in known:
                del known[topic_filter]
                self.take_out(node, topic_filter)

    def replace(self, node: str, filters: list[bytes]) -> None:
        """Learn everything that a node wants, in place of what was known."""
        self.forget(node)
        self.learn(node, dict.fromkeys(filters, True))

    def forget(self, node: str) -> None:
        known = self.others.pop(node, None)
        if known is not None:
            for topic_filter in known:
                self.take_out(node, topic_filter)

    def put(self, node: str, topic_filter: bytes) -> None:
        at = self.root
        for level in topic_filter.split(b"/"):
            child = at.children.get(level)
            if child is None:
                child = InterestNode()
                at.children[level] = child
            at = child
        at.nodes[node] = None

    def take_out(self, node: str, topic_filter: bytes) -> None:
        levels = topic_filter.split(b"/")
        path = [self.root]
        for level in levels:
            child = path[-1].children.get(level)
            if child is None:
                return
            path.append(child)
        path[-1].nodes.pop(node, None)
        depth = len(path) - 1
        while depth > 0 and not path[depth].children and not path[depth].nodes:
            del path[depth - 1].children[levels[depth - 1]]
            depth -= 1

    def nodes_for(self, topic_levels: list[bytes]) -> list[str]:
        """Return the other nodes that have a subscriber for this topic."""
        if not self.root.children:
            return []
        found: dict[str, None] = {}
        at = [self.root]
        wildcards = not topic_levels[0].startswith(b"$")  # [MQTT-4.7.2-1]
        for level in topic_levels:
            below: list[InterestNode] = []
            for one in at:
                child = one.children.get(level)
                if child is not None:
                    below.append(child)
                if wildcards:
                    child = one.children.get(b"+")
                    if child is not None:
                        below.append(child)
                    child = one.children.get(b"#")
                    if child is not None:
                        found.update(child.nodes)
            wildcards = True
            at = below
            if not at:
                return list(found)
        for one in at:
            found.update(one.nodes)
            child = one.children.get(b"#")  # `a/#` matches `a` too
            if child is not None:
                found.update(child.nodes)
        return list(found)
