"""What a listener lets through: how many connections at once, and how many packets a second from each."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.net.peer import StreamPeer

# How long a client may save up unused rate.
BURST_S = 1.0


class Gate:
    def __init__(self, max_connections: int = 0, message_rate: float = 0, allow_anonymous: bool = True) -> None:
        self.max_connections = max_connections
        self.message_rate = message_rate
        self.allow_anonymous = allow_anonymous
        self.peers: set[StreamPeer] = set()
        self.debts: dict[StreamPeer, tuple[float, float]] = {}

    def enter(self, peer: StreamPeer) -> bool:
        if 0 < self.max_connections <= len(self.peers):
            return False
        self.peers.add(peer)
        return True

    def leave(self, peer: StreamPeer) -> None:
        self.peers.discard(peer)
        self.debts.pop(peer, None)

    def meter(self, peer: StreamPeer, packets: int) -> None:
        """Charge packets to a client; one that is over its rate is not read from until it has paid."""
        now = peer.hub.loop.time()
        debt, since = self.debts.get(peer, (0.0, now))
        debt = max(0.0, debt - (now - since) * self.message_rate) + packets
        self.debts[peer] = (debt, now)
        over = debt - self.message_rate * BURST_S
        if over > 0 and peer.transport is not None:
            peer.transport.pause_reading()
            peer.hub.loop.call_later(over / self.message_rate, self.resume, peer)

    def resume(self, peer: StreamPeer) -> None:
        if peer.transport is not None and not peer.transport.is_closing():
            peer.transport.resume_reading()
