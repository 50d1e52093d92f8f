"""Addresses that are turned away: those an operator names, and for a while those that keep failing to log in."""

from collections import OrderedDict, deque
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# Addresses whose failures are remembered. With more of them the oldest are forgotten; the list never grows.
REMEMBERED = 100_000
# Whoever is given one IPv6 address mostly has a whole /64 of them.
IPV6_PREFIX = 64


class Bans:
    """Times are seconds of the caller's clock."""

    def __init__(
        self,
        addresses: list[str] | None = None,
        failures: int = 0,
        window_s: float = 60,
        duration_s: float = 300,
        exempt: list[str] | None = None,
    ) -> None:
        self.failed: OrderedDict[object, deque[float]] = OrderedDict()
        self.until: OrderedDict[object, float] = OrderedDict()
        self.configure(addresses or [], failures, window_s, duration_s, exempt or [])

    def configure(
        self, addresses: list[str], failures: int, window_s: float, duration_s: float, exempt: list[str]
    ) -> None:
        """New rules; who is banned for failures stays banned."""
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
        place = place_of(address)
        until = self.until.get(place)
        if until is None:
            return False
        if until <= now:
            del self.until[place]
            return False
        return True

    def on_failure(self, host: str, now: float) -> bool:
        """Count a failed login; True when it is the one that brings a ban."""
        address = parse_address(host)
        if self.failures == 0 or address is None or any(address in network for network in self.exempt):
            return False
        place = place_of(address)
        times = self.failed.pop(place, None)
        if times is None:
            times = deque(maxlen=self.failures)
            if len(self.failed) >= REMEMBERED:
                self.failed.popitem(last=False)
        self.failed[place] = times
        times.append(now)
        if len(times) < self.failures or times[0] <= now - self.window_s:
            return False
        del self.failed[place]
        if len(self.until) >= REMEMBERED:
            self.until.popitem(last=False)
        self.until[place] = now + self.duration_s
        return True


def parse_network(text: str) -> Network:
    return ip_network(text, strict=False)


def parse_address(host: str) -> Address | None:
    """None for what is no address, such as the path of a socket. A v4 address in v6 form counts as the v4 one."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def place_of(address: Address) -> object:
    if isinstance(address, IPv6Address):
        return (6, int(address) >> (128 - IPV6_PREFIX))
    return (4, int(address))
