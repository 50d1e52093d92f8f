"""The client: a session over one connection after another, as awaitable calls.

One task reads. Calls that wait for an answer (publish, subscribe, unsubscribe) leave a future under their packet id,
and the reader resolves it. Incoming messages wait in a queue until `receive` takes them; that is when QoS 1 and 2 are
acknowledged, so the server's window fills while nobody takes any. The reader stops reading when the queue holds too
many bytes, except while a call waits for an answer that only reading can bring.
"""

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import Callable
from typing import Final, NoReturn, Self

from holdfast.client.connection import BrokerConnection, Options, explained, open_connection
from holdfast.client.endpoint import Endpoint
from holdfast.client.qos_state import QosState
from holdfast.errors import ConnectionFailed, ConnectionLost, ProtocolError, UsageError
from holdfast.protocol.mqtt.packets import (
    PINGREQ,
    PINGRESP,
    PUBCOMP,
    V5,
    Ack,
    ConnAck,
    Disconnect,
    Packet,
    Ping,
    Publish,
    SubAck,
    Subscribe,
    SubscriptionRequest,
    Unsubscribe,
)
from holdfast.protocol.mqtt.properties import Properties
from holdfast.protocol.mqtt.reasons import SERVER_BUSY, SERVER_UNAVAILABLE, SERVER_UNAVAILABLE_311, reason_name

QUEUE_BYTES: Final = 32 << 20
TRY_AGAIN: Final = (0, SERVER_UNAVAILABLE, SERVER_BUSY, SERVER_UNAVAILABLE_311)

Answer = Ack | SubAck


class Client:
    def __init__(self, endpoint: Endpoint, options: Options | None = None) -> None:
        self.endpoint = endpoint
        self.options = options or Options()
        self._qos = QosState(self.options.version, self.options.max_inflight)
        self._connection: BrokerConnection | None = None
        self._connections_opened = 0
        self._reader: asyncio.Task[None] | None = None
        self._answers: dict[int, asyncio.Future[Answer]] = {}
        self._subscriptions: dict[bytes, tuple[SubscriptionRequest, Properties | None]] = {}
        self._queue: deque[tuple[int, Publish]] = deque()  # with the number of the connection it came on
        self._queued_bytes = 0
        self._changed = asyncio.Event()  # set whenever something that a call waits for may have happened
        self._failure: ConnectionFailed | None = None

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.disconnect()

    @property
    def connack(self) -> ConnAck | None:
        """What the server said when it accepted the connection that is open now."""
        return None if self._connection is None else self._connection.connack

    @property
    def waiting(self) -> int:
        """How many messages `receive` has ready."""
        return len(self._queue)

    async def connect(self) -> ConnAck:
        """Connect and start reading. Raises ConnectionFailed when there is no broker or it refuses."""
        connection = await open_connection(self.endpoint, self.options)
        self._failure = None
        self._use(connection)
        self._reader = asyncio.create_task(self._run(connection), name="mqtt-client-reader")
        return connection.connack

    async def disconnect(self, reason: int = 0, properties: Properties | None = None) -> None:
        """Send DISCONNECT and close; safe to repeat."""
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
            self._reader = None
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close(Disconnect(reason, properties))
        self._end(ConnectionFailed("the client has disconnected"))

    async def publish(
        self,
        topic: str | bytes,
        payload: bytes = b"",
        qos: int = 0,
        retain: bool = False,
        properties: Properties | None = None,
    ) -> Ack | None:
        """Send a message and wait until the server has it: PUBACK or PUBCOMP. At QoS 0 there is no answer."""
        name = topic.encode() if isinstance(topic, str) else topic
        answer = await self.send(Publish(name, payload, qos, retain, False, 0, properties))
        if answer is None:
            return None
        ack = await answer
        assert isinstance(ack, Ack)
        return ack

    async def send(self, publish: Publish) -> asyncio.Future[Answer] | None:
        """Send a message as soon as the window has room; the future brings its acknowledgement."""
        if publish.qos == 0:
            await self._send(publish)
            return None
        await self._until(lambda: self._connection is not None and self._qos.has_room)
        self._qos.start(publish)
        answer = self._expect(publish.packet_id)
        try:
            await self._send(publish)
        except UsageError:
            self._qos.withdraw(publish.packet_id)
            self._answers.pop(publish.packet_id, None)
            raise
        return answer

    async def subscribe(self, requests: list[SubscriptionRequest], properties: Properties | None = None) -> SubAck:
        """Subscribe and wait for SUBACK, where a reason of 0x80 or above refuses that filter."""
        packet_id = self._qos.request_id()
        answer = await self._ask(Subscribe(packet_id, requests, properties), packet_id)
        for request, reason in zip(requests, answer.reasons, strict=False):
            if reason < 0x80:
                self._subscriptions[request.topic_filter] = (request, properties)
        return answer

    async def unsubscribe(self, topic_filters: list[bytes], properties: Properties | None = None) -> SubAck:
        packet_id = self._qos.request_id()
        answer = await self._ask(Unsubscribe(packet_id, topic_filters, properties), packet_id)
        for topic_filter in topic_filters:
            self._subscriptions.pop(topic_filter, None)
        return answer

    async def receive(self) -> Publish:
        """The next message; taking it acknowledges it. Raises ConnectionFailed when none can come any more."""
        connection_number, publish = await self.take()
        self.acknowledge(connection_number, publish)
        return publish

    async def take(self) -> tuple[int, Publish]:
        """The next message, unacknowledged, with the number of the connection it came on."""
        await self._until(lambda: bool(self._queue))
        connection_number, publish = self._queue.popleft()
        self._queued_bytes -= len(publish.payload)
        self._changed.set()
        return connection_number, publish

    def acknowledge(self, connection_number: int, publish: Publish) -> None:
        """Acknowledge a message of `take`. On a later connection the server sends it again, and hears it then."""
        connection = self._connection
        if connection is not None and connection_number == self._connections_opened:
            ack = self._qos.accept(publish)
            if ack is not None:
                connection.send(ack)

    async def lost(self) -> NoReturn:
        """Wait for the connection to end for good; raises ConnectionFailed with the cause."""
        await self._until(lambda: False)
        raise AssertionError("a wait that ends only by its failure")

    async def _ask(self, packet: Packet, packet_id: int) -> SubAck:
        answer = self._expect(packet_id)
        try:
            await self._send(packet)
            result = await answer
        finally:
            self._answers.pop(packet_id, None)
            self._qos.request_done(packet_id)
        assert isinstance(result, SubAck)
        return result

    async def _send(self, packet: Packet) -> None:
        await self._until(lambda: self._connection is not None)
        connection = self._connection
        assert connection is not None
        connection.send(packet)
        try:
            await connection.drain()
        except ConnectionFailed:
            # The reader sees the end of the connection as well and says what became of it; what is unacknowledged is
            # sent again on the next connection, if there is one.
            if not isinstance(packet, Publish) or not self.options.reconnect:
                raise

    async def _until(self, happened: Callable[[], bool]) -> None:
        while not happened():
            if self._failure is not None:
                raise self._failure
            self._changed.clear()
            await self._changed.wait()

    def _expect(self, packet_id: int) -> asyncio.Future[Answer]:
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        # A caller may give up on it: then a failure is nobody's news.
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._answers[packet_id] = answer
        self._changed.set()
        return answer

    def _resolve(self, packet_id: int, packet: Answer) -> None:
        answer = self._answers.pop(packet_id, None)
        if answer is not None and not answer.done():
            answer.set_result(packet)
        self._changed.set()

    def _end(self, failure: ConnectionFailed) -> None:
        """Nothing more will come: tell everyone who waits."""
        if self._failure is None:
            self._failure = failure
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(self._failure)
        self._answers.clear()
        self._changed.set()

    def _use(self, connection: BrokerConnection) -> None:
        self._connections_opened += 1
        self._connection = connection
        self._qos.window = min(self.options.max_inflight, connection.receive_maximum)
        self._changed.set()

    async def _run(self, connection: BrokerConnection) -> None:
        """Read from one connection after another until there is to be no next one."""
        try:
            while True:
                failure = await self._read_until_lost(connection)
                self._connection = None
                if not self._tries_again(failure):
                    raise failure
                self._fail_requests(failure)
                connection = await self._reconnect()
                self._resume(connection)
        except ConnectionFailed as failure:
            self._end(failure)
        finally:
            self._end(ConnectionFailed("the client has disconnected"))

    def _tries_again(self, failure: ConnectionFailed) -> bool:
        """Whether there is to be another connection after one that was lost, or refused, like this."""
        return self.options.reconnect and failure.reason in TRY_AGAIN

    def _fail_requests(self, failure: ConnectionFailed) -> None:
        """Nobody will answer a SUBSCRIBE or UNSUBSCRIBE of the lost connection; messages are sent again instead."""
        for packet_id, answer in list(self._answers.items()):
            if not self._qos.is_outgoing(packet_id) and not answer.done():
                answer.set_exception(failure)

    async def _read_until_lost(self, connection: BrokerConnection) -> ConnectionFailed:
        pings = asyncio.create_task(self._keep_alive(connection), name="mqtt-client-keep-alive")
        farewell: Disconnect | None = None
        try:
            while True:
                self._on_packet(connection, await connection.receive())
                await self._until_queue_has_room()
        except ConnectionFailed as error:
            failure = error
        except ProtocolError as error:
            failure = ConnectionFailed(f"{self.endpoint} broke the protocol: {error}", error.reason)
            if self.options.version == V5:
                farewell = Disconnect(error.reason)
        except UsageError as error:  # an answer that the server's own limits forbid
            failure = ConnectionFailed(f"{self.endpoint} cannot be answered: {error}")
        finally:
            pings.cancel()
        await connection.close(farewell)
        return failure

    async def _until_queue_has_room(self) -> None:
        while self._queued_bytes > QUEUE_BYTES and not self._answers:
            self._changed.clear()
            await self._changed.wait()

    def _on_packet(self, connection: BrokerConnection, packet: Packet) -> None:
        if isinstance(packet, Publish):
            self._on_publish(connection, packet)
        elif isinstance(packet, Ack):
            reply, done = self._qos.on_ack(packet)
            if reply is not None:
                connection.send(reply)
            if done:
                self._resolve(packet.packet_id, packet)
        elif isinstance(packet, SubAck):
            self._qos.request_done(packet.packet_id)
            self._resolve(packet.packet_id, packet)
        elif isinstance(packet, Disconnect):
            why = explained(reason_name(packet.reason), packet.properties)
            raise ConnectionLost(f"{self.endpoint} ended the connection: {why}", packet.reason)
        elif packet.kind != PINGRESP:
            raise ProtocolError(f"a server may not send packet type {packet.kind} here")

    def _on_publish(self, connection: BrokerConnection, publish: Publish) -> None:
        wanted, reply = self._qos.on_publish(publish)
        if reply is not None:
            connection.send(reply)
        if wanted:
            self._queue.append((self._connections_opened, publish))
            self._queued_bytes += len(publish.payload)
            self._changed.set()

    async def _keep_alive(self, connection: BrokerConnection) -> None:
        """Ping when one direction was silent for the keep alive time; no bytes for as long again end the connection."""
        loop = asyncio.get_running_loop()
        while connection.keep_alive_s:
            silent_s = loop.time() - min(connection.written_at_s, connection.read_at_s)
            if silent_s < connection.keep_alive_s:
                await asyncio.sleep(connection.keep_alive_s - silent_s)
                continue
            asked_at_s = loop.time()
            connection.send(Ping(PINGREQ))
            await asyncio.sleep(connection.keep_alive_s)
            # While the queue is full nothing is read, and that is no fault of the server's.
            if connection.read_at_s < asked_at_s and self._queued_bytes <= QUEUE_BYTES:
                await connection.abort(f"no answer to a ping within {connection.keep_alive_s} s")
                return

    async def _reconnect(self) -> BrokerConnection:
        """Try until it works, waiting longer each time. Raises ConnectionFailed for a refusal that will not change."""
        delay_s = 1.0
        while True:
            # Clients that lost the same server should not all come back in the same instant.
            await asyncio.sleep(delay_s * random.uniform(0.5, 1.0))
            delay_s = min(delay_s * 2, self.options.reconnect_max_s)
            try:
                return await open_connection(self.endpoint, self.options)
            except ConnectionFailed as error:
                if not self._tries_again(error):
                    raise

    def _resume(self, connection: BrokerConnection) -> None:
        """Pick up on a new connection where the last one ended."""
        present = connection.connack.session_present
        if present:
            # What was received and not taken was not acknowledged, so the server sends it again.
            self._queue = deque(entry for entry in self._queue if entry[1].qos == 0)
            self._queued_bytes = sum(len(publish.payload) for _, publish in self._queue)
        else:
            for packet_id in self._qos.forget_released():
                self._resolve(packet_id, Ack(PUBCOMP, packet_id))
        self._use(connection)
        for packet in self._qos.resume(present):
            with contextlib.suppress(UsageError):
                connection.send(packet)
        if not present:
            for request, properties in self._subscriptions.values():
                connection.send(Subscribe(self._qos.request_id(), [request], properties))
