"""One client on a byte stream, TCP or TLS: read, feed the broker, carry out what it asks for."""

import asyncio
import logging
from typing import Any, cast

from holdfast.broker.ports import Peer
from holdfast.broker.session import Connection
from holdfast.net.admission import ListenerPolicy
from holdfast.net.driver import Driver
from holdfast.net.login import Login
from holdfast.protocol.mqtt.connection import CLOSED

log = logging.getLogger("holdfast.net")

# Past this many unsent bytes the transport is full, and the outbox gathers instead. It is no more than the outbox may
# hold, so that who reads nothing costs at most twice that.
WRITE_HIGH_WATER = 512 * 1024
# How long a closed connection may take to swallow its last bytes.
CLOSE_GRACE_S = 3.0
# A publisher that is faster than most of its receivers is not read from for a step of this length, and again while it
# still is, but for no more steps than this.
PAUSE_STEP_S = 0.002
PAUSE_STEPS = 50
# A client that sends and does not read its answers is not read from until it does, and sent away if it does not for so
# long.
CHOKED_STEP_S = 0.05
CHOKED_S = 30.0

# Stands in for the connection of a peer that is closed.
GONE = Connection(Peer(), 0)
GONE.state = CLOSED


class StreamPeer(Peer, asyncio.Protocol):
    """`transport` is None once the connection is gone."""

    def __init__(self, driver: Driver, policy: ListenerPolicy) -> None:
        self.driver = driver
        self.policy = policy
        self.transport: asyncio.Transport | None = None
        self.address = ""
        self.host = ""
        self.login: Login | None = None  # None: by its certificate, or not at all yet
        self.counted = False  # by the connection limits, as one of its address
        self.received = 0  # bytes of packets, as `sent`
        self.sent = 0
        self.close_reason = ""
        self.held_until = 0.0  # not read from before: it is over a rate
        self.choked_until = 0.0  # by then it has read some of its answers, or is sent away
        self.closer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        high = min(WRITE_HIGH_WATER, self.driver.broker.settings.max_outbox_bytes)
        self.transport.set_write_buffer_limits(high=high, low=high // 4)
        if not self.host:  # a proxy has not said whose connection this is
            self.come_from(transport.get_extra_info("peername"))
        identity = certificate_name(transport.get_extra_info("peercert"), self.policy.identity)
        self.connection = self.driver.open(self, identity)
        objection = self.policy.admit(self, self.driver.loop.time())
        if objection:
            self.close(objection)

    def come_from(self, peername: object) -> None:
        self.address = format_address(peername)
        self.host = str(peername[0]) if isinstance(peername, tuple) and peername else ""

    def remote_address(self) -> str:
        return self.address

    def is_revoked(self) -> bool:
        """Whether the client's certificate would not be accepted any more."""
        certificates = self.policy.certificates
        return certificates is not None and certificates.refuse(self.transport)

    def data_received(self, data: bytes) -> None:
        driver = self.driver
        self.received += len(data)
        if self.policy.message_rate or driver.broker.user_rates.is_limited:
            self.receive_at_rate(data)
        else:
            driver.receive(self.connection, data)
        if self.transport is None:
            return
        if self.connection.outbox.is_choked():
            if not self.choked_until:
                self.transport.pause_reading()
                self.choked_until = driver.loop.time() + CHOKED_S
                driver.loop.call_later(CHOKED_STEP_S, self.read_on_when_read)
        elif (
            self.connection.backpressured
            or self.connection.pending is not None
            or self.connection.parked
            or driver.log.is_behind()
        ):
            self.transport.pause_reading()
            driver.loop.call_later(PAUSE_STEP_S, self.read_on_later, 1)

    def receive_at_rate(self, data: bytes) -> None:
        """Take what has come and count it; a client that is over a rate, alone or with others of its user, is not read
        from until it is within it again.
        """
        driver = self.driver
        broker = driver.broker
        counters = broker.counters
        packets, messages = counters.packets_received, sum(counters.messages_received)
        connection = self.connection
        driver.receive(connection, data)
        now = driver.loop.time()
        wait_s = self.policy.pour(self, counters.packets_received - packets, now)
        if broker.user_rates.is_limited and connection.session is not None:
            messages = sum(counters.messages_received) - messages
            wait_s = max(
                wait_s, broker.user_rates.pour(connection.username, messages, len(data), driver.now_ms() / 1000)
            )
        if wait_s > 0 and self.transport is not None:
            self.transport.pause_reading()
            self.held_until = now + wait_s
            driver.loop.call_later(wait_s, self.end_hold, self.held_until)

    def end_hold(self, until: float) -> None:
        if self.held_until == until:  # and no longer one has begun
            self.held_until = 0.0
            self.read_on()

    def read_on(self) -> None:
        """Read on, if there is nothing else that forbids it; what does leads here again."""
        if self.transport is not None and not self.transport.is_closing():
            if not self.held_until and not self.choked_until:
                self.transport.resume_reading()

    def read_on_later(self, steps: int) -> None:
        """Read on as soon as one of the receivers has room, and soon in any case: no reader may stall a publisher."""
        if self.transport is None or self.transport.is_closing():
            return
        driver = self.driver
        waits = steps < PAUSE_STEPS and driver.broker.is_backpressured(self.connection, driver.now_ms())
        if waits or self.connection.pending is not None or self.connection.parked or driver.log.is_behind():
            driver.loop.call_later(PAUSE_STEP_S, self.read_on_later, steps + 1)
        else:
            self.connection.backpressured = False
            self.read_on()

    def read_on_when_read(self) -> None:
        """Read on when the client has read its answers; send it away when it has not for long."""
        if self.transport is None or self.transport.is_closing():
            return
        driver = self.driver
        if not self.connection.outbox.is_choked():
            self.choked_until = 0.0
            self.read_on()
        elif driver.loop.time() < self.choked_until or not self.connection.outbox.blocked:
            driver.loop.call_later(CHOKED_STEP_S, self.read_on_when_read)
        else:
            driver.send_away(self.connection, "does not read its answers")

    def pause_writing(self) -> None:
        waiting = self.transport.get_write_buffer_size() if self.transport is not None else 0
        self.connection.outbox.block(self.driver.now_ms(), waiting)

    def resume_writing(self) -> None:
        self.driver.on_writable(self.connection)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self.policy.release(self)
        if self.closer is not None:
            self.closer.cancel()
            self.closer = None
        connection = self.connection
        self.connection = GONE  # no cycle may keep a closed connection in memory
        reason = self.close_reason
        if not reason:
            reason = "connection lost" if exc is None else f"connection lost: {exc}"
        self.driver.lost(connection)
        log.debug(
            "closed",
            extra={"address": self.address, "client_id": connection.client_id, "reason": reason},
        )

    # What the broker asks.

    def write(self, data: bytes) -> None:
        self.sent += len(data)
        if self.transport is not None:
            self.transport.write(data)

    def close(self, reason: str) -> None:
        transport = self.transport
        if transport is None or self.close_reason:
            return
        self.close_reason = reason
        transport.close()
        # A client that does not read would keep its last bytes, and so the socket, for ever.
        self.closer = self.driver.loop.call_later(CLOSE_GRACE_S, self.abort)

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()


def format_address(peername: object) -> str:
    if isinstance(peername, tuple) and len(peername) >= 2:
        host, port = peername[0], peername[1]
        return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
    return str(peername or "")


def certificate_name(certificate: dict[str, Any] | None, identity: str) -> str:
    """The name in the client's certificate, empty when there is none: its common name, or an alternative one."""
    if not certificate:
        return ""
    if identity == "san":
        names = certificate.get("subjectAltName", ())
        return next((str(value) for kind, value in names if kind in ("DNS", "email", "URI")), "")
    for part in certificate.get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return str(value)
    return ""
