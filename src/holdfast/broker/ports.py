"""What the core needs of the world. The rooms above implement these; only the composition root names a concrete one."""

from mypy_extensions import mypyc_attr

from holdfast.broker.message import Message


@mypyc_attr(allow_interpreted_subclasses=True)
class Peer:
    """The far end of a connection, as the core sees it. None of these may call back into the core."""

    def remote_address(self) -> str:
        """Return the address of the far end for diagnostics, or nothing where it has none."""
        return ""

    def write(self, data: bytes) -> None:
        raise NotImplementedError

    def close(self, reason: str) -> None:
        """Close once everything written has left; `reason` is for diagnostics."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Authenticator:
    """Says who may connect. The answer comes later, through `Broker.on_authenticated`; a refusal goes with a name that
    may be shown to people.
    """

    def name_unasked(self, username: str | None, password: bytes | None, peer: Peer) -> str | None:
        """Return the name under which a client is let in without a login, empty for none; None if it must log in."""
        return None

    def begin(self, ticket: int, client_id: str, username: str | None, password: bytes | None, peer: Peer) -> None:
        raise NotImplementedError

    def knows(self, method: str) -> bool:
        """Return whether clients may log in by this method of MQTT 5."""
        return False

    def exchange(self, ticket: int, data: bytes, first: bool, peer: Peer) -> None:
        """Go on with such a login. The answer comes through `Broker.on_challenge` or `Broker.on_authenticated`."""
        raise NotImplementedError


class OutboundAdapter:
    """Delivers messages to a client that is not sent MQTT packets: the core's side of another protocol.

    A connection with an adapter hands it every message instead of writing PUBLISH. Everything else about the client is
    as for all others: the same sessions, subscriptions, queues and snapshots.
    """

    def publish(self, message: Message, qos: int, retain: bool, dup: bool, packet_id: int) -> bool:
        """Accept a message, to be sent now or when its turn comes; returns False when it can never fit."""
        raise NotImplementedError

    def release(self, packet_id: int) -> None:
        """Send PUBREL."""
        raise NotImplementedError

    def goodbye(self, reason: int) -> None:
        """Tell the client that the server ends the connection."""
        raise NotImplementedError

    def on_closed(self) -> None:
        """Let go of a connection that has ended, from either side."""
        raise NotImplementedError

    def on_due(self) -> None:
        """Handle a timer of kind ADAPTER that has come up."""
        raise NotImplementedError

    def on_room(self) -> None:
        """Go on sending, since the transport accepts more or a snapshot has ended."""
        raise NotImplementedError

    def on_authenticated(self, reason: int, username: str) -> None:
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class TopicCursor:
    """A position in the walk over the topics that match a filter. The set may change at any time between two steps."""

    def __init__(self) -> None:
        self.ended = False
        self.visited = 0

    def next(self, visits: int) -> Message | None:
        """Return the next match, or None at the end (`ended`) or after looking at `visits` entries. How many it has
        looked at is in `visited` then: a match may have been found behind very many that are none.
        """
        raise NotImplementedError

    def passed(self, topic_levels: list[bytes]) -> bool:
        """Return whether a stored topic that the filter matches has had its turn."""
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
        """Store a message under its topic, whose levels are given too; returns the message that it replaces, if any."""
        raise NotImplementedError

    def remove(self, topic: bytes, offset: int) -> Message | None:
        """Remove a topic as of that offset; returns its message, or None when there is none."""
        raise NotImplementedError

    def cursor(self, topic_filter: bytes, version: int) -> TopicCursor:
        """Return a walk over what is stored up to `version`; newer messages may come up too."""
        raise NotImplementedError

    def everything(self) -> TopicCursor:
        """Return a walk over all there is, topics included that begin with `$`."""
        raise NotImplementedError

    def release(self, cursor: TopicCursor) -> None:
        """Give a cursor back that is no longer needed."""
        raise NotImplementedError
