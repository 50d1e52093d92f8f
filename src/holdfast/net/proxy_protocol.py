"""The PROXY protocol, versions 1 and 2: how a load balancer says whose connection it passes on.

The parser is bytes in, address out. `ProxyHeaderReader` reads the header of a connection, if it comes from a proxy that
is believed, and then the client takes over. The header is short by definition: one that is longer is an error.
"""

import asyncio
import logging
import socket
from dataclasses import dataclass
from typing import cast

from holdfast.net.admission import ListenerPolicy
from holdfast.net.driver import Driver
from holdfast.net.peer import StreamPeer, format_address

log = logging.getLogger("holdfast.net")

SIGNATURE_2 = b"\r\n\r\n\x00\r\nQUIT\n"
LONGEST_1 = 107
LONGEST_2 = 16 + 2048
LOCAL, PROXY = 0, 1
STREAM_4, STREAM_6 = 0x11, 0x21


@dataclass(frozen=True)
class Header:
    """`host` is empty where the balancer speaks for itself (a health check) or does not say whose it is."""

    host: str
    port: int
    size: int


def parse_header(data: bytes) -> Header | None:
    """Returns the header at the start of a connection, None while it is not whole; raises ValueError if it is none."""
    if data[:1] == b"P":
        return parse_text(data)
    if data[: len(SIGNATURE_2)] == SIGNATURE_2[: len(data)]:
        return parse_binary(data) if len(data) >= 16 else None
    raise ValueError("expected a PROXY header")


def parse_text(data: bytes) -> Header | None:
    end = data.find(b"\r\n", 0, LONGEST_1)
    if end < 0:
        if len(data) >= LONGEST_1 or not b"PROXY "[: len(data)] == data[:6]:
            raise ValueError("expected a PROXY header that ends within 107 bytes")
        return None
    words = data[:end].decode("ascii", errors="replace").split(" ")
    if words[:2] == ["PROXY", "UNKNOWN"]:
        return Header("", 0, end + 2)
    if len(words) != 6 or words[0] != "PROXY" or words[1] not in ("TCP4", "TCP6"):
        raise ValueError("expected PROXY TCP4 or TCP6 with two addresses and two ports")
    family = socket.AF_INET if words[1] == "TCP4" else socket.AF_INET6
    for host in words[2:4]:
        check_host(family, host)
    return Header(words[2], parse_port(words[4]), end + 2) if parse_port(words[5]) >= 0 else None


def parse_binary(data: bytes) -> Header | None:
    version, command = data[12] >> 4, data[12] & 15
    family = data[13]
    length = data[14] << 8 | data[15]
    if version != 2 or command not in (LOCAL, PROXY):
        raise ValueError(f"expected version 2 and a known command, got 0x{data[12]:02X}")
    size = 16 + length
    if size > LONGEST_2:
        raise ValueError(f"expected a header of at most {LONGEST_2} bytes, got {size}")
    if len(data) < size:
        return None
    if command == LOCAL:
        return Header("", 0, size)
    if family == STREAM_4 and length >= 12:
        return Header(socket.inet_ntop(socket.AF_INET, data[16:20]), data[24] << 8 | data[25], size)
    if family == STREAM_6 and length >= 36:
        return Header(socket.inet_ntop(socket.AF_INET6, data[16:32]), data[48] << 8 | data[49], size)
    raise ValueError(f"expected TCP over IPv4 or IPv6, got family 0x{family:02X} with {length} bytes")


def check_host(family: socket.AddressFamily, host: str) -> None:
    try:
        socket.inet_pton(family, host)
    except (OSError, ValueError):
        raise ValueError("expected an address of the family that the header names") from None


def parse_port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 5 or int(text) > 65535:
        raise ValueError("expected a port from 0 to 65535")
    return int(text)


class ProxyHeaderReader(asyncio.Protocol):
    """Stands in for `peer` until the header has said whose connection this is.

    A connection that does not come from a named proxy is handed to the peer as it is.
    """

    def __init__(self, driver: Driver, policy: ListenerPolicy, peer: StreamPeer, timeout_s: float) -> None:
        self.driver = driver
        self.policy = policy
        self.peer = peer
        self.timeout_s = timeout_s
        self.transport: asyncio.Transport | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.data = b""
        self.address = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        peername = transport.get_extra_info("peername")
        self.address = format_address(peername)
        if not self.policy.is_proxy(str(peername[0])):
            self.hand_over(peername, b"")
            return
        self.policy.peers.add(self)
        self.timer = self.driver.loop.call_later(self.timeout_s, self.close, "no PROXY header in time")

    def data_received(self, data: bytes) -> None:
        self.data += data
        try:
            header = parse_header(self.data)
        except ValueError as error:
            self.close(str(error))
            return
        if header is None or self.transport is None:
            return
        peername = (header.host, header.port) if header.host else self.transport.get_extra_info("peername")
        self.hand_over(peername, self.data[header.size :])

    def hand_over(self, peername: object, rest: bytes) -> None:
        transport = self.transport
        assert transport is not None
        self.leave()
        self.peer.come_from(peername)
        transport.set_protocol(self.peer)
        self.peer.connection_made(transport)
        if rest and not transport.is_closing():
            self.peer.data_received(rest)

    def connection_lost(self, exc: Exception | None) -> None:
        self.leave()

    def leave(self) -> None:
        self.transport = None
        self.policy.peers.discard(self)
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def close(self, reason: str) -> None:
        if self.transport is not None:
            log.warning("proxied connection refused", extra={"address": self.address, "reason": reason})
            self.abort()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()
