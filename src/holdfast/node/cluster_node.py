"""One node of a cluster: a broker whose log is shared, the log servers, and the other nodes.

The broker proposes entries and applies what comes back; `cluster` carries both. This is where the two meet, and where a
node decides about itself: when it has caught up and may serve, when it has been cut off and must not, and when another
one is gone. No node decides for the others: what counts is what the log says.
"""

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast import __version__
from holdfast.broker.entries import FORMAT, encode_node_down
from holdfast.broker.pending import NOTHING, Pending
from holdfast.broker.settings import shared_settings
from holdfast.broker.shared import Shared
from holdfast.cluster.channel import Channel
from holdfast.cluster.connection import Connection
from holdfast.cluster.presence import NameTaken, Peer, Presence
from holdfast.cluster.stream import State, Stream
from holdfast.cluster.transfer import Transfer
from holdfast.errors import HoldfastError, StoreError
from holdfast.node.agreement import HASH, Agreement
from holdfast.node.interest import CHANGED, LIVE, WHOLE, InterestExchange
from holdfast.node.options import BrokerDriver, NodeOptions
from holdfast.node.state_copy import store_state
from holdfast.protocol.mqtt.reasons import SERVER_SHUTTING_DOWN, USE_ANOTHER_SERVER

log = logging.getLogger("holdfast.cluster")

# Frames on their way to the log. With more under way, what is proposed meanwhile makes larger ones.
FRAMES_UNDER_WAY = 8
HIGH_WATER_BYTES = 32 << 20
WATCH_S = 1.0
TRIM_S = 30.0
WORTH_TRIMMING = 2  # at least one part of so many of the log
CLOCK_TOLERANCE_MS = 100
CLOCK_WARNING_MS = 5000
LEAVE_S = 2.0

# What one node asks of another.
DRAIN = b"D"


class ClusterNode:
    """Invariants: `ready` exactly while this node has caught up, is a member for all, and the log has a quorum."""

    def __init__(self, driver: BrokerDriver, shared: Shared, connection: Connection, options: NodeOptions) -> None:
        self.driver = driver
        self.loop = driver.loop
        self.shared = shared
        self.connection = connection
        self.options = options
        name = options.stream.name
        self.stream = Stream(connection, options.stream, self.on_message, self.on_state)
        self.presence = Presence(
            connection, name, options.node, self.say, self.on_presence, options.node_timeout_s, driver.now_ms()
        )
        self.channel = Channel(connection, name, options.node, self.on_channel, self.on_request)
        self.interest = InterestExchange(driver, shared, self.channel)
        self.agreement = Agreement(options.node, driver, shared, self.channel)
        self.transfer = Transfer(connection, name, options.stream.replicas)
        self.caught_up = asyncio.Event()
        self.joined = asyncio.Event()
        self.failed: asyncio.Future[HoldfastError] = self.loop.create_future()
        self.problem = ""  # why this node does not serve, for people
        self.away_since = 0.0
        self.drained = False
        self.stopping = False
        self.spoken = False  # the others have heard of this node
        self.started_at = 0.0
        self.sent: deque[tuple[int, int]] = deque()  # own frames under way, with the local time they left
        self.claims: dict[str, dict[str, Any]] = {}  # what the others last said of themselves
        self.local_positions: deque[tuple[int, int]] = deque()  # offsets and sequences that are not durable here yet
        self.local_sequence = shared.sequence  # up to which this node's own disk has it
        self.save_state: Callable[[], Path] | None = None
        self.tasks: list[asyncio.Task[None]] = []
        self.warned_of_clock = False
        self.applied = 0
        driver.on_proposed = self.propose
        driver.on_live = self.interest.send_live
        shared.log.has_much = self.has_much
        shared.log.local.on_durable = self.on_local_durable
        self.presence.on_beat = self.on_beat
        self.presence.on_conflict = self.fail

    # Beginning and ending.

    async def start(self, identity: str) -> None:
        """Read the log to its end, and become a member. Raises what waiting does not mend."""
        await self.presence.claim()
        await self.stream.start(self.shared.sequence, identity)
        self.started_at = self.loop.time()
        await self.unless_failed(self.caught_up.wait())
        self.presence.start()
        self.channel.start()
        self.spoken = True
        self.begin()
        await self.unless_failed(self.joined.wait())
        if not self.shared.settings:
            self.shared.change_settings(shared_settings(self.driver.broker.settings))
            self.propose()
        self.tasks = [
            self.loop.create_task(self.watch(), name="cluster-watch"),
            self.loop.create_task(self.trim(), name="cluster-trim"),
        ]
        self.interest.tell_all()
        log.info("joined", extra={"node": self.options.node, "sequence": self.shared.sequence})

    async def unless_failed(self, what: Any) -> None:
        waiting = asyncio.ensure_future(what)
        done, _ = await asyncio.wait({waiting, self.failed}, return_when=asyncio.FIRST_COMPLETED)
        if waiting not in done:
            waiting.cancel()
            raise self.failed.result()

    async def stop(self) -> None:
        """Say goodbye in the log, so that nobody has to wait to find out."""
        self.stopping = True
        for task in self.tasks:
            task.cancel()
        shared = self.shared
        if shared.is_member and self.stream.state is State.READY:
            shared.propose(encode_node_down(self.options.node, shared.instance), Pending(NOTHING, None))
            self.propose()
            deadline = self.loop.time() + LEAVE_S
            while shared.is_member and self.loop.time() < deadline:
                await asyncio.sleep(0.01)
        if self.spoken:
            self.presence.stop()
            self.channel.stop()
        await self.stream.stop()
        await self.connection.close()

    def begin(self) -> None:
        """Be a new instance of this node: what an earlier one had is over for all."""
        shared = self.shared
        known = shared.members.get(self.options.node)
        instance = max(known.instance + 1 if known is not None else 1, int(time.time() * 1000))
        self.sent.clear()
        self.interest.version = instance  # higher than any that an earlier instance has told
        shared.begin(instance, self.options.advertise, __version__)
        self.propose()

    def begin_again(self, why: str) -> None:
        """Drop everything that was proposed, and start as another instance; the state is what the log says."""
        log.warning("starting again as another instance", extra={"node": self.options.node, "reason": why})
        self.joined.clear()
        self.shared.leave()
        self.stream.forget()
        self.driver.let_go()
        self.send_all_away("this node was cut off from the cluster")
        self.begin()

    def fail(self, failure: HoldfastError) -> None:
        """Stop for good: going on would do harm."""
        self.problem = str(failure)
        log.error("this node cannot go on", extra={"reason": self.problem})
        if not self.failed.done():
            self.failed.set_result(failure)

    # The log.

    def propose(self) -> None:
        shared = self.shared
        while shared.unreturned() < FRAMES_UNDER_WAY:
            frame = shared.take_frame(self.options.batch, int(time.time() * 1000))
            if frame is None:
                break
            self.sent.append((shared.counter, int(time.time() * 1000)))
            self.stream.send(shared.counter, frame)
        if shared.interest.changes and self.joined.is_set():
            self.interest.tell_changes()

    def has_much(self) -> bool:
        return self.shared.size + self.stream.waiting_bytes > HIGH_WATER_BYTES

    def on_message(self, sequence: int, time_ms: int, payload: bytes) -> None:
        shared = self.shared
        before = shared.returned
        self.driver.apply(sequence, time_ms, payload)
        self.applied += 1
        self.local_positions.append((shared.log.position, sequence))
        if shared.returned != before:
            self.learn_time(shared.returned, time_ms)
            self.stream.returned(shared.returned)
            if shared.entries:
                self.driver.propose()
        if shared.saw_gap:
            shared.saw_gap = False
            self.stream.resend()
        if shared.is_member and not self.joined.is_set():
            self.joined.set()
        elif shared.was_ended() and not self.stopping:
            member = shared.members[self.options.node]
            if member.instance > shared.instance:
                self.fail(NameTaken(self.options.node))
            else:
                self.begin_again("the others did not hear from it")
        if shared.contradictions:
            self.on_contradiction()

    def learn_time(self, counter: int, log_time_ms: int) -> None:
        """Keep the broker's clock with the log's: an entry left before the log gave it a time, and came back after."""
        left_at = 0
        while self.sent and self.sent[0][0] <= counter:
            left_at = self.sent.popleft()[1]
        now = int(time.time() * 1000)
        if not left_at:
            return
        least, most = log_time_ms - now, log_time_ms - left_at
        skew = self.driver.skew_ms
        if not least - CLOCK_TOLERANCE_MS <= skew <= most + CLOCK_TOLERANCE_MS:
            self.driver.skew_ms = (least + most) // 2
            self.driver.last_ms = 0  # or a clock that was ahead would stand still until the log's has come as far
            if abs(self.driver.skew_ms) > CLOCK_WARNING_MS and not self.warned_of_clock:
                self.warned_of_clock = True
                log.warning(
                    "the clock of this machine differs from that of the log servers, whose time is used: check NTP",
                    extra={"seconds": self.driver.skew_ms / 1000},
                )

    def on_state(self, state: State, why: str) -> None:
        level = logging.INFO if state in (State.READY, State.READING, State.CONNECTING) else logging.WARNING
        log.log(level, f"log {state.value}", extra={"detail": why})
        self.problem = "" if state is State.READY else why
        if state is State.FAILED:
            self.fail(self.stream.failure or StoreError(why))
        if state is State.READY:
            self.away_since = 0.0
            self.caught_up.set()
            if not self.drained:
                self.shared.accepts = True
        elif not self.away_since and state is State.AWAY:
            self.away_since = self.loop.time()

    @property
    def ready(self) -> bool:
        return not self.not_ready

    @property
    def not_ready(self) -> str:
        """Why this node had better get no clients, for people; empty while it serves."""
        if not self.cannot_write and self.drained:
            return "drained: clients were sent to the other nodes; a restart brings it back"
        return self.cannot_write

    @property
    def cannot_write(self) -> str:
        """Why nothing can be written to the log through this node now; empty while it can."""
        if self.failed.done():
            return f"failed: {self.problem}"
        state = self.stream.state
        if state is State.AWAY:
            return f"no quorum of log servers: {self.problem or 'they do not answer'}"
        if state is State.CONNECTING:
            return "no log server was reached yet"
        if state is State.READING:
            return f"catching up: it has read {self.shared.sequence} of {self.stream.last_seq} messages of the log"
        return "" if self.joined.is_set() else "catching up: it is not a member of the cluster yet"

    def on_local_durable(self, offset: int, error: StoreError | None) -> None:
        """This node's own disk has come so far."""
        positions = self.local_positions
        while positions and positions[0][0] <= offset:
            self.local_sequence = positions.popleft()[1]

    # The others.

    def say(self) -> bytes:
        """What this node tells the others once a second."""
        shared = self.shared
        return json.dumps(
            {
                "sequence": shared.sequence,
                "chain": shared.chain.hex(),
                "offset": shared.log.position,
                "instance": shared.instance,
                "stored": self.local_sequence,
                "interest": self.interest.version,
                "clients": self.driver.broker.counters.connected_now,
                "unreturned": shared.unreturned(),
                "address": self.options.advertise,
                "ready": self.ready,
                "detail": self.not_ready,
                "version": __version__,
                "format": FORMAT,
                "skew_ms": self.driver.skew_ms,
            }
        ).encode()

    def on_beat(self, peer: Peer) -> None:
        try:
            said = json.loads(peer.payload)
            sequence, chain = int(said["sequence"]), bytes.fromhex(said["chain"])
            interest = int(said["interest"])
        except (ValueError, KeyError, TypeError):
            return
        self.claims[peer.node] = said
        self.shared.compare(peer.node, sequence, chain)
        if self.shared.contradictions:
            self.on_contradiction()
        if self.interest.has_missed(peer.node, interest) and self.joined.is_set():
            self.loop.create_task(self.interest.ask(peer.node), name="cluster-interest")

    def on_presence(self, peer: Peer) -> None:
        log.info("node heard" if peer.is_alive else "node silent", extra={"node": peer.node})
        if not peer.is_alive:
            self.interest.forget(peer.node)
            self.claims.pop(peer.node, None)
            self.declare_down(peer.node)

    def declare_down(self, name: str) -> None:
        member = self.shared.members.get(name)
        if member is not None and member.up and self.ready:
            log.warning("declaring a node down that is silent", extra={"node": name})
            self.shared.propose(encode_node_down(name, member.instance), Pending(NOTHING, None))
            self.propose()

    async def watch(self) -> None:
        """Look after what nobody says: nodes that have never been heard, and a log that stays away."""
        while True:
            await asyncio.sleep(WATCH_S)
            now = self.loop.time()
            if now - self.started_at > self.options.node_timeout_s:
                for member in list(self.shared.members.values()):
                    peer = self.presence.peers.get(member.name)
                    if member.up and member.name != self.options.node and (peer is None or not peer.is_alive):
                        self.declare_down(member.name)
            if self.away_since and now - self.away_since > self.options.node_timeout_s and self.shared.accepts:
                self.shared.accepts = False
                log.warning("sending clients away: the cluster has no quorum", extra={"detail": self.problem})
                self.send_all_away("the cluster has no quorum here")

    def send_all_away(self, why: str) -> None:
        """Hang up on all clients, and say where else they may go where that is known."""
        elsewhere = self.elsewhere()
        self.driver.send_all_away(USE_ANOTHER_SERVER if elsewhere else SERVER_SHUTTING_DOWN, why, elsewhere)

    def elsewhere(self) -> str:
        """Where clients may go instead of this node."""
        return " ".join(
            member.address
            for member in self.shared.members.values()
            if member.up and member.address and member.name != self.options.node
        )

    def on_contradiction(self) -> None:
        """Another node has read something else. Whoever stands against most of the others stops."""
        found, self.shared.contradictions = self.shared.contradictions, []
        for line in found:
            log.error("the log was not read alike", extra={"detail": line})
        if self.agreement.stands_alone(self.claims):
            self.shared.accepts = False
            self.send_all_away("this node has read another log")
            self.fail(
                StoreError(
                    f"{found[-1]}: this node stands alone with what it has read. Remove its data folder and start it "
                    "again, so that it takes its state from the others; and look at the disks of the log servers"
                )
            )

    def on_channel(self, node: str, data: bytes) -> None:
        kind = data[:1]
        if kind == LIVE:
            self.driver.receive_live(data[1:])
        elif kind == WHOLE:
            self.interest.learn(node, data[1:])
        elif kind == HASH:
            self.agreement.hear(node, data[1:])
        elif kind == CHANGED:
            self.interest.learn_changes(node, data[1:])

    def on_request(self, node: str, data: bytes) -> bytes:
        """Answer what another node asks: the filters of this node's clients, or that it sends them away."""
        if data[:1] == DRAIN:
            log.warning("draining, as an operator asked of another node", extra={"through": node})
            self.drain()
            return b""
        return self.interest.whole()

    # What operators ask.

    def drain(self) -> None:
        """Send clients to the other nodes and accept none; the node goes on reading the log."""
        self.drained = True
        self.shared.accepts = False
        self.send_all_away("this node is being drained")

    # The length of the log.

    async def trim(self) -> None:
        """Cut the log below what every node that is up has on its own disk, once it is long, and leave a copy of the
        state for nodes that come later.
        """
        while True:
            await asyncio.sleep(TRIM_S)
            try:
                await self.trim_once()
            except HoldfastError as error:
                log.warning("the log could not be shortened", extra={"error": str(error)})

    async def trim_once(self, force: bool = False) -> None:
        shared = self.shared
        up = sorted(member.name for member in shared.members.values() if member.up)
        if not self.ready or not up or up[0] != self.options.node:
            return  # one of them is enough
        if not force and self.stream.size < self.options.log_bytes:
            return
        stored = [self.local_sequence]
        for name in up[1:]:
            said = self.claims.get(name)
            if said is None:
                return
            stored.append(int(said["stored"]))
        length = self.stream.last_seq - self.stream.first_seq + 1
        if not force and (min(stored) - self.stream.first_seq + 1) * WORTH_TRIMMING < length:
            return  # a copy of the state is too much for so little
        upto = await store_state(self.save_state, self.transfer) if self.save_state is not None else 0
        below = min([*stored, upto]) + 1
        await self.stream.trim(below)
        log.info("the log was cut", extra={"below": below})
