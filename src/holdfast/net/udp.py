"""MQTT-SN over UDP: many datagrams a wake-up in, one pass over what the broker asks for, datagrams out.

The socket is read here and not through a datagram protocol of the loop, so that a whole batch is handled before the
effects of all of it are carried out once.
"""

import asyncio
import logging
import secrets
import socket
from collections import deque

from holdfast.broker.session import Connection
from holdfast.broker.sn.gateway import Gateway
from holdfast.broker.sn.ports import DatagramPeer, Datagrams, SnSettings
from holdfast.identity.hosts import key_of_host
from holdfast.net.admission import ListenerPolicy
from holdfast.net.driver import Driver
from holdfast.net.login import Login
from holdfast.net.peer import GONE, format_address
from holdfast.protocol.sn.frame import Envelope, datagrams

log = logging.getLogger("holdfast.net")

LARGEST = 65_535
# Datagrams handled in one wake-up; the rest wait, so that other clients have their turn.
BATCH = 512
# The kernel's buffer for what has arrived; as much of it as the system allows.
RECEIVE_BUFFER = 8 * 1024 * 1024
# UDP has no way to say "slower". More than this at once would overrun the buffer of an ordinary client, so that a pause
# follows, whatever the datagrams came from: one long write or many short ones.
BURST = 64
PAUSE_S = 0.005
# What may wait for such pauses; of more, as a client that asks without end would have it, the rest is lost.
BACKLOG_MOST = 32_768
# How long to leave the socket alone while the disk is behind.
PAUSE_READING_S = 0.002


class SnPeer(DatagramPeer):
    """One client. `connection` is GONE once it is closed, so that the two do not keep each other in memory."""

    __slots__ = (
        "backlog",
        "burst",
        "connection",
        "endpoint",
        "envelope",
        "last_sent",
        "login",
        "policy",
        "socket_address",
    )

    def __init__(self, endpoint: "UdpEndpoint", socket_address: object, envelope: Envelope | None) -> None:
        self.endpoint = endpoint
        self.policy = endpoint.policy
        self.socket_address = socket_address
        self.envelope = envelope
        self.login: Login | None = None
        self.connection: Connection = GONE
        self.burst = 0  # datagrams since the last pause
        self.last_sent = 0.0
        self.backlog: deque[bytes] | None = None  # what waits for the pause to end

    @property
    def address(self) -> str:
        return format_address(self.socket_address)

    @property
    def host(self) -> str:
        address = self.socket_address
        return str(address[0]) if isinstance(address, tuple) and address else ""

    def remote_address(self) -> str:
        return self.address

    def write(self, data: bytes) -> None:
        packets = datagrams(data, self.envelope)
        if self.backlog is not None:
            room = BACKLOG_MOST - len(self.backlog)
            self.endpoint.not_sent += max(0, len(packets) - room)
            self.backlog.extend(packets[: max(0, room)])
            return
        driver = self.endpoint.driver
        now = driver.loop.time()
        if now - self.last_sent >= PAUSE_S:
            self.burst = 0
        self.last_sent = now
        room = BURST - self.burst
        for packet in packets[:room]:
            self.endpoint.transmit(packet, self.socket_address)
        self.burst += min(room, len(packets))
        if len(packets) > room:
            self.backlog = deque(packets[room:])
            self.connection.outbox.block(driver.now_ms(), 0)
            driver.loop.call_later(PAUSE_S, self.go_on)

    def go_on(self) -> None:
        backlog = self.backlog
        if backlog is None:
            return
        driver = self.endpoint.driver
        self.last_sent = driver.loop.time()
        self.burst = min(BURST, len(backlog))
        for _ in range(self.burst):
            self.endpoint.transmit(backlog.popleft(), self.socket_address)
        if backlog:
            driver.loop.call_later(PAUSE_S, self.go_on)
            return
        self.backlog = None
        driver.on_writable(self.connection)

    def close(self, reason: str) -> None:
        log.debug("closed", extra={"address": self.address, "client_id": self.connection.client_id, "reason": reason})
        self.connection = GONE

    def attach(self, connection: Connection) -> None:
        self.connection = connection

    def move(self, address: object, envelope: Envelope | None) -> None:
        self.socket_address = address
        self.envelope = envelope


class UdpEndpoint(Datagrams):
    """One UDP socket and the clients behind it."""

    def __init__(self, driver: Driver, policy: ListenerPolicy, settings: SnSettings, sock: socket.socket) -> None:
        self.driver = driver
        self.policy = policy
        self.sock = sock
        self.gateway = Gateway(driver.broker, settings, self)
        self.timers: dict[str, asyncio.TimerHandle] = {}
        self.reading = False
        self.not_sent = 0

    def start(self) -> None:
        self.reading = True
        self.driver.loop.add_reader(self.sock, self.on_readable)

    def stop_reading(self) -> None:
        if self.reading:
            self.reading = False
            self.driver.loop.remove_reader(self.sock)
        for timer in self.timers.values():
            timer.cancel()
        self.timers.clear()

    def close(self) -> None:
        self.stop_reading()
        self.sock.close()

    def on_readable(self) -> None:
        driver = self.driver
        bans = self.policy.bans
        arrived: list[tuple[bytes, object, str]] = []
        for _ in range(BATCH):
            try:
                data, address = self.sock.recvfrom(LARGEST)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                continue  # an earlier datagram of ours was not wanted; this says nothing about the socket
            if not bans.is_empty and bans.bans(address[0], driver.loop.time()):
                continue
            arrived.append((data, address, counted_as(address[0])))
        driver.carry_out(self.gateway.receive(arrived, driver.now_ms()))
        if driver.log.is_behind():
            driver.loop.remove_reader(self.sock)
            self.reading = False
            self.timers["pause"] = driver.loop.call_later(PAUSE_READING_S, self.read_on_later)

    def read_on_later(self) -> None:
        if self.driver.log.is_behind():
            self.timers["pause"] = self.driver.loop.call_later(PAUSE_READING_S, self.read_on_later)
        else:
            self.start()

    def advertise(self, to: tuple[str, int], interval_s: float) -> None:
        """Tell those who look for a gateway that there is one, now and every `interval_s`."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        for packet in self.gateway.advertisements(int(interval_s)):
            self.transmit(packet, to)
        self.timers["advertise"] = self.driver.loop.call_later(interval_s, self.advertise, to, interval_s)

    def transmit(self, packet: bytes, address: object) -> None:
        try:
            self.sock.sendto(packet, address)  # type: ignore[call-overload]  # it is what recvfrom gave
        except OSError as error:
            # A datagram may get lost anywhere; here it is at least counted.
            self.not_sent += 1
            log.debug("datagram not sent", extra={"address": format_address(address), "error": str(error)})

    # What the core asks.

    def open(self, address: object, envelope: Envelope | None) -> DatagramPeer:
        return SnPeer(self, address, envelope)

    def unguessable_id(self) -> int:
        return secrets.randbelow(65_535) + 1

    def send(self, packet: bytes, address: object, envelope: Envelope | None) -> None:
        self.driver.broker.counters.bytes_sent += len(packet)
        self.transmit(packet if envelope is None else envelope.wrap(packet), address)


def counted_as(host: str) -> str:
    """Returns what the gateway counts a host by: of an IPv6 address, the network that one host mostly has."""
    return str(key_of_host(host)) if ":" in host else host


def open_socket(host: str, port: int) -> socket.socket:
    family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    sock = socket.socket(family, kind, number)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        sock.setblocking(False)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock
