"""What the core needs of the world. The rooms above implement these; only the composition root names a concrete one."""

from mypy_extensions import mypyc_attr

from holdfast.broker.message import Message


@mypyc_attr(allow_interpreted_subclasses=True)
class Peer:
    """The far end of a connection, as the core sees it. None of these may call back into the core."""

    def remote_address(self) -> str:
        """Where the far end is, for people to read; empty where it is nowhere."""
        return ""

    def write(self, data: bytes) -> None:
        raise NotImplementedError

    def close(self, reason: str) -> None:
        """Close once everything written has left; `reason` is for diagnostics."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Authenticator:
    """Says who may connect. The answer comes later, through `Broker.on_authenticated`."""

    def begin(self, ticket: int, client_id: str, username: str | None, password: bytes | None, peer: Peer) -> None:
        raise NotImplementedError

    def knows(self, method: str) -> bool:
        """Whether clients may log in by this method of MQTT 5."""
        return False

    def exchange(self, ticket: int, data: bytes, first: bool, peer: Peer) -> None:
        """What a client says in such a login. The answer comes through `on_challenge` or `on_authenticated`."""
        raise NotImplementedError


class OutboundAdapter:
    """Takes messages to a client that is not sent MQTT packets: the core's side of another protocol.

    A connection with an adapter hands it every message instead of writing PUBLISH. Everything else about the client is
    as for all others: the same sessions, subscriptions, queues and snapshots.
    """

    def publish(self, message: Message, qos: int, retain: bool, dup: bool, packet_id: int) -> bool:
        """Accept a message, to be sent now or when its turn comes; False when it can never fit."""
        raise NotImplementedError

    def release(self, packet_id: int) -> None:
        """PUBREL."""
        raise NotImplementedError

    def goodbye(self, reason: int) -> None:
        """The server ends the connection."""
        raise NotImplementedError

    def on_closed(self) -> None:
        """The connection has ended, from whichever side."""
        raise NotImplementedError

    def on_due(self) -> None:
        """A timer of kind ADAPTER has come up."""
        raise NotImplementedError

    def on_room(self) -> None:
        """The transport takes more, or a snapshot is through."""
        raise NotImplementedError

    def on_authenticated(self, reason: int, username: str) -> None:
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class TopicCursor:
    """A position in the walk over the topics that match a filter. The set may change at any time between two steps."""

    def __init__(self) -> None:
        self.ended = False

    def next(self, visits: int) -> Message | None:
        """The next match, or None after looking at `visits` places or at the end (`ended`)."""
        raise NotImplementedError

    def passed(self, topic_levels: list[bytes]) -> bool:
        """Whether a stored topic that the filter matches has had its turn."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class TopicIndex:
    """Where the retained messages themselves are: in memory, or on disk.

    `compaction_cost` counts the positions that were looked at so far in order to close the holes that removals leave.
    """

    compaction_cost: int = 0

    def get(self, topic: bytes) -> Message | None:
        raise NotImplementedError

    def put(self, message: Message, levels: list[bytes]) -> Message | None:
        """Store a message under its topic, whose levels are given too; returns the one it replaces."""
        raise NotImplementedError

    def remove(self, topic: bytes, offset: int) -> Message | None:
        """Take a topic out as of that offset; returns its message."""
        raise NotImplementedError

    def cursor(self, topic_filter: bytes, version: int) -> TopicCursor:
        """A walk over what is stored up to `version`; newer messages may come up too."""
        raise NotImplementedError

    def everything(self) -> TopicCursor:
        """A walk over all there is, topics included that begin with `$`."""
        raise NotImplementedError

    def release(self, cursor: TopicCursor) -> None:
        """Give a cursor back that is no longer needed."""
        raise NotImplementedError
