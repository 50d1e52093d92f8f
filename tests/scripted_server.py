"""A broker that does exactly what a test tells it, on a real socket: to see what a client does when one misbehaves."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast.protocol.mqtt.decode import decode
from holdfast.protocol.mqtt.encode import encode
from holdfast.protocol.mqtt.frame import FrameBuffer
from holdfast.protocol.mqtt.packets import ConnAck, Connect, Packet

AnyPacket = TypeVar("AnyPacket", bound=Packet)


class Visit:
    """One connection, seen from the server. `next` is the next packet, `None` when the client has gone."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.version = 4
        self._reader = reader
        self._writer = writer
        self._frames = FrameBuffer()

    async def next(self) -> Packet | None:
        while (frame := self._frames.take()) is None:
            data = await self._reader.read(65536)
            if not data:
                return None
            self._frames.feed(data)
        packet = decode(frame[0], frame[1], self.version)
        if isinstance(packet, Connect):
            self.version = packet.version
        return packet

    async def expect(self, kind: type[AnyPacket]) -> AnyPacket:
        packet = await self.next()
        assert isinstance(packet, kind), f"expected {kind.__name__}, got {packet}"
        return packet

    def send(self, *packets: Packet) -> None:
        for packet in packets:
            self.send_raw(encode(packet, self.version))

    def send_raw(self, data: bytes) -> None:
        self._writer.write(data)

    async def accept(self, connack: ConnAck | None = None) -> Connect:
        connect = await self.expect(Connect)
        self.send(connack or ConnAck(False, 0))
        return connect

    async def expect_silence(self, seconds: float = 0.1) -> None:
        try:
            packet = await asyncio.wait_for(self.next(), seconds)
        except TimeoutError:
            return
        raise AssertionError(f"expected nothing, got packet type {None if packet is None else packet.kind}")


Script = Callable[[Visit], Awaitable[None]]


class ScriptedServer:
    """Each connection runs the next script, then is closed. What a script raises comes out when the server is left."""

    def __init__(self, *scripts: Script) -> None:
        self._scripts = list(scripts)
        self._visits: list[asyncio.Task[None]] = []
        self._server: asyncio.Server | None = None
        self.port = 0

    async def __aenter__(self) -> "ScriptedServer":
        self._server = await asyncio.start_server(self._on_connection, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        if kind is None:
            assert not self._scripts, f"{len(self._scripts)} connections were expected and did not come"
            await asyncio.wait_for(asyncio.gather(*self._visits), 60)
        for visit in self._visits:
            visit.cancel()
        await asyncio.gather(*self._visits, return_exceptions=True)

    async def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        script = self._scripts.pop(0)
        self._visits.append(asyncio.create_task(self._run(script, reader, writer)))

    async def _run(self, script: Script, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await script(Visit(reader, writer))
        finally:
            writer.close()
