"""Everything that went into a broker and came out of it, so that it can be played to another one."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass

from model.debts import Mismatch
from model.drive import Driver
from model.steps import Plan
from model.world import Buffer, Link, World


@dataclass(frozen=True)
class Input:
    kind: str
    connection: int
    data: bytes
    now_ms: int


class RecordingWorld(World):
    """A world that notes what it hands to the broker. What came out is in the buffers of `peers`, in order."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.tape: list[Input] = []
        self.peers: list[Archive] = []
        self.opened: list[Link] = []

    def note(self, kind: str, link: Link | None = None, data: bytes = b"") -> None:
        number = next((at for at, each in enumerate(self.opened) if each is link), -1)
        self.tape.append(Input(kind, number, data, self.now_ms))

    def open(self, client: str, version: int) -> Link:
        peer = Archive()
        link = Link(peer, self.broker.open(peer, self.now_ms), version)
        self.links[client] = link
        self.opened.append(link)
        self.peers.append(peer)
        self.note("open", link)
        return link

    def send(self, link: Link, data: bytes) -> None:
        self.note("receive", link, data)
        super().send(link, data)

    def lose(self, client: str) -> None:
        self.note("lost", self.links[client])
        super().lose(client)

    def block(self, link: Link) -> None:
        self.note("block", link)
        super().block(link)

    def unblock(self, link: Link) -> None:
        self.note("unblock", link)
        super().unblock(link)

    def tick(self) -> None:
        self.note("tick")
        super().tick()

    def work(self) -> None:
        self.note("work")
        super().work()


class Archive(Buffer):
    """A buffer that never forgets."""

    def __init__(self) -> None:
        super().__init__()
        self.everything: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.everything.append(data)
        super().write(data)

    def close(self, reason: str) -> None:
        self.everything.append(b"closed: " + reason.encode())
        super().close(reason)


def record(plan: Plan) -> RecordingWorld:
    """Carry a plan out and note it. Whether the broker is right is not asked here: a run that goes wrong ends early."""
    worlds: list[RecordingWorld] = []

    def make(plan: Plan) -> World:
        worlds.append(RecordingWorld(plan))
        return worlds[0]

    with contextlib.suppress(Mismatch):
        Driver(plan, make).run()
    return worlds[0]


def play(plan: Plan, tape: list[Input]) -> list[Archive]:
    """Give another broker the same input; what it wrote to each connection."""
    world = World(plan)
    links: list[Link] = []
    names: list[str] = []
    for event in tape:
        world.now_ms = event.now_ms
        if event.kind == "open":
            peer = Archive()
            links.append(Link(peer, world.broker.open(peer, world.now_ms), 5))
            names.append(str(len(names)))
            world.links[names[-1]] = links[-1]
        elif event.kind == "receive":
            world.send(links[event.connection], event.data)
        elif event.kind == "lost":
            world.lose(names[event.connection])
        elif event.kind == "block":
            world.block(links[event.connection])
        elif event.kind == "unblock":
            world.unblock(links[event.connection])
        elif event.kind == "tick":
            world.tick()
        else:
            world.work()
    archives = []
    for link in links:
        assert isinstance(link.peer, Archive)
        archives.append(link.peer)
    return archives


def digest(peers: list[Archive]) -> str:
    """A fingerprint of all output."""
    whole = hashlib.sha256()
    for peer in peers:
        for piece in peer.everything:
            whole.update(len(piece).to_bytes(4, "big") + piece)
        whole.update(b"|")
    return whole.hexdigest()
