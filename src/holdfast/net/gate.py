"""What a listener lets through: from where, how many connections at once, how many packets a second from each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from holdfast.net.bans import Bans, parse_address, parse_network
from holdfast.net.crowd import Crowd

if TYPE_CHECKING:
    from holdfast.net.peer import StreamPeer

# How long a client may save up unused rate.
BURST_S = 1.0


class Guest(Protocol):
    """Whoever stands in the gate: a client, or a connection of which that is not known yet."""

    def close(self, reason: str) -> None: ...

    def abort(self) -> None: ...


class Gate:
    """`bans` and `crowd` are shared by all listeners; `proxies` are the load balancers that are believed."""

    def __init__(
        self,
        max_connections: int = 0,
        message_rate: float = 0,
        allow_anonymous: bool = True,
        bans: Bans | None = None,
        crowd: Crowd | None = None,
        proxies: tuple[str, ...] = (),
        identity: str = "cn",
    ) -> None:
        self.max_connections = max_connections
        self.message_rate = message_rate
        self.allow_anonymous = allow_anonymous
        self.bans = bans if bans is not None else Bans()
        self.crowd = crowd if crowd is not None else Crowd()
        self.proxies = [parse_network(text) for text in proxies]
        self.identity = identity
        self.peers: set[Guest] = set()
        self.debts: dict[StreamPeer, tuple[float, float]] = {}

    def enter(self, peer: StreamPeer) -> str:
        """Let a client in; why not, if not."""
        self.peers.add(peer)
        if 0 < self.max_connections < len(self.peers):
            return "too many connections on this listener"
        now = peer.driver.loop.time()
        if self.bans.bans(peer.host, now):
            return "the address is banned"
        if self.crowd.is_limited:
            if not self.crowd.enter(peer.host, now):
                return "too many connections from this address"
            peer.counted = True
        return ""

    def is_proxy(self, host: str) -> bool:
        address = parse_address(host)
        return address is not None and any(address in network for network in self.proxies)

    def leave(self, peer: StreamPeer) -> None:
        self.peers.discard(peer)
        if peer.counted:
            peer.counted = False
            self.crowd.leave(peer.host)
        self.debts.pop(peer, None)

    def meter(self, peer: StreamPeer, packets: int) -> None:
        """Charge packets to a client; one that is over its rate is not read from until it has paid."""
        now = peer.driver.loop.time()
        debt, since = self.debts.get(peer, (0.0, now))
        debt = max(0.0, debt - (now - since) * self.message_rate) + packets
        self.debts[peer] = (debt, now)
        over = debt - self.message_rate * BURST_S
        if over > 0 and peer.transport is not None:
            peer.transport.pause_reading()
            peer.driver.loop.call_later(over / self.message_rate, self.resume, peer)

    def resume(self, peer: StreamPeer) -> None:
        if peer.transport is not None and not peer.transport.is_closing():
            peer.transport.resume_reading()
