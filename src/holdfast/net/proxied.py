"""A connection that a load balancer passes on: its header is read first, then the client takes over."""

import asyncio
import logging
from typing import cast

from holdfast.net.driver import Driver
from holdfast.net.gate import Gate
from holdfast.net.peer import StreamPeer, format_address
from holdfast.net.proxy import parse_header

log = logging.getLogger("holdfast.net")


class ProxiedStart(asyncio.Protocol):
    """Stands in for `peer` until it is known whose connection this is. Who is no named proxy is let through as is."""

    def __init__(self, driver: Driver, gate: Gate, peer: StreamPeer, timeout_s: float) -> None:
        self.driver = driver
        self.gate = gate
        self.peer = peer
        self.timeout_s = timeout_s
        self.transport: asyncio.Transport | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.data = b""
        self.address = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        place = transport.get_extra_info("peername")
        self.address = format_address(place)
        if not self.gate.is_proxy(str(place[0])):
            self.hand_over(place, b"")
            return
        self.gate.peers.add(self)
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
        place = (header.host, header.port) if header.host else self.transport.get_extra_info("peername")
        self.hand_over(place, self.data[header.size :])

    def hand_over(self, place: object, rest: bytes) -> None:
        transport = self.transport
        assert transport is not None
        self.leave()
        self.peer.come_from(place)
        transport.set_protocol(self.peer)
        self.peer.connection_made(transport)
        if rest and not transport.is_closing():
            self.peer.data_received(rest)

    def connection_lost(self, exc: Exception | None) -> None:
        self.leave()

    def leave(self) -> None:
        self.transport = None
        self.gate.peers.discard(self)
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
