"""MQTT over WebSocket, from the client's side: wsproto frames, another stream carries the bytes."""

from typing import Final

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Message,
    Ping,
    RejectConnection,
    Request,
)
from wsproto.utilities import ProtocolError as FramingError

from holdfast.client.endpoint import Endpoint
from holdfast.client.stream import Stream
from holdfast.errors import ConnectionFailed

SUBPROTOCOL: Final = "mqtt"


class WebSocketStream(Stream):
    def __init__(self, inner: Stream, connection: WSConnection) -> None:
        self._inner = inner
        self._connection = connection
        self._ended = False

    async def read(self) -> bytes:
        while not self._ended:
            data = await self._inner.read()
            if not data:
                return b""
            if payload := self._unframe(data):
                return payload
            await self._inner.drain()
        return b""

    def _unframe(self, data: bytes) -> bytes:
        try:
            self._connection.receive_data(data)
            return self.payloads()
        except FramingError as error:
            raise ConnectionFailed(f"the broker broke the WebSocket protocol: {error}") from error

    def payloads(self) -> bytes:
        """Returns the MQTT bytes in what has been received; answers pings and closes on the way."""
        parts: list[bytes] = []
        for event in self._connection.events():
            if isinstance(event, BytesMessage):
                parts.append(bytes(event.data))
            elif isinstance(event, Message):  # [5: MQTT-6.0.0-1]
                raise ConnectionFailed("the broker sent a text frame, expected binary ones")
            elif isinstance(event, Ping):
                self._inner.write(self._connection.send(event.response()))
            elif isinstance(event, CloseConnection):
                self._inner.write(self._connection.send(event.response()))
                self._ended = True
        return b"".join(parts)

    def write(self, data: bytes) -> None:
        self._inner.write(self._connection.send(BytesMessage(data=data)))

    async def drain(self) -> None:
        await self._inner.drain()

    async def close(self) -> None:
        if not self._ended:
            self._ended = True
            self._inner.write(self._connection.send(CloseConnection(code=1000)))
        await self._inner.close()


async def open_websocket(inner: Stream, endpoint: Endpoint) -> WebSocketStream:
    connection = WSConnection(ConnectionType.CLIENT)
    request = Request(host=str(endpoint), target=endpoint.path, subprotocols=[SUBPROTOCOL])
    inner.write(connection.send(request))
    try:
        await _handshake(inner, connection, endpoint)
    except FramingError as error:
        await inner.close()
        raise ConnectionFailed(f"could not connect to {endpoint}: no WebSocket there ({error})") from error
    except BaseException:
        await inner.close()
        raise
    return WebSocketStream(inner, connection)


async def _handshake(inner: Stream, connection: WSConnection, endpoint: Endpoint) -> None:
    while True:
        data = await inner.read()
        if not data:
            raise ConnectionFailed(f"could not connect to {endpoint}: closed during the WebSocket handshake")
        connection.receive_data(data)
        for event in connection.events():
            if isinstance(event, RejectConnection):
                answer = f"HTTP {event.status_code} for {endpoint.path} - is the path right?"
                raise ConnectionFailed(f"could not connect to {endpoint}: {answer}")
            if isinstance(event, AcceptConnection):
                if event.subprotocol != SUBPROTOCOL:
                    raise ConnectionFailed(
                        f"could not connect to {endpoint}: subprotocol is {event.subprotocol!r}, expected 'mqtt'"
                    )
                return
