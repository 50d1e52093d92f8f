"""Which connections a listener takes, how many at once and from where, and how fast each of them may send.

Three things decide, from the outside in. `Bans` turns addresses away: those an operator names, and for a while those
that keep failing to log in. `ConnectionLimits` bounds what one address may have and open, over all listeners together.
`ListenerPolicy` is what one listener asks: both of these, its own number of connections, and the rate of packets.
Times are seconds of the caller's clock.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Hashable
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import TYPE_CHECKING, Protocol

from holdfast.broker.rate import BURST_S, LeakyBucket
from holdfast.identity.hosts import host_key, key_of_host, parse_address

if TYPE_CHECKING:
    from holdfast.net.tls import Certificates

Network = IPv4Network | IPv6Network

# Addresses whose rate is remembered before the idle ones are forgotten.
REMEMBERED_RATES = 10_000
# Addresses whose failures are remembered. With more of them the oldest are forgotten; the list never grows.
REMEMBERED_FAILURES = 100_000


class Closable(Protocol):
    """A connection as the end of the server sees it: a client, or one of which that is not known yet."""

    def close(self, reason: str) -> None: ...

    def abort(self) -> None: ...


class Guest(Closable, Protocol):
    """A connection that wants in. `counted`: by the connection limits, as one of its address."""

    host: str
    counted: bool

    @property
    def transport(self) -> asyncio.BaseTransport | None: ...


class ListenerPolicy:
    """`bans` and `limits` are shared by all listeners; `proxies` are the load balancers that are believed;
    `allow_anonymous` and `identity` may change while it works.
    """

    def __init__(
        self,
        max_connections: int = 0,
        message_rate: float = 0,
        allow_anonymous: bool = True,
        bans: Bans | None = None,
        limits: ConnectionLimits | None = None,
        proxies: tuple[str, ...] = (),
        identity: str = "cn",
        certificates: Certificates | None = None,
    ) -> None:
        self.max_connections = max_connections
        self.message_rate = message_rate
        self.allow_anonymous = allow_anonymous
        self.bans = bans if bans is not None else Bans()
        self.limits = limits if limits is not None else ConnectionLimits()
        self.proxies = [parse_network(text) for text in proxies]
        self.identity = identity
        self.certificates = certificates
        self.peers: set[Closable] = set()
        self.buckets: dict[Guest, LeakyBucket] = {}

    def admit(self, peer: Guest, now: float) -> str:
        """Counts a new connection. Returns why it must be refused, or an empty string when it may stay."""
        self.peers.add(peer)
        if 0 < self.max_connections < len(self.peers):
            return "too many connections on this listener"
        if self.bans.bans(peer.host, now):
            return "the address is banned"
        if self.certificates is not None and (objection := self.certificates.objection(peer.transport)):
            return objection
        if self.limits.is_limited:
            if not self.limits.admit(peer.host, now):
                return "too many connections from this address"
            peer.counted = True
        return ""

    def holds(self, peer: Guest) -> bool:
        """Returns whether a connection would still be taken with the certificate that it has shown."""
        return self.certificates is None or not self.certificates.refuse(peer.transport)

    def is_proxy(self, host: str) -> bool:
        address = parse_address(host)
        return address is not None and any(address in network for network in self.proxies)

    def release(self, peer: Guest) -> None:
        """Forgets a connection that has ended; a refused one too."""
        self.peers.discard(peer)
        if peer.counted:
            peer.counted = False
            self.limits.release(peer.host)
        self.buckets.pop(peer, None)

    def pour(self, peer: Guest, packets: int, now: float) -> float:
        """Counts packets of a client; returns for how many seconds nothing more should be read from it."""
        if not self.message_rate:
            return 0.0
        bucket = self.buckets.get(peer)
        if bucket is None:
            bucket = self.buckets[peer] = LeakyBucket(self.message_rate, self.message_rate * BURST_S)
        return bucket.pour(packets, now)


class ConnectionLimits:
    """How many connections one address may have, and how many new ones a second. 0 is no limit. All addresses of an
    IPv6 host count as one.
    """

    def __init__(self, most: int = 0, rate: float = 0) -> None:
        self.most = most
        self.rate = rate
        self.present: dict[Hashable, int] = {}
        self.buckets: dict[Hashable, LeakyBucket] = {}

    @property
    def is_limited(self) -> bool:
        return self.most > 0 or self.rate > 0

    def admit(self, host: str, now: float) -> bool:
        """Returns whether one more connection from this address may come; if so it counts until `release`."""
        key = key_of_host(host)
        if self.most > 0 and self.present.get(key, 0) >= self.most:
            return False
        if self.rate > 0 and not self.is_in_rate(key, now):
            return False
        self.present[key] = self.present.get(key, 0) + 1
        return True

    def release(self, host: str) -> None:
        key = key_of_host(host)
        left = self.present.get(key, 0) - 1
        if left > 0:
            self.present[key] = left
        else:
            self.present.pop(key, None)

    def is_in_rate(self, key: Hashable, now: float) -> bool:
        """Counts one connection and returns whether it is within the rate. A second's worth may come at once."""
        bucket = self.buckets.get(key)
        if bucket is None:
            if len(self.buckets) >= REMEMBERED_RATES:
                self.buckets = {name: held for name, held in self.buckets.items() if held.drain(now) > 0}
            bucket = self.buckets[key] = LeakyBucket(self.rate, max(self.rate, 1.0))
        return bucket.offer(now)


class Bans:
    """Addresses that are turned away: those an operator names, and those that failed to log in too often."""

    def __init__(
        self,
        addresses: list[str] | None = None,
        failures: int = 0,
        window_s: float = 60,
        duration_s: float = 300,
        exempt: list[str] | None = None,
    ) -> None:
        self.failed: OrderedDict[Hashable, deque[float]] = OrderedDict()
        self.until: OrderedDict[Hashable, float] = OrderedDict()
        self.configure(addresses or [], failures, window_s, duration_s, exempt or [])

    def configure(
        self, addresses: list[str], failures: int, window_s: float, duration_s: float, exempt: list[str]
    ) -> None:
        """Sets new rules; an address that is banned for its failures stays banned."""
        self.networks = [parse_network(text) for text in addresses]
        self.exempt = [parse_network(text) for text in exempt]
        self.failures = failures
        self.window_s = window_s
        self.duration_s = duration_s

    @property
    def is_empty(self) -> bool:
        """Whether nobody at all is turned away now, so that there is nothing to look up."""
        return not self.networks and not self.until

    def bans(self, host: str, now: float) -> bool:
        if self.is_empty:
            return False
        address = parse_address(host)
        if address is None:
            return False
        if any(address in network for network in self.networks):
            return True
        key = host_key(address)
        until = self.until.get(key)
        if until is None:
            return False
        if until <= now:
            del self.until[key]
            return False
        return True

    def on_failure(self, host: str, now: float) -> bool:
        """Counts a failed login and returns whether it is the one that brings a ban."""
        address = parse_address(host)
        if self.failures == 0 or address is None or any(address in network for network in self.exempt):
            return False
        key = host_key(address)
        times = self.failed.pop(key, None)
        if times is None:
            times = deque(maxlen=self.failures)
            if len(self.failed) >= REMEMBERED_FAILURES:
                self.failed.popitem(last=False)
        self.failed[key] = times
        times.append(now)
        if len(times) < self.failures or times[0] <= now - self.window_s:
            return False
        del self.failed[key]
        if len(self.until) >= REMEMBERED_FAILURES:
            self.until.popitem(last=False)
        self.until[key] = now + self.duration_s
        return True


def parse_network(text: str) -> Network:
    return ip_network(text, strict=False)
