"""A broker core in this process, with clients made of byte buffers and a clock that only moves when told.

It does what the network room does: bytes in, effects carried out, long work continued. Packets are built and read by
the test client's codec, which shares nothing with the product's. A world with a disk behind its broker overrides
`stored` and `restart`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from core_driver import ListLog, carry_out
from holdfast.broker.access import Access
from holdfast.broker.core import Broker
from holdfast.broker.effects import Effects
from holdfast.broker.index import Index
from holdfast.broker.ports import Peer
from holdfast.broker.session import Connection
from holdfast.broker.settings import DROP_FLAG, REFUSE, STORE, Policy, Settings
from model.fold import Limits
from model.steps import Plan
from wire_packets import Packet, Publish, decode
from wire_properties import P

BEGIN_MS = 1_700_000_000_000
ACTIONS = {"store": STORE, "drop-flag": DROP_FLAG, "refuse": REFUSE}


class Buffer(Peer):
    """The far end of a connection: what the broker has written to it."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.closed = ""

    def write(self, data: bytes) -> None:
        self.data += data

    def close(self, reason: str) -> None:
        self.closed = reason or "closed"


@dataclass
class Link:
    """A client's connection. Aliases are resolved here, so that readers see topics."""

    peer: Buffer
    connection: Connection
    version: int
    blocked: bool = False
    aliases: dict[int, str] = field(default_factory=dict)
    last_id: int = 0

    def next_id(self) -> int:
        self.last_id = self.last_id % 65535 + 1
        return self.last_id

    def packets(self, most: int = 1 << 30) -> list[Packet]:
        """Everything that has arrived, whole packets only, and no more than so many."""
        out: list[Packet] = []
        data = self.peer.data
        at = 0
        while len(out) < most and (size := frame_size(data, at)) and at + size <= len(data):
            packet = decode(bytes(data[at : at + size]), self.version)
            if isinstance(packet, Publish):
                self.resolve(packet)
            out.append(packet)
            at += size
        del data[:at]
        return out

    def resolve(self, packet: Publish) -> None:
        alias = packet.prop(P.TOPIC_ALIAS)
        if alias is not None:
            if packet.topic:
                self.aliases[alias] = packet.topic
            else:
                packet.topic = self.aliases[alias]


def frame_size(data: bytearray, at: int) -> int:
    """Bytes of the packet at a place, 0 while its length is incomplete."""
    value = 0
    for index in range(1, 5):
        if at + index >= len(data):
            return 0
        byte = data[at + index]
        value |= (byte & 0x7F) << 7 * (index - 1)
        if not byte & 0x80:
            return 1 + index + value
    raise AssertionError(f"broker sent a remaining length of more than 4 bytes: {bytes(data[at : at + 8]).hex(' ')}")


class World:
    can_restart = False

    def __init__(self, plan: Plan, settings: Settings | None = None) -> None:
        """With the settings that the plan implies, unless others are given."""
        self.plan = plan
        self.given = settings
        self.now_ms = BEGIN_MS
        self.links: dict[str, Link] = {}
        self.broker = self.make_broker()

    def make_broker(self) -> Broker:
        return Broker(self.settings(), "auto-")

    def settings(self) -> Settings:
        return self.given if self.given is not None else core_settings(self.plan)

    def restart(self) -> None:
        raise NotImplementedError("nothing outlives this broker")

    def close(self) -> None:
        """Give back what the world holds outside of memory: nothing, here."""

    # What clients do.

    def open(self, client: str, version: int) -> Link:
        peer = Buffer()
        link = Link(peer, self.broker.open(peer, self.now_ms), version)
        self.links[client] = link
        return link

    def send(self, link: Link, data: bytes) -> None:
        self.carry_out(self.broker.receive(link.connection, data, self.now_ms))

    def lose(self, client: str) -> None:
        """The connection breaks; what the client has not read is gone."""
        link = self.links.pop(client)
        self.carry_out(self.broker.lost(link.connection, self.now_ms))

    def block(self, link: Link) -> None:
        link.blocked = True
        link.connection.outbox.block(self.now_ms, 0)

    def unblock(self, link: Link) -> None:
        link.blocked = False
        self.carry_out(self.broker.on_writable(link.connection, self.now_ms))

    # What the surroundings do.

    def set_access(self, access: Access | None) -> None:
        self.broker.set_access(access)

    def kick(self, client_id: str, reason: int) -> bool:
        connected = self.broker.is_connected(client_id)
        self.carry_out(self.broker.kick(client_id, reason, "by an operator's wish", self.now_ms))
        return connected

    def end_session(self, client_id: str) -> bool:
        absent = client_id in self.broker.sessions and not self.broker.is_connected(client_id)
        self.carry_out(self.broker.end_session(client_id, self.now_ms))
        return absent

    def shut_down(self) -> None:
        self.carry_out(self.broker.shut_down(self.now_ms))

    def advance(self, ms: int) -> None:
        self.now_ms += ms

    def tick(self) -> None:
        self.carry_out(self.broker.tick(self.now_ms))

    def work(self) -> None:
        """One portion of long work."""
        if self.broker.has_work():
            self.carry_out(self.broker.work(self.now_ms))

    def work_off(self) -> None:
        for _ in range(100_000):
            if not self.broker.has_work():
                return
            self.work()
        raise AssertionError("the broker still has work after 100 000 portions")

    def work_off_expiry(self) -> None:
        """Expired messages leave in portions: let all of them go, without moving snapshots on."""
        while self.broker.expiring:
            self.carry_out(self.broker.tick(self.now_ms))

    def carry_out(self, effects: Effects) -> None:
        carry_out(effects, self.broker.log)

    # What can be seen from outside the wire.

    def stored(self, topics: Iterable[str]) -> dict[str, bytes]:
        found = {}
        for topic in topics:
            message = self.broker.retained.get(topic.encode(), self.now_ms)
            if message is not None:
                found[topic] = message.payload
        return found

    def holds(self, topic: str) -> bool:
        """Whether the store still has a place for the topic, expired or not."""
        return self.broker.retained.index.get(topic.encode()) is not None

    def leaks(self) -> list[str]:
        """What must not be left when every client is up to date."""
        broker = self.broker
        found = []
        absent = [session for session in broker.sessions.values() if session.connection is None]
        resting = [snapshot.cursor for session in absent for snapshot in session.snapshots]
        index = broker.retained.index
        assert isinstance(index, Index)
        if cursors := [cursor for cursor in index.cursors if cursor not in resting]:
            found.append(f"{len(cursors)} cursors")
        if broker.running:
            found.append(f"{len(broker.running)} running snapshots")
        for name, session in broker.sessions.items():
            if session.snapshots or session.inflight or session.resending:
                found.append(
                    f"session {name} with {len(session.snapshots)} snapshots, {len(session.inflight)} in flight, "
                    f"{len(session.resending)} to send again"
                )
            if session.connection is not None and session.queue:
                found.append(f"session {name} with {len(session.queue)} queued")
        return found

    def sums(self) -> tuple[int, int]:
        """Messages and bytes that the broker believes it holds."""
        return self.broker.retained.count, self.broker.retained.size


class LoggedWorld(World):
    """A world whose broker keeps a log. The log is a list, and nothing ever waits for it."""

    log: ListLog

    def make_broker(self) -> Broker:
        self.log = ListLog()
        broker = super().make_broker()
        broker.use_log(self.log)
        return broker


def core_settings(plan: Plan) -> Settings:
    limits: Limits = plan.limits
    settings = Settings()
    settings.max_inflight = plan.max_inflight
    settings.max_queued_messages = plan.max_queued
    settings.max_tombstones = plan.tombstones
    settings.max_retained_messages = limits.max_messages
    settings.max_retained_bytes = limits.max_bytes
    settings.max_retained_payload = limits.max_payload
    settings.retained_expiry_ms = limits.expiry_ms
    settings.max_retained_per_user = limits.max_per_user
    settings.max_retained_bytes_per_user = limits.max_bytes_per_user
    settings.strict_limits = limits.strict
    for rule in limits.rules:
        settings.policies.append(
            Policy(
                rule.topic_filter.encode(),
                ACTIONS[rule.action],
                rule.ttl_ms,
                rule.max_messages,
                rule.max_bytes,
                list(rule.users) or None,
            )
        )
    return settings
