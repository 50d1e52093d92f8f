"""The log of a cluster: one JetStream stream that every node writes to and reads from the beginning to the end.

    send(counter, payload) ─▶ Sender ─▶ a quorum of servers ─▶ Reader ─▶ on_message(sequence, time_ms, payload)

`on_message` is called once for each message of the stream, in its order, with no gap, on every node alike. A message
that comes back is on disk on a quorum. The caller says so by `returned(counter)`, and by `resend()` when its own
messages have a gap. What is in them is the caller's. The time is that of the server which led when the message came:
the same for every node, but not always later than the one before.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from holdfast.cluster import topology
from holdfast.cluster.connection import Connection
from holdfast.cluster.options import StreamOptions
from holdfast.cluster.reader import Reader
from holdfast.cluster.sender import Sender
from holdfast.errors import ConfigError, ConnectionFailed, HoldfastError, NoAnswer, StoreError, TooLarge

log = logging.getLogger("holdfast.cluster")

TICK_S: Final = 0.25
ASK_S: Final = 2.0  # how often the leader is asked how long the log is
STANDSTILL_S: Final = 5.0  # when a reader is behind and has not moved for so long, its server lags: another is asked
SETTLE_S: Final = 10.0  # how long a new leader may know less than we have read
STREAM_NOT_FOUND: Final = 10059
NOT_CLUSTERED: Final = 10074


class State(Enum):
    CONNECTING = "connecting"  # no server was reached yet
    READING = "reading"  # connected, and behind
    READY = "ready"
    AWAY = "away"  # no connection, no quorum, no room: nothing that is written now becomes durable
    FAILED = "failed"  # reading on is not possible; `failure` says why


class Trimmed(StoreError):
    """The log no longer has the messages that this node would read next."""

    def __init__(self, wanted: int, first: int) -> None:
        super().__init__(
            f"this node needs the state of another node, which it takes when it is started again: expected to go on "
            f"with message {wanted} of the log, and its first one is {first}"
        )
        self.first = first


class OtherLog(StoreError):
    """The stream is not the one that this node's state was made from."""


class Stream:
    """Set up by `start`; from then on it mends itself until `stop`."""

    def __init__(
        self,
        connection: Connection,
        options: StreamOptions,
        on_message: Callable[[int, int, bytes], None],
        on_state: Callable[[State, str], None],
    ) -> None:
        if not options.name or not options.name.replace("-", "").replace("_", "").isalnum():
            raise ConfigError(f"expected letters, digits, - and _ in the name of the cluster, got {options.name!r}")
        self.connection = connection
        self.options = options
        self.loop = connection.loop
        self.on_message = on_message
        self.on_state = on_state
        self.state = State.CONNECTING
        self.why = ""
        self.since = self.loop.time()
        self.failure: HoldfastError | None = None
        self.identity = ""  # when the stream was made: another one with this name has another
        self.first_seq = 0
        self.last_seq = 0
        self.size = 0  # in bytes
        self.lag: dict[str, int] = {}  # of each replica that is behind or gone
        self.leader = ""
        self._target = 0  # how far to read before being ready
        self._asked_at = 0.0
        self._lost = ""
        self._unanswered = ""
        self._unanswered_since = 0.0
        self._moved = (0, 0.0)
        self._asking: set[asyncio.Task[None]] = set()
        self._answered_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._sender = Sender(self._publish, connection.new_inbox(), options.in_flight, self.loop.time)
        self._reader = Reader(connection, options.stream, 0, self._on_entry)
        self._answers = 0

    @property
    def position(self) -> int:
        """The sequence of the last message that was handed on."""
        return self._reader.position

    @property
    def waiting_bytes(self) -> int:
        """What was given to `send` and has not come back."""
        return self._sender.waiting_bytes

    @property
    def waiting(self) -> int:
        return self._sender.waiting

    @property
    def sent_again(self) -> int:
        return self._sender.sent_again

    @property
    def readers_made(self) -> int:
        return self._reader.created

    async def start(self, after: int, identity: str = "") -> None:
        """Connect, make the stream or verify it, and read on behind `after`, however long that takes.

        Raises what waiting does not mend: servers that refuse us, other settings, a log that has been cut behind
        `after` (Trimmed) or is another one than `identity` (OtherLog).
        """
        self.connection.on_trouble = lambda why: self._turn(State.CONNECTING, f"no log server was reached: {why}")
        self._turn(State.CONNECTING, f"looking for the log servers {self.connection.options.servers}")
        if not self.connection.is_open:
            await self.connection.open()
        self.connection.on_trouble = lambda why: None
        for warning in await topology.check_sync(self.options.monitors):
            log.warning("log", extra={"detail": warning})
        info = await self._establish(after)
        if identity and identity != self.identity:
            raise OtherLog(
                f"the stream {self.options.stream} was made {self.identity}, and the state of this node comes from one "
                f"that was made {identity}: remove the node's state to begin anew, or point it at the right log servers"
            )
        if info["first_seq"] > after + 1:
            raise Trimmed(after + 1, info["first_seq"])
        self._target = self.last_seq
        self._reader = Reader(self.connection, self.options.stream, after, self._on_entry)
        self._reader.on_cut = self._ask
        self._reader.on_alive = self._judge
        self._sender.position = after
        self._answers = self.connection.subscribe(f"{self._sender.inbox}.>", self._sender.on_answer)
        self.connection.listeners.append(self)
        if self.connection.is_connected:
            self.on_connected()
        self._tick()

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in self._asking:
            task.cancel()
        if self in self.connection.listeners:
            self.connection.listeners.remove(self)
        self._reader.end()
        self.connection.unsubscribe(self._answers)

    def send(self, counter: int, payload: bytes) -> None:
        """Written as soon as may be, in the order of the counters."""
        most = self.connection.options.max_message  # what every server was asked about
        if len(payload) > most:
            raise TooLarge(f"a message of {len(payload)} bytes for the log: expected no more than {most}")
        self._sender.send(counter, payload)

    def returned(self, counter: int) -> None:
        """All up to `counter` have come back."""
        self._unanswered = ""  # there is a quorum, whoever does not answer
        self._sender.returned(counter)

    def resend(self) -> None:
        """Of our own messages one has come back that is not the next."""
        self._sender.resend()

    def forget(self) -> None:
        """Give up what was sent and has not come back: nobody would take it any more."""
        self._sender.forget()

    async def trim(self, below: int) -> None:
        """Cut off everything before the message `below`. For what every node has in its own state."""
        body = json.dumps({"seq": below}).encode()
        answer = json.loads(await self.connection.request(f"$JS.API.STREAM.PURGE.{self.options.stream}", body))
        if "error" in answer:
            raise StoreError(f"the log could not be cut below {below}: {answer['error'].get('description')}")
        self.first_seq = max(self.first_seq, below)

    def on_connected(self) -> None:
        self._reader.begin("connected")
        self._sender.on_connected()
        self._ask()

    def on_lost(self, why: str) -> None:
        self._lost = f"no connection to a log server: {why}"
        self._sender.on_lost(self._lost)
        self._judge()

    def _publish(self, payload: bytes, reply: str) -> bool:
        return self.connection.publish(self.options.subject, payload, reply)

    def _on_entry(self, sequence: int, time_ms: int, payload: bytes) -> None:
        self._sender.position = sequence
        if sequence > self.last_seq:
            self.last_seq = sequence
        try:
            self.on_message(sequence, time_ms, payload)
        except HoldfastError as e:
            self._fail(StoreError(f"message {sequence} of the log could not be applied: {e}"))
            return
        except Exception as e:
            log.exception("log", extra={"sequence": sequence})
            self._fail(StoreError(f"message {sequence} of the log could not be applied: {e!r}"))
            return
        if self.state is State.READING and sequence >= self._target:
            self._judge()

    async def _establish(self, after: int) -> dict[str, Any]:
        """The stream, found or made. A leader that has just been elected may not know all of it yet."""
        began = self.loop.time()
        want = topology.wanted(self.options.stream, self.options.subject, self.options.replicas, self.options.max_bytes)
        while True:
            try:
                info = await self._info()
                if info is None:
                    await self._make(want)  # others may be doing the same: what is there is what counts
            except NoAnswer as e:
                self._turn(State.CONNECTING, f"the log servers have no leader yet: {e}")
                info = None
            if info is not None:
                topology.check(want, info["config"])
                state: dict[str, Any] = info["state"]
                if state["last_seq"] >= after:
                    return state
                if self.loop.time() - began > SETTLE_S:
                    raise OtherLog(
                        f"the stream {self.options.stream} ends at message {state['last_seq']}, and this node has read "
                        f"{after} already: it is another stream, or it was restored from an older copy"
                    )
            await asyncio.sleep(TICK_S)

    async def _info(self) -> dict[str, Any] | None:
        answer = await ask_leader(self.connection, self.options.stream)
        if answer is None:
            return None
        self.identity = self.identity or answer["created"]
        self.first_seq = answer["state"]["first_seq"]
        self.size = answer["state"]["bytes"]
        self.last_seq = max(answer["state"]["last_seq"], self.position)
        cluster = answer.get("cluster", {})
        self.leader = cluster.get("leader", "")
        self.lag = {
            replica["name"]: replica.get("lag", 0)
            for replica in cluster.get("replicas") or ()
            if replica.get("offline") or not replica.get("current")
        }
        return answer

    async def _make(self, want: dict[str, Any]) -> None:
        body = json.dumps(want).encode()
        answer: dict[str, Any] = json.loads(
            await self.connection.request(f"$JS.API.STREAM.CREATE.{self.options.stream}", body)
        )
        error = answer.get("error")
        if error is None:
            return
        if error.get("err_code") == NOT_CLUSTERED:
            raise ConfigError(
                f"expected log servers that form a cluster, to keep {self.options.replicas} copies, got one that "
                f"stands alone. Set cluster.replicas to 1 where one copy is enough"
            )
        raise NoAnswer(str(error.get("description")))

    def _tick(self) -> None:
        self._timer = self.loop.call_later(TICK_S, self._tick)
        if self.failure is not None:
            return
        now = self.loop.time()
        self._sender.tick()
        if self.connection.is_connected:
            self._reader.tick()
            if now - self._asked_at >= (TICK_S if self._is_troubled else ASK_S):
                self._ask()
            if self.position != self._moved[0] or self.position >= self.last_seq:
                self._moved = (self.position, now)
            elif now - self._moved[1] > STANDSTILL_S:
                self._moved = (self.position, now)
                self._reader.begin(f"message {self.position + 1} of {self.last_seq} has not come")
        self._judge()

    @property
    def _is_troubled(self) -> bool:
        return bool(self._unanswered or self._sender.trouble) or not self._reader.is_alive

    def _ask(self) -> None:
        self._asked_at = self.loop.time()
        task = self.loop.create_task(self._look(), name="log-info")
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _look(self) -> None:
        """How long the log is, and whether it is still the one that we read.

        While there is trouble this is asked often, and each question waits for its answer: a leader that has just been
        elected answers the next one at once, and one that is slow answers all of them in the end.
        """
        began = self.loop.time()
        identity = self.identity
        try:
            info = await self._info()
        except ConnectionFailed as e:
            if self._answered_at < began:
                self.leader = ""
                if not self._unanswered:
                    self._unanswered_since = self.loop.time()
                self._unanswered = f"the log has no leader: {e}"
            return
        self._answered_at = self.loop.time()
        if self._unanswered:  # there is one now, and what was asked before got lost
            self._reader.hurry()
            self._sender.on_connected()
        self._unanswered = ""
        if info is not None and self.position == 0:
            self.identity = info["created"]  # nothing was read yet
        elif info is None or info["created"] != identity:
            self._fail(OtherLog(f"the stream {self.options.stream} is gone: it was deleted on the log servers"))
        elif self.first_seq > self.position + 1:
            self._fail(Trimmed(self.position + 1, self.first_seq))

    def _fail(self, failure: HoldfastError) -> None:
        self.failure = failure
        self._reader.end()
        self._turn(State.FAILED, str(failure))

    def _judge(self) -> None:
        if self.failure is not None:
            return
        now = self.loop.time()
        patience = self.options.away_after_s
        sender = self._sender
        if not self.connection.is_connected:
            self._turn(State.AWAY, self._lost)
        elif sender.trouble and now - sender.trouble_since >= patience:
            self._turn(State.AWAY, sender.trouble)
        elif self._unanswered and now - self._unanswered_since >= patience:
            self._turn(State.AWAY, self._unanswered)
        elif not self._reader.is_alive and now - self._reader.heard_at >= patience:
            self._turn(State.AWAY, self._reader.why)
        elif self._reader.is_alive and not sender.trouble and not self._unanswered:
            if self.state is State.AWAY:
                self._target = self.last_seq
            if self.position < self._target:
                self._turn(State.READING, f"reading the log up to message {self._target}")
            else:
                self._turn(State.READY, "the log is read up to its end")

    def _turn(self, state: State, why: str) -> None:
        if state is not self.state:
            self.since = self.loop.time()
        if (state, why) != (self.state, self.why):
            self.state, self.why = state, why
            self.on_state(state, why)


async def is_cut(connection: Connection, options: StreamOptions, next_one: int) -> bool:
    """Whether the log no longer has the message that would be read next. Who asks while nobody leads the log is told
    no, so as not to wait: `start` finds out before anything is read.
    """
    try:
        answer = await ask_leader(connection, options.stream)
    except NoAnswer:
        return False
    return answer is not None and int(answer["state"]["first_seq"]) > next_one


async def message_count(connection: Connection, options: StreamOptions) -> int:
    """How many messages the log has ever had; 0 where there is no log yet."""
    while True:
        try:
            answer = await ask_leader(connection, options.stream)
        except NoAnswer:
            await asyncio.sleep(TICK_S)
            continue
        return 0 if answer is None else int(answer["state"]["last_seq"])


async def ask_leader(connection: Connection, stream: str) -> dict[str, Any] | None:
    """What the leader of a stream says of it; None where there is no such stream.

    A server without a quorum answers too, for a stream that nobody leads, with what it remembers: that is no answer.
    """
    answer: dict[str, Any] = json.loads(await connection.request(f"$JS.API.STREAM.INFO.{stream}", timeout_s=ASK_S))
    error = answer.get("error")
    if error is not None:
        if error.get("err_code") == STREAM_NOT_FOUND:
            return None
        raise NoAnswer(str(error.get("description")))
    cluster = answer.get("cluster")
    if cluster is not None and not cluster.get("leader"):
        raise NoAnswer(f"no server leads the stream {stream}")
    return answer
