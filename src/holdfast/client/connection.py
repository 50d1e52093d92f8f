"""One connection to a broker: from CONNECT to its end, packets in and packets out."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from holdfast.client.endpoint import Endpoint
from holdfast.client.stream import Stream, explain, open_stream
from holdfast.errors import ConnectionFailed, ConnectionLost, ProtocolError, UsageError
from holdfast.protocol.mqtt.decode import decode
from holdfast.protocol.mqtt.encode import encode
from holdfast.protocol.mqtt.frame import NO_LIMIT, FrameBuffer
from holdfast.protocol.mqtt.packets import V5, V311, ConnAck, Connect, Disconnect, Packet, Publish, Will
from holdfast.protocol.mqtt.properties import Properties
from holdfast.protocol.mqtt.reasons import reason_name, return_code_name

DEFAULT_RECEIVE_MAXIMUM: Final = 65_535  # what 5.0 assumes of a server that names none
BRIDGE_BIT: Final = 0x80
Trace = Callable[[str, Packet], None]  # called with "sending" or "received" for each packet


@dataclass(frozen=True)
class Options:
    """How a client introduces itself and behaves."""

    client_id: str = ""
    version: int = V311
    clean_start: bool = True
    keep_alive: int = 60
    username: str | None = None
    password: bytes | None = None
    will: Will | None = None
    properties: Properties | None = None
    max_inflight: int = 20  # own limit of unacknowledged QoS 1 and 2 messages; the server's Receive Maximum also counts
    connect_timeout_s: float = 10.0
    reconnect: bool = False  # after a lost connection try again until it works, and subscribe again
    reconnect_max_s: float = 30.0
    trace: Trace | None = None
    is_bridge: bool = False  # says so in CONNECT of 3.1.1, as mosquitto's bridges do
    open_stream: Callable[[], Awaitable[Stream]] | None = None  # instead of a network connection to the endpoint


class BrokerConnection:
    def __init__(self, stream: Stream, endpoint: Endpoint, options: Options) -> None:
        self.endpoint = endpoint
        self.connack = ConnAck(False, 0)
        self.keep_alive_s = options.keep_alive
        self.written_at_s = 0.0
        self.read_at_s = 0.0
        self._stream = stream
        self._options = options
        properties = options.properties
        maximum = NO_LIMIT if properties is None else properties.maximum_packet_size or NO_LIMIT
        self._frames = FrameBuffer(maximum, strict=options.version == V5)
        self._aliases: dict[int, bytes] = {}
        self._max_packet = NO_LIMIT
        self._broken: str | None = None

    async def handshake(self) -> None:
        """Sends CONNECT and reads CONNACK. Raises ConnectionFailed when the answer is a refusal, or none."""
        options = self._options
        connect = Connect(
            options.client_id,
            options.version,
            options.clean_start,
            options.keep_alive,
            options.will,
            options.username,
            options.password,
            options.properties,
        )
        if options.is_bridge:
            self.send_bridge_connect(connect)
        else:
            self.send(connect)
        try:
            async with asyncio.timeout(options.connect_timeout_s):
                packet = await self.receive()
        except TimeoutError:
            message = f"{self.endpoint} did not answer CONNECT within {options.connect_timeout_s:g} s - is it MQTT?"
            raise ConnectionFailed(message) from None
        except ConnectionLost as error:
            message = f"{self.endpoint} closed the connection instead of answering CONNECT - {self.suspicion()}"
            raise ConnectionFailed(message) from error
        if not isinstance(packet, ConnAck):
            raise ConnectionFailed(f"{self.endpoint} answered CONNECT with packet type {packet.kind}")
        self._check(packet)
        self.connack = packet
        self._apply_limits(packet.properties)

    def _check(self, connack: ConnAck) -> None:
        if connack.reason == 0:
            return
        name = reason_name(connack.reason) if self._options.version == V5 else return_code_name(connack.reason)
        why = explained(name, connack.properties)
        raise ConnectionFailed(f"{self.endpoint} refused the connection: {why}", connack.reason)

    def suspicion(self) -> str:
        """What is most likely wrong with a server that hangs up. With TLS 1.3 one that misses our certificate says so
        only after the handshake.
        """
        if self.endpoint.encrypted and self.endpoint.tls.cert is None:
            return "does it want a client certificate (--cert, --key)?"
        return "is it MQTT?"

    def _apply_limits(self, properties: Properties | None) -> None:
        if properties is None:
            return
        if properties.server_keep_alive is not None:
            self.keep_alive_s = properties.server_keep_alive
        if properties.maximum_packet_size is not None:
            self._max_packet = properties.maximum_packet_size

    @property
    def receive_maximum(self) -> int:
        """How many unacknowledged QoS 1 and 2 messages the server takes. [5: MQTT-3.3.4-7]"""
        properties = self.connack.properties
        if properties is None or properties.receive_maximum is None:
            return DEFAULT_RECEIVE_MAXIMUM
        return properties.receive_maximum

    def send(self, packet: Packet) -> None:
        """Writes a packet; `drain` when many follow. Raises UsageError when the server would not take it."""
        data = encode(packet, self._options.version)
        if len(data) > self._max_packet:  # [5: MQTT-3.2.2-15]
            raise UsageError(f"packet has {len(data)} bytes, the server takes no more than {self._max_packet}")
        if self._options.trace is not None:
            self._options.trace("sending", packet)
        self._stream.write(data)
        self.written_at_s = asyncio.get_running_loop().time()

    def send_bridge_connect(self, connect: Connect) -> None:
        """CONNECT with the highest bit of the protocol level set, which is behind the name of the protocol."""
        data = bytearray(encode(connect, self._options.version))
        data[data.index(b"MQTT") + len(b"MQTT")] |= BRIDGE_BIT
        self._stream.write(bytes(data))
        self.written_at_s = asyncio.get_running_loop().time()

    async def drain(self) -> None:
        try:
            await self._stream.drain()
        except OSError as error:
            raise self._lost(explain(error)) from error

    async def receive(self) -> Packet:
        """Returns the next packet.

        Raises ConnectionFailed when none can come, ProtocolError for one that may not be.
        """
        while (frame := self._frames.take()) is None:
            try:
                data = await self._stream.read()
            except OSError as error:
                raise self._lost(explain(error)) from error
            if not data:
                raise self._lost("closed by the other side")
            self.read_at_s = asyncio.get_running_loop().time()
            self._frames.feed(data)
        packet = decode(frame[0], frame[1], self._options.version, from_server=True)
        if self._options.trace is not None:
            self._options.trace("received", packet)
        if isinstance(packet, Publish):
            self._resolve_alias(packet)
        return packet

    def _lost(self, cause: str) -> ConnectionLost:
        return ConnectionLost(f"lost the connection to {self.endpoint}: {self._broken or cause}")

    def _resolve_alias(self, publish: Publish) -> None:
        alias = None if publish.properties is None else publish.properties.topic_alias
        if alias is None:
            return
        announced = self._options.properties
        if announced is None or alias > (announced.topic_alias_maximum or 0):  # [5: MQTT-3.1.2-26, 3.1.2-27]
            raise ProtocolError(f"topic alias {alias} is above the announced maximum", 0x94)
        if publish.topic:
            self._aliases[alias] = publish.topic
        elif alias in self._aliases:
            publish.topic = self._aliases[alias]
        else:
            raise ProtocolError(f"topic alias {alias} has no topic yet")

    @property
    def is_aborted(self) -> bool:
        """Whether it was this side that ended it."""
        return self._broken is not None

    async def abort(self, cause: str) -> None:
        """Closes without a word; a call that reads gets `cause` as the reason."""
        self._broken = cause
        await self._stream.close()

    async def close(self, farewell: Disconnect | None) -> None:
        """Closes, after DISCONNECT where one is due."""
        if farewell is not None:
            with contextlib.suppress(ConnectionFailed, OSError, UsageError):
                self.send(farewell)
                async with asyncio.timeout(2.0):
                    await self.drain()
        with contextlib.suppress(TimeoutError, OSError):
            await self._stream.close()


async def open_connection(endpoint: Endpoint, options: Options) -> BrokerConnection:
    opened = options.open_stream
    stream = await (opened() if opened is not None else open_stream(endpoint, options.connect_timeout_s))
    connection = BrokerConnection(stream, endpoint, options)
    try:
        await connection.handshake()
    except ProtocolError as error:
        await connection.close(None)
        raise ConnectionFailed(f"{endpoint} does not speak MQTT: {error}") from error
    except BaseException:
        await connection.close(None)
        raise
    return connection


def explained(name: str, properties: Properties | None) -> str:
    """The name of a reason, and what the server has to say about it, unless that is the same."""
    told = None if properties is None else properties.reason_string
    return f"{name} ({told})" if told and told.lower() != name.lower() else name
