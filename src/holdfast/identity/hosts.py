"""Addresses, and what all addresses of one host have in common: that is what is counted, banned and waited for."""

from collections.abc import Hashable
from ipaddress import IPv4Address, IPv6Address, ip_address

Address = IPv4Address | IPv6Address

# A subscriber to the Internet who is given one IPv6 address mostly has a whole /64 of them.
IPV6_PREFIX = 64


def parse_address(host: str) -> Address | None:
    """Returns None for what is no address, such as the path of a socket. A v4 address in v6 form is the v4 one."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def key_of_host(host: str) -> Hashable:
    """Returns what all addresses of one host have in common; what is no address stands for itself."""
    address = parse_address(host)
    return host if address is None else host_key(address)


def host_key(address: Address) -> Hashable:
    """Returns what all addresses of one host have in common."""
    if isinstance(address, IPv6Address):
        return (6, int(address) >> (128 - IPV6_PREFIX))
    return (4, int(address))
