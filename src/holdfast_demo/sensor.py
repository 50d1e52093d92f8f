"""A battery sensor of the demo: MQTT-SN 1.2 or 2.0 over UDP, one request at a time, resent until it is answered."""

import asyncio
from typing import Final, TypeVar

from holdfast.errors import ConnectionFailed
from holdfast.protocol.sn import v2_decode, v2_encode, v12
from holdfast.protocol.sn.packets import (
    NAME,
    NORMAL,
    PUBACK,
    Ack,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    Publish,
    RegAck,
    Register,
)

RETRY_S: Final = 3.0
TRIES: Final = 4
KEEP_ALIVE_S: Final = 120

Answer = TypeVar("Answer", bound=Packet)


class _Port(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.received: asyncio.Queue[bytes] = asyncio.Queue()

    def datagram_received(self, data: bytes, _address: object) -> None:
        self.received.put_nowait(data)


class Sensor:
    """`version` is 1 for MQTT-SN 1.2, which registers a topic before it uses it, and 2 for 2.0, which need not."""

    def __init__(self, port: int, version: int, client_id: str) -> None:
        self.port, self.version, self.client_id = port, version, client_id
        self.resent = 0
        self._topic_ids: dict[str, int] = {}
        self._last_id = 0

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        self._transport, self._socket = await loop.create_datagram_endpoint(_Port, remote_addr=("127.0.0.1", self.port))
        packet = Connect(self.client_id, self.version, True, KEEP_ALIVE_S)
        packet.packet_id = self._next_id()
        answer = await self._ask(packet, ConnAck)
        if answer.reason != 0:
            raise ConnectionFailed(f"sensor {self.client_id} was refused with 0x{answer.reason:02X}", answer.reason)

    async def publish(self, topic: str, payload: bytes) -> None:
        """A retained reading at QoS 1."""
        if self.version == 1:
            packet = Publish(NORMAL, await self._topic_id(topic), b"", payload, 1, True)
        else:
            packet = Publish(NAME, 0, topic.encode(), payload, 1, True)
        packet.packet_id = self._next_id()
        answer = await self._ask(packet, Ack)
        if answer.kind != PUBACK or answer.reason != 0:
            raise ConnectionFailed(f"a reading of sensor {self.client_id} was refused with 0x{answer.reason:02X}")

    def close(self) -> None:
        if hasattr(self, "_transport"):
            self._transport.sendto(self._encode(Disconnect()))
            self._transport.close()

    async def _topic_id(self, topic: str) -> int:
        if topic not in self._topic_ids:
            answer = await self._ask(Register(0, self._next_id(), topic.encode()), RegAck)
            self._topic_ids[topic] = answer.topic_id
        return self._topic_ids[topic]

    def _next_id(self) -> int:
        self._last_id = self._last_id % 0xFFFF + 1
        return self._last_id

    def _encode(self, packet: Packet) -> bytes:
        return v12.encode(packet) if self.version == 1 else v2_encode.encode(packet)

    async def _ask(self, packet: Packet, wanted: type[Answer]) -> Answer:
        """Send until answered. A repeat has the DUP flag, so the broker may take a message twice but never lose it."""
        for attempt in range(TRIES):
            if attempt and isinstance(packet, Publish):
                packet.dup = True
                self.resent += 1
            self._transport.sendto(self._encode(packet))
            try:
                return await asyncio.wait_for(self._answer(wanted), RETRY_S)
            except TimeoutError:
                continue
        raise ConnectionFailed(f"sensor {self.client_id} got no answer from UDP port {self.port} in {TRIES} tries")

    async def _answer(self, wanted: type[Answer]) -> Answer:
        while True:
            data = await self._socket.received.get()
            packet = v12.decode(data) if self.version == 1 else v2_decode.decode(data)
            if isinstance(packet, wanted) and getattr(packet, "packet_id", 0) in (0, self._last_id):
                return packet
