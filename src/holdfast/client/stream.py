"""Byte streams to a broker: one shape for TCP, TLS, Unix sockets and WebSockets."""

import asyncio
import contextlib
import socket
import ssl
from abc import ABC, abstractmethod
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

from holdfast.client.endpoint import UNIX, WS, WSS, Endpoint
from holdfast.errors import ConnectionFailed

READ_SIZE: Final = 1 << 18


class Stream(ABC):
    @abstractmethod
    async def read(self) -> bytes:
        """Returns some bytes; none at the end of the stream. Raises OSError."""

    @abstractmethod
    def write(self, data: bytes) -> None: ...

    @abstractmethod
    async def drain(self) -> None:
        """Wait until what was written is not piling up. Raises OSError."""

    @abstractmethod
    async def close(self) -> None: ...


class SocketStream(Stream):
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> bytes:
        return await self._reader.read(READ_SIZE)

    def write(self, data: bytes) -> None:
        if not self._writer.is_closing():  # else whoever reads hears of the end
            self._writer.write(data)

    async def drain(self) -> None:
        await self._writer.drain()

    async def close(self) -> None:
        self._writer.close()
        # The other side may have gone first, or never answer the closing of TLS: neither matters any more.
        with contextlib.suppress(OSError, TimeoutError, ssl.SSLError):
            async with asyncio.timeout(2.0):  # unlike wait_for() it lets no cancellation get lost
                await self._writer.wait_closed()


async def open_stream(endpoint: Endpoint, timeout_s: float) -> Stream:
    """Returns a connected stream. Raises ConnectionFailed with one line that says what to look at."""
    try:
        async with asyncio.timeout(timeout_s):
            stream: Stream = await _open_socket(endpoint)
            if endpoint.transport in (WS, WSS):
                from holdfast.client.stream import open_websocket

                stream = await open_websocket(stream, endpoint)
            return stream
    except TimeoutError:
        raise ConnectionFailed(f"could not connect to {endpoint}: no answer within {timeout_s:g} s") from None
    except OSError as error:
        raise ConnectionFailed(f"could not connect to {endpoint}: {explain(error)}") from error


async def _open_socket(endpoint: Endpoint) -> SocketStream:
    if endpoint.transport == UNIX:
        return SocketStream(*await asyncio.open_unix_connection(endpoint.path, limit=READ_SIZE))
    context = endpoint.tls.context() if endpoint.encrypted else None
    bind = (endpoint.bind_address, 0) if endpoint.bind_address is not None else None
    return SocketStream(
        *await asyncio.open_connection(
            endpoint.host, endpoint.actual_port, ssl=context, local_addr=bind, limit=READ_SIZE
        )
    )


def explain(error: OSError) -> str:
    """Returns the cause in a few words, with the likely remedy where there is one."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message}) - is --cafile right?"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or error}) - does that port speak TLS?"
    if isinstance(error, ConnectionRefusedError) or "Connect call failed" in str(error):
        return "refused - is the broker running?"
    if isinstance(error, socket.gaierror):
        return "the host name is not known"
    if isinstance(error, FileNotFoundError):
        return "no such socket - is the broker running?"
    if isinstance(error, ConnectionResetError):
        return "the broker closed the connection"
    return (error.strerror or str(error) or type(error).__name__).lower()


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
