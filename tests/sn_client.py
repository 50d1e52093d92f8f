"""A small synchronous MQTT-SN client for tests, 1.2 or 2.0 over real UDP, sharing no code with the product.

    sensor = SnClient(broker.ports["udp"], 2, "s1")
    sensor.connect()
    sensor.subscribe("a/#", qos=1)
    sensor.publish("a/b", b"1", qos=2)
    sensor.wait_for(1)
    sensor.messages    # [("a/b", b"1", 1, False)]

Requests are resent until they are answered, and whatever the server sends is acknowledged as it must be, so it works
through a network that loses, doubles and delays.
"""

from __future__ import annotations

import socket
import time
from typing import Self

RETRY_S = 0.15
TRIES = 50

Message = tuple[str, bytes, int, bool]

# Type codes of 1.2 and 2.0.
CONNECT, CONNACK = (0x04, 0x01), (0x05, 0x02)
REGISTER, REGACK = (0x0A, 0x10), (0x0B, 0x11)
PUBLISH, PUBACK = (0x0C, 0x03), (0x0D, 0x04)
PUBREC, PUBREL, PUBCOMP = (0x0F, 0x05), (0x10, 0x06), (0x0E, 0x07)
SUBSCRIBE, SUBACK = (0x12, 0x08), (0x13, 0x09)
PINGREQ, PINGRESP = (0x16, 0x0C), (0x17, 0x0D)
DISCONNECT = (0x18, 0x0E)
SLEEPREQ, SLEEPRESP = (0x18, 0x13), (0x18, 0x14)


def u16(number: int) -> bytes:
    return number.to_bytes(2, "big")


def packet(kind: int, body: bytes) -> bytes:
    size = len(body) + 2
    return bytes((size, kind)) + body if size < 256 else b"\x01" + u16(size + 2) + bytes((kind,)) + body


def unpack(data: bytes) -> tuple[int, bytes]:
    """Type and body; fails when the datagram is not exactly one packet."""
    head = 3 if data[0] == 1 else 1
    size = int.from_bytes(data[1:3], "big") if data[0] == 1 else data[0]
    assert size == len(data), f"packet states {size} bytes, got {len(data)}: {data.hex(' ')}"
    return data[head], data[head + 1 :]


class SnClient:
    def __init__(self, port: int, version: int, client_id: str, host: str = "127.0.0.1") -> None:
        self.two = version == 2
        self.client_id = client_id
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.connect((host, port))
        self.messages: list[Message] = []
        self.names: dict[int, str] = {}
        self.ids: dict[str, int] = {}
        self.unreleased: set[int] = set()
        self.last_id = 0
        self.seen: list[tuple[int, bytes]] = []
        self.resent = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.sock.close()

    def code(self, kinds: tuple[int, int]) -> int:
        return kinds[1] if self.two else kinds[0]

    def next_id(self) -> bytes:
        self.last_id = self.last_id % 65535 + 1
        return u16(self.last_id)

    # Requests.

    def connect(self, clean: bool = True, keep_alive: int = 600, expiry_s: int = 0, max_packet_size: int = 0) -> None:
        name = self.client_id.encode()
        if self.two:
            flags = (1 if clean else 0) | (8 if expiry_s else 0)
            expiry = expiry_s.to_bytes(4, "big") if expiry_s else b""
            sizes = u16(keep_alive) + u16(max_packet_size)
            body = bytes((flags,)) + self.next_id() + b"\x02" + sizes + expiry + name
        else:
            body = bytes((4 if clean else 0, 1)) + u16(keep_alive) + name
        answer = self.request(CONNECT, body, CONNACK)
        reason = answer[3] if self.two else answer[0]
        assert reason == 0, f"connect refused with 0x{reason:02X}"

    def subscribe(self, topic_filter: str, qos: int = 0, handling: int = 0) -> None:
        packet_id = self.next_id()
        if self.two:
            body = bytes((qos << 5 | handling << 2 | 3,)) + packet_id + topic_filter.encode()
            answer = self.request(SUBSCRIBE, body, SUBACK, packet_id, 1)
            if answer[0] & 4:
                alias = int.from_bytes(answer[3:5], "big")
                self.names[alias] = topic_filter
            assert answer[-1] < 0x80, f"subscribe refused with 0x{answer[-1]:02X}"
        else:
            body = bytes((qos << 5,)) + packet_id + topic_filter.encode()
            answer = self.request(SUBSCRIBE, body, SUBACK, packet_id, 3)
            assert answer[5] == 0, f"subscribe refused with 0x{answer[5]:02X}"
            topic_id = int.from_bytes(answer[1:3], "big")
            if topic_id:
                self.names[topic_id] = topic_filter

    def register(self, topic: str) -> int:
        if topic not in self.ids:
            packet_id = self.next_id()
            answer = self.request(REGISTER, u16(0) + packet_id + topic.encode(), REGACK, packet_id, 2)
            assert answer[4] == 0
            self.ids[topic] = int.from_bytes(answer[:2], "big")
            self.names[self.ids[topic]] = topic
        return self.ids[topic]

    def publish(self, topic: str, payload: bytes, qos: int = 0, retain: bool = False) -> None:
        flags = qos << 5 | (0x10 if retain else 0)
        where = u16(len(topic.encode())) + topic.encode() if self.two else u16(self.register(topic))
        packet_id = self.next_id() if qos else u16(0)
        if self.two:
            body = bytes((flags | 3,)) + (packet_id if qos else b"") + where + payload
        else:
            body = bytes((flags,)) + where + packet_id + payload
        if qos == 0:
            self.send(PUBLISH, body)
        elif qos == 1:
            answer = self.request(PUBLISH, body, PUBACK, packet_id, 0 if self.two else 2)
            assert answer[-1] == 0, f"publish refused with 0x{answer[-1]:02X}"
        else:
            self.request(PUBLISH, body, PUBREC, packet_id, 0, dup=True)
            self.request(PUBREL, packet_id, PUBCOMP, packet_id, 0)

    def ping(self) -> None:
        """Everything the server sent before its answer has arrived, if nothing gets lost."""
        packet_id = self.next_id() if self.two else b""
        self.request(PINGREQ, packet_id, PINGRESP, packet_id, 0)

    def sleep(self, seconds: int) -> None:
        if self.two:
            packet_id = self.next_id()
            self.request(SLEEPREQ, b"\x01" + packet_id + seconds.to_bytes(4, "big"), SLEEPRESP, packet_id, 1)
        else:
            self.request(SLEEPREQ, u16(seconds), SLEEPRESP)

    def wake(self) -> None:
        packet_id = self.next_id() if self.two else b""
        self.request(PINGREQ, packet_id if self.two else self.client_id.encode(), PINGRESP, packet_id, 0)

    def disconnect(self) -> None:
        if self.two:
            self.send(DISCONNECT, b"\x00")
        else:
            self.request(DISCONNECT, b"", DISCONNECT)

    # The wire.

    def send(self, kind: tuple[int, int], body: bytes) -> None:
        self.sock.send(packet(self.code(kind), body))

    def request(
        self,
        kind: tuple[int, int],
        body: bytes,
        answer: tuple[int, int],
        packet_id: bytes = b"",
        place: int = 0,
        dup: bool = False,
    ) -> bytes:
        """Send until answered; the body of the answer, which has the packet id in its place."""
        self.seen.clear()
        for attempt in range(TRIES):
            if attempt and dup:
                body = bytes((body[0] | 0x80,)) + body[1:]
            self.resent += attempt > 0
            self.send(kind, body)
            deadline = time.monotonic() + RETRY_S
            while (left := deadline - time.monotonic()) > 0:
                self.poll(left)
                for seen, found in self.seen:
                    if seen == self.code(answer) and found[place : place + len(packet_id)] == packet_id:
                        return found
        raise AssertionError(f"no answer of type 0x{self.code(answer):02X} to {body.hex(' ')}, got {self.seen}")

    def wait_for(self, count: int, timeout: float = 60.0) -> None:
        deadline = time.monotonic() + timeout
        while len(self.messages) < count:
            left = deadline - time.monotonic()
            assert left > 0, f"expected {count} messages in {timeout} s, got {len(self.messages)}"
            self.poll(min(left, 0.2))

    def poll(self, timeout: float) -> None:
        """Take one datagram, if one comes in time, and answer it."""
        self.sock.settimeout(max(timeout, 0.001))
        try:
            data = self.sock.recv(65535)
        except TimeoutError:
            return
        kind, body = unpack(data)
        if kind == self.code(PUBLISH):
            self.on_publish(body)
        elif kind == self.code(REGISTER):
            self.on_register(body)
        elif kind == self.code(PUBREL) and len(body) in (2, 3):
            self.unreleased.discard(int.from_bytes(body[:2], "big"))
            self.send(PUBCOMP, body[:2])
        else:
            self.seen.append((kind, body))

    def on_register(self, body: bytes) -> None:
        if self.two:
            self.names[int.from_bytes(body[3:5], "big")] = body[5:].decode()
            self.send(REGACK, b"\x00" + body[1:3] + b"\x00")
        else:
            self.names[int.from_bytes(body[:2], "big")] = body[4:].decode()
            self.send(REGACK, body[:4] + b"\x00")

    def on_publish(self, body: bytes) -> None:
        flags = body[0]
        qos, retain, kind = flags >> 5 & 3, flags & 0x10 != 0, flags & 3
        if self.two:
            packet_id, rest = (body[1:3], body[3:]) if qos else (b"", body[1:])
            number = int.from_bytes(rest[:2], "big")
            name, payload = (rest[2 : 2 + number].decode(), rest[2 + number :]) if kind == 3 else ("", rest[2:])
        else:
            number, packet_id, payload = int.from_bytes(body[1:3], "big"), body[3:5], body[5:]
            name = body[1:3].decode() if kind == 2 else ""
        topic = name or self.names.get(number, f"#{number}")
        identifier = int.from_bytes(packet_id, "big")
        if qos < 2 or identifier not in self.unreleased:
            self.messages.append((topic, payload, qos, retain))
        if qos == 1:
            self.send(PUBACK, packet_id + b"\x00" if self.two else body[1:3] + packet_id + b"\x00")
        elif qos == 2:
            self.unreleased.add(identifier)
            self.send(PUBREC, packet_id)
