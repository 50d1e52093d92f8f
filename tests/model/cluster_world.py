"""Three nodes on one log in this process, with everything that may happen to them, in an order that a seed gives.

The log is a list. Between a node and the log frames are delayed, repeated, lost and overtaken; behind it every node
reads the same, at its own pace. Nodes die, lose the end of their disk, start again from it or from the state of another
node, are declared down rightly or wrongly, and find out late. Clients are byte buffers with the memory of a real
client: they move between nodes, send again what was not acknowledged, acknowledge late, and remember what they got.

One more node reads the log and nothing else (`witness`): in which order publishes count is what it has read.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path

from core_driver import ListLog, carry_out
from holdfast.broker.core import Broker
from holdfast.broker.effects import Effects
from holdfast.broker.entries import ATTACH, NODE_DOWN, NODE_UP, PUBLISH, decode_publish, encode_node_down
from holdfast.broker.frame import decode_head, entries_of
from holdfast.broker.live import encode_live
from holdfast.broker.pending import NOTHING, Pending
from holdfast.broker.records import Publishers
from holdfast.broker.settings import Settings
from holdfast.broker.shared import Shared, SharedLog
from holdfast.state.store import StateStore
from holdfast.storage.loading import load_cluster, load_retained
from model.shared_world import shared_dump
from model.world import BEGIN_MS, Buffer, Link
from wire_packets import (
    ConnAck,
    Disconnect,
    Packet,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    UnsubAck,
    Will,
    connect,
    disconnect,
    puback,
    pubcomp,
    publish,
    pubrec,
    pubrel,
    subscribe,
    unsubscribe,
)
from wire_properties import P

NAMES = ("a", "b", "c")
FRAMES_UNDER_WAY = 4
USE_ANOTHER_SERVER = 0x9C
TAKEN_OVER = 0x8E
FOREVER_S = 100_000
RETAINED = [f"r/{number}" for number in range(8)]


@dataclass
class Sending:
    """A publish that has not been finished. At QoS 1 every attempt has a payload of its own, so that each is seen."""

    topic: str
    name: str
    qos: int
    retain: bool
    expires: bool = False  # so soon that it need not come
    attempt: int = 0
    received: bool = False  # QoS 2: PUBREC has come

    def payload(self) -> str:
        if self.is_clear:
            return ""
        return f"{self.name}.{self.attempt}" if self.qos < 2 else self.name

    @property
    def is_clear(self) -> bool:
        return self.name == ""


@dataclass
class Got:
    topic: str
    payload: str
    qos: int
    retain: bool
    dup: bool


@dataclass
class Client:
    """A client and what it remembers between connections."""

    name: str
    persistent: bool
    filters: list[tuple[str, int]]
    window: int = 5
    expiry_s: int = FOREVER_S
    link: Link | None = None
    node: str = ""
    connected: bool = False
    subscribed: bool = False
    subscribes: int = 0
    last_id: int = 0
    published: int = 0
    connects: int = 0
    will: str = ""
    kicked: bool = False  # by an operator, who may have been faster than its goodbye
    will_waits: bool = False  # so that the client may be back before it is due
    sending: dict[int, Sending] = field(default_factory=dict)
    held: list[Packet] = field(default_factory=list)  # received and not acknowledged yet
    qos2: set[int] = field(default_factory=set)
    got: list[Got] = field(default_factory=list)
    since: int = 0  # where in `got` the present session began
    acknowledged: list[str] = field(default_factory=list)

    def next_id(self) -> int:
        while True:
            self.last_id = self.last_id % 65535 + 1
            if self.last_id not in self.sending:
                return self.last_id


class SimNode:
    """A node: its broker, the frames that it keeps until they come back, and its disk."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.disk: list[bytes] = []
        self.unreturned: deque[tuple[int, bytes]] = deque()
        self.is_up = False
        self.joined = False
        self.is_paused = False
        self.links: dict[str, Link] = {}
        self.broker: Broker
        self.shared: Shared
        self.local: ListLog

    def make(self) -> None:
        settings = Settings()
        settings.max_inflight = 5
        self.broker = Broker(settings, f"{self.name}-")
        self.local = ListLog()
        self.shared = self.broker.use_shared_log(SharedLog(self.local, []), self.name)
        self.links = {}
        self.unreturned.clear()
        self.joined = False
        self.is_paused = False

    def load(self, disk: list[bytes]) -> None:
        """Begin with what is on a disk."""
        self.make()
        self.disk = list(disk)
        folder = Path(tempfile.mkdtemp(prefix="holdfast-sim-", dir=SCRATCH))
        try:
            store = StateStore(folder / "state")
            if disk:
                store.apply(list(disk))
            position = store.sessions.cluster().position
            load_retained(self.broker, store, position.time_ms if position is not None else 0)
            load_cluster(self.broker, store)
            store.close()
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def store(self) -> list[bytes]:
        """What the node has done reaches its disk; returns all that is there."""
        self.disk += self.local.drain()
        return self.disk


SCRATCH = "/dev/shm" if Path("/dev/shm").is_dir() else None


class ClusterWorld:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.now_ms = BEGIN_MS
        self.log: list[tuple[int, bytes]] = []
        self.wire: list[tuple[str, bytes]] = []  # frames between nodes and the log
        self.nodes = {name: SimNode(name) for name in NAMES}
        self.witness = SimNode("z")
        self.witness.make()
        self.publishers = Publishers()
        self.order: dict[str, int] = {}  # payloads in the order in which they count
        self.last: dict[str, str] = {}  # the retained value of each topic by that
        self.instances = 0
        self.seen: Counter[str] = Counter()
        self.trace: list[str] = []
        self.wills: dict[str, set[int]] = {}  # how often each may be published
        self.expiring: set[str] = set()
        self.leaving: set[str] = set()  # wills of clients that have said goodbye to a node
        for node in self.nodes.values():
            node.make()
            self.begin(node)
        self.clients = [
            Client("watch", True, [("#", 2)], 5),
            Client("one", True, [("r/#", 1), ("$share/g/s/#", 1)], 3),
            Client("two", True, [("r/#", 1), ("q/#", 1)], 2, expiry_s=1),
            Client("six", True, [("r/#", 2), ("q/#", 2)], 2),
            Client("three", False, [("r/+", 1), ("$share/g/s/#", 1)], 4),
            Client("four", False, [("q/#", 2), ("r/1", 0)], 4),
            Client("five", True, [("r/#", 0), ("$share/g/s/#", 1)], 3),
        ]
        self.watch = self.clients[0]

    # Nodes.

    def begin(self, node: SimNode) -> None:
        known = node.shared.members.get(node.name)
        self.instances += 1
        instance = max(known.instance + 1 if known is not None else 1, self.instances)
        self.instances = instance
        node.is_up = True
        node.shared.begin(instance, node.name, "test")
        self.propose(node)

    def propose(self, node: SimNode) -> None:
        while node.is_up and node.shared.unreturned() < FRAMES_UNDER_WAY:
            frame = node.shared.take_frame(600, self.now_ms)
            if frame is None:
                return
            node.unreturned.append((node.shared.counter, frame))
            self.wire.append((node.name, frame))

    def resend(self, node: SimNode) -> None:
        self.wire += [(node.name, frame) for _, frame in node.unreturned]

    def carry_out(self, node: SimNode, effects: Effects) -> None:
        live = list(effects.live)
        effects.live.clear()
        effects.seen.clear()
        carry_out(effects, node.broker.log)
        for item in live:
            data = encode_live(item)
            for name in item.nodes:
                other = self.nodes[name]
                if other.is_up and self.random.random() < 0.9:
                    self.carry_out(other, other.broker.receive_live(data, self.now_ms))
        changes = node.shared.interest.take_changes()
        if changes:
            for other in self.nodes.values():
                if other is not node and other.is_up:
                    other.shared.interest.learn(node.name, changes)
                    other.broker.subscriptions.generation += 1

    def read(self, node: SimNode) -> None:
        """The next message of the log, as a node does it."""
        shared = node.shared
        time_ms, frame = self.log[shared.sequence]
        self.carry_out(node, shared.apply(shared.sequence + 1, time_ms, frame))
        while node.unreturned and node.unreturned[0][0] <= shared.returned:
            node.unreturned.popleft()
        if shared.saw_gap:
            shared.saw_gap = False
            self.resend(node)
        if shared.is_member:
            node.joined = True
        elif shared.was_ended():
            self.seen["obituary"] += 1
            self.note(f"{node.name} reads its obituary")
            node.joined = False
            node.unreturned.clear()
            shared.leave()
            self.carry_out(node, node.broker.let_go(self.now_ms))
            self.carry_out(node, node.broker.send_all_away(USE_ANOTHER_SERVER, "cut off", self.now_ms))
            self.begin(node)
        assert not shared.contradictions, shared.contradictions
        self.propose(node)

    def take(self, at: int) -> None:
        """A frame reaches the log."""
        _, frame = self.wire.pop(at)
        self.log.append((self.now_ms, frame))
        witness = self.witness
        head, entries = decode_head(frame), entries_of(frame)
        counts = witness.shared.counts(head, entries)
        if counts:
            for entry in entries:
                if entry[0] == PUBLISH:
                    admitted = decode_publish(entry, self.publishers, self.now_ms)
                    message = admitted.message
                    if admitted.packet_id and admitted.connection_id not in witness.shared.connections:
                        continue
                    payload = message.payload.decode()
                    self.order.setdefault(payload, len(self.order))
        else:
            self.seen["passed over"] += 1
        waiting = [will for will in self.leaving if self.still_has(will)]
        self.carry_out(witness, witness.shared.apply(len(self.log), self.now_ms, frame))
        if any(entry[0] in (ATTACH, NODE_UP, NODE_DOWN) for entry in entries):
            for will in waiting:
                if not self.still_has(will):
                    self.wills[will] = {0, 1}  # its goodbye came too late, or with this
        witness.local.drain()

    def crash(self, node: SimNode) -> None:
        self.note(f"{node.name} dies")
        self.seen["crash"] += 1
        node.is_up = False
        node.joined = False
        node.unreturned.clear()
        for client in self.clients:
            if client.node == node.name and client.link is not None:
                self.forget_link(client)

    def still_has(self, will: str) -> bool:
        """Whether a will waits, by what is in the log so far."""
        session = self.witness.broker.sessions.get(will.split(":")[1])
        return session is not None and session.will is not None and session.will.will.payload.decode() == will

    def restart(self, node: SimNode) -> None:
        others = [other for other in self.nodes.values() if other is not node and other.is_up]
        if others and self.random.random() < 0.3:
            other = self.random.choice(others)
            self.note(f"{node.name} starts from the state of {other.name}")
            self.seen["state of another"] += 1
            disk = other.store()
        else:
            self.note(f"{node.name} starts from its disk")
            disk = node.disk
        node.load(disk)
        self.catch_up(node)
        self.begin(node)

    def catch_up(self, node: SimNode) -> None:
        """Read to the end before being a member, as a node does that starts."""
        node.is_up = True
        while node.shared.sequence < len(self.log):
            self.read(node)

    def declare_down(self, node: SimNode, by: SimNode) -> None:
        member = by.shared.members.get(node.name)
        if member is not None and member.up and by.joined:
            self.note(f"{by.name} declares {node.name} down")
            by.shared.propose(encode_node_down(node.name, member.instance), Pending(NOTHING, None))
            self.propose(by)

    # Clients.

    def connect(self, client: Client, node: SimNode) -> None:
        if client.link is not None:  # the old connection stays, as of one that has lost its way
            self.expect_will(client)
            client.link = None
        client.connected = client.subscribed = False
        client.held.clear()
        peer = Buffer()
        link = Link(peer, node.broker.open(peer, self.now_ms), 5)
        client.link, client.node = link, node.name
        node.links[client.name] = link
        client.connects += 1
        client.kicked = False
        client.will = f"will:{client.name}:{client.connects}" if self.random.random() < 0.5 else ""
        client.will_waits = self.random.random() < 0.3
        delay = [(P.WILL_DELAY, 1)] if client.will_waits else []
        will = Will(f"w/{client.name}", client.will.encode(), 1, properties=delay) if client.will else None
        properties = [(P.RECEIVE_MAXIMUM, client.window)]
        if client.persistent:
            properties.append((P.SESSION_EXPIRY, client.expiry_s))
        self.note(f"{client.name} connects to {node.name}, number {client.connects}")
        self.send(
            client,
            connect(
                client.name, version=5, clean=not client.persistent, will=will, properties=properties, keep_alive=0
            ),
        )

    def send(self, client: Client, data: bytes) -> None:
        node = self.nodes[client.node]
        assert client.link is not None
        self.carry_out(node, node.broker.receive(client.link.connection, data, self.now_ms))
        self.propose(node)

    def forget_link(self, client: Client) -> None:
        self.expect_will(client)
        client.link = None
        client.connected = client.subscribed = False
        client.held.clear()

    def expect_will(self, client: Client) -> None:
        """The connection has ended without a goodbye: its will is due once, if the client was let in at all."""
        if client.will:
            self.wills[client.will] = {1} if client.connected and not client.will_waits else {0, 1}

    def cut(self, client: Client) -> None:
        node = self.nodes[client.node]
        link = client.link
        assert link is not None
        self.note(f"{client.name} is cut from {client.node}")
        self.forget_link(client)
        self.carry_out(node, node.broker.lost(link.connection, self.now_ms))
        self.propose(node)

    def leave(self, client: Client) -> None:
        self.read_packets(client)
        link, will = client.link, client.will
        if link is None:
            return
        self.note(f"{client.name} leaves {client.node}")
        node = self.nodes[client.node]
        self.send(client, disconnect())
        client.will = ""
        self.forget_link(client)
        if will:
            known = self.still_has(will) and not client.kicked and not client.will_waits
            self.wills[will] = {0} if known else {0, 1}  # the log may know better already
            self.leaving.add(will)
        if not link.connection.parked:  # whose socket is not read, so that its end is not seen
            self.carry_out(node, node.broker.lost(link.connection, self.now_ms))
            self.propose(node)

    def publish(self, client: Client) -> None:
        client.published += 1
        self.seen["published"] += 1
        name = f"{client.name}:{client.published}"
        kind = self.random.random()
        topic = self.random.choice(RETAINED)
        if kind < 0.4:
            sending = Sending(topic, name, self.random.choice((0, 1, 2)), True)
        elif kind < 0.45:
            sending = Sending(topic, "", 1, True)
        elif kind < 0.5:
            sending = Sending(topic, name, self.random.choice((0, 1, 2)), True, expires=True)
            self.expiring.add(name)
        elif kind < 0.85:
            sending = Sending(f"q/{self.random.randrange(3)}", name, self.random.choice((1, 2, 2, 2)), False)
        else:
            sending = Sending(f"s/{self.random.randrange(3)}", name, 1, False)
        if client.expiry_s < FOREVER_S:
            # Its session may end and begin anew without its knowing, by a CONNACK that it never saw: then there is no
            # exactly once, with any server.
            sending.qos = min(sending.qos, 1)
        packet_id = client.next_id() if sending.qos else 0
        if packet_id:
            client.sending[packet_id] = sending
        self.send_publish(client, sending, packet_id)

    def send_publish(self, client: Client, sending: Sending, packet_id: int) -> None:
        dup = sending.attempt > 0
        sending.attempt += 1
        self.send(
            client,
            publish(
                sending.topic,
                sending.payload(),
                qos=sending.qos,
                retain=sending.retain,
                dup=dup,
                packet_id=packet_id or None,
                version=5,
                properties=[(P.MESSAGE_EXPIRY, 1)] if sending.expires else [],
            ),
        )

    def read_packets(self, client: Client) -> None:
        """A client reads what has come, and answers what it has to answer at once."""
        link = client.link
        if link is None:
            return
        for packet in link.packets():
            if client.link is not link:
                return
            self.on_packet(client, packet)
        if client.link is link and link.peer.closed:
            self.forget_link(client)

    def on_packet(self, client: Client, packet: Packet) -> None:
        if isinstance(packet, ConnAck):
            self.on_connack(client, packet)
        elif isinstance(packet, SubAck | UnsubAck):
            client.subscribed = True
        elif isinstance(packet, PubAck):
            sending = client.sending.pop(packet.packet_id, None)
            assert sending is not None
            assert sending.qos == 1
            self.acknowledged(client, sending)
        elif isinstance(packet, PubRec):
            sending = client.sending.get(packet.packet_id)
            assert sending is not None
            assert sending.qos == 2
            sending.received = True
            self.acknowledged(client, sending)
            self.send(client, pubrel(packet.packet_id))
        elif isinstance(packet, PubComp):
            client.sending.pop(packet.packet_id, None)
        elif isinstance(packet, Publish):
            self.on_publish(client, packet)
        elif isinstance(packet, PubRel):
            client.qos2.discard(packet.packet_id)
            self.send(client, pubcomp(packet.packet_id))
        elif isinstance(packet, Disconnect):
            if packet.reason == TAKEN_OVER:
                self.seen["taken over"] += 1
        else:
            raise AssertionError(f"{client.name} got {packet}")

    def acknowledged(self, client: Client, sending: Sending) -> None:
        assert sending.payload() in self.order, f"{sending.payload()} was acknowledged and the log does not have it"
        client.acknowledged.append(sending.payload())

    def on_connack(self, client: Client, packet: ConnAck) -> None:
        if packet.code != 0:
            client.will = ""
            return
        self.note(f"{client.name} is let in, session present {packet.session_present}")
        client.connected = True
        if not packet.session_present:
            client.qos2.clear()
            client.since = len(client.got)
            client.subscribes = 0
            for packet_id in [number for number, sending in client.sending.items() if sending.qos == 2]:
                del client.sending[packet_id]  # it cannot know: to send it again might be once too often
        else:
            self.seen["resumed"] += 1
        if not packet.session_present or self.random.random() < 0.1:
            self.subscribe(client)
        else:
            client.subscribed = True
        for packet_id, sending in list(client.sending.items()):
            if sending.received:
                self.send(client, pubrel(packet_id))
            else:
                self.seen[f"again at {sending.qos}"] += 1
                self.send_publish(client, sending, packet_id)

    def subscribe(self, client: Client) -> None:
        client.subscribed = False
        client.subscribes += 1
        self.send(client, subscribe(client.next_id(), client.filters, version=5))

    def on_publish(self, client: Client, packet: Publish) -> None:
        if packet.qos == 2:
            assert packet.packet_id is not None
            if packet.packet_id in client.qos2:
                assert packet.dup, f"{client.name}: {packet} has an id that is in use"
                client.held.append(packet)
                return
            client.qos2.add(packet.packet_id)
        client.got.append(Got(packet.topic, packet.payload.decode(), packet.qos, packet.retain, packet.dup))
        self.seen[f"got at {packet.qos}"] += 1
        if packet.qos:
            client.held.append(packet)

    def acknowledge(self, client: Client, count: int) -> None:
        while client.held and count and client.link is not None:
            count -= 1
            packet = client.held.pop(0)
            assert isinstance(packet, Publish)
            assert packet.packet_id is not None
            self.send(client, puback(packet.packet_id) if packet.qos == 1 else pubrec(packet.packet_id))

    # One thing after the other.

    def note(self, text: str) -> None:
        self.trace.append(f"{len(self.log):4d} {text}")

    def step(self) -> None:
        pick = self.random
        node = self.nodes[pick.choice(NAMES)]
        client = pick.choice(self.clients)
        what = pick.random()
        if what < 0.24:
            for _ in range(pick.choice((1, 2, 4, 8))):
                if self.wire:
                    self.pass_on(0 if pick.random() < 0.7 else pick.randrange(len(self.wire)))
        elif what < 0.48:
            if node.is_up and not node.is_paused and node.shared.sequence < len(self.log):
                for _ in range(pick.choice((1, 3, 9, 20))):
                    if node.shared.sequence < len(self.log):
                        self.read(node)
        elif what < 0.78:
            self.client_step(client)
        elif what < 0.84:
            if node.is_up and node.broker.has_work():
                self.carry_out(node, node.broker.work(self.now_ms))
                self.propose(node)
        elif what < 0.88:
            self.now_ms += pick.choice((1, 10, 300))
            if node.is_up:
                self.carry_out(node, node.broker.tick(self.now_ms))
                self.propose(node)
        elif what < 0.91:
            if node.is_up:
                node.store()
        elif what < 0.94:
            if node.is_up:
                self.resend(node)
        elif what < 0.96:
            if node.is_up:
                node.is_paused = self.random.random() < 0.2
        elif what < 0.975:
            others = [other for other in self.nodes.values() if other is not node]
            by = pick.choice(others)
            if by.is_up and not by.is_paused and (not node.is_up or node.is_paused or pick.random() < 0.2):
                self.declare_down(node, by)
        elif what < 0.983:
            if node.is_up:
                self.crash(node)
        elif not node.is_up:
            self.restart(node)

    def pass_on(self, at: int) -> None:
        fate = self.random.random()
        if fate < 0.03:
            del self.wire[at]
        else:
            if fate < 0.08:
                self.wire.append(self.wire[at])
            self.take(at)

    def client_step(self, client: Client) -> None:
        pick = self.random
        self.read_packets(client)
        if client.link is None:
            places = [node for node in self.nodes.values() if node.joined]
            if places:
                self.connect(client, pick.choice(places))
            return
        what = pick.random()
        if what < 0.5 and client.connected and client.subscribed and len(client.sending) < 8:
            self.publish(client)
        elif what < 0.8:
            self.acknowledge(client, pick.choice((1, 2, 5)))
        elif what < 0.86:
            self.cut(client)
        elif what < 0.88 and client.connected:
            self.leave(client)
        elif what < 0.89 and client.subscribed and client.name in ("two", "four", "five", "six"):
            client.subscribed = False
            self.send(client, unsubscribe(client.next_id(), [pick.choice(client.filters)[0]], version=5))
        elif what < 0.90 and client.subscribed:
            self.subscribe(client)
        elif what < 0.92:
            places = [node for node in self.nodes.values() if node.joined]
            if places:
                self.seen["moved"] += 1
                self.connect(client, pick.choice(places))  # without a word to the old node
        elif what < 0.97:
            link = client.link
            if link.blocked:
                link.blocked = False
                node = self.nodes[client.node]
                self.carry_out(node, node.broker.on_writable(link.connection, self.now_ms))
                self.propose(node)
            else:
                link.blocked = True
                link.connection.outbox.block(self.now_ms, 0)
        elif what < 0.98:
            places = [node for node in self.nodes.values() if node.joined]
            if places:
                node = pick.choice(places)
                self.seen["kicked"] += 1
                client.kicked = True
                self.carry_out(node, node.broker.kick(client.name, 0x98, "by an operator's wish", self.now_ms))
                self.propose(node)

    def run(self, steps: int) -> None:
        self.settle()
        for number in range(20):
            sending = Sending(f"r/1/{number}", f"first:{number}", 1, True)
            packet_id = self.watch.next_id()
            self.watch.sending[packet_id] = sending
            self.send_publish(self.watch, sending, packet_id)
        self.settle()
        for client in self.clients[1:]:
            self.subscribe(client)
        for _ in range(steps):
            self.step()
            self.compare()
        self.settle()
        self.check()

    def compare(self) -> None:
        """Nodes that have read as much are equal."""
        places: dict[int, SimNode] = {}
        for node in self.nodes.values():
            if not node.is_up:
                continue
            other = places.setdefault(node.shared.sequence, node)
            if other is not node and self.random.random() < 0.1:
                self.seen["compared"] += 1
                equal(node, other)

    def settle(self) -> None:
        """Everything works again: all that was begun is brought to its end."""
        for node in self.nodes.values():
            node.is_paused = False
            if not node.is_up:
                self.restart(node)
        quiet = 0
        for _ in range(3000):
            before = len(self.log), sum(len(client.got) for client in self.clients)
            for node in self.nodes.values():
                self.resend(node)
            while self.wire:
                self.take(0)
            for node in self.nodes.values():
                while node.shared.sequence < len(self.log):
                    self.read(node)
                while node.broker.has_work():
                    self.carry_out(node, node.broker.work(self.now_ms))
                self.carry_out(node, node.broker.tick(self.now_ms))
                self.propose(node)
            for client in self.clients:
                if client.link is not None and client.link.blocked:
                    client.link.blocked = False
                    node = self.nodes[client.node]
                    self.carry_out(node, node.broker.on_writable(client.link.connection, self.now_ms))
                self.read_packets(client)
                if client.link is None:
                    self.connect(client, self.nodes[self.random.choice(NAMES)])
                self.acknowledge(client, 100)
                self.read_packets(client)
            self.now_ms += 100
            idle = not self.wire and not any(client.held or client.sending for client in self.clients)
            idle = idle and all(client.connected and client.subscribed for client in self.clients)
            quiet = quiet + 1 if idle and before == (len(self.log), sum(len(c.got) for c in self.clients)) else 0
            if quiet > 3:
                return
        raise AssertionError("the cluster does not come to rest")

    # What must be true.

    def check(self) -> None:
        nodes = list(self.nodes.values())
        for node in nodes[1:]:
            equal(node, nodes[0])
        equal(self.witness, nodes[0])
        self.check_connections()
        self.check_retained()
        self.check_order()
        self.check_received()
        self.check_wills()

    def check_connections(self) -> None:
        for client in self.clients:
            at = [node.name for node in self.nodes.values() if node.broker.sessions[client.name].connection is not None]
            assert at == [client.node], f"{client.name} is connected to {at}, expected {client.node}"

    def check_retained(self) -> None:
        """A new client on any node finds the same, and the newest that was acknowledged or one after it."""
        acknowledged = [payload for client in self.clients for payload in client.acknowledged]
        missing = [payload for payload in acknowledged if payload not in self.order]
        assert not missing, missing
        for topic in RETAINED:
            found = {
                node.name: message.payload.decode()
                if (message := node.broker.retained.get(topic.encode(), self.now_ms))
                else None
                for node in self.nodes.values()
            }
            assert len(set(found.values())) == 1, (topic, found)

    def check_order(self) -> None:
        """No subscriber is told an older message of a topic after a newer one, but what is sent again is marked so."""
        for client in self.clients:
            last: dict[str, int] = {}
            for got in client.got[client.since :]:
                place = self.order.get(got.payload)
                if got.dup or place is None or not got.payload or not got.topic.startswith("r/"):
                    continue
                assert place >= last.get(got.topic, -1), (
                    f"{client.name} got {got} after a newer one: {[g for g in client.got if g.topic == got.topic]}"
                )
                last[got.topic] = place

    def check_received(self) -> None:
        watched = Counter(got.payload for got in self.watch.got if not got.retain)
        for payload in self.order:
            name, is_qos1, _ = payload.partition(".")
            if is_qos1 or not payload:
                continue
            count = watched[payload]
            assert count == 1 or (count == 0 and name in self.expiring), f"{payload} at QoS 2 came {count} times"
        for client in self.clients:
            for payload in client.acknowledged:
                if payload.partition(".")[0] not in self.expiring:
                    assert watched[payload] > 0, f"{payload} was acknowledged and never came"
        for client in self.clients:
            at_two = Counter(got.payload for got in client.got if got.qos == 2 and not got.retain)
            twice = [payload for payload, count in at_two.items() if count > 1 and "." not in payload]
            assert not twice, f"{client.name} got {twice} more than once"
        members = [client for client in self.clients if any(name.startswith("$share") for name, _ in client.filters)]
        given = Counter(got.payload for client in members for got in client.got if got.topic.startswith("s/"))
        for got in self.watch.got:
            if got.topic.startswith("s/") and got.qos:
                assert given[got.payload] > 0, f"{got.payload} came to no member of the group"

    def check_wills(self) -> None:
        count = Counter(got.payload for got in self.watch.got if got.topic.startswith("w/") and not got.dup)
        names = {got.payload for got in self.watch.got if got.topic.startswith("w/")}
        for will, allowed in self.wills.items():
            found = max(count[will], 1 if will in names else 0)
            assert found in allowed, f"{will} was published {found} times, expected {allowed}"
            self.seen["wills"] += found


def equal(one: SimNode, two: SimNode) -> None:
    first, second = shared_dump(one.broker), shared_dump(two.broker)
    if first != second:
        only_one = [line for line in first if line not in second]
        only_two = [line for line in second if line not in first]
        raise AssertionError(f"{one.name} has {only_one[:3]}, {two.name} has {only_two[:3]}")
