"""What operators ask of a cluster through one of its nodes: how it is doing, and to drain, remove or compare nodes."""

import asyncio
import json
from typing import Any

from holdfast.broker.entries import encode_node_removed
from holdfast.broker.pending import NOTHING, Member, Pending
from holdfast.errors import NoAnswer, NotFound, StoreError, UsageError
from holdfast.node.cluster_node import DRAIN, ClusterNode


class Operations:
    def __init__(self, node: ClusterNode) -> None:
        self.node = node

    @property
    def name(self) -> str:
        return self.node.options.node

    @property
    def not_ready(self) -> str:
        return self.node.not_ready

    @property
    def cannot_write(self) -> str:
        return self.node.cannot_write

    async def drain_node(self, name: str) -> None:
        """Drain this node or another one. Raises UsageError when there is none of that name, or it does not answer."""
        self.need_member(name)
        if name == self.node.options.node:
            self.node.drain()
            return
        try:
            await self.node.channel.request(name, DRAIN)
        except NoAnswer as error:
            raise UsageError(f"node {name!r} does not answer, expected one that runs: {error}") from None

    async def remove(self, name: str) -> None:
        """Forget a node that will not come back; returns when all nodes can know."""
        self.need_member(name)
        peer = self.node.presence.peers.get(name)
        if name == self.node.options.node or (peer is not None and peer.is_alive):
            raise UsageError(f"node {name!r} is running: stop it first")
        self.node.shared.propose(encode_node_removed(name), Pending(NOTHING, None))
        await self.come_back()

    def need_member(self, name: str) -> None:
        if name not in self.node.shared.members:
            raise NotFound(f"there is no node {name!r}, expected one of {', '.join(sorted(self.node.shared.members))}")
        if self.cannot_write:
            raise StoreError(f"the cluster cannot be changed through this node now: {self.cannot_write}")

    async def come_back(self) -> None:
        """Return when all that was proposed so far has come back from the log."""
        done: asyncio.Future[StoreError | None] = self.node.loop.create_future()
        self.node.shared.flush(lambda error: None if done.done() else done.set_result(error))
        self.node.propose()
        error = await done
        if error is not None:
            raise error

    def status(self) -> dict[str, Any]:
        shared = self.node.shared
        stream = self.node.stream
        nodes = [self.status_of(member) for member in sorted(shared.members.values(), key=lambda each: each.name)]
        return {
            "name": self.node.options.stream.name,
            "node": self.node.options.node,
            "ready": self.node.ready,
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
            "clock_difference_ms": self.node.driver.skew_ms,
            "live_lost": self.node.channel.lost,
            "nodes": nodes,
        }

    def system_topics(self) -> dict[str, str]:
        """What clients find below `$SYS/broker/`."""
        shared = self.node.shared
        up = sorted(member.name for member in shared.members.values() if member.up)
        return {
            "cluster/name": self.node.options.stream.name,
            "cluster/node": self.node.options.node,
            "cluster/nodes": " ".join(up),
            "cluster/position": str(shared.sequence),
            "cluster/lag": str(max(0, self.node.stream.last_seq - shared.sequence)),
            "cluster/ready": "1" if self.node.ready else "0",
        }

    def status_of(self, member: Member) -> dict[str, Any]:
        mine = member.name == self.node.options.node
        said = json.loads(self.node.say()) if mine else self.node.claims.get(member.name)
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
                "lag": max(0, self.node.stream.last_seq - int(said["sequence"])),
                "hash": said["chain"],
                "offset": said["offset"],
                "clients": said["clients"],
                "ready": said["ready"],
                "detail": said["detail"],
                "agrees": self.node.agreement.agrees(int(said["sequence"]), said["chain"]),
            }
        return known

    async def verify(self) -> dict[str, str]:
        """The hash of the state of every node at one position, by name; empty for one that did not answer in time."""
        if self.cannot_write:
            raise StoreError(f"the nodes cannot be compared through this one now: {self.cannot_write}")
        return await self.node.agreement.verify()
