"""A small synchronous MQTT client for tests, over a real socket, sharing no code with the product.

    client = WireClient(broker.port, version=5)
    client.connect("me", properties=[(P.RECEIVE_MAXIMUM, 5)])
    client.subscribe("a/#", qos=1)
    client.publish("a/b", b"1", qos=1)
    client.expect(Publish, topic="a/b", payload=b"1", qos=1)

`send` takes raw bytes, mostly from the builders of `wire_packets`; `recv` gives decoded packets. Anything unexpected
fails with both sides decoded. To show that nothing came, prefer `expect_no_message` (a PINGREQ as a barrier) over
`expect_nothing` (a wait): a broker answers on one connection in order, so what is not there before PINGRESP was not
sent.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Self, TypeVar, cast, overload

from wire_packets import (
    Acknowledgement,
    Auth,
    ConnAck,
    Disconnect,
    Packet,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Text,
    UnsubAck,
    Will,
    auth,
    connect,
    decode,
    disconnect,
    frame,
    options,
    pingreq,
    puback,
    pubcomp,
    publish,
    pubrec,
    pubrel,
    subscribe,
    unsubscribe,
)
from wire_properties import P, Properties, Property, binary, property_block, text, u16, u32, varint

__all__ = [
    "Acknowledgement",
    "Auth",
    "ConnAck",
    "Disconnect",
    "P",
    "Packet",
    "PingResp",
    "Properties",
    "Property",
    "PubAck",
    "PubComp",
    "PubRec",
    "PubRel",
    "Publish",
    "SubAck",
    "Text",
    "UnsubAck",
    "Will",
    "WireClient",
    "auth",
    "binary",
    "connect",
    "decode",
    "disconnect",
    "frame",
    "options",
    "pingreq",
    "property_block",
    "puback",
    "pubcomp",
    "publish",
    "pubrec",
    "pubrel",
    "subscribe",
    "text",
    "u16",
    "u32",
    "unsubscribe",
    "varint",
]

AnyPacket = TypeVar("AnyPacket", bound=Packet)

PATIENCE_S = 60.0  # a busy machine is not a broker that says nothing


class Closed(AssertionError):
    """The broker closed the connection while a packet was expected."""


class WireClient:
    """`patience_s` is how long it waits for what must come, unless it is told how long."""

    patience_s = PATIENCE_S

    def __init__(
        self,
        port: int,
        version: int = 4,
        *,
        host: str = "127.0.0.1",
        sock: socket.socket | None = None,
        receive_buffer: int | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`sock` is anything that sends and receives the MQTT byte stream (TLS, WebSocket); else TCP is opened.

        `now` gives the seconds that time-outs are counted in.
        """
        if sock is None:
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            if receive_buffer is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            sock.settimeout(self.patience_s)
            sock.connect((host, port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self.now = now
        self.version = version
        self.client_id = ""
        self.connack: ConnAck | None = None
        self._buffer = bytearray()
        self._waiting: deque[Packet] = deque()
        self._last_id = 0
        self._eof = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()

    # Connecting and leaving

    def connect(
        self, client_id: Text = "", *, check: bool = True, timeout: float | None = None, **fields: Any
    ) -> ConnAck:
        """Send CONNECT (fields as in `wire_packets.connect`) and return the CONNACK; with `check` it must say 0."""
        self.send(connect(client_id, version=self.version, **fields))
        answer = self.expect(ConnAck, timeout=timeout)
        if check and answer.code != 0:
            raise AssertionError(f"expected CONNACK with 0x00, got {answer}")
        self.client_id = client_id if isinstance(client_id, str) else client_id.decode()
        self.client_id = answer.prop(P.ASSIGNED_CLIENT_ID) or self.client_id
        self.connack = answer
        return answer

    def disconnect(self, reason: int | None = None, properties: Iterable[Property] | None = None) -> None:
        """Leave cleanly, and wait until the broker has closed its side, so that what follows happens after it."""
        self.send(disconnect(reason, properties))
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)
        self._drain_to_eof(self.patience_s)
        self.sock.close()

    def cut(self) -> None:
        """Drop the connection without DISCONNECT (FIN)."""
        self.sock.close()

    def reset(self) -> None:
        """Drop the connection with a TCP reset."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def has_come(self) -> bool:
        """Whether anything has come that was not received yet."""
        arrived = select.poll()  # select() knows no descriptor above 1023
        arrived.register(self.sock, select.POLLIN)
        return bool(self._waiting or self._buffer or arrived.poll(0))

    # Sending

    def send(self, data: bytes) -> None:
        self.sock.settimeout(self.patience_s)
        self.sock.sendall(data)

    def next_id(self) -> int:
        self._last_id = self._last_id % 65535 + 1
        return self._last_id

    def send_publish(self, topic: Text, payload: bytes | str = b"", *, qos: int = 0, **fields: Any) -> int | None:
        """Send PUBLISH without waiting for anything; returns the packet id used."""
        if qos and "packet_id" not in fields:
            fields["packet_id"] = self.next_id()
        self.send(publish(topic, payload, qos=qos, version=self.version, **fields))
        return cast("int | None", fields.get("packet_id"))

    def publish(
        self, topic: Text, payload: bytes | str = b"", *, qos: int = 0, check: bool = True, **fields: Any
    ) -> Acknowledgement | None:
        """Send PUBLISH and finish its handshake; returns PUBACK, PUBCOMP, a refusing PUBREC, or None at QoS 0.

        At QoS 0 a PINGREQ follows, so that on return the broker has handled the message.
        """
        packet_id = self.send_publish(topic, payload, qos=qos, **fields)
        if qos == 0:
            self.ping()
            return None
        answer: Acknowledgement = self._wait_for(PubAck if qos == 1 else PubRec, packet_id=packet_id)
        if check and answer.reason >= 0x80:
            raise AssertionError(f"expected the publish to be accepted, got {answer}")
        if qos == 2 and answer.reason < 0x80:
            assert packet_id is not None
            self.send(pubrel(packet_id))
            return self._wait_for(PubComp, packet_id=packet_id)
        return answer

    def subscribe(
        self,
        *filters: Text | tuple[Text, int],
        qos: int = 0,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
        properties: Iterable[Property] = (),
        packet_id: int | None = None,
        check: bool = True,
    ) -> SubAck:
        """Subscribe and wait for SUBACK; messages that come before it stay queued for `recv`.

        A filter is a text with the options of the arguments, or a pair (text, options byte).
        """
        packet_id = packet_id or self.next_id()
        option = options(
            qos, no_local=no_local, retain_as_published=retain_as_published, retain_handling=retain_handling
        )
        pairs = [item if isinstance(item, tuple) else (item, option) for item in filters]
        self.send(subscribe(packet_id, pairs, version=self.version, properties=properties))
        answer = self._wait_for(SubAck, packet_id=packet_id)
        if check and any(code >= 0x80 for code in answer.codes):
            raise AssertionError(f"expected every filter to be granted, got {answer}")
        return answer

    def unsubscribe(
        self, *filters: Text, properties: Iterable[Property] = (), packet_id: int | None = None
    ) -> UnsubAck:
        packet_id = packet_id or self.next_id()
        self.send(unsubscribe(packet_id, filters, version=self.version, properties=properties))
        return self._wait_for(UnsubAck, packet_id=packet_id)

    def ack(self, message: Publish) -> None:
        """Finish the receiver's half of the handshake of a message."""
        if message.qos == 1:
            assert message.packet_id is not None
            self.send(puback(message.packet_id))
        elif message.qos == 2:
            assert message.packet_id is not None
            self.send(pubrec(message.packet_id))
            self._wait_for(PubRel, packet_id=message.packet_id)
            self.send(pubcomp(message.packet_id))

    def ping(self) -> None:
        """PINGREQ and its PINGRESP; whatever came in between stays queued for `recv`."""
        self.send(pingreq())
        self._wait_for(PingResp)

    # Receiving

    def recv(self, timeout: float | None = None) -> Packet:
        """The next packet, in the order of arrival."""
        if self._waiting:
            return self._waiting.popleft()
        return self._read_packet(timeout)

    @overload
    def expect(self, expected: type[AnyPacket], *, timeout: float | None = ..., **fields: Any) -> AnyPacket: ...
    @overload
    def expect(self, expected: AnyPacket, *, timeout: float | None = ...) -> AnyPacket: ...
    @overload
    def expect(self, expected: bytes, *, timeout: float | None = ...) -> Packet: ...
    def expect(self, expected: Any, *, timeout: float | None = None, **fields: Any) -> Any:
        """The next packet must be this one: exact bytes, equal fields, or a class with some of its fields."""
        wanted = _describe(expected, fields, self.version)
        try:
            got = self.recv(timeout)
        except Closed as closed:
            raise Closed(f"expected {wanted}, {closed}") from None
        except TimeoutError:
            raise AssertionError(f"expected {wanted}, got nothing in {timeout or self.patience_s} s") from None
        if not _matches(got, expected, fields):
            raise AssertionError(f"expected {wanted}\n     got {got}\n         {_hex(got.raw)}")
        return got

    def messages(self, count: int, *, ack: bool = True, timeout: float | None = None) -> list[Publish]:
        """The next `count` packets, all PUBLISH, acknowledged as they come."""
        out: list[Publish] = []
        while len(out) < count:
            try:
                message = self.expect(Publish, timeout=timeout)
            except AssertionError as problem:
                raise AssertionError(f"after {len(out)} of {count} messages: {problem}") from None
            out.append(message)
            if ack:
                self.ack(message)
        return out

    def barrier(self) -> list[Packet]:
        """Everything the broker had sent on this connection by the time it answered a PINGREQ."""
        self.ping()
        out = list(self._waiting)
        self._waiting.clear()
        return out

    def everything(self) -> list[Packet]:
        """What the broker sends until nothing comes before the answer to a PINGREQ. The rest of a long snapshot, or of
        a long queue, comes behind the first answer.
        """
        out: list[Packet] = []
        while more := self.barrier():
            out += more
        return out

    def expect_no_message(self) -> None:
        """The broker has sent nothing on this connection, as seen by a PINGREQ sent now."""
        got = self.barrier()
        if got:
            raise AssertionError("expected nothing before PINGRESP, got " + ", ".join(str(packet) for packet in got))

    def expect_nothing(self, seconds: float = 0.25) -> None:
        """Nothing arrives for a while and the connection stays open; for cases that a PINGREQ would disturb."""
        try:
            got = self.recv(seconds)
        except TimeoutError:
            return
        raise AssertionError(f"expected nothing for {seconds} s, got {got}")

    def expect_closed(self, timeout: float | None = None) -> None:
        """The broker closes the connection, and sends nothing more before that."""
        try:
            got = self.recv(timeout)
        except Closed:
            return
        except TimeoutError:
            raise AssertionError(
                f"expected the broker to close the connection, still open after {timeout or self.patience_s} s"
            ) from None
        raise AssertionError(f"expected the broker to close the connection, got {got}\n     {_hex(got.raw)}")

    def expect_disconnect(self, reason: int, timeout: float | None = None) -> Disconnect:
        """5.0: DISCONNECT with this reason code, then the end of the connection."""
        got = self.expect(Disconnect, reason=reason, timeout=timeout)
        self.expect_closed(timeout)
        return got

    def drain_until_closed(self, timeout: float | None = None) -> list[Packet]:
        """All packets up to the end of the connection, which must come."""
        out = []
        while True:
            try:
                out.append(self.recv(timeout))
            except Closed:
                return out
            except TimeoutError:
                raise AssertionError(f"expected the broker to close the connection, got {out} and silence") from None

    def _wait_for(self, kind: type[AnyPacket], **fields: Any) -> AnyPacket:
        """The first packet of this kind; others that come before it stay queued in order."""
        for index, packet in enumerate(self._waiting):
            if _matches(packet, kind, fields):
                del self._waiting[index]
                return cast("AnyPacket", packet)
        deadline = self.now() + self.patience_s
        while True:
            try:
                packet = self._read_packet(max(0.01, deadline - self.now()))
            except Closed as closed:
                wanted = _describe(kind, fields, self.version)
                raise Closed(f"expected {wanted}, {closed} after {self._passed()}") from None
            except TimeoutError:
                wanted = _describe(kind, fields, self.version)
                raise AssertionError(f"expected {wanted}, got {self._passed()}") from None
            if _matches(packet, kind, fields):
                return cast("AnyPacket", packet)
            self._waiting.append(packet)

    def _passed(self) -> str:
        return ", ".join(str(packet) for packet in self._waiting) or "nothing"

    def _read_packet(self, timeout: float | None) -> Packet:
        deadline = self.now() + (self.patience_s if timeout is None else timeout)
        while True:
            size = _frame_size(self._buffer)
            if size is not None and len(self._buffer) >= size:
                raw = bytes(self._buffer[:size])
                del self._buffer[:size]
                return decode(raw, self.version)
            if self._eof:
                rest = f" inside a packet ({_hex(bytes(self._buffer))})" if self._buffer else ""
                raise Closed(f"the broker closed the connection{rest}")
            left = deadline - self.now()
            if left <= 0:
                raise TimeoutError
            self.sock.settimeout(left)
            try:
                data = self.sock.recv(65536)
            except (ConnectionResetError, BrokenPipeError):
                data = b""
            if not data:
                self._eof = True
            self._buffer += data

    def _drain_to_eof(self, timeout: float) -> None:
        deadline = self.now() + timeout
        with contextlib.suppress(OSError):
            while (left := deadline - self.now()) > 0:
                self.sock.settimeout(left)
                if not self.sock.recv(65536):
                    return


def _frame_size(buffer: bytearray) -> int | None:
    """Bytes of the first packet with its header, or None while the remaining length is incomplete."""
    value = 0
    for index in range(1, min(len(buffer), 5)):
        value |= (buffer[index] & 0x7F) << 7 * (index - 1)
        if not buffer[index] & 0x80:
            return 1 + index + value
    if len(buffer) >= 5:
        raise AssertionError(f"broker sent a remaining length of more than 4 bytes: {_hex(bytes(buffer[:8]))}")
    return None


def _matches(got: Packet, expected: Any, fields: dict[str, Any]) -> bool:
    if isinstance(expected, bytes):
        return got.raw == expected
    if isinstance(expected, type):
        return isinstance(got, expected) and all(getattr(got, name) == value for name, value in fields.items())
    return bool(got == expected)


def _describe(expected: Any, fields: dict[str, Any], version: int) -> str:
    if isinstance(expected, bytes):
        return f"{decode(expected, version)}\n         {_hex(expected)}"
    if isinstance(expected, type):
        return f"{expected.__name__}({', '.join(f'{name}={value!r}' for name, value in fields.items())})"
    return str(expected)


def _hex(data: bytes) -> str:
    return data.hex(" ") if len(data) <= 64 else f"{data[:64].hex(' ')} ... ({len(data)} bytes)"
