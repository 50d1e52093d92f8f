"""One node of a cluster: a broker whose log is shared, the log servers, and the other nodes.

The broker proposes entries and applies what comes back; `cluster` carries both. This is where the two meet, and where a
node decides about itself: when it has caught up and may serve, when it has been cut off and must not, and when another
one is gone. No node decides for the others: what counts is what the log says.
"""

import asyncio
import json
import logging
import os
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from holdfast import __version__
from holdfast.broker.core import Broker
from holdfast.broker.digest import state_digest
from holdfast.broker.effects import LiveItem
from holdfast.broker.entries import FORMAT, encode_node_down, encode_node_removed
from holdfast.broker.live import encode_live
from holdfast.broker.pending import NOTHING, Member, Pending
from holdfast.broker.settings import shared_settings
from holdfast.broker.shared import Shared
from holdfast.cluster.channel import Channel
from holdfast.cluster.connection import Connection
from holdfast.cluster.presence import NameTaken, Peer, Presence
from holdfast.cluster.stream import State, Stream, StreamOptions
from holdfast.cluster.transfer import Stored, Transfer
from holdfast.errors import HoldfastError, NoAnswer, NotFound, StoreError, UsageError
from holdfast.protocol.mqtt.reasons import USE_ANOTHER_SERVER

log = logging.getLogger("holdfast.cluster")

# Frames on their way to the log. With more under way, what is proposed meanwhile makes larger ones.
FRAMES_UNDER_WAY = 8
HIGH_WATER_BYTES = 32 << 20
WATCH_S = 1.0
TRIM_S = 30.0
WORTH_TRIMMING = 2  # at least one part of so many of the log
VERIFY_S = 60.0
CLOCK_TOLERANCE_MS = 100
CLOCK_WARNING_MS = 5000
LEAVE_S = 2.0
CHUNK = 1 << 20

# What nodes say to each other beside the log.
LIVE = b"L"
INTEREST = b"I"
FULL_INTEREST = b"F"
HASH = b"H"
DRAIN = b"D"


class BrokerDriver(Protocol):
    """What drives the broker, as far as a node needs it."""

    broker: Broker
    loop: asyncio.AbstractEventLoop
    skew_ms: int
    last_ms: int
    on_proposed: Callable[[], None] | None
    on_live: Callable[[list[LiveItem]], None] | None

    def now_ms(self) -> int: ...

    def apply(self, sequence: int, time_ms: int, frame: bytes) -> None: ...

    def receive_live(self, data: bytes) -> None: ...

    def send_all_away(self, reason: int, text: str, reference: str = "") -> None: ...

    def let_go(self) -> None: ...

    def propose(self) -> None: ...


@dataclass(frozen=True)
class NodeOptions:
    """`advertise` is where clients reach this node; `batch` bounds the bytes of one message of the log."""

    node: str
    stream: StreamOptions
    batch: int = 128 << 10
    node_timeout_s: float = 10.0
    advertise: str = ""
    log_bytes: int = 1 << 30  # of the log before it is cut below what all nodes have


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
        self.interest_version = 0
        self.known_interest: dict[str, int] = {}
        self.claims: dict[str, dict[str, Any]] = {}  # what the others last said of themselves
        self.answers: dict[int, dict[str, str]] = {}
        self.asked: dict[int, asyncio.Event] = {}
        self.local_positions: deque[tuple[int, int]] = deque()  # offsets and sequences that are not durable here yet
        self.local_sequence = shared.sequence  # up to which this node's own disk has it
        self.save_state: Callable[[], Path] | None = None
        self.tasks: list[asyncio.Task[None]] = []
        self.warned_of_clock = False
        self.applied = 0
        driver.on_proposed = self.propose
        driver.on_live = self.send_live
        shared.log.has_much = self.has_much
        shared.log.local.on_durable = self.on_local_durable
        shared.on_verify = self.on_verify
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
        self.broadcast_interest(whole=True)
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
        self.interest_version = instance  # higher than any that an earlier instance has told
        shared.begin(instance, self.options.advertise, __version__)
        self.propose()

    def begin_again(self, why: str) -> None:
        """Drop everything that was proposed, and start as another instance; the state is what the log says."""
        log.warning("starting again as another instance", extra={"node": self.options.node, "reason": why})
        self.joined.clear()
        self.shared.leave()
        self.stream.forget()
        self.driver.let_go()
        self.driver.send_all_away(USE_ANOTHER_SERVER, "this node was cut off from the cluster", self.elsewhere())
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
            self.broadcast_interest(whole=False)

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
    def name(self) -> str:
        return self.options.node

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
                "interest": self.interest_version,
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
        if self.known_interest.get(peer.node, -1) != interest and self.joined.is_set():
            self.loop.create_task(self.ask_interest(peer.node), name="cluster-interest")

    def on_presence(self, peer: Peer) -> None:
        log.info("node heard" if peer.is_alive else "node silent", extra={"node": peer.node})
        if not peer.is_alive:
            self.known_interest.pop(peer.node, None)
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
                self.driver.send_all_away(USE_ANOTHER_SERVER, "the cluster has no quorum here", self.elsewhere())

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
        against, with_us = 0, 1
        for said in self.claims.values():
            mine = self.shared.recent.get(int(said["sequence"]))
            if mine is not None:
                if mine.hex() == said["chain"]:
                    with_us += 1
                else:
                    against += 1
        if against > with_us or (against == with_us and self.is_youngest()):
            self.shared.accepts = False
            self.driver.send_all_away(USE_ANOTHER_SERVER, "this node has read another log", self.elsewhere())
            self.fail(
                StoreError(
                    f"{found[-1]}: this node stands alone with what it has read. Remove its data folder and start it "
                    "again, so that it takes its state from the others; and look at the disks of the log servers"
                )
            )

    def is_youngest(self) -> bool:
        mine = self.shared.members.get(self.options.node)
        return mine is not None and all(mine.began >= member.began for member in self.shared.members.values())

    # Live messages.

    def send_live(self, items: list[LiveItem]) -> None:
        for item in items:
            data = LIVE + encode_live(item)
            for node in item.nodes:
                self.channel.send(node, data)

    def broadcast_interest(self, whole: bool) -> None:
        interest = self.shared.interest
        changes = interest.take_changes()
        self.interest_version += 1
        if whole:
            self.channel.broadcast(FULL_INTEREST + self.whole_interest())
        else:
            told = {"version": self.interest_version, "changes": {f.decode(): on for f, on in changes.items()}}
            self.channel.broadcast(INTEREST + json.dumps(told).encode())
        self.channel.flush()

    def whole_interest(self) -> bytes:
        filters = [topic_filter.decode() for topic_filter in self.shared.interest.own]
        return json.dumps({"version": self.interest_version, "filters": filters}).encode()

    async def ask_interest(self, node: str) -> None:
        try:
            self.learn_interest(node, await self.channel.request(node, FULL_INTEREST, WATCH_S))
        except (NoAnswer, HoldfastError):
            return

    def learn_interest(self, node: str, data: bytes) -> None:
        said = json.loads(data)
        self.shared.interest.replace(node, [text.encode() for text in said["filters"]])
        self.known_interest[node] = said["version"]
        self.driver.broker.subscriptions.generation += 1

    def on_channel(self, node: str, data: bytes) -> None:
        kind = data[:1]
        if kind == LIVE:
            self.driver.receive_live(data[1:])
        elif kind == FULL_INTEREST:
            self.learn_interest(node, data[1:])
        elif kind == HASH:
            said = json.loads(data[1:])
            question = int(said["question"])
            if question in self.answers:
                self.answers[question][node] = str(said["hash"])
                self.count_answers(question)
        elif kind == INTEREST:
            said = json.loads(data[1:])
            if self.known_interest.get(node, -1) + 1 != said["version"]:
                return  # something was lost: the next beat shows it
            self.shared.interest.learn(node, {text.encode(): bool(on) for text, on in said["changes"].items()})
            self.known_interest[node] = said["version"]
            self.driver.broker.subscriptions.generation += 1

    def on_request(self, node: str, data: bytes) -> bytes:
        """Answer what another node asks: the filters of this node's clients, or that it sends them away."""
        if data[:1] == DRAIN:
            log.warning("draining, as an operator asked of another node", extra={"through": node})
            self.drain()
            return b""
        return self.whole_interest()

    # What operators ask.

    def drain(self) -> None:
        """Send clients to the other nodes and accept none; the node goes on reading the log."""
        self.drained = True
        self.shared.accepts = False
        self.driver.send_all_away(USE_ANOTHER_SERVER, "this node is being drained", self.elsewhere())

    async def drain_node(self, name: str) -> None:
        """Drain this node or another one. Raises UsageError when there is none of that name, or it does not answer."""
        self.need_member(name)
        if name == self.options.node:
            self.drain()
            return
        try:
            await self.channel.request(name, DRAIN)
        except NoAnswer as error:
            raise UsageError(f"node {name!r} does not answer, expected one that runs: {error}") from None

    async def remove(self, name: str) -> None:
        """Forget a node that will not come back; returns when all nodes can know."""
        self.need_member(name)
        peer = self.presence.peers.get(name)
        if name == self.options.node or (peer is not None and peer.is_alive):
            raise UsageError(f"node {name!r} is running: stop it first")
        self.shared.propose(encode_node_removed(name), Pending(NOTHING, None))
        await self.come_back()

    def need_member(self, name: str) -> None:
        if name not in self.shared.members:
            raise NotFound(f"there is no node {name!r}, expected one of {', '.join(sorted(self.shared.members))}")
        if self.cannot_write:
            raise StoreError(f"the cluster cannot be changed through this node now: {self.cannot_write}")

    async def come_back(self) -> None:
        """Return when all that was proposed so far has come back from the log."""
        done: asyncio.Future[StoreError | None] = self.loop.create_future()
        self.shared.flush(lambda error: None if done.done() else done.set_result(error))
        self.propose()
        error = await done
        if error is not None:
            raise error

    def status(self) -> dict[str, Any]:
        shared = self.shared
        stream = self.stream
        nodes = [self.status_of(member) for member in sorted(shared.members.values(), key=lambda each: each.name)]
        return {
            "name": self.options.stream.name,
            "node": self.options.node,
            "ready": self.ready,
            "state": stream.state.value,
            "detail": self.not_ready,
            "log": {
                "leader": stream.leader,
                "first": stream.first_seq,
                "last": stream.last_seq,
                "lagging": stream.lag,
                "unacknowledged": shared.unreturned(),
                "waiting_bytes": shared.size + stream.waiting_bytes,
                "sent_again": stream.sent_again,
                "passed_over": shared.passed_over,
            },
            "position": shared.sequence,
            "lag": max(0, stream.last_seq - shared.sequence),
            "hash": shared.chain.hex(),
            "offset": shared.log.position,
            "clock_difference_ms": self.driver.skew_ms,
            "live_lost": self.channel.lost,
            "nodes": nodes,
        }

    def system_topics(self) -> dict[str, str]:
        """What clients find below `$SYS/broker/`."""
        shared = self.shared
        up = sorted(member.name for member in shared.members.values() if member.up)
        return {
            "cluster/name": self.options.stream.name,
            "cluster/node": self.options.node,
            "cluster/nodes": " ".join(up),
            "cluster/position": str(shared.sequence),
            "cluster/lag": str(max(0, self.stream.last_seq - shared.sequence)),
            "cluster/ready": "1" if self.ready else "0",
        }

    def status_of(self, member: Member) -> dict[str, Any]:
        mine = member.name == self.options.node
        said = json.loads(self.say()) if mine else self.claims.get(member.name)
        known = {
            "name": member.name,
            "up": member.up,
            "epoch": member.began,
            "address": member.address,
            "version": member.version,
            "heard": mine or said is not None,
        }
        if said is not None:
            known |= {
                "position": said["sequence"],
                "lag": max(0, self.stream.last_seq - int(said["sequence"])),
                "hash": said["chain"],
                "offset": said["offset"],
                "clients": said["clients"],
                "ready": said["ready"],
                "detail": said["detail"],
                "agrees": self.agrees(int(said["sequence"]), said["chain"]),
            }
        return known

    def agrees(self, sequence: int, chain: str) -> bool | None:
        """Whether this node has read the same up to there; None when it has not come so far, or has forgotten."""
        mine = self.shared.recent.get(sequence)
        return None if mine is None else mine.hex() == chain

    async def verify(self) -> dict[str, str]:
        """The hash of the state of every node at one position, by name; empty for one that did not answer in time."""
        if self.cannot_write:
            raise StoreError(f"the nodes cannot be compared through this one now: {self.cannot_write}")
        question = secrets.randbits(62) + 1
        self.asked[question] = asyncio.Event()
        self.answers[question] = {}
        self.shared.verify(question)
        self.propose()
        try:
            await asyncio.wait_for(self.asked[question].wait(), VERIFY_S)
        except TimeoutError:
            pass
        finally:
            del self.asked[question]
        up = {member.name: "" for member in self.shared.members.values() if member.up}
        return up | self.answers.pop(question)

    def on_verify(self, question: int) -> None:
        found = state_digest(self.driver.broker)
        if question in self.answers:
            self.answers[question][self.options.node] = found
        self.loop.call_soon(self.tell_hash, question, found)

    def tell_hash(self, question: int, found: str) -> None:
        self.channel.broadcast(HASH + json.dumps({"question": question, "hash": found}).encode())
        self.count_answers(question)

    def count_answers(self, question: int) -> None:
        wanted = {member.name for member in self.shared.members.values() if member.up}
        if question in self.asked and wanted <= set(self.answers[question]):
            self.asked[question].set()

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
        upto = await self.store_state()
        below = min([*stored, upto]) + 1
        await self.stream.trim(below)
        log.info("the log was cut", extra={"below": below})

    async def store_state(self) -> int:
        """Put a copy of this node's state where others find it; returns the message of the log that it has come to."""
        if self.save_state is None:
            return 0
        path = await self.loop.run_in_executor(None, self.save_state)
        try:
            about = await self.loop.run_in_executor(None, describe_state, path)
            name = f"state-{about['sequence']}"
            await self.transfer.put(name, chunks_of(path), about)
            await self.transfer.keep_newest(2)
            return int(about["sequence"])
        finally:
            path.unlink(missing_ok=True)


def describe_state(path: Path) -> dict[str, str]:
    """What a copy of the state says of itself."""
    from holdfast.state.store import StateStore

    store = StateStore(path.parent, readonly=True)
    try:
        found = store.sessions.cluster()
        position = found.position
        return {
            "sequence": str(position.sequence if position is not None else 0),
            "offset": str(store.applied),
            "version": __version__,
        }
    finally:
        store.close()


async def chunks_of(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while chunk := await asyncio.to_thread(file.read, CHUNK):
            yield chunk


async def fetch_state(transfer: Transfer, stored: Stored, to: Path, progress: Callable[[int, int], None]) -> None:
    """Bring a state from the object store to a file; it is there when it is whole."""
    partial = to.with_name(to.name + ".partial")
    with partial.open("wb") as file:
        async for chunk in transfer.get(stored, progress):
            await asyncio.to_thread(file.write, chunk)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(to)
