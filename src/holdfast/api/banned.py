"""Bans that an operator adds and lifts while the broker runs, beside those of the configuration and those of addresses
that failed to log in too often.

They live where the configuration's live, so every listener asks for them, and a reload of the configuration, which
fills those places anew, ends them.
"""

import asyncio
from collections.abc import Hashable, MutableMapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address, ip_network
from typing import Literal, Protocol, cast

from holdfast.errors import UsageError
from holdfast.protocol.mqtt.reasons import BANNED
from holdfast.service.messages import iso
from holdfast.service.source import BrokerHandle

Kind = Literal["clientid", "username", "peerhost", "peerhost_net"]
Network = IPv4Network | IPv6Network
FOR_EVER = "infinity"
IPV6_PREFIX = 64  # of what counts as one host


class AddressBans(Protocol):
    """`networks` are those an operator names; `until` has those that failed too often, by host, in loop time."""

    networks: list[Network]

    @property
    def until(self) -> MutableMapping[Hashable, float]: ...


@dataclass(frozen=True)
class Note:
    by: str = ""
    reason: str = ""
    at: str = ""
    until: str = FOR_EVER


CONFIGURED = Note(by="configuration")
FAILED = Note(by="broker", reason="failed to log in too often", until="")


@dataclass
class BanList:
    handle: BrokerHandle
    addresses: AddressBans
    notes: dict[tuple[str, str], Note] = field(default_factory=dict)

    def entries(self) -> list[tuple[str, str, Note]]:
        settings = self.handle.broker.settings
        found: list[tuple[str, str]] = [
            *(("clientid", name) for name in sorted(settings.banned_client_ids)),
            *(("username", name) for name in sorted(settings.banned_users)),
            *(kind_and_name(network) for network in self.addresses.networks),
        ]
        known = [(kind, who, self.notes.get((kind, who), CONFIGURED)) for kind, who in found]
        now_s = asyncio.get_running_loop().time()
        failed = [kind_and_name(network_of(key)) for key, until in self.addresses.until.items() if until > now_s]
        return [*known, *((kind, who, FAILED) for kind, who in failed)]

    def add(self, kind: Kind, who: str, note: Note, lasts_s: float | None, caller_address: str) -> tuple[str, str]:
        """Ban, and disconnect those with the name. Returns kind and name as they are listed. Raises UsageError."""
        settings = self.handle.broker.settings
        key: tuple[str, str] = (kind, who)
        if kind == "clientid":
            settings.banned_client_ids |= {who}
            self.handle.kick(who, BANNED, "banned by the operator")
        elif kind == "username":
            settings.banned_users |= {who}
            for session in list(self.handle.broker.sessions.values()):
                if session.owner == who and session.connection is not None:
                    self.handle.kick(session.client_id, BANNED, "banned by the operator")
        else:
            network = parse(who)
            if has(network, caller_address):
                raise UsageError(f"{who} has your own address in it, expected others only")
            if network not in self.addresses.networks:
                self.addresses.networks = [*self.addresses.networks, network]
            key = kind_and_name(network)
        self.notes[key] = note
        if lasts_s is not None:
            asyncio.get_running_loop().call_later(max(0.0, lasts_s), self.end, key, note)
        return key

    def end(self, key: tuple[str, str], note: Note) -> None:
        """What an alarm does when a ban is over, unless it is another one by now."""
        if self.notes.get(key) is note:
            self.lift(cast(Kind, key[0]), key[1])

    def lift(self, kind: Kind, who: str) -> bool:
        """Returns whether there was such a ban."""
        settings = self.handle.broker.settings
        self.notes.pop((kind, who), None)
        if kind == "clientid":
            there = who in settings.banned_client_ids
            settings.banned_client_ids -= {who}
            return there
        if kind == "username":
            there = who in settings.banned_users
            settings.banned_users -= {who}
            return there
        network = parse(who)
        failed = [key for key in self.addresses.until if network_of(key) == network]
        for key in failed:
            del self.addresses.until[key]
        kept = [one for one in self.addresses.networks if one != network]
        there = len(kept) < len(self.addresses.networks) or bool(failed)
        self.addresses.networks = kept
        self.notes.pop(kind_and_name(network), None)
        return there


def parse(text: str) -> Network:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        raise UsageError(f"expected an address, or a network such as 192.0.2.0/24, got {text!r}") from None


def kind_and_name(network: Network) -> tuple[str, str]:
    if network.prefixlen == network.max_prefixlen:
        return "peerhost", str(network.network_address)
    return "peerhost_net", str(network)


def network_of(host: Hashable) -> Network:
    """The network of a host by the key under which its failures are counted: 4 or 6, and the bits that matter."""
    version, bits = cast(tuple[int, int], host)
    if version == 4:
        return ip_network(IPv4Address(bits))
    return IPv6Network((bits << (128 - IPV6_PREFIX), IPV6_PREFIX))


def has(network: Network, address: str) -> bool:
    try:
        return ip_address(address) in network
    except ValueError:
        return False


def moment(at_ms: int | None) -> str:
    return FOR_EVER if at_ms is None else iso(at_ms)
